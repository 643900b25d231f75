"""The checks of Column Popper judge our environment, somebody's bare one and impossible ones alike: by what can be seen."""

from __future__ import annotations

import unittest
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from proctor.contracts import conformance
from proctor.contracts.clauses import Subject, list_clauses
from proctor.contracts.conformance import ClauseVerdict, Finding
from proctor.contracts.conformance.report import CheckProbe
from proctor.envs.popper import conformance as popper_conformance
from proctor.envs.popper.conformance import ColumnPopperSuite, check_column_popper
from proctor.envs.popper.conformance.games import (
    FALLS,
    INVALID,
    STEPS,
    ActionKind,
    BoardPosition,
    GamePlan,
    crowding,
    play,
    read_position,
    restless,
    solver,
)
from proctor.envs.popper.env import ColumnPopperEnv

CHECKS = {**conformance.CHECKS, **popper_conformance.CHECKS}
CLAUSES = [clause.id for clause in list_clauses(Subject.COLUMN_POPPER)]

# What the contract leaves open, or what only settings and options can show.
EXTRAS = {
    *(f"POP-INIT-P{number}" for number in range(1, 8)),
    "POP-RESET-P1",
    "POP-RESET-P2",
    "POP-RESET-C2",
    "POP-CASCADE",
    "POP-DROP",
    "POP-FALL-4",
    "POP-FALL-5",
    "POP-TIME-NORM",
    "POP-REWARD-PARTS",
    "POP-FAULT",
    "POP-MASK",
}

# What the lifecycle's contract says of agents, goals, configurations and injected parts, of which this game has none.
OF_PLUMES = {
    *(f"ENV-INIT-P{number}" for number in range(1, 6)),
    *(f"ENV-INIT-C{number}" for number in range(4, 8)),
    "ENV-I2",
    "ENV-I5",
    "ENV-I7",
    "ENV-RESET-C4",
    "ENV-RESET-C6",
    "ENV-STEP-C3",
    "ENV-STEP-C6",
}


def check_clause(name: str, make: Callable[..., Any]) -> Finding:
    return conformance.check_clause(name, make, CHECKS)


class Bare(gym.Env[Any, Any]):
    """Somebody's Column Popper, with what the contract demands and nothing else."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            {"board": spaces.Box(0, 9, (12, 3), np.int32), "selection": spaces.Box(0, 9, (2,), np.int32)}
        )
        self.action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.seed = seed if seed is not None else int(self.np_random.integers(2**31))
        self.chance = np.random.default_rng(self.seed)
        self.columns: list[list[int]] = [[], [], []]
        self.held: int | None = None
        self.score = self.clock = self.last = 0
        self.fall()
        return self.seen(), self.told(0)

    def fall(self) -> None:
        for column in self.columns:
            pair = column[0] if len(column) > 1 and column[0] == column[1] else 0
            column.insert(0, int(self.chance.choice([value for value in (1, 2, 3) if value != pair])))
        self.last = self.clock

    def act(self, action: int) -> tuple[float, int]:
        """Pick or place; return the reward and the pops."""
        target = self.columns[action]
        if self.held is None:
            if not target:
                return -0.1, 0
            self.held = action
            return 1.0, 0
        if action != self.held and len(target) == 12:
            return -1.0, 0
        target.append(self.columns[self.held].pop())
        self.held = None
        if len(target) < 3 or len(set(target[-3:])) > 1:
            return 1.0, 0
        del target[-3:]
        return 10.0, 3

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward, pops = self.act(action) if action < 3 else (1.0, 0)
        self.clock += 100
        self.score += 3 * pops
        lost = False
        if action == 3 or self.clock - self.last >= self.interval():
            lost = any(len(column) == 12 for column in self.columns)
            if not lost:
                self.fall()
        late = self.clock == 60_000 and not lost
        return self.seen(), reward - 0.01 - lost - 0.5 * late, lost, late, self.told(pops)

    def interval(self) -> int:
        return 3000 if self.clock < 20_000 else 2000 if self.clock < 40_000 else 1000

    def seen(self) -> dict[str, Any]:
        board = np.zeros((12, 3), np.int32)
        for number, column in enumerate(self.columns):
            board[: len(column), number] = column
        selection = (0, 0) if self.held is None else (1, self.columns[self.held][-1])
        return {"board": board, "selection": np.array(selection, np.int32)}

    def told(self, pops: int) -> dict[str, Any]:
        return {
            "score": self.score,
            "time_left": 60 - self.clock / 1000,
            "pops_this_step": pops,
            "fall_interval": self.interval() / 1000,
            "seed": self.seed,
            "version": "mine",
        }


class RefusesOptions(Bare):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if options:
            raise ValueError("no options here")
        return super().reset(seed=seed)


class ShortLived(Bare):
    """Loses every game after a while."""

    def step(self, action: Any) -> Any:
        result = super().step(action)
        return (*result[:2], self.clock >= 50_000, *result[3:])


class FixedLength(Bare):
    """Observes the time without being asked."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space.spaces["time_left_norm"] = spaces.Box(0.0, 1.0, (1,), np.float32)  # type: ignore[attr-defined]


