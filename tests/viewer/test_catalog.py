"""A ledger as pages read it, old or live."""

import sqlite3
import struct
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from msgspec import Raw

from proctor.errors import ValidationError
from proctor.ledger.export import write_bundle
from proctor.ledger.prune import prune
from proctor.ledger.reader import Ledger, build_summaries
from proctor.ledger.storage.ledger_file import ChainEntry
from proctor.models.arrays import is_pixels, pack_array
from proctor.models.events import EpisodeReset, EpisodeStepped, Event
from proctor.viewer import catalog as shelf_module
from proctor.viewer import followed_file as volume_module
from proctor.viewer import slices
from proctor.viewer.catalog import NO_PIXELS, EpisodeCatalog, encode_png, png_from_scene
from proctor.viewer.documents import EpisodeLine
from proctor.viewer.followed_file import FRESH_SECONDS, MOST_BODY, FollowedFile
from tests.ledger.hostile import many_ways
from tests.ledger.session_events import (
    NOON,
    SIGNER,
    batch_reset,
    batch_step,
    closed,
    episode,
    failure,
    left,
    opened,
    reset,
    session,
    step,
    writer,
    written,
)
from tests.memory import measured_memory
from tests.viewer.ledgers import batch_episode, governed_episode, pixels_episode, plume_episode, popper_episode


def opened_shelf(path: Path, **how: Any) -> closing[EpisodeCatalog]:
    return closing(EpisodeCatalog(path, **how))


@contextmanager
def growing(folder: Path, *events: Event, **how: Any) -> Iterator[Callable[[Event], object]]:
    """Yield what adds an event to a ledger that somebody writes; the events that are given are there."""
    into = writer(folder, **how)
    try:
        for event in events:
            into.record(event)
        yield into.record
    finally:
        into.close()


def names(lines: Iterable[EpisodeLine]) -> list[str]:
    return [line.chain for line in lines]


# ----------------------------------------------------------------------------------------------------------------- the list
def test_episodes_of_all_files_come_the_newest_first(tmp_path: Path) -> None:
    written(tmp_path, [opened("a"), reset("a", epoch=5)], worker=0)
    written(tmp_path, [opened("b"), reset("b", epoch=9), reset("b", epoch=2)], worker=1)

    with opened_shelf(tmp_path) as shelf:
        assert names(shelf.lines()) == ["b.9", "a.5", "b.2"]


def test_there_must_be_a_ledger_unless_it_may_come(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="no ledger"):
        EpisodeCatalog(tmp_path / "later")

    with opened_shelf(tmp_path / "later", live=True) as shelf:
        assert shelf.lines() == []
        with growing(tmp_path / "later", opened(), reset()):
            assert names(shelf.lines()) == ["s.1"]


def test_news_are_what_has_changed_and_are_told_once(tmp_path: Path) -> None:
    later: list[Event] = [step("a"), step("b"), closed("b", steps=1), reset("c")]
    before = (opened("a"), opened("b"), reset("a"), reset("b"))
    with growing(tmp_path, *before) as record, opened_shelf(tmp_path, live=True) as shelf:
        told = [names(shelf.lines())]
        for event in later:
            record(event)
            told.append(names(shelf.news()))
        told.append(names(shelf.news()))
        last = {line.chain: (line.steps, line.reason) for line in shelf.lines()}

    assert [sorted(each) for each in told] == [["a.1", "b.1"], ["a.1"], ["b.1"], ["b.1"], ["c.1"], []]
    assert last == {"a.1": (1, ""), "b.1": (1, "closed"), "c.1": (0, "")}


def test_what_a_slice_has_read_already_is_still_news(tmp_path: Path) -> None:
    with growing(tmp_path, opened(), reset()) as record, opened_shelf(tmp_path, live=True) as shelf:
        shelf.lines()
        record(step())
        shelf.slice("s.1")

        assert names(shelf.news()) == ["s.1"]


def test_an_episode_that_is_followed_has_the_line_that_a_fresh_look_gives(tmp_path: Path) -> None:
    """Whatever it was when the look began: not there, open, ended."""
    story: list[Event] = [*session("a", episodes=2), opened("b", policy={"name": "p"}), *episode("b"), reset("b", 2)]
    with opened_shelf(tmp_path, live=True, wall=lambda: NOON) as shelf:
        with growing(tmp_path, wall=lambda: NOON) as record:
            for event in story:
                record(event)
                with opened_shelf(tmp_path, wall=lambda: NOON) as fresh:
                    assert shelf.lines() == fresh.lines()
        with opened_shelf(tmp_path, wall=lambda: NOON) as fresh:
            assert shelf.lines() == fresh.lines()


def test_news_read_no_row_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with growing(tmp_path, opened(), reset()) as record, opened_shelf(tmp_path, live=True) as shelf:
        shelf.lines()
        volume = next(iter(shelf._files.values()))
        seen: list[int] = []
        new = volume._new_rows
        monkeypatch.setattr(volume, "_new_rows", lambda: (seen.append(row[0]) or row for row in new()))  # type: ignore[func-returns-value]
        for number in range(1, 6):
            record(step(number=number))
            shelf.news()

    assert len(seen) == len(set(seen)) == 5


