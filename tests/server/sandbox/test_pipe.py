"""What is said survives the pipe; what is nonsense is a DecodeError and nothing else."""

from __future__ import annotations

import socket
import threading
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.server.answers import BatchOutcome, Outcome, ToolAnswer
from proctor.server.desk import ResetOrder
from proctor.server.sandbox.pipe import (
    LENGTH,
    PIECE,
    Answer,
    BatchArrays,
    Call,
    Describe,
    FirstMessage,
    Work,
    answer_in,
    as_arrays,
    checked,
    checked_json,
    checked_object,
    checked_tool,
    framed,
    from_arrays,
    read,
    spoken,
)
from tests.server.served import PATIENCE

TEXTS = st.recursive(st.none() | st.integers(0, 9) | st.text(), st.lists).map(msgspec.json.encode)
DEEP = b"[" * 100_000 + b"]" * 100_000
NO_JSON = [b"", b" ", b"{", b"{}}", b'{"a":\xff}', b'{"a":"\xff"}', b'"\xed\xa0\x80"', b"NaN", b"1 2", DEEP]


def body_of(frame: bytes | bytearray) -> memoryview:
    return memoryview(bytes(frame))[LENGTH.size :]


# ------------------------------------------------------------------------------------------------------------ messages
@given(st.sampled_from(["step", "call", "act"]), st.binary(max_size=100), st.text(max_size=20))
def test_a_call_survives_the_pipe(method: Any, data: bytes, tool: str) -> None:
    call = Call(method, ResetOrder(1, "e", {"x": [1]}, [True]), data, tool)

    frame = framed(call)

    assert LENGTH.unpack_from(frame) == (len(frame) - LENGTH.size,)
    assert spoken(body_of(frame), Call) == call


def test_an_answer_survives_the_pipe_with_all_that_it_can_hold() -> None:
    outcome = Outcome(b"{}", b"{}", 1.5, True, False)
    answer = Answer(outcome, None, ToolAnswer("t", b"{}", b"1", outcome, [b"2"]), b"{}", b"card", trace="why")

    assert answer_in(body_of(framed(answer))) == answer


@pytest.mark.parametrize("first", [Work("t", {"a": 1}, True, False, 3, "same_step", True), Describe("t", {})])
def test_a_first_message_says_which_of_the_two_it_is(first: FirstMessage) -> None:
    kind: Any = FirstMessage

    assert spoken(body_of(framed(first)), kind) == first


def test_a_number_that_does_not_fit_is_an_overflow() -> None:
    with pytest.raises(OverflowError):
        framed(Call("reset", ResetOrder(2**70, "e", None)))


@settings(max_examples=200)
@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_but_a_decode_error(body: bytes) -> None:
    for read_it in (lambda: spoken(body, Call), lambda: answer_in(memoryview(body))):
        try:
            read_it()
        except msgspec.DecodeError:
            continue


@pytest.mark.parametrize(
    "body", [b"\x91" * 100_000, b"\x81\xa2ab" * 10_000, b"\x81\xa7outcome\x93\xc4\x02{}\xa1\xff\xc0"]
)
def test_what_is_too_deep_or_no_text_is_a_decode_error_too(body: bytes) -> None:
    kind: Any = Any

    with pytest.raises(msgspec.DecodeError):
        answer_in(memoryview(body))
    with pytest.raises(msgspec.DecodeError):
        spoken(body, Answer)
    with pytest.raises(msgspec.DecodeError):
        spoken(b"\x91" * 100_000, kind)


# ------------------------------------------------------------------------------------------ what becomes part of a reply
@given(TEXTS)
def test_a_json_text_is_believed(text: bytes) -> None:
    assert checked_json(text) == text


