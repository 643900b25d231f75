"""What a server says, and what a client's models, exceptions and position make of it."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from proctor.client.replies import (
    MOST_TEXT,
    EpisodeLoss,
    EpisodePosition,
    LossReason,
    describe_problem,
    encode_observation,
    exception_from_problem,
    is_loss,
    loss_from_problem,
    read_model,
    read_problem,
    read_reply,
)
from proctor.errors import ConnectionFailed, ProctorError, RemoteError, StateError, ValidationError
from proctor.models.control import LOSSES, Code, MessageKind, Metadata, ObservationReply, Problem, RawReply
from tests.client.counting import Count

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


NUMBERS = st.integers(0, 5)
SOME = st.none() | NUMBERS
LOSS = EpisodeLoss("gone", LossReason.WRONG_EPISODE)


@given(NUMBERS, NUMBERS, SOME, SOME)
def test_only_the_next_step_of_this_epoch_is_a_step(
    epoch: int, step: int, said: int | None, counted: int | None
) -> None:
    place = EpisodePosition(epoch, step)

    assert (place.wrong_step(said, counted) is None) == ((said, counted) == (epoch, step + 1))


@given(NUMBERS, NUMBERS, SOME, SOME)
def test_only_the_next_epoch_at_step_0_is_a_reset(epoch: int, step: int, said: int | None, counted: int | None) -> None:
    place = EpisodePosition(epoch, step)

    assert (place.wrong_reset(said, counted) is None) == ((said, counted) == (epoch + 1, 0))


@given(NUMBERS, SOME, SOME)
def test_after_a_loss_any_later_epoch_at_step_0_is_a_reset(epoch: int, said: int | None, counted: int | None) -> None:
    place = EpisodePosition(epoch, loss=LOSS)

    assert (place.wrong_reset(said, counted) is None) == (said is not None and said > epoch and counted == 0)


@given(NUMBERS, SOME)
def test_another_epoch_is_wrong_and_none_says_nothing(epoch: int, said: int | None) -> None:
    assert (EpisodePosition(epoch).wrong_epoch(said) is None) == (said is None or said == epoch)


@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.booleans(), st.booleans())
def test_a_session_comes_back_where_it_was_or_where_its_last_request_led(
    epoch: int, step: int, said: int, counted: int, resets: bool, steps: bool
) -> None:
    wrong = EpisodePosition(epoch, step).wrong_return(said, counted, resets=resets, steps=steps)
    here = (said, counted) == (epoch, step)
    stepped = steps and (said, counted) == (epoch, step + 1)
    begun = resets and (said, counted) == (epoch + 1, 0)

    assert (wrong is None) == (here or stepped or begun)


@given(NUMBERS, NUMBERS, SOME, SOME)
def test_where_agents_act_a_step_may_come_later_but_never_earlier(
    epoch: int, step: int, said: int | None, counted: int | None
) -> None:
    place = EpisodePosition(epoch, step, agents=True)

    assert (place.wrong_step(said, counted) is None) == (said == epoch and counted is not None and counted > step)


@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.booleans(), st.booleans())
def test_where_agents_act_a_session_comes_back_there_or_further_on(
    epoch: int, step: int, said: int, counted: int, resets: bool, steps: bool
) -> None:
    wrong = EpisodePosition(epoch, step, agents=True).wrong_return(said, counted, resets=resets, steps=steps)
    further = said == epoch and counted >= step
    begun = resets and (said, counted) == (epoch + 1, 0)

    assert (wrong is None) == (further or begun)


@given(NUMBERS, NUMBERS)
def test_an_episode_begins_without_agents_and_after_the_rows_that_were_read(step: int, rows: int) -> None:
    place = EpisodePosition(1, step, agents=True, rows=rows)
    place.begin(2, ended=False)

    assert (place.agents, place.earlier_rows, place.rows) == (False, rows, rows)


@given(st.lists(st.sampled_from(["begin", "step", "lose"]), max_size=20))
def test_only_a_beginning_ends_a_loss_and_the_first_reason_stays(moves: list[str]) -> None:
    place = EpisodePosition()
    lost: str | None = None
    for number, move in enumerate(moves):
        if move == "begin":
            place.begin(place.epoch + 1, ended=False)
            lost = None
        elif move == "step":
            place.step += 1
        else:
            place.lose(EpisodeLoss(str(number), LossReason.NO_ANSWER))
            lost = lost or str(number)

        assert (None if place.loss is None else place.loss.message) == lost


def test_a_loss_is_a_new_exception_every_time() -> None:
    first, second = LOSS.exception(), LOSS.exception()

    assert first is not second
    assert (first.message, first.code) == ("gone", "WRONG_EPISODE")


FIELDS: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from(["total", "reward", "terminated", "metadata", "ö", "}"]),
    st.none() | st.integers() | st.text() | st.just({}) | st.lists(st.integers(), max_size=3),
)


@given(
    FIELDS, st.none() | st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.booleans(), st.booleans()
)
def test_what_travelled_beside_an_observation_holds_and_what_is_inside_stays(
    inside: dict[str, Any], reward: float | None, terminated: bool, truncated: bool, told: bool
) -> None:
    metadata: Any = Raw(b'{"seed":1}') if told else UNSET
    seen = ObservationReply(
        Raw(msgspec.json.encode(inside)), reward, terminated or truncated, metadata, terminated, truncated
    )
    found = msgspec.json.decode(encode_observation(seen))
    beside = {"reward": reward, "terminated": terminated, "truncated": truncated}

    assert {key: found[key] for key in beside} == beside
    assert found["metadata"] == ({"seed": 1} if told else inside.get("metadata", {}))
    assert {key: found[key] for key in inside.keys() - {*beside, "metadata"}} == {
        key: inside[key] for key in inside.keys() - {*beside, "metadata"}
    }


@pytest.mark.parametrize("inside", [b"[]", b"1", b'"{}"', b""])
def test_an_observation_that_is_no_object_is_refused(inside: bytes) -> None:
    with pytest.raises(ValidationError):
        encode_observation(ObservationReply(Raw(inside), None, False))


def test_without_hello_done_means_terminated() -> None:
    found = msgspec.json.decode(encode_observation(ObservationReply(Raw(b"{}"), 0.5, True)))

    assert found == {"metadata": {}, "reward": 0.5, "terminated": True, "truncated": False}


def test_what_does_not_fit_a_model_names_the_place() -> None:
    with pytest.raises(ValidationError, match="the server's action does not fit Count: by"):
        read_model(Count, b'{"by":"x"}', "action")
