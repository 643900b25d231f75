"""What a record asks of its environment, row by row: for a replay, and for a server that goes on from its record. Pure.

Rule 1: a reset is asked for as it was, with the seed that was asked for, or else the one that the environment said it drew.
    A seed that nobody knows is None; what to do about that is decided by who drives the environment.
Rule 2: environments count their resets, so one that has had fewer than it had then is reset with the same request until it has.
Rule 3: a request takes a bounded amount of memory, whatever a row says.
"""

from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from proctor.errors import ValidationError
from proctor.ledger.reader import Row
from proctor.ledger.rows import decode_value
from proctor.models.arrays import unpack_array
from proctor.models.events import NULL, BatchReset, BatchStepped, EpisodeReset, EpisodeStepped

EnvironmentEvent = EpisodeReset | EpisodeStepped | BatchReset | BatchStepped
"""The events that move an environment."""
EXPECTED: Final = 'a seed, or an environment that reports the one it drew as info["seed"]'
MOST_SEED_BYTES: Final = 2**21
"""Of a batch's seeds, as text and as an array."""

_options: Final = msgspec.json.Decoder(dict[str, Any] | None).decode
_mask: Final = msgspec.json.Decoder(list[bool] | None).decode


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
    action: Raw = NULL


class RecordReader:
    """Follows the rows of one episode's chain."""

    def __init__(self, num_envs: int | None) -> None:
        self._num_envs = num_envs
        self._step = 0
        self._has_begun = False

    def read(self, row: Row) -> EnvironmentRequest | None:
        """Return what a row asks of the environment; None: nothing."""
        event = row.event
        if not isinstance(event, EpisodeStepped | EpisodeReset | BatchStepped | BatchReset):
            return None
        if isinstance(event, BatchReset | BatchStepped) is (self._num_envs is None):
            raise ValidationError(
                "this record mixes one environment and a batch", found=type(event).__name__, expected="one or the other"
            )
        if isinstance(event, EpisodeStepped | BatchStepped):
            if not self._has_begun:
                raise ValidationError(
                    "this record does not begin with a reset", found=f"step {event.step}", expected="a reset"
                )
            self._step += 1
            action = event.action if isinstance(event, EpisodeStepped) else event.actions
            return EnvironmentRequest(row, event, self._step, None, action)
        self._has_begun = True
        return EnvironmentRequest(row, event, self._step, read_reset(event, self._num_envs))


def read_reset(event: EpisodeReset | BatchReset, num_envs: int | None) -> RecordedReset:
    """Return what leads to the same beginning."""
    seed: Any
    if isinstance(event, EpisodeReset):
        seed, mask = find_seed(event), None
    else:
        seed, mask = _find_batch_seeds(event, num_envs or 0), decode_value(event.mask, _mask)
    return RecordedReset(seed, event.episode_id, decode_value(event.options, _options), mask, event.nth)


def find_seed(event: EpisodeReset) -> int | None:
    """Return the seed of an episode; None: nobody knows it."""
    return read_info_seed(event.metadata) if event.seed is None else event.seed


def find_each_seed(event: BatchReset, num_envs: int) -> dict[int, int]:
    """Return the seed of each sub-environment that has a known one; of those that a mask leaves out it says nothing."""
    if isinstance(event.seed, int):
        return {i: event.seed + i for i in range(num_envs)}
    asked = {} if event.seed is None else {i: seed for i, seed in enumerate(event.seed) if seed is not None}
    return read_info_seeds(event.infos) | asked


def _find_batch_seeds(event: BatchReset, num_envs: int) -> int | list[int | None] | None:
    if isinstance(event.seed, int):
        return event.seed
    known = find_each_seed(event, num_envs)
    return [known.get(i) for i in range(num_envs)] if known else None


def unknown_seed_error() -> ValidationError:
    """Return why an episode whose seed nobody knows cannot be replayed."""
    return ValidationError(
        "this episode cannot be replayed: it was begun without a seed, and its environment does not say which it drew",
        expected=EXPECTED,
    )


class _DrawnSeed(Struct, frozen=True):
    """As much of an info as is read; nothing else of it is built."""

    seed: Raw = NULL
    begins: Raw = field(default=NULL, name="_seed")


_DRAWN_SEED: Final = msgspec.json.Decoder(_DrawnSeed)


def read_info_seed(info: Raw) -> int | None:
    """Return the seed that an environment says it drew; None: it says none."""
    (seed,) = _read_values(b"[%b]" % bytes(_read_drawn_seed(info).seed)) or [None]
    return seed if _is_seed(seed) else None


def read_info_seeds(infos: Raw) -> dict[int, int]:
    """Return the seed of every sub-environment whose episode begins with these infos."""
    info = _read_drawn_seed(infos)
    seeds, begins = _read_values(info.seed), _read_values(info.begins)
    return {i: seed for i, (seed, begun) in enumerate(zip(seeds, begins, strict=False)) if begun and _is_seed(seed)}


def _read_drawn_seed(info: Raw) -> _DrawnSeed:
    try:
        return _DRAWN_SEED.decode(info)
    except msgspec.ValidationError:  # it is no object
        return _DrawnSeed()


def _read_values(text: Raw | bytes) -> list[Any]:
    """Return an array, listed or packed, as a list; empty if it is neither, or too long."""
    if memoryview(text).nbytes > MOST_SEED_BYTES:
        return []
    said = msgspec.json.decode(text)
    try:
        values = unpack_array(said, most=MOST_SEED_BYTES).tolist() if isinstance(said, dict) else said
    except ValidationError:
        return []
    return values if isinstance(values, list) else []


def _is_seed(value: object) -> bool:
    return type(value) is int and value >= 0
