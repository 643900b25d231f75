"""Where the server's log goes: standard error, in lines for people or for programs, with secrets taken out."""

import logging
import sys
from typing import Final

from proctor.access.redaction import SHORTEST, JsonLines, PlainLines, RedactingFilter, Redactor, find_secrets
from proctor.server.settings import ServerSettings

QUIET: Final = ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio", "websockets")
"""Loggers of libraries, which write paths and peers' texts; only what is broken in them is of interest."""


def set_up_logs(settings: ServerSettings, redactor: Redactor) -> None:
    """Send all logs of this process to standard error; what settings name as a secret is hidden from now on."""
    for secret in find_secrets(settings.settings):
        if len(secret) >= SHORTEST:
            redactor.hide(secret)
    _send_logs(JsonLines(redactor) if settings.log_json else PlainLines(redactor), redactor, settings.log_level.upper())


def set_up_viewer_logs() -> None:
    """Send what goes wrong in a process that only shows a ledger to standard error, in the lines of a server."""
    redactor = Redactor()
    _send_logs(PlainLines(redactor), redactor, "WARNING")


def _send_logs(lines: logging.Formatter, redactor: Redactor, level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(lines)
    handler.addFilter(RedactingFilter(redactor))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.CRITICAL)
