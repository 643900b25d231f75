from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from proctor.client.replies import (
    MOST_TEXT,
    describe_problem,
    exception_from_problem,
    is_loss,
    loss_from_problem,
    read_problem,
    read_reply,
)
from proctor.errors import ConnectionFailed, ProctorError, RemoteError, StateError, ValidationError
from proctor.models.control import LOSSES, Code, MessageKind, Metadata, Problem, RawReply

CODES = st.sampled_from(list(Code)) | st.text(max_size=8)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (Code.VALIDATION_ERROR, ValidationError),
        (Code.STATE_ERROR, StateError),
        (Code.BUSY, RemoteError),
        (Code.CAPACITY_REACHED, RemoteError),
        ("A_CODE_OF_TOMORROW", RemoteError),
    ],
)
def test_a_code_has_its_exception(code: str, kind: type[ProctorError]) -> None:
    problem = exception_from_problem(Problem("no", code, expected="yes", clause="NO-STEP-AFTER-END"))

    assert type(problem) is kind
    assert (problem.expected, problem.clause) == ("yes", "NO-STEP-AFTER-END")


@given(CODES, st.booleans(), st.booleans(), st.sampled_from(list(MessageKind)))
def test_what_says_lost_or_has_the_code_of_a_loss_is_one(
    code: str, lost: bool, greeted: bool, kind: MessageKind
) -> None:
    problem = Problem("no", code, lost=lost)

    if lost or code in LOSSES or code == Code.ID_REUSED:
        assert is_loss(problem, kind, greeted=greeted)
    elif greeted:
        assert not is_loss(problem, kind, greeted=True)


def test_without_hello_a_step_that_failed_inside_is_a_loss_and_a_state_is_not() -> None:
    problem = Problem("no", Code.EXECUTION_ERROR)

    assert is_loss(problem, MessageKind.STEP, greeted=False)
    assert not is_loss(problem, MessageKind.STATE, greeted=False)


def test_people_read_where_it_went_wrong_and_the_incident() -> None:
    errors: list[dict[str, Any]] = [{"loc": ["action", 0], "msg": "too large", "type": "x"}, {"msg": "odd"}]
    text = describe_problem(Problem("not an action", Code.VALIDATION_ERROR, errors=errors, incident="i7"))

    assert text == "not an action; action.0: too large; it: odd; incident i7"


def test_what_the_message_says_already_is_not_said_twice() -> None:
    problem = Problem("not an action: a: too large", Code.VALIDATION_ERROR, errors=[{"loc": ["a"], "msg": "too large"}])

    assert describe_problem(problem) == problem.message


def test_a_peer_s_text_is_shortened() -> None:
    assert len(describe_problem(Problem("x" * 10_000, ""))) == MOST_TEXT


@given(st.binary(max_size=40))
def test_whatever_an_error_carries_it_is_a_problem(data: bytes) -> None:
    assert isinstance(read_problem(Raw(data)), Problem)


def test_a_loss_keeps_the_server_s_code() -> None:
    assert loss_from_problem(Problem("late", Code.STEP_TIMEOUT)).code == "STEP_TIMEOUT"
    assert loss_from_problem(Problem("?", "")).code == "EPISODE_LOST"


@pytest.mark.parametrize(
    "reply", [RawReply("metadata", Raw(b"[]")), RawReply("opened", Raw(b"{}")), RawReply("metadata")]
)
def test_a_reply_that_is_something_else_is_no_answer(reply: RawReply) -> None:
    with pytest.raises(ConnectionFailed):
        read_reply(reply, "metadata", Metadata)


def test_a_reply_is_read_and_an_error_is_raised() -> None:
    told: dict[str, Any] = {
        "name": "n",
        "description": "",
        "version": "0",
        "server": "s",
        "protocols": [1],
        "num_envs": True,
    }
    problem = Problem("no room", Code.CAPACITY_REACHED)

    assert read_reply(RawReply("metadata", Raw(msgspec.json.encode(told))), "metadata", Metadata).name == "n"
    with pytest.raises(RemoteError, match="no room"):
        read_reply(RawReply("error", Raw(msgspec.json.encode(problem))), "metadata", Metadata)
