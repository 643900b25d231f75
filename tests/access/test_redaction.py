"""What must never be read in a log: secrets by value in every form, and whatever looks like one."""

from __future__ import annotations

import base64
import copy
import io
import json
import logging
import math
import pickle
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.access.redaction import (
    HIDDEN,
    LONGEST,
    MOST_ITEMS,
    SECRET_NAME,
    SHORTEST,
    JsonLines,
    PlainLines,
    RedactingFilter,
    Redactor,
    find_secrets,
    hide_secrets,
)
from proctor.errors import ValidationError

SECRETS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=16, max_size=60)
SECRET = "q7-Tz_W0.kL9/v+R4=xY8"
FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "percent": lambda s: quote(s, safe=""),
    "percent, as in a query": quote_plus,
    "percent, in small letters": lambda s: quote(s, safe="").lower(),
    "percent, every byte": lambda s: "".join(f"%{ord(c):02X}" for c in s),
    "percent, some bytes": lambda s: "".join(f"%{ord(c):02x}" if i % 3 else c for i, c in enumerate(s)),
    "base64": lambda s: base64.b64encode(s.encode()).decode(),
    "base64 for addresses": lambda s: base64.urlsafe_b64encode(s.encode()).decode().rstrip("="),
    "base64 with a user": lambda s: base64.b64encode(f"proctor:{s}".encode()).decode(),
    "base64 in the middle": lambda s: base64.b64encode(f"ab{s}cd".encode()).decode(),
    "base64 at another place": lambda s: base64.b64encode(f"abc{s}".encode()).decode(),
    "hexadecimal": lambda s: s.encode().hex(),
    "JSON": lambda s: json.dumps({"x": s}),
    "repr": lambda s: repr({"x": s.encode()}),
}


def redactor(*secrets: str) -> Redactor:
    made = Redactor()
    for secret in secrets:
        made.hide(secret)
    return made


@pytest.mark.parametrize("form", FORMS)
@given(SECRETS, st.text(max_size=20), st.text(max_size=20))
def test_a_registered_secret_is_hidden_in_every_form(form: str, secret: str, before: str, after: str) -> None:
    text = FORMS[form](secret)

    clean = redactor(secret).redact(f"{before} {text} {after}")

    assert text not in clean
    assert secret not in clean
    assert HIDDEN in clean


@given(SECRETS, st.integers(0, 2), st.integers(0, 2))
def test_base64_leaves_at_most_the_edges_of_a_secret(secret: str, before: int, after: int) -> None:
    text = base64.b64encode(b"x" * before + secret.encode() + b"y" * after).decode()

    clean = redactor(secret).redact(text)

    assert len(clean.replace(HIDDEN, "")) <= 12  # what the neighbours, the padding and the bits between them need


@given(SECRETS, SECRETS)
def test_secrets_side_by_side_are_both_hidden(first: str, second: str) -> None:
    clean = redactor(first, second).redact(f"{first}{second}{first}")

    assert first not in clean
    assert second not in clean


@given(SECRETS)
def test_what_is_left_never_makes_the_secret_again(secret: str) -> None:
    odd = f"{secret[:3]}{HIDDEN}{secret[3:]}"
    text = odd.replace(HIDDEN, odd)

    assert odd not in redactor(odd).redact(text)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("Authorization: Bearer abc", "Authorization: [hidden]"),
        ("> authorization: Token abc def\n> host: x", "> authorization: [hidden]\n> host: x"),
        ("Authorization=Basic abc", "Authorization=[hidden]"),
        ("(b'authorization', b'Token abc def'), (b'x', b'y')", "(b'authorization', b'[hidden]'), (b'x', b'y')"),
        ('{"Authorization": "Token abc", "n": 1}', '{"Authorization": "[hidden]", "n": 1}'),
        ('{\\"authorization\\": \\"abc d\\"}', '{\\"authorization\\": \\"[hidden]"}'),
        ("Cookie: a=b; c=d", "Cookie: [hidden]"),
        ("sent Bearer abc.def-ghi to x", "sent Bearer [hidden] to x"),
        ("sent basic cHJvY3RvcjphYmM= to x", "sent basic [hidden] to x"),
        ("?auth=Bearer%20abc&x=1", "?auth=Bearer [hidden]&x=1"),
        ("http://proctor:abc@host:1/ws", "http://[hidden]@host:1/ws"),
        ("wss://abc@host", "wss://[hidden]@host"),
        ("http://proctor:a@b@host/", "http://[hidden]@host/"),
        ("http://host/a?mail=me@x.example", "http://host/a?mail=me@x.example"),
        ("GET /ws?token=abc&x=1", "GET /ws?token=[hidden]&x=1"),
        ("Resume(resume_token='a b', n=1)", "Resume(resume_token='[hidden]', n=1)"),
        ("PROCTOR_CONTROL_TOKEN=abc", "PROCTOR_CONTROL_TOKEN=[hidden]"),
        ('"api-key": "abc"', '"api-key": "[hidden]"'),
        ("password = 'a b c'", "password = '[hidden]'"),
        ("token_file=/etc/token", "token_file=/etc/token"),
        ("5 steps in 3 sessions", "5 steps in 3 sessions"),
        ("", ""),
    ],
)
def test_what_looks_like_a_credential_is_hidden_though_nobody_registered_it(text: str, clean: str) -> None:
    assert Redactor().redact(text) == clean


