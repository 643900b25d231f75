"""Whatever comes over a socket is a request that may come now, or is refused with a code; nothing else can happen."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proctor.access.limits import RequestLimits
from proctor.models.control import (
    PROTOCOL,
    Cancel,
    Code,
    Hello,
    MessageKind,
    Notice,
    Open,
    Problem,
    Request,
    Reset,
    Resume,
)
from proctor.server.control import protocol as module
from proctor.server.control.protocol import (
    RULES,
    Admission,
    ReplyCache,
    RequestRule,
    choose_protocol,
    decode_data,
    encode_reply,
    find_rule,
    read_request,
)
from proctor.server.runtime.results import RequestRefused

LIMITS = RequestLimits(max_message_bytes=20_000, max_depth=16)
CODES = {Code.INVALID_JSON, Code.VALIDATION_ERROR, Code.UNKNOWN_TYPE, Code.TOO_DEEP, Code.TOO_LARGE}
SHORT = 4_000
"""No refusal is longer, however long the message was."""

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KEYS = st.sampled_from(["type", "data", "id", "session", "epoch"]) | st.text(max_size=4)
NEAR = st.dictionaries(
    KEYS, st.sampled_from([*map(str, MessageKind), "none", "1"]) | st.integers(-2, 2**60) | JSON, max_size=6
)


def refusal(call: Callable[[], object]) -> Problem:
    with pytest.raises(RequestRefused) as caught:
        call()
    return caught.value.problem


def read(raw: bytes) -> Request | Problem:
    """Return what is made of a frame; anything but a request or a refusal is raised."""
    try:
        return read_request(raw, LIMITS)
    except RequestRefused as problem:
        return problem.problem


def judged(request: Request, *, greeted: bool, fresh: bool) -> RequestRule | Problem:
    try:
        return find_rule(request, greeted=greeted, fresh=fresh)
    except RequestRefused as problem:
        return problem.problem


def message(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def as_python_reads_it(raw: bytes) -> dict[str, Any] | None:
    """Return the request that Python finds in a frame; None where it finds no text, or a number that it will not read."""
    try:
        found: dict[str, Any] = json.loads(raw)
    except ValueError:
        return None
    return found


def deep(levels: int) -> bytes:
    return b'{"type":"step","data":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


# ---------------------------------------------------------------------------------------------------- reading frames
@given(st.binary(max_size=200) | JSON.map(json.dumps).map(str.encode) | NEAR.map(json.dumps).map(str.encode))
@example(b"")
@example(b"\xff\xfe")
@example(b"\xef\xbb\xbf{}")
@example(b'{"type":"step","data":{"a":"\xff"}}')
@example(b'{"type":"step","data":1e400}')
@example(b'{"type":"step","id":1e400}')
@example(b'{"type":"step","id":1.0}')
@example(b'{"type":"\\ud800"}')
@example(b'{"type":"step","data":"\\ud800"}')
@example(b'{"type":"step"}garbage')
@example(b'{"type":"step"}{"type":"step"}')
@example(b'{"type":"step","data":NaN}')
@example(b'{"type":"step","data":' + b"9" * 6000 + b"}")
@example(b"[" * 10_000)
@example(b'{"a":' * 10_000)
def test_any_bytes_are_a_request_or_are_refused(raw: bytes) -> None:
    found = read(raw)

    if isinstance(found, Problem):
        assert found.code in CODES
        assert len(encode_reply("error", found)) < SHORT
        return
    again = as_python_reads_it(raw)
    if again is not None:
        assert (found.type, found.id, found.session, found.epoch) == tuple(
            again.get(key) for key in ("type", "id", "session", "epoch")
        )
        assert json.loads(bytes(found.data) or b"null") == again.get("data")


@given(NEAR)
def test_a_request_is_taken_exactly_if_its_shape_is_right(fields: dict[str, Any]) -> None:
    shape = {"type": str, "id": int, "session": str, "epoch": int}
    right = (
        isinstance(fields.get("type"), str)
        and fields.keys() <= {*shape, "data"}
        and all(fields.get(key) is None or type(fields[key]) is kind for key, kind in shape.items())
        and 1 <= (fields.get("id") or 1) <= 2**53
        and (fields.get("id") != 0)
        and 0 <= (fields.get("epoch") or 0) <= 2**53
        and len(fields.get("session") or "") <= 64
    )

    found = read(json.dumps(fields).encode())

    assert isinstance(found, Request) == right


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", Code.INVALID_JSON),
        (b"{", Code.INVALID_JSON),
        (b"nope", Code.INVALID_JSON),
        (b"null", Code.VALIDATION_ERROR),
        (b"[]", Code.VALIDATION_ERROR),
        (b"3", Code.VALIDATION_ERROR),
        (b'"step"', Code.VALIDATION_ERROR),
        (b"{}", Code.VALIDATION_ERROR),
        (b'{"type":3}', Code.VALIDATION_ERROR),
        (b'{"type":"step","id":0}', Code.VALIDATION_ERROR),
        (b'{"type":"step","id":-1}', Code.VALIDATION_ERROR),
        (b'{"type":"step","id":true}', Code.VALIDATION_ERROR),
        (b'{"type":"step","extra":1}', Code.VALIDATION_ERROR),
        (b'{"type":"stop","extra":1}', Code.UNKNOWN_TYPE),
        (b'{"type":"step","session":"' + b"x" * 65 + b'"}', Code.VALIDATION_ERROR),
        (b'{"type":"step","epoch":-1}', Code.VALIDATION_ERROR),
        (b'{"type":"step","type":"step"}', Code.INVALID_JSON),
        (b'{"type":"step","data":{"a":1,"a":2}}', Code.INVALID_JSON),
        (b'{"type":"step","data":{"a":1,"\\u0061":2}}', Code.INVALID_JSON),
        (b'{"type":"step","data":[[{"a":{},"a":{}}]]}', Code.INVALID_JSON),
        (deep(LIMITS.max_depth + 1), Code.TOO_DEEP),
        (b"[" * 10_000, Code.TOO_DEEP),
        (b" " * (LIMITS.max_message_bytes + 1), Code.TOO_LARGE),
    ],
)
def test_what_is_no_request_is_refused_with_a_code(raw: bytes, code: Code) -> None:
    problem = refusal(lambda: read_request(raw, LIMITS))

    assert problem.code == code
    assert len(encode_reply("error", problem)) < SHORT


def test_a_message_may_be_as_deep_and_as_long_as_was_said() -> None:
    long = b'{"type":"step","data":"' + b"x" * 19_975 + b'"}'

    assert len(long) == LIMITS.max_message_bytes
    assert read_request(long, LIMITS).type == "step"
    assert read_request(deep(LIMITS.max_depth), LIMITS).type == "step"


def test_the_data_is_left_as_it_came() -> None:
    request = read_request(b'{"type":"step","data": {"action" : [1, 2.50]} ,"id":7}', LIMITS)

    assert bytes(request.data) == b'{"action" : [1, 2.50]}'
    assert request.id == 7


@given(st.text(min_size=1, max_size=5).map(lambda name: name * 2_000))
def test_a_long_name_is_not_said_again_at_length(name: str) -> None:
    problem = refusal(lambda: read_request(message(type="step", **{name: 1}), LIMITS))

    assert len(encode_reply("error", problem)) < SHORT


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 3), min_size=1, max_size=4), st.data())
def test_a_key_that_comes_twice_is_refused_wherever_it_is(fields: dict[str, int], data: st.DataObject) -> None:
    twice = data.draw(st.sampled_from(sorted(fields)))
    pairs = [*fields.items(), (twice, 0)]
    inner = "{" + ",".join(f"{json.dumps(key)}:{value}" for key, value in pairs) + "}"

    problem = refusal(lambda: read_request(b'{"type":"step","data":[%s]}' % inner.encode(), LIMITS))

    assert problem.code == Code.INVALID_JSON


# --------------------------------------------------------------------------------------------------- what may come now
def test_every_kind_has_one_rule() -> None:
    assert [rule.kind for rule in RULES.values()] == list(MessageKind)
    assert all(name == rule.kind.value for name, rule in RULES.items())


FOR_AGENTS = (MessageKind.GRANT, MessageKind.REVOKE, MessageKind.WATCH, MessageKind.WAIT_END)
SESSIONS = (MessageKind.RESET, MessageKind.STEP, MessageKind.STATE, MessageKind.CANCEL, *FOR_AGENTS)
AFTER_HELLO = (MessageKind.OPEN, MessageKind.RESUME, MessageKind.CANCEL, *FOR_AGENTS)


@pytest.mark.parametrize("kind", MessageKind)
@pytest.mark.parametrize(("greeted", "fresh"), [(False, True), (False, False), (True, False)])
def test_a_request_may_come_exactly_when_the_protocol_says_so(kind: MessageKind, greeted: bool, fresh: bool) -> None:
    for number, session, epoch in product((None, 1), (None, "s"), (None, 0)):
        request = Request(kind.value, id=number, session=session, epoch=epoch)

        found = judged(request, greeted=greeted, fresh=fresh)

        bare = number is None and session is None and epoch is None
        if kind is MessageKind.HELLO:
            allowed = fresh
        elif greeted:
            allowed = (
                number is not None
                and (session is not None or kind not in SESSIONS)
                and (epoch is not None or kind not in (MessageKind.STEP, MessageKind.GRANT))
            )
        else:
            allowed = bare and kind not in AFTER_HELLO
        assert isinstance(found, RequestRule) == allowed
        if isinstance(found, RequestRule):
            assert found.kind is kind
        else:
            assert found.code in (Code.PROTOCOL_ERROR, Code.VALIDATION_ERROR)


@given(st.text(), st.booleans(), st.booleans())
def test_a_type_that_does_not_exist_is_unknown_at_any_time(kind: str, greeted: bool, fresh: bool) -> None:
    found = judged(Request(kind), greeted=greeted, fresh=fresh)

    if kind not in RULES:
        assert isinstance(found, Problem)
        assert found.code == Code.UNKNOWN_TYPE
        assert len(encode_reply("error", found)) < SHORT


@given(NEAR.map(json.dumps).map(str.encode), st.booleans(), st.booleans())
def test_whatever_was_read_is_judged(raw: bytes, greeted: bool, fresh: bool) -> None:
    found = read(raw)

    if isinstance(found, Request):
        verdict = judged(found, greeted=greeted, fresh=fresh)
        assert isinstance(verdict, RequestRule) or verdict.code in {*CODES, Code.PROTOCOL_ERROR}


# ------------------------------------------------------------------------------------------------------------ the data
@pytest.mark.parametrize("raw", [b"", b"null", b"{}"])
def test_no_data_is_empty_data(raw: bytes) -> None:
    assert decode_data(Request("open", msgspec.Raw(raw)), Open) == Open()
    assert decode_data(Request("reset", msgspec.Raw(raw)), Reset) == Reset()


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (Hello, b"{}"),
        (Hello, b'{"protocols":[]}'),
        (Hello, b'{"protocols":["1"]}'),
        (Hello, b'{"protocols":[1],"more":1}'),
        (Hello, b'{"protocols":[1],"client":"%s"}' % (b"x" * 201)),
        (Open, b'{"num_envs":0}'),
        (Open, b'{"num_envs":65537}'),
        (Open, b'{"step_timeout_seconds":0}'),
        (Open, b'{"step_timeout_seconds":1e400}'),
        (Open, b"[]"),
        (Reset, b'{"seed":"1"}'),
        (Reset, b'{"seed":1.5}'),
        (Reset, b'{"seed":true}'),
        (Reset, b'{"episode_id":"%s"}' % (b"x" * 201)),
        (Cancel, b"{}"),
        (Cancel, b'{"id":0}'),
        (Resume, b'{"session":"s"}'),
    ],
)
def test_data_of_another_shape_is_refused(kind: type[msgspec.Struct], raw: bytes) -> None:
    problem = refusal(lambda: decode_data(Request("x", msgspec.Raw(raw)), kind))

    assert problem.code == Code.VALIDATION_ERROR
    assert problem.errors


@given(st.sampled_from([Hello, Open, Resume, Reset, Cancel]), st.binary(max_size=40) | JSON.map(msgspec.json.encode))
@example(Reset, b"[" * 100_000)
def test_any_data_is_what_it_must_be_or_is_refused(kind: type[msgspec.Struct], raw: bytes) -> None:
    try:
        found: object = type(decode_data(Request("x", msgspec.Raw(raw)), kind))
    except RequestRefused as problem:
        found = problem.problem.code

    assert found in (kind, Code.VALIDATION_ERROR, Code.INVALID_JSON)


@given(st.text(min_size=1, max_size=5).map(lambda name: name * 2_000))
def test_a_long_name_in_the_data_is_not_said_again_at_length(name: str) -> None:
    raw = msgspec.json.encode({name: 1})

    problem = refusal(lambda: decode_data(Request("open", msgspec.Raw(raw)), Open))

    assert len(encode_reply("error", problem)) < SHORT


# ---------------------------------------------------------------------------------------------------- what is answered
@given(st.lists(st.integers(-5, 5), min_size=1, max_size=16))
def test_a_version_is_agreed_on_if_both_sides_know_it(versions: list[int]) -> None:
    hello = Hello(versions)

    if PROTOCOL in versions:
        assert choose_protocol(hello) == PROTOCOL
    else:
        assert refusal(lambda: choose_protocol(hello)).code == Code.UNSUPPORTED_PROTOCOL


def test_a_reply_says_only_what_it_has() -> None:
    assert json.loads(encode_reply("state", {"a": 1})) == {"type": "state", "data": {"a": 1}}
    assert json.loads(encode_reply("state", msgspec.Raw(b"{}"), 3, "s", 0)) == {
        "type": "state",
        "data": {},
        "id": 3,
        "session": "s",
        "epoch": 0,
    }
    assert json.loads(encode_reply("warning", Notice("IDLE", "soon", 1.0), session="s")) == {
        "type": "warning",
        "data": {"code": "IDLE", "message": "soon", "seconds_left": 1.0},
        "session": "s",
    }
    for problem, lost in ((Problem("no", Code.BUSY), {}), (Problem("no", Code.BUSY, lost=True), {"lost": True})):
        told = {"type": "error", "data": {"message": "no", "code": "BUSY", **lost}}
        assert json.loads(encode_reply("error", problem)) == told


FEW_BYTES = 100
"""The bound of the machine below, so that it is met often."""


def reply_to(number: int, size: int = 0) -> bytes:
    return b"%d:" % number + bytes(size)


class Remembered(RuleBasedStateMachine):
    """Every request that was ever seen, in the order in which it came, with what was answered to it."""

    @initialize(most=st.integers(1, 4))
    def begin(self, most: int) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(module, "MOST_KEPT_BYTES", FEW_BYTES)
        self.replies = ReplyCache(most)
        self.most = most
        self.orderly = True
        self.contents: dict[int, int] = {}
        self.answers: dict[int, bytes] = {}
        self.ran: list[int] = []
        self.last_kept: int | None = None

    def teardown(self) -> None:
        self.patch.undo()

    @property
    def running(self) -> list[int]:
        return [number for number in self.contents if number not in self.answers]

    def kept(self) -> dict[int, bytes]:
        """Return the replies that a repeated request would get."""
        found = {number: self.replies.admit(number, content) for number, content in self.contents.items()}
        kept = {number: answer for number, answer in found.items() if isinstance(answer, bytes)}
        assert all(self.replies.keeps(number) == (number in kept) for number in found)
        return kept

    @rule(ahead=st.integers(1, 3), content=st.integers(0, 1))
    def a_new_request_comes(self, ahead: int, content: int) -> None:
        number = max(self.contents, default=0) + ahead

        assert self.replies.admit(number, content) is Admission.NEW
        self.contents[number] = content
        self.ran.append(number)

    @rule(number=st.integers(1, 60), content=st.integers(0, 1))
    def any_request_comes(self, number: int, content: int) -> None:
        admission = self.replies.admit(number, content)

        if number > max(self.contents, default=0):
            assert admission is Admission.NEW
            self.contents[number] = content
            self.ran.append(number)
        elif number not in self.contents or self.contents[number] != content:
            assert admission is Admission.REUSED
        elif number in self.answers:
            assert admission in (self.answers[number], Admission.REUSED)
        else:
            assert admission is Admission.RUNNING

    @precondition(lambda self: self.running)
    @rule(data=st.data(), size=st.sampled_from((0, 0, 0, FEW_BYTES // 3, FEW_BYTES + 1)))
    def a_request_is_answered(self, data: st.DataObject, size: int) -> None:
        number = data.draw(st.sampled_from(self.running))
        self.orderly = self.orderly and number == self.running[0]
        self.answers[number] = reply_to(number, size)
        self.last_kept = number

        self.replies.keep(number, self.answers[number])

    @invariant()
    def nothing_runs_twice(self) -> None:
        assert len(self.ran) == len(set(self.ran))
        assert self.replies.last_id == max(self.contents, default=0)

    @invariant()
    def what_is_kept_is_exact_and_bounded(self) -> None:
        kept = self.kept()

        assert kept == {number: self.answers[number] for number in kept}
        assert len(kept) <= self.most
        assert len(kept) == 1 or sum(map(len, kept.values())) <= FEW_BYTES

    @invariant()
    def the_last_reply_is_always_kept(self) -> None:
        assert self.last_kept is None or self.last_kept in self.kept()

    @invariant()
    def small_replies_are_kept_as_long_as_was_promised(self) -> None:
        small = sum(map(len, self.answers.values())) <= FEW_BYTES
        if small and self.orderly and not self.running:
            assert sorted(self.kept()) == sorted(self.answers)[-self.most :]


TestRemembered = Remembered.TestCase
TestRemembered.settings = settings(deadline=None, stateful_step_count=30)


def test_what_came_before_the_server_was_ended_is_spent_but_for_what_had_no_effect() -> None:
    replies = ReplyCache(2)
    replies.restore(5, {3})

    assert replies.admit(4, 1) is Admission.REUSED
    assert replies.admit(5, 1) is Admission.REUSED
    assert replies.admit(3, 1) is Admission.NEW
    replies.keep(3, b"again")
    assert replies.admit(3, 1) == b"again"
    assert replies.last_id == 5
    assert replies.admit(6, 1) is Admission.NEW
