"""The command: quick to help, and a user's mistake is one line."""

import os
import runpy
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

import proctor
from proctor.cli import envs
from proctor.cli.main import COMMANDS, app, main
from proctor.errors import ValidationError

HEAVY = ["gymnasium", "numpy", "numba", "matplotlib", "pygame", "rich.progress", "proctor.cli.run"]


def started(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PROCTOR_TRACEBACK": ""},
    )


def test_the_process_itself_answers_a_mistake_with_one_line_and_code_2() -> None:
    process = started("-m", "proctor", "run", "proctor/Nowhere-v0")

    assert process.returncode == 2
    assert process.stdout == ""
    assert process.stderr.count("\n") == 1
    assert "Nowhere" in process.stderr


def test_help_imports_nothing_heavy() -> None:
    code = f"import sys; from proctor.cli.main import main; main(['--help']); print([m for m in {HEAVY} if m in sys.modules])"

    process = started("-c", code)

    assert process.stdout.endswith("[]\n")


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_names_every_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0

    out = capsys.readouterr().out
    assert "Reinforcement-learning environments under contract." in out
    assert all(command.name in out and command.about in out for command in COMMANDS)


@pytest.mark.parametrize("name", [command.name for command in COMMANDS])
def test_every_command_has_help_of_its_own(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0

    assert capsys.readouterr().out.startswith(f"Usage: proctor {name}")


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0

    assert capsys.readouterr().out == f"proctor {proctor.__version__}\n"


def test_the_app_works_in_the_hands_of_a_runner_too() -> None:
    result = CliRunner().invoke(app, ["envs", "--json"])

    assert result.exit_code == 0


def test_the_arguments_of_the_process_are_the_default(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["proctor", "--version"])

    assert main() == 0
    assert capsys.readouterr().out


def test_python_m_is_the_same_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["proctor", "--version"])

    with pytest.raises(SystemExit) as ended:
        runpy.run_module("proctor", run_name="__main__")

    assert ended.value.code == 0
    assert capsys.readouterr().out


def failing_with(problem: BaseException) -> object:
    def envs() -> None:
        raise problem

    return envs


@pytest.mark.parametrize("problem", [KeyboardInterrupt(), typer.Abort()])
def test_an_interrupt_is_quiet(
    problem: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(envs, "envs", failing_with(problem))

    assert main(["envs"]) == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (MemoryError(), "MemoryError"),
        (MemoryError("Unable to allocate 37 GiB"), "Unable to allocate 37 GiB"),
        (OverflowError("int too large"), "int too large"),
    ],
)
def test_what_is_too_large_is_one_line(
    problem: Exception, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(envs, "envs", failing_with(problem))

    assert main(["envs"]) == 2
    assert capsys.readouterr() == ("", f"proctor: too large for this machine: {said}\n")


def test_a_mistake_of_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envs, "envs", failing_with(RuntimeError("a bug")))

    with pytest.raises(RuntimeError, match="a bug"):
        main(["envs"])


def test_the_traceback_of_a_users_mistake_is_there_for_those_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_TRACEBACK", "1")
    monkeypatch.setattr(envs, "envs", failing_with(ValidationError("wrong")))

    with pytest.raises(ValidationError):
        main(["envs"])


def test_a_message_of_several_lines_becomes_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(envs, "envs", failing_with(ValidationError("first\n  second")))

    assert main(["envs"]) == 2
    assert capsys.readouterr().err == "proctor: first second\n"


@pytest.mark.parametrize(
    ("missing", "extra"), [("starlette", "serve"), ("prometheus_client", "serve"), ("numba", "vector")]
)
def test_a_package_that_is_missing_is_named_with_the_command_that_brings_it(
    missing: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(name: str) -> object:
        raise ModuleNotFoundError(f"No module named {missing!r}", name=f"{missing}.inner")

    monkeypatch.setattr("proctor.cli.main.import_module", fail)

    assert main(["envs"]) == 2
    assert f"pip install 'proctor-rl[{extra}]'" in capsys.readouterr().err


def test_a_package_that_no_extra_brings_is_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> object:
        raise ModuleNotFoundError("No module named 'nowhere'", name="nowhere")

    monkeypatch.setattr("proctor.cli.main.import_module", fail)

    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        main(["envs"])