def test_a_file_that_another_begins_to_write_later_is_followed(tmp_path: Path) -> None:
    written(tmp_path, [opened(), reset(), step()])
    with opened_shelf(tmp_path) as shelf:
        before = shelf.lines()[0]
        quiet = shelf.news()
        with growing(tmp_path, step(number=2), boot="c"):
            (after,) = shelf.news()
        (ended,) = shelf.news()

    assert (before.steps, before.live, quiet) == (1, False, [])
    assert (after.steps, after.live) == (2, True)
    assert (ended.steps, ended.live) == (2, False)


def test_a_file_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    path = written(tmp_path / "one", session("a"))
    with opened_shelf(path) as shelf:
        before = names(shelf.lines())
        written(tmp_path / "two", session("b", episodes=3)).replace(path)

        assert (before, names(shelf.news())) == (["a.1"], ["b.3", "b.2", "b.1"])
        assert names(shelf.lines()) == ["b.3", "b.2", "b.1"]


def test_new_files_in_a_folder_are_taken_up(tmp_path: Path) -> None:
    written(tmp_path, session("a"))
    with opened_shelf(tmp_path, live=True) as shelf:
        shelf.lines()
        (tmp_path / "worker-7.ledger").touch()
        none = shelf.news()
        written(tmp_path, session("b"), worker=1)

        assert (none, names(shelf.news())) == ([], ["b.1"])


def test_a_pruned_episode_is_gone_from_the_list(tmp_path: Path) -> None:
    path = written(tmp_path, session(episodes=3))
    with opened_shelf(tmp_path) as shelf:
        before = names(shelf.lines())
        prune(path, ["s.2"], SIGNER)

        assert (before, names(shelf.lines())) == (["s.3", "s.2", "s.1"], ["s.3", "s.1"])
        with pytest.raises(ValidationError, match="no such episode"):
            shelf.head("s.2")


def test_a_bundle_is_a_shelf_of_one(tmp_path: Path) -> None:
    path = written(tmp_path, [*session("s"), *session("t")])
    with Ledger.open(path) as ledger:
        write_bundle(ledger, "t.1", tmp_path / "t.bundle")

    with opened_shelf(tmp_path / "t.bundle") as shelf:
        (line,) = shelf.lines()
        found = shelf.slice("t.1")

    assert (line.chain, line.steps, line.live) == ("t.1", 3, False)
    assert (found.steps.step, found.ended) == ([1, 2, 3], True)


def test_one_file_that_is_none_hides_no_other_and_is_remarked(tmp_path: Path) -> None:
    written(tmp_path, session(), worker=1)
    (tmp_path / "worker-0.ledger").write_bytes(b"no")

    with opened_shelf(tmp_path) as shelf:
        assert names(shelf.lines()) == ["s.1"]
        assert [path.name for path in shelf.unread] == ["worker-0.ledger"]
        (remark,) = shelf.remarks()
        assert remark.startswith("worker-0.ledger cannot be read, so that its episodes are not listed: ")
    with pytest.raises(ValidationError):
        EpisodeCatalog(tmp_path / "worker-0.ledger")


def test_a_damaged_file_is_read_when_it_is_whole_again(tmp_path: Path) -> None:
    path = written(tmp_path, session())
    content = path.read_bytes()
    with opened_shelf(tmp_path) as shelf:
        path.write_bytes(content[:4096] + bytes(len(content) - 4096))
        with pytest.raises(ValidationError):
            shelf.lines()
        path.write_bytes(content)

        assert names(shelf.lines()) == ["s.1"]


