"""What a desk answers: an outcome, or a reason why there is none.

Rule 1: `Refused` means that nothing ran and nothing changed; `Failed` means that nobody knows where the episode stands.
Rule 2: neither carries the text of an exception that was not written for a peer; `incident` finds it in the log.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Final

import numpy as np
from msgspec import UNSET, Meta, Struct
from numpy.typing import NDArray
from pydantic import ValidationError as ModelError

from proctor.errors import ProctorError, StateError
from proctor.models.control import Code, Problem

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
RAISED: Final = (Exception, SystemExit)
"""What somebody else's code may raise: an exit is no reason to end the server."""


class Outcome(Struct, frozen=True, forbid_unknown_fields=True):
    """What one environment answered: JSON texts of the observation's fields and of the metadata, and the rest."""

    observation: bytes
    metadata: bytes
    reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    scene: bytes = b"null"
    """For the record: what a picture needs."""


class ToolAnswer(Struct, frozen=True, forbid_unknown_fields=True):
    """What a tool answered: in words, and as one JSON object, which is the observation's fields or a value.

    Of a tool that acts it says the action that ran and what that led to, and which further actions the call asked for;
    `outcome` has all that an orchestrator may know, so an agent sees only what the server takes from it.
    """

    text: Annotated[str, Meta(max_length=LONGEST_TEXT)]
    content: Annotated[bytes, Meta(max_length=MOST_CONTENT_BYTES)]
    action: bytes | None = None
    outcome: Outcome | None = None
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


class NotDone(Exception):
    """There is no outcome; `problem` is what a peer may know of it."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.code)
        self.problem = problem

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.problem,))


class Refused(NotDone):
    """Nothing ran and nothing changed."""


class Failed(NotDone):
    """Something ran and did not end well: the episode is lost."""


def refused(code: Code, message: str, **details: Any) -> Refused:
    """Return a refusal with this code."""
    return Refused(Problem(message=message, code=code, **details))


def failed(code: Code, message: str, **details: Any) -> Failed:
    """Return a failure with this code, which says that the episode is lost."""
    return Failed(Problem(message=message, code=code, lost=True, **details))


def refusal_of(problem: ProctorError) -> Refused:
    """Return what a peer learns of an error of ours: these are written for callers, and change nothing."""
    code = Code.STATE_ERROR if isinstance(problem, StateError) else Code.VALIDATION_ERROR
    return refused(
        code,
        problem.message,
        expected=UNSET if problem.expected is None else problem.expected,
        clause=UNSET if problem.clause is None else problem.clause,
    )


def refusal_of_model(what: str, problem: ModelError) -> Refused:
    """Return what a peer learns of a value that does not fit its model: where, and what was expected."""
    errors = problem.errors(include_url=False, include_input=False)
    told = [_told(error) for error in errors[:MOST_ERRORS]]
    return refused(Code.VALIDATION_ERROR, f"this is not {what}: {_summary(told)}", errors=told)


def _told(error: Any) -> dict[str, Any]:
    """Return one error of pydantic; the text of a validator's own exception stays inside, unless it is ours."""
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, ProctorError):
        message = cause.message if cause.expected is None else f"{cause.message}; expected {cause.expected}"
    elif cause is not None:
        message = "the value is not acceptable"
    else:
        message = error["msg"]
    return {"loc": [_place(part) for part in error["loc"]], "msg": message, "type": error["type"]}


def _place(part: int | str) -> int | str:
    return part if isinstance(part, int) else part[:100]


def _summary(told: Iterable[dict[str, Any]]) -> str:
    return "; ".join(f"{'.'.join(map(str, error['loc'])) or 'it'}: {error['msg']}" for error in list(told)[:3])
