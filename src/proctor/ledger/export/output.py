"""What every export shares: which episodes, where they are written, and the packages that some formats need.

Rule 1: an export appears whole or not at all: it is written beside its place under another name and moved there.
Rule 2: nothing is ever overwritten.
Rule 3: a package that only one format needs is imported when that format is written, never before.
"""

import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

from proctor.errors import MissingExtraError, ValidationError
from proctor.ledger.reader import EpisodeSummary, Ledger, Row

EXTRA: Final = "export"
PROGRESS_EVERY: Final = 256
"""Rows between two words about how far it is."""
Progress: TypeAlias = Callable[[int], object]
"""Is told how many more rows were read."""


def select_episodes(ledger: Ledger, names: Sequence[str]) -> list[EpisodeSummary]:
    """Return the episodes that are named, each once, in their order; all of them where none is named."""
    if not names:
        return ledger.episodes()
    found = [ledger.find(name) for name in names]
    return list({each.chain: each for each in found}.values())


def ignore_progress(more: int) -> None:
    """Hear how far an export is, where nobody looks."""


def report_progress(rows: Iterable[Row], more: Progress) -> Iterator[Row]:
    """Yield the rows, and tell now and then how many they were."""
    number = 0
    for number, row in enumerate(rows, 1):
        yield row
        if not number % PROGRESS_EVERY:
            more(PROGRESS_EVERY)
    more(number % PROGRESS_EVERY)


def import_extra(package: str, what: str, *, extra: str = EXTRA) -> Any:
    """Return the package, or raise a MissingExtraError that names the extra which brings it."""
    try:
        return import_module(package)
    except ImportError as problem:
        # A package that is there and cannot import another one says so itself.
        if problem.name is not None and problem.name.partition(".")[0] != package.partition(".")[0]:
            raise
        raise MissingExtraError(what, package=package.partition(".")[0], extra=extra) from None


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file that stands at `path` once the block has ended well; a ValidationError if one is there already."""
    with _draft(path) as draft, draft.open("xb") as file:
        yield file


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a folder that stands at `path` once the block has ended well; a ValidationError if one is there already."""
    with _draft(path) as draft:
        draft.mkdir()
        yield draft


@contextmanager
def _draft(path: Path) -> Iterator[Path]:
    """Yield a free name beside `path`; what was made there is moved to `path`, or removed if the block failed."""
    _check_free(path)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        yield draft
        # A look before the move, because a move to an empty folder or a file would replace it.
        _check_free(path)
        draft.rename(path)
    except OSError as problem:
        raise ValidationError(
            f"cannot write {str(path)!r}: {_reason(problem)}", expected="a new name in a folder that can be written to"
        ) from problem
    finally:
        _remove(draft)


def _check_free(path: Path) -> None:
    if os.path.lexists(path):
        raise ValidationError(f"{str(path)!r} is there already", expected="a name that is free")
    if not path.parent.is_dir():
        raise ValidationError(f"there is no folder {str(path.parent)!r}", expected="a folder to write to")


def _remove(draft: Path) -> None:
    with suppress(FileNotFoundError, NotADirectoryError):
        draft.unlink() if not draft.is_dir() else shutil.rmtree(draft)


def _reason(problem: OSError) -> str:
    return "the disk is full" if problem.errno == errno.ENOSPC else problem.strerror or type(problem).__name__
