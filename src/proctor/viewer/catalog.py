"""A ledger as pages read it: the list of its episodes, and each of them in slices, old or live alike.

Rule 1: what is read is the ledger, beside whoever writes it: looking costs the writer nothing, and no row is read twice for
    the list.
Rule 2: a row is named by its number in its file; "after" is always such a number, and 0 is the beginning.
Rule 3: every method may be called by any thread, one at a time has its turn. What is not there is a ValidationError.
Rule 4: a file that cannot be read hides no other; if none can be, that is the error. Until it can be read again its episodes are
    listed as they were, and that is said; those of a file that was removed are not.
"""

import struct
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import RLock
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

from proctor.errors import ValidationError
from proctor.ledger.rows import ObservationStorage
from proctor.ledger.storage.ledger_file import ChainEntry, Row, ledger_files
from proctor.ledger.storage.sqlite import SUFFIX, is_blank
from proctor.models.arrays import MOST_PIXEL_BYTES, is_pixels, read_packed_pixels, unpack_array
from proctor.models.events import NULL, BatchReset, EpisodeReset, EpisodeStepped, SessionOpened
from proctor.viewer.documents import EpisodeHead, EpisodeLine, EpisodeSlice
from proctor.viewer.followed_file import FollowedFile
from proctor.viewer.slices import SliceBuilder, null_if_large

MOST_ROWS: Final = 100_000
"""Of one slice."""
WINDOW: Final = 200_000
"""So many rows of a file, of all its chains, are looked through for one slice that is not thinned."""
PAGE: Final = 500
"""So many rows are taken at once: after each it is looked at how large the slice has become."""
_encode: Final = msgspec.json.Encoder().encode


