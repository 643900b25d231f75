"""What a reward transform may look at: one moment of a session, of one environment or of a batch.

Rule 1: nothing of a client is in it, neither its action nor who it is: only what the environment answered.
Rule 2: observations and metadata are read when a transform first looks at them; what nobody looks at costs nothing.
Rule 3: a transform sees plain JSON, whatever form the client asked for: the same function gives the same rewards to every
    client, to one environment and to a batch of them, and in a replay from the record.
Rule 4: a batch that ends and begins an episode in the same step shows two scenes: the one that the step reached, and
    the one that the next episode opens with.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol, TypeAlias

import gymnasium as gym
import msgspec
import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

from proctor.errors import ComponentError, ValidationError
from proctor.models.arrays import PLAIN_KEYS, ZIPPED_KEYS, array_to_lists, read_packed_form, unpack_array

Rewards: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]

MOST_CONTAINERS: Final = 2**18
"""Arrays, objects and keys that are built of one text for a transform to look at."""
MOST_NUMBERS: Final = 2**20
"""Numbers and other values in it, or in its packed arrays: to build so many takes some 25 ms of the event loop."""
FINAL_KEYS: Final = frozenset({"final_obs", "final_info"})
"""Keys of a batch's infos that speak of the episode before."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What the environments answered to one reset or one step; arrays are over the sub-environments, shape (n,).

    `raw_observation` and `raw_metadata` are JSON as the session says it to its client: of one environment the fields
    inside the observation and its metadata, of a batch the value of the batched space and the infos.
    `begins` marks those whose episode begins with this very observation (None: after a reset all, after a step
    nobody). One that begins without having ended here took no step, as in Gymnasium's next-step mode.
    """

    rewards: Rewards
    terminations: Mask
    truncations: Mask
    raw_observation: bytes | Raw
    raw_metadata: bytes | Raw = b"null"
    begins: Mask | None = None


class StepOutputs(Protocol):
    """Observations and metadata of every sub-environment at one instant, in plain JSON."""

    def observation(self, index: int) -> Any:
        """Return the observation's fields, as those of a session of one environment."""

    def metadata(self, index: int) -> Mapping[str, Any]:
        """Return what the environment said beside the observation."""

    def numbers(self, key: str, which: Mask) -> Rewards:
        """Return `metadata[key]` of the marked sub-environments, in order; not a number there: a ComponentError."""


