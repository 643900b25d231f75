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
from proctor.server.sandbox import messages
from tests.server.live_server import PATIENCE

TEXTS = st.recursive(st.none() | st.integers(0, 9) | st.text(), st.lists).map(msgspec.json.encode)
DEEP = b"[" * 100_000 + b"]" * 100_000
NO_JSON = [b"", b" ", b"{", b"{}}", b'{"a":\xff}', b'{"a":"\xff"}', b'"\xed\xa0\x80"', b"NaN", b"1 2", DEEP]


def body_of(frame: bytes | bytearray) -> memoryview:
    return memoryview(bytes(frame))[messages.LENGTH.size :]


@given(st.sampled_from(["step", "call", "act"]), st.binary(max_size=100), st.text(max_size=20))
def test_a_call_survives_the_pipe(method: Any, data: bytes, tool: str) -> None:
    call = messages.WorkerCall(method, ResetRequest(1, "e", {"x": [1]}, [True]), data, tool)

    frame = messages.encode_frame(call)

    assert messages.LENGTH.unpack_from(frame) == (len(frame) - messages.LENGTH.size,)
    assert messages.decode_message(body_of(frame), messages.WorkerCall) == call


def test_an_answer_survives_the_pipe_with_all_that_it_can_hold() -> None:
    outcome = EnvOutcome(b"{}", b"{}", 1.5, True, False)
    answer = messages.WorkerReply(
        outcome, None, ToolOutcome("t", b"{}", b"1", outcome, [b"2"]), b"{}", b"card", trace="why"
    )

    assert messages.decode_message(body_of(messages.encode_frame(answer)), messages.WorkerReply) == answer


@pytest.mark.parametrize(
    "first", [messages.Work("t", {"a": 1}, True, False, 3, "same_step", True), messages.Describe("t", {})]
)
def test_a_first_message_says_which_of_the_two_it_is(first: messages.FirstMessage) -> None:
    kind: Any = messages.FirstMessage

    assert messages.decode_message(body_of(messages.encode_frame(first)), kind) == first


def test_a_number_that_does_not_fit_is_an_overflow() -> None:
    with pytest.raises(OverflowError):
        messages.encode_frame(messages.WorkerCall("reset", ResetRequest(2**70, "e", None)))


@settings(max_examples=200)
@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_but_a_decode_error(body: bytes) -> None:
    for read_it in (
        lambda: messages.decode_message(body, messages.WorkerCall),
        lambda: messages.decode_message(memoryview(body), messages.WorkerReply),
    ):
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
        messages.decode_message(body, messages.WorkerReply)
    with pytest.raises(msgspec.DecodeError):
        messages.decode_message(b"\x91" * 100_000, kind)


@given(TEXTS)
def test_a_json_text_is_believed(text: bytes) -> None:
    assert messages.check_json(text) == text