def failing_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the next file that is read from its beginning fail half way, as one that is replaced just then does."""

    def fail(*_: Any) -> Any:
        monkeypatch.setattr(volume_module, "build_summaries", build_summaries)
        raise ValidationError("half way")

    monkeypatch.setattr(volume_module, "build_summaries", fail)


def test_what_could_not_be_read_as_a_whole_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, session("a"))
    with opened_shelf(tmp_path, live=True) as shelf:
        written(tmp_path, session("b"), worker=1)
        failing_once(monkeypatch)
        before = names(shelf.lines())

        assert (before, sorted(names(shelf.lines()))) == (["a.1"], ["a.1", "b.1"])


def test_a_file_that_comes_back_after_another_could_not_be_read_is_there_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "one", session("a"))
    kept = path.read_bytes()
    with opened_shelf(path) as shelf:
        written(tmp_path / "two", session("b", episodes=3)).replace(path)
        failing_once(monkeypatch)
        with pytest.raises(ValidationError, match="half way"):
            shelf.lines()
        path.write_bytes(kept)

        assert names(shelf.lines()) == ["a.1"]


def test_reading_makes_no_files(tmp_path: Path) -> None:
    written(tmp_path, session())
    before = {each.name: each.stat().st_mtime_ns for each in tmp_path.iterdir()}

    with opened_shelf(tmp_path) as shelf:
        shelf.lines()
        shelf.slice("s.1")

    assert {each.name: each.stat().st_mtime_ns for each in tmp_path.iterdir()} == before


def test_a_closed_shelf_says_so(tmp_path: Path) -> None:
    written(tmp_path, session())
    shelf = EpisodeCatalog(tmp_path)
    shelf.close()
    shelf.close()

    with pytest.raises(ValidationError, match="closed"):
        shelf.lines()


# ---------------------------------------------------------------------------------------------------------------- who is live
def test_an_open_episode_is_live_while_somebody_writes_its_file(tmp_path: Path) -> None:
    with closing(EpisodeCatalog(tmp_path, live=True)) as shelf:
        with growing(tmp_path, opened(), reset(), *session("t")):
            live = {line.chain: line.live for line in shelf.lines()}
        (ended,) = shelf.news()

    assert live == {"s.1": True, "t.1": False}
    assert (ended.chain, ended.live) == ("s.1", False)


def test_where_a_writer_cannot_be_seen_what_was_written_lately_is_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proctor.viewer.followed_file.has_writer", lambda path: None)
    now = [NOON + 1.0]
    with growing(tmp_path, opened(), reset()) as record, opened_shelf(tmp_path, wall=lambda: now[0]) as shelf:
        live = [shelf.lines()[0].live]
        now[0] += FRESH_SECONDS
        live += [line.live for line in shelf.news()]
        record(step(at=now[0]))
        live += [line.live for line in shelf.news()]

    assert live == [True, False, True]


# ------------------------------------------------------------------------------------------------------------- one episode
def test_a_head_says_what_a_page_needs_before_the_steps(tmp_path: Path) -> None:
    chain = plume_episode(tmp_path, 5, agent="fox")
    with opened_shelf(tmp_path) as shelf:
        head = shelf.head(chain)
        (line,) = shelf.lines()
    with Ledger.open(tmp_path) as ledger:
        rows = list(ledger.rows(chain))

    begun = rows[1].event
    assert isinstance(begun, EpisodeReset)
    assert (head.line, head.target, head.keeps, head.first) == (line, "proctor/PlumeSearch-v0", "all", rows[1].number)
    assert (head.scene, head.observation, head.options) == (begun.scene, begun.observation, begun.options)
    assert msgspec.json.decode(head.settings)["plume"] == "advected"
    assert (bytes(head.policy), head.transforms) == (b"null", [])
    assert set(head.versions) == {"proctor", "environment", "python", "gymnasium", "numpy"}
    assert msgspec.json.decode(head.scene)["environment"] == "plume"


def enlarge(path: Path, chain: str, seq: int, size: int, column: str = "body") -> None:
    """Have a row say so many bytes."""
    connection = sqlite3.connect(path, isolation_level=None)
    said = f"UPDATE rows SET {column} = zeroblob(?) WHERE seq = ? AND chain = (SELECT first FROM chains WHERE name = ?)"
    connection.execute(said, (size, seq, chain))
    connection.close()


@pytest.mark.parametrize("closes", [True, False], ids=["ended", "open"])
@pytest.mark.parametrize("column", ["body", "hash"])
def test_no_row_is_read_that_is_very_large(tmp_path: Path, closes: bool, column: str) -> None:
    story: list[Event] = [opened(), reset(), *(step(number=number) for number in range(1, 6))]
    path = written(tmp_path, [*story, closed(steps=5)] if closes else story)
    for seq in range(7):
        enlarge(path, "s.1", seq, 4 * MOST_BODY, column)

    with measured_memory() as peak, opened_shelf(path) as shelf:
        shelf.lines()
        shelf.head("s.1")
        found = shelf.slice("s.1")

    unread = [note.seq for note in found.notes if note.kind == "unreadable"]
    assert (unread, found.steps.step) == ((list(range(7)), []) if column == "body" else ([], [1, 2, 3, 4, 5]))
    assert peak() < MOST_BODY


def test_a_row_that_is_very_large_hides_no_other(tmp_path: Path) -> None:
    path = written(tmp_path, [opened(), reset(), step(number=1), step(number=2), step(number=3)])
    enlarge(path, "s.1", 3, MOST_BODY + 1)

    with opened_shelf(path) as shelf:
        found = shelf.slice("s.1")
        (note,) = [note for note in found.notes if note.kind == "unreadable"]
        with pytest.raises(ValidationError, match=f"row {note.number} is empty, or too large to be read"):
            shelf.raw("s.1", note.number)

    assert found.steps.step == [1, 3]
    assert note.text == "This row is empty, or too large to be shown."


@pytest.mark.parametrize("asked", ["rows", "steps", "step"])
def test_nobody_looks_without_end_for_rows_that_are_not_there(tmp_path: Path, asked: str) -> None:
    path = many_ways(tmp_path)
    nowhere = ChainEntry(0, "nowhere", None)
    with closing(FollowedFile(path, lambda: 0.0)) as volume:
        with suppress(ValidationError):
            volume.catch_up()
        volume.lines["nowhere"] = EpisodeLine(
            **dict.fromkeys(EpisodeLine.__struct_fields__) | {"chain": "nowhere"}  # type: ignore[arg-type]
        )
        ways: dict[str, Callable[[], object]] = {
            "rows": lambda: volume.rows(nowhere, -1, sys.maxsize, 10),
            "steps": lambda: volume.steps_between(nowhere, -1, sys.maxsize),
            "step": lambda: volume.step_before(nowhere, sys.maxsize),
        }
        with pytest.raises(ValidationError, match="interrupted"):
            ways[asked]()


def test_few_large_rows_are_held_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = Raw(b'"%b"' % (b"a" * 2**20))
    path = written(tmp_path, [opened(), reset(), *(step(number=number, metadata=large) for number in range(1, 41))])
    monkeypatch.setattr(volume_module, "AT_ONCE_BYTES", 2**21)
    monkeypatch.setattr(slices, "MOST_HELD", 2**22)

    with measured_memory() as peak, opened_shelf(path) as shelf:
        first = shelf.slice("s.1")
        steps = list(first.steps.step)
        last, more = first.last, first.more
        while more:
            found = shelf.slice("s.1", after=last)
            last, more = found.last, found.more
            steps += found.steps.step

    assert len(first.steps.step) < 10
    assert steps == list(range(1, 41))
    assert peak() < 20 * 2**20


def test_rows_that_come_later_are_all_heard_however_large_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volume_module, "AT_ONCE_BYTES", 1)
    with growing(tmp_path, opened(), reset()) as record, opened_shelf(tmp_path, live=True) as shelf:
        shelf.lines()
        for number in range(1, 6):
            record(step(number=number))
        (line,) = shelf.lines()

    assert line.steps == 5


def test_a_chain_has_no_name_that_is_very_long(tmp_path: Path) -> None:
    path = written(tmp_path, session("s"))
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE chains SET name = ? WHERE name = 's.1'", ("s" * 2000 + ".1",))
    connection.close()

    with pytest.raises(ValidationError, match="name that is too long"):
        EpisodeCatalog(path)


def test_a_head_holds_no_value_that_is_very_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf_module, "MOST_VALUE", 1000)
    large = b'{"a":"%b"}' % (b"b" * 1000)
    written(tmp_path, [opened(), reset(observation=large, scene=Raw(large), options=Raw(large))])

    with opened_shelf(tmp_path) as shelf:
        head = shelf.head("s.1")
        raw = msgspec.json.decode(shelf.raw("s.1", head.first))

    assert {bytes(each) for each in (head.observation, head.scene, head.options)} == {b"null"}
    assert [raw["event"][name] for name in ("observation", "scene", "options")] == [msgspec.json.decode(large)] * 3


def test_the_policy_and_the_transforms_are_in_the_head(tmp_path: Path) -> None:
    specs = [{"type": "clip", "name": "bounds"}, {"type": "scale"}, {}]
    written(tmp_path, [opened(policy={"name": "strict"}, transforms=specs), reset()])

    with opened_shelf(tmp_path) as shelf:
        head = shelf.head("s.1")

    assert (bytes(head.policy), head.transforms) == (b'{"name":"strict"}', ["bounds", "scale", ""])


def test_an_episode_whose_session_was_never_stated_has_a_head_too(tmp_path: Path) -> None:
    written(tmp_path, [reset(), step()])

    with opened_shelf(tmp_path) as shelf:
        head, found = shelf.head("s.1"), shelf.slice("s.1")

    assert (head.target, head.first, bytes(head.observation)) == ("", 2, b'{"observation":[0.5]}')
    assert (found.steps.step, found.notes) == ([1], [])


def test_what_was_kept_as_a_digest_only_is_null(tmp_path: Path) -> None:
    scene = Raw(b'{"environment":"plume","x":"%b"}' % (b"x" * 300))
    written(tmp_path, [opened(), reset(scene=scene), step(scene=scene)], observations="digest")

    with opened_shelf(tmp_path) as shelf:
        head, found = shelf.head("s.1"), shelf.slice("s.1").steps

    assert (head.keeps, bytes(head.observation), bytes(head.scene)) == ("digest", b"null", b"null")
    assert [*map(bytes, found.observation), *map(bytes, found.scene)] == [b"null", b"null"]


@pytest.mark.parametrize("record", [plume_episode, popper_episode, governed_episode, batch_episode])
def test_a_slice_has_every_row_of_the_chain(tmp_path: Path, record: Any) -> None:
    chain = record(tmp_path)
    with opened_shelf(tmp_path) as shelf:
        found = shelf.slice(chain, most=50_000)
        (line,) = shelf.lines()
    with Ledger.open(tmp_path) as ledger:
        rows = list(ledger.rows(chain))

    told = [*found.steps.number, *(packet.number for packet in found.packets), *(note.number for note in found.notes)]
    assert sorted(told) == [row.number for row in rows[2:]]
    assert (found.after, found.last, found.more, found.ended) == (0, line.last, False, True)
    assert len(found.steps.number) == line.steps
    stepped = [row.event for row in rows if isinstance(row.event, EpisodeStepped)]
    if stepped:
        assert found.steps.scene == [event.scene for event in stepped]
        assert found.steps.observation == [event.observation for event in stepped]
        assert found.steps.total[-1] == pytest.approx(line.total_reward)


def test_a_slice_is_never_longer_than_was_asked_for(tmp_path: Path) -> None:
    written(tmp_path, session(steps=30))
    with opened_shelf(tmp_path) as shelf:
        short, thin = shelf.slice("s.1", most=10), shelf.slice("s.1", most=7, thin=True)
        least = shelf.slice("s.1", most=-5)

    assert (len(short.steps.number) + 2, short.more, short.ended) == (10, True, False)
    assert (len(thin.steps.number), thin.thinned, thin.more, thin.ended) == (6, 5, False, True)
    assert thin.steps.total[-1] == pytest.approx(15.0)
    assert least.more


def test_a_thin_slice_may_begin_anywhere(tmp_path: Path) -> None:
    written(tmp_path, session(steps=30))
    with opened_shelf(tmp_path) as shelf:
        whole = shelf.slice("s.1")
        found = shelf.slice("s.1", after=whole.steps.number[9], most=4, thin=True)

    assert len(found.steps.number) <= 4
    assert found.steps.step[-1] == 30
    assert found.steps.total[-1] == pytest.approx(10.0)


def test_among_the_rows_of_others_a_slice_looks_only_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf_module, "WINDOW", 7)
    others = [step("t", number=number) for number in range(1, 41)]
    written(tmp_path, [opened("t"), reset("t"), opened(), reset(), step(), *others, step(number=2)])
    with opened_shelf(tmp_path) as shelf:
        pieces = [shelf.slice("s.1")]
        while pieces[-1].more and len(pieces) < 50:
            pieces.append(shelf.slice("s.1", after=pieces[-1].last))
        thin = shelf.slice("s.1", thin=True)
        other = shelf.slice("t.1", thin=True)
        end = shelf.lines()

    assert len(pieces) > 3
    assert [step for piece in pieces for step in piece.steps.step] == [1, 2]
    assert (thin.steps.step, thin.more) == ([1, 2], False)
    assert other.steps.step == list(range(1, 41))
    assert pieces[-1].last == thin.last == next(line.last for line in end if line.chain == "s.1")


def test_following_a_live_chain_gives_each_step_once(tmp_path: Path) -> None:
    steps: list[int] = []
    after = 0
    begun = (opened(), reset(), opened("t"), reset("t"))
    with growing(tmp_path, *begun) as record, opened_shelf(tmp_path, live=True) as shelf:
        for number in range(1, 11):
            record(step(number=number))
            record(step("t", number=number))
            found = shelf.slice("s.1", after=after, thin=True)
            steps += found.steps.step
            after = found.last
        nothing = shelf.slice("s.1", after=after)
        record(closed(steps=10))
        end = shelf.slice("s.1", after=after)

    assert steps == list(range(1, 11))
    assert (nothing.last, nothing.more, nothing.ended, nothing.steps.step) == (after, False, False, [])
    assert (end.ended, [note.kind for note in end.notes]) == (True, ["closed"])


def test_a_batch_can_be_looked_at(tmp_path: Path) -> None:
    story: list[Event] = [opened(num_envs=2), batch_reset(size=5000), batch_step(size=5000)]
    written(tmp_path, [*story, batch_reset(epoch=2, mask=b"[true,false]"), batch_step(epoch=2), left()])
    with opened_shelf(tmp_path) as shelf:
        head, found = shelf.head("s.1"), shelf.slice("s.1")

    assert (bytes(head.observation), bytes(head.scene), head.line.num_envs) == (b"null", b"null", 2)
    assert (found.steps.reward, found.steps.ended) == ([0.0, 0.0], [0, 0])
    assert bytes(found.steps.observation[0]) == b"null"
    assert [note.kind for note in found.notes] == ["reset"]


def test_one_row_is_told_whole(tmp_path: Path) -> None:
    chain = popper_episode(tmp_path, 3)
    with Ledger.open(tmp_path) as ledger:
        row = list(ledger.rows(chain))[2]
    with opened_shelf(tmp_path) as shelf:
        told = msgspec.json.decode(shelf.raw(chain, row.number))

    assert list(told) == ["number", "seq", "chain", "hash", "digest", "event"]
    assert (told["number"], told["seq"], told["chain"]) == (row.number, 2, chain)
    assert (told["hash"], told["digest"]) == (row.hash.hex(), row.digest)
    assert msgspec.json.encode(told["event"]) == msgspec.json.encode(row.event)


@pytest.mark.parametrize("number", [0, -1, 1, 99, 2**63, 2**80])
def test_a_row_of_another_chain_or_of_none_is_refused(tmp_path: Path, number: int) -> None:
    written(tmp_path, session())
    with opened_shelf(tmp_path) as shelf:
        with pytest.raises(ValidationError):
            shelf.raw("s.1", number)
        with pytest.raises(ValidationError):
            shelf.pixels("s.1", number)


@pytest.mark.parametrize("name", ["", "s", "server.b", "s.1 "])
def test_a_chain_that_is_no_episode_is_refused(tmp_path: Path, name: str) -> None:
    written(tmp_path, session())
    with opened_shelf(tmp_path) as shelf:
        for ask in (shelf.head, shelf.slice, lambda chain: shelf.raw(chain, 1), lambda chain: shelf.pixels(chain, 1)):
            with pytest.raises(ValidationError, match="no such episode"):
                ask(name)


def test_pixels_are_fetched_one_by_one(tmp_path: Path) -> None:
    chain = pixels_episode(tmp_path, 3)
    with opened_shelf(tmp_path) as shelf:
        head, found = shelf.head(chain), shelf.slice(chain)
        pictures = [shelf.pixels(chain, number) for number in (head.first, *found.steps.number)]
        with pytest.raises(ValidationError):
            shelf.pixels(chain, head.first - 1)

    assert bytes(head.scene) == b'{"environment":"pixels","frame":{"pixels":true}}'
    assert [bytes(each) for each in found.steps.scene] == [b'{"pixels":true}'] * 3
    assert all(picture.startswith(b"\x89PNG") for picture in pictures)


def put_instead(path: Path, number: int, content: bytes, *, honest: bool) -> None:
    """Put another value where the frame of a row is kept; `honest`: and let the row name it."""
    connection = sqlite3.connect(path)
    (body,) = connection.execute("SELECT body FROM rows WHERE number = ?", (number,)).fetchone()
    digest = bytes.fromhex(msgspec.json.decode(body)["scene"])
    named = sha256(content).digest() if honest else digest
    connection.execute("INSERT OR REPLACE INTO blobs VALUES (?, 0, ?, ?)", (named, zlib.crc32(content), content))
    new = body.replace(digest.hex().encode(), named.hex().encode())
    connection.execute("UPDATE rows SET body = ? WHERE number = ?", (new, number))
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    ("content", "honest"), [(b'{"forged":true}', False), (b"[1,", False), (b"[1,", True), (b"[" * 50_000, True)]
)
def test_a_value_that_is_not_as_it_was_written_is_said_and_never_shown(
    tmp_path: Path, content: bytes, honest: bool
) -> None:
    chain = popper_episode(tmp_path, 5)
    with opened_shelf(tmp_path) as shelf:
        before = shelf.slice(chain)
    number = before.steps.number[2]

    put_instead(tmp_path / "worker-0.ledger", number, content, honest=honest)
    with opened_shelf(tmp_path) as shelf:
        found = shelf.slice(chain)
        with pytest.raises(ValidationError, match="cannot be read"):
            shelf.raw(chain, number)

    (note,) = (each for each in found.notes if each.kind == "unreadable")
    assert (note.number, note.step) == (number, 3)
    assert [bytes(each) for each in found.steps.scene] == [
        b"null" if at == 2 else bytes(each) for at, each in enumerate(before.steps.scene)
    ]
    msgspec.json.decode(msgspec.json.encode(found))


def test_a_file_whose_columns_hold_anything_hides_no_other(tmp_path: Path) -> None:
    written(tmp_path, session("a"))
    loose = written(tmp_path, session("b"), worker=1)
    connection = sqlite3.connect(loose)
    connection.executescript(
        "CREATE TABLE loose AS SELECT * FROM rows; DROP TABLE rows; ALTER TABLE loose RENAME TO rows;"
        "UPDATE rows SET body = 7"
    )
    connection.close()

    with opened_shelf(tmp_path) as shelf:
        found, (remark,) = names(shelf.lines()), shelf.remarks()

    assert found == ["a.1"]
    assert remark.endswith("worker-1.ledger are not those of a ledger")


def test_a_row_that_was_damaged_is_told_as_such(tmp_path: Path) -> None:
    path = written(tmp_path, session())
    connection = sqlite3.connect(path)
    connection.execute("UPDATE rows SET body = x'7b' WHERE number IN (SELECT first + 1 FROM chains) OR number = 6")
    connection.commit()
    connection.close()

    with opened_shelf(tmp_path) as shelf:
        head, found = shelf.head("s.1"), shelf.slice("s.1")

    assert (head.first, bytes(head.scene)) == (0, b"null")
    assert (found.steps.step, [note.kind for note in found.notes]) == ([2, 3], ["unreadable", "unreadable", "closed"])


def test_any_thread_may_ask(tmp_path: Path) -> None:
    problems: list[BaseException] = []
    with growing(tmp_path, opened(), reset()) as record, opened_shelf(tmp_path, live=True) as shelf:

        def look() -> None:
            try:
                for _ in range(20):
                    shelf.news()
                    found = shelf.slice("s.1")
                    assert found.steps.step == list(range(1, len(found.steps.step) + 1))
            except BaseException as problem:  # noqa: BLE001  # the main thread tells it
                problems.append(problem)

        threads = [threading.Thread(target=look) for _ in range(3)]
        for thread in threads:
            thread.start()
        for number in range(1, 51):
            record(step(number=number))
        for thread in threads:
            thread.join(300)
        steps = shelf.slice("s.1").steps.step

    assert problems == []
    assert len(steps) == 50


# ------------------------------------------------------------------------------------------------ what was found wanting
def test_a_file_that_was_replaced_while_it_is_written_is_read_anew(tmp_path: Path) -> None:
    with opened_shelf(tmp_path / "one", live=True) as shelf:
        with growing(tmp_path / "one", opened("a"), reset("a")):
            before = names(shelf.lines())
        (tmp_path / "one").rename(tmp_path / "away")
        with growing(tmp_path / "one", opened("b"), reset("b")):
            after = names(shelf.lines())
        gone = shelf.missing_chains()

    assert (before, after, gone) == (["a.1"], ["b.1"], ["a.1"])


def test_what_was_pruned_is_told_once_as_gone(tmp_path: Path) -> None:
    path = written(tmp_path, session(episodes=3))
    with opened_shelf(tmp_path) as shelf:
        shelf.lines()
        before = shelf.missing_chains()
        prune(path, ["s.2"], SIGNER)
        shelf.news()

        assert (before, shelf.missing_chains(), shelf.missing_chains()) == ([], ["s.2"], [])


def test_the_episodes_of_a_file_that_broke_are_listed_as_they_were_and_that_is_said(tmp_path: Path) -> None:
    written(tmp_path, session("a"))
    broken = written(tmp_path, session("b"), worker=1)
    with opened_shelf(tmp_path) as shelf:
        broken.write_bytes(b"no ledger")
        found, (remark,) = names(shelf.lines()), shelf.remarks()
        with pytest.raises(ValidationError) as told:
            shelf.slice("b.1")

    assert sorted(found) == ["a.1", "b.1"]
    assert remark.startswith("worker-1.ledger cannot be read now, so that its episodes are listed as they were: ")
    assert told.value.message == remark


def test_the_episodes_of_a_file_that_was_removed_are_gone(tmp_path: Path) -> None:
    written(tmp_path, session("a"))
    removed = written(tmp_path, session("b"), worker=1)
    with opened_shelf(tmp_path) as shelf:
        removed.unlink()
        found, gone, again = names(shelf.lines()), shelf.missing_chains(), shelf.missing_chains()
        with pytest.raises(ValidationError, match="no such episode"):
            shelf.head("b.1")
        removed.with_name("worker-0.ledger").unlink()
        with pytest.raises(ValidationError, match="there is no ledger"):
            shelf.lines()

    assert (found, gone, again) == (["a.1"], ["b.1"], [])


def test_where_it_is_seen_that_nobody_writes_nothing_is_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.viewer.followed_file.has_writer", lambda path: False)
    with growing(tmp_path, opened(), reset()), opened_shelf(tmp_path, wall=lambda: NOON + 1.0) as shelf:
        assert [line.live for line in shelf.lines()] == [False]


def test_a_slice_of_large_frames_ends_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.viewer.slices.MOST_SLICE", 100_000)
    monkeypatch.setattr("proctor.viewer.catalog.PAGE", 5)
    frames = [step(number=n, scene=Raw(b'"%d%b"' % (n, b"x" * 20_000))) for n in range(1, 41)]
    with opened_shelf(written(tmp_path, [opened(), reset(), *frames, closed(steps=40), left()])) as shelf:
        found = shelf.slice("s.1")
        rest = shelf.slice("s.1", after=found.last, most=20)
        thin = shelf.slice("s.1", most=5, thin=True)

    assert (found.more, 4 < len(found.steps.step) < 20) == (True, True)
    assert rest.steps.step[0] == found.steps.step[-1] + 1
    assert (thin.more, thin.ended, thin.steps.step) == (False, True, [8, 16, 24, 32, 40])


def test_a_thin_slice_counts_steps_and_not_rows(tmp_path: Path) -> None:
    rows = [event for n in range(1, 21) for event in (failure(epoch=1), step(number=n))]
    with opened_shelf(written(tmp_path, [opened(), reset(), *rows, closed(steps=20), left()])) as shelf:
        found = shelf.slice("s.1", after=3, most=20, thin=True)

    assert (found.thinned, len(found.steps.step)) == (1, 20)


# ---------------------------------------------------------------------------- an episode on one line of the list
def line_of(path: Path, chain: str = "s.1") -> EpisodeLine:
    with opened_shelf(path) as shelf:
        return next(line for line in shelf.lines() if line.chain == chain)


@pytest.mark.parametrize(
    ("rest", "state", "outcome", "reason"),
    [
        ([], "ready", None, ""),
        ([step(terminated=True)], "terminated", "terminated", ""),
        ([step(truncated=True)], "truncated", "truncated", ""),
        ([step(truncated=True, terminated=True)], "terminated", "terminated", ""),
        ([failure(epoch=1)], "ready", None, ""),
        ([failure(epoch=1, lost=True)], "lost", None, ""),
        ([closed(reason="lost")], "lost", None, "lost"),
        ([closed()], "closed", None, "closed"),
        ([step(terminated=True), closed(steps=1, reason="reset")], "terminated", "terminated", "reset"),
        ([left()], "closed", None, None),
    ],
)
def test_a_free_episode_is_where_its_environment_is(
    tmp_path: Path, rest: list[Event], state: str, outcome: str | None, reason: str | None
) -> None:
    line = line_of(written(tmp_path, [opened(), reset(), *rest]))

    assert (line.state, line.outcome, line.reason) == (state, outcome, reason)


@pytest.mark.parametrize(
    ("rest", "state", "outcome"),
    [
        ([], "S0_IDLE", "open"),
        ([step(terminated=True)], "S0_IDLE", "open"),
        ([closed(outcome="violated", state="S3_DECIDE")], "S3_DECIDE", "violated"),
        ([closed(reason="lost")], "lost", "open"),
        ([failure(epoch=1, lost=True)], "lost", "open"),
    ],
)
def test_a_governed_episode_is_where_its_machine_is(
    tmp_path: Path, rest: list[Event], state: str, outcome: str
) -> None:
    line = line_of(written(tmp_path, [opened(policy={"name": "p"}), reset(), *rest]))

    assert (line.governed, line.state, line.outcome) == (True, state, outcome)


def test_a_line_says_what_the_ledgers_own_list_says(tmp_path: Path) -> None:
    same = ("chain", "session", "epoch", "episode_id", "environment", "agent", "steps", "total_reward", "refusals")
    more = (
        "tier",
        "opened_at",
        "closed_at",
        "reason",
        "governed",
        "num_envs",
        "seed",
        "terminated",
        "truncated",
        "rows",
    )

    for chain in (plume_episode(tmp_path, 20), governed_episode(tmp_path)):
        line = line_of(tmp_path, chain)
        with Ledger.open(tmp_path) as ledger:
            told = ledger.find(chain)
            rows = list(ledger.rows(chain))

        assert [getattr(line, name) for name in same + more] == [getattr(told, name) for name in same + more]
        last: Any = rows[-1]
        assert (line.last, line.last_at) == (last.number, last.event.at)


def test_a_batch_has_no_return(tmp_path: Path) -> None:
    line = line_of(written(tmp_path, [opened(num_envs=2), batch_reset(), batch_step()]))

    assert (line.num_envs, line.total_reward, line.steps, line.state) == (2, None, 1, "ready")


def test_what_no_server_writes_any_more_is_not_live(tmp_path: Path) -> None:
    path = written(tmp_path, [opened(), reset(at=time.time())])

    assert not line_of(path).live
    assert line_of(path).closed_at is None
    assert line_of(path).opened_at > NOON


@pytest.mark.parametrize(("seed", "said"), [(7, 7), (2**53, 2**53), (2**53 + 1, str(2**53 + 1)), (None, None)])
def test_a_seed_that_a_browser_would_round_is_a_text(tmp_path: Path, seed: int | None, said: int | str | None) -> None:
    line = line_of(written(tmp_path, [opened(), reset(seed=seed)]))

    assert line.seed == said
    assert type(line.seed) is type(said)


# -------------------------------------------------------------------- pixels on record as pictures for a browser
PICTURES = hnp.arrays(
    np.uint8,
    st.tuples(st.integers(1, 9), st.integers(1, 9))
    | st.tuples(st.integers(1, 9), st.integers(1, 9), st.sampled_from([1, 3, 4])),
)


def unpainted(file: bytes) -> Any:
    """Return the pixels of a PNG file whose rows have no filter, with every chunk's sum looked at."""
    found: dict[bytes, bytes] = {}
    place = 8
    while place < len(file):
        (length,) = struct.unpack(">I", file[place : place + 4])
        kind, content = file[place + 4 : place + 8], file[place + 8 : place + 8 + length]
        assert struct.unpack(">I", file[place + 8 + length : place + 12 + length]) == (zlib.crc32(kind + content),)
        found[kind] = content
        place += 12 + length
    width, height, depth, colour = struct.unpack(">IIBB", found[b"IHDR"][:10])
    channels = {0: 1, 2: 3, 6: 4}[colour]
    rows = np.frombuffer(zlib.decompress(found[b"IDAT"]), np.uint8).reshape(height, 1 + width * channels)
    assert depth == 8
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, channels)


