import asyncio
import sqlite3
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from proctor.contracts.recorder import Recorder
from proctor.errors import ComponentError, ValidationError
from proctor.ledger.chain import parse_head
from proctor.ledger.reader import Ledger
from proctor.ledger.rows import SEAL_EVERY, ChainEnded, ChainOpened, RunBegan, RunEnded
from proctor.ledger.storage.sqlite import Durability
from proctor.ledger.verify import verify
from proctor.models.events import EpisodeClosed, Event, SessionClosed, SessionOpened, encode_event
from tests.ledger.session_events import (
    SIGNER,
    batch_reset,
    batch_step,
    begun,
    closed,
    episode,
    failure,
    left,
    opened,
    reset,
    rows,
    run,
    safe,
    session,
    step,
    writer,
    written,
)
from tests.models.events_strategies import events

DURABILITIES = ["full", "normal", "off"]


def lines(path: Path, chain: str) -> list[bytes]:
    return [encode_event(row.event) for row in rows(path, chain)]  # type: ignore[arg-type]


def stated(path: Path) -> list[bytes]:
    """All events of a ledger but the repeated openings, by number."""
    with Ledger.open(path) as ledger:
        return [
            encode_event(row.event)  # type: ignore[arg-type]
            for row in ledger.all_rows()
            if not isinstance(row.event, RunBegan | RunEnded | ChainOpened | ChainEnded)
            and not (isinstance(row.event, SessionOpened) and row.seq == 0)
        ]


def test_a_writer_is_a_recorder(tmp_path: Path) -> None:
    into = writer(tmp_path)

    assert isinstance(into, Recorder)
    into.close()


@pytest.mark.parametrize("durability", DURABILITIES)
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(given_events=st.lists(events, max_size=6))
def test_whatever_is_recorded_comes_back_in_order(
    durability: Durability, tmp_path_factory: pytest.TempPathFactory, given_events: list[Event]
) -> None:
    into = writer(tmp_path_factory.mktemp("any"), durability=durability)

    for number, event in enumerate(given_events, start=1):
        assert into.record(event) is None
        assert len(stated(into.path)) == number

    assert stated(into.path) == [encode_event(event) for event in given_events]
    into.close()
    assert verify(into.path, public=SIGNER.public).ok


def test_a_chain_stands_alone_from_its_opening_to_its_end(tmp_path: Path) -> None:
    path = written(tmp_path, session("s", episodes=2, steps=2))

    assert lines(path, "s.1") == [encode_event(event) for event in [opened(), *episode("s", 1, 2)]]
    assert lines(path, "s.2") == [encode_event(event) for event in [opened(), *episode("s", 2, 2)]]
    assert [row.seq for row in rows(path, "s.2")] == [0, 1, 2, 3, 4]


def test_the_servers_chain_says_when_what_began_and_ended(tmp_path: Path) -> None:
    path = written(tmp_path, session("s", steps=2))
    said = [row.event for row in rows(path, "server.b")]
    chain = rows(path, "s.1")

    assert [type(event) for event in said] == [
        RunBegan,
        SessionOpened,
        ChainOpened,
        ChainEnded,
        SessionClosed,
        RunEnded,
    ]
    assert isinstance(said[0], RunBegan)
    assert (said[0].boot, said[0].server, said[0].worker, said[0].public) == ("b", "0.1.0", 0, SIGNER.public.hex())
    assert isinstance(said[2], ChainOpened)
    assert parse_head(said[2].head) == parse_head(f"s.1@2:{chain[1].hash.hex()}")
    assert isinstance(said[3], ChainEnded)
    assert said[3].head == f"s.1@5:{chain[-1].hash.hex()}"
    assert (said[3].steps, said[3].total_reward) == (2, 1.0)


def test_what_a_session_says_outside_an_episode_is_in_the_servers_chain(tmp_path: Path) -> None:
    late = failure(code="EPISODE_ENDED")
    path = written(tmp_path, [opened(), failure(), reset(), failure(), closed(), late, left()])

    assert [encode_event(event) for event in (failure(), late)] == [
        line for line in lines_of(path, "server.b") if b'"failed"' in line
    ]
    assert encode_event(failure()) in lines(path, "s.1")


def lines_of(path: Path, chain: str) -> list[bytes]:
    return [
        encode_event(row.event)  # type: ignore[arg-type]
        for row in rows(path, chain)
        if not isinstance(row.event, RunBegan | RunEnded | ChainOpened | ChainEnded)
    ]


def test_a_reset_of_some_of_a_batch_goes_on_in_the_chain(tmp_path: Path) -> None:
    story: list[Event] = [
        opened(num_envs=2),
        batch_reset(),
        batch_step(),
        batch_reset(epoch=2, mask=b"[true,false]"),
        batch_reset(epoch=3),
    ]
    path = written(tmp_path, story)

    assert len(rows(path, "s.1")) == 4
    assert len(rows(path, "s.3")) == 2


