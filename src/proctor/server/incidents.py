"""Numbers that a peer may know, and that find an entry in the server's log."""

import logging
import secrets
from typing import Final

from msgspec import UNSET

from proctor.models.control import Code, Problem

LOG: Final = logging.getLogger("proctor.server")


def new_incident() -> str:
    """Return a number that nobody else has."""
    return secrets.token_hex(6)


def inside_problem(problem: Exception, *, lost: bool = False) -> Problem:
    """Log what went wrong in the server itself; return what a peer may know of it."""
    incident = new_incident()
    LOG.error("a request failed inside, incident %s", incident, exc_info=problem)
    return Problem("the server failed", Code.SESSION_ERROR, incident=incident, lost=True if lost else UNSET)
