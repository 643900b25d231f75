"""What a batch's row says of one of its sub-environments, in the form of the single environment."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import gymnasium as gym
import msgspec
from gymnasium.vector.utils import batch_space, iterate

from proctor.models.control import StepBatch
from proctor.models.events import BatchStepped
from proctor.models.spaces import Codec, codec_of
from proctor.replay.batches import Turn
from proctor.replay.comparison import COUNTS, numbers, same_number
from proctor.replay.difference import Difference, parted, unfolded, values_parted
from proctor.replay.driver import Found

FINAL: Final = ("final_info", "final_obs")
"""What speaks of the episode before, where another has begun in the same step."""

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode
_actions: Final = msgspec.json.Decoder(StepBatch).decode


@dataclass(frozen=True, slots=True)
class _Form:
    """A space as one has it and as the batch has it."""

    one: Codec
    many: Codec
    space: gym.Space[Any]

    @classmethod
    def of(cls, space: gym.Space[Any], count: int) -> "_Form":
        batched = batch_space(space, count)
        return cls(codec_of(space), codec_of(batched), batched)

    def each(self, said: Any) -> list[Any]:
        """Return the values of a batch one by one, as JSON says them of one environment."""
        return [self.one.encode(value) for value in iterate(self.space, self.many.decode(said, bounded=False))]


class Slices:
    """The spaces of a batch."""

    def __init__(self, action: gym.Space[Any], observation: gym.Space[Any], count: int) -> None:
        self.actions: Final = _Form.of(action, count)
        self.observations: Final = _Form.of(observation, count)

    def said(self, turn: Turn) -> "Said":
        """Return what a row says, to be asked for each sub-environment."""
        return Said(self, turn)


class Said:
    """What one row says; each part is read once, when it is first asked for."""

    def __init__(self, slices: Slices, turn: Turn) -> None:
        self._slices = slices
        self._turn = turn
        self.step: Final = turn.step

    def action(self, index: int) -> bytes:
        """Return the action of one sub-environment as on the wire."""
        return _encode({"action": self._each_action[index]})

    def differences(self, index: int, found: Found, *, begins: bool) -> Iterator[Difference]:
        """Yield how the row differs from what one environment answered: to the reset with which it `begins`, or to a step."""
        observation = self._observation(index, begins=begins)
        if observation is not None:
            yield from _some(parted("observation", _encode({"observation": observation}), found.observation))
        if not begins:
            rewards, terminated, truncated = self._outcomes
            if not same_number(float(rewards[index]), found.reward):
                yield Difference("reward", float(rewards[index]), found.reward)
            if bool(terminated[index]) is not found.terminated:
                yield Difference("terminated", bool(terminated[index]), found.terminated)
            if bool(truncated[index]) is not found.truncated:
                yield Difference("truncated", bool(truncated[index]), found.truncated)
        yield from _some(_metadata_parted(self._info(index, begins=begins), _decode(found.metadata)))

    @cached_property
    def _each_action(self) -> list[Any]:
        event = self._turn.event
        said = _actions(event.actions).actions if isinstance(event, BatchStepped) else b"[]"
        return self._slices.actions.each(_decode(said))

    @cached_property
    def _each_observation(self) -> list[Any] | None:
        """None: the values were not stored."""
        if not self._turn.row.values:
            return None
        return self._slices.observations.each(_decode(self._turn.event.observations))

    @cached_property
    def _outcomes(self) -> tuple[Any, Any, Any]:
        event = self._turn.event
        if not isinstance(event, BatchStepped):
            return (), (), ()
        return numbers(event.raw_rewards), numbers(event.terminations), numbers(event.truncations)

    @cached_property
    def _infos(self) -> dict[str, Any]:
        told: dict[str, Any] = unfolded(_decode(self._turn.event.infos))
        return told

    @cached_property
    def _finals(self) -> dict[int, Any]:
        """The last observations of those whose next episode has begun in the same row."""
        told = self._infos.get("final_obs", {"index": [], "values": []})
        return dict(zip(told["index"], told["values"], strict=True))

    def _observation(self, index: int, *, begins: bool) -> Any:
        if not begins and index in self._finals:
            return self._finals[index]
        return None if self._each_observation is None else self._each_observation[index]

    def _info(self, index: int, *, begins: bool) -> dict[str, Any]:
        if not begins and index in self._finals:
            return _said_of(self._infos.get("final_info", {}), index)
        return _said_of(self._infos, index)


def _said_of(infos: Mapping[str, Any], index: int) -> dict[str, Any]:
    """Return what a batch's infos say of one sub-environment."""
    said: dict[str, Any] = {}
    for key, value in infos.items():
        is_mask = key.startswith("_") and key[1:] in infos
        mask = infos.get(f"_{key}")
        if is_mask or key in FINAL or key in COUNTS or (mask is not None and not mask[index]):
            continue
        said[key] = _said_of(value, index) if isinstance(value, dict) else value[index]
    return said


def _metadata_parted(recorded: dict[str, Any], found: dict[str, Any]) -> Difference | None:
    """Return how what a batch says of one differs from what one says of itself, which may be more."""
    shared = {key: found[key] for key in recorded if key in found}
    return values_parted("metadata", _as_floats(recorded), _as_floats(shared))


def _as_floats(value: Any) -> Any:
    """Return a value with every number as a float: an array has one type for all its numbers."""
    if isinstance(value, dict):
        return {key: _as_floats(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_as_floats(each) for each in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _some(difference: Difference | None) -> Iterator[Difference]:
    if difference is not None:
        yield difference
