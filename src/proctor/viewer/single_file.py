"""A page that is one file: it opens from disk, with no server and no network; and an episode that shows itself as one.

    from proctor.viewer import Episode

    Episode("ledger")                                  # in a notebook: the player
    Episode("ledger", "a1b2").save("episode.html")     # opens from disk

Rule 1: styles and script are inside, and the page's own policy lets exactly these run, by their hashes: whatever else a
    string of an episode says, it stays text. The data are JSON in an element that no string can end (`embed_json`).
Rule 2: the page is that of the server: its skeleton is `static/index.html`, of which the links to files are replaced.
Rule 3: the same ledger gives the same bytes: nothing is taken from a clock, and nothing is live in a file.
Rule 4: packets, verdicts and notes are always whole. Of very long episodes every n-th step is there, of pictures in pixels
    some hundred, of raw rows those that fit, and what was left out is said in a sentence (`remarks`).
Rule 5: the rows themselves come packed (JSON lines, gzip, base64): a page unpacks them when somebody asks for one.
Rule 6: on disk the page is there whole or not at all, also over an older one: it is written beside its place under another name, and
    moved there. A link stays, and what it leads to is replaced. What is there and is no file, such as a device, is left alone.
Rule 7: an `Episode` holds a path and a summary, never an open file. What a notebook gets is a page inside a frame of its own, without the
    rights of the notebook: its scripts can reach neither the notebook nor the network.
"""

import dataclasses
import gzip
import os
import re
import secrets
from base64 import b64encode
from collections.abc import Callable, Sequence
from contextlib import closing
from graphlib import TopologicalSorter
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
from proctor.ledger.reader import EpisodeSummary, Ledger, Row
from proctor.models.arrays import SOME_PIXELS, is_pixels
from proctor.models.events import BatchStepped, EpisodeReset, EpisodeStepped
from proctor.viewer import documents
from proctor.viewer.catalog import EpisodeCatalog
from proctor.viewer.comparison import compare_episodes
from proctor.viewer.explanations import explain_refusals
from proctor.viewer.machine import build_machine

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


# ------------------------------------------------------------------------------------------------------------- contents
class EpisodeContents(Struct, frozen=True, gc=False, kw_only=True):
    """One episode, whole."""

    head: documents.EpisodeHead
    slice: documents.EpisodeSlice
    explanations: dict[int, documents.Explanation]
    pixels: dict[int, str]
    raw: str


class PageContents(Struct, frozen=True, gc=False, kw_only=True):
    """What the page reads instead of asking a server."""

    lines: list[documents.EpisodeLine]
    episodes: dict[str, EpisodeContents]
    differences: dict[str, documents.EpisodeDifference]
    machine: documents.MachineDiagram
    remarks: list[str]
    """What is not in the file, in sentences."""
    title: str | None = None
    """What the page is called, where somebody has said it."""


def collect_contents(
    ledger: Ledger, chains: Sequence[str], forks: Sequence[documents.Fork] = (), progress: Progress | None = None
) -> PageContents:
    """Return what a file of these episodes carries; a ValidationError if there is no such chain."""
    remarks: list[str] = []
    collected = (_EpisodeCollector(ledger, chain, remarks).collect(progress) for chain in chains)
    episodes = dict(zip(chains, collected, strict=True))
    episodes |= {fork.head.line.chain: _build_fork_contents(fork) for fork in forks}
    pairs = [compare_episodes(ledger, one, other) for one, other in permutations(dict.fromkeys(chains), 2)]
    return PageContents(
        lines=[each.head.line for each in episodes.values()],
        episodes=episodes,
        differences={f"{each.one}|{each.other}": each for each in [*pairs, *(fork.difference for fork in forks)]},
        machine=build_machine(),
        remarks=remarks,
    )


