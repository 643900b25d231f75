"""A ledger as pages read it: the list of its episodes, and each of them in slices, old or live alike.

Rule 1: what is read is the ledger, beside whoever writes it: looking costs the writer nothing, and no row is read twice for
    the list.
Rule 2: a row is named by its number in its file; "after" is always such a number, and 0 is the beginning.
Rule 3: every method may be called by any thread, one at a time has its turn. What is not there is a ValidationError.
Rule 4: a file that cannot be read hides no other; if none can be, that is the error. Until it can be read again its episodes are
    listed as they were, and that is said; those of a file that was removed are not.
"""

import time
from collections.abc import Callable
from pathlib import Path
from threading import RLock
from typing import Final

import msgspec

from proctor.errors import ValidationError
from proctor.ledger.files import Chain, Row, ledger_files
from proctor.ledger.schema import SUFFIX, is_blank
from proctor.models.events import NULL, EpisodeReset, EpisodeStepped
from proctor.models.pixels import is_pixels
from proctor.viewer.documents import Head, Line, Slice
from proctor.viewer.heads import head_of
from proctor.viewer.pictures import picture_in
from proctor.viewer.slices import Gathering
from proctor.viewer.volume import Volume

MOST_ROWS: Final = 100_000
"""Of one slice."""
WINDOW: Final = 200_000
"""So many rows of a file, of all its chains, are looked through for one slice that is not thinned."""
PAGE: Final = 500
"""So many rows are taken at once: after each it is looked at how large the slice has become."""
_encode: Final = msgspec.json.Encoder().encode


