"""What is said survives the pipe; what is nonsense is a DecodeError and nothing else."""

from __future__ import annotations

import socket
import sys
import threading
import tracemalloc
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.access.limits import DEEPEST, is_too_deep
from proctor.models.control import Problem
from proctor.server.runtime.env_adapter import ResetRequest
from proctor.server.runtime.results import (
    LONGEST_TEXT,
    MOST_ACTIONS,
    MOST_CONTAINERS,
    MOST_CONTENT_BYTES,
    MOST_ERRORS,
    BatchOutcome,
    EnvOutcome,
    ToolOutcome,
)
from proctor.server.sandbox.messages import (
    FEW,
    LENGTH,
    LONGEST_MESSAGE,
    LONGEST_NAME,
    LONGEST_TRACE,
    MOST_PLACES,
    PIECE,
    SHORT,
    BatchArrays,
    Describe,
    FirstMessage,
    Work,
    WorkerCall,
    WorkerProblem,
    WorkerReply,
    check_json,
    check_json_object,
    check_outcome,
    check_reply,
    check_tool_result,
    decode_batch,
    decode_message,
    encode_batch,
    encode_frame,
    read_message,
    to_worker_problem,
)
from tests.server.live_server import PATIENCE

TEXTS = st.recursive(st.none() | st.integers(0, 9) | st.text(), st.lists).map(msgspec.json.encode)
DEEP = b"[" * 100_000 + b"]" * 100_000
NO_JSON = [b"", b" ", b"{", b"{}}", b'{"a":\xff}', b'{"a":"\xff"}', b'"\xed\xa0\x80"', b"NaN", b"1 2", DEEP]


def body_of(frame: bytes | bytearray) -> memoryview:
    return memoryview(bytes(frame))[LENGTH.size :]


# ------------------------------------------------------------------------------------------------------------ messages
@given(st.sampled_from(["step", "call", "act"]), st.binary(max_size=100), st.text(max_size=20))
def test_a_call_survives_the_pipe(method: Any, data: bytes, tool: str) -> None:
    call = WorkerCall(method, ResetRequest(1, "e", {"x": [1]}, [True]), data, tool)

    frame = encode_frame(call)

    assert LENGTH.unpack_from(frame) == (len(frame) - LENGTH.size,)
    assert decode_message(body_of(frame), WorkerCall) == call


def test_an_answer_survives_the_pipe_with_all_that_it_can_hold() -> None:
    outcome = EnvOutcome(b"{}", b"{}", 1.5, True, False)
    answer = WorkerReply(outcome, None, ToolOutcome("t", b"{}", b"1", outcome, [b"2"]), b"{}", b"card", trace="why")

    assert decode_message(body_of(encode_frame(answer)), WorkerReply) == answer


@pytest.mark.parametrize("first", [Work("t", {"a": 1}, True, False, 3, "same_step", True), Describe("t", {})])
def test_a_first_message_says_which_of_the_two_it_is(first: FirstMessage) -> None:
    kind: Any = FirstMessage

    assert decode_message(body_of(encode_frame(first)), kind) == first


def test_a_number_that_does_not_fit_is_an_overflow() -> None:
    with pytest.raises(OverflowError):
        encode_frame(WorkerCall("reset", ResetRequest(2**70, "e", None)))


@settings(max_examples=200)
@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_but_a_decode_error(body: bytes) -> None:
    for read_it in (lambda: decode_message(body, WorkerCall), lambda: decode_message(memoryview(body), WorkerReply)):
        try:
            read_it()
        except msgspec.DecodeError:
            continue


@pytest.mark.parametrize(
    "body",
    [b"\x91" * 100_000, b"\x81\xa2ab" * 10_000, b"\x81\xa7outcome\x93\xc4\x02{}\xa1\xff\xc0", b"\x81\xa5trace\xa1\xff"],
)
def test_what_is_too_deep_or_no_text_is_a_decode_error_too(body: bytes) -> None:
    kind: Any = Any

    with pytest.raises(msgspec.DecodeError):
        decode_message(body, WorkerReply)
    with pytest.raises(msgspec.DecodeError):
        decode_message(b"\x91" * 100_000, kind)