@given(st.text())
def test_redacting_again_changes_nothing_that_is_known(text: str) -> None:
    own = redactor(SECRET)
    once = own.redact(text + SECRET)

    assert SECRET not in own.redact(once)


@pytest.mark.parametrize(
    "piece", ["token", "a", "token=", "://", "bearer ", "authorization:", "'", " ", "://@", "token'"]
)
def test_a_long_hostile_text_is_redacted_in_reasonable_time(piece: str) -> None:
    text = piece * (200_000 // len(piece))

    assert redactor(SECRET).redact(text + SECRET).find(SECRET) == -1


def test_no_repr_copy_or_pickle_of_a_redactor_shows_a_secret() -> None:
    own = redactor(SECRET)

    assert repr(own) == str(own) == "<Redactor of 1 secrets>"
    for give in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="holds secrets"):
            give(own)


def test_a_secret_that_is_forgotten_is_hidden_no_longer() -> None:
    own = redactor(SECRET, "another-secret-of-ours")
    own.hide(SECRET)
    own.forget(SECRET)
    own.forget("never-registered")

    assert own.redact(f"{SECRET} another-secret-of-ours") == f"{SECRET} {HIDDEN}"


@pytest.mark.parametrize("text", ["", "a", "x" * (SHORTEST - 1)])
def test_a_text_too_short_to_be_a_secret_is_not_hidden_everywhere(text: str) -> None:
    with pytest.raises(ValidationError, match="too short") as caught:
        redactor(text)

    assert "xx" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "tells"),
    [
        *(("token", True), ("resume_token", True), ("Authorization", True), ("API_KEY", True), ("cookies", True)),
        *(("session", False), ("token_file", False), ("tokens_used", False)),
    ],
)
def test_some_names_tell_that_the_value_is_secret(name: str, tells: bool) -> None:
    assert bool(SECRET_NAME.search(name)) is tells


SETTINGS = {
    "grid": 5,
    "api_key": "a-key-that-opens-doors",
    "nested": {"password": ["one-of-two-passwords", {"deep": "another-password"}], "name": "harmless"},
    "token": 17,
    "accounts": [{"name": "a", "tokens": ["first-token-of-two"], "deep": [[{"credential2": "a-credential-too"}]]}],
}


def test_secrets_are_found_in_settings_by_their_names() -> None:
    assert list(find_secrets(SETTINGS)) == [
        "a-key-that-opens-doors",
        "one-of-two-passwords",
        "another-password",
        "first-token-of-two",
        "a-credential-too",
    ]


def test_settings_are_told_without_their_secrets() -> None:
    assert hide_secrets(SETTINGS) == {
        "grid": 5,
        "api_key": HIDDEN,
        "nested": {"password": HIDDEN, "name": "harmless"},
        "token": HIDDEN,
        "accounts": [{"name": "a", "tokens": HIDDEN, "deep": [[{"credential2": HIDDEN}]]}],
    }


def test_a_secret_that_was_quoted_twice_is_hidden() -> None:
    secret = "q\"u'o\\te-and-ümlaut"
    own = redactor(secret)

    for text in (
        repr([repr([secret])]),
        json.dumps(json.dumps(secret)),
        json.dumps(repr(secret)),
        repr(json.dumps(secret)),
    ):
        assert own.redact(text).count(HIDDEN) == 1
        assert "o" + chr(92) not in own.redact(text)


def test_a_secret_beyond_ascii_is_hidden_as_python_spells_it() -> None:
    secret = "päss'wörd-of-ours"
    own = redactor(secret)

    for text in (
        ascii([secret]),
        repr([secret.encode()]),
        repr([secret.encode() + b'"']),
        repr(repr([secret.encode()])),
    ):
        assert "-of-ours" not in own.redact(text)


PLAIN_SECRETS = st.text(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~+/=@:%", min_size=16, max_size=50
)
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
@given(way=st.sampled_from(sorted(WAYS)), secret=PLAIN_SECRETS)
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
        *((True, True), (None, None), (7, 7), pytest.param(10**5000, "<unprintable int>", id="long"), (0.5, 0.5)),
        *((math.inf, "inf"), (math.nan, "nan"), (b"caf\xc3\xa9 \xff", "café \\xff"), ((1, "a"), [1, "a"])),
        *(({1: {2}}, {"1": [2]}), (list(range(1000)), list(range(MOST_ITEMS)))),
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
