"""One line for each thing that is logged, without secrets, whatever its arguments are."""

from __future__ import annotations

import base64
import io
import json
import logging
import math
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.access.redaction import HIDDEN, LONGEST, MOST_ITEMS, JsonLines, PlainLines, RedactingFilter, Redactor

SECRETS = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~+/=@:%", min_size=16, max_size=50)
SECRET = "q7-Tz_W0.kL9/v+R4=xY8"
WRITERS: dict[str, Callable[[Redactor], logging.Handler]] = {}


def writer(make: Callable[[Redactor], logging.Handler]) -> Callable[[Redactor], logging.Handler]:
    WRITERS[make.__name__] = make
    return make


@writer
def json_lines(redactor: Redactor) -> logging.Handler:
    handler = logging.StreamHandler(io.StringIO())
    handler.setFormatter(JsonLines(redactor))
    return handler


@writer
def plain_lines(redactor: Redactor) -> logging.Handler:
    handler = logging.StreamHandler(io.StringIO())
    handler.setFormatter(PlainLines(redactor))
    return handler


@writer
def foreign_lines(redactor: Redactor) -> logging.Handler:
    """A handler of somebody else, which shows all it finds."""
    handler = logging.StreamHandler(io.StringIO())
    handler.setFormatter(logging.Formatter("%(message)s %(note)s %(found)s", defaults={"note": "", "found": ""}))
    handler.addFilter(RedactingFilter(redactor))
    return handler


def logged(handler: logging.Handler, log: Callable[[logging.Logger], None]) -> str:
    """Return what `handler` writes when `log` is called with a logger."""
    log(logger_with(handler))
    assert isinstance(handler, logging.StreamHandler)
    return str(handler.stream.getvalue())


def logger_with(handler: logging.Handler) -> logging.Logger:
    logger = logging.Logger("proctor.test")  # noqa: LOG001 — one of its own for each test, known to nobody else
    logger.addHandler(handler)
    return logger


def hiding(secret: str = SECRET) -> Redactor:
    redactor = Redactor()
    redactor.hide(secret)
    return redactor


def fail(text: str) -> None:
    try:
        raise ValueError(text)
    except ValueError as error:
        raise RuntimeError(f"because of {text}") from error


class Shows:
    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return f"<{self.text}>"


def with_traceback(text: str) -> Callable[[logging.Logger], None]:
    def log(logger: logging.Logger) -> None:
        try:
            fail(text)
        except RuntimeError:
            logger.exception("it failed")

    return log


WAYS: dict[str, Callable[[str], Callable[[logging.Logger], None]]] = {
    "message": lambda s: lambda log: log.info(f"a {s} b"),  # noqa: G004 — the message itself is what is tested
    "argument": lambda s: lambda log: log.info("a %s b", s),
    "object": lambda s: lambda log: log.info("a %s b", Shows(s)),
    "repr": lambda s: lambda log: log.info("a %r b", [s, s.encode()]),
    "mapping": lambda s: lambda log: log.info("a %(x)s b", {"x": s}),
    "misfit": lambda s: lambda log: log.info(f"{s} %d %d", s),  # noqa: G004 — as above
    "field": lambda s: lambda log: log.info("a", extra={"note": s}),
    "object in a field": lambda s: lambda log: log.info("a", extra={"note": Shows(s)}),
    "bytes in a field": lambda s: lambda log: log.info("a", extra={"note": s.encode()}),
    "nested field": lambda s: lambda log: log.info("a", extra={"note": {"x": [(s, {s: 1})]}}),
    "deep field": lambda s: lambda log: log.info("a", extra={"note": [[[[[[[[[s]]]]]]]]]}),
    "name of a field": lambda s: lambda log: log.info("a", extra={s: 1}),
    "telling field": lambda s: lambda log: log.info("a", extra={"found": {"token": s[:8]}, "note": s}),
    "traceback": with_traceback,
    "stack": lambda s: lambda log: log.info("a %s", s, stack_info=True),
    "header": lambda s: lambda log: log.info("> Authorization: Bearer %s", s),
    "address": lambda s: lambda log: log.info("http://proctor:%s@host/", s),
    "percent": lambda s: lambda log: log.info("/ws?x=%s", quote(s, safe="")),
    "base64": lambda s: lambda log: log.info("x %s", base64.b64encode(f"proctor:{s}".encode()).decode()),
    "message too long": lambda s: lambda log: log.info("x" * (LONGEST - 8) + s),  # noqa: G003 — as above
}


