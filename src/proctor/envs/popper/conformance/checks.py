"""The checks of Column Popper, one for each clause: what it is made with and begins with, its moves, its clock, its reports.

Rule 1: a check is a function that says what is wrong (None: nothing), most with a turn of one of the games that are played.
Rule 2: a check's name is a sentence, and with "test_" before it the name of its test in the suite.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice, takewhile
from numbers import Integral, Real
from typing import Any, Final

import numpy as np
from gymnasium import spaces

from proctor.contracts.chance import SEED_LIMIT
from proctor.contracts.conformance.env_driver import SEEDS, EnvDriver, accepts_keyword
from proctor.contracts.conformance.report import CheckProbe, CheckTable, expect_refusal, make_check, shorten
from proctor.contracts.conformance.samples import is_identical, iterate_arrays
from proctor.envs.popper.conformance.games import (
    ACTION_MS,
    BOARD,
    DURATION_MS,
    FALLS,
    INVALID,
    POOL,
    STEPS,
    ActionKind,
    BoardPosition,
    GamePlan,
    JudgedStep,
    all_games,
    closing,
    crowding,
    interval_at,
    long_games,
    make_board,
    play,
    playable,
    reset_with_options,
    restless,
    script_policy,
    short_games,
    solver,
    takes_no,
    toggling,
    turns,
    turns_of,
)
from proctor.errors import ComponentError

CHECKS: Final = CheckTable()

CONTRACT_ID: Final = "SpecKitAI/ColumnPopper-v1"
CLOSE: Final = 1e-6
_TALL: Final = (1, 2)  # a column of two blocks, of values that every pool of the contract has
_FEW: Final = 8
_ONE: Final = {"number_pool": (1,)}
_STRICT: Final = {"strict_invalid": True}

EACH_TURN: Final = turns_of(all_games)


def find_deviation(name: str, found: Any, expected: float) -> str | None:
    """Return None if `found` is `expected` but for rounding, else what is wrong with it."""
    near = isinstance(found, Real) and math.isclose(found, expected, abs_tol=CLOSE)
    return None if near else f"{name} is {shorten(found)}, expected {expected:g}"


# ---------------------------------------------------------------------------------------------------------- settings
NO_COUNTS: Final = (0, -1, 0.5, "1", None)
NO_FLAGS: Final = (2, "yes", None)
NO_CURVES: Final = ((), ((1, 1000),), ((0, 0),), ((0, 1000), (0, 500)), ((0, 0.5),), ((0,),), "fast", 3)
NO_PRESETS: Final = ("no such preset", {"no such row": 1.0}, {"step": float("nan")}, 3, None)
REFUSED_SETTINGS: Final[dict[str, tuple[str, dict[str, tuple[Any, ...]]]]] = {
    "POP-INIT-P1": ("refuses_a_pool_of_no_numbers", {"number_pool": ((), (0,), (10,), (1, 1), (0.5,), "12", 3)}),
    "POP-INIT-P2": ("refuses_a_flag_that_is_no_bool", {"strict_invalid": NO_FLAGS, "include_time_left_norm": NO_FLAGS}),
    "POP-INIT-P3": ("refuses_a_time_that_is_no_count", {"duration_ms": NO_COUNTS, "action_ms": NO_COUNTS}),
    "POP-INIT-P4": ("refuses_a_curve_that_is_none", {"fall_curve": NO_CURVES}),
    "POP-INIT-P5": ("refuses_an_unknown_manual_fall", {"manual_fall": ("no such fall", None)}),
    "POP-INIT-P6": ("refuses_an_unknown_reward_preset", {"reward_preset": NO_PRESETS}),
}
"""By clause: the check's name, and what the constructor must refuse."""


def _find_legal_value(probe: CheckProbe, refused: dict[str, tuple[Any, ...]]) -> str | None:
    """Return which of these values the constructor takes, by keyword; keywords that it does not know are left out."""
    known = {name: values for name, values in refused.items() if accepts_keyword(probe, name)}
    if not known:
        raise takes_no(refused)
    for name, values in known.items():
        for value in values:
            probe.doing = f"make({name}={shorten(value)})"
            found = expect_refusal((ValueError, ComponentError), partial(probe.make, **{name: value}))
            if found is not None:
                return found
    return None


CHECKS.update(
    {
        clause: make_check(name, partial(_find_legal_value, refused=refused))
        for clause, (name, refused) in REFUSED_SETTINGS.items()
    }
)


