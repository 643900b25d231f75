"""What a server's replies mean to a caller: JSON becomes a client's models, a coded problem becomes an exception of ours.

Rule 1: a problem that says `lost`, or whose code is one of `LOSSES` or ID_REUSED, is a loss; all others leave the episode
    where it was.
Rule 2: without `hello` a server cannot say `lost`: there a step that failed inside the environment is a loss, because
    nobody knows how far it came.
Rule 3: a server's text is shown shortened; it is the text of a peer.
Rule 4: what does not fit a model is a ValidationError that names the place, never a guess.
Rule 5: what travels beside an observation is joined with it here and nowhere else.
"""

from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType
from pydantic import BaseModel
from pydantic import ValidationError as ModelError

from proctor.client.continuity import EpisodeLoss
from proctor.errors import ConnectionFailed, ProctorError, RemoteError, StateError, ValidationError
from proctor.models.control import LOSSES, Code, MessageKind, ObservationReply, Problem, RawReply

ModelT = TypeVar("ModelT", bound=BaseModel)
WORDS: Final = {True: b"true", False: b"false"}


def encode_observation(seen: ObservationReply) -> bytes:
    """Return the JSON of a whole observation: what is inside, and what travelled beside it.

    A server without `hello` says only `done`: then it is taken for `terminated`.
    """
    inside = bytes(seen.observation)
    if inside[:1] != b"{" or inside[-1:] != b"}":
        raise ValidationError("the server's observation is no object", expected="a JSON object")
    terminated = seen.terminated if isinstance(seen.terminated, bool) else seen.done
    truncated = seen.truncated if isinstance(seen.truncated, bool) else False
    # Ours come last and hold if the object inside has such keys as well; but metadata may be inside (OpenEnv's are).
    fields = inside[1:-1].strip()
    return b'{"metadata":{},%b"reward":%b,"terminated":%b,"truncated":%b%b}' % (
        fields + b"," if fields else b"",
        b"null" if seen.reward is None else repr(seen.reward).encode(),
        WORDS[terminated],
        WORDS[truncated],
        b',"metadata":%b' % seen.metadata if isinstance(seen.metadata, Raw) else b"",
    )


def encode_json(value: Any) -> bytes:
    """Return a value as JSON, or a ValidationError."""
    try:
        return msgspec.json.encode(value)
    except TypeError as problem:
        raise ValidationError(f"this cannot be said in JSON: {problem}", expected="JSON values") from None


def read_model(model: type[ModelT], text: bytes | Raw, word: str) -> ModelT:
    """Return what the server said as a model; `word` is what it is called."""
    try:
        return model.__pydantic_validator__.validate_json(bytes(text))  # type: ignore[no-any-return]
    except ModelError as problem:
        first = problem.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "it"
        raise ValidationError(
            f"the server's {word} does not fit {model.__name__}: {where}: {first['msg']}",
            expected="a client whose types match the server's",
        ) from None


T = TypeVar("T")
MOST_TEXT: Final = 500
MOST_ERRORS: Final = 3
FORGOTTEN_CODES: Final = frozenset({Code.EPISODE_LOST, Code.SESSION_ERROR})
"""How a server that answered `hello` speaks of a session that it does not know any more."""
UNREADABLE: Final = Problem(message="the server sent an error that cannot be read", code="")
_DECODER: Final = msgspec.json.Decoder(Problem)


def read_problem(data: Raw) -> Problem:
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
    return not greeted and kind in (MessageKind.RESET, MessageKind.STEP) and problem.code == Code.EXECUTION_ERROR


def exception_from_problem(problem: Problem) -> ProctorError:
    """Return the exception for a problem that leaves the episode where it was."""
    message, expected, clause = (
        describe_problem(problem),
        _none_if_unset(problem.expected),
        _none_if_unset(problem.clause),
    )
    if problem.code == Code.VALIDATION_ERROR:
        return ValidationError(message, expected=expected, clause=clause)
    if problem.code == Code.STATE_ERROR:
        return StateError(message, expected=expected, clause=clause)
    return RemoteError(message, code=problem.code, expected=expected, clause=clause)


def loss_from_problem(problem: Problem) -> EpisodeLoss:
    """Return what a problem that ends the episode says."""
    return EpisodeLoss(describe_problem(problem), problem.code or Code.EPISODE_LOST)


def read_reply(reply: RawReply, expected: str, model: type[T]) -> T:
    """Return what a reply that belongs to no session says, or raise what it refuses."""
    if reply.type == "error":
        raise exception_from_problem(read_problem(reply.data))
    try:
        if reply.type == expected:
            return msgspec.json.decode(reply.data, type=model)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    raise ConnectionFailed(f"the server sent something else than {expected!r}", found=reply.type)


def describe_problem(problem: Problem) -> str:
    """Return what the problem says to people: the message, where it went wrong, and the incident's number."""
    parts = [problem.message]
    if isinstance(problem.errors, list):
        parts += [
            part for part in map(_describe_field_error, problem.errors[:MOST_ERRORS]) if part not in problem.message
        ]
    if isinstance(problem.incident, str):
        parts.append(f"incident {problem.incident}")
    return "; ".join(parts)[:MOST_TEXT]


def _describe_field_error(error: dict[str, Any]) -> str:
    place = error.get("loc")
    where = ".".join(str(part) for part in place) if isinstance(place, list) else ""
    return f"{where or 'it'}: {error.get('msg', 'not acceptable')}"


def _none_if_unset(value: str | UnsetType) -> str | None:
    return None if value is UNSET or isinstance(value, UnsetType) else value
