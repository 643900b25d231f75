"""A row of the record: what it asks of its environment, and how it differs from what came now. Pure.

Rule 1: a reset is asked for as it was, with the seed that was asked for, or else the one that the environment said it drew. A seed that
    nobody knows is None; what to do about that is decided by who drives the environment.
Rule 2: environments count their resets, so one that has had fewer than it had then is reset with the same request until it has.
Rule 3: compared is what the environment decides: observation, metadata, raw reward, the two flags, and the scene where one
    was recorded. Observations that were not stored are compared by their digest.
Rule 4: rewards as they were paid belong to the server, which transformed them. A server that goes on from its record compares them
    bit by bit; for anybody else only the sum of their parts is checked.
Rule 5: pixels are for people: that a picture is drawn differently now is told, and is no difference. Nor is how many episodes a batch had
    before this one.
Rule 6: equal means equal values: 1 is not 1.0, 0.0 is not -0.0 and true is not 1, but the order of an object's keys, and
    how a compressed array was compressed, say nothing. Texts that are the same byte for byte are never parsed.
Rule 7: what was recorded is parsed only if it is about as long as what came now, or short, and a large array of it is unpacked only
    where there is one like it now: as Python's objects a text of a stranger can take many times its bytes.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import Raw, Struct, field

from proctor.errors import ValidationError
from proctor.ledger.reader import Row
from proctor.ledger.rows import decode_value
from proctor.models.arrays import array_to_lists, has_pixels, read_packed_form, same_pixels, unpack_array
from proctor.models.events import BatchReset, BatchStepped, EpisodeReset, EpisodeStepped

NULL: Final = b"null"
MOST_SEED_BYTES: Final = 2**21
"""Of a batch's seeds, as text and as an array."""
ALWAYS_PARSED_BYTES: Final = 2**21
"""Bytes of a recorded text that is parsed, however long the other is."""
MOST_UNPACKED_BYTES: Final = 2**24
"""Bytes of the packed arrays of a recorded value that are read as lists."""
REWARD_TOLERANCE: Final = 1e-9
"""How exactly a reward is the sum of its parts: rounding is no difference."""
EPISODE_STATISTICS: Final = ("episode", "_episode")
"""What a batch says of the episodes that it had in all."""
MALFORMED_ROW_ERRORS: Final = (msgspec.DecodeError, ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""What comes of a row that says something else than its fields promise; a server never wrote it."""
ABSENT: Final = "(nothing)"
"""Stands for a value that one of the two does not have."""

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode
_sorted: Final = msgspec.json.Encoder(order="deterministic").encode
_options: Final = msgspec.json.Decoder(dict[str, Any] | None).decode
_mask: Final = msgspec.json.Decoder(list[bool] | None).decode

EnvironmentEvent = EpisodeReset | EpisodeStepped | BatchReset | BatchStepped
"""The events that move an environment."""


# ------------------------------------------------------------------------------------------------- what a row asks for
class RecordedReset(Struct, frozen=True):
    """What leads to the beginning on record: as it was asked for, but for a seed that the environment drew."""

    seed: int | list[int | None] | None
    episode_id: str | None
    options: dict[str, Any] | None
    mask: list[bool] | None = None
    nth: int = 1
    """Which reset of its environment it was."""

    def count_missing(self, resets: int) -> int:
        """Return how many resets come before it, where the environment has had so many."""
        return max(0, self.nth - 1 - resets) if self.mask is None else 0

    @property
    def is_seeded(self) -> bool:
        """Whether every seed is known. Those whom a mask leaves out have none, and generators go on where a mask resets without one."""
        return self.mask is not None or not (self.seed is None or (isinstance(self.seed, list) and None in self.seed))


class EnvironmentRequest(Struct, frozen=True, gc=False):
    """What a row asks of its environment: a reset, or an action.

    `step` counts from the reset that began the chain; a batch's own count begins anew with every reset by a mask.
    """

    row: Row
    event: EnvironmentEvent
    step: int
    reset: RecordedReset | None = None
    action: Raw = Raw(NULL)


class RecordReader:
    """Follows the rows of one episode's chain."""

    def __init__(self, num_envs: int | None) -> None:
        self._num_envs = num_envs
        self._step: int | None = None
        """None: there was no reset yet."""

    def read(self, row: Row) -> EnvironmentRequest | None:
        """Return what a row asks of the environment; None: nothing."""
        event = row.event
        if not isinstance(event, EpisodeStepped | EpisodeReset | BatchStepped | BatchReset):
            return None
        if isinstance(event, BatchReset | BatchStepped) is (self._num_envs is None):
            found = type(event).__name__
            raise ValidationError(
                "this record mixes one environment and a batch", found=found, expected="one or the other"
            )
        if isinstance(event, EpisodeReset | BatchReset):
            self._step = self._step or 0
            return EnvironmentRequest(row, event, self._step, read_reset(event, self._num_envs))
        if self._step is None:
            found = f"step {event.step}"
            raise ValidationError("this record does not begin with a reset", found=found, expected="a reset")
        self._step += 1
        action = event.action if isinstance(event, EpisodeStepped) else event.actions
        return EnvironmentRequest(row, event, self._step, None, action)


def read_reset(event: EpisodeReset | BatchReset, num_envs: int | None) -> RecordedReset:
    """Return what leads to the same beginning."""
    seed: Any
    if isinstance(event, EpisodeReset):
        seed, mask = find_seed(event), None
    else:
        seed, mask = event.seed, decode_value(event.mask, _mask)
        if not isinstance(seed, int):
            known = find_each_seed(event, num_envs or 0)
            seed = [known.get(i) for i in range(num_envs or 0)] if known else None
    return RecordedReset(seed, event.episode_id, decode_value(event.options, _options), mask, event.nth)


def find_seed(event: EpisodeReset) -> int | None:
    """Return the seed of an episode, which was asked for or which the environment says it drew; None: nobody knows it."""
    if event.seed is not None:
        return event.seed
    (seed,) = _read_seeds(b"[%b]" % bytes(_read_drawn_seed(event.metadata).seed)) or [None]
    return seed if _is_seed(seed) else None


def find_each_seed(event: BatchReset, num_envs: int) -> dict[int, int]:
    """Return the seed of each sub-environment that has a known one; of those that a mask leaves out it says nothing."""
    if isinstance(event.seed, int):
        return {i: event.seed + i for i in range(num_envs)}
    asked = {} if event.seed is None else {i: seed for i, seed in enumerate(event.seed) if seed is not None}
    return read_info_seeds(event.infos) | asked


def read_info_seeds(infos: Raw) -> dict[int, int]:
    """Return the seed of every sub-environment whose episode begins with these infos."""
    info = _read_drawn_seed(infos)
    each = zip(_read_seeds(info.seed), _read_seeds(info.begins), strict=False)
    return {i: seed for i, (seed, begun) in enumerate(each) if begun and _is_seed(seed)}


class _DrawnSeed(Struct, frozen=True):
    """As much of an info as is read; nothing else of it is built."""

    seed: Raw = Raw(NULL)
    begins: Raw = field(default=Raw(NULL), name="_seed")


_DRAWN_SEED: Final = msgspec.json.Decoder(_DrawnSeed)


def _read_drawn_seed(info: Raw) -> _DrawnSeed:
    try:
        return _DRAWN_SEED.decode(info)
    except msgspec.ValidationError:  # it is no object
        return _DrawnSeed()


def _read_seeds(text: Raw | bytes) -> list[Any]:
    """Return an array, listed or packed, as a list; empty if it is neither, or too long."""
    if memoryview(text).nbytes > MOST_SEED_BYTES:
        return []
    said = _decode(text)
    try:
        values = unpack_array(said, most=MOST_SEED_BYTES).tolist() if isinstance(said, dict) else said
    except ValidationError:
        return []
    return values if isinstance(values, list) else []


def _is_seed(value: object) -> bool:
    return type(value) is int and value >= 0


# --------------------------------------------------------------------------------------------------------------- values
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
    place = _find_first_place(recorded, found, "")
    return None if place is None else Difference(what, place[1], place[2], place[0])


def _find_first_place(recorded: Any, found: Any, where: str) -> tuple[str, Any, Any] | None:
    if recorded is ABSENT or found is ABSENT:
        return where, recorded, found
    form, other = _read_form(recorded), _read_form(found)
    if form is not None and form == other and form.size > MOST_UNPACKED_BYTES:
        return _find_place_in_arrays(unpack_array(recorded), unpack_array(found), where)
    recorded = recorded if form is None or form.size > MOST_UNPACKED_BYTES else _unpack(recorded)
    found = found if other is None or other.size > MOST_UNPACKED_BYTES else _unpack(found)
    parts = _pair_members(recorded, found)
    if parts is None:
        return None if _sorted(recorded) == _sorted(found) else (where, recorded, found)
    places = (_find_first_place(one, other, f"{where}/{name}") for name, one, other in parts)
    return next((place for place in places if place is not None), None)


def _pair_members(recorded: Any, found: Any) -> Iterator[tuple[str, Any, Any]] | None:
    """Return what two values hold under each name; None where they are not made alike."""
    if isinstance(recorded, dict) and isinstance(found, dict):
        names = ((key, key.replace("~", "~0").replace("/", "~1")) for key in sorted({*recorded, *found}))
        return ((name, recorded.get(key, ABSENT), found.get(key, ABSENT)) for key, name in names)
    if isinstance(recorded, list) and isinstance(found, list) and len(recorded) == len(found):
        return ((str(i), *pair) for i, pair in enumerate(zip(recorded, found, strict=True)))
    return None


def _find_place_in_arrays(
    recorded: np.ndarray[Any, Any], found: np.ndarray[Any, Any], where: str
) -> tuple[str, Any, Any] | None:
    bits = f"u{recorded.itemsize}"
    same = recorded.view(bits) == found.view(bits)
    if recorded.dtype.kind == "f":
        same |= np.isnan(recorded) & np.isnan(found)
    if same.all():
        return None
    index = np.unravel_index(int(np.argmin(same)), same.shape)
    place = "".join(f"/{each}" for each in index)
    return f"{where}{place}", array_to_lists(recorded[index]), array_to_lists(found[index])


class _ArrayForm(Struct, frozen=True):
    """What a packed array says of itself; `size` is in bytes."""

    dtype: str
    shape: tuple[int, ...]
    size: int


def _read_form(value: Any) -> _ArrayForm | None:
    """Return the form of a packed array; None: it is something else, or an object that only looks like one."""
    if not isinstance(value, dict) or "dtype" not in value:
        return None
    try:
        dtype, shape = read_packed_form(value)
    except ValidationError:
        return None
    return _ArrayForm(dtype.str, shape, dtype.itemsize * math.prod(shape))


def _unpack(value: Any) -> Any:
    """Return a packed array as nested lists; one whose data cannot be read is itself."""
    try:
        return array_to_lists(unpack_array(value))
    except ValidationError:
        return value


def unpack_arrays(value: Any, most: int = MOST_UNPACKED_BYTES) -> Any:
    """Return a value with every packed array in it as nested lists; a ValidationError if they have more than `most` bytes together."""
    left = most

    def unpack(part: Any) -> Any:
        nonlocal left
        if isinstance(part, list):
            return list(map(unpack, part))
        if not isinstance(part, dict):
            return part
        form = _read_form(part)
        if form is None:
            return {key: unpack(each) for key, each in part.items()}
        left -= form.size
        if left < 0:
            raise ValidationError("a row has arrays that are too large", expected=f"at most {most} bytes of them")
        return _unpack(part)

    return unpack(value)


def parse_array(said: bytes | Raw) -> Any:
    """Return an array of a batch, listed or packed."""
    return np.asarray(unpack_arrays(decode_value(said)))


# ----------------------------------------------------------------------------------------------------------------- rows
class EnvOutput(Struct, frozen=True, gc=False):
    """What an environment answered: the fields of an event that the environment decides, as JSON texts."""

    observation: bytes
    metadata: bytes
    reward: float | None
    terminated: bool
    truncated: bool
    scene: bytes = NULL


class BatchOutput(Struct, frozen=True, gc=False):
    """What a batch answered, as JSON texts; a reset has no rewards and no flags."""

    observation: bytes
    metadata: bytes
    reward: bytes = NULL
    terminated: bytes = NULL
    truncated: bytes = NULL


def output_from_event(event: EnvironmentEvent) -> EnvOutput | BatchOutput:
    """Return what the environment answered, as an event says."""
    if isinstance(event, EpisodeReset | EpisodeStepped):
        texts = (bytes(event.observation), bytes(event.metadata))
        if isinstance(event, EpisodeReset):
            return EnvOutput(*texts, None, False, False, bytes(event.scene))
        return EnvOutput(*texts, event.raw_reward, event.terminated, event.truncated, bytes(event.scene))
    outcome = (event.raw_rewards, event.terminations, event.truncations) if isinstance(event, BatchStepped) else ()
    return BatchOutput(*map(bytes, (event.observations, event.infos, *outcome)))


def has_scene(event: EnvironmentEvent) -> bool:
    """Return whether a picture of the row was recorded."""
    return isinstance(event, EpisodeReset | EpisodeStepped) and bytes(event.scene) != NULL


class RowComparison(Struct, frozen=True, gc=False):
    """A row that moved the environment, what came now (None: it raised), and how the two differ; `step` is the request's."""

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


def compare_row(
    request: EnvironmentRequest, found: EnvOutput | BatchOutput, *, paid: EnvironmentEvent | None = None
) -> RowComparison:
    """Return the row of a request beside what came now; `paid` is the event that a server with the same transforms would state."""
    row, event, step = request.row, request.event, request.step
    # Most steps are the same byte for byte; only of the others it is asked where they differ.
    if paid is None and type(event) is EpisodeStepped and type(found) is EnvOutput and _is_same(row, event, found):
        return RowComparison(row, event, step, found)
    recorded = output_from_event(event)
    payment = _compare_reward_parts(event) if paid is None else _compare_payment(event, paid)
    differences = [*_compare_outputs(row, recorded, found, begins=request.reset is not None), *payment]
    return RowComparison(row, event, step, found, tuple(filter(None, differences)), _has_new_pixels(recorded, found))


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


def _has_new_pixels(recorded: EnvOutput | BatchOutput, found: EnvOutput | BatchOutput) -> bool:
    if not isinstance(recorded, EnvOutput) or not isinstance(found, EnvOutput):
        return False
    return has_pixels(recorded.scene) and has_pixels(found.scene) and not same_pixels(recorded.scene, found.scene)


def _compare_outputs(
    row: Row, recorded: EnvOutput | BatchOutput, found: EnvOutput | BatchOutput, *, begins: bool
) -> Iterator[Difference | None]:
    if row.values:
        yield find_difference("observation", recorded.observation, found.observation)
    else:
        yield find_digest_difference("observation", row.digest or "", found.observation)
    metadata = find_difference("metadata", recorded.metadata, found.metadata)
    if metadata is not None and isinstance(found, BatchOutput):
        # Only now: most infos say nothing of counts, and are the same byte for byte.
        metadata = find_difference("metadata", *map(_remove_statistics, (recorded.metadata, found.metadata)))
    yield metadata
    if isinstance(recorded, EnvOutput) and isinstance(found, EnvOutput) and NULL not in (recorded.scene, found.scene):
        yield None if has_pixels(found.scene) else find_difference("scene", recorded.scene, found.scene)
    for what in () if begins else ("reward", "terminated", "truncated"):
        yield find_outcome_difference(what, getattr(recorded, what), getattr(found, what))


def find_outcome_difference(what: str, recorded: Any, found: Any) -> Difference | None:
    """Return how rewards or flags differ: a batch's, or those of one environment."""
    if isinstance(found, bytes):
        return find_difference(what, recorded, found)
    same = recorded is found if isinstance(found, bool) else same_number(recorded, found)
    return None if same else Difference(what, recorded, found)


def same_number(recorded: float | None, found: float | None) -> bool:
    """Return whether two numbers are the same to the last bit; both may be missing."""
    if recorded is None or found is None:
        return recorded is found
    return recorded == found and (recorded != 0.0 or math.copysign(1.0, recorded) == math.copysign(1.0, found))


def _remove_statistics(infos: bytes) -> bytes:
    """Return infos without what they say of all episodes; those of a stranger that are very long stay as they are."""
    try:
        told = decode_value(infos, msgspec.json.Decoder(dict[str, Raw]).decode)
    except ValidationError:
        return infos
    return _encode({key: value for key, value in told.items() if key not in EPISODE_STATISTICS})


def _compare_payment(event: EnvironmentEvent, paid: EnvironmentEvent) -> Iterator[Difference | None]:
    """Yield how what was paid for a row, and what its transforms carried over, differ from what is stated now."""
    for what in ("reward", "rewards", "parts", "pipeline"):
        if hasattr(event, what):
            yield find_difference(what, _encode(getattr(event, what)), _encode(getattr(paid, what)))


def _compare_reward_parts(event: EnvironmentEvent) -> Iterator[Difference]:
    if isinstance(event, BatchStepped) and event.parts:
        raw, paid, *parts = (parse_array(each) for each in (event.raw_rewards, event.rewards, *event.parts.values()))
        total = sum(parts, start=raw)
        if not np.allclose(total, paid, rtol=REWARD_TOLERANCE, atol=REWARD_TOLERANCE):
            yield Difference("paid reward", paid.tolist(), total.tolist())
    elif isinstance(event, EpisodeStepped) and (event.reward != event.raw_reward or event.parts):
        if event.raw_reward is None or event.reward is None:
            if event.raw_reward is not event.reward:
                yield Difference("paid reward", event.reward, event.raw_reward)
            return
        total = event.raw_reward + sum(event.parts.values())
        if not math.isclose(total, event.reward, rel_tol=REWARD_TOLERANCE, abs_tol=REWARD_TOLERANCE):
            yield Difference("paid reward", event.reward, total)
