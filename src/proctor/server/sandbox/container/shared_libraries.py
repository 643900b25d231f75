"""Which shared libraries a set of programs and extension modules needs, as this machine's loader finds them.

Rule 1: `ldd` is asked, since the loader knows best where it looks; nothing is searched for by rules of ours.
Rule 2: a library that lies among the files that are asked about travels with them and is not named again.
"""

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from proctor.errors import ComponentError

MAGIC: Final = b"\x7fELF"
AT_ONCE: Final = 100
"""Files for one call of `ldd`."""
PATIENCE_SECONDS: Final = 120.0
FOUND: Final = re.compile(r"\s+(\S+) => (/.*) \(0x[0-9a-f]+\)")
ABSENT: Final = re.compile(r"\s+(\S+) => not found")
LOADER: Final = re.compile(r"\s+(/\S*/ld\S*) \(0x[0-9a-f]+\)")
LOADED_LATE: Final = ("libgcc_s.so.1", "libnss_files.so.2")
"""What the C library opens by name when a thread ends or a user is looked up; no file says that it needs them."""


@dataclass(frozen=True, slots=True)
class SharedLibraries:
    """Libraries by the name that the loader asks for, the loader itself, and the names that nobody found."""

    files: dict[str, Path] = field(default_factory=dict)
    loader: Path | None = None
    absent: frozenset[str] = frozenset()


def is_elf(path: Path) -> bool:
    """Return whether a file is a program or a library for the loader."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def find_libraries(paths: Sequence[Path]) -> SharedLibraries:
    """Return what these files need beside each other."""
    told = "".join(_run_ldd(paths[start : start + AT_ONCE]) for start in range(0, len(paths), AT_ONCE))
    return _exclude_own_files(parse_ldd(told), paths)


def parse_ldd(text: str) -> SharedLibraries:
    """Return what `ldd` said; of two files for one name the first counts, as it does for the loader."""
    files: dict[str, Path] = {}
    absent: set[str] = set()
    loader: Path | None = None
    for line in text.splitlines():
        if found := FOUND.fullmatch(line):
            files.setdefault(found[1], Path(found[2]))
        elif found := ABSENT.fullmatch(line):
            absent.add(found[1])
        elif found := LOADER.fullmatch(line):
            loader = loader or Path(found[1])
    return SharedLibraries(files, loader, frozenset(absent - set(files)))


def find_late_libraries(known: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """Yield the libraries that are opened by name, as far as they lie in the folders of those that are known."""
    folders = list(dict.fromkeys(path.parent for path in known))
    for name in LOADED_LATE:
        place = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if place is not None:
            yield name, place


def _exclude_own_files(told: SharedLibraries, paths: Sequence[Path]) -> SharedLibraries:
    here = {path.resolve() for path in paths}
    names = {path.name for path in paths}
    files = {name: path for name, path in told.files.items() if path.resolve() not in here}
    late = {name: path for name, path in find_late_libraries(files.values()) if name not in files}
    return SharedLibraries(files | late, told.loader, told.absent - names)


def _run_ldd(paths: Sequence[Path]) -> str:
    program = shutil.which("ldd")
    if program is None:
        raise ComponentError("the shared libraries cannot be found", found="no ldd", expected="ldd on the PATH")
    try:
        # The exit code says that one of the files needs no loader, which is no mistake.
        done = subprocess.run(  # noqa: S603  # ldd and paths of installed files
            [program, *map(str, paths)], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise ComponentError("ldd did not end in time", expected=f"an answer in {PATIENCE_SECONDS:g} s") from None
    return done.stdout
