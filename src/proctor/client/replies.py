"""What a server's replies mean to a caller: models, exceptions, and whether they belong to the episode that the client is in. Pure.

Rule 1: a problem that says `lost`, or whose code is one of `LOSSES` or ID_REUSED, is a loss; all others leave the episode
    where it was. Without `hello` a server cannot say `lost`: there a step that failed inside the environment is one, too.
Rule 2: a client knows its epoch and its step; a reply that speaks of others is not about this episode, whatever it says. A
    doubt is a loss, and nothing but a reply to a reset ends it.
Rule 3: where agents act as well, an episode moves on between two requests; it never moves back.
Rule 4: a server's text is shown shortened; what does not fit a model is a ValidationError that names the place, never a guess.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw
from pydantic import BaseModel
from pydantic import ValidationError as ModelError

from proctor.errors import ConnectionFailed, EpisodeLost, ProctorError, RemoteError, StateError, ValidationError
from proctor.models.control import LOSSES, Code, MessageKind, ObservationReply, Problem, RawReply

T = TypeVar("T")
ModelT = TypeVar("ModelT", bound=BaseModel)
WORDS: Final = {True: b"true", False: b"false"}
MOST_TEXT: Final = 500
MOST_ERRORS: Final = 3
FORGOTTEN_CODES: Final = frozenset({Code.EPISODE_LOST, Code.SESSION_ERROR})
"""How a server that answered `hello` speaks of a session that it does not know any more."""
_PROBLEM: Final = msgspec.json.Decoder(Problem).decode


class LossReason(StrEnum):
    """Why a client by itself gives an episode up; a server's own reasons are in `models.control.LOSSES`."""

    WRONG_EPISODE = "WRONG_EPISODE"
    """A reply spoke of another epoch or step."""
    UNREADABLE = "UNREADABLE"
    """A reply could not be read, so nobody knows what it said."""
    UNHEARD = "UNHEARD"
    """The step or reset took place, but its caller had gone."""
    NO_ANSWER = "NO_ANSWER"
    """A request came to no end and could not be taken back."""
    CONNECTION_LOST = "CONNECTION_LOST"
    """The connection broke and the session could not be found again in time, or never can be (no `hello`)."""
    SERVER_RESTARTED = "SERVER_RESTARTED"
    """Another run of the server answers, and it has not taken the session up."""
    SUPERSEDED = "SUPERSEDED"
    """Another connection has resumed the session."""


@dataclass(frozen=True, slots=True)
class EpisodeLoss:
    """Why an episode is lost."""

    message: str
    code: str

    def exception(self) -> EpisodeLost:
        """Return a new exception that says so."""
        return EpisodeLost(self.message, code=self.code)


@dataclass(slots=True)
class EpisodePosition:
    """Where a session stands as far as its client knows; a judgement is None or a sentence that says what is wrong."""

    epoch: int = 0
    step: int = 0
    ended: bool = False
    """For servers that do not guard the lifecycle."""
    loss: EpisodeLoss | None = None
    agents: bool = False
    """Whether somebody was given a grant on this episode, so that not every step is the client's own."""
    rows: int = 0
    """The last row of what agents did that was read in this session."""
    earlier_rows: int = 0
    """As many of them, at least, belong to earlier episodes."""

    def lose(self, loss: EpisodeLoss) -> EpisodeLoss:
        """Note that the episode is lost, and return the reason; the first reason stays."""
        if self.loss is None:
            self.loss = loss
        return self.loss

    def begin(self, epoch: int, *, ended: bool) -> None:
        """Note that a reset has succeeded."""
        self.epoch, self.step, self.ended, self.loss = epoch, 0, ended, None
        self.agents, self.earlier_rows = False, self.rows

    def wrong_reset(self, epoch: object, step: object) -> str | None:
        """Judge the numbers in the reply to a reset; after a loss any later epoch will do."""
        if step != 0:
            return f"the reply to a reset says step {step}"
        if not isinstance(epoch, int) or epoch <= self.epoch or (self.loss is None and epoch != self.epoch + 1):
            return f"the reply to a reset says epoch {epoch} after epoch {self.epoch}"
        return None

    def wrong_step(self, epoch: object, step: object) -> str | None:
        """Judge the numbers in the reply to a step."""
        if epoch != self.epoch or not (step == self.step + 1 or self._beyond(step, self.step + 1)):
            return f"the reply says epoch {epoch}, step {step}, after epoch {self.epoch}, step {self.step}"
        return None

    def wrong_epoch(self, epoch: object) -> str | None:
        """Judge the epoch of any other reply; one that says none says nothing wrong."""
        if epoch is not None and epoch != self.epoch:
            return f"the reply says epoch {epoch} in epoch {self.epoch}"
        return None

    def wrong_return(self, epoch: object, step: object, *, resets: bool, steps: bool) -> str | None:
        """Judge where a resumed session stands, when a reset or a step may have been carried out unheard."""
        legal = {(self.epoch, self.step)}
        if resets:
            legal.add((self.epoch + 1, 0))
        if steps:
            legal.add((self.epoch, self.step + 1))
        if (epoch, step) not in legal and not (epoch == self.epoch and self._beyond(step, self.step)):
            return f"the session stands at epoch {epoch}, step {step}, not at epoch {self.epoch}, step {self.step}"
        return None

    def _beyond(self, step: object, least: int) -> bool:
        """Return whether agents can have led the episode from `least` to this step."""
        return self.agents and isinstance(step, int) and step >= least


