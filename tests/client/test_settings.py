"""How a connection behaves, and what is agreed on when it is made."""

from itertools import islice

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from proctor.client.address import parse_address
from proctor.client.connection import NO_HELLO, Backoff, Connection, ConnectionSettings, read_welcome
from proctor.errors import ConnectionFailed, RemoteError, ValidationError
from proctor.models.control import Code, Hello, Problem, RawReply
from tests.client.fake_server import WELCOME, faking

TIMES = ["connect_timeout", "request_timeout", "cancel_timeout", "ping_interval"]


@given(st.sampled_from(TIMES), st.floats(allow_nan=True))
def test_a_time_is_positive_and_finite_or_refused(name: str, value: float) -> None:
    if 0 < value < float("inf"):
        assert getattr(ConnectionSettings(**{name: value}), name) == value  # type: ignore[arg-type]
    else:
        with pytest.raises(ValidationError, match=name):
            ConnectionSettings(**{name: value})  # type: ignore[arg-type]


CHANCES = st.floats(0, 1, exclude_max=True)


def test_the_first_attempt_comes_at_once_and_the_delays_double() -> None:
    delays = list(islice(Backoff(first=1.0, longest=5.0).delays(lambda: 0.0), 6))

    assert delays == [0.0, 1.0, 2.0, 4.0, 5.0, 5.0]


@given(st.lists(CHANCES, min_size=10, max_size=10), st.floats(0.01, 1), st.floats(1, 60))
def test_chance_takes_at_most_half_of_a_delay_away(chances: list[float], first: float, longest: float) -> None:
    backoff = Backoff(first=first, longest=longest)
    draws = iter(chances)
    most = list(islice(backoff.delays(lambda: 0.0), 10))

    for delay, limit in zip(islice(backoff.delays(lambda: next(draws)), 10), most, strict=True):
        assert limit / 2 <= delay <= limit <= longest


ADDRESS = parse_address("http://h:1", token="a-secret-of-ours")


def error(code: str) -> RawReply:
    return RawReply("error", Raw(msgspec.json.encode(Problem("no", code))))


@pytest.mark.anyio
async def test_hello_says_what_the_settings_say() -> None:
    async with faking() as fake, Connection(fake.url, settings=ConnectionSettings(packed=True, compression=True)):
        said = msgspec.convert(fake.asked("hello")[0]["data"], type=Hello)

    assert (said.protocols, said.packed, said.compression) == ([1], True, True)


def test_an_answer_to_hello_is_a_welcome() -> None:
    welcome = read_welcome(RawReply("hello", Raw(msgspec.json.encode(WELCOME))), ADDRESS)

    assert welcome is not None
    assert welcome.boot == "first"


@given(st.sampled_from(list(Code)))
def test_only_a_server_that_does_not_know_hello_is_spoken_to_without(code: Code) -> None:
    if code in NO_HELLO:
        assert read_welcome(error(code), ADDRESS) is None
    else:
        with pytest.raises((ConnectionFailed, RemoteError)) as refusal:
            read_welcome(error(code), ADDRESS)
        assert "a-secret-of-ours" not in str(refusal.value)


def test_no_room_is_said_as_such() -> None:
    with pytest.raises(RemoteError) as refusal:
        read_welcome(error(Code.CAPACITY_REACHED), ADDRESS)
    assert refusal.value.code == "CAPACITY_REACHED"


def test_silence_is_a_failure() -> None:
    with pytest.raises(ConnectionFailed):
        read_welcome(None, ADDRESS)
