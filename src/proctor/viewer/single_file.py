"""A page that is one file: it opens from disk, with no server and no network.

Rule 1: styles and script are inside, and the page's own policy lets exactly these run, by their hashes: whatever else a
    string of an episode says, it stays text. The data are JSON in an element that no string can end (`embed_json`).
Rule 2: the page is that of the server: its skeleton is `static/index.html`, of which the links to files are replaced. Where
    that has not what is expected, it is a ComponentError, not half a page.
Rule 3: the same ledger gives the same bytes: nothing is taken from a clock, and nothing is live in a file.
Rule 4: packets, verdicts and notes are always whole. Of very long episodes every n-th step is there, of pictures in pixels
    some hundred, of raw rows those that fit, and what was left out is said in a sentence (`remarks`).
Rule 5: the rows themselves come packed (JSON lines, gzip, base64): a page unpacks them when somebody asks for one.
Rule 6: on disk the page is there whole or not at all, also over an older one: it is written beside its place under another name, and
    moved there. A link stays, and what it leads to is replaced. What is there and is no file, such as a device, is left alone.
"""

import dataclasses
import gzip
import os
import re
import secrets
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from hashlib import sha256
from html import escape
from itertools import permutations
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from proctor.errors import ComponentError, ValidationError
from proctor.ledger.export import encode_row
from proctor.ledger.reader import Ledger, Row
from proctor.models.arrays import SOME_PIXELS, is_pixels
from proctor.models.events import BatchStepped, EpisodeReset, EpisodeStepped
from proctor.viewer.catalog import EpisodeCatalog
from proctor.viewer.comparison import compare_episodes
from proctor.viewer.documents import (
    EpisodeDifference,
    EpisodeHead,
    EpisodeLine,
    EpisodeSlice,
    Explanation,
    Fork,
    MachineDiagram,
)
from proctor.viewer.explanations import explain_refusals
from proctor.viewer.machine import build_machine


def save_page(path: Path | str, text: str) -> Path:
    """Write a text to `path`, over what was there, and return the path; a ValidationError if that cannot be."""
    path = Path(path)
    place = Path(os.path.realpath(path))
    if place.exists() and not place.is_file():
        kind = "a folder" if place.is_dir() else "no file that can be replaced"
        raise ValidationError(f"{str(path)!r} is {kind}", expected="the name of a file, such as episode.html")
    draft = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    try:
        with draft.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
        draft.replace(place)
    except OSError as problem:
        why = problem.strerror or type(problem).__name__
        raise ValidationError(
            f"cannot write {str(path)!r}: {why}", expected="a file in a folder that can be written to"
        ) from problem
    finally:
        draft.unlink(missing_ok=True)
    return path


MOST_STEPS: Final = 100_000
LEAST_STEPS: Final = 1_000
MOST_FRAMES: Final = 400
STEPS_SIZE: Final = 40_000_000
FRAMES_SIZE: Final = 20_000_000
ROWS_SIZE: Final = 64_000_000
"""Bytes of an episode's steps, of its pictures, and of its rows before they are packed."""
OTHERS_SIZE: Final = 32_000_000
"""Of these rows, the bytes of those that are no steps."""
MOST_ROW: Final = 2**24
"""Bytes of the values of one row: a few bytes of a ledger can say very many."""

Progress = Callable[[int, int], None]
"""Told how many rows were read, and of how many."""


class EpisodeContents(Struct, frozen=True, gc=False, kw_only=True):
    """One episode, whole."""

    head: EpisodeHead
    slice: EpisodeSlice
    explanations: dict[int, Explanation]
    pixels: dict[int, str]
    raw: str


class PageContents(Struct, frozen=True, gc=False, kw_only=True):
    """What the page reads instead of asking a server."""

    lines: list[EpisodeLine]
    episodes: dict[str, EpisodeContents]
    differences: dict[str, EpisodeDifference]
    machine: MachineDiagram
    remarks: list[str]
    """What is not in the file, in sentences."""
    title: str | None = None
    """What the page is called, where somebody has said it."""


def collect_contents(
    ledger: Ledger, chains: Sequence[str], forks: Sequence[Fork] = (), progress: Progress | None = None
) -> PageContents:
    """Return what a file of these episodes carries; a ValidationError if there is no such chain."""
    carrier = _EpisodeCollector(ledger, progress or (lambda done, total: None))
    try:
        episodes = {chain: carrier.collect_episode(chain) for chain in chains}
    finally:
        carrier.close()
    episodes |= {fork.head.line.chain: _build_fork_contents(fork) for fork in forks}
    pairs = [compare_episodes(ledger, one, other) for one, other in permutations(dict.fromkeys(chains), 2)]
    return PageContents(
        lines=[each.head.line for each in episodes.values()],
        episodes=episodes,
        differences={f"{each.one}|{each.other}": each for each in [*pairs, *(fork.difference for fork in forks)]},
        machine=build_machine(),
        remarks=carrier.remarks,
    )


