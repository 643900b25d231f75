"""A page that is one file: it opens from disk, with no server and no network.

Rule 1: styles and script are inside, and the page's own policy lets exactly these run, by their hashes: whatever else a
    string of an episode says, it stays text. The data are JSON in an element that no string can end (`embedded`).
Rule 2: the page is that of the server: its skeleton is `static/index.html`, of which the links to files are replaced. Where
    that has not what is expected, it is a ComponentError, not half a page.
Rule 3: the same ledger gives the same bytes.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from proctor.errors import ComponentError
from proctor.ledger.reader import Ledger
from proctor.viewer.contents import Contents, Progress, gathered
from proctor.viewer.documents import Fork
from proctor.viewer.modules import bundled

STATIC: Final = Path(__file__).parent / "static"
DATA_ID: Final = "proctor-episodes"

_CHARSET: Final = re.compile(r"<meta\s+charset=[^>]*>", re.IGNORECASE)
_TITLE: Final = re.compile(r"<title>[^<]*</title>", re.IGNORECASE)
_STYLE: Final = re.compile(r"<link\s[^>]*rel=\"stylesheet\"[^>]*>", re.IGNORECASE)
_SCRIPT: Final = re.compile(r"<script\s[^>]*src=\"[^\"]*\"[^>]*>\s*</script>", re.IGNORECASE)
_BODY_END: Final = re.compile(r"</body>", re.IGNORECASE)
_ADDRESS: Final = re.compile(r"(?:href|src)=\"([^\"]*)\"", re.IGNORECASE)
_OUTSIDE: Final = re.compile(r"@import|url\(\s*[\"']?(?!data:)", re.IGNORECASE)
# What could end a script or change how it is read, and breaks of lines that JSON has and older JavaScript has not.
_ESCAPES: Final = ((b"<", b"\\u003c"), ("\u2028".encode(), b"\\u2028"), ("\u2029".encode(), b"\\u2029"))


def page(
    ledger: Ledger,
    chains: Sequence[str],
    *,
    title: str | None = None,
    forks: Sequence[Fork] = (),
    progress: Progress | None = None,
) -> str:
    """Return the page of these episodes and forks as one HTML text; a ValidationError if there is no such chain."""
    return assembled(gathered(ledger, chains, forks, progress), title)


def assembled(contents: Contents, title: str | None = None, static: Path = STATIC) -> str:
    """Return the page of `contents`, made of the files in `static`."""
    contents = replace(contents, title=None if title is None else _text(title))
    skeleton = _read(static / "index.html")
    style = "\n".join(_stylesheet(static, link) for link in _STYLE.findall(skeleton))
    script = _inside(bundled(static / "js"), "script")
    data = f'<script type="application/json" id="{DATA_ID}">{embedded(contents)}</script>'
    policy = f'<meta http-equiv="Content-Security-Policy" content="{_policy(script, style)}">'
    remarks = "".join(f'<p class="remark" role="note">{escape(each)}</p>\n' for each in contents.remarks)

    text = _once(_CHARSET, skeleton, lambda found: f"{found}\n{policy}")
    text = _once(_TITLE, text, lambda _: f"<title>{escape(contents.title or _title(contents))}</title>")
    text = _once(_SCRIPT, text, lambda _: "")
    _check_addresses(_STYLE.sub("", text))
    text = _first(_STYLE, text, f"<style>{style}</style>")
    # At the end of the body, so that everything is there when the script runs.
    return _once(_BODY_END, text, lambda end: f'{remarks}{data}\n<script type="module">{script}</script>\n{end}')


def embedded(contents: object) -> str:
    """Return a value as JSON that can stand in a script element: no string in it can end that."""
    text = msgspec.json.encode(contents)
    for said, escaped in _ESCAPES:
        text = text.replace(said, escaped)
    # What is spliced in from a record was never decoded: bytes that are no text are shown as such.
    return text.decode("utf-8", "replace")


def _text(said: str) -> str:
    """Return what can be written down: a command line may have signs that are none."""
    return said.encode("utf-8", "replace").decode()


def _policy(script: str, style: str) -> str:
    rules = (
        "default-src 'none'",
        f"script-src {_hash(script)}",
        f"style-src {_hash(style)}",
        "img-src data: blob:",
        "connect-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
    return "; ".join(rules)


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _title(contents: Contents) -> str:
    names = " and ".join(line.chain for line in contents.lines)
    environments = " and ".join(dict.fromkeys(line.environment for line in contents.lines))
    return f"{environments}: {names}"


# ------------------------------------------------------------------------------------------------------------ the files
def _read(path: Path) -> str:
    try:
        # A browser hashes what it has read, in which every break of a line is one sign.
        return path.read_text("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except OSError as problem:
        raise ComponentError(f"a file of the viewer cannot be read: {problem}") from problem


def _stylesheet(static: Path, link: str) -> str:
    """Return the stylesheet that a link names, by the last part of its address."""
    address = _ADDRESS.search(link)
    if address is None:
        raise ComponentError("a stylesheet has no address", found=link)
    text = _inside(_read(static / address[1].rpartition("/")[2]), "style")
    if outside := _OUTSIDE.search(text):
        raise ComponentError(f"{address[1]} needs another file", found=text[outside.start() :][:80])
    return text


def _inside(text: str, element: str) -> str:
    """Return a text that may stand in an element, or raise: it would end it, or begin a comment."""
    if found := re.search(rf"</{element}|<!--", text, re.IGNORECASE):
        raise ComponentError(f"a {element} may not say {found[0]}: it is put into a page")
    return text


def _once(pattern: re.Pattern[str], text: str, said: Callable[[str], str]) -> str:
    found = pattern.findall(text)
    if len(found) != 1:
        raise ComponentError("index.html is not as expected", found=len(found), expected=f"one {pattern.pattern}")
    return pattern.sub(lambda match: said(match[0]), text)


def _first(pattern: re.Pattern[str], text: str, said: str) -> str:
    """Return the text with the first place replaced and the others removed."""
    found = pattern.search(text)
    if found is None:
        raise ComponentError("index.html is not as expected", found=0, expected=f"a {pattern.pattern}")
    # Cut at its place: no sign could mark it that a title may not hold.
    return f"{text[: found.start()]}{said}{pattern.sub('', text[found.end() :])}"


def _check_addresses(text: str) -> None:
    """Refuse a skeleton that asks for another file."""
    for address in _ADDRESS.findall(text):
        if not address.startswith(("#", "data:")):
            raise ComponentError("index.html asks for another file", found=address, expected='"#..." or "data:..."')