class TestColumnPopper(ColumnPopperSuite):
    def make(self, **settings: Any) -> Any:
        return ColumnPopperEnv(**settings)


for _name in OF_PLUMES:
    # Judged by the test below: nothing is skipped in silence.
    setattr(TestColumnPopper, f"test_{CHECKS[_name].__name__}", None)


@pytest.mark.parametrize("clause", sorted(OF_PLUMES))
def test_a_clause_about_agents_and_plumes_is_not_held_against_it(clause: str) -> None:
    assert check_clause(clause, ColumnPopperEnv).verdict == "not checkable"


def test_the_contracts_id_keeps_every_clause() -> None:
    make = partial(gym.make, "SpecKitAI/ColumnPopper-v1", disable_env_checker=True)
    findings = [check_clause(clause, make) for clause in CLAUSES]

    assert [str(finding) for finding in findings if finding.verdict != "kept"] == []


def test_a_suite_has_the_clauses_of_an_environment_as_well() -> None:
    said = {
        getattr(ColumnPopperSuite, name).__doc__.split(":")[0]
        for name in dir(ColumnPopperSuite)
        if name.startswith("test_")
    }

    assert said == {*CLAUSES, *(clause.id for clause in list_clauses(Subject.ENVIRONMENT))}


def test_a_report_has_the_clauses_of_an_environment_first() -> None:
    report = check_column_popper(Bare)

    expected = [*list_clauses(Subject.ENVIRONMENT), *list_clauses(Subject.COLUMN_POPPER)]
    assert [finding.clause for finding in report.findings] == expected


@pytest.mark.parametrize("clause", CLAUSES)
def test_a_bare_implementation_is_judged_by_the_contract_alone(clause: str) -> None:
    finding = check_clause(clause, Bare)

    assert finding.verdict == ("not checkable" if clause in EXTRAS else "kept"), str(finding)


@pytest.mark.parametrize(
    ("clause", "make", "why"),
    [
        ("POP-INIT-P1", Bare, "takes no `number_pool`"),
        ("POP-INIT-P3", Bare, "takes no `action_ms` or `duration_ms`"),
        ("POP-RESET-P1", Bare, "it begins as without"),
        ("POP-RESET-C2", RefusesOptions, "no options here"),
        ("POP-MASK", Bare, "no 'action_mask'"),
        ("POP-REWARD-PARTS", Bare, "no 'reward_parts'"),
        ("POP-DROP", Bare, "takes no `strict_invalid`"),
        ("POP-TIME", ShortLived, "no game showed that time is up"),
        ("POP-END", ShortLived, "no game showed that time is up"),
        ("POP-POP", partial(ColumnPopperEnv, height=2), "no game showed a pop"),
        ("POP-CASCADE", partial(ColumnPopperEnv, height=4), "4 x 3 is too small"),
        ("POP-CASCADE", partial(ColumnPopperEnv, columns=1), "12 x 1 is too small"),
        ("POP-NOOP", partial(ColumnPopperEnv, columns=1), "no game showed an invalid action"),
    ],
)
def test_a_situation_that_cannot_be_made_is_not_checkable(clause: str, make: Callable[..., Any], why: str) -> None:
    finding = check_clause(clause, make)

    assert finding.verdict is ClauseVerdict.NOT_CHECKABLE, str(finding)
    assert why in finding.reason


