"""What must never be read in a log: secrets by value, and whatever looks like one.

Rule 1: a registered secret is found plain, percent-encoded (also in part), in base64 (alone or inside other text), in
    hexadecimal, and as JSON or Python would quote it.
Rule 2: too much hidden is better than too little.
Rule 3: no repr, copy or pickle of a redactor shows what it hides.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn
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

    __slots__ = ("_forms", "_mixed")

    def __init__(self) -> None:
        self._forms: dict[str, tuple[str, ...]] = {}
        self._mixed: dict[str, re.Pattern[str]] = {}

    def __repr__(self) -> str:
        return f"<Redactor of {len(self._forms)} secrets>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a redactor holds secrets: it is neither copied nor pickled")

    def hide(self, secret: str) -> None:
        """Hide `secret` from now on; again does nothing."""
        if len(secret) < SHORTEST:
            raise ValidationError(
                "too short to be hidden wherever it occurs", expected=f"{SHORTEST} characters or more"
            )
        # Copies: another thread may be reading the old ones.
        self._forms = {**self._forms, secret: _forms(secret)}
        self._mixed = {**self._mixed, secret: _compile_percent_pattern(secret)}

    def forget(self, secret: str) -> None:
        """Hide `secret` no longer: it is worth nothing any more."""
        self._forms = {each: forms for each, forms in self._forms.items() if each != secret}
        self._mixed = {each: pattern for each, pattern in self._mixed.items() if each != secret}

    def redact(self, text: str) -> str:
        """Return `text` without secrets."""
        text = self._hide_exact_forms(text)
        for pattern, instead in PATTERNS:
            text = pattern.sub(instead, text)
        return text

    def _hide_exact_forms(self, text: str) -> str:
        for forms in self._forms.values():
            for form in forms:
                # Again and again: what is left on both sides may make the same text once more.
                while form in text:
                    text = text.replace(form, HIDDEN)
        if "%" in text:
            for pattern in self._mixed.values():
                text = pattern.sub(HIDDEN, text)
        return text


def find_secrets(table: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts in a table of settings that stand, however deep, under a name that tells of a secret."""
    return _find_texts(table, told=False)


def _find_texts(value: Any, *, told: bool) -> Iterator[str]:
    if isinstance(value, str):
        yield from [value] if told else ()
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from _find_texts(each, told=told or bool(SECRET_NAME.search(name)))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _find_texts(each, told=told)


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
