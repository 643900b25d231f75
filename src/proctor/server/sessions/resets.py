"""What a reset asks for: read from a request, or from the record of one that was carried out. Pure."""

from typing import Any

import msgspec

from proctor.models.control import Code, Reset
from proctor.models.events import BatchReset, EpisodeReset
from proctor.server.runtime.env_adapter import ResetRequest
from proctor.server.runtime.results import make_refusal

AnyReset = EpisodeReset | BatchReset


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
