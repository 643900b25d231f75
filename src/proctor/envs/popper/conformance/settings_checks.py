"""The checks of what Column Popper is made with and begins with (POP-INIT, POP-SPACE, POP-RESET)."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from proctor.contracts.conformance.env_driver import SEEDS, EnvDriver, accepts_keyword, constructor_refuses
from proctor.contracts.conformance.report import KEPT, CannotTell, Check, CheckProbe, Outcome, expect_refusal, shorten
from proctor.envs.popper.conformance.games import make_board, reset_with_options
from proctor.envs.popper.conformance.model import BOARD

CONTRACT_ID: Final = "SpecKitAI/ColumnPopper-v1"
NO_COUNTS: Final = (0, -1, 0.5, "1", None)

_TALL: Final = (1, 2)
"""A column of two blocks, of values that every pool of the contract has."""


def _refuses_each(probe: CheckProbe, refusals: Iterable[tuple[str, Iterable[Any]]]) -> Outcome:
    """Return whether the constructor refuses all these values, by keyword; those that it does not take are left out."""
    known = [(name, values) for name, values in refusals if accepts_keyword(probe, name)]
    if not known:
        raise CannotTell("the factory or the environment's constructor takes no such setting")
    outcomes = (constructor_refuses(probe, name, values) for name, values in known)
    return next((outcome for outcome in outcomes if outcome is not KEPT), KEPT)


def refuses_a_pool_of_no_numbers(probe: CheckProbe) -> Outcome:
    """POP-INIT-P1."""
    return constructor_refuses(probe, "number_pool", ((), (0,), (10,), (1, 1), (0.5,), "12", 3))


def refuses_a_flag_that_is_no_bool(probe: CheckProbe) -> Outcome:
    """POP-INIT-P2."""
    values = (2, "yes", None)
    return _refuses_each(probe, [("strict_invalid", values), ("include_time_left_norm", values)])


def refuses_a_time_that_is_no_count(probe: CheckProbe) -> Outcome:
    """POP-INIT-P3."""
    return _refuses_each(probe, [("duration_ms", NO_COUNTS), ("action_ms", NO_COUNTS)])


def refuses_a_curve_that_is_none(probe: CheckProbe) -> Outcome:
    """POP-INIT-P4."""
    curves = ((), ((1, 1000),), ((0, 0),), ((0, 1000), (0, 500)), ((0, 0.5),), ((0,),), "fast", 3)
    return constructor_refuses(probe, "fall_curve", curves)


def refuses_an_unknown_manual_fall(probe: CheckProbe) -> Outcome:
    """POP-INIT-P5."""
    return constructor_refuses(probe, "manual_fall", ("no such fall", None))


def refuses_an_unknown_reward_preset(probe: CheckProbe) -> Outcome:
    """POP-INIT-P6."""
    presets = ("no such preset", {"no such row": 1.0}, {"step": float("nan")}, 3, None)
    return constructor_refuses(probe, "reward_preset", presets)


def _is_the_contracts(env: gym.Env[Any, Any]) -> bool:
    return env.spec is not None and env.spec.id == CONTRACT_ID


def refuses_a_board_of_a_wrong_size(probe: CheckProbe) -> Outcome:
    """POP-INIT-P7."""
    others = [side - 1 for side in BOARD] if _is_the_contracts(probe.make()) else [0, 0]
    return _refuses_each(
        probe, [(name, (*NO_COUNTS, other)) for name, other in zip(("height", "columns"), others, strict=True)]
    )


# ------------------------------------------------------------------------------------------------------------ spaces
def _space(probe: CheckProbe, problem: Callable[[EnvDriver], str | None]) -> Outcome:
    found = problem(EnvDriver(probe))
    return KEPT if found is None else probe.broken(found)


def _compare_space(name: str, found: Any, expected: spaces.Space[Any]) -> str | None:
    # A Box takes another dtype for equal, so that the dtype is compared as well.
    same = found == expected and found.dtype == expected.dtype
    return None if same else f"{name} is {shorten(found)}, expected {shorten(expected)}"


def the_board_is_a_box_of_its_size(probe: CheckProbe) -> Outcome:
    """POP-SPACE-1."""
    free = (
        accepts_keyword(probe, "height") and accepts_keyword(probe, "columns") and not _is_the_contracts(probe.make())
    )

    def problem(drive: EnvDriver) -> str | None:
        board = drive.env.observation_space["board"]
        size = board.shape if free and board.shape is not None and len(board.shape) == 2 else BOARD
        return _compare_space("board", board, spaces.Box(0, 9, size, np.int32))

    return _space(probe, problem)


def the_selection_is_a_pair(probe: CheckProbe) -> Outcome:
    """POP-SPACE-2."""

    def problem(drive: EnvDriver) -> str | None:
        return _compare_space("selection", drive.env.observation_space["selection"], spaces.Box(0, 9, (2,), np.int32))

    return _space(probe, problem)


def the_time_is_observed_only_if_asked_for(probe: CheckProbe) -> Outcome:
    """POP-SPACE-3."""
    flagged = accepts_keyword(probe, "include_time_left_norm")
    for flag in (False, True) if flagged else (None,):
        space = EnvDriver(probe, {} if flag is None else {"include_time_left_norm": flag}).env.observation_space
        expected = {"board", "selection"} | ({"time_left_norm"} if flag else set())
        if set(space) != expected:
            return probe.broken(
                f"the observation has {', '.join(sorted(space))}, expected {', '.join(sorted(expected))}"
            )
        if flag:
            found = _compare_space("time_left_norm", space["time_left_norm"], spaces.Box(0.0, 1.0, (1,), np.float32))
            if found is not None:
                return probe.broken(found)
    return KEPT


def there_is_an_action_for_each_column_and_one_more(probe: CheckProbe) -> Outcome:
    """POP-SPACE-4."""

    def problem(drive: EnvDriver) -> str | None:
        columns = drive.env.observation_space["board"].shape[-1]
        return _compare_space("the action space", drive.env.action_space, spaces.Discrete(columns + 1))

    return _space(probe, problem)


# ------------------------------------------------------------------------------------------------------------- reset
def a_game_begins_with_one_fall(probe: CheckProbe) -> Outcome:
    """POP-RESET-C1."""
    drive = EnvDriver(probe)
    for seed in (*SEEDS, *SEEDS):
        observation, _ = drive.reset(seed=seed)
        board = observation["board"]
        if not board[0].all() or board[1:].any():
            return probe.broken(f"the board is {shorten(board.tolist())}, expected blocks in row 0 only")
        if observation["selection"].any():
            return probe.broken(f"the selection is {shorten(observation['selection'].tolist())}, expected [0, 0]")
        drive.step(0)
    return KEPT


def a_game_begins_as_the_options_ask(probe: CheckProbe) -> Outcome:
    """POP-RESET-C2."""
    drive = EnvDriver(probe)
    asked = make_board(drive, _TALL)
    for selection, shown in ((None, [0, 0]), (0, [1, 2]), ([1, 2], [1, 2])):
        observation, _ = reset_with_options(drive, board=asked, selection=selection)
        found = observation["board"].tolist(), observation["selection"].tolist()
        if found != (asked, shown):
            return probe.broken(f"begins with {shorten(found)}, expected {shorten((asked, shown))}")
    return KEPT


def _refuses_options(probe: CheckProbe, options: Callable[[EnvDriver], Iterable[dict[str, Any]]]) -> Outcome:
    """Return whether reset() refuses each of `options`, of an environment that takes a board."""
    drive = EnvDriver(probe)
    reset_with_options(drive, board=make_board(drive, _TALL))
    for bad in options(drive):
        found = expect_refusal((ValueError,), partial(drive.reset, seed=SEEDS[0], options=bad))
        if found is not None:
            return probe.broken(found)
    return KEPT


def refuses_a_board_that_cannot_be(probe: CheckProbe) -> Outcome:
    """POP-RESET-P1."""

    def bad(drive: EnvDriver) -> Iterable[dict[str, Any]]:
        good = make_board(drive, _TALL)
        hole = [[0] * len(good[0]), *good[1:]]
        boards: tuple[Any, ...] = (good[1:], [row[1:] for row in good], make_board(drive, (10,)), hole, [[]], "full")
        return ({"board": board} for board in boards)

    return _refuses_options(probe, bad)


def refuses_a_selection_that_cannot_be(probe: CheckProbe) -> Outcome:
    """POP-RESET-P2."""

    def bad(drive: EnvDriver) -> Iterable[dict[str, Any]]:
        board = make_board(drive, _TALL)
        empty = [len(board[0]) - 1] if len(board[0]) > 1 else []
        selections = (*empty, len(board[0]), -1, 0.5, [1, 1], [0, 2], [1], "left")
        return ({"board": board, "selection": selection} for selection in selections)

    return _refuses_options(probe, bad)


CHECKS: Final[dict[str, Check]] = {
    "POP-INIT-P1": refuses_a_pool_of_no_numbers,
    "POP-INIT-P2": refuses_a_flag_that_is_no_bool,
    "POP-INIT-P3": refuses_a_time_that_is_no_count,
    "POP-INIT-P4": refuses_a_curve_that_is_none,
    "POP-INIT-P5": refuses_an_unknown_manual_fall,
    "POP-INIT-P6": refuses_an_unknown_reward_preset,
    "POP-INIT-P7": refuses_a_board_of_a_wrong_size,
    "POP-SPACE-1": the_board_is_a_box_of_its_size,
    "POP-SPACE-2": the_selection_is_a_pair,
    "POP-SPACE-3": the_time_is_observed_only_if_asked_for,
    "POP-SPACE-4": there_is_an_action_for_each_column_and_one_more,
    "POP-RESET-P1": refuses_a_board_that_cannot_be,
    "POP-RESET-P2": refuses_a_selection_that_cannot_be,
    "POP-RESET-C1": a_game_begins_with_one_fall,
    "POP-RESET-C2": a_game_begins_as_the_options_ask,
}
