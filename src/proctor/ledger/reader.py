"""Reading ledgers: a folder of files, one file or a bundle, beside a live writer or alone.

Rule 1: reading changes nothing, and never waits for a writer.
Rule 2: rows come as they are in the file: whether they are as they were written is known by `verify` only.
Rule 3: what cannot be read is a ValidationError that names the file and the row. A file that cannot be read at all hides no
    other: it is in `unread`, with the reason. If none can be read, that is the error.
Rule 4: an `EpisodeSummary` takes as few rows as possible: four of a chain that the server ended, wherever they lie; all rows of other
    chains, and of those that a writer of an earlier version ended, which did not say all that is listed.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec import UNSET, structs

from proctor.errors import ValidationError
from proctor.ledger.chain import (
    EMPTY_TOTALS,
    MOST_AGENTS,
    TERMINATED,
    TRUNCATED,
    EpisodeTotals,
    count_event,
    format_head,
    is_episode_chain,
    session_from_chain_name,
)
from proctor.ledger.recovery import find_unfinished_chains
from proctor.ledger.rows import (
    ChainEnded,
    LedgerStatement,
    PartialEvent,
    parse_event_row,
    parse_partial_row,
    parse_statement,
)
from proctor.ledger.storage.ledger_file import ChainEntry, LedgerFile, Row, StoredRow, ledger_files
from proctor.models.events import NULL, BatchReset, EpisodeClosed, EpisodeReset, SessionOpened


@dataclass(frozen=True, slots=True)
class EpisodeSummary:
    """What can be said of an episode on one line."""

    chain: str
    session: str
    epoch: int
    environment: str
    target: str
    episode_id: str
    seed: int | None
    """As asked for; None for a batch."""
    opened_at: float
    closed_at: float | None
    steps: int
    total_reward: float | None
    terminated: bool
    truncated: bool
    reason: str | None
    """Why it was closed; empty: it is open; None: it was left without a word."""
    governed: bool
    outcome: str | None
    num_envs: int | None
    rows: int
    head: str
    file: Path
    boot: str
    agent: str = ""
    """Who was granted tools: the first, and how many others; empty: nobody was."""
    tier: str = "none"
    refusals: int | None = None
    """Lines that the judge or the gate refused, and requests that were refused."""
    state: str | None = None
    """Where the machine of a governed episode stands, or stood last; None: nothing was judged."""


def summarize_episodes(file: LedgerFile) -> list[EpisodeSummary]:
    """Return the episodes of a file, in order of their first rows."""
    chains = [chain for chain in file.chains() if is_episode_chain(chain.name)]
    found = build_summaries(file, chains)
    return [found[chain.first].summary(file.path, chain) for chain in chains]


def build_summaries(file: LedgerFile, chains: Sequence[ChainEntry]) -> dict[int, "SummaryBuilder"]:
    """Return what is gathered of these episodes, by their first rows."""
    quick = build_summaries_from_ends(file)
    slow = {chain.first: SummaryBuilder() for chain in chains if chain.first not in quick}
    for stored in file.read_rows_of_chains(slow):
        slow[stored[1]].add_row(stored)
    return quick | slow


class SummaryBuilder:
    """What a summary is made of, gathered row by row."""

    def __init__(self) -> None:
        self.opened: SessionOpened | None = None
        self.reset: EpisodeReset | BatchReset | None = None
        self.closed: EpisodeClosed | None = None
        self.totals: EpisodeTotals = EMPTY_TOTALS
        self.number = 0
        self.seq = -1
        self.hash = b""
        self.at = 0.0
        """Of the last row, as the next three above; in seconds since 1970."""

    def add_row(self, stored: StoredRow) -> None:
        """Go on to the next row; what cannot be read of it is passed over, for a list leaves out no episode for that."""
        self.number, _, self.seq, body, self.hash = stored
        try:
            event = parse_partial_row(body).event
            if event is not UNSET:
                self._add_event(event, body)
        except (ValidationError, TypeError):
            return

    def _add_event(self, event: PartialEvent, body: bytes) -> None:
        self.at = event.at
        if event.event in _FULLY_READ:
            # Many are held at a time: what a list does not need, and a `Raw`, which holds the whole row, is left out.
            said = parse_event_row(body).event
            if isinstance(said, SessionOpened):
                policy: dict[str, Any] | None = None if said.policy is None else {}
                transforms: list[dict[str, Any]] = [{}] if said.transforms else []
                self.opened = structs.replace(said, settings={}, probe={}, policy=policy, transforms=transforms)
            elif isinstance(said, EpisodeReset | BatchReset):
                self.reset = self.reset or _without_values(said)
            elif isinstance(said, EpisodeClosed):
                self.closed = said
        else:
            self.totals = count_event(self.totals, event)

    def use_chain_end(self, ended: ChainEnded) -> None:
        """Take what the server said of the chain at its end, instead of reading all of it."""
        flags = ended.terminated * TERMINATED | ended.truncated * TRUNCATED
        said = (ended.refusals or 0, tuple(ended.agents or ()), ended.state or "")
        self.totals = EpisodeTotals(ended.steps, ended.total_reward, flags, *said)

    def summary(self, path: Path, chain: ChainEntry) -> EpisodeSummary:
        """Return what was gathered of the chain, in the file at `path`."""
        opened, reset, closed, totals = self.opened, self.reset, self.closed, self.totals
        unsaid = "" if chain.last is None else None
        return EpisodeSummary(
            chain=chain.name,
            session=session_from_chain_name(chain.name),
            epoch=0 if reset is None else reset.epoch,
            environment="" if opened is None else opened.environment,
            target="" if opened is None else opened.target,
            episode_id="" if reset is None else reset.episode_id,
            seed=reset.seed if isinstance(reset, EpisodeReset) else None,
            opened_at=0.0 if reset is None else reset.at,
            closed_at=None if closed is None else closed.at,
            steps=totals.steps,
            total_reward=totals.finite,
            terminated=bool(totals.ended & TERMINATED),
            truncated=bool(totals.ended & TRUNCATED),
            reason=unsaid if closed is None else closed.reason,
            governed=opened is not None and opened.policy is not None,
            outcome=None if closed is None else closed.outcome,
            num_envs=None if opened is None else opened.num_envs,
            rows=self.seq + 1,
            head=format_head(chain.name, self.seq + 1, self.hash),
            file=path,
            boot="" if opened is None else opened.boot,
            agent=format_agents(totals.agents),
            tier="none" if opened is None else opened.tier,
            refusals=totals.refusals,
            state=(None if closed is None else closed.state) or totals.state or None,
        )


def _without_values(said: EpisodeReset | BatchReset) -> EpisodeReset | BatchReset:
    if isinstance(said, BatchReset):
        return structs.replace(said, seed=None, options=NULL, mask=NULL, observations=NULL, infos=NULL, pipeline=NULL)
    return structs.replace(said, options=NULL, observation=NULL, metadata=NULL, pipeline=NULL, scene=NULL)


_FULLY_READ: Final = frozenset({"session_opened", "episode_reset", "batch_reset", "episode_closed"})


def build_summaries_from_ends(file: LedgerFile) -> dict[int, SummaryBuilder]:
    """Return what four rows say of each chain that has ended, by its first row; some are missing, of which they do not."""
    chains = {chain.first: chain for chain in file.chains() if is_episode_chain(chain.name)}
    ends = ((first, rows) for first, rows in file.read_chain_ends() if first in chains)
    found = {first: _build_from_ends(chains[first], rows) for first, rows in ends}
    return {first: fold for first, fold in found.items() if fold is not None}


def _build_from_ends(chain: ChainEntry, rows: list[StoredRow]) -> SummaryBuilder | None:
    *own, after = rows
    ended = parse_optional_statement(after[3])
    expected = {(number, chain.first) for number in (chain.first, chain.first + 1, chain.last)}
    if (
        not isinstance(ended, ChainEnded)
        or ended.chain != chain.name
        or not is_complete_end(ended)
        or {stored[:2] for stored in own} != expected
    ):
        return None
    fold = SummaryBuilder()
    for stored in own:
        fold.add_row(stored)
    fold.use_chain_end(ended)
    return fold


def is_complete_end(ended: ChainEnded) -> bool:
    """Return whether the end of a chain says all that a list says of it; one of an earlier version does not."""
    return None not in (ended.refusals, ended.agents, ended.state)


def parse_optional_statement(body: bytes) -> LedgerStatement | None:
    """Return the ledger's own statement in a row, None if there is none that can be read."""
    try:
        own = parse_partial_row(body).own
        return None if own is UNSET else parse_statement(own)
    except (ValidationError, TypeError):
        return None


