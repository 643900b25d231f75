"""What is acknowledged is in the file, whatever becomes of the disk, of the process and of other writers."""

import errno
import fcntl
import multiprocessing
import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from proctor.errors import ComponentError, ValidationError
from proctor.models.events import EpisodeStepped, Event, SessionClosed, encode_event
from proctor.server.sessions.recorders import JsonlRecorder, Torn, read_events
from tests.memory import measured_memory

WRITERS = 2
EVENTS_EACH = 150
LAST = SessionClosed(session="s", at=1.0, reason="client", episodes=1, steps=0)


def step(number: int, session: str = "s", size: int = 1) -> EpisodeStepped:
    return EpisodeStepped(
        session=session,
        at=0.0,
        epoch=1,
        step=number,
        action=Raw(b'{"action":1}'),
        observation=Raw(b'{"observation":"' + b"x" * size + b'"}'),
        raw_reward=0.0,
        reward=0.0,
        terminated=False,
        truncated=False,
    )


@contextmanager
def recording(path: Path, *, sync: bool = False) -> Iterator[JsonlRecorder]:
    recorder = JsonlRecorder(path, sync=sync)
    try:
        yield recorder
    finally:
        recorder.close()


@contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    """Let no file grow beyond so many bytes, as a full disk would."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record.jsonl"


def test_a_new_file_is_its_owners_only(path: Path) -> None:
    before = os.umask(0)
    try:
        with recording(path):
            mode = stat.S_IMODE(path.stat().st_mode)
    finally:
        os.umask(before)

    assert mode == 0o600


def test_a_file_that_is_there_is_continued_and_keeps_its_mode(path: Path) -> None:
    with recording(path) as recorder:
        recorder.record(step(1))
    path.chmod(0o640)

    with recording(path) as recorder:
        recorder.record(step(2))

    assert list(read_events(path)) == [step(1), step(2)]
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_only_a_regular_file_in_a_folder_that_exists_is_taken(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    for bad in (tmp_path, pipe, Path(os.devnull), tmp_path / "missing" / "record.jsonl"):
        with pytest.raises(ValidationError, match="cannot record"):
            JsonlRecorder(bad)


def test_closing_frees_the_descriptor(path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))

    for _ in range(20):
        with recording(path, sync=True) as recorder:
            recorder.record(LAST)

    assert len(list(Path("/proc/self/fd").iterdir())) <= before


@pytest.mark.parametrize("room", [0, 1, 100])
def test_a_full_disk_is_an_error_that_leaves_no_torn_line(path: Path, room: int) -> None:
    with recording(path) as recorder:
        recorder.record(step(1))
        with no_file_beyond(path.stat().st_size + room), pytest.raises(ComponentError, match="could not be recorded"):
            recorder.record(step(2))
        after = path.read_bytes()
        recorder.record(step(3))

    assert after == encode_event(step(1)) + b"\n"
    assert list(read_events(path)) == [step(1), step(3)]


def test_a_disk_that_fails_to_flush_ends_the_recording(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with recording(path, sync=True) as recorder:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", failing)
            with pytest.raises(ComponentError, match="did not take"):
                recorder.record(step(1))

        with pytest.raises(ComponentError, match="did not take"):
            recorder.record(step(2))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(1, len(encode_event(step(2))) + 1), again=st.booleans())
def test_a_line_cut_anywhere_by_a_crash_spoils_no_other(path: Path, cut: int, again: bool) -> None:
    whole = encode_event(step(2)) + b"\n"
    path.write_bytes(encode_event(step(1)) + b"\n" + whole[:cut])
    with recording(path) as recorder:
        recorder.record(step(3))
        if again:
            recorder.record(LAST)

    found = list(read_events(path))

    kept = [step(1), *([step(2)] if cut >= len(whole) - 1 else []), step(3), *([LAST] if again else [])]
    assert [each for each in found if not isinstance(each, Torn)] == kept
    assert [each.text for each in found if isinstance(each, Torn)] == ([] if step(2) in kept else [whole[:cut]])


def test_a_torn_tail_is_reported_with_its_place(path: Path) -> None:
    first = encode_event(step(1)) + b"\n"
    path.write_bytes(first + b'{"event":"episode_st')

    *events, torn = read_events(path)

    assert events == [step(1)]
    assert isinstance(torn, Torn)
    assert (torn.line, torn.offset, torn.text) == (2, len(first), b'{"event":"episode_st')
    assert "not an event" in torn.problem


def test_a_line_that_somebody_changed_is_reported_in_its_place(path: Path) -> None:
    lines = [encode_event(step(number)) + b"\n" for number in range(3)]
    path.write_bytes(lines[0] + b"\n" + lines[1].replace(b'"step"', b'"stop"') + lines[2])

    first, changed, last = read_events(path)

    assert (first, last) == (step(0), step(2))
    assert isinstance(changed, Torn)
    assert changed.line == 3


def test_a_writer_that_dies_in_its_line_spoils_nothing_for_another(path: Path) -> None:
    with recording(path) as recorder:
        recorder.record(step(1))
        with path.open("ab") as dying:
            dying.write(b'{"event":"episo')

        recorder.record(step(2))
        recorder.record(step(3))

    found = list(read_events(path))
    assert [each for each in found if not isinstance(each, Torn)] == [step(1), step(2), step(3)]
    assert len(found) == 4


def test_a_line_is_written_under_the_lock_and_at_the_end_whoever_else_writes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write

    def meanwhile(file: int, line: bytes) -> int:
        with path.open("ab") as stranger:
            with pytest.raises(BlockingIOError):
                fcntl.flock(stranger, fcntl.LOCK_EX | fcntl.LOCK_NB)
            stranger.write(b"a line of somebody who does not ask\n")
        return write(file, line)

    with recording(path) as recorder:
        monkeypatch.setattr(os, "write", meanwhile)
        recorder.record(step(1))
        recorder.record(step(2))

    stranger, first, other, second = read_events(path)
    assert (first, second) == (step(1), step(2))
    assert isinstance(stranger, Torn)
    assert isinstance(other, Torn)


def test_a_file_that_is_emptied_is_begun_anew(path: Path) -> None:
    with recording(path) as recorder:
        recorder.record(step(1))
        os.truncate(path, 0)
        recorder.record(step(2))

    assert list(read_events(path)) == [step(2)]


def write_many(path: Path, session: str) -> None:
    with recording(path) as recorder:
        for number in range(EVENTS_EACH):
            recorder.record(step(number, session, size=1 + 997 * (number % 20)))


def test_several_processes_can_record_to_one_file(path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    names = [f"writer-{number}" for number in range(WRITERS)]
    writers = [spawn.Process(target=write_many, args=(path, name)) for name in names]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(300)

    found: dict[str, list[Event]] = {name: [] for name in names}
    for event in read_events(path):
        assert not isinstance(event, Torn)
        found[event.session].append(event)

    assert [writer.exitcode for writer in writers] == [0] * WRITERS
    for events in found.values():
        assert [event.step for event in events if isinstance(event, EpisodeStepped)] == list(range(EVENTS_EACH))


ACKNOWLEDGING = """
import sys
from tests.server.sessions.test_recorders import JsonlRecorder, step
recorder = JsonlRecorder(sys.argv[1])
number = 0
while True:
    recorder.record(step(number, size=20_000))
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()
    number += 1