@dataclass(frozen=True, slots=True)
class View:
    """What a user's function may look at: one environment after one step (`step` 1, 2, ...) or a reset (`step` 0)."""

    outputs: StepOutputs
    index: int
    terminated: bool
    truncated: bool
    step: int

    @property
    def observation(self) -> Any:
        """The observation's fields; an adapted environment's value is `observation["observation"]`."""
        return self.outputs.observation(self.index)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the environment said beside it: the info of a Gymnasium environment."""
        return self.outputs.metadata(self.index)


@dataclass(frozen=True, slots=True)
class ArrayFormat:
    """How a session says things: one environment or a batch of `num_envs`, arrays listed or packed.

    `space` is the observation space of one sub-environment; without it a batch's observations cannot be looked at.
    """

    num_envs: int | None = None
    packed: bool = False
    space: gym.Space[Any] | None = None

    @property
    def size(self) -> int:
        """How many rewards there are in a moment."""
        return 1 if self.num_envs is None else self.num_envs

    def read_outputs(self, moment: Moment) -> tuple[StepOutputs, StepOutputs]:
        """Return the scene that the step reached and the one that an episode opens with, mostly the same."""
        if self.num_envs is None:
            one = _SingleOutputs(moment, self.packed)
            return one, one
        opening = _BatchOutputs(moment, self.packed, self.space)
        if moment.begins is None:
            return opening, opening
        both = moment.begins & (moment.terminations | moment.truncations)
        return (_EndingOutputs(opening, both) if both.any() else opening), opening


def _read_json(raw: bytes | Raw, *, packed: bool = False) -> Any:
    """Return JSON, with packed arrays as lists; a ComponentError if it is too much to build on the event loop."""
    text = bytes(raw)
    containers = text.count(b"[") + text.count(b"{") + text.count(b":")
    values = text.count(b",")
    if packed:
        # Every value is looked at, whether it is a packed array; there are few where arrays are packed.
        containers += values
    _refuse_more_than(MOST_CONTAINERS, containers, "arrays, objects and keys")
    _refuse_more_than(MOST_NUMBERS, values, "values")
    try:
        value = msgspec.json.decode(text)
        if packed:
            _check_arrays(_find_packed_arrays(value))
            value = unpack_arrays(value)
    except (msgspec.DecodeError, ValidationError) as problem:
        raise ComponentError("what the environment said cannot be read", expected="JSON") from problem
    return value


def _refuse_more_than(most: int, found: int, what: str) -> None:
    if found > most:
        raise ComponentError(
            "the environment said more than a transform can look at", found=found, expected=f"at most {most} {what}"
        )


class _SingleOutputs:
    """The scene of a session of one environment."""

    def __init__(self, moment: Moment, packed: bool) -> None:
        self._moment = moment
        self._packed = packed

    @cached_property
    def _observation(self) -> Any:
        return _read_json(self._moment.raw_observation, packed=self._packed)

    @cached_property
    def _metadata(self) -> Any:
        return _read_json(self._moment.raw_metadata) or {}

    def observation(self, index: int) -> Any:
        return self._observation

    def metadata(self, index: int) -> Mapping[str, Any]:
        said: Mapping[str, Any] = self._metadata
        return said

    def numbers(self, key: str, which: Mask) -> Rewards:
        value = self.metadata(0).get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _no_number(key, value)
        try:
            return np.array([value], np.float64)
        except OverflowError:  # an int beyond the floats
            raise _no_number(key, value) from None


class _BatchOutputs:
    """The scene of a batch: observations of the batched space, and Gymnasium's infos, which are arrays with masks."""

    def __init__(self, moment: Moment, packed: bool, space: gym.Space[Any] | None) -> None:
        self._moment = moment
        self.packed = packed
        self._arrays: dict[int, NDArray[Any]] = {}
        """Arrays of the infos that were looked at, by the id of what they were made of: every sub-environment looks again."""
        self._numbers = 0
        self._space = space

    @cached_property
    def infos(self) -> Any:
        """What the batch said beside its observations."""
        return _read_json(self._moment.raw_metadata) or {}

    @cached_property
    def _observations(self) -> Any:
        return _read_json(self._moment.raw_observation, packed=self.packed)

    def observation(self, index: int) -> Any:
        if self._space is None:
            raise ComponentError("a batch without a known space", expected="no look at its observations")
        return {"observation": pick_value(self._space, self._observations, index)}

    def metadata(self, index: int) -> Mapping[str, Any]:
        return self.info(self.infos, index)

    def numbers(self, key: str, which: Mask) -> Rewards:
        return self.column(self.infos, key, which)

    def info(self, infos: Mapping[str, Any], index: int) -> dict[str, Any]:
        """Return one sub-environment's part of `infos`: the keys that their masks say it has."""
        found: dict[str, Any] = {}
        for key, values in infos.items():
            if key in FINAL_KEYS or (key.startswith("_") and key[1:] in infos):
                continue
            if f"_{key}" not in infos or self._mask(infos[f"_{key}"], index):
                found[key] = self._pick_entry(values, index)
        return found

    def column(self, infos: Mapping[str, Any], key: str, which: Mask) -> Rewards:
        """Return the numbers under `key` in `infos` for the marked sub-environments."""
        if key not in infos or (f"_{key}" in infos and not self._mask(infos[f"_{key}"], which).all()):
            raise _no_number(key, None)
        values = self._array(infos[key])
        if values.shape != which.shape or values.dtype.kind not in "iuf":
            raise _no_number(key, infos[key])
        return values[which].astype(np.float64)

    def _pick_entry(self, values: Any, index: int) -> Any:
        if self.packed and _is_packed(values):
            return array_to_lists(_part(self._array(values), index))
        return self.info(values, index) if isinstance(values, dict) else _part(values, index)

    def _mask(self, values: Any, which: int | Mask) -> Any:
        return _part(self._array(values), which)

    def _array(self, values: Any) -> NDArray[Any]:
        found = self._arrays.get(id(values))
        if found is None:
            found = self._arrays[id(values)] = self._new_array(values)
            self._numbers += found.size
            _refuse_more_than(MOST_NUMBERS, self._numbers, "numbers")
        return found

    def _new_array(self, values: Any) -> NDArray[Any]:
        if self.packed and _is_packed(values):
            try:
                _check_arrays([values])
                return unpack_array(values)
            except ValidationError as problem:
                raise ComponentError("what the environment said cannot be read", expected="a packed array") from problem
        try:
            return np.asarray(values)
        except ValueError:  # a ragged list
            return np.empty(0, np.object_)