def encode_observation(seen: ObservationReply) -> bytes:
    """Return the JSON of a whole observation: what is inside, and what travelled beside it.

    A server without `hello` says only `done`: then it is taken for `terminated`.
    """
    inside = bytes(seen.observation)
    if inside[:1] != b"{" or inside[-1:] != b"}":
        raise ValidationError("the server's observation is no object", expected="a JSON object")
    terminated = seen.terminated if isinstance(seen.terminated, bool) else seen.done
    # Ours come last and hold if the object inside has such keys as well; but metadata may be inside (OpenEnv's are).
    fields = inside[1:-1].strip()
    return b'{"metadata":{},%b"reward":%b,"terminated":%b,"truncated":%b%b}' % (
        fields + b"," if fields else b"",
        b"null" if seen.reward is None else repr(seen.reward).encode(),
        WORDS[terminated],
        WORDS[seen.truncated is True],
        b',"metadata":%b' % seen.metadata if isinstance(seen.metadata, Raw) else b"",
    )


def encode_json(value: Any, *, enc_hook: Callable[[Any], Any] | None = None) -> bytes:
    """Return a value as JSON, or a ValidationError; `enc_hook` says what JSON itself cannot."""
    try:
        return msgspec.json.encode(value, enc_hook=enc_hook)
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


def read_problem(data: Raw) -> Problem:
    """Return the problem that an error message carries; never raises."""
    try:
        return _PROBLEM(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Problem(message="the server sent an error that cannot be read", code="")


def is_loss(problem: Problem, kind: str, *, greeted: bool) -> bool:
    """Return whether the episode is lost after this answer to a request of this kind."""
    # Every request of ours has an id of its own: one that is known is a reply that was kept no longer.
    if problem.lost is True or problem.code in LOSSES or problem.code == Code.ID_REUSED:
        return True
    return not greeted and kind in (MessageKind.RESET, MessageKind.STEP) and problem.code == Code.EXECUTION_ERROR


def exception_from_problem(problem: Problem) -> ProctorError:
    """Return the exception for a problem that leaves the episode where it was."""
    message = describe_problem(problem)
    more = {
        "expected": problem.expected if isinstance(problem.expected, str) else None,
        "clause": problem.clause if isinstance(problem.clause, str) else None,
    }
    if problem.code == Code.VALIDATION_ERROR:
        return ValidationError(message, **more)
    if problem.code == Code.STATE_ERROR:
        return StateError(message, **more)
    return RemoteError(message, code=problem.code, **more)


def loss_from_problem(problem: Problem) -> EpisodeLoss:
    """Return what a problem that ends the episode says."""
    return EpisodeLoss(describe_problem(problem), problem.code or Code.EPISODE_LOST)


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
