"""What an error of a server means to a caller: a coded problem becomes an exception of ours.

Rule 1: a problem that says `lost`, or whose code is one of `LOSSES` or ID_REUSED, is a loss; all others leave the episode
    where it was.
Rule 2: without `hello` a server cannot say `lost`: there a step that failed inside the environment is a loss, because
    nobody knows how far it came.
Rule 3: a server's text is shown shortened; it is the text of a peer.
"""

from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from proctor.client.continuity import Loss
from proctor.errors import ConnectionFailed, ProctorError, RemoteError, StateError, ValidationError
from proctor.models.control import LOSSES, Code, Kind, Problem, RawReply

T = TypeVar("T")
MOST_TEXT: Final = 500
MOST_ERRORS: Final = 3
FORGOTTEN: Final = frozenset({Code.EPISODE_LOST, Code.SESSION_ERROR})
"""How a server that answered `hello` speaks of a session that it does not know any more."""
UNREADABLE: Final = Problem(message="the server sent an error that cannot be read", code="")
_DECODER: Final = msgspec.json.Decoder(Problem)


def problem_of(data: Raw) -> Problem:
    """Return the problem that an error message carries; never raises."""
    try:
        return _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return UNREADABLE


def is_loss(problem: Problem, kind: str, *, greeted: bool) -> bool:
    """Return whether the episode is lost after this answer to a request of this kind."""
    # Every request of ours has an id of its own: one that is known is a reply that was kept no longer.
    if problem.lost is True or problem.code in LOSSES or problem.code == Code.ID_REUSED:
        return True
    return not greeted and kind in (Kind.RESET, Kind.STEP) and problem.code == Code.EXECUTION_ERROR


def exception_of(problem: Problem) -> ProctorError:
    """Return the exception for a problem that leaves the episode where it was."""
    message, expected, clause = text_of(problem), _set(problem.expected), _set(problem.clause)
    if problem.code == Code.VALIDATION_ERROR:
        return ValidationError(message, expected=expected, clause=clause)
    if problem.code == Code.STATE_ERROR:
        return StateError(message, expected=expected, clause=clause)
    return RemoteError(message, code=problem.code, expected=expected, clause=clause)


def loss_of(problem: Problem) -> Loss:
    """Return what a problem that ends the episode says."""
    return Loss(text_of(problem), problem.code or Code.EPISODE_LOST)


def read_reply(reply: RawReply, expected: str, model: type[T]) -> T:
    """Return what a reply that belongs to no session says, or raise what it refuses."""
    if reply.type == "error":
        raise exception_of(problem_of(reply.data))
    try:
        if reply.type == expected:
            return msgspec.json.decode(reply.data, type=model)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    raise ConnectionFailed(f"the server sent something else than {expected!r}", found=reply.type)


def text_of(problem: Problem) -> str:
    """Return what the problem says to people: the message, where it went wrong, and the incident's number."""
    parts = [problem.message]
    if isinstance(problem.errors, list):
        parts += [part for part in map(_place_of, problem.errors[:MOST_ERRORS]) if part not in problem.message]
    if isinstance(problem.incident, str):
        parts.append(f"incident {problem.incident}")
    return "; ".join(parts)[:MOST_TEXT]


def _place_of(error: dict[str, Any]) -> str:
    place = error.get("loc")
    where = ".".join(str(part) for part in place) if isinstance(place, list) else ""
    return f"{where or 'it'}: {error.get('msg', 'not acceptable')}"


def _set(value: str | UnsetType) -> str | None:
    return None if value is UNSET or isinstance(value, UnsetType) else value
