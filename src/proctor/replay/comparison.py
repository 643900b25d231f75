"""A row of the record beside what came now.

Rule 1: compared is what the environment decides: observation, metadata, raw reward, the two flags, and the scene where one
    was recorded. Observations that were not stored are compared by their digest.
Rule 2: rewards as they were paid belong to the server, which transformed them: of them only the sum of their parts is checked.
Rule 3: pixels are for people: that a picture is drawn differently now is told, and is no difference.
Rule 4: how many episodes a batch had before this one is no part of the record of this one, so it is not compared.
Rule 5: equal means equal values: 1 is not 1.0, 0.0 is not -0.0 and true is not 1, but the order of an object's keys, and
    how a compressed array was compressed, say nothing. Texts that are the same byte for byte are never parsed.
Rule 6: what was recorded is parsed only if it is about as long as what came now, or short: as Python's objects a text of a stranger
    can take many times its bytes. Of a longer one the length is the difference.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import Struct

from proctor.errors import ValidationError
from proctor.ledger.reader import Row
from proctor.models.arrays import array_to_lists, read_packed_form, unpack_array
from proctor.models.events import BatchReset, BatchStepped, EpisodeReset, EpisodeStepped
from proctor.models.pixels import has_pixels, same_pixels
from proctor.replay.batch_driver import BatchOutput
from proctor.replay.driver import NULL, EnvOutput

ALWAYS_PARSED_BYTES: Final = 2**21
"""Bytes of a recorded text that is parsed, however long the other is."""
ABSENT: Final = "(nothing)"
"""Stands for a value that one of the two does not have."""

_decode: Final = msgspec.json.Decoder().decode
_sorted: Final = msgspec.json.Encoder(order="deterministic").encode


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs, where in it (a JSON pointer; empty: the whole), and both values, which JSON can say."""

    what: str
    recorded: Any
    found: Any
    where: str = ""

    def __str__(self) -> str:
        """Return one line for people."""
        return f"{self.what}{self.where}: recorded {format_value(self.recorded)}, found {format_value(self.found)}"


def format_value(value: Any, most: int = 120) -> str:
    """Return a value as JSON, in its beginning and its end if it is long."""
    text = _sorted(value).decode()
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-most // 2 :]}"


def canonical_json(text: bytes) -> bytes:
    """Return a JSON text with its objects' keys in order and every number as this process writes it."""
    return _sorted(_decode(text))


def find_difference(what: str, recorded: bytes, found: bytes) -> Difference | None:
    """Return how two JSON texts differ, None if they say the same."""
    if recorded == found:
        return None
    # Both are written by one encoder, so that what says the same is as long, but for how an array was compressed.
    if len(recorded) > max(ALWAYS_PARSED_BYTES, 2 * len(found)):
        return Difference(what, f"{len(recorded)} bytes", f"{len(found)} bytes")
    # What was recorded has been put in order before, so that most often only one of the two is parsed.
    ordered = canonical_json(found)
    if recorded == ordered or canonical_json(recorded) == ordered:
        return None
    return find_value_difference(what, _decode(recorded), _decode(found))


def find_digest_difference(what: str, recorded: str, found: bytes) -> Difference | None:
    """Return how the digest of a text differs from the recorded one, None if they are the same."""
    digest = sha256(found).hexdigest()
    return None if digest == recorded else Difference(what, f"sha256:{recorded}", f"sha256:{digest}")


def find_value_difference(what: str, recorded: Any, found: Any) -> Difference | None:
    """Return the first place where two values that JSON can say differ."""
    place = _find_first_place(unpack_arrays(recorded), unpack_arrays(found), "")
    return None if place is None else Difference(what, place[1], place[2], place[0])


def unpack_arrays(value: Any) -> Any:
    """Return a value with every packed array in it as nested lists."""
    if isinstance(value, list):
        return [unpack_arrays(each) for each in value]
    if not isinstance(value, dict):
        return value
    array = _unpack_array(value)
    return {key: unpack_arrays(each) for key, each in value.items()} if array is None else array


def _unpack_array(value: dict[str, Any]) -> Any:
    if "dtype" not in value:
        return None
    try:
        read_packed_form(value)
        return array_to_lists(unpack_array(value))
    except ValidationError:
        return None  # an object that only looks like one