def test_an_observation_that_nobody_asked_for_is_a_breach() -> None:
    finding = check_clause("POP-SPACE-3", FixedLength)

    assert finding.verdict == "broken"
    assert "the observation has board, selection, time_left_norm" in finding.reason


@pytest.mark.parametrize(
    "settings",
    [{"height": 1}, {"height": 2, "columns": 2}, {"columns": 1}, pytest.param({"columns": 4}, marks=pytest.mark.slow)],
)
def test_another_board_breaks_nothing(settings: dict[str, Any]) -> None:
    findings = [check_clause(clause, partial(ColumnPopperEnv, **settings)) for clause in CLAUSES]

    assert [str(finding) for finding in findings if finding.verdict == "broken"] == []


def test_a_game_that_never_ends_is_left_when_time_should_be_up() -> None:
    class Endless(Bare):
        def step(self, action: Any) -> Any:
            return (*super().step(action)[:2], False, False, self.told(0))

    turns = list(play(CheckProbe(Endless), GamePlan(solver())))

    assert len(turns) == STEPS


def test_a_suite_skips_what_a_bare_implementation_does_not_have() -> None:
    class Mine(ColumnPopperSuite):
        def make(self) -> Any:
            return Bare()

    with pytest.raises(unittest.SkipTest, match="no 'action_mask'"):
        getattr(Mine(), "test_the_mask_shows_what_is_valid")()  # noqa: B009  # the tests of a suite are made, not written


def test_an_observation_that_cannot_be_written_to_is_fresh_enough() -> None:
    class Frozen(Bare):
        def seen(self) -> dict[str, Any]:
            seen = super().seen()
            seen["board"].flags.writeable = False
            return seen

    assert check_clause("POP-FRESH", Frozen).verdict is ClauseVerdict.KEPT


def stacks(height: int) -> st.SearchStrategy[tuple[tuple[int, ...], ...]]:
    column = st.lists(st.integers(1, 3), max_size=height).map(tuple)
    return st.tuples(column, column, column)


@st.composite
def positions(draw: st.DrawFn) -> BoardPosition:
    height = draw(st.integers(1, 12))
    columns = draw(stacks(height))
    held = draw(st.sampled_from([None, *(number for number, column in enumerate(columns) if column)]))
    return BoardPosition(height, columns, held)


@given(positions(), st.integers(0, 3))
def test_an_action_removes_only_what_pops_and_an_invalid_one_nothing(position: BoardPosition, action: int) -> None:
    effect = position.after(action)

    assert effect.position.blocks == position.blocks - effect.popped
    assert effect.popped % 3 == 0
    if effect.kind in INVALID or effect.kind is ActionKind.FALL:
        assert effect.position == position


@given(positions())
def test_a_position_is_what_its_cells_show(position: BoardPosition) -> None:
    board = np.array(position.cells)

    assert read_position(board, position.held) == position


@given(positions(), st.integers(0, 3))
def test_the_model_and_our_environment_agree_on_every_position(position: BoardPosition, action: int) -> None:
    env = ColumnPopperEnv(height=position.height)
    env.reset(seed=0, options={"board": position.cells, "selection": position.held})
    observation, _, _, _, info = env.step(action)
    effect = position.after(action)

    assert info["pops_this_step"] == effect.popped
    if effect.kind is not ActionKind.FALL:
        assert observation["board"].tolist() == effect.position.cells
    assert observation["selection"].tolist() == effect.position.selection


def test_the_schedule_has_thirty_seven_falls() -> None:
    assert len(FALLS) == 37
    assert FALLS[:9] == (3000, 6000, 9000, 12_000, 15_000, 18_000, 20_000, 22_000, 24_000)
    assert FALLS[-21:] == tuple(range(40_000, 61_000, 1000))


def turns_of(game: GamePlan) -> Iterator[Any]:
    return play(CheckProbe(ColumnPopperEnv), game)


def test_the_games_show_every_kind_of_action_and_both_ends() -> None:
    turns = [turn for policy in (crowding, restless, solver()) for turn in turns_of(GamePlan(policy))]

    assert {turn.effect.kind for turn in turns} == set(ActionKind)
    assert {(turn.terminated, turn.truncated) for turn in turns if turn.ended} == {(True, False), (False, True)}
    assert max(turn.number for turn in turns) == STEPS
