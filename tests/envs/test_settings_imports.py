"""Imports: a user's own module is found where the user is, and whatever it raises is one line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import gymnasium as gym
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.cli.main import main
from proctor.envs.settings import import_member, import_user_module, make_env
from proctor.errors import ValidationError

REGISTERS = """
import gymnasium as gym


class Own(gym.Env):
    observation_space = gym.spaces.Discrete(2)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return 0, 1.0, True, False, {}


gym.register("own/Made-v0", entry_point=Own)
"""

# What a module's text is, and what is said of it.
BROKEN = {
    "import no_such_module": "ModuleNotFoundError: No module named 'no_such_module'",
    "raise ValueError('not\\n today')": "ValueError: not today",
    "def (": "SyntaxError: ",
    "raise SystemExit('usage: nothing')": "SystemExit: usage: nothing",
}

Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write a module into the current directory and return its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def put(text: str) -> str:
        name = f"own_{tmp_path.name.replace('-', '_')}"
        (tmp_path / f"{name}.py").write_text(text, "utf-8")
        return name

    yield put
    gym.registry.pop("own/Made-v0", None)


@pytest.mark.parametrize("command", [["run", "{}:Own-v0"], ["check", "{}:Own-v0"], ["check", "{}:Own"]])
@pytest.mark.parametrize(("text", "says"), BROKEN.items())
def test_a_module_that_does_not_import_is_one_line_in_every_command(
    command: list[str], text: str, says: str, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    module = write(text)

    code = main([word.format(module) for word in command])

    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert f"proctor: cannot import '{module}': {says}" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "code"), [(["run", "{}:own/Made-v0", "--episodes", "1"], 0), (["check", "{}:own/Made-v0"], 1)]
)
def test_a_module_in_the_current_directory_registers_its_environment(
    command: list[str], code: int, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    module = write(REGISTERS)

    assert main([word.format(module) for word in command]) == code
    assert "own/Made-v0" in capsys.readouterr().out


def test_a_member_is_found_by_its_dots() -> None:
    assert import_member("pathlib", "Path.cwd") == Path.cwd


@pytest.mark.parametrize(
    ("member", "says"), [("Nothing", "no such member"), ("Path.nothing", "no such"), ("__name__", "cannot be called")]
)
def test_a_member_that_cannot_be_called_is_refused(member: str, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        import_member("pathlib", member)


@given(st.text(alphabet="abc.:-é \x00", max_size=8))
def test_any_name_is_a_module_or_a_message(name: str) -> None:
    with nullcontext() if name == "abc" else pytest.raises(ValidationError, match="cannot import"):
        assert import_user_module(name).__name__ == name


def test_what_is_registered_is_made_without_a_look_into_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each not in ("", str(tmp_path))])
    (tmp_path / "pygame.py").write_text("raise SystemExit('a file that lies beside a record')", "utf-8")

    make_env("CartPole-v1", {}).close()

    assert str(tmp_path) not in sys.path