def _is_the_contracts(probe: CheckProbe) -> bool:
    spec = probe.make().spec
    return spec is not None and spec.id == CONTRACT_ID


@CHECKS.add("POP-INIT-P7")
def refuses_a_board_of_a_wrong_size(probe: CheckProbe) -> str | None:
    others = [side - 1 for side in BOARD] if _is_the_contracts(probe) else [0, 0]
    sides = zip(("height", "columns"), others, strict=True)
    return _find_legal_value(probe, {name: (*NO_COUNTS, other) for name, other in sides})


# ------------------------------------------------------------------------------------------------------------ spaces
def _compare_space(name: str, found: Any, expected: spaces.Space[Any]) -> str | None:
    # A Box takes another dtype for equal, so that the dtype is compared as well.
    same = found == expected and found.dtype == expected.dtype
    return None if same else f"{name} is {shorten(found)}, expected {shorten(expected)}"


@CHECKS.add("POP-SPACE-1")
def the_board_is_a_box_of_its_size(probe: CheckProbe) -> str | None:
    free = all(accepts_keyword(probe, side) for side in ("height", "columns")) and not _is_the_contracts(probe)
    board = EnvDriver(probe).env.observation_space["board"]
    size = board.shape if free and board.shape is not None and len(board.shape) == 2 else BOARD
    return _compare_space("board", board, spaces.Box(0, 9, size, np.int32))


@CHECKS.add("POP-SPACE-2")
def the_selection_is_a_pair(probe: CheckProbe) -> str | None:
    selection = EnvDriver(probe).env.observation_space["selection"]
    return _compare_space("selection", selection, spaces.Box(0, 9, (2,), np.int32))


@CHECKS.add("POP-SPACE-3")
def the_time_is_observed_only_if_asked_for(probe: CheckProbe) -> str | None:
    flagged = accepts_keyword(probe, "include_time_left_norm")
    for flag in (False, True) if flagged else (None,):
        space = EnvDriver(probe, {} if flag is None else {"include_time_left_norm": flag}).env.observation_space
        expected = {"board", "selection"} | ({"time_left_norm"} if flag else set())
        found = None
        if set(space) != expected:
            found = f"the observation has {', '.join(sorted(space))}, expected {', '.join(sorted(expected))}"
        elif flag:
            found = _compare_space("time_left_norm", space["time_left_norm"], spaces.Box(0.0, 1.0, (1,), np.float32))
        if found is not None:
            return found
    return None


@CHECKS.add("POP-SPACE-4")
def there_is_an_action_for_each_column_and_one_more(probe: CheckProbe) -> str | None:
    env = EnvDriver(probe).env
    expected = spaces.Discrete(env.observation_space["board"].shape[-1] + 1)
    return _compare_space("the action space", env.action_space, expected)


# ------------------------------------------------------------------------------------------------------------- reset
@CHECKS.add("POP-RESET-C1")
def a_game_begins_with_one_fall(probe: CheckProbe) -> str | None:
    drive = EnvDriver(probe)
    for seed in (*SEEDS, *SEEDS):
        observation, _ = drive.reset(seed=seed)
        board, selection = observation["board"], observation["selection"].tolist()
        if not board[0].all() or board[1:].any():
            return f"the board is {shorten(board.tolist())}, expected blocks in row 0 only"
        if any(selection):
            return f"the selection is {shorten(selection)}, expected [0, 0]"
        drive.step(0)
    return None


@CHECKS.add("POP-RESET-C2")
def a_game_begins_as_the_options_ask(probe: CheckProbe) -> str | None:
    drive = EnvDriver(probe)
    asked = make_board(drive, _TALL)
    for selection, shown in ((None, [0, 0]), (0, [1, 2]), ([1, 2], [1, 2])):
        observation, _ = reset_with_options(drive, board=asked, selection=selection)
        found = observation["board"].tolist(), observation["selection"].tolist()
        if found != (asked, shown):
            return f"begins with {shorten(found)}, expected {shorten((asked, shown))}"
    return None


def _find_legal_option(
    probe: CheckProbe, list_options: Callable[[list[list[int]]], Iterable[dict[str, Any]]]
) -> str | None:
    """Return what reset() answers to the first of the options, made from a good board, that it does not refuse."""
    drive = EnvDriver(probe)
    board = make_board(drive, _TALL)
    reset_with_options(drive, board=board)
    for bad in list_options(board):
        found = expect_refusal((ValueError,), partial(drive.reset, seed=SEEDS[0], options=bad))
        if found is not None:
            return found
    return None


