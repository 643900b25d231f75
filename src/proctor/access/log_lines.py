"""One line for each thing that is logged, as JSON or for people, without secrets.

Rule 1: a log call names an event and gives the rest as fields: `logger.info("opened", extra={"session": name})`.
Rule 2: everything that can reach a line is redacted: the message with its arguments, fields, tracebacks, stacks.
Rule 3: nothing that a peer sent can begin a line of its own or steer a terminal.
Rule 4: a log call never fails, whatever its arguments are: the line says so instead.
"""

import json
import logging
import math
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from typing import Final, TypeAlias

from proctor.access.redaction import HIDDEN, SECRET_NAME, Redactor

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

DEEPEST: Final = 6
MOST_ITEMS: Final = 100
"""Members of one list or dict in a field; the rest is left out."""
LONGEST: Final = 8192
"""Characters of one message or one field; the rest is cut off. A traceback keeps its end."""

_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}
_LARGE: Final = 2**63
_UNSEEN: Final = (0x061C, *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0xFEFF)
"""Breaks of lines, marks of the direction of writing, and signs without width."""
_STEERING: Final = (
    {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
    | {code: f"\\u{code:04x}" for code in _UNSEEN}
    | {0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t"}
)
_STEERING_IN_BLOCK: Final = {code: text for code, text in _STEERING.items() if code != 0x0A}


class RedactingFilter(logging.Filter):
    """Takes the secrets out of a record itself, for handlers whose formatter is not one of ours; lets all pass."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def filter(self, record: logging.LogRecord) -> bool:
        """Redact the record in place; a message that held no secret keeps its arguments."""
        event = _event(record)
        clean = self._redactor.redact(event)
        if clean != event or _call_or_none(record.getMessage) is None:
            record.msg, record.args = clean, ()
        trace = _trace(record)
        record.exc_info, record.stack_info = None, None
        record.exc_text = None if trace is None else self._redactor.redact(trace)
        # uvicorn keeps a second form of its message there.
        vars(record).pop("color_message", None)
        for name, value in _fields(record):
            setattr(record, name, _clean(self._redactor, name, value))
        return True


class JsonLines(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, event, then the fields, then the traceback if there is one."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, in ASCII."""
        line: dict[str, Json] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": _short(self._redactor.redact(_event(record))),
        }
        fields = _clean_fields(self._redactor, record)
        if fields:
            line["fields"] = fields
        trace = _trace(record)
        if trace is not None:
            line["traceback"] = _end(self._redactor.redact(trace))
        return json.dumps(line, separators=(",", ":"), allow_nan=False)


class PlainLines(logging.Formatter):
    """A line for people: time, level, event, `name=value` for each field; a traceback follows, indented."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and the traceback if there is one."""
        fields = "".join(
            f" {name}={value if isinstance(value, str) else json.dumps(value)}"
            for name, value in _clean_fields(self._redactor, record).items()
        )
        event = _short(self._redactor.redact(_event(record)))
        line = f"{_time(record)} {record.levelname.lower():<8} {record.name}: {event}{fields}".translate(_STEERING)
        trace = _trace(record)
        if trace is not None:
            block = _end(self._redactor.redact(trace)).translate(_STEERING_IN_BLOCK)
            line += "\n    " + block.replace("\n", "\n    ")
        return self._redactor.redact(line)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _event(record: logging.LogRecord) -> str:
    """Return the message with its arguments; where they do not fit, the message alone."""
    whole = _call_or_none(record.getMessage)
    return f"{_text(record.msg)} (arguments that do not fit)" if whole is None else whole


def _trace(record: logging.LogRecord) -> str | None:
    """Return the traceback, the stack, or both; None if there is neither."""
    parts = [record.exc_text, record.stack_info]
    if not record.exc_text and record.exc_info:
        exception = record.exc_info
        parts[0] = (
            _call_or_none(lambda: logging.Formatter().formatException(exception)) or "a traceback that cannot be shown"
        )
    return "\n".join(part for part in parts if part) or None


def _fields(record: logging.LogRecord) -> list[tuple[str, object]]:
    return [(name, value) for name, value in vars(record).items() if name not in _OWN]


def _clean_fields(redactor: Redactor, record: logging.LogRecord) -> dict[str, Json]:
    return {redactor.redact(name): _clean(redactor, name, value) for name, value in _fields(record)}


def _clean(redactor: Redactor, name: str, value: object, depth: int = 0) -> Json:
    """Return a field's value as JSON can say it, without secrets."""
    if SECRET_NAME.search(name):
        return HIDDEN
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < _LARGE:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, dict | list | tuple | set | frozenset) and depth < DEEPEST:
        return _clean_members(redactor, value, depth + 1)
    return _short(redactor.redact(_text(value)))


def _clean_members(redactor: Redactor, value: Collection[object], depth: int) -> Json:
    some = list(islice(value.items() if isinstance(value, dict) else enumerate(value), MOST_ITEMS))
    if isinstance(value, dict):
        pairs = [(_text(key), each) for key, each in some]
        return {redactor.redact(key): _clean(redactor, key, each, depth) for key, each in pairs}
    return [_clean(redactor, "", each, depth) for _, each in some]


def _text(value: object) -> str:
    """Return any value as text; bytes as the text they most likely are."""
    if isinstance(value, bytes | bytearray):
        return value.decode("utf-8", "backslashreplace")
    text = _call_or_none(lambda: str(value))
    return f"<unprintable {type(value).__name__}>" if text is None else text


def _call_or_none(say: Callable[[], str]) -> str | None:
    """Return what `say` returns; None if it raises."""
    # Whatever a foreign __str__ may raise: the line that tells of a failure must not fail.
    with suppress(Exception):
        return say()
    return None


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _end(text: str) -> str:
    return text if len(text) <= LONGEST else f"...{text[-LONGEST:]}"
