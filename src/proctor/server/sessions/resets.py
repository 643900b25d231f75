"""What a reset asks for: read from a request, or from the record of one that was carried out. Pure."""

from typing import Any, Final

import msgspec
import numpy as np
from msgspec import Raw

from proctor.errors import ValidationError
from proctor.models.arrays import unpack_array
from proctor.models.control import Code, Reset
from proctor.models.events import BatchReset, EpisodeReset
from proctor.server.runtime.env_adapter import ResetRequest
from proctor.server.runtime.results import make_refusal

AnyReset = EpisodeReset | BatchReset
MOST_SEED_BYTES: Final = 2**20
"""Of a batch's seeds that were compressed."""


class SeedMetadata(msgspec.Struct, frozen=True):
    """As much of an environment's metadata as is read again; nothing else of them is built."""

    seed: Raw


def parse_reset(reset: Reset, episode_id: str) -> ResetRequest:
    """Return what a request asks for, or refuse what is no options or no mask; `episode_id` is for one that names none."""
    try:
        options = msgspec.json.decode(reset.options, type=dict | None)
        mask = msgspec.json.decode(reset.mask, type=list[bool] | None)
    except msgspec.DecodeError as problem:
        raise make_refusal(Code.VALIDATION_ERROR, f"not a reset: {problem}", expected="options and a mask") from None
    return ResetRequest(reset.seed, episode_id if reset.episode_id is None else reset.episode_id, options or None, mask)


def reset_from_event(event: AnyReset) -> ResetRequest:
    """Return what a reset on record had asked for."""
    seed: Any = event.seed  # a batch's seeds came from a request, where none of them is None
    mask = msgspec.json.decode(event.mask) if isinstance(event, BatchReset) else None
    return ResetRequest(seed, event.episode_id, msgspec.json.decode(event.options), mask)


def reset_for_replay(event: AnyReset) -> ResetRequest:
    """Return what leads to the same beginning: where no seed was asked for, the one that the environment said it drew."""
    order = reset_from_event(event)
    if order.seed is not None:
        return order
    seed = _seed_in(event.metadata) if isinstance(event, EpisodeReset) else _seeds_in(event.infos)
    return msgspec.structs.replace(order, seed=seed)


def _seed_in(metadata: Raw) -> int | None:
    seed = _read_seed(metadata, int)
    return seed if seed is not None and seed >= 0 else None


def _seeds_in(infos: Raw) -> list[int] | None:
    """Return a seed for each sub-environment; those that did not begin have any."""
    told = _read_seed(infos, list[int] | dict[str, str | list[int]])
    if told is None:
        return None
    try:
        seeds = _read_array(told)
        return None if seeds.dtype.kind not in "iu" or seeds.ndim != 1 else [max(0, int(each)) for each in seeds]
    except (ValidationError, ValueError, TypeError):
        return None


def _read_array(value: Any) -> Any:
    return unpack_array(value, most=MOST_SEED_BYTES) if isinstance(value, dict) else np.array(value)


def _read_seed(metadata: Raw, kind: Any) -> Any:
    """Return what an environment said of its seed; None if it said nothing, or nothing of this kind."""
    try:
        return msgspec.json.decode(msgspec.json.decode(metadata, type=SeedMetadata).seed, type=kind)
    except msgspec.ValidationError:
        return None