class EpisodeCatalog:
    """The ledger at `path`: a folder, a file or a bundle; with `live` it need not be there yet."""

    def __init__(self, path: Path | str, *, live: bool = False, wall: Callable[[], float] = time.time) -> None:
        self.path: Final = Path(path)
        self.live: Final = live
        self.unread: dict[Path, str] = {}
        """The files that could not be read the last time, with the reasons."""
        self._wall = wall
        self._lock = RLock()
        self._files: dict[Path, FollowedFile] = {}
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

    def lines(self) -> list[EpisodeLine]:
        """Return all episodes, the newest first."""
        with self._lock:
            self._catch_up()
            self._take_news()
            return _newest_first({name: line for each in self._files_backwards() for name, line in each.lines.items()})

    def news(self) -> list[EpisodeLine]:
        """Return the episodes that have changed since they were asked for the last time, the newest first."""
        with self._lock:
            self._catch_up()
            return _newest_first(self._take_news())

    def missing_chains(self) -> list[str]:
        """Return the episodes that were listed once and are not any more, each once; read what is new before."""
        with self._lock:
            left, self._left = self._left, {}
            there = {name for followed in self._files_backwards() for name in followed.lines}
            return [name for name in left if name not in there]

    def head(self, chain: str) -> EpisodeHead:
        """Return what a page needs to know of an episode before its steps."""
        with self._lock:
            followed, found = self._find_chain(chain)
            return build_head(followed.lines[chain], followed.opening(found), followed.keeps(found))

    def slice(self, chain: str, *, after: int = 0, most: int = 5000, thin: bool = False) -> EpisodeSlice:
        """Return the next rows of a chain after the one of this number, at most `most` of them.

        With `thin` they are all rows up to the end, with at most `most` of the steps, evenly. Either way there are fewer, and `more`,
        where they are too large for one slice.
        """
        most = min(max(most, 1), MOST_ROWS)
        with self._lock:
            followed, found = self._find_chain(chain)
            end = max(followed.lines[chain].last, after)
            gathering = SliceBuilder(
                followed,
                pixels=self._has_pixels(followed, found),
                batch=followed.lines[chain].num_envs is not None,
                thin=_choose_spacing(followed, found, after, most) if thin else 1,
                step_before=lambda: followed.step_before(found, after),
            )
            last = _fill_slice(gathering, followed, found, after, end, None if thin else most)
            more = last < end
            return gathering.slice(chain, after, last, more=more, ended=found.last is not None and not more)

    def raw(self, chain: str, number: int) -> bytes:
        """Return one row as JSON, with its values."""
        with self._lock:
            row = self._row(chain, number)
        place = {"number": row.number, "seq": row.seq, "chain": row.chain}
        return _encode({**place, "hash": row.hash.hex(), "digest": row.digest, "event": row.event})

    def pixels(self, chain: str, number: int) -> bytes:
        """Return the picture of one row as a PNG file."""
        with self._lock:
            row = self._row(chain, number)
        return png_from_scene(row.event.scene if isinstance(row.event, EpisodeReset | EpisodeStepped) else NULL)

    def remarks(self) -> list[str]:
        """Return what the list leaves out, in sentences."""
        with self._lock:
            return [self._remark(path, why) for path, why in sorted(self.unread.items())]

    def _remark(self, path: Path, why: str) -> str:
        if self._files[path].lines:
            return f"{path.name} cannot be read now, so that its episodes are listed as they were: {why}"
        return f"{path.name} cannot be read, so that its episodes are not listed: {why}"

    def close(self) -> None:
        """Let go of the files; calling it again does nothing."""
        with self._lock:
            self._closed = True
            for followed in self._files.values():
                followed.close()

    def _catch_up(self) -> None:
        if self._closed:
            raise ValidationError("the catalog is closed")
        for path in [path for path in self._files if not path.is_file()]:
            removed = self._files.pop(path)
            removed.close()
            self._left |= dict.fromkeys(removed.lines)
            for name in removed.lines:
                self._drawn.pop(name, None)
        for path in self._paths():
            self._files.setdefault(path, FollowedFile(path, self._wall))
        problems: dict[Path, ValidationError] = {}
        for path, followed in self._files.items():
            try:
                followed.catch_up()
            except ValidationError as problem:
                problems[path] = problem
        self.unread = {path: str(problem) for path, problem in problems.items()}
        if problems and len(problems) == len(self._files):
            raise next(iter(problems.values()))

    def _paths(self) -> list[Path]:
        if not self.live and not self._files:
            return list(ledger_files(self.path))
        found = sorted(self.path.glob(f"*{SUFFIX}")) if self.path.is_dir() else [self.path]
        return [path for path in found if path not in self._files and path.is_file() and not is_blank(path)]

    def _files_backwards(self) -> list[FollowedFile]:
        """Return the files backwards: of two chains with one name that in the first file is the one that is shown."""
        return [followed for _, followed in sorted(self._files.items(), reverse=True)]

    def _take_news(self) -> dict[str, EpisodeLine]:
        taken: dict[str, EpisodeLine] = {}
        for followed in self._files_backwards():
            taken |= {name: followed.lines[name] for name in followed.news if name in followed.lines}
            followed.news.clear()
            self._left |= followed.missing_chains
            followed.missing_chains.clear()
        return taken

    def _find_chain(self, name: str) -> tuple[FollowedFile, ChainEntry]:
        self._catch_up()
        for followed in reversed(self._files_backwards()):
            if name in followed.lines:
                if followed.path in self.unread:
                    raise ValidationError(self._remark(followed.path, self.unread[followed.path]))
                return followed, followed.chains[name]
        raise ValidationError("there is no such episode", found=name, expected="the whole name of a chain")

    def _row(self, chain: str, number: int) -> Row:
        followed, found = self._find_chain(chain)
        stored = followed.file.read_row(number)
        if stored is None or stored[1] != found.first:
            raise ValidationError("there is no such row", found=number, expected=f"a row of {chain}")
        return followed.file.row(chain, stored)

    def _has_pixels(self, followed: FollowedFile, chain: ChainEntry) -> bool:
        if chain.name not in self._drawn:
            resets = [row.event for row in followed.opening(chain) if isinstance(row.event, EpisodeReset)]
            self._drawn[chain.name] = any(is_pixels(each.scene) for each in resets)
        return self._drawn[chain.name]


def _newest_first(lines: dict[str, EpisodeLine]) -> list[EpisodeLine]:
    return sorted(lines.values(), key=lambda line: (line.opened_at, line.last), reverse=True)


