"""The checks tell sound from broken on anybody's parts and environments, and say so in words one can act on."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import unittest
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import DependencyNotInstalled
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from proctor.contracts.clauses import CLAUSES, Subject, list_clauses
from proctor.contracts.conformance import (
    CHECKS,
    ActionProcessorSuite,
    ClauseVerdict,
    EnvironmentSuite,
    FieldSuite,
    Finding,
    Report,
    RewardSuite,
    SensorSuite,
    check_clause,
    check_subject,
)
from proctor.contracts.conformance.report import CannotTell, run_check, shorten
from proctor.contracts.conformance.samples import RampField, is_identical, iterate_arrays, members, non_members, samples
from proctor.contracts.lifecycle import EnvironmentState
from proctor.contracts.spatial import Coordinates, GridSize
from proctor.envs.plume import actions, sensors
from proctor.envs.plume.env import PlumeSearchEnv
from proctor.envs.plume.fields import AdvectedPlume, GaussianPlume, PuffPlume
from proctor.envs.plume.movies import MoviePlume
from proctor.envs.plume.rewards import ShapedReward, SparseGoalReward, StepPenaltyReward
from proctor.errors import MissingExtraError
from tests.contracts.mutants import MUTANTS, SecretlyMoves

GRID, SOURCE = GridSize(6, 4), Coordinates(1, 2)

SOUND_PARTS: list[tuple[Subject, Callable[[], Any]]] = [
    (Subject.ACTION_PROCESSOR, actions.DiscreteGridActions),
    (Subject.ACTION_PROCESSOR, actions.OrientedGridActions),
    (Subject.ACTION_PROCESSOR, actions.EightDirectionActions),
    (Subject.ACTION_PROCESSOR, actions.ContinuousActions),
    (Subject.ACTION_PROCESSOR, actions.RunTumbleActions),
    (Subject.SENSOR, sensors.ConcentrationSensor),
    (Subject.SENSOR, sensors.BinaryHitSensor),
    (Subject.SENSOR, sensors.PoissonHitSensor),
    (Subject.SENSOR, sensors.AntennaePair),
    (Subject.SENSOR, sensors.WindSensor),
    (Subject.SENSOR, lambda: sensors.HistorySensor(sensors.BinaryHitSensor(), 3)),
    (
        Subject.SENSOR,
        lambda: sensors.DictSensor(
            {"odor": sensors.HistorySensor(sensors.ConcentrationSensor()), "wind": sensors.WindSensor()}
        ),
    ),
    (Subject.SENSOR, lambda: sensors.HistorySensor(sensors.DictSensor({"odor": sensors.ConcentrationSensor()}), 2)),
    (Subject.REWARD, lambda: SparseGoalReward(SOURCE, 1.0)),
    (Subject.REWARD, lambda: StepPenaltyReward(SOURCE, 0.0)),
    (Subject.REWARD, lambda: ShapedReward(SparseGoalReward(SOURCE, 1.0), SOURCE)),
    (Subject.FIELD, lambda: GaussianPlume(GRID, SOURCE, 1.5)),
    (Subject.FIELD, lambda: GaussianPlume(GridSize(40, 33), SOURCE)),
    (Subject.FIELD, lambda: AdvectedPlume(GRID, SOURCE)),
    (Subject.FIELD, lambda: PuffPlume(GRID, SOURCE, warm_up=4)),
    (Subject.FIELD, lambda: MoviePlume(np.linspace(0, 1, 60).reshape(3, 4, 5))),
]


class Foreign(gym.Env[Any, Any]):
    """Somebody's environment, which knows nothing of ours: walks right, ends at 5."""

    observation_space: spaces.Space[Any] = spaces.Box(0.0, 10.0, (1,), np.float32)
    action_space: spaces.Space[Any] = spaces.Box(0.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = float(self.np_random.random())
        return np.array([self.place], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place += float(action[0])
        return np.array([self.place], np.float32), 0.0, self.place > 5.0, False, {}


def one_plume_search() -> PlumeSearchEnv:
    """A factory that takes no keywords."""
    return PlumeSearchEnv()


class Forgiving(Foreign):
    """Takes any action at all, so no step can be made to fail."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(1, np.float32), 0.0, True, False, {}


def verdicts(report: Report) -> dict[str, str]:
    return {finding.clause.id: finding.verdict for finding in report.findings}


# ------------------------------------------------------------------------------------------------- sound subjects
@pytest.mark.parametrize(("subject", "make"), SOUND_PARTS)
def test_every_part_of_the_plume_search_keeps_its_contract(subject: Subject, make: Callable[[], Any]) -> None:
    report = check_subject(subject, make)

    assert report.broken == ()
    assert len(report.findings) == len(list_clauses(subject))


@pytest.mark.parametrize(
    "settings",
    [
        {"config": {"plume": {"type": "puffs", "warm_up": 2}, "observation": "wind"}},
        {"config": {"observation": {"type": "history", "length": 2}, "action": "continuous"}},
        {"config": {"reward": "shaped", "action": "run_tumble", "info_level": "minimal"}},
        {"plume_model": GaussianPlume(GRID, SOURCE), "max_steps": 12},
    ],
)
def test_the_plume_search_keeps_its_contract_with_other_parts(settings: dict[str, Any]) -> None:
    stems = ("ENV-RESET", "ENV-STEP", "ENV-ATOMIC", "ENV-CLOSE", "STEP-")
    names = [clause.id for clause in list_clauses(Subject.ENVIRONMENT) if clause.id.startswith(stems)]
    findings = [check_clause(name, partial(PlumeSearchEnv, **settings)) for name in names]

    assert [str(finding) for finding in findings if finding.verdict != "kept"] == []


def test_the_same_subject_gets_the_same_report() -> None:
    reports = [check_subject(Subject.ENVIRONMENT, Foreign) for _ in range(2)]

    assert reports[0] == reports[1]


# ----------------------------------------------------------------------------------------------- foreign subjects
def test_a_foreign_environment_is_judged_by_what_can_be_seen() -> None:
    found = verdicts(check_subject(Subject.ENVIRONMENT, Foreign))

    assert {found[name] for name in ("ENV-RESET-D1", "ENV-STEP-D1", "ENV-STEP-C1", "ENV-STEP-C2")} == {"kept"}
    assert {found[name] for name in ("ENV-STEP-C4", "ENV-STEP-C5", "ENV-CLOSE-I1")} == {"kept"}
    assert {found[name] for name in ("ENV-I3", "ENV-STEP-P1", "NO-STEP-AFTER-CLOSE")} == {"broken"}
    assert {found[f"ENV-I{number}"] for number in (1, 2, 4, 5, 6, 7, 8, 9)} == {"not checkable"}
    assert {found[f"ENV-INIT-P{number}"] for number in range(1, 7)} == {"not checkable"}


@pytest.mark.parametrize(
    ("clause", "make", "why"),
    [
        ("ENV-I1", Foreign, "no attribute `_state`"),
        ("ENV-INIT-C5", Foreign, "no attribute `_action_proc`"),
        ("ENV-INIT-P2", Foreign, "takes no parts"),
        ("ENV-INIT-P4", one_plume_search, "takes no `max_steps`"),
        ("ENV-RENDER-C1", Foreign, "takes no `render_mode`"),
        ("ENV-RENDER-C2", partial(gym.make, "CartPole-v1"), "would open a window"),
        ("ENV-RENDER-P2", partial(PlumeSearchEnv, render_mode="rgb_array"), "comes with the render mode"),
        ("ENV-ATOMIC", Forgiving, "no step could be made to raise"),
        ("STEP-CONTINUE", Forgiving, "every first step ended"),
        ("STEP-TRUNCATE", Forgiving, "no episode of 2048 steps ended truncated"),
        ("SENSOR-7", sensors.ConcentrationSensor, "remembers nothing"),
        ("FIELD-6", lambda: GaussianPlume(GRID, SOURCE), "does not vary"),
    ],
)
def test_what_cannot_be_seen_is_not_checkable_and_says_why(clause: str, make: Callable[..., Any], why: str) -> None:
    finding = check_clause(clause, make)

    assert finding.verdict is ClauseVerdict.NOT_CHECKABLE, str(finding)
    assert why in finding.reason


def test_an_environment_that_draws_no_arrays_cannot_show_one() -> None:
    class Blind(PlumeSearchEnv):
        metadata = {"render_modes": ["human"], "render_fps": 1}

    finding = check_clause("ENV-RENDER-C1", Blind)

    assert finding.verdict is ClauseVerdict.NOT_CHECKABLE
    assert finding.reason == "the environment has no render mode rgb_array"


def test_a_plume_that_fits_no_small_grid_is_checked_on_its_own() -> None:
    make = partial(PlumeSearchEnv, plume_model=GaussianPlume(GridSize(6, 1), Coordinates(5, 0)))

    assert check_clause("STEP-TERMINATE-GOAL", make).verdict is ClauseVerdict.KEPT


def test_a_long_walk_is_told_in_short() -> None:
    class NeverTired(PlumeSearchEnv):
        def step(self, action: Any) -> Any:
            result = super().step(action)
            return (*result[:1], float("nan"), *result[2:]) if self._step_count == 20 else result

    finding = check_clause("ENV-STEP-C3", lambda: NeverTired(grid_size=(50, 50)))

    assert finding.reason.startswith("make(), reset(seed=0), step(")
    assert "… 16 calls …" in finding.reason


# --------------------------------------------------------------------------------------------- whatever code raises
@pytest.mark.parametrize("name", CHECKS)
def test_a_subject_that_cannot_even_be_made_breaks_every_clause(name: str) -> None:
    finding = check_clause(name, Mock(side_effect=ZeroDivisionError("no subject")))

    assert (finding.verdict, finding.reason) == (ClauseVerdict.BROKEN, "make(): raised ZeroDivisionError: no subject")


@pytest.mark.parametrize(
    "absent", [MissingExtraError("a window", package="pygame", extra="human"), DependencyNotInstalled("no pygame")]
)
def test_a_missing_dependency_is_no_breach(absent: Exception) -> None:
    finding = check_clause("ENV-I1", Mock(side_effect=absent))

    assert finding.verdict is ClauseVerdict.NOT_CHECKABLE
    assert finding.reason == f"a dependency is not installed: {absent}"


def test_a_warning_is_no_breach_even_where_warnings_are_errors() -> None:
    class Outdated(actions.DiscreteGridActions):
        def get_metadata(self) -> dict[str, Any]:
            warnings.warn("old", DeprecationWarning, stacklevel=1)
            return super().get_metadata()

    finding = check_clause("ACT-META", Outdated)

    assert finding.verdict is ClauseVerdict.KEPT


@given(st.text())
def test_whatever_a_check_raises_becomes_a_finding(words: str) -> None:
    broken = run_check(CLAUSES["ENV-I1"], Mock(side_effect=RuntimeError(words)), object)
    silent = run_check(CLAUSES["ENV-I1"], Mock(side_effect=CannotTell(words)), object)

    assert broken.verdict is ClauseVerdict.BROKEN
    assert len(broken.reason) <= 400
    assert (silent.verdict, silent.reason) == (ClauseVerdict.NOT_CHECKABLE, words)


# ---------------------------------------------------------------------------------------------------------- reports
def test_a_finding_reads_as_id_verdict_sentence_and_reason() -> None:
    clause = CLAUSES["ACT-1"]

    assert str(Finding(clause, ClauseVerdict.KEPT)) == f"ACT-1 kept: {clause.sentence}"
    assert str(Finding(clause, ClauseVerdict.BROKEN, "left")) == f"ACT-1 broken: {clause.sentence}\n  left"
    assert str(Finding(clause, ClauseVerdict.NOT_CHECKABLE, "why")) == f"ACT-1 not checkable: {clause.sentence}\n  why"


def test_a_report_counts_its_verdicts() -> None:
    kept, broken, _ = ClauseVerdict
    report = Report(tuple(Finding(CLAUSES["ACT-1"], verdict) for verdict in (kept, broken, kept)))

    assert [report.count(verdict) for verdict in ("kept", "broken", "not checkable")] == [2, 1, 0]
    assert report.broken == (report.findings[1],)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (EnvironmentState.READY, "ready"),
        (object(), "<object object>"),
        (np.zeros((2, 2)), "array([[0., 0.], [0., 0.]])"),
    ],
)
def test_values_are_shown_on_one_line_without_addresses(value: object, text: str) -> None:
    assert shorten(value) == text


# ----------------------------------------------------------------------------------------------------------- scopes
SPACES: list[spaces.Space[Any]] = [
    spaces.Discrete(3, start=-1),
    spaces.Discrete(1000),
    spaces.Box(-1.0, 1.0, (2,), np.float32),
    spaces.Box(-np.inf, np.inf, (2,), np.float64),
    spaces.Box(0, 255, (1,), np.uint8),
    spaces.MultiDiscrete([2, 3]),
    spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Tuple([spaces.Discrete(2), spaces.MultiBinary(1)])}),
]


@pytest.mark.filterwarnings("ignore:.*Casting input")
@pytest.mark.parametrize("space", SPACES, ids=str)
def test_members_are_in_the_space_strangers_are_not_and_both_are_always_the_same(space: spaces.Space[Any]) -> None:
    inside, outside = list(members(space)), non_members(space)

    assert inside
    assert outside
    assert all(space.contains(value) for value in inside)
    assert not any(space.contains(value) for value in outside)
    assert is_identical(inside, list(members(space)))
    assert is_identical(list(samples(space)), list(samples(space)))


def test_sampling_leaves_the_generator_of_the_space_alone() -> None:
    space, twin = spaces.Discrete(1000), spaces.Discrete(1000)
    for each in (space, twin):
        each.seed(5)
    list(samples(space))

    assert [space.sample() for _ in range(5)] == [twin.sample() for _ in range(5)]


values = st.recursive(
    st.one_of(
        st.integers(),
        st.text(),
        st.floats(),
        arrays.arrays(np.float32, arrays.array_shapes(max_dims=2, max_side=3)),
        arrays.arrays(np.object_, 2, elements=st.integers()),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=6,
)


@given(values)
def test_every_value_is_the_same_as_itself_and_other_than_itself_in_a_list(value: Any) -> None:
    assert is_identical(value, value)
    assert not is_identical(value, [value, value])
    assert not is_identical({"a": value}, {"b": value})


@given(arrays.arrays(np.float64, (2, 2)), st.integers(0, 3))
def test_one_changed_bit_makes_an_array_another(array: Any, place: int) -> None:
    other = array.copy()
    other.view(np.uint64).flat[place] ^= 1

    assert not is_identical(array, other)
    assert not is_identical({"deep": [array]}, {"deep": [other]})
    assert not is_identical(array, array.view(np.int64))


def test_the_arrays_of_an_observation_are_found_at_any_depth() -> None:
    one, two = np.zeros(1), np.ones(2)

    assert [id(array) for array in iterate_arrays({"a": one, "b": (3, [two])})] == [id(one), id(two)]


@given(st.integers(1, 9), st.integers(1, 9))
def test_the_field_to_smell_is_a_field_itself(width: int, height: int) -> None:
    report = check_subject(Subject.FIELD, lambda: RampField(GridSize(width, height)))

    assert report.broken == ()


# ----------------------------------------------------------------------------------------------------------- suites
def suite_of(suite: type[Any], make: Callable[..., Any]) -> type[Any]:
    """Return what a user writes: a suite with `make` overridden."""
    return type("Mine", (suite,), {"make": lambda self, **settings: make(**settings)})


SUITES: list[tuple[type[Any], Subject]] = [
    (suite_of(ActionProcessorSuite, lambda: actions.EightDirectionActions(step_size=2)), Subject.ACTION_PROCESSOR),
    (suite_of(SensorSuite, lambda: sensors.HistorySensor(sensors.ConcentrationSensor())), Subject.SENSOR),
    (suite_of(RewardSuite, lambda: SparseGoalReward(SOURCE, 1.0)), Subject.REWARD),
    (suite_of(FieldSuite, lambda: PuffPlume(GRID, SOURCE, warm_up=4)), Subject.FIELD),
]
MY_ENVIRONMENT = suite_of(EnvironmentSuite, PlumeSearchEnv)


def names_in(suite: type[Any]) -> list[str]:
    return [name for name in dir(suite) if name.startswith("test_")]


@pytest.mark.parametrize(("suite", "subject"), [*SUITES, (MY_ENVIRONMENT, Subject.ENVIRONMENT)])
def test_a_suite_has_a_test_for_every_clause(suite: type[Any], subject: Subject) -> None:
    said = {getattr(suite, name).__doc__.split(":")[0] for name in names_in(suite)}

    assert said == {clause.id for clause in list_clauses(subject)}


@pytest.mark.parametrize("suite", [suite for suite, _ in SUITES])
def test_a_sound_part_passes_its_suite(suite: type[Any]) -> None:
    for name in names_in(suite):
        getattr(suite(), name)()


@pytest.mark.parametrize("name", [name for name in names_in(MY_ENVIRONMENT) if name.startswith("test_rule_")])
def test_a_sound_environment_passes_its_suite(name: str) -> None:
    getattr(MY_ENVIRONMENT(), name)()


def test_a_broken_subject_fails_with_clause_sentence_and_counterexample() -> None:
    mine = suite_of(ActionProcessorSuite, MUTANTS["ACT-PROC-C2"])

    with pytest.raises(AssertionError) as caught:
        mine().test_boundary_safety()

    assert str(caught.value) == str(check_clause("ACT-1", MUTANTS["ACT-PROC-C2"]))
    assert "leads to (0, 1)" in str(caught.value)


def test_a_clause_that_cannot_be_checked_is_skipped_with_the_reason() -> None:
    with pytest.raises(unittest.SkipTest, match="remembers nothing"):
        suite_of(SensorSuite, sensors.ConcentrationSensor)().test_a_memory_is_left_as_it_was()


def test_a_suite_without_its_own_make_says_what_to_do() -> None:
    with pytest.raises(AssertionError, match="override make"):
        getattr(RewardSuite(), "test_the_reward_is_finite")()  # noqa: B009


def test_pytest_collects_a_users_subclass_and_never_the_suite_itself(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        textwrap.dedent(
            """
            from proctor.contracts.conformance import ActionProcessorSuite
            from proctor.envs.plume import actions

            class TestMine(ActionProcessorSuite):
                def make(self):
                    return actions.OrientedGridActions()
            """
        ),
        "utf-8",
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only", "test_mine.py"]
    listed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False).stdout
    collected = [line for line in listed.splitlines() if "::" in line]

    assert len(collected) == len(list_clauses(Subject.ACTION_PROCESSOR)) + 2
    assert all(line.startswith("test_mine.py::TestMine::test_") for line in collected)


def test_conformance_needs_no_test_tools_and_no_environment_of_ours() -> None:
    program = """
        import sys
        import proctor.contracts.conformance
        unwanted = {"pytest", "hypothesis", "numba", "proctor.envs.plume", "proctor.cli"} & set(sys.modules)
        print(*sorted(unwanted))
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert (result.returncode, result.stdout.strip()) == (0, "")


def test_a_trace_that_no_counter_shows_is_found_by_the_twin() -> None:
    assert "without the failed step it gives" in check_clause("ENV-ATOMIC", SecretlyMoves).reason