class _EpisodeCollector:
    """Takes episodes from a ledger, and remembers what it left there."""

    def __init__(self, ledger: Ledger, progress: Progress) -> None:
        self._ledger = ledger
        self._progress = progress
        self._catalogs: dict[Path, EpisodeCatalog] = {}
        self.remarks: list[str] = []

    def close(self) -> None:
        for catalog in self._catalogs.values():
            catalog.close()

    def collect_episode(self, chain: str) -> EpisodeContents:
        catalog = self._catalog(chain)
        head = _freeze_head(catalog.head(chain))
        steps = self._steps(catalog, chain)
        numbers = _find_pictures(head, steps)
        return EpisodeContents(
            head=head,
            slice=steps,
            explanations=explain_refusals(self._ledger, chain),
            pixels=self._pixels(catalog, chain, numbers),
            raw=self._rows(head.line, bool(numbers)),
        )

    def _catalog(self, chain: str) -> EpisodeCatalog:
        """Return the catalog of the file that has the chain, and of no other: a folder may have many."""
        path = self._ledger.find_chain(chain)[0].path
        if path not in self._catalogs:
            self._catalogs[path] = EpisodeCatalog(path)
        return self._catalogs[path]

    def _steps(self, catalog: EpisodeCatalog, chain: str) -> EpisodeSlice:
        """Return all that happened, with as many steps as fit."""
        most = MOST_STEPS
        found = catalog.slice(chain, most=most, thin=True)
        # A slice that is too large ends early; with fewer steps it comes to the end, and most of all with one.
        while most > 1 and (found.more or (most > LEAST_STEPS and len(msgspec.json.encode(found.steps)) > STEPS_SIZE)):
            most //= 2
            found = catalog.slice(chain, most=most, thin=True)
        self._remark(chain, found.thinned, "steps")
        return found

    def _pixels(self, catalog: EpisodeCatalog, chain: str, numbers: Sequence[int]) -> dict[int, str]:
        """Return pictures as addresses that hold them, evenly thinned where there are too many or too large ones."""
        chosen = _take_every(numbers, -(-len(numbers) // MOST_FRAMES))
        found = {number: address for number in chosen if (address := _load_picture(catalog, chain, number)) is not None}
        missing = len(chosen) - len(found)
        if missing:
            self.remarks.append(f"{missing:,} of the pictures of {chain} cannot be read.")
        kept = _take_every(list(found), -(-sum(map(len, found.values())) // FRAMES_SIZE))
        if len(kept) + missing < len(numbers):
            self.remarks.append(f"Of the {len(numbers):,} pictures of {chain}, {len(kept):,} are in this file.")
        return {number: found[number] for number in kept}

    def _rows(self, line: EpisodeLine, pictured: bool) -> str:
        """Return the rows, packed."""
        kept = _RowThinner()
        unread = 0
        file, found = self._ledger.find_chain(line.chain)
        for done, stored in enumerate(file.read_chain_rows(found), start=1):
            try:
                row = file.row(line.chain, stored)
            except ValidationError:  # the slice has a note of it
                unread += 1
            else:
                kept.add(row, pictured)
            self._progress(done, max(line.rows, done))
        if unread:
            self.remarks.append(f"Rows of {line.chain} that cannot be read, and are not in this file: {unread:,}.")
        self._remark(line.chain, kept.every, "raw rows of steps")
        if kept.too_large:
            self.remarks.append(f"Raw rows of {line.chain} that are too large for this file: {kept.too_large:,}.")
        return b64encode(gzip.compress(b"".join(kept.lines()), mtime=0)).decode()

    def _remark(self, chain: str, every: int, what: str) -> None:
        if every > 1:
            self.remarks.append(
                f"{chain} is too long for one file: of its {what}, every {_format_ordinal(every)} is here."
            )


class _RowThinner:
    """The lines of a chain; when they grow too many, every other step is dropped, and of other rows those that do not fit."""

    def __init__(self) -> None:
        self.every = 1
        self.too_large = 0
        """How many rows were left out for their size."""
        self._steps = 0
        self._size = 0
        self._others = 0
        """The bytes of the lines that are no steps."""
        self._kept: list[tuple[int, bytes]] = []  # which step it is, 0 for what is none

    def add(self, row: Row, pictured: bool) -> None:
        """Take a row, unless it is one of the steps that are left out."""
        stepped = isinstance(row.event, EpisodeStepped | BatchStepped)
        self._steps += stepped
        if stepped and self._steps % self.every:
            return
        row = _remove_pixels(row) if pictured else row
        size = _measure_values(row)
        if size > MOST_ROW or (not stepped and self._others + size > OTHERS_SIZE):
            self.too_large += 1
            return
        line = encode_row(row)
        self._kept.append((self._steps if stepped else 0, line))
        self._size += len(line)
        self._others += 0 if stepped else len(line)
        while self._size > ROWS_SIZE and self.every <= self._steps:
            self._thin()

    def _thin(self) -> None:
        self.every *= 2
        self._kept = [(step, line) for step, line in self._kept if step % self.every == 0]
        self._size = sum(len(line) for _, line in self._kept)

    def lines(self) -> Iterator[bytes]:
        """Yield what was kept."""
        return (line for _, line in self._kept)


def _measure_values(row: Row) -> int:
    """Return how many bytes the values of a row have, which are most of a large one."""
    fields = (getattr(row.event, name) for name in row.event.__struct_fields__)
    return sum(memoryview(each).nbytes for each in fields if isinstance(each, Raw))


def _build_fork_contents(fork: Fork) -> EpisodeContents:
    """Return a fork as an episode: it has no rows, and nothing in it was judged."""
    raw = b64encode(gzip.compress(b"", mtime=0)).decode()
    return EpisodeContents(head=_freeze_head(fork.head), slice=fork.slice, explanations={}, pixels={}, raw=raw)


def _freeze_head(head: EpisodeHead) -> EpisodeHead:
    """Return a head of which nothing is live: a file does not change."""
    return replace(head, line=replace(head.line, live=False))


def _find_pictures(head: EpisodeHead, steps: EpisodeSlice) -> list[int]:
    """Return the numbers of the rows that have a picture in pixels."""
    if not is_pixels(head.scene):
        return []
    found = zip(steps.steps.number, steps.steps.scene, strict=True)
    return [head.first, *(number for number, frame in found if bytes(frame) != b"null")]


def _remove_pixels(row: Row) -> Row:
    event = row.event
    if not isinstance(event, EpisodeReset | EpisodeStepped) or bytes(event.scene) == b"null":
        return row
    return dataclasses.replace(row, event=replace(event, scene=SOME_PIXELS))


def _take_every(numbers: Sequence[int], nth: int) -> list[int]:
    return list(numbers[:: max(nth, 1)])


def _load_picture(catalog: EpisodeCatalog, chain: str, number: int) -> str | None:
    """Return the address that holds a picture, None if it cannot be read."""
    try:
        return f"data:image/png;base64,{b64encode(catalog.pixels(chain, number)).decode()}"
    except ValidationError:
        return None


def _format_ordinal(count: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(count % 10, "th") if count % 100 not in {11, 12, 13} else "th"
    return f"{count}{ending}"


STATIC: Final = Path(__file__).parent / "static"
DATA_ID: Final = "proctor-episodes"

_CHARSET: Final = re.compile(r"<meta\s+charset=[^>]*>", re.IGNORECASE)
_TITLE: Final = re.compile(r"<title>[^<]*</title>", re.IGNORECASE)
_STYLE: Final = re.compile(r"<link\s[^>]*rel=\"stylesheet\"[^>]*>", re.IGNORECASE)
_SCRIPT: Final = re.compile(r"<script\s[^>]*src=\"[^\"]*\"[^>]*>\s*</script>", re.IGNORECASE)
_BODY_END: Final = re.compile(r"</body>", re.IGNORECASE)
_ADDRESS: Final = re.compile(r"(?:href|src)=\"([^\"]*)\"", re.IGNORECASE)
_OUTSIDE: Final = re.compile(r"@import|url\(\s*[\"']?(?!data:)", re.IGNORECASE)
# The page's modules keep to these forms, each at the beginning of a line; a test reads all of them.
_IMPORT: Final = re.compile(r'^import \{([^{}]+)\} from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:async function|function|class|const) (\w+))", re.MULTILINE)
_OTHER_FORM: Final = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)
# What could end a script or change how it is read, and breaks of lines that JSON has and older JavaScript has not.
_ESCAPES: Final = ((b"<", b"\\u003c"), ("\u2028".encode(), b"\\u2028"), ("\u2029".encode(), b"\\u2029"))


def build_page(
    ledger: Ledger,
    chains: Sequence[str],
    *,
    title: str | None = None,
    forks: Sequence[Fork] = (),
    progress: Progress | None = None,
) -> str:
    """Return the page of these episodes and forks as one HTML text; a ValidationError if there is no such chain."""
    return assemble_page(collect_contents(ledger, chains, forks, progress), title)


def assemble_page(contents: PageContents, title: str | None = None, static: Path = STATIC) -> str:
    """Return the page of `contents`, made of the files in `static`."""
    # A command line may have signs that cannot be written down.
    contents = replace(contents, title=None if title is None else title.encode("utf-8", "replace").decode())
    skeleton = _read_file(static / "index.html")
    style = "\n".join(_read_stylesheet(static, link) for link in _STYLE.findall(skeleton))
    script = _check_embeddable(bundle_modules(static / "js"), "script")
    data = f'<script type="application/json" id="{DATA_ID}">{embed_json(contents)}</script>'
    policy = f'<meta http-equiv="Content-Security-Policy" content="{_write_security_policy(script, style)}">'
    remarks = "".join(f'<p class="remark" role="note">{escape(each)}</p>\n' for each in contents.remarks)

    text = _replace_once(_CHARSET, skeleton, lambda found: f"{found}\n{policy}")
    text = _replace_once(_TITLE, text, lambda _: f"<title>{escape(contents.title or _write_title(contents))}</title>")
    text = _replace_once(_SCRIPT, text, lambda _: "")
    _check_addresses(_STYLE.sub("", text))
    text = _replace_first(_STYLE, text, f"<style>{style}</style>")
    # At the end of the body, so that everything is there when the script runs.
    return _replace_once(
        _BODY_END, text, lambda end: f'{remarks}{data}\n<script type="module">{script}</script>\n{end}'
    )


def embed_json(contents: object) -> str:
    """Return a value as JSON that can stand in a script element: no string in it can end that."""
    text = msgspec.json.encode(contents)
    for said, escaped in _ESCAPES:
        text = text.replace(said, escaped)
    # What is spliced in from a record was never decoded: bytes that are no text are shown as such.
    return text.decode("utf-8", "replace")


def _write_security_policy(script: str, style: str) -> str:
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


def _write_title(contents: PageContents) -> str:
    names = " and ".join(line.chain for line in contents.lines)
    environments = " and ".join(dict.fromkeys(line.environment for line in contents.lines))
    return f"{environments}: {names}"


# ------------------------------------------------------------------------------------------------------------ the files
def bundle_modules(folder: Path, entry: str = "main") -> str:
    """Return one script that does what the module `entry` does: a page from disk can import no files."""
    texts: dict[str, str] = {}
    needed: dict[str, list[str]] = {}
    waiting = [entry]
    while waiting:
        name = waiting.pop()
        if name not in texts:
            texts[name] = _read_file(folder / f"{name}.js")
            needed[name] = [module for _, module in _IMPORT.findall(texts[name])]
            waiting += needed[name]
    try:
        return "".join(_wrap_module(name, texts[name]) for name in TopologicalSorter(needed).static_order())
    except CycleError as problem:
        raise ComponentError("modules import each other", found=" -> ".join(problem.args[1])) from problem


def _wrap_module(name: str, text: str) -> str:
    """Return a module as a function that is called at once and returns what the module exports."""
    exports = ", ".join(_EXPORT.findall(text))
    taken = _IMPORT.sub(lambda found: f"const {{{found[1].replace(' as ', ': ')}}} = __{found[2]};", text)
    body = _EXPORT.sub("", taken)
    if other := _OTHER_FORM.search(body):
        expected = 'import { a } from "./x.js"; or export function, class or const'
        raise ComponentError(f"{name}.js cannot be put into one file", found=other[0], expected=expected)
    return f"const __{name} = (() => {{\n{body}return {{ {exports} }};\n}})();\n"


def _read_file(path: Path) -> str:
    try:
        # A browser hashes what it has read, in which every break of a line is one sign.
        return path.read_text("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except OSError as problem:
        raise ComponentError(f"a file of the viewer cannot be read: {problem}") from problem


def _read_stylesheet(static: Path, link: str) -> str:
    """Return the stylesheet that a link names, by the last part of its address."""
    address = _ADDRESS.search(link)
    if address is None:
        raise ComponentError("a stylesheet has no address", found=link)
    text = _check_embeddable(_read_file(static / address[1].rpartition("/")[2]), "style")
    if outside := _OUTSIDE.search(text):
        raise ComponentError(f"{address[1]} needs another file", found=text[outside.start() :][:80])
    return text


def _check_embeddable(text: str, element: str) -> str:
    """Return a text that may stand in an element, or raise: it would end it, or begin a comment."""
    if found := re.search(rf"</{element}|<!--", text, re.IGNORECASE):
        raise ComponentError(f"a {element} may not say {found[0]}: it is put into a page")
    return text


def _replace_once(pattern: re.Pattern[str], text: str, said: Callable[[str], str]) -> str:
    found = pattern.findall(text)
    if len(found) != 1:
        raise ComponentError("index.html is not as expected", found=len(found), expected=f"one {pattern.pattern}")
    return pattern.sub(lambda match: said(match[0]), text)


def _replace_first(pattern: re.Pattern[str], text: str, said: str) -> str:
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