@settings(max_examples=40)
@given(PICTURES)
def test_a_picture_comes_out_of_its_file_as_it_went_in(picture: Any) -> None:
    file = encode_png(picture)

    assert file.startswith(b"\x89PNG\r\n\x1a\n")
    assert file.endswith(b"IEND\xaeB`\x82")
    assert np.array_equal(unpainted(file).reshape(picture.shape), picture)


def test_a_scene_and_a_frame_hold_the_same_picture() -> None:
    picture = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    frame = {"pixels": pack_array(picture)}

    whole = png_from_scene(Raw(msgspec.json.encode({"environment": "pixels", "frame": frame})))

    assert whole == png_from_scene(Raw(msgspec.json.encode(frame))) == encode_png(picture)


@pytest.mark.parametrize(
    "scene",
    [
        b"null",
        b"[]",
        b"{}",
        b'{"pixels":true}',
        b'{"pixels":{"dtype":"<f8","shape":[1,1],"data":"AAAAAAAAAAA="}}',
        b'{"pixels":{"dtype":"|u1","shape":[0,1],"data":""}}',
        b'{"pixels":{"dtype":"|u1","shape":[1,1,2],"data":"AAA="}}',
        b'{"pixels":{"dtype":"|u1","shape":[99999,99999],"data":"","zip":"zlib"}}',
        b'{"frame":{"pixels":7}}',
        b"{",
    ],
)
def test_what_is_no_picture_is_refused(scene: bytes) -> None:
    with pytest.raises(ValidationError):
        png_from_scene(Raw(scene))


def test_only_a_scene_of_pixels_is_one() -> None:
    others = (b'{"environment":"plume"}', b"null", b'{"environment":["pixels"]}', b'{"environment":"pix')

    assert is_pixels(NO_PIXELS)
    assert not any(is_pixels(Raw(other)) for other in others)