# ------------------------------------------------------------------------------------------ what becomes part of a reply
@given(TEXTS)
def test_a_json_text_is_believed(text: bytes) -> None:
    assert check_json(text) == text


PARTS = st.one_of(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner),
    ).map(msgspec.json.encode),
    st.sampled_from(
        [
            b'{"a":1,"a":2}',
            b'"\\ud800"',
            b'"\\ud83d\\ude00"',
            b'"\\ud800\\u0041"',
            b'"\\udc00"',
            b'"\\u00zz"',
            b'"\\x"',
            b'"\\"',
            b'"\\\\"',
            b'"a\nb"',
            b'"\x00"',
            b'"\x7f"',
            b'"1e999"',
            b'"[[["',
            b'"\xff"',
            b'"\xed\xa0\x80"',
            b'"\xf4\x90\x80\x80"',
            b"01",
            b"-",
            b"-0",
            b"1.",
            b".5",
            b"1e",
            b"1e+",
            b"+1",
            b"0x1",
            b"NaN",
            b"Infinity",
            b"tru",
            b"nul",
            b"1e5",
            b"1E+005",
            b"[1,]",
            b"[,]",
            b"{1:2}",
            b'{"a"}',
            b'{"a":}',
            b"[",
            b"]",
            b"{",
            b"}",
            b",",
            b"\xef\xbb\xbf1",
            b"\x0c",
        ]
    ),
    st.binary(max_size=4),
)
NUMBERS = st.builds(
    b"".join,
    st.tuples(
        st.sampled_from([b"", b"-"]),
        st.sampled_from(
            [b"1", b"0", b"9" * 17, b"9" * 199, b"1" * 200, b"1" * 308, b"1" + b"0" * 309, b"1" * 4300, b"1" * 4301]
        ),
        st.sampled_from([b"", b"", b".5", b"." + b"0" * 250 + b"1"]),
        st.sampled_from([b"", b"", b"e", b"E", b"e+", b"e-", b"E-0"]),
        st.sampled_from(
            [b"", b"", b"0", b"7", b"99", b"00007", b"109", b"307", b"308", b"309", b"400", b"9999", b"0000400"]
        ),
    ),
)


def is_json(text: bytes) -> bool:
    """Return what building every value says of a text."""
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return not is_too_deep(text, DEEPEST)


def is_believed(text: bytes) -> bool:
    try:
        return check_json(text) is text
    except msgspec.DecodeError:
        return False


@settings(max_examples=300)
@given(st.lists(PARTS | NUMBERS, min_size=1, max_size=6), st.integers(0, 2), st.booleans())
def test_a_long_text_is_believed_exactly_if_all_of_its_values_could_be_built(
    parts: list[bytes], strings: int, is_list: bool
) -> None:
    # Much white space, or many strings: long texts are checked in other ways than short ones.
    padding = [b" " * (SHORT + 1), b'"",' * (FEW + 1) + b"0", b'"1e999\\\\",' * (FEW + 1) + b"0"][strings]
    text = b"[%b,%b]" % (b",".join(parts), padding if strings else b"0" + padding)
    text = text if is_list else b"".join(parts) + b" " * (SHORT + 1)

    assert is_believed(text) == is_json(text)


@given(st.lists(PARTS | NUMBERS, max_size=3).map(b",".join))
def test_a_short_text_is_believed_exactly_if_it_can_be_built(text: bytes) -> None:
    assert is_believed(text) == is_json(text)


