"""JavaScript of which only the code is left: what is said in strings, comments and patterns is blanked.

Rule 1: the result is as long as the text and has its lines, so that a place in one is a place in the other. The quotes of
    strings stay, code inside `${...}` stays.
Rule 2: whether a slash divides or begins a pattern is told by what stands before it, as people who write `a / b` and
    `= /pattern/` mean it; a string without an end is an error.
"""

import re
from typing import Final

from proctor.errors import ComponentError

_TOKEN: Final = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?\*/)"
    r"|(?P<string>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"
    r"|(?P<quote>[\"'])"
    r"|(?P<tick>`)"
    r"|(?P<open>\{)|(?P<shut>\})"
    r"|(?P<slash>/)"
    r"|(?P<other>[^\"'`{}/]+)",
    re.DOTALL,
)
_TEMPLATE: Final = re.compile(r"(?:[^`\\$]|\\.|\$(?!\{))*(`|\$\{)", re.DOTALL)
_PATTERN: Final = re.compile(r"/(?:[^/\\\n\[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/[a-z]*")
_LAST_WORD: Final = re.compile(r"[\w$]+\Z")
_SEEN: Final = re.compile(r"[^\n]")
# Words after which a value begins; after any other word a slash divides.
_BEFORE_VALUES: Final = frozenset(
    ("return", "typeof", "case", "in", "of", "delete", "void", "throw", "new", "else", "do", "yield", "await")
)


def masked(text: str) -> str:
    """Return the code in `text`, everything else blanked; a ComponentError where a string has no end."""
    return _Mask(text).code()


class _Mask:
    """A text being read from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._parts: list[str] = []
        self._at = 0
        self._last = ""  # the latest code, without blanks at its end
        self._braces: list[bool] = []  # of each that is open: does it stand in a template?

    def code(self) -> str:
        while (token := _TOKEN.match(self._text, self._at)) is not None:
            kind, said = token.lastgroup, token[0]
            if kind == "comment":
                self._blank(token.end())
            elif kind == "string":
                self._quoted(token.end())
            elif kind == "quote":
                raise ComponentError("a string has no end", found=self._line())
            elif kind == "slash":
                self._slash()
            elif kind == "tick" or (kind == "shut" and self._braces and self._braces.pop()):
                self._template()
            else:
                self._keep(said, kind == "open")
        return "".join(self._parts)

    def _keep(self, said: str, opens: bool) -> None:
        self._parts.append(said)
        self._at += len(said)
        self._last = said.rstrip() or self._last
        if opens:
            self._braces.append(False)

    def _blank(self, end: int) -> None:
        self._parts.append(_SEEN.sub(" ", self._text[self._at : end]))
        self._at = end

    def _quoted(self, end: int) -> None:
        inside = _SEEN.sub(" ", self._text[self._at + 1 : end - 1])
        self._parts.append(f'"{inside}"')
        self._at, self._last = end, '"'

    def _slash(self) -> None:
        pattern = _PATTERN.match(self._text, self._at)
        if pattern is None or self._after_value():
            self._keep("/", opens=False)
        else:
            self._blank(pattern.end())
            self._last = '"'

    def _after_value(self) -> bool:
        word = _LAST_WORD.search(self._last)
        return self._last[-1:] in {")", "]", "}", '"'} if word is None else word[0] not in _BEFORE_VALUES

    def _template(self) -> None:
        """Blank a piece of a template, up to its end or to the next code in it; a brace or a tick stands before it."""
        piece = _TEMPLATE.match(self._text, self._at + 1)
        if piece is None:
            raise ComponentError("a template has no end", found=self._line())
        self._blank(piece.end())
        self._last = '"'
        if piece[1] == "${":
            self._braces.append(True)
            self._last = "("

    def _line(self) -> str:
        return f"line {self._text.count(chr(10), 0, self._at) + 1}"
