"""`proctor check` says what is kept, what is broken and what cannot be told, and never shows a traceback."""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from proctor.contracts.clauses import CLAUSES, Subject, list_clauses
from tests.cli.said import Run, assert_mistake

PARTS = """
import gymnasium as gym
import numpy as np

from proctor.contracts.spatial import AgentState, Coordinates


class Drifts:
    def __init__(self):
        self.action_space = gym.spaces.Discrete(2)

    def process_action(self, action, current_state, grid_size):
        return AgentState(Coordinates(current_state.position.x + 1, 0))

    def validate_action(self, action):
        return self.action_space.contains(action)

    def get_metadata(self):
        return {"type": "drifts", "parameters": {}, "movement_model": "east"}


class Picky:
    def __init__(self, secret):
        self.secret = secret


class Explodes:
    def __init__(self):
        raise RuntimeError("not today")


class Leaves:
    def __init__(self):
        raise SystemExit("enough")


class LeavesLater(Drifts):
    def process_action(self, action, current_state, grid_size):
        raise SystemExit(3)


class Sitting:
    def __init__(self, site):
        self.grid_size = site.grid_size

    def sample(self, position):
        if not self.grid_size.contains(position):
            raise IndexError(position)
        return 0.0

    @property
    def field_array(self):
        array = np.zeros((self.grid_size.height, self.grid_size.width))
        array.flags.writeable = False
        return array


def drifting():
    return Drifts()


number = 3
"""


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the user's own in the current directory."""
    name = f"parts_of_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(PARTS, "utf-8")
    (tmp_path / f"{name}_broken.py").write_text("1 / 0", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return name


@pytest.fixture
def run(run_command: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `proctor check` on a wide terminal."""
    monkeypatch.setenv("COLUMNS", "200")
    return partial(run_command, "check")


Read = Callable[[str], dict[str, Any]]


@pytest.fixture
def report_of(run: Run) -> Read:
    """Return what `--json` says about a target."""

    def read(target: str) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(run(target, "--json").out)
        return report

    return read


def test_our_environment_keeps_every_clause(run: Run) -> None:
    result = run("proctor/PlumeSearch-v0")

    assert result.code == 0
    assert f"{len(list_clauses(Subject.ENVIRONMENT))} kept, 0 broken, 0 not checkable" in result.out


def test_a_foreign_environment_is_checked_as_far_as_it_can_be_seen(report_of: Read) -> None:
    report = report_of("CartPole-v1")
    verdicts = {row["id"]: row["verdict"] for row in report["clauses"]}

    assert set(verdicts) == {clause.id for clause in list_clauses(Subject.ENVIRONMENT)}
    assert verdicts["ENV-RESET-D1"] == verdicts["ENV-STEP-D1"] == verdicts["ENV-STEP-C2"] == "kept"
    assert verdicts["NO-STEP-AFTER-CLOSE"] == "broken"
    assert verdicts["ENV-I1"] == "not checkable"


@pytest.mark.slow
@pytest.mark.parametrize("target", ["SpecKitAI/ColumnPopper-v1", "proctor/ColumnPopper-v0"])
def test_column_popper_is_checked_as_an_environment_and_as_a_game(report_of: Read, target: str) -> None:
    report = report_of(target)
    verdicts = {row["id"]: row["verdict"] for row in report["clauses"]}

    own = {clause.id for clause in list_clauses(Subject.COLUMN_POPPER)}
    assert (report["subject"], report["broken"]) == (Subject.COLUMN_POPPER, 0)
    assert set(verdicts) == own | {clause.id for clause in list_clauses(Subject.ENVIRONMENT)}
    assert {verdicts[name] for name in own} == {"kept"}
    assert verdicts["STEP-TRUNCATE"] == verdicts["STEP-TERMINATE-GOAL"] == "kept"
    assert verdicts["ENV-I2"] == "not checkable"


@pytest.mark.parametrize(
    ("target", "subject"),
    [
        pytest.param("proctor.envs.plume.env:PlumeSearchEnv", Subject.ENVIRONMENT, marks=pytest.mark.slow),
        ("proctor.envs.plume.actions:RunTumbleActions", Subject.ACTION_PROCESSOR),
        ("proctor.envs.plume.sensors:AntennaePair", Subject.SENSOR),
        ("proctor.envs.plume.rewards:SparseGoalReward", Subject.REWARD),
        ("proctor.envs.plume.fields:GaussianPlume", Subject.FIELD),
        ("proctor.envs.plume.fields:PuffPlume", Subject.FIELD),
    ],
)
def test_a_class_is_known_by_its_members_and_made_on_a_small_site(
    report_of: Read, target: str, subject: Subject
) -> None:
    report = report_of(target)

    assert report["subject"] == subject
    assert report["broken"] == 0
    assert report["kept"] + report["not_checkable"] == len(list_clauses(subject))


def test_a_broken_part_is_shown_with_its_counterexample(run: Run, parts: str) -> None:
    result = run(f"{parts}:Drifts")

    assert result.code == 1
    assert "ACT-PROC-C2" in result.out
    assert "leads to (1, 0)" in result.out


def test_the_json_report_names_every_clause_and_why(report_of: Read, parts: str) -> None:
    report = report_of(f"{parts}:drifting")
    rows = {row["id"]: row for row in report["clauses"]}

    assert report["broken"] == sum(row["verdict"] == "broken" for row in rows.values()) > 0
    assert rows["ACT-1"]["reason"].startswith("action 0 at (0, 0)")
    assert rows["ACT-META"] == {
        "id": "ACT-META",
        "sentence": CLAUSES["ACT-META"].sentence,
        "verdict": "kept",
        "reason": None,
    }


def test_a_class_that_asks_for_the_site_gets_it(report_of: Read, parts: str) -> None:
    report = report_of(f"{parts}:Sitting")

    assert (report["subject"], report["broken"]) == (Subject.FIELD, 0)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("NoSuchEnvironment-v0", "NoSuchEnvironment"),
        ("no_such_module:Thing", "cannot import 'no_such_module'"),
        ("{parts}:Thing", "no such member"),
        ("{parts}:number", "cannot be called"),
        ("{parts}:Picky", "write a function without arguments"),
        ("{parts}:Explodes", "cannot be made: RuntimeError: not today"),
        ("{parts}:Leaves", "ends the process: SystemExit: enough"),
        ("{parts}:LeavesLater", "ends the process: SystemExit: 3"),
        ("{parts}_broken:Thing-v0", "cannot import '{parts}_broken': ZeroDivisionError"),
        ("{parts}_broken:Thing", "ZeroDivisionError"),
        ("builtins:dict", "nothing that has a contract"),
        ("proctor.envs.plume.actions:EightDirectionActions.nothing", "no such member"),
    ],
)
def test_a_users_mistake_is_a_message_and_the_exit_code_2(run: Run, parts: str, target: str, words: str) -> None:
    assert_mistake(run(target.format(parts=parts)), words.format(parts=parts))