@CHECKS.add("POP-RESET-P1")
def refuses_a_board_that_cannot_be(probe: CheckProbe) -> str | None:
    def list_options(good: list[list[int]]) -> Iterable[dict[str, Any]]:
        hole = [[0] * len(good[0]), *good[1:]]
        stranger = [[10, *good[0][1:]], *good[1:]]
        boards: tuple[Any, ...] = (good[1:], [row[1:] for row in good], stranger, hole, [[]], "full")
        return ({"board": board} for board in boards)

    return _find_legal_option(probe, list_options)


@CHECKS.add("POP-RESET-P2")
def refuses_a_selection_that_cannot_be(probe: CheckProbe) -> str | None:
    def list_options(board: list[list[int]]) -> Iterable[dict[str, Any]]:
        empty = [len(board[0]) - 1] if len(board[0]) > 1 else []
        selections = (*empty, len(board[0]), -1, 0.5, [1, 1], [0, 2], [1], "left")
        return ({"board": board, "selection": selection} for selection in selections)

    return _find_legal_option(probe, list_options)


# -------------------------------------------------------------------------------------------------------- invariants
def _pool_games() -> Iterator[GamePlan]:
    yield from all_games()
    yield from short_games(number_pool=(2, 5, 7))


@CHECKS.add("POP-I1", turns_of(_pool_games))
def every_block_is_of_the_pool(turn: JudgedStep) -> str | None:
    pool = turn.settings.get("number_pool", POOL)
    found = {value for stack in turn.stacks for value in stack} - set(pool)
    return f"there is a block of {min(found)}, the pool is {pool}" if found else None


@CHECKS.add("POP-I2", EACH_TURN)
def every_column_hangs_from_the_top(turn: JudgedStep) -> str | None:
    rows = turn.observation["board"].tolist()
    hangs = rows == BoardPosition(len(rows), turn.stacks).cells
    return None if hangs else f"the board {shorten(rows)} has a hole"


@CHECKS.add("POP-I3", EACH_TURN)
def the_selection_is_the_end_of_a_column(turn: JudgedStep) -> str | None:
    legal = [[0, 0], *([1, stack[-1]] for stack in turn.stacks if stack)]
    return None if turn.selection in legal else f"the selection is {turn.selection}, the columns are {turn.stacks}"


# ----------------------------------------------------------------------------------------------------------- actions
def _find_wrong_outcome(turn: JudgedStep) -> str | None:
    """Return how the board or the selection differs from what the contract makes of the action, a fall allowed."""
    left = turn.effect.position
    if turn.fell is None:
        return f"{turn.moved}, expected {left.stacks}"
    if turn.selection != left.selection:
        return f"the selection is {turn.selection}, expected {left.selection}"
    return None


def _is_quiet(kind: ActionKind, turn: JudgedStep) -> bool:
    return turn.effect.kind is kind and not turn.effect.popped


def _pop_games() -> Iterator[GamePlan]:
    # With one number only, falls make runs of five and six, of which whole triples pop.
    yield from (GamePlan(script_policy(*[-1] * more, 0, 0, 0), _ONE) for more in (4, 5))
    yield from all_games()


ACTIONS: Final = (
    ("POP-PICK", "a_pick_selects_the_last_block", ActionKind.PICK),
    ("POP-PLACE", "a_placement_moves_the_block_under_the_column", ActionKind.PLACE),
    ("POP-PUTBACK", "a_put_back_only_lets_go", ActionKind.PUT_BACK),
)
CHECKS.update(
    {
        clause: make_check(
            name, _find_wrong_outcome, turns_of(all_games, when=partial(_is_quiet, kind), situation=kind)
        )
        for clause, name, kind in ACTIONS
    }
)
CHECKS["POP-POP"] = make_check(
    "three_at_the_end_pop",
    _find_wrong_outcome,
    turns_of(_pop_games, when=lambda turn: turn.effect.popped > 0, situation="a pop"),
)


def _is_invalid(turn: JudgedStep) -> bool:
    return turn.effect.kind in INVALID


@CHECKS.add("POP-NOOP", turns_of(short_games, when=_is_invalid, situation="an invalid action"))
def an_invalid_action_changes_nothing(turn: JudgedStep) -> str | None:
    # With a full column a fall may end the game in the same step; that is another clause's matter.
    return "it ends the game" if turn.terminated and not turn.before.full else _find_wrong_outcome(turn)