class Shelf:
    """The ledger at `path`: a folder, a file or a bundle; with `live` it need not be there yet."""

    def __init__(self, path: Path | str, *, live: bool = False, wall: Callable[[], float] = time.time) -> None:
        self.path: Final = Path(path)
        self.live: Final = live
        self.unread: dict[Path, str] = {}
        """The files that could not be read the last time, with the reasons."""
        self._wall = wall
        self._lock = RLock()
        self._volumes: dict[Path, Volume] = {}
        self._drawn: dict[str, bool] = {}
        """Which chains' frames are pixels, as far as that was asked."""
        self._left: dict[str, None] = {}
        """The names of episodes that are gone, and of which nobody was told yet."""
        self._closed = False
        try:
            self._catch_up()
        except ValidationError:
            self.close()
            raise

    def lines(self) -> list[Line]:
        """Return all episodes, the newest first."""
        with self._lock:
            self._catch_up()
            self._taken()
            return _newest({name: line for each in self._each() for name, line in each.lines.items()})

    def news(self) -> list[Line]:
        """Return the episodes that have changed since they were asked for the last time, the newest first."""
        with self._lock:
            self._catch_up()
            return _newest(self._taken())

    def gone(self) -> list[str]:
        """Return the episodes that were listed once and are not any more, each once; read what is new before."""
        with self._lock:
            left, self._left = self._left, {}
            there = {name for volume in self._each() for name in volume.lines}
            return [name for name in left if name not in there]

    def head(self, chain: str) -> Head:
        """Return what a page needs to know of an episode before its steps."""
        with self._lock:
            volume, found = self._located(chain)
            return head_of(volume.lines[chain], volume.opening(found), volume.keeps(found))

    def slice(self, chain: str, *, after: int = 0, most: int = 5000, thin: bool = False) -> Slice:
        """Return the next rows of a chain after the one of this number, at most `most` of them.

        With `thin` they are all rows up to the end, with at most `most` of the steps, evenly. Either way there are fewer, and `more`,
        where they are too large for one slice.
        """
        most = min(max(most, 1), MOST_ROWS)
        with self._lock:
            volume, found = self._located(chain)
            end = max(volume.lines[chain].last, after)
            gathering = Gathering(
                volume,
                pixels=self._is_drawn(volume, found),
                batch=volume.lines[chain].num_envs is not None,
                thin=_spacing(volume, found, after, most) if thin else 1,
                step_before=lambda: volume.step_before(found, after),
            )
            last = _gathered(gathering, volume, found, after, end, None if thin else most)
            more = last < end
            return gathering.slice(chain, after, last, more=more, ended=found.last is not None and not more)

    def raw(self, chain: str, number: int) -> bytes:
        """Return one row as JSON, with its values."""
        with self._lock:
            row = self._row(chain, number)
        document = {
            "number": row.number,
            "seq": row.seq,
            "chain": row.chain,
            "hash": row.hash.hex(),
            "digest": row.digest,
            "event": row.event,
        }
        return _encode(document)

    def pixels(self, chain: str, number: int) -> bytes:
        """Return the picture of one row as a PNG file."""
        with self._lock:
            row = self._row(chain, number)
        event = row.event
        scene = event.scene if isinstance(event, EpisodeReset | EpisodeStepped) else NULL
        return picture_in(scene)

    def remarks(self) -> list[str]:
        """Return what the list leaves out, in sentences."""
        with self._lock:
            return [self._remark(path, why) for path, why in sorted(self.unread.items())]

    def _remark(self, path: Path, why: str) -> str:
        if self._volumes[path].lines:
            return f"{path.name} cannot be read now, so that its episodes are listed as they were: {why}"
        return f"{path.name} cannot be read, so that its episodes are not listed: {why}"

    def close(self) -> None:
        """Let go of the files; calling it again does nothing."""
        with self._lock:
            self._closed = True
            for volume in self._volumes.values():
                volume.close()

    # ------------------------------------------------------------------------------------------------------ the files
    def _catch_up(self) -> None:
        """Read what is new in all files, among them new ones."""
        if self._closed:
            raise ValidationError("the shelf is closed")
        for path in [path for path in self._volumes if not path.is_file()]:
            self._removed(self._volumes.pop(path))
        for path in self._paths():
            self._volumes.setdefault(path, Volume(path, self._wall))
        self.unread = {}
        problems = [self._read(volume) for volume in self._volumes.values()]
        if problems and all(problem is not None for problem in problems):
            raise next(problem for problem in problems if problem is not None)

    def _paths(self) -> list[Path]:
        """Return the files that are not followed yet."""
        if not self.live and not self._volumes:
            return list(ledger_files(self.path))
        found = sorted(self.path.glob(f"*{SUFFIX}")) if self.path.is_dir() else [self.path]
        return [path for path in found if path not in self._volumes and path.is_file() and not is_blank(path)]

    def _removed(self, volume: Volume) -> None:
        """Let go of a file that is there no more."""
        volume.close()
        self._left |= dict.fromkeys(volume.lines)
        for name in volume.lines:
            self._drawn.pop(name, None)

    def _read(self, volume: Volume) -> ValidationError | None:
        try:
            volume.catch_up()
        except ValidationError as problem:
            self.unread[volume.path] = str(problem)
            return problem
        return None

    def _each(self) -> list[Volume]:
        """Return the files backwards: of two chains with one name that in the first file is the one that is shown."""
        return [volume for _, volume in sorted(self._volumes.items(), reverse=True)]

    def _taken(self) -> dict[str, Line]:
        taken: dict[str, Line] = {}
        for volume in self._each():
            taken |= {name: volume.lines[name] for name in volume.news if name in volume.lines}
            volume.news.clear()
            self._left |= volume.gone
            volume.gone.clear()
        return taken

    # ---------------------------------------------------------------------------------------------------- one episode
    def _located(self, name: str) -> tuple[Volume, Chain]:
        """Return an episode's chain as it is now, and the file that has it."""
        self._catch_up()
        for volume in reversed(self._each()):
            if name in volume.lines:
                if volume.path in self.unread:
                    raise ValidationError(self._remark(volume.path, self.unread[volume.path]))
                return volume, volume.chains[name]
        raise ValidationError("there is no such episode", found=name, expected="the whole name of a chain")

    def _row(self, chain: str, number: int) -> Row:
        volume, found = self._located(chain)
        stored = volume.file.stored_at(number)
        if stored is None or stored[1] != found.first:
            raise ValidationError("there is no such row", found=number, expected=f"a row of {chain}")
        return volume.file.row(chain, stored)

    def _is_drawn(self, volume: Volume, chain: Chain) -> bool:
        """Return whether the frames of a chain are pixels."""
        if chain.name not in self._drawn:
            resets = [row.event for row in volume.opening(chain) if isinstance(row.event, EpisodeReset)]
            self._drawn[chain.name] = any(is_pixels(each.scene) for each in resets)
        return self._drawn[chain.name]


def _newest(lines: dict[str, Line]) -> list[Line]:
    return sorted(lines.values(), key=lambda line: (line.opened_at, line.last), reverse=True)


def _gathered(gathering: Gathering, volume: Volume, chain: Chain, after: int, end: int, most: int | None) -> int:
    """Give the rows after a number to the gathering, until it is full; return the number up to which they are all there."""
    left, window = most, min(max(after, chain.first) + WINDOW, end)
    while True:
        upto = window if left is not None else min(max(after, chain.first) + WINDOW, end)
        page = PAGE if left is None else min(PAGE, left)
        rows, is_cut = volume.rows(chain, after, upto, page)
        for row in rows:
            gathering.take(*row)
        after = rows[-1][0] if is_cut else upto
        left = None if left is None else left - len(rows)
        if after >= end or gathering.is_full or (left is not None and (not left or not is_cut)):
            return after


def _spacing(volume: Volume, chain: Chain, after: int, most: int) -> int:
    """Return of how many steps one is kept, so that at most `most` are."""
    line = volume.lines[chain.name]
    left = volume.steps_between(chain, after, line.last) if after else line.steps
    # Who writes a file may have written any number into it: the rows are there.
    return max(1, -(-min(left, line.rows) // most))