def _find_first_place(recorded: Any, found: Any, where: str) -> tuple[str, Any, Any] | None:
    """Return where two plain values first differ, and what stands there."""
    if recorded is ABSENT or found is ABSENT:
        return where, recorded, found
    parts = _pair_members(recorded, found)
    if parts is None:
        return None if _sorted(recorded) == _sorted(found) else (where, recorded, found)
    places = (_find_first_place(one, other, f"{where}/{name}") for name, one, other in parts)
    return next((place for place in places if place is not None), None)


def _pair_members(recorded: Any, found: Any) -> Iterator[tuple[str, Any, Any]] | None:
    """Return what two values hold under each name; None where they are not made alike."""
    if isinstance(recorded, dict) and isinstance(found, dict):
        keys = sorted({*recorded, *found})
        return ((_escape_pointer(key), recorded.get(key, ABSENT), found.get(key, ABSENT)) for key in keys)
    if isinstance(recorded, list) and isinstance(found, list) and len(recorded) == len(found):
        return ((str(i), *pair) for i, pair in enumerate(zip(recorded, found, strict=True)))
    return None


def _escape_pointer(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


REWARD_TOLERANCE: Final = 1e-9
"""How exactly a reward is the sum of its parts: rounding is no difference."""
EPISODE_STATISTICS: Final = ("episode", "_episode")
"""What a batch says of the episodes that it had in all."""

MALFORMED_ROW_ERRORS: Final = (msgspec.DecodeError, ValueError, TypeError, LookupError, AttributeError)
"""What comes of a row that says something else than its fields promise; a server never wrote it."""

EnvironmentEvent = EpisodeReset | EpisodeStepped | BatchReset | BatchStepped
"""The events that move an environment."""


class RowComparison(Struct, frozen=True, gc=False):
    """A row that moved the environment, what came now (None: it raised), and how the two differ.

    `step` counts from the reset that began the chain; a batch's own count begins anew with every reset by a mask.
    """

    row: Row
    event: EnvironmentEvent
    step: int
    found: EnvOutput | BatchOutput | None
    differences: tuple[Difference, ...] = ()
    redrawn: bool = False
    """Whether its picture in pixels is another now, which is no difference."""

    @property
    def equal(self) -> bool:
        """Whether the record and the replay are the same here."""
        return not self.differences


def compare_row(row: Row, event: EnvironmentEvent, step: int, found: EnvOutput | BatchOutput) -> RowComparison:
    """Return the row beside what came now."""
    # Most steps are the same byte for byte; only of the others it is asked where they differ.
    if type(event) is EpisodeStepped and type(found) is EnvOutput and _is_same(row, event, found):
        return RowComparison(row, event, step, found)
    differences = tuple(_COMPARE[type(event)](row, event, found))
    return RowComparison(row, event, step, found, differences, _has_new_pixels(event, found))


def _has_new_pixels(event: EnvironmentEvent, found: EnvOutput | BatchOutput) -> bool:
    """Return whether a row and what came now have pixels, and not the same."""
    if isinstance(event, BatchReset | BatchStepped) or isinstance(found, BatchOutput):
        return False
    recorded = bytes(event.scene)
    return has_pixels(recorded) and has_pixels(found.scene) and not same_pixels(recorded, found.scene)


def _is_same(row: Row, event: EpisodeStepped, found: EnvOutput) -> bool:
    """Return whether a step is plainly the same; if not, it may still be, in other words."""
    return (
        row.values
        and event.reward == event.raw_reward
        and same_number(event.raw_reward, found.reward)
        and event.terminated is found.terminated
        and event.truncated is found.truncated
        and bytes(event.observation) == found.observation
        and bytes(event.metadata) == found.metadata
        and (found.scene == NULL or bytes(event.scene) == found.scene)
        and not event.parts
    )


def compare_failure(row: Row, event: EnvironmentEvent, step: int, problem: Exception) -> RowComparison:
    """Return a row beside nothing, because the environment raised."""
    what = "reset" if isinstance(event, EpisodeReset | BatchReset) else "step"
    return RowComparison(row, event, step, None, (Difference(what, "an answer", str(problem)),))


def _compare_reset(row: Row, event: EpisodeReset, found: EnvOutput) -> Iterator[Difference]:
    return _compare_observation(row, event, found)


def _compare_step(row: Row, event: EpisodeStepped, found: EnvOutput) -> Iterator[Difference]:
    yield from _compare_observation(row, event, found)
    if not same_number(event.raw_reward, found.reward):
        yield Difference("reward", event.raw_reward, found.reward)
    if event.terminated is not found.terminated:
        yield Difference("terminated", event.terminated, found.terminated)
    if event.truncated is not found.truncated:
        yield Difference("truncated", event.truncated, found.truncated)
    if event.reward != event.raw_reward or event.parts:
        yield from _compare_reward_parts(event)


def _compare_observation(row: Row, event: EpisodeReset | EpisodeStepped, found: EnvOutput) -> Iterator[Difference]:
    if row.values:
        observation = find_difference("observation", bytes(event.observation), found.observation)
    else:
        observation = find_digest_difference("observation", row.digest or "", found.observation)
    if observation is not None:
        yield observation
    metadata = find_difference("metadata", bytes(event.metadata), found.metadata)
    if metadata is not None:
        yield metadata
    if found.scene != NULL and not has_pixels(found.scene):
        scene = find_difference("scene", bytes(event.scene), found.scene)
        if scene is not None:
            yield scene


def same_number(recorded: float | None, found: float | None) -> bool:
    """Return whether two numbers are the same to the last bit; both may be missing."""
    if recorded is None or found is None:
        return recorded is found
    return recorded == found and (recorded != 0.0 or math.copysign(1.0, recorded) == math.copysign(1.0, found))


def _compare_reward_parts(event: EpisodeStepped) -> Iterator[Difference]:
    if event.raw_reward is None or event.reward is None:
        if event.raw_reward is not event.reward:
            yield Difference("paid reward", event.reward, event.raw_reward)
        return
    total = event.raw_reward + sum(event.parts.values())
    if not math.isclose(total, event.reward, rel_tol=REWARD_TOLERANCE, abs_tol=REWARD_TOLERANCE):
        yield Difference("paid reward", event.reward, total)


def _compare_batch_reset(row: Row, event: BatchReset, found: BatchOutput) -> Iterator[Difference]:
    return _compare_batch_observations(row, event, found)


def _compare_batch_step(row: Row, event: BatchStepped, found: BatchOutput) -> Iterator[Difference]:
    yield from _compare_batch_observations(row, event, found)
    pairs = (
        ("reward", event.raw_rewards, found.rewards),
        ("terminated", event.terminations, found.terminations),
        ("truncated", event.truncations, found.truncations),
    )
    for what, recorded, now in pairs:
        difference = find_difference(what, bytes(recorded), now)
        if difference is not None:
            yield difference
    if event.parts:
        yield from _compare_batch_reward_parts(event)


def _compare_batch_observations(row: Row, event: BatchReset | BatchStepped, found: BatchOutput) -> Iterator[Difference]:
    if row.values:
        observations = find_difference("observation", bytes(event.observations), found.observations)
    else:
        observations = find_digest_difference("observation", row.digest or "", found.observations)
    if observations is not None:
        yield observations
    infos = find_difference("metadata", bytes(event.infos), found.infos)
    if infos is not None:
        # Only now: most infos say nothing of counts, and are the same byte for byte.
        infos = find_difference("metadata", _remove_statistics(bytes(event.infos)), _remove_statistics(found.infos))
    if infos is not None:
        yield infos


def _remove_statistics(infos: bytes) -> bytes:
    told = msgspec.json.decode(infos)
    return msgspec.json.encode({key: value for key, value in told.items() if key not in EPISODE_STATISTICS})


def _compare_batch_reward_parts(event: BatchStepped) -> Iterator[Difference]:
    raw, paid, *parts = (parse_array(each) for each in (event.raw_rewards, event.rewards, *event.parts.values()))
    total = sum(parts, start=raw)
    if not np.allclose(total, paid, rtol=REWARD_TOLERANCE, atol=REWARD_TOLERANCE):
        yield Difference("paid reward", paid.tolist(), total.tolist())


def parse_array(said: bytes | msgspec.Raw) -> Any:
    """Return an array of a batch, listed or packed."""
    return np.asarray(unpack_arrays(msgspec.json.decode(said)))


_COMPARE: Final[dict[type, Any]] = {
    EpisodeReset: _compare_reset,
    EpisodeStepped: _compare_step,
    BatchReset: _compare_batch_reset,
    BatchStepped: _compare_batch_step,
}