def format_agents(names: Sequence[str]) -> str:
    """Return the name of the first agent, with how many others there are, as far as they are remembered."""
    least = " or more" if len(names) >= MOST_AGENTS else ""
    more = f" +{len(names) - 1}{least}" if len(names) > 1 else ""
    return f"{names[0]}{more}" if names else ""


__all__ = ["EpisodeSummary", "Ledger", "Row", "ledger_files"]

ReadResult = TypeVar("ReadResult")
MOST_NAMED: Final = 20


class Ledger:
    """A ledger, open for reading."""

    def __init__(self, path: Path | str) -> None:
        self.unread: dict[Path, str] = {}
        """The files that cannot be read, as far as it is known by now."""
        self._files: list[LedgerFile] = []
        problems = []
        for each in ledger_files(path):
            try:
                self._files.append(LedgerFile(each))
            except ValidationError as problem:
                self.unread[each] = str(problem)
                problems.append(problem)
        if not self._files:
            raise problems[0]
        self.files: Final = tuple(file.path for file in self._files)

    @classmethod
    @contextmanager
    def open(cls, path: Path | str) -> Iterator["Ledger"]:
        """Open the folder, the file or the bundle at `path` for the block; a ValidationError if it is none."""
        ledger = cls(path)
        try:
            yield ledger
        finally:
            ledger.close()

    def close(self) -> None:
        """Let go of the files; calling it again does nothing."""
        for file in self._files:
            file.close()

    def episodes(self) -> list[EpisodeSummary]:
        """Return the episodes of all files that can be read, in order of opening."""
        found = [episode for file in self._files for episode in self._read(file, summarize_episodes)]
        return sorted(found, key=lambda episode: episode.opened_at)

    def unfinished(self) -> set[str]:
        """Return the chains of sessions that nobody closed, which a server will take up again."""
        return {chain for file in self._files for chain in self._read(file, find_unfinished_chains)}

    def _read(self, file: LedgerFile, read: Callable[[LedgerFile], Iterable[ReadResult]]) -> Iterable[ReadResult]:
        """Return what is read from a file; from one of several that cannot be read, nothing."""
        try:
            return read(file)
        except ValidationError as problem:
            if len(self._files) == 1:
                raise
            self.unread[file.path] = str(problem)
            return ()

    def find(self, text: str) -> EpisodeSummary:
        """Return the episode of this chain, of this episode_id, or of a beginning that only one has."""
        every = self.episodes()
        found = [each for each in every if each.chain == text] or [each for each in every if each.episode_id == text]
        if not found:
            found = [each for each in every if each.chain.startswith(text) or each.episode_id.startswith(text)]
        if len(found) == 1:
            return found[0]
        names = [each.chain for each in found or every]
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        raise ValidationError(
            "several episodes are called so" if found else "there is no such episode",
            found=text,
            expected=f"one of {', '.join(names[:MOST_NAMED])}{more}" if names else "a ledger with episodes",
        )

    def rows(self, chain: str) -> Iterator[Row]:
        """Return the rows of a chain in order; a ValidationError if there is no such chain."""
        file, found = self.find_chain(chain)
        return (file.row(chain, stored) for stored in file.read_chain_rows(found))

    def all_rows(self) -> Iterator[Row]:
        """Yield every row, by file and number."""
        for file in self._files:
            names = {chain.first: chain.name for chain in file.chains()}
            for stored in file.read_rows():
                yield file.row(names.get(stored[1], ""), stored)

    def observation(self, digest: str) -> bytes | None:
        """Return the stored bytes with this SHA-256, or None; short ones are in the rows and not found here."""
        found = (file.value(digest) for file in self._files)
        return next((value for value in found if value is not None), None)

    def find_chain(self, chain: str) -> tuple[LedgerFile, ChainEntry]:
        """Return a chain and the file that has it, or raise a ValidationError."""
        for file in self._files:
            for found in self._read(file, lambda file: [file.chain(chain)]):
                if found is not None:
                    return file, found
        raise ValidationError("there is no such chain", found=chain, expected="the whole name of one")
