"""An episode at one of its steps: what stood there, and what other actions would have led to.

Rule 1: the way there is driven again and compared; if it differs from the record, that is said with the result, for then
    what follows is not what was.
Rule 2: a branch is never recorded, and the record is never changed.
Rule 3: a branch has pictures where the record has: its scenes are asked for only if the reset's was recorded.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from proctor.errors import ValidationError
from proctor.ledger.reader import Ledger, Row
from proctor.ledger.rows import decode_value
from proctor.models.events import BatchStepped, EpisodeReset, EpisodeStepped
from proctor.replay.comparison import (
    MOST_UNPACKED_BYTES,
    BatchOutput,
    Difference,
    EnvOutput,
    RowComparison,
    has_scene,
    output_from_event,
    parse_array,
    unpack_arrays,
)
from proctor.replay.driver import BatchDriver, Driver, DriverCache, EnvironmentFailure, call_environment
from proctor.replay.replayer import open_rows, read_opening, replay_rows

NOT_STORED: Final = "(not stored)"
"""Stands for an observation of a record that keeps digests only."""

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class EpisodeSnapshot:
    """Where an episode stands after `step` steps; every value is one that JSON can say. Of a batch they are lists.

    `total_reward` is what was paid up to here, after the transforms, and `raw_total` what the environment gave.
    """

    step: int
    state: Any
    observation: Any
    metadata: Any
    scene: Any
    total_reward: Any
    raw_total: Any
    terminated: Any
    truncated: Any
    first: Difference | None = None
    """Where the replay first differed on the way here; None: nowhere."""
    at_step: int | None = None


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What one action led to."""

    action: Any
    observation: Any
    reward: Any
    """As the environment gave it."""
    terminated: Any
    truncated: Any
    metadata: Any
    scene: Any = None
    """What of the picture has changed; None where the record has no pictures."""


@dataclass(frozen=True, slots=True)
class BranchStep:
    """One step of a branch, beside that of the record with the same number, if there is one."""

    step: int
    branch: StepOutcome
    recorded: StepOutcome | None
    said: Any = None
    """The action as on the wire, however it was given."""


@dataclass(frozen=True, slots=True)
class ForkResult:
    """A branch: where it leaves the record, its steps, and how many actions were left when the episode ended."""

    standing: EpisodeSnapshot
    rows: tuple[BranchStep, ...]
    left: int = 0


def state_at(ledger: Ledger, chain: str, step: int) -> EpisodeSnapshot:
    """Return where the episode stood after so many steps; a ValidationError if it had fewer, or cannot be replayed."""
    with _replay_to_step(ledger, chain, step) as (_, standing, _, _):
        return standing


def fork_episode(ledger: Ledger, chain: str, step: int, actions: Sequence[Any]) -> ForkResult:
    """Return what other actions lead to from there on.

    An action is said as on the wire; where the wire has `{"action": value}`, the value alone will do. One that the
    environment does not take is a ValidationError; those after the end of the episode are left.
    """
    with _replay_to_step(ledger, chain, step) as (driver, standing, has_scenes, rows):
        rest = (row for row in rows if isinstance(row.event, EpisodeStepped | BatchStepped))
        branch: list[BranchStep] = []
        last: EpisodeSnapshot | StepOutcome = standing
        # Of a batch the flags are lists: it goes on whoever has ended.
        while len(branch) < len(actions) and last.terminated is not True and last.truncated is not True:
            action = actions[len(branch)]
            said = _encode_action(driver, action)
            last = _take_action(driver, action, said, scene=has_scenes)
            then = next(rest, None)
            recorded = None if then is None else _outcome_from_row(then)
            branch.append(BranchStep(step + len(branch) + 1, last, recorded, _decode(said)))
        return ForkResult(standing, tuple(branch), len(actions) - len(branch))