def test_a_reset_without_a_word_ends_the_chain_before(tmp_path: Path) -> None:
    path = written(tmp_path, [opened(), reset(), step(), reset(epoch=2)])

    with Ledger.open(path) as ledger:
        first, second = ledger.episodes()
    assert (first.reason, first.closed_at, first.steps) == (None, None, 1)
    assert second.reason == ""
    assert verify(path, public=SIGNER.public).ok


def test_an_epoch_that_comes_twice_gets_a_chain_of_its_own(tmp_path: Path) -> None:
    path = written(tmp_path, [opened(), reset(), reset(), left()])
    written(tmp_path, [opened(), reset()])

    assert len(rows(path, "s.1~2")) == 2
    assert len(rows(path, "s.1~3")) == 2
    assert len(rows(path, "server.b~2")) == 4
    assert verify(path, public=SIGNER.public).ok


def test_a_session_that_was_never_opened_is_kept_all_the_same(tmp_path: Path) -> None:
    path = written(tmp_path, [reset(), step()])

    assert lines(path, "s.1") == [encode_event(reset()), encode_event(step())]
    assert verify(path, public=SIGNER.public).ok


def test_a_head_is_of_the_last_row_that_is_safe(tmp_path: Path) -> None:
    async def recorded() -> list[str | None]:
        into = writer(tmp_path)
        heads = [into.head("s")]
        await safe(into.record(opened()))
        heads.append(into.head("s"))
        waiting = into.record(reset())
        heads.append(into.head("s"))
        await safe(waiting)
        heads.append(into.head("s"))
        for event in (closed(), left()):
            await safe(into.record(event))
        heads.append(into.head("s"))
        into.close()
        return heads

    heads = run(recorded())

    hashes = [row.hash.hex() for row in rows(tmp_path, "s.1")]
    assert heads == [None, None, None, f"s.1@2:{hashes[1]}", f"s.1@3:{hashes[2]}"]


def test_without_waiting_a_head_is_of_this_episode_or_there_is_none(tmp_path: Path) -> None:
    async def recorded() -> list[str | None]:
        into = writer(tmp_path, durability="off")
        heads = []
        for event in (opened(), reset(), None, closed(), reset(epoch=2), None):
            if event is None:
                into._committer.commit_now()
            else:
                into.record(event)
            heads.append(into.head("s"))
        into.close()
        return heads

    heads = run(recorded())

    first, second = (f"s.{epoch}@2:{rows(tmp_path, f's.{epoch}')[1].hash.hex()}" for epoch in (1, 2))
    assert heads == [None, None, first, first, None, second]


def test_the_first_row_of_a_run_is_sealed_at_once(tmp_path: Path) -> None:
    into = writer(tmp_path)

    report = verify(tmp_path, public=SIGNER.public)
    into.close()

    assert (report.ok, report.signed, report.seals, report.rows) == (True, True, 1, 1)


def test_long_values_are_stored_once_and_come_back(tmp_path: Path) -> None:
    value = Raw(b'"' + b"x" * 500 + b'"')
    story: list[Event] = [
        opened(),
        reset(),
        *(step(number=number, observation=value, scene=value) for number in (1, 2, 3)),
    ]
    path = written(tmp_path, story)

    assert lines(path, "s.1")[2:] == [encode_event(event) for event in story[2:]]
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*), sum(packed) FROM blobs").fetchone() == (1, 1)
    connection.close()
    with Ledger.open(path) as ledger:
        row = list(ledger.rows("s.1"))[2]
        assert ledger.observation(row.digest or "") == bytes(value)
        assert ledger.observation("00" * 32) is None


def test_where_digests_are_kept_no_value_is_on_the_disk(tmp_path: Path) -> None:
    long = Raw(b'"' + b"picture" * 90 + b'"')
    story: list[Event] = [
        opened(),
        reset(observation=b'"first-secret"'),
        step(observation=long, scene=long),
        closed(steps=1),
        left(),
    ]
    path = written(tmp_path, story, observations="digest")

    content = path.read_bytes()
    assert b"first-secret" not in content
    assert b"picturepicture" not in content
    found = rows(path, "s.1")
    assert [row.values for row in found] == [True, False, False, True]
    assert encode_event(found[1].event) == encode_event(replace(story[1], observation=Raw(b"null")))  # type: ignore[arg-type]
    assert verify(path, public=SIGNER.public).ok


def test_a_chain_keeps_values_as_it_began(tmp_path: Path) -> None:
    written(tmp_path, [opened(), reset()], observations="digest")
    path = written(tmp_path, [step(), closed(steps=1), reset(epoch=2)])

    assert [row.values for row in rows(path, "s.1")] == [True, False, False, True]
    assert [row.values for row in rows(path, "s.2")] == [True, True]
    assert verify(path, public=SIGNER.public).ok