@pytest.mark.parametrize("make", WRITERS)
@given(way=st.sampled_from(sorted(WAYS)), secret=SECRETS)
def test_a_secret_is_in_no_line(make: str, way: str, secret: str) -> None:
    assert_hidden(make, way, secret)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", WRITERS)
def test_every_way_into_a_line_is_closed(make: str, way: str) -> None:
    assert_hidden(make, way, SECRET)


def assert_hidden(make: str, way: str, secret: str) -> None:
    lines = logged(WRITERS[make](hiding(secret)), WAYS[way](secret))

    assert lines
    for form in (secret, quote(secret, safe=""), base64.b64encode(f"proctor:{secret}".encode()).decode()):
        assert form not in lines


def test_a_json_line_says_when_how_grave_who_and_what() -> None:
    handler = json_lines(Redactor())
    record = logging.makeLogRecord(
        {
            "name": "proctor.server",
            "levelname": "INFO",
            "msg": "session opened",
            "created": 0.25,
            "session": "s1",
            "n": 3,
        }
    )

    line = handler.format(record)

    assert line == (
        '{"time":"1970-01-01T00:00:00.250Z","level":"info","logger":"proctor.server","event":"session opened",'
        '"fields":{"session":"s1","n":3}}'
    )


def test_a_plain_line_says_the_same_to_people() -> None:
    handler = plain_lines(Redactor())
    record = logging.makeLogRecord(
        {
            "name": "proctor.server",
            "levelname": "INFO",
            "msg": "opened",
            "created": 0.25,
            "session": "s1",
            "n": [1, None],
        }
    )

    assert handler.format(record) == "1970-01-01T00:00:00.250Z info     proctor.server: opened session=s1 n=[1, null]"


@given(st.text(), st.dictionaries(st.sampled_from(["a", "b", "note"]), st.text()))
def test_every_record_is_one_json_object_in_one_ascii_line(message: str, fields: dict[str, str]) -> None:
    line = logged(json_lines(Redactor()), lambda log: log.warning("%s", message, extra=fields))

    assert line.isascii()
    assert line.count("\n") == 1
    assert json.loads(line)["level"] == "warning"


@given(st.text(), st.text())
def test_nothing_in_a_plain_line_begins_another_or_steers_the_terminal(message: str, field: str) -> None:
    line = logged(plain_lines(Redactor()), lambda log: log.info("%s", message, extra={"note": field}))

    assert len(line.splitlines()) == 1
    assert not any(ord(sign) < 32 or 127 <= ord(sign) < 160 for sign in line[:-1])


@pytest.mark.parametrize("sign", ["\u202e", "\u2066", "\u200f", "\u061c", "\u200b", "\ufeff", "\u2028"])
def test_a_sign_that_nobody_sees_is_told_by_its_number(sign: str) -> None:
    line = logged(plain_lines(Redactor()), lambda log: log.info("a%sb", sign))

    assert sign not in line
    assert f"a\\u{ord(sign):04x}b" in line


def test_a_traceback_stays_in_the_log_and_cannot_forge_a_line() -> None:
    log = with_traceback(f"first\n2030-01-01 info forged \x1b[2J {SECRET}")

    plain = logged(plain_lines(hiding()), log)
    read = json.loads(logged(json_lines(hiding()), log))

    assert all(each.startswith("    ") for each in plain.splitlines()[1:])
    assert "\x1b" not in plain
    assert "RuntimeError: because of first" in read["traceback"]
    assert "direct cause" in read["traceback"]
    assert HIDDEN in read["traceback"]


