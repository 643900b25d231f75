"""The page about replay tells the truth: its functions work on a ledger, and its commands are commands."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from proctor.cli.main import main
from tests.replay.recorded_ledgers import PLUME, POPPER, Play, Sitting, record

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "replay.md").read_text("utf-8")


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """The names that the page's code defines."""
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        exec(compile(block, "replay.md", "exec"), names)
    return names


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    drifting = Sitting("tests.replay.environments:Drifting", plays=[Play(actions=[1] * 5)])
    batch = Sitting(POPPER, {"duration_ms": 1500}, [Play(7, 30)], 3, "same_step")
    plume = Sitting(PLUME, plays=[Play(steps=40)])
    return record(tmp_path_factory.mktemp("page") / "ledger", plume, drifting, batch)


def test_its_functions_do_what_they_say(page: dict[str, Any], folder: Path) -> None:
    differing = page["differing"](folder)
    subs, strangers = page["alone"](folder, "boot2.1")

    assert list(differing) == ["boot1.1"]
    assert str(differing["boot1.1"]).startswith("observation/total: recorded ")
    assert page["regrets"](folder, "boot0.1", 3, 1) == (0.0, 0.0)
    assert len(page["distances"](folder, "boot0.1")) == 3
    assert [equal for _, equal, _ in page["compared"](folder, "boot1.1")] == [True, True, True, False, False, False]
    assert len(subs) > 3
    assert strangers == []


def test_its_commands_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = re.findall(r"^proctor (replay .*?)(?:  +#.*)?$", PAGE, re.MULTILINE)
    assert len(commands) == 7

    for command in commands:
        arguments = shlex.split(command.replace("ledger/", str(folder)).replace("EPISODE", "boot0.1"), comments=True)

        # The ledger has an episode of an environment that is not deterministic, and not registered.
        expected = 0 if "boot0.1" in arguments else 1 if "--trust" in arguments else 2
        assert main(arguments) == expected, capsys.readouterr().err