@CHECKS.add("POP-CASCADE")
def a_pop_sets_off_no_other(probe: CheckProbe) -> str | None:
    drive = EnvDriver(probe)
    shown = reset_with_options(drive, board=make_board(drive, (2, 2, 2, 1, 1), (1,)))
    pick, place = islice(turns(drive, GamePlan(script_policy(1, 0)), *shown), 2)
    return _find_wrong_outcome(pick) or _find_wrong_outcome(place)


# ------------------------------------------------------------------------------------------------------------- falls
def _has_equal_blocks_beneath(turn: JudgedStep) -> bool:
    return bool(turn.fell) and any(len(stack) >= 3 and stack[1] == stack[2] for stack in turn.stacks)


@CHECKS.add(
    "POP-SPAWN-1", turns_of(all_games, when=_has_equal_blocks_beneath, situation="a fall upon two equal blocks")
)
def a_spawn_makes_no_three(turn: JudgedStep) -> str | None:
    threes = [stack for stack in turn.stacks if len(stack) >= 3 and stack[0] == stack[1] == stack[2]]
    return f"{threes[0][0]} fell upon two of its kind: {threes[0]}" if threes else None


def _games_on_schedule() -> Iterator[GamePlan]:
    return iter((GamePlan(toggling), GamePlan(solver()), GamePlan(solver(), seed=1)))


def _find_unscheduled_fall(turn: JudgedStep, due: Iterable[int]) -> str | None:
    """Return what is wrong if rows do not fall exactly at the milliseconds `due`; a fall without room is left out."""
    expected = len(turn.stacks) if turn.elapsed in due else 0
    if turn.effect.position.full or turn.grown == expected:
        return None
    return f"{turn.grown} blocks fell at {turn.elapsed / 1000:g} s, expected {expected}"


@CHECKS.add("POP-FALL-1", turns_of(_games_on_schedule))
def rows_fall_by_the_schedule(turn: JudgedStep) -> str | None:
    return _find_unscheduled_fall(turn, FALLS)