def test_a_long_message_loses_its_end_and_a_long_traceback_its_beginning() -> None:
    long = json.loads(logged(json_lines(Redactor()), lambda log: log.info("%s", "x" * 100_000)))
    trace = json.loads(logged(json_lines(Redactor()), with_traceback("y" * 100_000 + "the end")))

    assert len(long["event"]) == LONGEST + 3
    assert len(trace["traceback"]) == LONGEST + 3
    assert trace["traceback"].endswith("the end")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (True, True),
        (None, None),
        (7, 7),
        pytest.param(10**5000, "<unprintable int>", id="long"),
        (0.5, 0.5),
        (math.inf, "inf"),
        (math.nan, "nan"),
        (b"caf\xc3\xa9 \xff", "café \\xff"),
        ((1, "a"), [1, "a"]),
        ({1: {2}}, {"1": [2]}),
        (list(range(1000)), list(range(MOST_ITEMS))),
        ({"password": 5, "n": 6}, {"password": HIDDEN, "n": 6}),
    ],
)
def test_a_field_is_said_as_json_can(value: object, said: object) -> None:
    line = logged(json_lines(Redactor()), lambda log: log.info("a", extra={"note": value}))

    assert json.loads(line)["fields"]["note"] == said


def test_a_field_with_a_telling_name_is_hidden_whatever_it_holds() -> None:
    line = logged(json_lines(Redactor()), lambda log: log.info("a", extra={"resume_token": "short", "session": "s"}))

    assert json.loads(line)["fields"] == {"resume_token": HIDDEN, "session": "s"}


class Breaks:
    def __str__(self) -> str:
        raise KeyError(SECRET)

    __repr__ = __str__


@pytest.mark.parametrize("make", WRITERS)
@pytest.mark.parametrize(
    "log",
    [
        lambda log: log.info("a %s", Breaks()),
        lambda log: log.info(Breaks()),
        lambda log: log.info("a", extra={"note": Breaks()}),
        lambda log: log.info("a", extra={"note": {Breaks(): 1}}),
        lambda log: log.info("%d", "not a number"),
        lambda log: log.info(*("%s %s", "one")),
        lambda log: log.info(*("too many", 1, 2)),
    ],
)
def test_a_log_call_never_fails_and_never_shows_arguments_elsewhere(
    make: str, log: Callable[[logging.Logger], None], capsys: pytest.CaptureFixture[str]
) -> None:
    line = logged(WRITERS[make](hiding()), log)

    assert line.endswith("\n")
    assert capsys.readouterr().err == ""


def test_an_exception_that_cannot_be_shown_is_said_to_be_so() -> None:
    def log(logger: logging.Logger) -> None:
        try:
            raise ValueError("x")
        except ValueError:
            strange: Any = (*sys.exc_info()[:2], "no traceback")
            logger.error("failed", exc_info=strange)

    read = json.loads(logged(json_lines(Redactor()), log))

    assert read["traceback"] == "a traceback that cannot be shown"


def test_a_filter_lets_a_clean_record_as_it_is() -> None:
    record = logging.makeLogRecord({"msg": "%s %d", "args": ("GET", 200), "color_message": "%s"})

    assert RedactingFilter(hiding()).filter(record)

    assert (record.msg, record.args) == ("%s %d", ("GET", 200))
    assert record.exc_text is None


def test_a_filter_leaves_nothing_that_another_formatter_could_show() -> None:
    records: list[logging.LogRecord] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    handler = Keeping()
    handler.addFilter(RedactingFilter(hiding()))
    logger = logger_with(handler)
    with_traceback(SECRET)(logger)
    logger.info("a %s", SECRET, extra={"note": [SECRET], "color_message": SECRET}, stack_info=True)

    assert len(records) == 2
    assert all(record.exc_info is None and record.stack_info is None for record in records)
    assert SECRET not in repr([vars(record) for record in records])
    assert "RuntimeError" in str(records[0].exc_text)