"""


def test_nothing_acknowledged_is_lost_when_the_process_is_killed(path: Path) -> None:
    command = [sys.executable, "-c", ACKNOWLEDGING, str(path)]
    root = Path(__file__).resolve().parents[3]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) == 100:
                process.send_signal(signal.SIGKILL)
                break
        acknowledged = 100 + len(process.stdout.read().splitlines())

    steps = [event.step for event in read_events(path) if isinstance(event, EpisodeStepped)]
    assert steps == list(range(len(steps)))
    assert len(steps) > acknowledged


def test_a_line_that_is_too_long_is_reported_and_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    long = b"[" * 100_000
    first, last = encode_event(step(1)) + b"\n", encode_event(LAST)
    path.write_bytes(first + long + b"\n" + first + long)

    with measured_memory() as peak:
        found = list(read_events(path, longest=2000))

    torn = [each for each in found if isinstance(each, Torn)]
    assert [isinstance(each, Torn) for each in found] == [False, True, False, True]
    assert [(each.line, each.offset) for each in torn] == [(2, len(first)), (4, 2 * len(first) + len(long) + 1)]
    assert {(each.text, each.problem) for each in torn} == {(b"[" * 1000, "the line is longer than 2000 bytes")}
    assert peak() < len(long)
    assert list(read_events(path, longest=10**6))[1] != found[1]
    path.write_bytes(last)
    assert list(read_events(path, longest=len(last))) == [LAST]
    path.write_bytes(last + b"\n")
    assert list(read_events(path, longest=len(last))) == [LAST]


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(ValidationError, match="not a regular file"):
        next(read_events(tmp_path / "pipe"))
    with pytest.raises(FileNotFoundError):
        next(read_events(tmp_path / "nothing"))
