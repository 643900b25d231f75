"""What happened besides steps and packets is told in one sentence."""

import pytest

from proctor.models.events import AgentGranted, AgentRevoked, Event, SessionResumed
from proctor.viewer.slices import NOTE_SENTENCES
from tests.ledger.session_events import NOON, batch_reset, closed, failure, reset


def resumed(lost: str | None) -> SessionResumed:
    return SessionResumed(session="s", at=NOON, epoch=1, step=3, boot="b", server="1", lost=lost)


@pytest.mark.parametrize(
    ("event", "kind", "text"),
    [
        (
            failure(request="step", clause="ENV-STEP-P1"),
            "failed",
            "The request step was refused by ENV-STEP-P1: VALIDATION_ERROR.",
        ),
        (
            failure(code="EXECUTION_ERROR", lost=True, incident="i7"),
            "failed",
            "The server failed and the episode was lost: EXECUTION_ERROR, incident i7.",
        ),
        (
            AgentGranted(session="s", at=NOON, epoch=1, grant="g", agent="fox", tools=["move", "sniff"]),
            "granted",
            "The agent fox was granted tools: move, sniff.",
        ),
        (
            AgentGranted(session="s", at=NOON, epoch=1, grant="g", tools=[]),
            "granted",
            "An agent without a name was granted tools: none.",
        ),
        (AgentRevoked(session="s", at=NOON, epoch=1, grant="g"), "revoked", "The grant g was taken back."),
        (resumed(None), "resumed", "Another run of the server took the session up and rebuilt the episode."),
        (
            resumed("it differs"),
            "resumed",
            "Another run of the server took the session up, and the episode could not go on: it differs.",
        ),
        (batch_reset(mask=b"[true,false]"), "reset", "Some of the batch began another episode."),
        (reset(), "reset", "Another episode began."),
        (closed(steps=1), "closed", "The episode was closed (closed) after 1 step."),
        (
            closed(steps=2, outcome="open", state="S6_EXECUTE", obligations=["a token", "a report"]),
            "closed",
            "The episode was closed (closed) after 2 steps, judged open in S6_EXECUTE; still owed: a token, a report.",
        ),
    ],
)
def test_every_kind_of_note_has_its_sentence(event: Event, kind: str, text: str) -> None:
    named, sentence = NOTE_SENTENCES[type(event)]

    assert (named, sentence(event)) == (kind, text)