PARTS = st.one_of(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner),
    ).map(msgspec.json.encode),
    st.sampled_from(
        [
            *(b'{"a":1,"a":2}', b'"\\ud800"', b'"\\ud83d\\ude00"', b'"\\ud800\\u0041"', b'"\\udc00"', b'"\\u00zz"'),
            *(b'"\\x"', b'"\\"', b'"\\\\"', b'"a\nb"', b'"\x00"', b'"\x7f"', b'"1e999"', b'"[[["', b'"\xff"'),
            *(b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"', b"01", b"-", b"-0", b"1.", b".5", b"1e", b"1e+", b"+1", b"0x1"),
            *(b"NaN", b"Infinity", b"tru", b"nul", b"1e5", b"1E+005", b"[1,]", b"[,]", b"{1:2}", b'{"a"}', b'{"a":}'),
            *(b"[", b"]", b"{", b"}", b",", b"\xef\xbb\xbf1", b"\x0c"),
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
        return messages.check_json(text) is text
    except msgspec.DecodeError:
        return False


@settings(max_examples=300)
@given(st.lists(PARTS | NUMBERS, min_size=1, max_size=6), st.integers(0, 2), st.booleans())
def test_a_long_text_is_believed_exactly_if_all_of_its_values_could_be_built(
    parts: list[bytes], strings: int, is_list: bool
) -> None:
    # Much white space, or many strings: long texts are checked in other ways than short ones.
    padding = [
        b" " * (messages.SHORT + 1),
        b'"",' * (messages.FEW + 1) + b"0",
        b'"1e999\\\\",' * (messages.FEW + 1) + b"0",
    ][strings]
    text = b"[%b,%b]" % (b",".join(parts), padding if strings else b"0" + padding)
    text = text if is_list else b"".join(parts) + b" " * (messages.SHORT + 1)

    assert is_believed(text) == is_json(text)


@given(st.lists(PARTS | NUMBERS, max_size=3).map(b",".join))
def test_a_short_text_is_believed_exactly_if_it_can_be_built(text: bytes) -> None:
    assert is_believed(text) == is_json(text)


@pytest.mark.parametrize(
    "number",
    [b"1e400", b"-1e400", b"1e+00400", b"9" * 309 + b".0", b"1" * 4301, b"-" + b"1" * 4300, b"1" * 250 + b"e60"],
)
@pytest.mark.parametrize("size", [0, messages.SHORT, 20_000])
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
        messages.check_json(text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 16 * len(text)


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
    assert messages.decode_message(body_of(messages.encode_frame(said)), messages.WorkerReply) is not None


@pytest.mark.parametrize(
    "said",
    [
        {"refused": {**GOOD, "errors": [ERROR] * (MOST_ERRORS + 1)}},
        {"refused": {**GOOD, "errors": [{}]}},
        {"refused": {**GOOD, "errors": [{**ERROR, "ctx": {}}]}},
        {"refused": {**GOOD, "errors": [{**ERROR, "loc": [1] * (messages.MOST_PLACES + 1)}]}},
        {"refused": {**GOOD, "errors": [{**ERROR, "loc": ["x" * (messages.LONGEST_NAME + 1)]}]}},
        {"refused": {**GOOD, "errors": [{**ERROR, "loc": [[]]}]}},
        {"refused": {**GOOD, "errors": [{**ERROR, "msg": "x" * (messages.LONGEST_MESSAGE + 1)}]}},
        {"refused": {**GOOD, "message": "x" * (messages.LONGEST_TRACE + 1)}},
        {"refused": {**GOOD, "message": {}}},
        {"failed": {**GOOD, "clause": "x" * (messages.LONGEST_NAME + 1)}},
        {"failed": {**GOOD, "expected": "x" * (messages.LONGEST_MESSAGE + 1)}},
        {"failed": {**GOOD, "incident": "x" * (messages.LONGEST_NAME + 1)}},
        {"failed": {**GOOD, "more": 1}},
        {"tool": {**TOOL, "left": [b"1"] * (MOST_ACTIONS + 1)}},
        {"tool": {**TOOL, "text": "x" * (LONGEST_TEXT + 1)}},
        {"tool": {**TOOL, "content": b"x" * (MOST_CONTENT_BYTES + 1)}},
        {"tool": {**TOOL, "more": 1}},
        {"outcome": {**STEP, "more": []}},
        {"outcome": {**STEP, "reward": "1"}},
        {"trace": "x" * (messages.LONGEST_TRACE + 1)},
        {"more": []},
    ],
)
def test_an_answer_beyond_its_bounds_is_no_answer(said: dict[str, Any]) -> None:
    with pytest.raises(msgspec.DecodeError):
        messages.decode_message(body_of(messages.encode_frame(said)), messages.WorkerReply)


def test_a_problem_is_cut_to_what_a_worker_may_say() -> None:
    error = {"loc": ["x" * 1000, 3] * messages.MOST_PLACES, "msg": "y" * 10_000, "type": "z" * 1000}
    long = Problem("m" * 10**6, "BUSY", errors=[error] * 100, clause="c" * 1000, expected="e" * 10_000)

    said = messages.decode_message(
        body_of(messages.encode_frame(messages.WorkerReply(refused=messages.to_worker_problem(long)))),
        messages.WorkerReply,
    ).refused

    assert said is not None
    assert (len(said.message), len(said.errors), said.incident) == (messages.LONGEST_TRACE, MOST_ERRORS, msgspec.UNSET)
    assert messages.to_worker_problem(Problem("no", "BUSY")) == messages.WorkerProblem("no", "BUSY")


@pytest.mark.parametrize("text", NO_JSON)
def test_what_is_not_exactly_one_json_value_is_not_believed(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        messages.check_json(text)


@pytest.mark.parametrize("text", [b"[]", b"null", b"1", b' {"a":1}', *NO_JSON])
def test_what_has_to_be_an_object_is_one(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        messages.check_json_object(text)


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

    again = messages.decode_batch(
        messages.decode_message(body_of(messages.encode_frame(messages.encode_batch(outcome))), messages.BatchArrays),
        size,
        stepped=stepped,
    )

    assert plain(again) == plain(outcome)


OUTCOME = EnvOutcome(b"{}", b"{}", 1.0, scene=b"[1]")
ARRAYS = messages.BatchArrays(b"[1]", b"{}", None, None, None, None)
TOOL_DONE = ToolOutcome("t", b"{}", b'{"action":1}', OUTCOME, [b'{"action":2}'])


@pytest.mark.parametrize("tool", [ToolOutcome("t", b"{}"), TOOL_DONE])
def test_an_answer_is_sound_if_all_of_its_texts_are(tool: ToolOutcome) -> None:
    answer = messages.WorkerReply(OUTCOME, ARRAYS, tool, b"{}")

    assert messages.check_reply(answer) is answer


@pytest.mark.parametrize(
    "part",
    [
        EnvOutcome(b"[1]", b"{}"),
        EnvOutcome(b"{", b"{}"),
        EnvOutcome(b"{}", b"null"),
        EnvOutcome(b"{}", b"{}", float("inf")),
        EnvOutcome(b"{}", b"{}", scene=b"["),
        ToolOutcome("t", b"1"),
        ToolOutcome("t", b"{}", b"{}"),
        ToolOutcome("t", b"{}", None, OUTCOME),
        ToolOutcome("t", b"{}", None, None, [b"{}"]),
        ToolOutcome("t", b"{}", b"{", OUTCOME),
        ToolOutcome("t", b"{}", b"{}", OUTCOME, [b"{"]),
        ToolOutcome("t", b"{}", b"{}", EnvOutcome(b"", b"{}")),
        ToolOutcome("t", b'{"a":[' + b"[]," * MOST_CONTAINERS + b"1]}"),
        ToolOutcome("t", b"{}", b"{}", EnvOutcome(b"{}", b"{" + b'"a":1,' * MOST_CONTAINERS + b'"b":1}')),
        messages.BatchArrays(b"[", b"{}", None, None, None, None),
        messages.BatchArrays(b"[]", b"[]", None, None, None, None),
        b"[]",
    ],
)
def test_an_answer_with_a_part_that_is_not_sound_is_not_believed(part: Any) -> None:
    name = {EnvOutcome: "outcome", ToolOutcome: "tool", messages.BatchArrays: "batch", bytes: "state"}[type(part)]

    with pytest.raises(msgspec.DecodeError):
        messages.check_reply(messages.WorkerReply(**{name: part}))


@pytest.mark.parametrize(
    "arrays",
    [
        *((b"12345", bytes(2), bytes(2), bytes(2)), (bytes(16), bytes(1), bytes(2), bytes(2))),
        *((b"\xff" * 16, bytes(2), bytes(2), bytes(2)), (bytes(24), bytes(3), bytes(3), bytes(3))),
        *((bytes(16), bytes(2), bytes(2), None), (None, None, None, bytes(2))),
    ],
)
def test_arrays_that_are_none_or_do_not_belong_together_are_not_believed(arrays: Any) -> None:
    with pytest.raises(msgspec.DecodeError):
        messages.decode_batch(messages.BatchArrays(b"[]", b"{}", *arrays), 2, stepped=True)


def test_a_steps_arrays_are_no_resets() -> None:
    stepped = messages.BatchArrays(b"[]", b"{}", bytes(16), bytes(2), bytes(2), bytes(2))

    assert messages.decode_batch(stepped, 2, stepped=True).rewards is not None
    with pytest.raises(msgspec.DecodeError):
        messages.decode_batch(stepped, 2, stepped=False)


def test_every_byte_but_zero_is_true() -> None:
    reset = messages.BatchArrays(b"[]", b"{}", None, None, None, b"\x00\x01\x02\xff")
    found = messages.decode_batch(reset, 4, stepped=False)

    assert found.rewards is None
    assert found.begins is not None
    assert bytes(found.begins) == b"\x00\x01\x01\x01"


@settings(max_examples=30)
@given(st.lists(st.integers(1, 7), min_size=1), st.integers(0, 100))
def test_a_message_is_read_in_whatever_pieces_it_comes(sizes: list[int], length: int) -> None:
    ours, theirs = socket.socketpair()
    frame = bytes(messages.encode_frame(bytes(range(length))))
    with ours, theirs:
        ours.settimeout(PATIENCE)
        while frame:
            size = sizes[len(frame) % len(sizes)]
            theirs.sendall(frame[:size])
            frame = frame[size:]

        body = messages.read_message(ours)

    assert body is not None
    assert messages.decode_message(body, bytes) == bytes(range(length))


def test_a_long_message_is_read() -> None:
    ours, theirs = socket.socketpair()
    long = bytes(5 * messages.PIECE + 17)
    with ours, theirs:
        ours.settimeout(PATIENCE)
        sending = threading.Thread(target=theirs.sendall, args=(messages.encode_frame(long),))
        sending.start()
        body = messages.read_message(ours)
        sending.join(PATIENCE)

    assert body is not None
    assert messages.decode_message(body, bytes) == long


@pytest.mark.parametrize("said", [b"", b"\x00\x00", messages.LENGTH.pack(4) + b"\x00"])
def test_nothing_is_read_from_a_socket_that_closes(said: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.sendall(said)

        assert messages.read_message(ours) is None


def test_a_message_that_claims_too_much_is_not_waited_for() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(PATIENCE)
        theirs.sendall(messages.LENGTH.pack(11))

        with pytest.raises(msgspec.DecodeError):
            messages.read_message(ours, 10)