@pytest.mark.parametrize(
    "number",
    [b"1e400", b"-1e400", b"1e+00400", b"9" * 309 + b".0", b"1" * 4301, b"-" + b"1" * 4300, b"1" * 250 + b"e60"],
)
@pytest.mark.parametrize("size", [0, SHORT, 20_000])
def test_a_number_that_is_out_of_range_is_found_in_a_text_of_any_size(number: bytes, size: int) -> None:
    for text in (b"[%b%b]" % (b"1," * size, number), b'{"1e99":["1e999",%b%b]}' % (b'"",' * size, number)):
        assert not is_believed(text)
        assert is_believed(text.replace(number, b"1e300"))
        assert is_believed(text.replace(number, b'"%b"' % number))


def test_an_integer_that_this_python_does_not_read_is_out_of_range() -> None:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        assert not is_believed(b"[%b]" % (b"1" * 1000))
    finally:
        sys.set_int_max_str_digits(before)


@pytest.mark.parametrize("depth", [DEEPEST, DEEPEST + 1])
def test_a_text_is_believed_up_to_a_depth(depth: int) -> None:
    for text in (b"[" * depth + b"]" * depth, b'{"a":' * depth + b'"[[["' + b"}" * depth):
        assert is_believed(text) == (depth == DEEPEST)