class _EndingOutputs:
    """The scene that a step reached: of the `ended` episodes what they left in the infos, else the present one."""

    def __init__(self, now: _BatchOutputs, ended: Mask) -> None:
        self._now = now
        self._ended = ended

    def observation(self, index: int) -> Any:
        if not self._ended[index]:
            return self._now.observation(index)
        finals = self._read_final("final_obs")
        value = finals["values"][finals["index"].index(index)]
        return {"observation": unpack_arrays(value) if self._now.packed else value}

    def metadata(self, index: int) -> Mapping[str, Any]:
        if not self._ended[index]:
            return self._now.metadata(index)
        return self._now.info(self._read_final("final_info"), index)

    def numbers(self, key: str, which: Mask) -> Rewards:
        found = np.zeros(which.size)
        gone, stays = which & self._ended, which & ~self._ended
        if gone.any():
            found[gone] = self._now.column(self._read_final("final_info"), key, gone)
        if stays.any():
            found[stays] = self._now.numbers(key, stays)
        return found[which]

    def _read_final(self, key: str) -> Any:
        infos = self._now.infos
        if key not in infos:
            raise ComponentError(f"a batch that resets in the same step has no {key!r}", expected="it in the infos")
        return infos[key]


def pick_value(space: gym.Space[Any], batch: Any, index: int) -> Any:
    """Return one sub-environment's value, in plain JSON, out of the value of the batched space."""
    if isinstance(space, gym.spaces.Dict):
        return {key: pick_value(part, batch[key], index) for key, part in space.spaces.items()}
    if isinstance(space, gym.spaces.Tuple):
        return [pick_value(part, each, index) for part, each in zip(space.spaces, batch, strict=True)]
    return batch[index]


def unpack_arrays(value: Any) -> Any:
    """Return the JSON value with every packed array in it as nested lists."""
    if isinstance(value, dict):
        if _is_packed(value):
            return array_to_lists(unpack_array(value))
        return {key: unpack_arrays(each) for key, each in value.items()}
    return [unpack_arrays(each) for each in value] if isinstance(value, list) else value


def _part(values: Any, which: Any) -> Any:
    """Return what is said of some sub-environments; a ComponentError if nothing is."""
    try:
        return values[which]
    except (IndexError, TypeError, KeyError):
        raise ComponentError(
            "what the environment said cannot be read", expected="one value for each sub-environment"
        ) from None


def _check_arrays(arrays: Iterable[Any]) -> None:
    """Raise a ComponentError if packed arrays are too much to be made, or to be listed."""
    numbers = lists = 0
    for each in arrays:
        sides = read_packed_form(each)[1]
        numbers += math.prod(sides)
        lists += sum(math.prod(sides[:depth]) for depth in range(len(sides)))
    _refuse_more_than(MOST_NUMBERS, numbers, "numbers")
    _refuse_more_than(MOST_CONTAINERS, lists, "lists")


def _find_packed_arrays(value: Any) -> Iterator[Any]:
    if _is_packed(value):
        yield value
        return
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _find_packed_arrays(each)


def _is_packed(value: Any) -> bool:
    return isinstance(value, dict) and (value.keys() == PLAIN_KEYS or value.keys() == ZIPPED_KEYS)


def _no_number(key: str, found: object) -> ComponentError:
    return ComponentError(f"the metadata have no number under {key!r}", found=found, expected="a number at every step")
