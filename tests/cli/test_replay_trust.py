"""Without --trust no command makes what a record names, unless it is registered here; the error says how to."""

import re
import shlex
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from proctor.cli.main import main
from proctor.models.events import Event, SessionOpened
from tests.cli.recordings import real, written

TARGET = "proctor/PlumeSearch-v0"
SMALL = {"grid_size": [12, 12], "max_steps": 20}
COMMANDS = [
    ["replay", "LEDGER"],
    ["replay", "LEDGER", "walk.1"],
    ["replay", "LEDGER", "--alone", "--json"],
    ["replay", "LEDGER", "--at", "1"],
    ["replay", "--fork", "1", "--actions", "[0]", "--", "LEDGER", "walk.1"],
    ["export", "LEDGER", "--html", "out page.html", "--fork", "1", "--actions", "[0]"],
    ["ledger", "export", "LEDGER", "--format", "minari", "--out", "walk-v0"],
]


# The stories of `real` have no metadata, so that whatever is replayed differs.
def named(target: str, settings: dict[str, Any]) -> Iterator[Event]:
    """Yield an episode whose record names another target than it was played on."""
    for event in real("walk", TARGET, steps=3, seeds=(1,), settings=SMALL):
        yield replace(event, target=target, settings=settings) if isinstance(event, SessionOpened) else event


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_that_a_record_names_runs_only_with_trust(
    here: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    mark = here / "a mark"
    path = written(here / "some ledger", named("subprocess:check_output", {"args": ["touch", str(mark)]}))
    typed = [str(path) if word == "LEDGER" else word for word in command]

    code = main(typed)

    said = capsys.readouterr()
    (again,) = re.findall("`([^`]*)`", said.err)
    assert (code, said.out) == (2, "")
    assert "subprocess:check_output" in said.err
    assert not mark.exists()
    program, *arguments = shlex.split(again)
    assert program == "proctor"
    assert [word for word in arguments if word != "--trust"] == typed
    main(arguments)
    assert mark.exists()


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_file_that_a_record_names_is_opened_only_with_trust(
    here: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    (here / "setup.toml").write_text("max_steps = 3\n", "utf-8")
    path = written(here / "ledger", named(TARGET, {"config": "setup.toml"}))

    code = main([str(path) if word == "LEDGER" else word for word in command])

    assert code == 2
    assert "would open a file that its record names" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS[:-1], ids=" ".join)
def test_what_is_registered_needs_no_trust(here: Path, command: list[str]) -> None:
    path = written(here / "ledger", named(TARGET, SMALL))

    assert main([str(path) if word == "LEDGER" else word for word in command]) in (0, 1)


def test_nothing_is_replayed_if_one_episode_needs_trust(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = list(real("good", TARGET, steps=3, seeds=(1,), settings=SMALL))
    path = written(here / "ledger", [*good, *named("builtins:dict", {})])

    assert main(["replay", str(path)]) == 2
    assert capsys.readouterr().out == ""
    assert main(["replay", str(path), "good.1"]) == 1


def test_an_episode_that_cannot_be_read_is_told_and_hides_no_other(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = list(real("good", TARGET, steps=3, seeds=(1,), settings=SMALL))
    path = written(here / "ledger", [*named(TARGET, SMALL), *good])
    (file,) = path.glob("*.ledger")
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("UPDATE rows SET body = x'7b7d' WHERE number = (SELECT first FROM chains WHERE name = 'walk.1')")
    connection.close()

    code = main(["replay", str(path)])

    said = capsys.readouterr().out
    assert code == 1
    assert "walk.1: row " in said
    assert said.endswith("2 episodes: 1 different, 1 cannot be replayed\n")