def _fill_slice(
    gathering: SliceBuilder, followed: FollowedFile, chain: ChainEntry, after: int, end: int, most: int | None
) -> int:
    """Give the rows after a number to the gathering, until it is full; return the number up to which they are all there."""
    left, window = most, min(max(after, chain.first) + WINDOW, end)
    while True:
        upto = window if left is not None else min(max(after, chain.first) + WINDOW, end)
        page = PAGE if left is None else min(PAGE, left)
        rows, is_cut = followed.rows(chain, after, upto, page)
        for row in rows:
            gathering.take(*row)
        after = rows[-1][0] if is_cut else upto
        left = None if left is None else left - len(rows)
        if after >= end or gathering.is_full or (left is not None and (not left or not is_cut)):
            return after


def _choose_spacing(followed: FollowedFile, chain: ChainEntry, after: int, most: int) -> int:
    """Return of how many steps one is kept, so that at most `most` are."""
    line = followed.lines[chain.name]
    left = followed.steps_between(chain, after, line.last) if after else line.steps
    # Who writes a file may have written any number into it: the rows are there.
    return max(1, -(-min(left, line.rows) // most))


MOST_VALUE: Final = 2**22
"""Bytes of a scene, an observation or options in a head."""


def build_head(line: EpisodeLine, rows: Sequence[Row], keeps: ObservationStorage) -> EpisodeHead:
    """Return the head of an episode; what its rows do not say is empty."""
    target, first = "", 0
    versions: dict[str, str] = {}
    transforms: list[str] = []
    settings: Any = {}
    policy: Any = None
    options, scene, observation = NULL, NULL, NULL
    for row in rows:
        event = row.event
        if isinstance(event, SessionOpened):
            target, settings, policy = event.target, event.settings, event.policy
            transforms = [str(spec.get("name", spec.get("type", ""))) for spec in event.transforms]
            versions = {"proctor": event.server, "environment": event.environment_version}
            versions |= {name: getattr(event, name) for name in ("python", "gymnasium", "numpy")}
        elif isinstance(event, EpisodeReset):
            first, options, observation = row.number, event.options, event.observation
            scene = NO_PIXELS if is_pixels(event.scene) else event.scene
        elif isinstance(event, BatchReset):
            first, options, observation = row.number, event.options, null_if_large(event.observations)
    return EpisodeHead(
        line=line,
        target=target,
        settings=Raw(_encode(settings)),
        policy=Raw(_encode(policy)),
        transforms=transforms,
        options=null_if_large(options, MOST_VALUE),
        versions=versions,
        scene=null_if_large(scene, MOST_VALUE),
        observation=null_if_large(observation, MOST_VALUE),
        keeps=keeps,
        first=first,
    )


NO_PIXELS: Final = Raw(b'{"environment":"pixels","frame":{"pixels":true}}')
"""A scene of pixels as pages get it, which ask for the pixels themselves one by one."""
_KINDS: Final = {1: 0, 3: 2, 4: 6}
"""PNG's name for grey, RGB and RGBA, by the number of channels."""


def png_from_scene(scene: Raw) -> bytes:
    """Return the picture in a scene or in a frame as a PNG file, or raise a ValidationError: there is none."""
    packed = read_packed_pixels(scene)
    if packed is None:
        raise ValidationError("there is no picture here", expected="a row with pixels")
    return encode_png(unpack_array(packed, most=MOST_PIXEL_BYTES))


def encode_png(pixels: NDArray[Any]) -> bytes:
    """Return an array of bytes, height by width, of 1, 3 or 4 channels or of none, as a PNG file."""
    if pixels.ndim == 2:
        pixels = pixels[:, :, np.newaxis]
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] not in _KINDS or not pixels.size:
        found = f"{pixels.dtype} of shape {pixels.shape}"
        raise ValidationError("not a picture", found=found, expected="bytes: height, width, channels")
    height, width, channels = pixels.shape
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # every row begins with its filter, which is none
    rows[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, _KINDS[channels], 0, 0, 0)
    file = b"\x89PNG\r\n\x1a\n"
    for chunk in (b"IHDR" + header, b"IDAT" + zlib.compress(rows.tobytes(), 3), b"IEND"):
        file += struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return file
