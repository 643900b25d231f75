"""An event says everything on one line, and a line that is no event is never taken for one."""

import json
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from proctor.errors import ComponentError, ValidationError
from proctor.models.events import (
    VERSION,
    EpisodeStepped,
    Event,
    SessionClosed,
    SessionOpened,
    decode_event,
    encode_event,
)
from tests.models.events_strategies import KINDS, events

CLOSED = SessionClosed(session="s", at=1.5, reason="client", episodes=2, steps=9)
STEPPED = EpisodeStepped(
    session="s",
    at=2.0,
    epoch=1,
    step=3,
    action=Raw(b'{"action":1}'),
    observation=Raw(b'{"observation":[0.5]}'),
    raw_reward=2.0,
    reward=1.0,
    parts={"clip": -1.0},
    terminated=False,
    truncated=True,
)


def plain(event: Event) -> object:
    """Return what an event says, so that two ways of writing the same JSON are equal."""
    return json.loads(msgspec.json.encode(event))


@given(event=events)
def test_an_event_comes_back_from_its_line(event: Event) -> None:
    again = decode_event(encode_event(event))

    assert type(again) is type(event)
    assert plain(again) == plain(event)


@given(event=events)
def test_an_event_is_one_line_of_json_with_its_version(event: Event) -> None:
    line = encode_event(event)

    assert line.count(b"\n") == line.count(b"\r") == 0
    assert json.loads(line)["version"] == VERSION


@given(event=events)
def test_a_line_is_stable_once_it_is_written(event: Event) -> None:
    line = encode_event(event)

    assert encode_event(decode_event(line)) == line


def test_a_step_is_written_as_the_record_shows_it() -> None:
    assert json.loads(encode_event(STEPPED)) == {
        "event": "episode_stepped",
        "version": 1,
        "session": "s",
        "at": 2.0,
        "principal": "control",
        "request_id": None,
        "epoch": 1,
        "step": 3,
        "action": {"action": 1},
        "observation": {"observation": [0.5]},
        "metadata": None,
        "raw_reward": 2.0,
        "reward": 1.0,
        "parts": {"clip": -1.0},
        "terminated": False,
        "truncated": True,
        "grant": None,
        "tool": None,
        "scene": None,
    }


def test_a_line_that_is_no_text_is_refused() -> None:
    line = encode_event(CLOSED).replace(b"client", b"cl\xffent")

    with pytest.raises(ValidationError, match="not an event"):
        decode_event(line)


def test_a_client_that_breaks_its_lines_cannot_break_the_record() -> None:
    spread = Raw(b'{\r\n  "action" :\n [1.50, "a\\nb  c", 12345678901234567890123] }')

    line = encode_event(replace(STEPPED, action=spread))

    assert b'"action":{"action":[1.50,"a\\nb  c",12345678901234567890123]}' in line


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "truncated"),
        (b"[]", "Expected `object`"),
        (encode_event(CLOSED)[:-1], "truncated"),
        (encode_event(CLOSED) * 2, "trailing"),
        (encode_event(CLOSED).replace(b"session_closed", b"session_ended"), "session_ended"),
        (encode_event(CLOSED).replace(b'"version":1,', b""), "version"),
        (encode_event(CLOSED).replace(b'"version":1', b'"version":2'), "another version"),
        (encode_event(CLOSED).replace(b'"steps":9', b'"steps":-9'), "steps"),
        (encode_event(CLOSED).replace(b'"steps":9', b'"steps":9,"more":1'), "more"),
        (encode_event(CLOSED).replace(b'"steps":9', b'"steps":' + b"[" * 100_000), "recursion"),
        (encode_event(STEPPED).replace(b"control", b"nobody"), "nobody"),
    ],
)
def test_a_line_that_is_no_event_is_refused_with_the_reason(line: bytes, reason: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(reason)):
        decode_event(line)


@given(
    line=st.binary(max_size=60)
    | st.builds(lambda e, i, b: encode_event(e)[:i] + b, events, st.integers(0, 90), st.binary())
)
def test_garbage_is_a_validation_error_and_nothing_else(line: bytes) -> None:
    try:
        event = decode_event(line)
    except ValidationError:
        return

    assert isinstance(event, KINDS)


def settings_that_hold_themselves() -> dict[str, object]:
    settings: dict[str, object] = {}
    settings["settings"] = settings
    return settings


OPENED = SessionOpened(
    session="s",
    at=0.0,
    environment="CartPole-v1",
    environment_version="0",
    target="CartPole-v1",
    server="0.1.0",
    place="inline",
    python="3.11",
    gymnasium="1.4",
    numpy="2.4",
)


@pytest.mark.parametrize("settings", [{"seed": object()}, {"name": "\ud800"}, settings_that_hold_themselves()])
def test_an_event_without_a_json_form_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ComponentError, match="no JSON form"):
        encode_event(replace(OPENED, settings=settings))