def test_a_long_chain_is_sealed_on_its_way(tmp_path: Path) -> None:
    path = written(tmp_path, [opened(), reset(), *(step(number=number) for number in range(1, 2 * SEAL_EVERY))])
    sealed = {row.number for row in rows(path, "s.1") if row.seq in (SEAL_EVERY - 1, 2 * SEAL_EVERY - 1)}

    connection = sqlite3.connect(path)
    assert sealed < {number for (number,) in connection.execute("SELECT number FROM seals")}
    connection.execute("DELETE FROM seals WHERE number = ?", (min(sealed),))
    connection.commit()
    connection.close()
    assert [finding.number for finding in verify(path).findings] == [min(sealed)]


def test_the_second_writer_of_a_file_is_refused_at_once(tmp_path: Path) -> None:
    first = writer(tmp_path)

    with pytest.raises(ComponentError, match="has a writer already"):
        writer(tmp_path)
    other = writer(tmp_path, worker=1)
    first.record(opened())
    other.close()
    first.close()

    writer(tmp_path).close()
    assert verify(tmp_path).ok


def test_a_new_file_is_for_its_owner_only(tmp_path: Path) -> None:
    path = written(tmp_path / "new" / "ledger", session())

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert sorted(each.name for each in path.parent.iterdir()) == ["worker-0.ledger", "worker-0.ledger.lock"]


def test_nothing_is_taken_after_the_close(tmp_path: Path) -> None:
    into = writer(tmp_path)
    into.close()
    into.close()

    with pytest.raises(ComponentError, match="closed"):
        into.record(opened())


def test_what_has_no_json_form_spoils_nothing(tmp_path: Path) -> None:
    into = writer(tmp_path)
    into.record(opened())
    for event in (opened("t", settings={"callback": print}), reset(observation=b"{"), step(action=Raw(b""))):
        with pytest.raises(ComponentError):
            into.record(event)
    into.record(reset())
    into.close()

    assert lines(into.path, "s.1") == [encode_event(opened()), encode_event(reset())]
    assert verify(into.path).ok


def test_the_buffer_of_an_event_may_be_used_again_after_the_call(tmp_path: Path) -> None:
    async def recorded() -> Path:
        buffer = bytearray(b'"' + b"a" * 300 + b'"')
        into = writer(tmp_path)
        waiting = [into.record(opened()), into.record(reset(observation=b"1", scene=Raw(buffer)))]
        waiting.append(into.record(replace(step(), observation=Raw(buffer))))
        buffer[1:-1] = b"b" * 300
        for each in waiting:
            await safe(each)
        into.close()
        return into.path

    path = run(recorded())

    assert all(b"bbb" not in line for line in lines(path, "s.1"))
    assert verify(path).ok


@pytest.mark.parametrize("setting", [{"durability": "none"}, {"observations": "some"}])
def test_a_setting_that_does_not_exist_is_refused(tmp_path: Path, setting: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="setting"):
        writer(tmp_path, **setting)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("durability", DURABILITIES)
def test_sessions_that_record_at_the_same_time_share_commits(tmp_path: Path, durability: Durability) -> None:
    async def one(into: object, name: str) -> None:
        for event in session(name, episodes=2, steps=5):
            await safe(into.record(event))  # type: ignore[attr-defined]
            await asyncio.sleep(0)

    async def all_of_them() -> Path:
        into = writer(tmp_path, durability=durability)
        await asyncio.gather(*(one(into, f"s{number}") for number in range(16)))
        into.close()
        return into.path

    path = run(all_of_them())

    report = verify(path, public=SIGNER.public)
    assert report.ok
    assert report.chains == 33
    for number in range(16):
        assert lines(path, f"s{number}.2") == [
            encode_event(each) for each in [opened(f"s{number}"), *episode(f"s{number}", 2, 5)]
        ]


def test_one_who_gives_up_waiting_disturbs_nobody(tmp_path: Path) -> None:
    async def recorded() -> Path:
        into = writer(tmp_path)
        tasks = [asyncio.ensure_future(safe(into.record(opened(name)))) for name in ("a", "b")]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await tasks[1]
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        into.close()
        return into.path

    path = run(recorded())

    assert [type(row.event) for row in rows(path, "server.b")] == [RunBegan, SessionOpened, SessionOpened, RunEnded]


def test_closing_keeps_what_was_not_waited_for(tmp_path: Path) -> None:
    async def recorded(durability: Durability) -> Path:
        into = writer(tmp_path / durability, durability=durability)
        waiting = [into.record(event) for event in session()]
        into.close()
        for each in waiting:
            await safe(each)
        return into.path

    for durability in DURABILITIES:
        path = run(recorded(durability))  # type: ignore[arg-type]

        assert isinstance(rows(path, "s.1")[-1].event, EpisodeClosed)
        assert verify(path, public=SIGNER.public).ok


def test_a_file_whose_writer_has_ended_is_whole_without_its_log_although_somebody_reads_it(tmp_path: Path) -> None:
    into = begun(tmp_path, session())
    with Ledger.open(tmp_path) as ledger:
        count = len(list(ledger.rows("s.1")))
        into.close()
        alone = tmp_path / "taken" / into.path.name
        alone.parent.mkdir()
        alone.write_bytes(into.path.read_bytes())

    assert len(rows(alone, "s.1")) == count
    assert verify(alone, public=SIGNER.public).ok
