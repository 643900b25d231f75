"""The checks of the clock of Column Popper: when rows fall, and how a game ends."""

import math
from collections.abc import Callable, Iterable, Iterator
from numbers import Real
from typing import Any, Final

from proctor.contracts.conformance.env_driver import require_keywords
from proctor.contracts.conformance.report import KEPT, CannotTell, Check, CheckProbe, Outcome, shorten
from proctor.envs.popper.conformance.games import (
    GamePlan,
    JudgedStep,
    Policy,
    always,
    check_each_turn,
    crowding,
    games,
    long_games,
    play,
    script_policy,
    short_games,
    solver,
    toggling,
)
from proctor.envs.popper.conformance.model import (
    ACTION_MS,
    DURATION_MS,
    FALLS,
    INVALID,
    STEPS,
    ActionKind,
    BoardPosition,
    interval_at,
)

CLOSE: Final = 1e-6
_MOMENTS: Final = (10, 30)
"""At which step a manual fall is tried: between two scheduled falls, and together with one."""


def to_seconds(milliseconds: float) -> float:
    """Return milliseconds in seconds."""
    return milliseconds / 1000


def find_deviation(name: str, found: Any, expected: float) -> str | None:
    """Return None if `found` is `expected` but for rounding, else what is wrong with it."""
    near = isinstance(found, Real) and math.isclose(found, expected, abs_tol=CLOSE)
    return None if near else f"{name} is {shorten(found)}, expected {expected:g}"


# ------------------------------------------------------------------------------------------------------------- falls
def _find_unscheduled_fall(turn: JudgedStep, due: Iterable[int]) -> str | None:
    """Return what is wrong if rows do not fall exactly at the milliseconds `due`; a fall without room is left out."""
    if turn.effect.position.full:
        return None
    expected = len(turn.stacks) if turn.elapsed in due else 0
    if turn.grown == expected:
        return None
    return f"{turn.grown} blocks fell at {to_seconds(turn.elapsed):g} s, expected {expected}"


def rows_fall_by_the_schedule(probe: CheckProbe) -> Outcome:
    """POP-FALL-1."""
    played = (GamePlan(toggling), GamePlan(solver()), GamePlan(solver(), seed=1))
    return check_each_turn(probe, played, always, lambda turn: _find_unscheduled_fall(turn, FALLS), "a turn")


def a_manual_fall_restarts_the_wait(probe: CheckProbe) -> Outcome:
    """POP-FALL-2."""
    for moment in _MOMENTS:
        asked = moment * ACTION_MS
        due = (asked, asked + interval_at(asked))
        for turn in play(probe, GamePlan(script_policy(*[0] * (moment - 1), -1, *[0] * STEPS))):
            if turn.elapsed > due[-1]:
                break
            found = _find_unscheduled_fall(turn, due)
            if found is not None:
                return probe.broken(found)
    return KEPT


def a_fast_forward_jumps_to_the_next_fall(probe: CheckProbe) -> Outcome:
    """POP-FALL-5."""
    require_keywords(probe, "manual_fall")
    for turn in play(probe, GamePlan(script_policy(0), (("manual_fall", "fast_forward"),))):
        falls = turn.number - 1
        elapsed = FALLS[falls - 1] if falls else ACTION_MS
        found = find_deviation("time_left", turn.info["time_left"], to_seconds(DURATION_MS - elapsed))
        if found is None and falls and not turn.before.full and turn.grown != len(turn.stacks):
            found = f"{turn.grown} blocks fell, expected {len(turn.stacks)}"
        if found is not None:
            return probe.broken(found)
    return KEPT


def the_info_has_the_fall_interval(probe: CheckProbe) -> Outcome:
    """POP-FALL-6."""

    def problem(turn: JudgedStep) -> str | None:
        return find_deviation("fall_interval", turn.info["fall_interval"], to_seconds(interval_at(turn.elapsed)))

    return check_each_turn(probe, games(), always, problem, "a turn")


# -------------------------------------------------------------------------------------------------------------- ends
def a_fall_without_room_ends_the_game(probe: CheckProbe) -> Outcome:
    """POP-OVERFLOW."""

    def problem(turn: JudgedStep) -> str | None:
        full = turn.effect.position.full
        if turn.terminated:
            kept = turn.fell is False
            return None if full and kept else f"terminated; the columns were {turn.before.stacks}, are {turn.stacks}"
        lost = full and (turn.manual or turn.grown != 0)
        return f"goes on after a fall upon a full column: {turn.before.stacks}" if lost else None

    def on_time(turn: JudgedStep) -> str | None:
        due = turn.elapsed in FALLS and turn.effect.position.full
        return "no scheduled fall ended the game on a full column" if due and not turn.terminated else problem(turn)

    outcome = check_each_turn(probe, games(), always, problem, "a turn")
    return outcome if outcome is not KEPT else check_each_turn(probe, [GamePlan(toggling)], always, on_time, "a turn")


