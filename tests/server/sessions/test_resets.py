"""What a reset asks for is read from a request and from the record alike."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from proctor.models.control import Reset
from proctor.models.events import NULL, EpisodeReset
from proctor.server.runtime.env_adapter import ResetRequest
from proctor.server.runtime.results import RequestRefused
from proctor.server.sessions.resets import parse_reset, reset_from_event


def single(**more: Any) -> EpisodeReset:
    return EpisodeReset(session="s", at=1.0, epoch=1, episode_id=more.pop("episode_id", "e"), observation=NULL, **more)


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
