import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from proctor.client.address import parse_address
from proctor.client.connection import NO_HELLO, encode_hello, read_welcome
from proctor.client.settings import ConnectionSettings
from proctor.errors import ConnectionFailed, RemoteError
from proctor.models.control import Code, Hello, Problem, RawReply
from tests.client.fake_server import WELCOME

ADDRESS = parse_address("http://h:1", token="a-secret-of-ours")


def error(code: str) -> RawReply:
    return RawReply("error", Raw(msgspec.json.encode(Problem("no", code))))


def test_hello_says_what_the_settings_say() -> None:
    said = msgspec.json.decode(encode_hello(ConnectionSettings(packed=True, compression=True)), type=Hello)

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