@CHECKS.add("POP-FALL-2")
def a_manual_fall_restarts_the_wait(probe: CheckProbe) -> str | None:
    # Asked for between two scheduled falls, and together with one.
    for moment in (10, 30):
        asked = moment * ACTION_MS
        due = (asked, asked + interval_at(asked))
        game = GamePlan(script_policy(*[0] * (moment - 1), -1, *[0] * STEPS))
        for turn in islice(play(probe, game), due[-1] // ACTION_MS):
            found = _find_unscheduled_fall(turn, due)
            if found is not None:
                return found
    return None


def _has_room(turn: JudgedStep) -> bool:
    return not turn.effect.position.full and (turn.manual or turn.grown == len(turn.stacks))


@CHECKS.add("POP-FALL-3", turns_of(all_games, when=_has_room, situation="a fall"))
def a_fall_moves_every_column_down(turn: JudgedStep) -> str | None:
    return _find_wrong_outcome(turn) if turn.fell else f"{turn.moved}: not one row further down"


@CHECKS.add("POP-FALL-4")
def no_fall_pops(probe: CheckProbe) -> str | None:
    for game in playable(probe, [GamePlan(script_policy(), _ONE)]):
        for turn in takewhile(lambda turn: not turn.before.full, play(probe, game)):
            if not turn.fell:
                return turn.moved
    return None


@CHECKS.add("POP-FALL-5", turns_of(lambda: [GamePlan(script_policy(0), {"manual_fall": "fast_forward"})]))
def a_fast_forward_jumps_to_the_next_fall(turn: JudgedStep) -> str | None:
    falls = turn.number - 1
    elapsed = FALLS[falls - 1] if falls else ACTION_MS
    found = find_deviation("time_left", turn.info["time_left"], (DURATION_MS - elapsed) / 1000)
    if found is None and falls and not turn.before.full and turn.grown != len(turn.stacks):
        found = f"{turn.grown} blocks fell, expected {len(turn.stacks)}"
    return found


@CHECKS.add("POP-FALL-6", EACH_TURN)
def the_info_has_the_fall_interval(turn: JudgedStep) -> str | None:
    return find_deviation("fall_interval", turn.info["fall_interval"], interval_at(turn.elapsed) / 1000)


# -------------------------------------------------------------------------------------------------------------- ends
@CHECKS.add("POP-OVERFLOW", EACH_TURN)
def a_fall_without_room_ends_the_game(turn: JudgedStep) -> str | None:
    full = turn.effect.position.full
    if turn.terminated:
        return None if full and turn.fell is False else f"terminated; {turn.moved}"
    if full and (turn.manual or turn.grown != 0):
        return f"goes on after a fall upon a full column: {turn.before.stacks}"
    due = full and turn.undisturbed and turn.elapsed in FALLS
    return "no scheduled fall ended the game on a full column" if due else None


def _dropping_games() -> Iterator[GamePlan]:
    return (GamePlan(policy, _STRICT) for policy in (crowding, script_policy(0, 1, 0, 0, 1, 1)))


@CHECKS.add("POP-DROP", turns_of(_dropping_games, when=_is_invalid, situation="an invalid action"))
def a_strict_full_drop_ends_the_game(turn: JudgedStep) -> str | None:
    if bool(turn.terminated) is not (turn.effect.kind is ActionKind.FULL_DROP):
        return f"terminated is {turn.terminated} after {turn.effect.kind}"
    return None if turn.fell is False else turn.moved


def _lasts(turn: JudgedStep) -> bool:
    return turn.number == STEPS and not turn.terminated


@CHECKS.add("POP-TIME", turns_of(long_games, until=_lasts, situation="that time is up"))
def time_is_up_after_a_minute(turn: JudgedStep) -> str | None:
    if turn.terminated or bool(turn.truncated) is (turn.number == STEPS):
        return None
    return f"truncated is {turn.truncated} at {turn.elapsed / 1000:g} s"


def _is_lost_at_the_last(turn: JudgedStep) -> bool:
    return turn.number == STEPS and turn.manual and turn.before.full


@CHECKS.add("POP-END", turns_of(lambda: long_games(closing), until=_is_lost_at_the_last, situation="that time is up"))
def a_game_never_ends_both_ways(turn: JudgedStep) -> str | None:
    if turn.terminated and turn.truncated:
        return "terminated and truncated at once"
    return "a fall without room is not terminated" if _is_lost_at_the_last(turn) and not turn.terminated else None


# -------------------------------------------------------------------------------------------------------------- time
@CHECKS.add("POP-TIME-LEFT", EACH_TURN)
def every_action_takes_a_tenth_of_a_second(turn: JudgedStep) -> str | None:
    left = (DURATION_MS - turn.elapsed) / 1000
    return find_deviation("time_left", turn.last_info["time_left"], left + ACTION_MS / 1000) or find_deviation(
        "time_left", turn.info["time_left"], left
    )


@CHECKS.add("POP-TIME-NORM", turns_of(partial(short_games, include_time_left_norm=True)))
def the_observed_time_is_a_share(turn: JudgedStep) -> str | None:
    share = float(turn.observation["time_left_norm"][0])
    return find_deviation("time_left_norm", share, turn.info["time_left"] * 1000 / DURATION_MS)


# -------------------------------------------------------------------------------------------------- score and reward
@CHECKS.add("POP-POPS", turns_of(all_games, when=lambda turn: turn.fell is not None))
def the_pops_are_the_cells_that_vanish(turn: JudgedStep) -> str | None:
    new = len(turn.stacks) if turn.fell else 0
    gone = turn.before.blocks + new - sum(map(len, turn.stacks))
    return find_deviation("pops_this_step", turn.info["pops_this_step"], gone)


@CHECKS.add("POP-SCORE", EACH_TURN)
def the_score_is_three_for_each_cell(turn: JudgedStep) -> str | None:
    before = turn.last_info["score"]
    if turn.number == 1 and before != 0:
        return f"the game begins with the score {shorten(before)}"
    return find_deviation("score", turn.info["score"], before + 3 * turn.info["pops_this_step"])


WORTH: Final = {
    kind: {ActionKind.NOTHING_THERE: -0.1, ActionKind.FULL_DROP: -1.0}.get(kind, 1.0) for kind in ActionKind
}
"""What an action is worth by its kind, in the contract's preset."""


@CHECKS.add("POP-REWARD", EACH_TURN)
def the_reward_is_the_contracts(turn: JudgedStep) -> str | None:
    end = -1.0 if turn.terminated else -0.5 if turn.truncated else 0.0
    expected = WORTH[turn.effect.kind] + 3.0 * int(turn.info["pops_this_step"]) - 0.01 + end
    return find_deviation(f"the reward of {turn.effect.kind}", float(turn.reward), expected)


@CHECKS.add("POP-REWARD-PARTS", turns_of(all_games, key="reward_parts", key_on_reset=False))
def the_parts_add_up_to_the_reward(turn: JudgedStep) -> str | None:
    total = float(sum(turn.info["reward_parts"].values()))
    return find_deviation("the sum of reward_parts", total, float(turn.reward))


# -------------------------------------------------------------------------------------------------------------- info
KEYS: Final[dict[str, type]] = {
    "score": Integral,
    "time_left": Real,
    "pops_this_step": Integral,
    "fall_interval": Real,
    "seed": Integral,
    "version": str,
}


@CHECKS.add("POP-INFO", EACH_TURN)
def the_info_has_its_keys(turn: JudgedStep) -> str | None:
    for info in (turn.last_info, turn.info):
        for key, kind in KEYS.items():
            if key not in info:
                return f"the info has no {key!r}"
            if not isinstance(info[key], kind) or info[key] == "":
                return f"info[{key!r}] is {shorten(info[key])}"
    return None


@CHECKS.add("POP-SEED")
def the_seed_replays_the_game(probe: CheckProbe) -> str | None:
    drive = EnvDriver(probe)
    for seed in SEEDS:
        told = drive.reset(seed=seed)[1]["seed"]
        if told != seed:
            return f"info['seed'] is {shorten(told)}"
    observation, info = drive.reset()
    told = info["seed"]
    if not isinstance(told, int | np.integer) or not 0 <= told < SEED_LIMIT:
        return f"info['seed'] is {shorten(told)}"
    other = EnvDriver(probe)
    again, _ = other.reset(seed=told)
    fall = int(drive.env.action_space.n) - 1
    for _ in range(_FEW):
        if not is_identical(observation, again):
            return f"shows {shorten(again)}, the game with this seed showed {shorten(observation)}"
        (observation, _, one, *_), (again, _, two, *_) = drive.step(fall), other.step(fall)
        if one or two:
            break
    return None


def _fault_games() -> Iterator[GamePlan]:
    yield from all_games()
    yield GamePlan(crowding, _STRICT)


@CHECKS.add("POP-FAULT", turns_of(_fault_games, key="fault"))
def the_fault_names_the_loss(turn: JudgedStep) -> str | None:
    dropped = "strict_invalid" in turn.settings and turn.effect.kind is ActionKind.FULL_DROP
    expected = ("invalid_full_drop" if dropped else "overflow") if turn.terminated else None
    found = turn.info.get("fault")
    return None if found == expected else f"the fault is {shorten(found)}, expected {shorten(expected)}"


@CHECKS.add("POP-MASK", turns_of(all_games, key="action_mask"))
def the_mask_shows_what_is_valid(turn: JudgedStep) -> str | None:
    mask, before = turn.last_info["action_mask"], turn.before
    expected = [int(before.kind_of(action) not in INVALID) for action in range(len(before.stacks) + 1)]
    if not isinstance(mask, np.ndarray) or mask.dtype != np.int8:
        return f"action_mask is {shorten(mask)}, expected an int8 array"
    return None if mask.tolist() == expected else f"action_mask was {mask.tolist()}, expected {expected}"


# ------------------------------------------------------------------------------------------------------ observations
@CHECKS.add("POP-FRESH")
def observations_are_nobodys_else(probe: CheckProbe) -> str | None:
    spoiled, left = EnvDriver(probe), EnvDriver(probe)
    mine, kept = spoiled.reset(seed=SEEDS[0])[0], left.reset(seed=SEEDS[0])[0]
    start = BoardPosition(1, ((),) * (int(left.env.action_space.n) - 1))
    for number in range(1, _FEW):
        seen = {name: np.array(part) for name, part in kept.items()}
        if not is_identical(mine, seen):
            return f"shows {shorten(mine)}; without a write to an earlier observation it shows {shorten(seen)}"
        for array in iterate_arrays(mine):
            if array.flags.writeable:
                array[...] = 0
        action = restless(number, start)
        (later, _, terminated, truncated, _), (mine, *_) = left.step(action), spoiled.step(action)
        if not is_identical(kept, seen):
            return "a step changed an earlier observation"
        if terminated or truncated:
            break
        kept = later
    return None
