"""What must never be read in a log: secrets by value in every form, and whatever looks like one."""

from __future__ import annotations

import base64
import copy
import json
import pickle
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.access.redaction import HIDDEN, SECRET_NAME, SHORTEST, Redactor, find_secrets, hide_secrets
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
        ("token", True),
        ("resume_token", True),
        ("Authorization", True),
        ("API_KEY", True),
        ("cookies", True),
        ("session", False),
        ("token_file", False),
        ("tokens_used", False),
    ],
)
def test_some_names_tell_that_the_value_is_secret(name: str, tells: bool) -> None:
    assert bool(SECRET_NAME.search(name)) is tells


# ------------------------------------------------------------------------------------------------------ in settings
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
