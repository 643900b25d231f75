"""The checks of what actions and falls do to the board of Column Popper."""

from collections.abc import Callable
from itertools import islice, takewhile
from typing import Final

from proctor.contracts.conformance.env_driver import EnvDriver, accepts_keyword, require_keywords
from proctor.contracts.conformance.report import KEPT, Check, CheckProbe, Outcome, shorten
from proctor.envs.popper.conformance.games import (
    GamePlan,
    JudgedStep,
    always,
    check_each_turn,
    games,
    make_board,
    play,
    reset_with_options,
    script_policy,
    short_games,
    turns,
)
from proctor.envs.popper.conformance.model import INVALID, POOL, ActionKind, read_position

_ONE: Final = (("number_pool", (1,)),)
_ODD_POOL: Final = (2, 5, 7)


# -------------------------------------------------------------------------------------------------------- invariants
def every_block_is_of_the_pool(probe: CheckProbe) -> Outcome:
    """POP-I1."""

    def strangers(pool: tuple[int, ...]) -> Callable[[JudgedStep], str | None]:
        def problem(turn: JudgedStep) -> str | None:
            found = {value for stack in turn.stacks for value in stack} - set(pool)
            return f"there is a block of {min(found)}, the pool is {pool}" if found else None

        return problem

    outcome = check_each_turn(probe, games(), always, strangers(POOL), "a turn")
    if outcome is not KEPT or not accepts_keyword(probe, "number_pool"):
        return outcome
    odd = [GamePlan(game.policy, (("number_pool", _ODD_POOL),)) for game in short_games()]
    return check_each_turn(probe, odd, always, strangers(_ODD_POOL), "a turn")


def every_column_hangs_from_the_top(probe: CheckProbe) -> Outcome:
    """POP-I2."""

    def problem(turn: JudgedStep) -> str | None:
        rows = turn.observation["board"].tolist()
        return (
            None if rows == read_position(turn.observation["board"]).cells else f"the board {shorten(rows)} has a hole"
        )

    return check_each_turn(probe, games(), always, problem, "a turn")


def the_selection_is_the_end_of_a_column(probe: CheckProbe) -> Outcome:
    """POP-I3."""

    def problem(turn: JudgedStep) -> str | None:
        legal = [[0, 0], *([1, stack[-1]] for stack in turn.stacks if stack)]
        return None if turn.selection in legal else f"the selection is {turn.selection}, the columns are {turn.stacks}"

    return check_each_turn(probe, games(), always, problem, "a turn")


# ----------------------------------------------------------------------------------------------------------- actions
def _find_wrong_outcome(turn: JudgedStep) -> str | None:
    """Return how the board or the selection differs from what the contract makes of the action, a fall allowed."""
    left = turn.effect.position
    if turn.fell is None:
        return f"the columns were {turn.before.stacks}, are {turn.stacks}, expected {left.stacks}"
    if turn.selection != left.selection:
        return f"the selection is {turn.selection}, expected {left.selection}"
    return None


def _make_check(kind: ActionKind, *, popping: bool = False) -> Callable[[CheckProbe], Outcome]:
    """Return the check of one kind of action, with or without a pop."""

    def check(probe: CheckProbe) -> Outcome:
        def concerns(turn: JudgedStep) -> bool:
            return turn.effect.kind is kind and bool(turn.effect.popped) is popping

        return check_each_turn(probe, games(), concerns, _find_wrong_outcome, kind)

    return check


def a_pick_selects_the_last_block(probe: CheckProbe) -> Outcome:
    """POP-PICK."""
    return _make_check(ActionKind.PICK)(probe)


def a_placement_moves_the_block_under_the_column(probe: CheckProbe) -> Outcome:
    """POP-PLACE."""
    return _make_check(ActionKind.PLACE)(probe)


def a_put_back_only_lets_go(probe: CheckProbe) -> Outcome:
    """POP-PUTBACK."""
    return _make_check(ActionKind.PUT_BACK)(probe)


