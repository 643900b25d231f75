"""What a record says of where its session stands is read exactly."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from proctor.models.control import Code
from proctor.models.events import (
    NULL,
    AgentGranted,
    AgentRevoked,
    BatchReset,
    BatchStepped,
    EpisodeClosed,
    EpisodeReset,
    EpisodeStepped,
    Event,
    Failed,
    PacketJudged,
    SessionResumed,
)
from proctor.server.sessions.response_builder import Caller
from proctor.server.sessions.session_factory import read_history

AT: dict[str, Any] = {"session": "s", "at": 1.5}
RESET = EpisodeReset(**AT, epoch=3, episode_id="e", seed=1, observation=Raw(b'{"x":1}'), nth=2)
GRANTED = AgentGranted(**AT, epoch=3, grant="g", agent="walker", tools=["act"])


def stepped(step: int, **more: Any) -> EpisodeStepped:
    fields: dict[str, Any] = {
        "action": Raw(b'{"by":1}'),
        "observation": Raw(b'{"x":1.0}'),
        "raw_reward": 1.0,
        "reward": 1.5,
        "terminated": False,
        "truncated": False,
    }
    return EpisodeStepped(**AT, epoch=3, step=step, **(fields | more))


def closed(reason: str) -> EpisodeClosed:
    return EpisodeClosed(**AT, epoch=3, steps=2, reason=reason)


def test_nothing_on_record_is_no_episode() -> None:
    history = read_history([], 7)

    assert (history.position.epoch, history.position.total_steps, history.position.concluded) == (0, 7, True)
    assert history.position.loss is None


def test_a_session_stands_where_its_last_step_left_it() -> None:
    history = read_history([RESET, stepped(1), stepped(2, terminated=True)], 40)

    position = history.position
    assert (position.epoch, position.step_count, position.total_steps, position.episode_id, position.resets) == (
        (3, 2, 42, "e", 2)
    )
    assert (position.standing.terminated, position.standing.total_reward, position.standing.reward) == (True, 3.0, 1.5)
    assert (position.concluded, position.loss, history.closing) == (False, None, None)


def test_a_batch_whose_episodes_begin_one_by_one_counts_its_steps_from_the_last() -> None:
    whole = BatchReset(**AT, epoch=4, episode_id="e", observations=NULL)
    some = BatchReset(**AT, epoch=5, episode_id="f", observations=NULL, mask=Raw(b"[true]"), nth=2)
    step = BatchStepped(
        **AT,
        epoch=4,
        step=1,
        actions=NULL,
        observations=NULL,
        raw_rewards=NULL,
        rewards=NULL,
        terminations=NULL,
        truncations=NULL,
    )

    history = read_history([whole, step, some, replace(step, epoch=5)])

    position = history.position
    assert (position.epoch, position.step_count, position.total_steps, position.resets) == (5, 1, 2, 2)
    assert history.caller(step) is None


def test_grants_that_were_taken_back_are_gone_but_who_acted_with_them_is_known() -> None:
    other = replace(GRANTED, grant="h", agent="runner")
    again = replace(GRANTED, digest="ff")
    history = read_history([RESET, GRANTED, other, AgentRevoked(**AT, epoch=3, grant="h"), again])

    assert history.granted == {"g": again}
    assert history.caller(stepped(1, grant="h", tool="act")) == Caller("h", "runner", "act")
    assert history.caller(stepped(1)) is None


@pytest.mark.parametrize(
    ("event", "code", "message"),
    [
        (
            Failed(**AT, epoch=3, step=1, code="STEP_TIMEOUT", request="step", lost=True),
            "STEP_TIMEOUT",
            "a step failed",
        ),
        (SessionResumed(**AT, epoch=3, step=1, boot="b", server="1", lost="why"), Code.EPISODE_LOST, "why"),
        (closed("reset"), Code.EPISODE_LOST, "it was closed, and the next one had not begun"),
        (Failed(**AT, epoch=3, step=1, code="STATE_ERROR", request="step"), None, ""),
        (SessionResumed(**AT, epoch=3, step=1, boot="b", server="1"), None, ""),
    ],
)
def test_what_was_lost_is_lost(event: Event, code: str | None, message: str) -> None:
    loss = read_history([RESET, event]).position.loss

    assert (None if loss is None else loss.code) == code
    assert loss is None or loss.message.startswith(message)


@pytest.mark.parametrize(
    ("reason", "closing"), [("reset", None), ("lost", None), ("closed", "closed"), ("idle", "idle")]
)
def test_a_session_that_was_being_closed_is_known(reason: str, closing: str | None) -> None:
    history = read_history([RESET, closed(reason)])

    assert history.position.concluded
    assert history.closing == closing


@pytest.mark.parametrize(
    ("lost", "later", "code"),
    [
        (Failed(**AT, epoch=3, step=0, code="EXECUTION_ERROR", lost=True), closed("lost"), "EXECUTION_ERROR"),
        (
            SessionResumed(**AT, epoch=3, step=1, boot="b", server="1", lost="why"),
            Failed(**AT, epoch=3, step=1, code="STEP_TIMEOUT", request="step", lost=True),
            "EPISODE_LOST",
        ),
    ],
)
def test_the_first_reason_of_a_loss_stays(lost: Event, later: Event, code: str) -> None:
    loss = read_history([RESET, lost, later]).position.loss

    assert loss is not None
    assert loss.code == code


def test_an_episode_that_has_come_to_its_end_stays_as_it_is() -> None:
    history = read_history([RESET, stepped(1, terminated=True), closed("ended")])

    assert (history.position.concluded, history.position.loss, history.closing) == (True, None, None)
    assert history.closed == closed("ended")


def test_packets_are_kept_in_order() -> None:
    packets = [
        PacketJudged(**AT, epoch=3, step=0, line=Raw(b"%d" % each), kind="k", accepted=True) for each in range(3)
    ]

    assert read_history([RESET, *packets]).packets == packets
