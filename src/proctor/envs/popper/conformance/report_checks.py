"""The checks of what Column Popper reports: score, reward, info, and observations that stay as they were."""

from numbers import Integral, Real
from typing import Any, Final

import numpy as np

from proctor.contracts.chance import SEED_LIMIT
from proctor.contracts.conformance.env_driver import SEEDS, EnvDriver, accepts_keyword
from proctor.contracts.conformance.report import KEPT, CannotTell, Check, CheckProbe, Outcome, shorten
from proctor.contracts.conformance.samples import is_identical, iterate_arrays
from proctor.envs.popper.conformance.clock_checks import find_deviation
from proctor.envs.popper.conformance.games import (
    GamePlan,
    JudgedStep,
    always,
    check_each_turn,
    crowding,
    games,
    restless,
)
from proctor.envs.popper.conformance.model import INVALID, ActionKind, BoardPosition

POINTS: Final = 3
KEYS: Final[dict[str, type]] = {
    "score": Integral,
    "time_left": Real,
    "pops_this_step": Integral,
    "fall_interval": Real,
    "seed": Integral,
    "version": str,
}
VALID: Final = 1.0
CELL: Final = 3.0
STEP: Final = -0.01
TIME_UP: Final = -0.5
PENALTIES: Final = {ActionKind.NOTHING_THERE: -0.1, ActionKind.FULL_DROP: -1.0}
OVERFLOW: Final = -1.0
_FEW: Final = 8


def _reports(probe: CheckProbe, key: str, *, on_reset: bool = True) -> None:
    """Give up on the check if the info has no such key, which the contract leaves open."""
    drive = EnvDriver(probe)
    _, info = drive.reset(seed=SEEDS[0])
    if not on_reset:
        info = drive.step(0)[4]
    if key not in info:
        raise CannotTell(f"the info has no {key!r}")


# ------------------------------------------------------------------------------------------------- score and reward
def the_pops_are_the_cells_that_vanish(probe: CheckProbe) -> Outcome:
    """POP-POPS."""

    def problem(turn: JudgedStep) -> str | None:
        new = len(turn.stacks) if turn.fell else 0
        gone = turn.before.blocks + new - sum(map(len, turn.stacks))
        return find_deviation("pops_this_step", turn.info["pops_this_step"], gone)

    return check_each_turn(probe, games(), lambda turn: turn.fell is not None, problem, "a turn")


def the_score_is_three_for_each_cell(probe: CheckProbe) -> Outcome:
    """POP-SCORE."""

    def problem(turn: JudgedStep) -> str | None:
        if turn.number == 1 and turn.last_info["score"] != 0:
            return f"the game begins with the score {shorten(turn.last_info['score'])}"
        return find_deviation(
            "score", turn.info["score"], turn.last_info["score"] + POINTS * turn.info["pops_this_step"]
        )

    return check_each_turn(probe, games(), always, problem, "a turn")


def _worth(turn: JudgedStep) -> float:
    """Return what the contract's preset gives for a turn of a game that is not strict."""
    kind = turn.effect.kind
    reward = PENALTIES[kind] if kind in INVALID else VALID
    reward += CELL * int(turn.info["pops_this_step"]) + STEP
    return reward + (OVERFLOW if turn.terminated else TIME_UP if turn.truncated else 0.0)


def the_reward_is_the_contracts(probe: CheckProbe) -> Outcome:
    """POP-REWARD."""

    def problem(turn: JudgedStep) -> str | None:
        return find_deviation(f"the reward of {turn.effect.kind}", float(turn.reward), _worth(turn))

    return check_each_turn(probe, games(), always, problem, "a turn")


def the_parts_add_up_to_the_reward(probe: CheckProbe) -> Outcome:
    """POP-REWARD-PARTS."""
    _reports(probe, "reward_parts", on_reset=False)

    def problem(turn: JudgedStep) -> str | None:
        return find_deviation(
            "the sum of reward_parts", float(sum(turn.info["reward_parts"].values())), float(turn.reward)
        )

    return check_each_turn(probe, games(), always, problem, "a turn")


# -------------------------------------------------------------------------------------------------------------- info
def _incomplete(info: dict[str, Any]) -> str | None:
    for key, kind in KEYS.items():
        if key not in info:
            return f"the info has no {key!r}"
        if not isinstance(info[key], kind) or info[key] == "":
            return f"info[{key!r}] is {shorten(info[key])}"
    return None


def the_info_has_its_keys(probe: CheckProbe) -> Outcome:
    """POP-INFO."""

    def problem(turn: JudgedStep) -> str | None:
        return _incomplete(turn.last_info) or _incomplete(turn.info)

    return check_each_turn(probe, games(), always, problem, "a turn")