def an_invalid_action_changes_nothing(probe: CheckProbe) -> Outcome:
    """POP-NOOP."""

    def problem(turn: JudgedStep) -> str | None:
        # With a full column a fall may end the game in the same step; that is another clause's matter.
        return "it ends the game" if turn.terminated and not turn.before.full else _find_wrong_outcome(turn)

    return check_each_turn(probe, short_games(), lambda turn: turn.effect.kind in INVALID, problem, "an invalid action")


def three_at_the_end_pop(probe: CheckProbe) -> Outcome:
    """POP-POP."""
    # With one number only, falls make runs of five and six, of which whole triples pop.
    runs = (
        [GamePlan(script_policy(*[-1] * more, 0, 0, 0), _ONE) for more in (4, 5)]
        if accepts_keyword(probe, "number_pool")
        else []
    )
    return check_each_turn(probe, [*runs, *games()], lambda turn: turn.effect.popped > 0, _find_wrong_outcome, "a pop")


def a_pop_sets_off_no_other(probe: CheckProbe) -> Outcome:
    """POP-CASCADE."""
    drive = EnvDriver(probe)
    observation, info = reset_with_options(drive, board=make_board(drive, (2, 2, 2, 1, 1), (1,)))
    pick, place = islice(turns(drive, script_policy(1, 0), read_position(observation["board"]), info), 2)
    found = _find_wrong_outcome(pick) or _find_wrong_outcome(place)
    return KEPT if found is None else probe.broken(found)


# ------------------------------------------------------------------------------------------------------------- falls
def a_fall_moves_every_column_down(probe: CheckProbe) -> Outcome:
    """POP-FALL-3."""

    def concerns(turn: JudgedStep) -> bool:
        room = not turn.effect.position.full
        return room and (turn.manual or turn.grown == len(turn.stacks))

    def problem(turn: JudgedStep) -> str | None:
        if not turn.fell:
            return f"the columns were {turn.before.stacks}, are {turn.stacks}: not one row further down"
        return _find_wrong_outcome(turn)

    return check_each_turn(probe, games(), concerns, problem, "a fall")


def no_fall_pops(probe: CheckProbe) -> Outcome:
    """POP-FALL-4."""
    require_keywords(probe, "number_pool")
    for turn in takewhile(lambda turn: not turn.before.full, play(probe, GamePlan(script_policy(), _ONE))):
        if not turn.fell:
            return probe.broken(f"the columns were {turn.before.stacks}, are {turn.stacks}")
    return KEPT


def a_spawn_makes_no_three(probe: CheckProbe) -> Outcome:
    """POP-SPAWN-1."""

    def pairs(turn: JudgedStep) -> list[tuple[int, ...]]:
        return [stack for stack in turn.stacks if len(stack) >= 3 and stack[1] == stack[2]]

    def problem(turn: JudgedStep) -> str | None:
        threes = [stack for stack in pairs(turn) if stack[0] == stack[1]]
        return f"{threes[0][0]} fell upon two of its kind: {threes[0]}" if threes else None

    return check_each_turn(
        probe, games(), lambda turn: bool(turn.fell) and bool(pairs(turn)), problem, "a fall upon two equal blocks"
    )


CHECKS: Final[dict[str, Check]] = {
    "POP-I1": every_block_is_of_the_pool,
    "POP-I2": every_column_hangs_from_the_top,
    "POP-I3": the_selection_is_the_end_of_a_column,
    "POP-PICK": a_pick_selects_the_last_block,
    "POP-PLACE": a_placement_moves_the_block_under_the_column,
    "POP-PUTBACK": a_put_back_only_lets_go,
    "POP-POP": three_at_the_end_pop,
    "POP-CASCADE": a_pop_sets_off_no_other,
    "POP-NOOP": an_invalid_action_changes_nothing,
    "POP-SPAWN-1": a_spawn_makes_no_three,
    "POP-FALL-3": a_fall_moves_every_column_down,
    "POP-FALL-4": no_fall_pops,
}