@contextmanager
def _replay_to_step(
    ledger: Ledger, chain: str, step: int
) -> Iterator[tuple[Driver, EpisodeSnapshot, bool, Iterator[Row]]]:
    """Yield an environment that was driven up to a step, where it stands, whether the record has scenes, and the rows that follow."""
    first: RowComparison | None = None
    last: RowComparison | None = None
    found: EnvOutput | BatchOutput | None = None
    total = _Totals(0.0, 0.0)
    has_scenes = False
    try:
        with DriverCache() as driver_cache, open_rows(ledger, chain) as rows:
            for each in replay_rows(read_opening(rows, chain), rows, driver_cache=driver_cache):
                if each.found is None:
                    raise ValidationError(f"the environment failed on the way: {each.differences[0]}")
                first = first or (each if each.differences else None)
                has_scenes = has_scenes or (isinstance(each.event, EpisodeReset) and has_scene(each.event))
                total, last, found = _add_rewards(total, each), each, each.found
                if each.step == step:
                    break
            driver = driver_cache.current
            if driver is None or last is None or found is None or last.step != step:
                expected = f"0, which is the reset, to {0 if last is None else last.step}"
                raise ValidationError("this episode has no such step", found=step, expected=expected)
            yield driver, _take_snapshot(driver, last.step, found, first, total), has_scenes, rows
    except EnvironmentFailure as problem:
        raise ValidationError(f"the environment does not say where it stands: {problem}") from problem


class _Totals(NamedTuple):
    """The sums of what was paid and of what the environment gave; of a batch they are arrays."""

    paid: Any
    raw: Any


def _add_rewards(total: _Totals, each: RowComparison) -> _Totals:
    event, found = each.event, each.found
    if isinstance(event, EpisodeStepped) and isinstance(found, EnvOutput):
        return _Totals(total.paid + (event.reward or 0.0), total.raw + (found.reward or 0.0))
    if isinstance(event, BatchStepped) and isinstance(found, BatchOutput):
        return _Totals(total.paid + parse_array(event.rewards), total.raw + parse_array(found.reward))
    return total


def _take_snapshot(
    driver: Driver, step: int, found: EnvOutput | BatchOutput, first: RowComparison | None, total: _Totals
) -> EpisodeSnapshot:
    answer = _outcome_from_output(None, found)
    return EpisodeSnapshot(
        step,
        call_environment(driver.state),
        answer.observation,
        answer.metadata,
        call_environment(lambda: driver.scene(begins=True)),
        _to_json_number(total.paid),
        _to_json_number(total.raw),
        answer.terminated,
        answer.truncated,
        None if first is None else first.differences[0],
        None if first is None else first.step,
    )


def _take_action(driver: Driver, action: Any, said: bytes, *, scene: bool) -> StepOutcome:
    try:
        found = driver.act(said) if isinstance(driver, BatchDriver) else driver.act(said, scene=scene)
    except EnvironmentFailure as problem:
        text = f"this action was not taken: {problem}"
        raise ValidationError(text, found=action, expected="an action as on the wire") from problem
    return _outcome_from_output(action, found)


def _encode_action(driver: Driver, action: Any) -> bytes:
    if isinstance(driver, BatchDriver):
        whole = isinstance(action, dict) and "actions" in action
        return _encode(action if whole else {"actions": action})
    fields = driver.environment.action_type.model_fields
    bare = not isinstance(action, dict) or "action" not in action
    return _encode({"action": action} if bare and list(fields) == ["action"] else action)


def _outcome_from_output(
    action: Any, found: EnvOutput | BatchOutput, read: Callable[[bytes], Any] = _decode, most: int = sys.maxsize
) -> StepOutcome:
    if isinstance(found, EnvOutput):
        observation, metadata, scene = map(read, (found.observation, found.metadata, found.scene))
        return StepOutcome(action, observation, found.reward, found.terminated, found.truncated, metadata, scene)
    texts = (found.observation, found.reward, found.terminated, found.truncated, found.metadata)
    return StepOutcome(action, *(unpack_arrays(read(each), most) for each in texts))


def _outcome_from_row(row: Row) -> StepOutcome | None:
    """Return what a recorded step led to; a ValidationError if it says more than can be read."""
    event = row.event
    if not isinstance(event, EpisodeStepped | BatchStepped):
        return None
    action = decode_value(event.action if isinstance(event, EpisodeStepped) else event.actions)
    outcome = _outcome_from_output(action, output_from_event(event), decode_value, MOST_UNPACKED_BYTES)
    return outcome if row.values else replace(outcome, observation=NOT_STORED)


def _to_json_number(total: Any) -> Any:
    return total.tolist() if isinstance(total, np.ndarray) else total
