"""`proctor export`: an episode as one file, from wherever the ledger is."""

import re
from pathlib import Path

import pytest

from proctor.cli.main import main
from tests.cli.said import Run, assert_mistake
from tests.viewer import ledgers
from tests.viewer.pages import Page

STEPS = 12


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a ledger of one episode, `plume.1`, under a name that nobody guesses."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PROCTOR_LEDGER", raising=False)
    ledgers.plume_episode(tmp_path / "kept", STEPS)
    return tmp_path


def chains(path: Path) -> list[str]:
    return list(Page(path.read_text("utf-8")).contents["episodes"])


def test_it_writes_one_file_and_says_where_and_how_large(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["export", "plume.1", "--ledger", "kept", "--html", "out.html", "--title", "Mine"])

    said = capsys.readouterr()
    assert (code, said.err) == (0, "")
    assert re.fullmatch(r"out\.html  \d[\d.]* [kM]B\n", said.out)
    assert "<title>Mine</title>" in Path("out.html").read_text("utf-8")
    assert chains(folder / "out.html") == ["plume.1"]
    assert sorted(each.name for each in folder.iterdir()) == ["kept", "out.html"]


@pytest.mark.parametrize("episode", ["plume.1", "pl", "plume-episode"])
def test_the_ledger_may_be_named_by_the_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch, episode: str
) -> None:
    monkeypatch.setenv("PROCTOR_LEDGER", str(folder / "kept"))

    assert main(["export", episode, "--html", "out.html"]) == 0
    assert chains(folder / "out.html") == ["plume.1"]


def test_the_folder_called_ledger_is_taken_where_none_is_named(folder: Path) -> None:
    (folder / "kept").rename("ledger")

    assert main(["export", "plume", "--html", "out.html"]) == 0
    assert chains(folder / "out.html") == ["plume.1"]


def test_a_ledger_with_one_episode_needs_no_name_of_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_LEDGER", str(folder / "nowhere"))
    (file,) = (folder / "kept").glob("*.ledger")

    assert main(["export", "kept", "--html", "a.html"]) == 0
    assert main(["export", str(file), "--html", "b.html"]) == 0
    assert Path("a.html").read_bytes() == Path("b.html").read_bytes()


def test_another_episode_stands_beside_it(folder: Path) -> None:
    ledgers.plume_episode(folder / "kept", STEPS, session="other", turns_at=4)

    assert main(["export", "plume", "--ledger", "kept", "--beside", "other", "--html", "out.html"]) == 0
    assert chains(folder / "out.html") == ["plume.1", "other.1"]


@pytest.mark.parametrize("by", ["text", "file"])
def test_a_branch_stands_beside_it(folder: Path, by: str) -> None:
    Path("actions.json").write_text("[0, 0]", "utf-8")
    actions = {"text": "[0, 0]", "file": "actions.json"}[by]

    assert main(["export", "kept", "--fork", "5", "--actions", actions, "--html", "out.html"]) == 0
    assert chains(folder / "out.html") == ["plume.1", "plume.1~fork@5"]


def test_a_file_that_is_there_is_replaced_only_by_force(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("out.html").write_text("mine", "utf-8")

    assert main(["export", "kept", "--html", "out.html"]) == 2
    assert "'out.html' is there already; expected another name, or --force" in capsys.readouterr().err
    assert Path("out.html").read_text("utf-8") == "mine"

    assert main(["export", "kept", "--html", "out.html", "--force"]) == 0
    assert chains(folder / "out.html") == ["plume.1"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plume"], "expected --ledger PATH, or PROCTOR_LEDGER in the environment, or a folder ./ledger"),
        (["x" * 5000], "expected --ledger PATH"),
        (["plume", "--ledger", "nowhere"], "there is no ledger nowhere"),
        (["nobody", "--ledger", "kept"], "there is no such episode; found 'nobody'; expected one of plume.1"),
        (["plume", "--ledger", "kept", "--beside", "nobody"], "there is no such episode; found 'nobody'"),
        (["kept", "--fork", "3"], "--fork and --actions go together"),
        (["kept", "--actions", "[]"], "--fork and --actions go together"),
        (["kept", "--fork", "3", "--actions", "up"], "these are no actions"),
        (["kept", "--fork", "3", "--actions", "[" * 5_000], "these are no actions"),
        (["kept", "--fork", "99", "--actions", "[0]"], "this episode has no such step"),
        (["kept", "--html", "nowhere/out.html"], "there is no folder 'nowhere'"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(
    folder: Path, run_command: Run, arguments: list[str], said: str
) -> None:
    place = [] if "--html" in arguments else ["--html", "out.html"]

    assert_mistake(run_command("export", *arguments, *place), said)
    assert not (folder / "out.html").exists()


def test_a_ledger_of_several_asks_which(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledgers.plume_episode(folder / "kept", 3, session="other")

    assert main(["export", "kept", "--html", "out.html"]) == 2
    assert "which episode?" in capsys.readouterr().err


def test_the_two_exports_name_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    main(["export", "--help"])
    main(["ledger", "export", "--help"])

    page, programs = capsys.readouterr().out.split("Usage: proctor ledger export")
    assert "proctor ledger export" in page
    assert "proctor export" in " ".join(programs.split())
