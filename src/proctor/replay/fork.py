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
from typing import Any, Final

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
    with _replay_to_step(ledger, chain, step) as (driver, way, _):
        return way.standing(driver)


def fork_episode(ledger: Ledger, chain: str, step: int, actions: Sequence[Any]) -> ForkResult:
    """Return what other actions lead to from there on.

    An action is said as on the wire; where the wire has `{"action": value}`, the value alone will do. One that the
    environment does not take is a ValidationError; those after the end of the episode are left.
    """
    with _replay_to_step(ledger, chain, step) as (driver, way, rows):
        standing = way.standing(driver)
        rest = (row for row in rows if isinstance(row.event, EpisodeStepped | BatchStepped))
        branch: list[BranchStep] = []
        last: EpisodeSnapshot | StepOutcome = standing
        # Of a batch the flags are lists: it goes on whoever has ended.
        while len(branch) < len(actions) and last.terminated is not True and last.truncated is not True:
            action = actions[len(branch)]
            said = _encode_action(driver, action)
            last = _take_action(driver, action, said, scene=way.has_scenes)
            then = next(rest, None)
            recorded = None if then is None else _outcome_from_row(then)
            branch.append(BranchStep(step + len(branch) + 1, last, recorded, _decode(said)))
        return ForkResult(standing, tuple(branch), len(actions) - len(branch))


@contextmanager
def _replay_to_step(ledger: Ledger, chain: str, step: int) -> Iterator[tuple[Driver, "_ReplayProgress", Iterator[Row]]]:
    """Yield an environment that has been driven up to a step, the way there, and the rows that follow."""
    try:
        with DriverCache() as driver_cache, open_rows(ledger, chain) as rows:
            way = _ReplayProgress()
            for each in replay_rows(read_opening(rows, chain), rows, driver_cache=driver_cache):
                way.add(each)
                if each.step == step:
                    break
            driver = driver_cache.current
            if driver is None or way.step != step:
                raise way.missing_step_error(step)
            yield driver, way, rows
    except EnvironmentFailure as problem:
        raise ValidationError(f"the environment does not say where it stands: {problem}") from problem


class _ReplayProgress:
    def __init__(self) -> None:
        self.step = -1
        self.has_scenes = False
        """Whether the record has pictures."""
        self._total_reward: Any = 0.0
        self._raw_total: Any = 0.0
        self._last: RowComparison | None = None
        self._first: RowComparison | None = None

    def add(self, each: RowComparison) -> None:
        """Take one more row."""
        if each.found is not None:
            self.step = each.step
        self._last = each
        if each.differences and self._first is None:
            self._first = each
        event, found = each.event, each.found
        if isinstance(event, EpisodeReset):
            self.has_scenes = has_scene(event)
        elif isinstance(event, EpisodeStepped) and isinstance(found, EnvOutput):
            self._total_reward += event.reward or 0.0
            self._raw_total += found.reward or 0.0
        elif isinstance(event, BatchStepped) and isinstance(found, BatchOutput):
            self._total_reward = self._total_reward + parse_array(event.rewards)
            self._raw_total = self._raw_total + parse_array(found.reward)

    def missing_step_error(self, step: int) -> ValidationError:
        """Return why the step was not reached."""
        if self._last is not None and self._last.found is None:
            return ValidationError(f"the environment failed on the way: {self._last.differences[0]}")
        return ValidationError(
            "this episode has no such step", found=step, expected=f"0, which is the reset, to {max(self.step, 0)}"
        )

    def standing(self, driver: Driver) -> EpisodeSnapshot:
        """Return where the episode stands now."""
        found = None if self._last is None else self._last.found
        if found is None:
            raise self.missing_step_error(self.step)
        answer = _outcome_from_output(None, found)
        first = self._first
        return EpisodeSnapshot(
            self.step,
            call_environment(driver.state),
            answer.observation,
            answer.metadata,
            call_environment(lambda: driver.scene(begins=True)),
            _to_json_number(self._total_reward),
            _to_json_number(self._raw_total),
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
