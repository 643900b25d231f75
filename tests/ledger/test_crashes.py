"""Killed writers, torn files and flipped bytes."""

import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from itertools import cycle
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from proctor.errors import ValidationError
from proctor.ledger.reader import Ledger
from proctor.ledger.storage.ledger_file import Row
from proctor.ledger.verify import verify
from proctor.models.events import EpisodeStepped
from tests.ledger.damage import LONG, story_file
from tests.ledger.session_events import SIGNER, begun, opened, reset, step, writer

WRITING = """
import asyncio, os, sys
from pathlib import Path
from tests.ledger.session_events import opened, reset, step, safe, writer
folder, durability, run = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
async def one(into, name):
    await safe(into.record(opened(name)))
    await safe(into.record(reset(name)))
    for number in range(1, 100_000):
        await safe(into.record(step(name, number=number)))
        os.write(1, f"{name} {number}\\n".encode())
async def main():
    into = writer(folder, durability=durability, boot=run)
    await asyncio.gather(*(one(into, f"r{run}s{number}") for number in range(8)))
asyncio.run(main())
"""


def killed(folder: Path, durability: str, number: int, lines: int) -> dict[str, int]:
    """Let a process write, kill it after so many acknowledged steps, and return the last ones of each session."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITING, str(folder), durability, str(number)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    told: dict[str, int] = {}
    for count, line in enumerate(process.stdout):
        if count == lines:
            process.send_signal(signal.SIGKILL)
        if line.endswith(b"\n"):
            name, step_number = line.split()
            told[name.decode()] = int(step_number)
    assert process.wait(timeout=300) == -signal.SIGKILL
    process.stdout.close()
    return told


def steps_of(path: Path, chain: str) -> list[int]:
    with Ledger.open(path) as ledger:
        return [row.event.step for row in ledger.rows(chain) if isinstance(row.event, EpisodeStepped)]


def kill_and_look(folder: Path, durability: str, times: int) -> None:
    chance = random.Random(times)
    acknowledged: dict[str, int] = {}
    for number in range(times):
        acknowledged |= killed(folder, durability, number, chance.randrange(60, 600))

        assert verify(folder, public=SIGNER.public, allow_unsealed=True).ok
    assert len(acknowledged) == 8 * times
    for name, last in acknowledged.items():
        found = steps_of(folder, f"{name}.1")
        assert found == list(range(1, len(found) + 1))
        assert len(found) >= last


@pytest.mark.parametrize("durability", ["full", "normal"])
def test_a_killed_writer_loses_nothing_that_was_acknowledged(tmp_path: Path, durability: str) -> None:
    kill_and_look(tmp_path, durability, times=1)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("durability", ["full", "normal"])
def test_a_writer_that_is_killed_often_loses_nothing_that_was_acknowledged(tmp_path: Path, durability: str) -> None:
    kill_and_look(tmp_path, durability, times=40)


def test_a_killed_writer_that_nobody_waited_for_leaves_a_sound_ledger(tmp_path: Path) -> None:
    killed(tmp_path, "off", 0, 500)

    assert verify(tmp_path, public=SIGNER.public, allow_unsealed=True).ok


def log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


class Torn:
    """A file and its log at some moment, of which any part of the last commit can be missing."""

    def __init__(self, folder: Path) -> None:
        into = begun(folder / "live", [opened(), reset(), step(number=1)])
        self.before = log_of(into.path).stat().st_size
        into.record(step(number=2, observation=Raw(LONG)))
        self.file, self.log = into.path.read_bytes(), log_of(into.path).read_bytes()
        into.close()
        self._folder = folder

    def at(self, size: int) -> Path:
        """The ledger as it is when the log was torn at this byte."""
        shutil.rmtree(self._folder / "torn", ignore_errors=True)
        path = self._folder / "torn" / "worker-0.ledger"
        path.parent.mkdir()
        path.write_bytes(self.file)
        log_of(path).write_bytes(self.log[:size])
        return path


def look_at_torn(torn: Torn, sizes: Iterable[int]) -> None:
    for size in sizes:
        path = torn.at(size)

        assert verify(path, public=SIGNER.public, allow_unsealed=True).ok, size
        assert steps_of(path, "s.1") == ([1, 2] if size == len(torn.log) else [1]), size


def test_a_torn_log_ends_at_the_last_commit(tmp_path: Path) -> None:
    torn = Torn(tmp_path)
    chance = random.Random(1)

    look_at_torn(torn, [torn.before, torn.before + 1, len(torn.log) - 1, len(torn.log)])
    look_at_torn(torn, [chance.randrange(torn.before, len(torn.log)) for _ in range(40)])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_log_that_is_torn_at_any_byte_of_the_last_commit_ends_at_the_one_before(tmp_path: Path) -> None:
    torn = Torn(tmp_path)

    look_at_torn(torn, range(torn.before, len(torn.log) + 1))


def test_a_writer_goes_on_after_a_torn_log(tmp_path: Path) -> None:
    torn = Torn(tmp_path)
    for size in (torn.before + 100, len(torn.log) - 1):
        path = torn.at(size)
        into = writer(path.parent, boot="c")

        assert [len(each.events) for each in into.unfinished()] == [2]
        into.record(step(number=2))
        into.close()
        assert steps_of(path, "s.1") == [1, 2]
        assert verify(path, public=SIGNER.public).ok


def test_a_file_that_was_torn_while_the_log_was_taken_over_is_whole(tmp_path: Path) -> None:
    """A checkpoint that was cut off: pages of the file are missing or half written, and the log has them all."""
    torn = Torn(tmp_path)
    whole = tmp_path / "live" / "worker-0.ledger"
    pages = whole.read_bytes()
    chance = random.Random(3)
    for size in [4096, 4097, len(pages) - 1, *(chance.randrange(4096, len(pages)) for _ in range(20))]:
        path = torn.at(len(torn.log))
        path.write_bytes(pages[:size])

        assert verify(path, public=SIGNER.public, allow_unsealed=True).ok
        assert steps_of(path, "s.1") == [1, 2]


def content(path: Path) -> list[tuple[object, ...]]:
    with Ledger.open(path) as ledger:
        read: list[tuple[object, ...]] = [comparable(row) for row in ledger.all_rows()]
        return read + [tuple(comparable(row) for row in ledger.rows(episode.chain)) for episode in ledger.episodes()]


def comparable(row: Row) -> tuple[object, ...]:
    return row.number, row.chain, row.seq, row.hash, row.digest, row.values, msgspec.json.encode(row.event)


def flip_bytes(path: Path, whole: bytes, offsets: Iterable[int], masks: Iterable[int]) -> int:
    """Flip bits of these bytes, one byte at a time, by one mask after the other; return how many flips changed nothing."""
    before, harmless = content(path), 0
    for offset, mask in zip(offsets, cycle(masks), strict=False):
        changed = bytearray(whole)
        changed[offset] ^= mask
        path.write_bytes(changed)
        if verify(path).ok:
            harmless += 1
            assert content(path) == before, (offset, mask)
    path.write_bytes(whole)
    return harmless


def small(folder: Path) -> tuple[Path, bytes]:
    path = story_file(folder, steps=3)
    return path, path.read_bytes()


def test_a_flipped_byte_is_found_or_changes_no_row(tmp_path: Path) -> None:
    path, whole = small(tmp_path)
    chance = random.Random(5)
    header = range(100)

    flip_bytes(path, whole, header, [0xFF])
    flip_bytes(path, whole, chance.sample(range(len(whole)), 120), [1 << chance.randrange(8)])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_flipped_byte_is_found_or_changes_no_row(tmp_path: Path) -> None:
    path, whole = small(tmp_path)

    harmless = flip_bytes(path, whole, range(len(whole)), [0x01, 0x80, 0xFF, 0x10, 0x02])

    assert harmless < len(whole)


def test_a_file_that_is_cut_off_is_found(tmp_path: Path) -> None:
    path, whole = small(tmp_path)
    for size in (0, 1, 99, 100, 4095, 4096, 8192, len(whole) - 4096, len(whole) - 1):
        path.write_bytes(whole[:size])

        assert not verify(path).ok, size
        try:
            content(path)
        except ValidationError:
            continue