@pytest.mark.parametrize("text", NO_JSON)
def test_what_is_not_exactly_one_json_value_is_not_believed(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        checked_json(text)


@pytest.mark.parametrize("text", [b"[]", b"null", b"1", b' {"a":1}', *NO_JSON])
def test_what_has_to_be_an_object_is_one(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        checked_object(text)


def test_an_outcome_is_believed_in_its_form_only() -> None:
    good = Outcome(b'{"observation":1}', b"{}", 1.0)
    bad = [Outcome(b"[1]", b"{}"), Outcome(b"{}", b"null"), Outcome(b"{}", b"{}", float("inf")), Outcome(b"{", b"{}")]

    assert checked(good) is good
    for each in bad:
        with pytest.raises(msgspec.DecodeError):
            checked(each)


def test_a_tools_answer_is_believed_in_its_form_only() -> None:
    outcome = Outcome(b"{}", b"{}", 1.0)
    good = [ToolAnswer("t", b"{}"), ToolAnswer("t", b"{}", b'{"action":1}', outcome, [b'{"action":2}'])]
    bad = [
        ToolAnswer("t", b"1"),
        ToolAnswer("t", b"{}", b"{}"),
        ToolAnswer("t", b"{}", None, outcome),
        ToolAnswer("t", b"{}", None, None, [b"{}"]),
        ToolAnswer("t", b"{}", b"{", outcome),
        ToolAnswer("t", b"{}", b"{}", outcome, [b"{"]),
        ToolAnswer("t", b"{}", b"{}", Outcome(b"", b"{}")),
    ]

    assert [checked_tool(each) for each in good] == good
    for each in bad:
        with pytest.raises(msgspec.DecodeError):
            checked_tool(each)


# ------------------------------------------------------------------------------------------------------------- batches
@st.composite
def outcomes(draw: st.DrawFn) -> BatchOutcome:
    """Give what a batch of some size answers to a reset or to a step."""
    size = draw(st.integers(0, 5))

    def mask() -> Any:
        return np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)), np.bool_)

    if draw(st.booleans()):
        return BatchOutcome(draw(TEXTS), draw(TEXTS), begins=mask())
    rewards = draw(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=size, max_size=size))
    return BatchOutcome(draw(TEXTS), draw(TEXTS), np.array(rewards, np.float64), mask(), mask(), mask())


def plain(outcome: BatchOutcome) -> list[Any]:
    values = [getattr(outcome, name) for name in outcome.__struct_fields__]
    return [(each.dtype, each.tolist()) if isinstance(each, np.ndarray) else each for each in values]


@settings(max_examples=50)
@given(outcomes())
def test_a_batchs_outcome_survives_the_pipe(outcome: BatchOutcome) -> None:
    again = from_arrays(spoken(body_of(framed(as_arrays(outcome))), BatchArrays))

    assert plain(again) == plain(outcome)


@pytest.mark.parametrize(
    "arrays",
    [
        BatchArrays(b"[]", b"{}", b"12345", b"\x00\x00", b"\x00\x00", b"\x00\x00"),
        BatchArrays(b"[]", b"{}", bytes(16), b"\x00", b"\x00\x00", b"\x00\x00"),
        BatchArrays(b"[]", b"{}", b"\xff" * 16, b"\x00\x00", b"\x00\x00", b"\x00\x00"),
        BatchArrays(b"[", b"{}", bytes(16), b"\x00\x00", b"\x00\x00", b"\x00\x00"),
    ],
)
def test_arrays_that_are_none_or_do_not_belong_together_are_not_believed(arrays: BatchArrays) -> None:
    with pytest.raises(msgspec.DecodeError):
        from_arrays(arrays)


# ------------------------------------------------------------------------------------------------------------- reading
@settings(max_examples=30)
@given(st.lists(st.integers(1, 7), min_size=1), st.integers(0, 100))
def test_a_message_is_read_in_whatever_pieces_it_comes(sizes: list[int], length: int) -> None:
    ours, theirs = socket.socketpair()
    frame = bytes(framed(bytes(range(length))))
    with ours, theirs:
        ours.settimeout(PATIENCE)
        while frame:
            size = sizes[len(frame) % len(sizes)]
            theirs.sendall(frame[:size])
            frame = frame[size:]

        body = read(ours)

    assert body is not None
    assert spoken(body, bytes) == bytes(range(length))


def test_a_long_message_is_read() -> None:
    ours, theirs = socket.socketpair()
    long = bytes(5 * PIECE + 17)
    with ours, theirs:
        ours.settimeout(PATIENCE)
        sending = threading.Thread(target=theirs.sendall, args=(framed(long),))
        sending.start()
        body = read(ours)
        sending.join(PATIENCE)

    assert body is not None
    assert spoken(body, bytes) == long


@pytest.mark.parametrize("said", [b"", b"\x00\x00", LENGTH.pack(4) + b"\x00"])
def test_nothing_is_read_from_a_socket_that_closes(said: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.sendall(said)

        assert read(ours) is None


def test_a_message_that_claims_too_much_is_not_waited_for() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(PATIENCE)
        theirs.sendall(LENGTH.pack(11))

        with pytest.raises(msgspec.DecodeError):
            read(ours, 10)
