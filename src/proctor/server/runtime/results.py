"""What an environment's adapter answers: an outcome, or a reason why there is none; and the numbers of incidents.

Rule 1: `RequestRefused` means that nothing ran and nothing changed; `RequestFailed` means that nobody knows where the episode stands.
Rule 2: neither carries the text of an exception that was not written for a peer. A peer learns an incident's number (`incident`),
    which finds the entry in the server's log.
"""

import logging
import secrets
from typing import Annotated, Any, Final

import numpy as np
from msgspec import UNSET, Meta, Struct
from numpy.typing import NDArray
from pydantic import ValidationError as ModelError

from proctor.errors import ProctorError, StateError
from proctor.models.control import Code, Problem

LOG: Final = logging.getLogger("proctor.server")


def new_incident() -> str:
    """Return a number that nobody else has."""
    return secrets.token_hex(6)


def log_internal_error(problem: Exception, *, lost: bool = False) -> Problem:
    """Log what went wrong in the server itself; return what a peer may know of it."""
    incident = new_incident()
    LOG.error("a request failed inside, incident %s", incident, exc_info=problem)
    return Problem("the server failed", Code.SESSION_ERROR, incident=incident, lost=True if lost else UNSET)


MOST_ERRORS: Final = 20
"""An action with a thousand wrong numbers is not answered with a thousand sentences."""
MOST_ACTIONS: Final = 1000
"""That one call of a tool may ask for."""
LONGEST_TEXT: Final = 2**18
"""Characters of what a tool says in words."""
MOST_CONTENT_BYTES: Final = 2**19
"""Of what a tool answers with: it is written out value by value for an agent."""
MOST_CONTAINERS: Final = 50_000
"""Arrays and objects in it, and keys in the metadata beside it."""
USER_CODE_ERRORS: Final = (Exception, SystemExit)
"""What somebody else's code may raise: an exit is no reason to end the server."""


class EnvOutcome(Struct, frozen=True, forbid_unknown_fields=True):
    """What one environment answered: JSON texts of the observation's fields and of the metadata, and the rest."""

    observation: bytes
    metadata: bytes
    reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    scene: bytes = b"null"
    """For the record: what a picture needs."""


class ToolOutcome(Struct, frozen=True, forbid_unknown_fields=True):
    """What a tool answered: in words, and as one JSON object, which is the observation's fields or a value.

    Of a tool that acts it says the action that ran and what that led to, and which further actions the call asked for;
    `outcome` has all that an orchestrator may know, so an agent sees only what the server takes from it.
    """

    text: Annotated[str, Meta(max_length=LONGEST_TEXT)]
    content: Annotated[bytes, Meta(max_length=MOST_CONTENT_BYTES)]
    action: bytes | None = None
    outcome: EnvOutcome | None = None
    left: Annotated[list[bytes], Meta(max_length=MOST_ACTIONS)] = []


class BatchOutcome(Struct, frozen=True):
    """What a batch answered; a reset has no rewards and no flags."""

    observations: bytes
    infos: bytes
    rewards: NDArray[np.float64] | None = None
    terminations: NDArray[np.bool_] | None = None
    truncations: NDArray[np.bool_] | None = None
    begins: NDArray[np.bool_] | None = None
    """Whose observation is the first of an episode."""


class RequestError(Exception):
    """There is no outcome; `problem` is what a peer may know of it."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.code)
        self.problem = problem

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.problem,))


class RequestRefused(RequestError):
    """Nothing ran and nothing changed."""


class RequestFailed(RequestError):
    """Something ran and did not end well: the episode is lost."""


def make_refusal(code: Code, message: str, **details: Any) -> RequestRefused:
    """Return a refusal with this code."""
    return RequestRefused(Problem(message=message, code=code, **details))


def make_failure(code: Code, message: str, **details: Any) -> RequestFailed:
    """Return a failure with this code, which says that the episode is lost."""
    return RequestFailed(Problem(message=message, code=code, lost=True, **details))


def refusal_from_error(problem: ProctorError) -> RequestRefused:
    """Return what a peer learns of an error of ours: these are written for callers, and change nothing."""
    code = Code.STATE_ERROR if isinstance(problem, StateError) else Code.VALIDATION_ERROR
    return make_refusal(
        code,
        problem.message,
        expected=UNSET if problem.expected is None else problem.expected,
        clause=UNSET if problem.clause is None else problem.clause,
    )


def refusal_from_model_error(what: str, problem: ModelError) -> RequestRefused:
    """Return what a peer learns of a value that does not fit its model: where, and what was expected."""
    errors = problem.errors(include_url=False, include_input=False)
    told = [_describe_error(error) for error in errors[:MOST_ERRORS]]
    summary = "; ".join(f"{'.'.join(map(str, error['loc'])) or 'it'}: {error['msg']}" for error in told[:3])
    return make_refusal(Code.VALIDATION_ERROR, f"this is not {what}: {summary}", errors=told)


def _describe_error(error: Any) -> dict[str, Any]:
    """Return one error of pydantic; the text of a validator's own exception stays inside, unless it is ours."""
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, ProctorError):
        message = cause.message if cause.expected is None else f"{cause.message}; expected {cause.expected}"
    elif cause is not None:
        message = "the value is not acceptable"
    else:
        message = error["msg"]
    return {
        "loc": [part if isinstance(part, int) else part[:100] for part in error["loc"]],
        "msg": message,
        "type": error["type"],
    }