def test_a_long_text_is_checked_without_building_its_values() -> None:
    text = b'{"observation":[' + b"[]," * 2**18 + b"[]]}"
    tracemalloc.start()
    try:
        check_json(text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 16 * len(text)


# ------------------------------------------------------------------------------------------------------- bounded fields
ERROR = {"loc": ["a", 1], "msg": "no", "type": "t"}
GOOD: dict[str, Any] = {"message": "no", "code": "BUSY", "errors": [ERROR]}
STEP: dict[str, Any] = {"observation": b"{}", "metadata": b"{}"}
TOOL: dict[str, Any] = {"text": "t", "content": b"{}"}


@pytest.mark.parametrize(
    "said",
    [
        {"refused": GOOD},
        {"failed": {**GOOD, "errors": [ERROR] * MOST_ERRORS}},
        {"tool": {**TOOL, "left": [b"1"] * MOST_ACTIONS}},
        {"outcome": STEP},
    ],
)
def test_an_answer_within_its_bounds_is_read(said: dict[str, Any]) -> None:
    assert decode_message(body_of(encode_frame(said)), WorkerReply) is not None


@pytest.mark.parametrize(
    "said",
    [
        {"refused": {**GOOD, "errors": [ERROR] * (MOST_ERRORS + 1)}},
        {"refused": {**GOOD, "errors": [{}]}},
        {"refused": {**GOOD, "errors": [{**ERROR, "ctx": {}}]}},
        {"refused": {**GOOD, "errors": [{**ERROR, "loc": [1] * (MOST_PLACES + 1)}]}},
        {"refused": {**GOOD, "errors": [{**ERROR, "loc": ["x" * (LONGEST_NAME + 1)]}]}},
        {"refused": {**GOOD, "errors": [{**ERROR, "loc": [[]]}]}},
        {"refused": {**GOOD, "errors": [{**ERROR, "msg": "x" * (LONGEST_MESSAGE + 1)}]}},
        {"refused": {**GOOD, "message": "x" * (LONGEST_TRACE + 1)}},
        {"refused": {**GOOD, "message": {}}},
        {"failed": {**GOOD, "clause": "x" * (LONGEST_NAME + 1)}},
        {"failed": {**GOOD, "expected": "x" * (LONGEST_MESSAGE + 1)}},
        {"failed": {**GOOD, "incident": "x" * (LONGEST_NAME + 1)}},
        {"failed": {**GOOD, "more": 1}},
        {"tool": {**TOOL, "left": [b"1"] * (MOST_ACTIONS + 1)}},
        {"tool": {**TOOL, "text": "x" * (LONGEST_TEXT + 1)}},
        {"tool": {**TOOL, "content": b"x" * (MOST_CONTENT_BYTES + 1)}},
        {"tool": {**TOOL, "more": 1}},
        {"outcome": {**STEP, "more": []}},
        {"outcome": {**STEP, "reward": "1"}},
        {"trace": "x" * (LONGEST_TRACE + 1)},
        {"more": []},
    ],
)
def test_an_answer_beyond_its_bounds_is_no_answer(said: dict[str, Any]) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_message(body_of(encode_frame(said)), WorkerReply)


def test_a_problem_is_cut_to_what_a_worker_may_say() -> None:
    error = {"loc": ["x" * 1000, 3] * MOST_PLACES, "msg": "y" * 10_000, "type": "z" * 1000}
    long = Problem("m" * 10**6, "BUSY", errors=[error] * 100, clause="c" * 1000, expected="e" * 10_000)

    said = decode_message(body_of(encode_frame(WorkerReply(refused=to_worker_problem(long)))), WorkerReply).refused

    assert said is not None
    assert (len(said.message), len(said.errors), said.incident) == (LONGEST_TRACE, MOST_ERRORS, msgspec.UNSET)
    assert to_worker_problem(Problem("no", "BUSY")) == WorkerProblem("no", "BUSY")


@pytest.mark.parametrize("text", NO_JSON)
def test_what_is_not_exactly_one_json_value_is_not_believed(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        check_json(text)


@pytest.mark.parametrize("text", [b"[]", b"null", b"1", b' {"a":1}', *NO_JSON])
def test_what_has_to_be_an_object_is_one(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        check_json_object(text)


def test_an_outcome_is_believed_in_its_form_only() -> None:
    good = EnvOutcome(b'{"observation":1}', b"{}", 1.0)
    bad = [
        EnvOutcome(b"[1]", b"{}"),
        EnvOutcome(b"{}", b"null"),
        EnvOutcome(b"{}", b"{}", float("inf")),
        EnvOutcome(b"{", b"{}"),
    ]

    assert check_outcome(good) is good
    for each in bad:
        with pytest.raises(msgspec.DecodeError):
            check_outcome(each)


def test_a_tools_answer_is_believed_in_its_form_only() -> None:
    outcome = EnvOutcome(b"{}", b"{}", 1.0)
    good = [ToolOutcome("t", b"{}"), ToolOutcome("t", b"{}", b'{"action":1}', outcome, [b'{"action":2}'])]
    bad = [
        ToolOutcome("t", b"1"),
        ToolOutcome("t", b"{}", b"{}"),
        ToolOutcome("t", b"{}", None, outcome),
        ToolOutcome("t", b"{}", None, None, [b"{}"]),
        ToolOutcome("t", b"{}", b"{", outcome),
        ToolOutcome("t", b"{}", b"{}", outcome, [b"{"]),
        ToolOutcome("t", b"{}", b"{}", EnvOutcome(b"", b"{}")),
        ToolOutcome("t", b'{"a":[' + b"[]," * MOST_CONTAINERS + b"1]}"),
        ToolOutcome("t", b"{}", b"{}", EnvOutcome(b"{}", b"{" + b'"a":1,' * MOST_CONTAINERS + b'"b":1}')),
    ]

    assert [check_tool_result(each) for each in good] == good
    for each in bad:
        with pytest.raises(msgspec.DecodeError):
            check_tool_result(each)


def test_an_answer_is_sound_if_all_of_its_texts_are() -> None:
    good = EnvOutcome(b"{}", b"{}", 1.0, scene=b"[1]")
    arrays = BatchArrays(b"[1]", b"{}", None, None, None, None)
    tool = ToolOutcome("t", b"{}")
    bad = [
        WorkerReply(outcome=EnvOutcome(b"{}", b"{}", scene=b"[")),
        WorkerReply(outcome=EnvOutcome(b"{}", b"[]")),
        WorkerReply(tool=ToolOutcome("t", b"[]")),
        WorkerReply(state=b"[]"),
        WorkerReply(batch=BatchArrays(b"[", b"{}", None, None, None, None)),
        WorkerReply(batch=BatchArrays(b"[]", b"[]", None, None, None, None)),
    ]

    assert check_reply(WorkerReply(good, arrays, tool, b"{}")) == WorkerReply(good, arrays, tool, b"{}")
    for each in bad:
        with pytest.raises(msgspec.DecodeError):
            check_reply(each)


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
    size = 0 if outcome.begins is None else len(outcome.begins)
    stepped = outcome.rewards is not None

    again = decode_batch(
        decode_message(body_of(encode_frame(encode_batch(outcome))), BatchArrays), size, stepped=stepped
    )

    assert plain(again) == plain(outcome)


@pytest.mark.parametrize(
    "arrays",
    [
        BatchArrays(b"[]", b"{}", b"12345", b"\x00\x00", b"\x00\x00", b"\x00\x00"),
        BatchArrays(b"[]", b"{}", bytes(16), b"\x00", b"\x00\x00", b"\x00\x00"),
        BatchArrays(b"[]", b"{}", b"\xff" * 16, b"\x00\x00", b"\x00\x00", b"\x00\x00"),
        BatchArrays(b"[]", b"{}", bytes(24), bytes(3), bytes(3), bytes(3)),
        BatchArrays(b"[]", b"{}", bytes(16), b"\x00\x00", b"\x00\x00", None),
        BatchArrays(b"[]", b"{}", None, None, None, b"\x01\x01"),
    ],
)
def test_arrays_that_are_none_or_do_not_belong_together_are_not_believed(arrays: BatchArrays) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_batch(arrays, 2, stepped=True)


def test_a_resets_arrays_are_no_steps_and_the_other_way_round() -> None:
    stepped = BatchArrays(b"[]", b"{}", bytes(16), bytes(2), bytes(2), bytes(2))
    reset = BatchArrays(b"[]", b"{}", None, None, None, bytes(2))

    assert decode_batch(stepped, 2, stepped=True).rewards is not None
    assert decode_batch(reset, 2, stepped=False).rewards is None
    for arrays, is_step in ((stepped, False), (reset, True)):
        with pytest.raises(msgspec.DecodeError):
            decode_batch(arrays, 2, stepped=is_step)


def test_every_byte_but_zero_is_true() -> None:
    arrays = BatchArrays(b"[]", b"{}", None, None, None, b"\x00\x01\x02\xff")

    begins = decode_batch(arrays, 4, stepped=False).begins

    assert begins is not None
    assert bytes(begins) == b"\x00\x01\x01\x01"


# ------------------------------------------------------------------------------------------------------------- reading
@settings(max_examples=30)
@given(st.lists(st.integers(1, 7), min_size=1), st.integers(0, 100))
def test_a_message_is_read_in_whatever_pieces_it_comes(sizes: list[int], length: int) -> None:
    ours, theirs = socket.socketpair()
    frame = bytes(encode_frame(bytes(range(length))))
    with ours, theirs:
        ours.settimeout(PATIENCE)
        while frame:
            size = sizes[len(frame) % len(sizes)]
            theirs.sendall(frame[:size])
            frame = frame[size:]

        body = read_message(ours)

    assert body is not None
    assert decode_message(body, bytes) == bytes(range(length))


def test_a_long_message_is_read() -> None:
    ours, theirs = socket.socketpair()
    long = bytes(5 * PIECE + 17)
    with ours, theirs:
        ours.settimeout(PATIENCE)
        sending = threading.Thread(target=theirs.sendall, args=(encode_frame(long),))
        sending.start()
        body = read_message(ours)
        sending.join(PATIENCE)

    assert body is not None
    assert decode_message(body, bytes) == long


@pytest.mark.parametrize("said", [b"", b"\x00\x00", LENGTH.pack(4) + b"\x00"])
def test_nothing_is_read_from_a_socket_that_closes(said: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.sendall(said)

        assert read_message(ours) is None


def test_a_message_that_claims_too_much_is_not_waited_for() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(PATIENCE)
        theirs.sendall(LENGTH.pack(11))

        with pytest.raises(msgspec.DecodeError):
            read_message(ours, 10)
