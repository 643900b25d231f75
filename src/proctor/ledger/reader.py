"""Reading ledgers: a folder of files, one file or a bundle, beside a live writer or alone.

Rule 1: reading changes nothing, and never waits for a writer.
Rule 2: rows come as they are in the file: whether they are as they were written is known by `verify` only.
Rule 3: what cannot be read is a ValidationError that names the file and the row. A file that cannot be read at all hides no
    other: it is in `unread`, with the reason. If none can be read, that is the error.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from proctor.errors import ValidationError
from proctor.ledger.files import Chain, LedgerFile, Row, ledger_files
from proctor.ledger.recovery import unfinished_chains
from proctor.ledger.rows import Observations, read_body
from proctor.ledger.summaries import EpisodeSummary, summaries

__all__ = ["EpisodeSummary", "Ledger", "Row", "ledger_files"]

Found = TypeVar("Found")
MOST_NAMED: Final = 20


class Ledger:
    """A ledger, open for reading."""

    def __init__(self, path: Path | str) -> None:
        self.unread: dict[Path, str] = {}
        """The files that cannot be read, as far as it is known by now."""
        self._files: list[LedgerFile] = []
        problems = [self._opened(each) for each in ledger_files(path)]
        if not self._files:
            raise next(problem for problem in problems if problem is not None)
        self.files: Final = tuple(file.path for file in self._files)

    def _opened(self, path: Path) -> ValidationError | None:
        """Open a file for the ledger, or return why it cannot be read."""
        try:
            self._files.append(LedgerFile(path))
        except ValidationError as problem:
            self.unread[path] = str(problem)
            return problem
        return None

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
        found = [episode for file in self._files for episode in self._read(file, summaries)]
        return sorted(found, key=lambda episode: episode.opened_at)

    def unfinished(self) -> set[str]:
        """Return the chains of sessions that nobody closed, which a server will take up again."""
        return {chain for file in self._files for chain in self._read(file, unfinished_chains)}

    def _read(self, file: LedgerFile, read: Callable[[LedgerFile], Iterable[Found]]) -> Iterable[Found]:
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
        raise _not_one(text, found, every)

    def rows(self, chain: str) -> Iterator[Row]:
        """Return the rows of a chain in order; a ValidationError if there is no such chain."""
        file, found = self.located(chain)
        return (file.row(chain, stored) for stored in file.stored_in(found))

    def keeps(self, chain: str) -> Observations:
        """Return how the chain keeps observations: "all", or their digests only."""
        file, found = self.located(chain)
        first = file.stored_at(found.first)
        return "all" if first is None else read_body(first[3]).observations or "all"

    def all_rows(self) -> Iterator[Row]:
        """Yield every row, by file and number."""
        for file in self._files:
            names = {chain.first: chain.name for chain in file.chains()}
            for stored in file.stored():
                yield file.row(names.get(stored[1], ""), stored)

    def observation(self, digest: str) -> bytes | None:
        """Return the stored bytes with this SHA-256, or None; short ones are in the rows and not found here."""
        found = (file.value(digest) for file in self._files)
        return next((value for value in found if value is not None), None)

    def located(self, chain: str) -> tuple[LedgerFile, Chain]:
        """Return a chain and the file that has it, or raise a ValidationError."""
        for file in self._files:
            for found in self._read(file, lambda file: [file.chain(chain)]):
                if found is not None:
                    return file, found
        raise ValidationError("there is no such chain", found=chain, expected="the whole name of one")


def _not_one(text: str, found: list[EpisodeSummary], every: list[EpisodeSummary]) -> ValidationError:
    names = [each.chain for each in found or every]
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ValidationError(
        "several episodes are called so" if found else "there is no such episode",
        found=text,
        expected=f"one of {', '.join(names[:MOST_NAMED])}{more}" if names else "a ledger with episodes",
    )
