from pathlib import Path

import pytest

from proctor.errors import ComponentError
from proctor.ledger.reader import Ledger
from proctor.ledger.recovery import UnfinishedSession
from proctor.ledger.rows import RunBegan
from proctor.ledger.verify import verify
from proctor.models.events import Event, SessionResumed, encode_event
from tests.ledger.damage import LONG
from tests.ledger.session_events import (
    SIGNER,
    altered,
    batch_reset,
    batch_step,
    closed,
    episode,
    failure,
    left,
    opened,
    reset,
    rows,
    session,
    step,
    writer,
    written,
)


def lines(events: list[Event]) -> list[bytes]:
    return [encode_event(event) for event in events]


def unfinished(folder: Path) -> list[UnfinishedSession]:
    """Return what the next run finds open."""
    into = writer(folder, boot="next")
    try:
        return into.unfinished()
    finally:
        into.close()


def test_a_session_that_nobody_closed_comes_back_whole(tmp_path: Path) -> None:
    story: list[Event] = [reset(observation=LONG), step(number=1), failure(request_id=99), step(number=2)]
    written(tmp_path, [*session("gone"), opened(), *episode(epoch=0, steps=4), *story])

    into = writer(tmp_path, boot="c")
    (found,) = into.unfinished()
    head = into.head("s")
    into.close()

    assert encode_event(found.opened) == encode_event(opened())
    assert lines(found.events) == lines(story)
    assert found.digests == [row.digest for row in rows(tmp_path, "s.1")][1:]
    assert (found.last_request_id, found.all_epochs) == (99, 1)
    assert (found.steps_before, found.agent_steps_before) == (4, 0)
    assert found.damage == ""
    with Ledger.open(tmp_path) as ledger:
        assert head == ledger.find("s.1").head


def test_sessions_come_back_in_order_of_opening_wherever_they_stand(tmp_path: Path) -> None:
    written(
        tmp_path, [opened("c"), failure("c", request_id=3), opened("b"), *episode("b", 2, 1), opened("a"), reset("a")]
    )

    found = unfinished(tmp_path)

    assert [each.opened.session for each in found] == ["c", "b", "a"]
    assert [each.all_epochs for each in found] == [0, 2, 1]
    assert [len(each.events) for each in found] == [0, 3, 1]
    assert found[0].last_request_id == 3
    assert lines(found[1].events)[-1] == encode_event(closed("b", 2, 1))


def test_a_chain_goes_on_in_the_next_run_and_the_one_after_it(tmp_path: Path) -> None:
    resumed = SessionResumed(session="s", at=5.0, epoch=1, step=1, boot="c", server="0.1.0")
    written(tmp_path, [opened(), reset(), step(number=1)])
    written(tmp_path, [resumed, step(number=2, grant="g")], boot="c")
    path = written(tmp_path, [step(number=3), closed(steps=3), *episode(epoch=2, steps=1), left()], boot="d")

    assert lines([row.event for row in rows(path, "s.1")]) == lines(  # type: ignore[misc]
        [opened(), reset(), step(number=1), resumed, step(number=2, grant="g"), step(number=3), closed(steps=3)]
    )
    with Ledger.open(path) as ledger:
        assert [(each.steps, each.total_reward) for each in ledger.episodes()] == [(3, 1.5), (1, 0.5)]
    assert verify(path, public=SIGNER.public).ok
    assert unfinished(tmp_path) == []


def test_steps_of_agents_in_earlier_chains_are_counted(tmp_path: Path) -> None:
    story: list[Event] = [opened(), reset(), step(number=1, grant="g"), step(number=2), closed()]
    written(tmp_path, [*story, reset(epoch=2), step(epoch=2, grant="g")])

    (found,) = unfinished(tmp_path)

    assert (found.steps_before, found.agent_steps_before) == (2, 1)


def test_a_batch_comes_back_with_its_latest_epoch(tmp_path: Path) -> None:
    written(
        tmp_path, [opened(num_envs=2), batch_reset(), batch_step(size=300), batch_reset(epoch=2, mask=b"[true,false]")]
    )

    (found,) = unfinished(tmp_path)

    assert found.all_epochs == 2
    assert lines(found.events)[1] == encode_event(batch_step(size=300))


def test_digests_come_back_where_values_were_not_kept(tmp_path: Path) -> None:
    written(tmp_path, [opened(), reset()], observations="digest")

    (found,) = unfinished(tmp_path)

    assert found.digests == [rows(tmp_path, "s.1")[1].digest]
    assert bytes(found.events[0].observation) == b"null"  # type: ignore[union-attr]


def test_a_run_says_which_sessions_it_found_open_and_where_the_one_before_ended(tmp_path: Path) -> None:
    written(tmp_path, [opened("a"), *session("b"), opened("c")])
    path = written(tmp_path, [left("a")], boot="c")
    written(tmp_path, [], boot="d")

    begun = [rows(path, f"server.{boot}")[0].event for boot in "bcd"]
    with Ledger.open(path) as ledger:
        names = [row.event.session for row in ledger.all_rows() if row.number in begun[2].unfinished]  # type: ignore[union-attr]
    assert names == ["c"]
    assert [len(each.unfinished) for each in begun if isinstance(each, RunBegan)] == [0, 2, 1]
    last = rows(path, "server.b")[-1]
    assert begun[1].previous == f"server.b@{last.seq + 1}:{last.hash.hex()}"  # type: ignore[union-attr]


def test_a_chain_that_was_touched_is_said_to_be_damaged(tmp_path: Path) -> None:
    path = written(tmp_path, [opened("a"), reset("a"), step("a"), opened("b"), reset("b"), step("b")])
    number = rows(path, "a.1")[2].number
    altered(
        path,
        (
            "UPDATE rows SET body = CAST(replace(CAST(body AS TEXT), ':0.5', ':0.7') AS BLOB) WHERE number = ?",
            (number,),
        ),
    )

    damages = {each.opened.session: each.damage for each in unfinished(tmp_path)}

    assert f"row {number} " in damages["a"]
    assert damages["b"] == ""


def test_a_servers_chain_that_cannot_be_read_is_a_component_error(tmp_path: Path) -> None:
    path = written(tmp_path, [opened()])
    altered(path, "UPDATE rows SET body = x'7b' WHERE number = 1")

    with pytest.raises(ComponentError, match="damaged"):
        writer(tmp_path)