class _EpisodeCollector:
    def __init__(self, ledger: Ledger, chain: str, remarks: list[str]) -> None:
        self._ledger = ledger
        self._chain = chain
        self._remarks = remarks

    def collect(self, progress: Progress | None) -> EpisodeContents:
        """Return it as a page carries it."""
        # The catalog of the file that has the chain, and of no other: a folder may have many.
        with closing(EpisodeCatalog(self._ledger.find_chain(self._chain)[0].path)) as catalog:
            head = _freeze_head(catalog.head(self._chain))
            steps = self._collect_steps(catalog)
            numbers: list[int] = []
            if is_pixels(head.scene):
                frames = zip(steps.steps.number, steps.steps.scene, strict=True)
                numbers = [head.first, *(number for number, frame in frames if bytes(frame) != b"null")]
            return EpisodeContents(
                head=head,
                slice=steps,
                explanations=explain_refusals(self._ledger, self._chain),
                pixels=self._collect_pixels(catalog, numbers),
                raw=self._collect_rows(head.line, bool(numbers), progress),
            )

    def _collect_steps(self, catalog: EpisodeCatalog) -> documents.EpisodeSlice:
        """Return all that happened, with as many steps as fit."""
        most = MOST_STEPS
        found = catalog.slice(self._chain, most=most, thin=True)
        # A slice that is too large ends early; with fewer steps it comes to the end, and most of all with one.
        while most > 1 and (found.more or (most > LEAST_STEPS and len(msgspec.json.encode(found.steps)) > STEPS_SIZE)):
            most //= 2
            found = catalog.slice(self._chain, most=most, thin=True)
        self._remark_spacing(found.thinned, "steps")
        return found

    def _collect_pixels(self, catalog: EpisodeCatalog, numbers: list[int]) -> dict[int, str]:
        """Return pictures as addresses that hold them, evenly thinned where there are too many or too large ones."""
        chosen = numbers[:: max(1, -(-len(numbers) // MOST_FRAMES))]
        found: dict[int, str] = {}
        missing = 0
        for number in chosen:
            try:
                picture = catalog.pixels(self._chain, number)
                found[number] = f"data:image/png;base64,{b64encode(picture).decode()}"
            except ValidationError:
                missing += 1
        if missing:
            self._remarks.append(f"{missing:,} of the pictures of {self._chain} cannot be read.")
        kept = list(found)[:: max(1, -(-sum(map(len, found.values())) // FRAMES_SIZE))]
        if len(kept) + missing < len(numbers):
            self._remarks.append(f"Of the {len(numbers):,} pictures of {self._chain}, {len(kept):,} are in this file.")
        return {number: found[number] for number in kept}

    def _collect_rows(self, line: documents.EpisodeLine, pictured: bool, progress: Progress | None) -> str:
        kept = _RowThinner()
        unread = 0
        file, found = self._ledger.find_chain(self._chain)
        for done, stored in enumerate(file.read_chain_rows(found), start=1):
            try:
                row = file.row(self._chain, stored)
            except ValidationError:  # the slice has a note of it
                unread += 1
            else:
                kept.add(row, pictured)
            if progress is not None:
                progress(done, max(line.rows, done))
        if unread:
            self._remarks.append(f"Rows of {self._chain} that cannot be read, and are not in this file: {unread:,}.")
        self._remark_spacing(kept.every, "raw rows of steps")
        if kept.too_large:
            self._remarks.append(f"Raw rows of {self._chain} that are too large for this file: {kept.too_large:,}.")
        return _pack_rows([line for _, line in kept.lines])

    def _remark_spacing(self, every: int, what: str) -> None:
        if every > 1:
            ending = {1: "st", 2: "nd", 3: "rd"}.get(every % 10, "th") if every % 100 not in {11, 12, 13} else "th"
            self._remarks.append(
                f"{self._chain} is too long for one file: of its {what}, every {every}{ending} is here."
            )


class _RowThinner:
    """The lines of a chain; when they grow too many, every other step is dropped, and of other rows those that do not fit."""

    def __init__(self) -> None:
        self.every = 1
        self.too_large = 0
        """How many rows were left out for their size."""
        self.lines: list[tuple[int, bytes]] = []
        """With which step it is, 0 for what is none."""
        self._steps = 0
        self._size = 0
        self._others = 0
        """The bytes of the lines that are no steps."""

    def add(self, row: Row, pictured: bool) -> None:
        """Take a row, unless it is one of the steps that are left out."""
        event = row.event
        stepped = isinstance(event, EpisodeStepped | BatchStepped)
        self._steps += stepped
        if stepped and self._steps % self.every:
            return
        if pictured and isinstance(event, EpisodeReset | EpisodeStepped) and bytes(event.scene) != b"null":
            row = dataclasses.replace(row, event=replace(event, scene=SOME_PIXELS))
        # Its values are most of a large row.
        fields = (getattr(row.event, name) for name in row.event.__struct_fields__)
        size = sum(memoryview(each).nbytes for each in fields if isinstance(each, Raw))
        if size > MOST_ROW or (not stepped and self._others + size > OTHERS_SIZE):
            self.too_large += 1
            return
        line = encode_row(row)
        self.lines.append((self._steps if stepped else 0, line))
        self._size += len(line)
        self._others += 0 if stepped else len(line)
        while self._size > ROWS_SIZE and self.every <= self._steps:
            self.every *= 2
            self.lines = [(step, line) for step, line in self.lines if step % self.every == 0]
            self._size = sum(len(line) for _, line in self.lines)


def _build_fork_contents(fork: documents.Fork) -> EpisodeContents:
    """Return a fork as an episode: it has no rows, and nothing in it was judged."""
    return EpisodeContents(
        head=_freeze_head(fork.head), slice=fork.slice, explanations={}, pixels={}, raw=_pack_rows([])
    )


def _pack_rows(lines: Sequence[bytes]) -> str:
    return b64encode(gzip.compress(b"".join(lines), mtime=0)).decode()


def _freeze_head(head: documents.EpisodeHead) -> documents.EpisodeHead:
    """Return a head of which nothing is live: a file does not change."""
    return replace(head, line=replace(head.line, live=False))


# ------------------------------------------------------------------------------------------------------------- the page
STATIC: Final = Path(__file__).parent / "static"
DATA_ID: Final = "proctor-episodes"
_CHARSET: Final = re.compile(r'<meta charset="utf-8">')
_TITLE: Final = re.compile(r"<title>.*?</title>")
_STYLE: Final = re.compile(r'<link rel="stylesheet" href="static/([^"]*)">\s*')
_SCRIPT: Final = re.compile(r'<script type="module" src="[^"]*"></script>')
_BODY_END: Final = re.compile("</body>")
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
    forks: Sequence[documents.Fork] = (),
    progress: Progress | None = None,
) -> str:
    """Return the page of these episodes and forks as one HTML text; a ValidationError if there is no such chain."""
    return assemble_page(collect_contents(ledger, chains, forks, progress), title)


def assemble_page(contents: PageContents, title: str | None = None, static: Path = STATIC) -> str:
    """Return the page of `contents`, made of the files in `static`."""
    # A command line may have signs that cannot be written down.
    contents = replace(contents, title=None if title is None else title.encode("utf-8", "replace").decode())
    names = " and ".join(line.chain for line in contents.lines)
    environments = " and ".join(dict.fromkeys(line.environment for line in contents.lines))
    skeleton = _read_file(static / "index.html")
    style = "\n".join(_read_file(static / name) for name in _STYLE.findall(skeleton))
    script = bundle_modules(static / "js")
    policy = f'<meta http-equiv="Content-Security-Policy" content="{_write_security_policy(script, style)}">'
    remarks = "".join(f'<p class="remark" role="note">{escape(each)}</p>\n' for each in contents.remarks)
    data = f'<script type="application/json" id="{DATA_ID}">{embed_json(contents)}</script>'
    text = _replace_once(_CHARSET, _STYLE.sub("", skeleton), f'<meta charset="utf-8">\n{policy}')
    text = _replace_once(_TITLE, text, f"<title>{escape(contents.title or f'{environments}: {names}')}</title>")
    text = _replace_once(_SCRIPT, text, f"<style>{style}</style>")
    # At the end of the body, so that everything is there when the script runs.
    return _replace_once(_BODY_END, text, f'{remarks}{data}\n<script type="module">{script}</script>\n</body>')


def embed_json(contents: object) -> str:
    """Return a value as JSON that can stand in a script element: no string in it can end that."""
    text = msgspec.json.encode(contents)
    for said, escaped in _ESCAPES:
        text = text.replace(said, escaped)
    # What is spliced in from a record was never decoded: bytes that are no text are shown as such.
    return text.decode("utf-8", "replace")


def _write_security_policy(script: str, style: str) -> str:
    hashes = [f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in (script, style)]
    rules = (
        "default-src 'none'",
        f"script-src {hashes[0]}",
        f"style-src {hashes[1]}",
        "img-src data: blob:",
        "connect-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
    return "; ".join(rules)


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
    return "".join(_wrap_module(name, texts[name]) for name in TopologicalSorter(needed).static_order())


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
    """Return a text that may stand in an element: it neither ends that, nor begins a comment."""
    try:
        # A browser hashes what it has read, in which every break of a line is one sign.
        text = path.read_text("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except OSError as problem:
        raise ComponentError(f"a file of the viewer cannot be read: {problem}") from problem
    if path.suffix != ".html" and (found := re.search("</(?:style|script)|<!--", text, re.IGNORECASE)):
        raise ComponentError(f"{path.name} may not say {found[0]}: it is put into a page")
    return text


def _replace_once(pattern: re.Pattern[str], text: str, said: str) -> str:
    if len(pattern.findall(text)) != 1:
        raise ComponentError("index.html is not as expected", expected=f"one {pattern.pattern}")
    return pattern.sub(lambda _: said, text)


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
        why = f"cannot write {str(path)!r}: {problem.strerror or type(problem).__name__}"
        raise ValidationError(why, expected="a file in a folder that can be written to") from problem
    finally:
        draft.unlink(missing_ok=True)
    return path


# ----------------------------------------------------------------------------------------------------------- an episode
HEIGHT: Final = 720
MOST_IN_NOTEBOOK: Final = 25_000_000
"""How large a page may be, in bytes, to be put into a notebook."""
MOST_NAMED: Final = 20


class Episode:
    """One episode of the ledger at `ledger`, a folder, a file or a bundle.

    `name` is its chain, its episode_id, or how one of them begins; it may be left out where there is only one. If that names
    none or several, it is a ValidationError that lists them.
    """

    def __init__(self, ledger: Path | str, name: str | None = None) -> None:
        self._ledger: Final = Path(ledger)
        with Ledger.open(self._ledger) as opened:
            self.summary: Final = find_episode(opened, name)
            """What was known of it when this object was made."""

    @property
    def steps(self) -> int:
        """How many steps it had when this object was made."""
        return self.summary.steps

    def html(self, *, title: str | None = None) -> str:
        """Return the page, as it can be opened from disk."""
        with Ledger.open(self._ledger) as opened:
            return build_page(opened, [self.summary.chain], title=title)

    def save(self, path: Path | str, *, title: str | None = None) -> Path:
        """Write the page to a file, over an older one, and return its path."""
        return save_page(path, self.html(title=title))

    def __repr__(self) -> str:
        of = self.summary
        reward = "unknown" if of.total_reward is None else f"{of.total_reward:g}"
        words = {"terminated": of.terminated, "truncated": of.truncated, "open": of.reason == ""}
        state = of.outcome or " and ".join(word for word, holds in words.items() if holds) or of.reason or "ended"
        return f"<Episode {of.chain} of {of.environment}: {of.steps:,} steps, total reward {reward}, {state}>"

    def _repr_html_(self) -> str:
        """Return the player for a notebook, or, of a page that is too large for one, how to save it."""
        text = self.html()
        size = len(text.encode())
        if size > MOST_IN_NOTEBOOK:
            return (
                f"<p>{escape(repr(self))}</p><p>Its page has {size / 1e6:,.0f} MB, which is too much for a notebook: "
                "save it with <code>.save(&quot;episode.html&quot;)</code> and open that.</p>"
            )
        return (
            f'<iframe title="{escape(self.summary.chain)}" sandbox="allow-scripts" width="100%" height="{HEIGHT}" '
            f'frameborder="0" srcdoc="{escape(text)}"></iframe>'
        )


def find_episode(ledger: Ledger, name: str | None) -> EpisodeSummary:
    """Return the episode of this name, or the only one; else a ValidationError that lists what there is."""
    if name is not None:
        return ledger.find(name)
    episodes = ledger.episodes()
    if len(episodes) == 1:
        return episodes[0]
    names = ", ".join(each.chain for each in episodes[:MOST_NAMED])
    more = f" and {len(episodes) - MOST_NAMED:,} more" if len(episodes) > MOST_NAMED else ""
    expected = f"the name of one of {names}{more}" if episodes else "a ledger with episodes"
    raise ValidationError("which episode?", found=f"{len(episodes):,} episodes", expected=expected)
