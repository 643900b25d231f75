"""A reset on record is asked for again as it was, with the seed that it had, asked for or drawn."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from proctor.models.arrays import pack_array
from proctor.models.control import Reset
from proctor.models.events import NULL, BatchReset, EpisodeReset
from proctor.server.runtime.env_adapter import ResetRequest
from proctor.server.runtime.results import RequestRefused
from proctor.server.sessions.resets import MOST_SEED_BYTES, parse_reset, reset_for_replay, reset_from_event


def single(**more: Any) -> EpisodeReset:
    return EpisodeReset(session="s", at=1.0, epoch=1, episode_id=more.pop("episode_id", "e"), observation=NULL, **more)


def batch(**more: Any) -> BatchReset:
    return BatchReset(session="s", at=1.0, epoch=1, episode_id="e", observations=NULL, **more)


def raw(value: Any) -> Raw:
    return Raw(json.dumps(value).encode())


@given(
    seed=st.none() | st.integers(0, 2**31),
    name=st.none() | st.text(max_size=5),
    options=st.none() | st.dictionaries(st.text(max_size=3), st.integers(), min_size=1, max_size=3),
)
@settings(max_examples=50)
def test_what_was_asked_for_is_read_back_from_the_record(seed: Any, name: Any, options: Any) -> None:
    asked = parse_reset(Reset(seed=seed, episode_id=name, options=raw(options)), "s.1")
    event = single(seed=asked.seed, episode_id=asked.episode_id, options=raw(asked.options))

    assert reset_from_event(event) == asked
    assert asked.episode_id == ("s.1" if name is None else name)


def test_no_options_and_empty_ones_are_the_same() -> None:
    assert parse_reset(Reset(options=Raw(b"{}")), "e") == parse_reset(Reset(), "e") == ResetRequest(None, "e", None)


@pytest.mark.parametrize("reset", [Reset(options=Raw(b"[1]")), Reset(mask=Raw(b"{}")), Reset(options=Raw(b"{"))])
def test_what_is_no_order_is_refused(reset: Reset) -> None:
    with pytest.raises(RequestRefused):
        parse_reset(reset, "e")


@pytest.mark.parametrize(
    ("event", "seed"),
    [
        (single(seed=4, metadata=raw({"seed": 9})), 4),
        (single(metadata=raw({"seed": 9})), 9),
        (single(metadata=raw({"seed": True})), None),
        (single(metadata=raw({"seed": -1})), None),
        (single(metadata=raw({"seed": "9"})), None),
        (single(metadata=raw([9])), None),
        (single(), None),
        (batch(seed=[4, 5]), [4, 5]),
        (batch(seed=4), 4),
        (batch(infos=raw({"seed": [7, 8], "_seed": [True, True]})), [7, 8]),
        (batch(infos=raw({"seed": pack_array(np.array([7, 8])), "_seed": [True, True]})), [7, 8]),
        (batch(infos=raw({"seed": ["a"]})), None),
        (batch(infos=raw({"seed": {"dtype": "no"}})), None),
        (batch(infos=raw({"seed": [[7], [8]]})), None),
        (batch(infos=raw({"seed": pack_array(np.zeros((2, 2), np.int64))})), None),
        (batch(infos=raw({"seed": pack_array(np.zeros(MOST_SEED_BYTES, np.int64), compress=True)})), None),
        (batch(infos=raw({})), None),
        (batch(), None),
    ],
)
def test_the_seed_is_the_one_that_was_asked_for_or_the_one_that_was_drawn(event: Any, seed: Any) -> None:
    assert reset_for_replay(event).seed == seed


def test_a_mask_is_asked_for_again() -> None:
    assert reset_for_replay(batch(mask=raw([True, False]), seed=1)).mask == [True, False]
