"""What is logged, without what must never be read there: secrets by value, and whatever looks like one.

Rule 1: a registered secret is found plain, percent-encoded (also in part), in base64 (alone or inside other text), in
    hexadecimal, and as JSON or Python would quote it.
Rule 2: too much hidden is better than too little.
Rule 3: no repr, copy or pickle of a redactor shows what it hides.
Rule 4: a log call names an event and gives the rest as fields: `logger.info("opened", extra={"session": name})`. All of it is
    redacted: the message with its arguments, fields, tracebacks, stacks.
Rule 5: nothing that a peer sent can begin a line of its own or steer a terminal.
Rule 6: a log call never fails, whatever its arguments are: the line says so instead.
"""

import base64
import json
import logging
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, NoReturn, TypeAlias
from urllib.parse import quote

from proctor.errors import ValidationError

HIDDEN: Final = "[hidden]"
SHORTEST: Final = 12
"""A shorter text, hidden wherever it occurs, would leave nothing of the log."""

_NAME: Final = (
    r"(?:token|secret|password|passwd|passphrase|credentials?|(?:api|private|secret)[_-]?key|authorization|cookies?)"
)
# The name of a file is no secret, and whoever looks for it will want to know.
_NAMED: Final = rf"{_NAME}[\w-]{{0,40}}(?<!file)(?<!path)"
_HEADER: Final = r"(?:authorization|cookie|x-api-key)"

PATTERNS: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(pattern, re.IGNORECASE), instead)
    for pattern, instead in (
        # http://user:password@host
        (r"(?<=://)[^\s/?#\"'<>]*@", f"{HIDDEN}@"),
        # "resume_token": "a b", (b'authorization', b'Bearer a'), password = 'a b': up to the quote that ends it
        (rf"({_NAMED}\\?[\"']?\s*[:=,]\s*b?\\?([\"']))(?:(?!\2)[^\r\n])*", rf"\1{HIDDEN}"),
        # Authorization: anything, up to the end of the line
        (rf"({_HEADER}\s*[:=]\s*)[^\s\"'][^\r\n]*", rf"\1{HIDDEN}"),
        # Bearer abc, Basic abc, wherever they stand
        (r"\b(bearer|basic|digest|negotiate)(?:\s+|%20|\+)[^\s\"'&]+", rf"\1 {HIDDEN}"),
        # token=abc, token: abc
        (rf"({_NAMED}\s*[:=]\s*)[^\s\"'&]+", rf"\1{HIDDEN}"),
    )
)

SECRET_NAME: Final = re.compile(rf"{_NAME}s?\d*$", re.IGNORECASE)
"""A field with such a name is hidden whatever it holds."""


class Redactor:
    """Hides registered secrets, and what looks like one, in text."""

    __slots__ = ("_secrets",)

    def __init__(self) -> None:
        self._secrets: dict[str, tuple[tuple[str, ...], re.Pattern[str]]] = {}

    def __repr__(self) -> str:
        return f"<Redactor of {len(self._secrets)} secrets>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a redactor holds secrets: it is neither copied nor pickled")

    def hide(self, secret: str) -> None:
        """Hide `secret` from now on; again does nothing."""
        if len(secret) < SHORTEST:
            raise ValidationError(
                "too short to be hidden wherever it occurs", expected=f"{SHORTEST} characters or more"
            )
        # A copy: another thread may be reading the old one.
        self._secrets = {**self._secrets, secret: (_forms(secret), _compile_percent_pattern(secret))}

    def forget(self, secret: str) -> None:
        """Hide `secret` no longer: it is worth nothing any more."""
        self._secrets = {each: found for each, found in self._secrets.items() if each != secret}

    def redact(self, text: str) -> str:
        """Return `text` without secrets."""
        for forms, in_percents in self._secrets.values():
            for form in forms:
                # Again and again: what is left on both sides may make the same text once more.
                while form in text:
                    text = text.replace(form, HIDDEN)
            if "%" in text:
                text = in_percents.sub(HIDDEN, text)
        for pattern, instead in PATTERNS:
            text = pattern.sub(instead, text)
        return text


def find_secrets(value: Any, *, told: bool = False) -> Iterator[str]:
    """Yield the texts in a table of settings that stand, however deep, under a name that tells of a secret."""
    if isinstance(value, str):
        yield from [value] if told else ()
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from find_secrets(each, told=told or bool(SECRET_NAME.search(name)))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from find_secrets(each, told=told)


def hide_secrets(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table of settings in which everything under a name that tells of a secret is hidden."""
    return {name: HIDDEN if SECRET_NAME.search(name) else _hide_in_value(value) for name, value in table.items()}


def _hide_in_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return hide_secrets(value)
    return [_hide_in_value(each) for each in value] if isinstance(value, list | tuple) else value


def _forms(secret: str) -> tuple[str, ...]:
    """Return the texts in which `secret` can be recognised, the longest first."""
    raw = secret.encode("utf-8", "surrogatepass")
    quoted = quote(raw, safe="")
    forms = {secret, quoted, quoted.lower(), raw.hex(), raw.hex().upper(), *_within_base64(raw)}
    once = {*_quote_text(secret), ascii(secret)[1:-1], repr(raw)[2:-1], repr(b'"' + raw)[3:-1]}
    # What is quoted may be quoted again: an exception shows the repr of a text that holds a repr.
    forms |= once.union(*map(_quote_text, once))
    return tuple(sorted(forms, key=len, reverse=True))


def _quote_text(text: str) -> set[str]:
    """Return a text as JSON and Python quote it; Python chooses its quotes by what else is inside."""
    return {json.dumps(text)[1:-1], repr(text)[1:-1], repr('"' + text)[2:-1]}


def _within_base64(raw: bytes) -> set[str]:
    """Return what base64 makes of `raw` whatever comes before and after it, in both alphabets.

    Three bytes become four characters, so there are three ways, by where `raw` begins; characters that also depend on
    a neighbour are left out.
    """
    found: set[str] = set()
    for shift in range(3):
        whole = base64.b64encode(bytes(shift) + raw)
        bits = 8 * (shift + len(raw))
        certain = whole[-(-8 * shift // 6) : bits // 6].decode("ascii")
        found.update((certain, certain.replace("+", "-").replace("/", "_")))
    return found


def _compile_percent_pattern(secret: str) -> re.Pattern[str]:
    """Return a pattern for `secret` with any of its bytes percent-encoded."""
    parts = (
        rf"(?:{re.escape(chr(byte))}|%{byte:02x})" if byte < 128 else rf"%{byte:02x}"
        for byte in secret.encode("utf-8", "surrogatepass")
    )
    # The case of a letter in the secret would not matter here: that only hides more.
    return re.compile("".join(parts), re.IGNORECASE)


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
        for name in vars(record).keys() - _OWN:
            setattr(record, name, _clean(self._redactor, name, vars(record)[name]))
        return True


class _Lines(logging.Formatter):
    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor


class JsonLines(_Lines):
    """One JSON object a line: time (UTC), level, logger, event, then the fields, then the traceback if there is one."""

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


class PlainLines(_Lines):
    """A line for people: time, level, event, `name=value` for each field; a traceback follows, indented."""

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


def _clean_fields(redactor: Redactor, record: logging.LogRecord) -> dict[str, Json]:
    fields = ((name, value) for name, value in vars(record).items() if name not in _OWN)
    return {redactor.redact(name): _clean(redactor, name, value) for name, value in fields}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _end(text: str) -> str:
    return text if len(text) <= LONGEST else f"...{text[-LONGEST:]}"


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