def _dropping() -> Iterator[GamePlan]:
    strict = (("strict_invalid", True),)
    yield GamePlan(crowding, strict)
    yield GamePlan(script_policy(0, 1, 0, 0, 1, 1), strict)


def a_strict_full_drop_ends_the_game(probe: CheckProbe) -> Outcome:
    """POP-DROP."""
    require_keywords(probe, "strict_invalid")

    def problem(turn: JudgedStep) -> str | None:
        if bool(turn.terminated) is not (turn.effect.kind is ActionKind.FULL_DROP):
            return f"terminated is {turn.terminated} after {turn.effect.kind}"
        return None if turn.fell is False else f"the columns were {turn.before.stacks}, are {turn.stacks}"

    return check_each_turn(probe, _dropping(), lambda turn: turn.effect.kind in INVALID, problem, "an invalid action")


def _check_long_games(
    probe: CheckProbe,
    policy: Callable[[], Policy],
    problem: Callable[[JudgedStep], str | None],
    judged: Callable[[JudgedStep], bool],
) -> Outcome:
    """Return the outcome of the first long game that comes to a turn that `judged` picks."""
    for game in long_games(policy):
        for turn in play(probe, game):
            found = problem(turn)
            if found is not None:
                return probe.broken(found)
            if judged(turn):
                return KEPT
    raise CannotTell("no game lasted until time was up")


def time_is_up_after_a_minute(probe: CheckProbe) -> Outcome:
    """POP-TIME."""

    def problem(turn: JudgedStep) -> str | None:
        late = turn.number == STEPS
        if turn.terminated or bool(turn.truncated) is late:
            return None
        return f"truncated is {turn.truncated} at {to_seconds(turn.elapsed):g} s"

    return _check_long_games(probe, solver, problem, lambda turn: turn.number == STEPS and not turn.terminated)


def _closing() -> Policy:
    """Return a policy that plays well, fills the board in the last seconds and asks for a fall as time runs out."""
    well = solver()

    def policy(number: int, position: BoardPosition) -> int:
        if number <= STEPS - position.height:
            return well(number, position)
        full = [column for column, stack in enumerate(position.stacks) if len(stack) >= position.height]
        # What is held is let go where it hangs; a drop on another full column would change nothing.
        return full[0] if full and number < STEPS else len(position.stacks)

    return policy


def a_game_never_ends_both_ways(probe: CheckProbe) -> Outcome:
    """POP-END."""

    def lost_at_the_last(turn: JudgedStep) -> bool:
        return turn.number == STEPS and turn.manual and turn.before.full

    def problem(turn: JudgedStep) -> str | None:
        if turn.terminated and turn.truncated:
            return "terminated and truncated at once"
        return "a fall without room is not terminated" if lost_at_the_last(turn) and not turn.terminated else None

    return _check_long_games(probe, _closing, problem, lost_at_the_last)


# -------------------------------------------------------------------------------------------------------------- time
def every_action_takes_a_tenth_of_a_second(probe: CheckProbe) -> Outcome:
    """POP-TIME-LEFT."""

    def problem(turn: JudgedStep) -> str | None:
        found = find_deviation(
            "time_left", turn.last_info["time_left"], to_seconds(DURATION_MS - turn.elapsed + ACTION_MS)
        )
        return found or find_deviation("time_left", turn.info["time_left"], to_seconds(DURATION_MS - turn.elapsed))

    return check_each_turn(probe, games(), always, problem, "a turn")


def the_observed_time_is_a_share(probe: CheckProbe) -> Outcome:
    """POP-TIME-NORM."""
    require_keywords(probe, "include_time_left_norm")
    shown = [GamePlan(game.policy, (("include_time_left_norm", True),)) for game in short_games()]

    def problem(turn: JudgedStep) -> str | None:
        share = float(turn.observation["time_left_norm"][0])
        return find_deviation("time_left_norm", share, turn.info["time_left"] / to_seconds(DURATION_MS))

    return check_each_turn(probe, shown, always, problem, "a turn")


CHECKS: Final[dict[str, Check]] = {
    "POP-FALL-1": rows_fall_by_the_schedule,
    "POP-FALL-2": a_manual_fall_restarts_the_wait,
    "POP-FALL-5": a_fast_forward_jumps_to_the_next_fall,
    "POP-FALL-6": the_info_has_the_fall_interval,
    "POP-OVERFLOW": a_fall_without_room_ends_the_game,
    "POP-DROP": a_strict_full_drop_ends_the_game,
    "POP-TIME": time_is_up_after_a_minute,
    "POP-END": a_game_never_ends_both_ways,
    "POP-TIME-LEFT": every_action_takes_a_tenth_of_a_second,
    "POP-TIME-NORM": the_observed_time_is_a_share,
}
