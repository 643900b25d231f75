"""What happened besides steps and packets, told in one sentence each. Pure.

Rule 1: what has a row in `NOTES` is a note; steps and packets are told elsewhere, and a session's opening is the head's.
"""

from collections.abc import Callable
from typing import Any, Final

from proctor.models.events import (
    AgentGranted,
    AgentRevoked,
    BatchReset,
    EpisodeClosed,
    EpisodeReset,
    Failed,
    SessionResumed,
)


def _failed(event: Failed) -> str:
    what = f"The request {event.request}" if event.request else "The server"
    incident = f", incident {event.incident}" if event.incident else ""
    if event.lost:
        return f"{what} failed and the episode was lost: {event.code}{incident}."
    clause = f" by {event.clause}" if event.clause else ""
    return f"{what} was refused{clause}: {event.code}{incident}."


def _granted(event: AgentGranted) -> str:
    who = f"The agent {event.agent}" if event.agent else "An agent without a name"
    tools = ", ".join(event.tools) or "none"
    return f"{who} was granted tools: {tools}."


def _revoked(event: AgentRevoked) -> str:
    return f"The grant {event.grant} was taken back."


def _resumed(event: SessionResumed) -> str:
    if event.lost is not None:
        return f"Another run of the server took the session up, and the episode could not go on: {event.lost}."
    return "Another run of the server took the session up and rebuilt the episode."


def _reset(event: EpisodeReset | BatchReset) -> str:
    some = isinstance(event, BatchReset) and bytes(event.mask) != b"null"
    return "Some of the batch began another episode." if some else "Another episode began."


def _closed(event: EpisodeClosed) -> str:
    steps = "step" if event.steps == 1 else "steps"
    judged = "" if event.outcome is None else f", judged {event.outcome}"
    state = "" if event.state is None else f" in {event.state}"
    left = f"; still owed: {', '.join(event.obligations)}" if event.obligations else ""
    return f"The episode was closed ({event.reason}) after {event.steps} {steps}{judged}{state}{left}."


NOTES: Final[dict[type, tuple[str, Callable[[Any], str]]]] = {
    Failed: ("failed", _failed),
    AgentGranted: ("granted", _granted),
    AgentRevoked: ("revoked", _revoked),
    SessionResumed: ("resumed", _resumed),
    EpisodeReset: ("reset", _reset),
    BatchReset: ("reset", _reset),
    EpisodeClosed: ("closed", _closed),
}
"""The name of each kind of note, and its sentence."""
