"""How much is stored: of one event, of one episode, and as long as the disk has room."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from base64 import b64encode
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from proctor.errors import ComponentError, RecordLimitError
from proctor.ledger.row_builder import CommitBatch
from proctor.ledger.storage_limits import (
    ALONE_SECONDS,
    END_BYTES,
    LARGE_BYTES,
    LOOK_BYTES,
    LOOK_SECONDS,
    MOST_RESERVED,
    DiskSpace,
    LargeEventThrottle,
    StorageBudget,
    StorageLimits,
)
from proctor.ledger.verify import verify
from proctor.ledger.writer import LedgerWriter
from proctor.models.events import AgentRevoked, EpisodeStepped, Event, PacketJudged
from tests.ledger.session_events import (
    NOON,
    SIGNER,
    batch_reset,
    batch_step,
    begun,
    closed,
    failure,
    left,
    opened,
    reset,
    rows,
    run,
    safe,
    small_disk,
    step,
    writer,
)

MIB = 2**20


class FakeDisk:
    """A disk that is as full as a test says, and counts who looks."""

    def __init__(self, size: int = 1000 * MIB, free: int = 1000 * MIB) -> None:
        self.size, self.free, self.now, self.looks = size, free, 0.0, 0
        self.broken = False

    def usage(self, path: Path) -> tuple[int, int, int]:
        self.looks += 1
        if self.broken:
            raise OSError(5, "Input/output error")
        return self.size, self.size - self.free, self.free

    def space(self, reserved: int | None = 100 * MIB) -> DiskSpace:
        return DiskSpace(Path("nowhere"), reserved, usage=self.usage, clock=lambda: self.now)


def noise(size: int) -> Raw:
    """Return a value that nothing makes shorter."""
    return Raw(b'"' + b64encode(os.urandom(size * 3 // 4)) + b'"')


def line(**changed: Any) -> PacketJudged:
    fields: dict[str, Any] = {"line": Raw(b"{}"), "kind": "close", "accepted": True, "principal": "system"}
    return PacketJudged(session="s", at=NOON, epoch=1, step=0, **(fields | changed))


def stored_steps(path: Path, chain: str = "s.1") -> list[int]:
    return [row.event.step for row in rows(path, chain) if isinstance(row.event, EpisodeStepped)]


def test_a_disk_is_looked_at_by_bytes_and_by_time_and_not_for_each_event() -> None:
    disk = FakeDisk()
    space = disk.space()

    for _ in range(1000):
        space.add(100)
    first = disk.looks
    space.add(LOOK_BYTES)
    by_bytes = disk.looks
    disk.now += LOOK_SECONDS
    space.add(1)

    assert (first, by_bytes, disk.looks) == (1, 2, 3)


def test_what_will_be_written_anyway_is_not_free() -> None:
    disk = FakeDisk(free=150 * MIB)
    space = disk.space(reserved=100 * MIB)

    space.add(1, lambda: 51 * MIB)

    assert space.is_low
    disk.now += LOOK_SECONDS
    assert space.refresh()
    space.add(LOOK_BYTES, lambda: 0)
    assert not space.is_low


def test_what_is_gathered_and_not_written_yet_counts_against_the_floor() -> None:
    disk = FakeDisk(free=150 * MIB)
    space = disk.space(reserved=100 * MIB)
    budget = StorageBudget(space=space)
    budget.check(step(), 200 * MIB)  # nobody has looked yet
    space.refresh()

    budget.check(step(), 50 * MIB)
    budget.check(step(), 20 * MIB, unwritten=30 * MIB)
    for size, unwritten in ((50 * MIB + 1, 0), (20 * MIB, 30 * MIB + 1)):
        with pytest.raises(RecordLimitError) as problem:
            budget.check(step(), size, unwritten=unwritten)
        assert problem.value.limit == "disk"


def test_a_disk_is_low_below_what_is_reserved_and_well_again_above(caplog: pytest.LogCaptureFixture) -> None:
    disk = FakeDisk()
    space = disk.space(reserved=100 * MIB)
    found = []

    for free in (100 * MIB, 100 * MIB - 1, 100 * MIB):
        disk.free, disk.now = free, disk.now + LOOK_SECONDS
        found.append(space.refresh())

    assert found == [False, True, False]
    assert space.free == 100 * MIB
    assert ["nearly full" in message for message in caplog.messages] == [True, False]


def test_a_disk_that_is_low_is_looked_at_anew_before_anything_is_refused() -> None:
    disk = FakeDisk(free=0)
    space = disk.space()
    space.refresh()
    disk.free, disk.now = 1000 * MIB, disk.now + LOOK_SECONDS

    assert space.has_room(MIB)


@given(size=st.integers(0, 2**50))
def test_where_nobody_says_it_a_twentieth_stays_free_and_never_more_than_512_mib(size: int) -> None:
    disk = FakeDisk(size, free=0)
    space = disk.space(reserved=None)
    reserved = min(MOST_RESERVED, int(size * 0.05))

    assert space.refresh() == (reserved > 0)
    disk.free, disk.now = reserved, LOOK_SECONDS
    assert not space.refresh()


def test_a_disk_that_cannot_be_looked_at_is_as_it_was() -> None:
    disk = FakeDisk(free=0)
    space = disk.space()
    assert space.refresh()

    disk.broken, disk.now = True, LOOK_SECONDS

    assert space.refresh()


def test_how_things_end_is_always_stored_and_nothing_else_is() -> None:
    disk = FakeDisk(free=0)
    space = disk.space()
    space.refresh()
    budget = StorageBudget(StorageLimits(1, 1), space)

    ends: list[Event] = [closed(), left(), line(), AgentRevoked(session="s", at=NOON, epoch=1, grant="g")]
    others: list[Event] = [opened(), reset(), step(), failure(), line(kind="alert"), line(principal="agent")]

    for event in ends:
        budget.check(event, 1000)
    for event in others:
        with pytest.raises(RecordLimitError) as problem:
            budget.check(event, 1000)
        assert problem.value.limit == "disk"


def test_an_episode_says_once_that_it_broke_off_and_again_after_a_reset() -> None:
    budget = StorageBudget(StorageLimits(step_bytes=10))
    lost = failure(lost=True)

    budget.check(lost, 1000)
    with pytest.raises(RecordLimitError):
        budget.check(lost, 1000)
    budget.begin(reset())
    budget.check(lost, 1000)
    budget.forget("s")
    budget.check(lost, 1000)


def test_an_episode_that_breaks_off_says_so_in_few_words_or_keeps_the_limits() -> None:
    disk = FakeDisk(free=0)
    space = disk.space()
    space.refresh()
    budget = StorageBudget(StorageLimits(), space)
    lost = failure(lost=True)

    with pytest.raises(RecordLimitError) as problem:
        budget.check(lost, END_BYTES + 1)
    budget.check(lost, END_BYTES)  # what was refused has not counted
    disk.free, disk.now = 200 * MIB, disk.now + LOOK_SECONDS
    budget.check(lost, 100 * END_BYTES)

    assert problem.value.limit == "disk"


def test_an_episode_stores_so_much_and_the_next_one_begins_at_nothing() -> None:
    budget = StorageBudget(StorageLimits(episode_bytes=1000))
    budget.begin(opened())
    budget.add("s", 999)
    budget.check(step(), 500)
    budget.add("other", 5000)

    budget.add("s", 1)
    with pytest.raises(RecordLimitError, match="max_episode_bytes") as problem:
        budget.check(step(), 1)
    budget.check(reset(epoch=2), 1)
    budget.begin(reset(epoch=2))
    budget.check(step(epoch=2), 1)

    assert (problem.value.limit, problem.value.found) == ("episode", 1000)
    with pytest.raises(RecordLimitError):
        budget.check(step(epoch=2), 1, gathered=1000)


def test_a_batch_stores_so_much_for_each_environment_until_all_are_reset() -> None:
    budget = StorageBudget(StorageLimits(episode_bytes=1000))
    budget.begin(opened(num_envs=3))
    budget.add("s", 2999)
    budget.check(batch_step(), 1)
    budget.add("s", 1)

    some = batch_reset(mask=b"[true,false,false]")
    budget.begin(some)
    for event in (batch_step(), some):
        with pytest.raises(RecordLimitError):
            budget.check(event, 1)
    budget.begin(batch_reset())
    budget.check(batch_step(), 1)


@pytest.mark.parametrize(
    "event", [step(observation=noise(5000)), step(metadata=noise(5000)), reset(epoch=2, scene=noise(5000))]
)
def test_an_event_that_is_too_large_is_refused_and_leaves_no_trace(tmp_path: Path, event: EpisodeStepped) -> None:
    into = writer(tmp_path, limits=StorageLimits(step_bytes=4096))
    before: list[Event] = [opened(), reset(), step(number=1)]
    for each in before:
        into.record(each)
    head = into.head("s")

    with pytest.raises(RecordLimitError, match="max_step_bytes") as problem:
        into.record(event)
    into.record(step(number=2))
    into.close()

    assert problem.value.limit == "step"
    assert stored_steps(into.path) == [1, 2]
    assert verify(into.path, public=SIGNER.public, heads=[head or ""]).ok


def test_a_value_of_which_only_the_digest_is_kept_may_be_as_large_as_it_likes(tmp_path: Path) -> None:
    into = writer(tmp_path, limits=StorageLimits(4096, 65536), observations="digest")
    steps = [step(number=number, observation=noise(50_000)) for number in range(1, 10)]
    events: list[Event] = [opened(), reset(), *steps]
    for each in events:
        into.record(each)
    into.close()

    assert stored_steps(into.path) == list(range(1, 10))


def taken(into: LedgerWriter, events: Iterable[Event]) -> int:
    """Return how many events were stored before the episode was full, or all of them."""
    count = 0
    for event in events:
        try:
            into.record(event)
        except RecordLimitError as problem:
            return count if problem.limit == "episode" else -1
        count += 1
    return count


def test_an_episode_that_is_full_ends_and_the_session_goes_on_with_the_next(tmp_path: Path) -> None:
    into = begun(tmp_path, [opened(), reset(), opened("t"), reset("t")], limits=StorageLimits(episode_bytes=200_000))

    stored = taken(into, (step(number=number, observation=noise(10_000)) for number in range(1, 100)))
    into.record(step("t", number=1))
    into.record(failure(epoch=1, lost=True, code="EPISODE_FULL"))
    into.record(closed(reason="lost"))
    into.record(reset(epoch=2))
    into.record(step(epoch=2, number=1))
    into.close()

    assert 19 <= stored <= 20
    assert stored_steps(into.path) == list(range(1, stored + 1))
    assert (stored_steps(into.path, "s.2"), stored_steps(into.path, "t.1")) == ([1], [1])
    assert verify(into.path, public=SIGNER.public).ok


def test_what_counts_is_what_is_stored_not_what_was_seen(tmp_path: Path) -> None:
    into = begun(tmp_path, [opened(), reset()], limits=StorageLimits(episode_bytes=200_000))

    stored = taken(into, (step(observation=Raw(b'"%d%b"' % (number, b"a" * 100_000))) for number in range(50)))
    into.close()

    assert stored == 50


def test_rows_that_are_refused_count_for_their_session_outside_of_its_episodes_as_well(tmp_path: Path) -> None:
    into = writer(tmp_path, limits=StorageLimits(episode_bytes=20_000))
    into.record(opened())

    assert 0 < taken(into, [failure()] * 1000) < 200
    into.record(reset())
    into.record(step())
    into.record(left())
    into.close()

    assert into._row_builder._budget._stored == {}


def test_what_an_earlier_run_stored_counts_after_a_restart(tmp_path: Path) -> None:
    limits = StorageLimits(episode_bytes=50_000)
    before = begun(tmp_path, [opened(), reset()], limits=limits)
    for number in range(1, 30):
        before.record(step(number=number, tool="x" * 1000))
    before.close()

    after = writer(tmp_path, boot="c", limits=limits)
    stored = taken(after, (step(number=number, tool="x" * 1000) for number in range(30, 100)))
    after.close()

    assert stored < 15
    assert verify(tmp_path, public=SIGNER.public).ok


def test_below_the_floor_episodes_end_on_record_and_go_on_when_there_is_space(tmp_path: Path) -> None:
    disk = FakeDisk()
    into = begun(tmp_path, [opened(), reset(), step(number=1)], space=disk.space())

    disk.free, disk.now = 99 * MIB, disk.now + LOOK_SECONDS
    into.record(step(number=2))  # the look comes after a commit
    refused: list[Event] = [step(number=3), opened("t"), reset(epoch=2)]
    for each in refused:
        with pytest.raises(RecordLimitError) as problem:
            into.record(each)
        assert problem.value.limit == "disk"
    into.record(failure(epoch=1, lost=True, code="DISK_LOW"))
    into.record(closed(reason="lost", steps=2))
    disk.free, disk.now = 200 * MIB, disk.now + LOOK_SECONDS
    into._row_builder._budget._space.refresh()  # type: ignore[union-attr]
    into.record(reset(epoch=2))
    into.record(left())
    into.close()

    found = verify(into.path, public=SIGNER.public)
    assert found.ok
    assert stored_steps(into.path) == [1, 2]


@pytest.mark.parametrize("durability", ["full", "normal", "off"])
def test_what_nobody_waits_for_is_gathered_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: str
) -> None:
    monkeypatch.setattr("proctor.ledger.writer.MAX_PENDING_BYTES", 100_000)
    slow = threading.Event()
    insert_blobs = CommitBatch.insert_blobs

    def held(batch: CommitBatch, connection: Any) -> None:
        assert slow.wait(30)
        insert_blobs(batch, connection)

    async def recorded() -> int:
        into = begun(tmp_path, [opened(), reset()], durability=durability)
        into._committer.commit_now()
        monkeypatch.setattr(CommitBatch, "insert_blobs", held)
        number, waiting = 0, None
        while waiting is None and number < 1000:
            number += 1
            waiting = into.record(step(number=number, observation=noise(10_000)))
            await asyncio.sleep(0)
        slow.set()
        await safe(waiting)
        into.close()
        return number

    most = run(recorded())

    assert most <= 12
    assert stored_steps(tmp_path) == list(range(1, most + 1))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path) as folder:
        yield folder


@pytest.mark.system
def test_a_real_disk_is_never_filled_up_and_every_chain_on_it_is_sealed(disk: Path) -> None:
    space = DiskSpace(disk, 6 * MIB)
    into = writer(disk, space=space)
    names = [f"s{number}" for number in range(4)]
    for name in names:
        into.record(opened(name))
        into.record(reset(name))
    refused: set[str] = set()
    for number in range(1, 2000):
        for name in set(names) - refused:
            try:
                into.record(step(name, number=number, observation=noise(20_000)))
            except RecordLimitError:
                refused.add(name)
                into.record(failure(name, lost=True, code="DISK_LOW"))
                into.record(closed(name, reason="lost"))
                into.record(left(name))
    into.close()

    assert refused == set(names)
    assert shutil.disk_usage(disk).free > 0
    assert verify(disk, public=SIGNER.public).ok


def test_large_events_of_a_session_have_a_pace_and_small_ones_have_none() -> None:
    now = [100.0]
    pace = LargeEventThrottle(lambda: now[0])
    waits = []
    for session, size in (("a", 6 * MIB), ("b", 100), ("a", 3 * MIB), ("b", LARGE_BYTES), ("b", 3 * MIB)):
        pace.note(session)
        waits.append(pace.wait_after(session, size))
    now[0] += 0.75
    waits.append(pace.wait_after("b", 12 * MIB))

    assert waits == [1.0, 0.0, 1.5, 0.0, 0.5, 2.0]


def test_a_pace_forgets_sessions_that_have_waited() -> None:
    now = [100.0]
    pace = LargeEventThrottle(lambda: now[0])
    for number in range(100):
        pace.note(f"s{number}")
        pace.wait_after(f"s{number}", 6 * MIB)
        now[0] += 0.5

    assert list(pace._free_at) == ["s98", "s99"]


def test_who_records_alone_need_not_wait() -> None:
    now = [100.0]
    pace = LargeEventThrottle(lambda: now[0])
    for session in ("a", "b"):
        pace.note(session)
    now[0] += ALONE_SECONDS + 0.1
    pace.note("b")

    assert pace.wait_after("b", 100 * MIB) == 0.0


@pytest.mark.parametrize("durability", ["full", "off"])
def test_a_session_waits_after_its_large_event_is_safe(tmp_path: Path, durability: Any) -> None:
    into = writer(tmp_path, durability=durability)
    waited: list[int] = []

    class Pace(LargeEventThrottle):
        def wait_after(self, session: str, size: int) -> float:
            waited.append(size)
            return 0.0

    async def scenario() -> None:
        into._throttle = Pace()
        for event in (opened(), reset(), step(number=1), step(number=2, observation=noise(LARGE_BYTES * 2))):
            promise = into.record(event)
            if promise is not None:
                await promise

    asyncio.run(scenario())
    into.close()

    assert [size > LARGE_BYTES for size in waited] == [True]
    assert stored_steps(into.path) == [1, 2]


def test_a_limit_is_a_component_error() -> None:
    assert issubclass(RecordLimitError, ComponentError)