def the_seed_replays_the_game(probe: CheckProbe) -> Outcome:
    """POP-SEED."""
    drive = EnvDriver(probe)
    for seed in SEEDS:
        _, info = drive.reset(seed=seed)
        if info["seed"] != seed:
            return probe.broken(f"info['seed'] is {shorten(info['seed'])}")
    observation, info = drive.reset()
    told = info["seed"]
    if not isinstance(told, int | np.integer) or not 0 <= told < SEED_LIMIT:
        return probe.broken(f"info['seed'] is {shorten(told)}")
    other = EnvDriver(probe)
    again, _ = other.reset(seed=told)
    fall = int(drive.env.action_space.n) - 1
    for _ in range(_FEW):
        if not is_identical(observation, again):
            return probe.broken(f"shows {shorten(again)}, the game with this seed showed {shorten(observation)}")
        (observation, _, one, *_), (again, _, two, *_) = drive.step(fall), other.step(fall)
        if one or two:
            break
    return KEPT


def the_fault_names_the_loss(probe: CheckProbe) -> Outcome:
    """POP-FAULT."""
    _reports(probe, "fault")

    def wrong(turn: JudgedStep, fault: str) -> str | None:
        expected = fault if turn.terminated else None
        found = turn.info.get("fault")
        return None if found == expected else f"the fault is {shorten(found)}, expected {shorten(expected)}"

    def by_dropping(turn: JudgedStep) -> str | None:
        return wrong(turn, "invalid_full_drop" if turn.effect.kind is ActionKind.FULL_DROP else "overflow")

    outcome = check_each_turn(probe, games(), always, lambda turn: wrong(turn, "overflow"), "a turn")
    if outcome is not KEPT or not accepts_keyword(probe, "strict_invalid"):
        return outcome
    return check_each_turn(probe, [GamePlan(crowding, (("strict_invalid", True),))], always, by_dropping, "a turn")


def _valid(position: BoardPosition) -> list[int]:
    return [int(position.kind_of(action) not in INVALID) for action in range(len(position.stacks) + 1)]


def the_mask_shows_what_is_valid(probe: CheckProbe) -> Outcome:
    """POP-MASK."""
    _reports(probe, "action_mask")

    def problem(turn: JudgedStep) -> str | None:
        mask = turn.last_info["action_mask"]
        expected = _valid(turn.before)
        if not isinstance(mask, np.ndarray) or mask.dtype != np.int8:
            return f"action_mask is {shorten(mask)}, expected an int8 array"
        return None if mask.tolist() == expected else f"action_mask was {mask.tolist()}, expected {expected}"

    return check_each_turn(probe, games(), always, problem, "a turn")


# ------------------------------------------------------------------------------------------------------ observations
def _spoil(observation: Any) -> None:
    for array in [array for array in iterate_arrays(observation) if array.flags.writeable]:
        array[...] = 0


def observations_are_nobodys_else(probe: CheckProbe) -> Outcome:
    """POP-FRESH."""
    spoiled, left = EnvDriver(probe), EnvDriver(probe)
    mine, kept = spoiled.reset(seed=SEEDS[0])[0], left.reset(seed=SEEDS[0])[0]
    start = BoardPosition(1, ((),) * (int(left.env.action_space.n) - 1))
    for number in range(1, _FEW):
        seen = {name: np.array(part) for name, part in kept.items()}
        if not is_identical(mine, seen):
            return probe.broken(
                f"shows {shorten(mine)}; without a write to an earlier observation it shows {shorten(seen)}"
            )
        _spoil(mine)
        action = restless(number, start)
        (later, _, terminated, truncated, _), (mine, *_) = left.step(action), spoiled.step(action)
        if not is_identical(kept, seen):
            return probe.broken("a step changed an earlier observation")
        if terminated or truncated:
            break
        kept = later
    return KEPT


CHECKS: Final[dict[str, Check]] = {
    "POP-POPS": the_pops_are_the_cells_that_vanish,
    "POP-SCORE": the_score_is_three_for_each_cell,
    "POP-REWARD": the_reward_is_the_contracts,
    "POP-REWARD-PARTS": the_parts_add_up_to_the_reward,
    "POP-INFO": the_info_has_its_keys,
    "POP-SEED": the_seed_replays_the_game,
    "POP-FAULT": the_fault_names_the_loss,
    "POP-MASK": the_mask_shows_what_is_valid,
    "POP-FRESH": observations_are_nobodys_else,
}
