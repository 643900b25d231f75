"""What is said of an episode on one line: agents, refusals, where the machine stands; and what older files do not say."""

import sqlite3
from pathlib import Path

import msgspec
import pytest

from proctor.errors import ValidationError
from proctor.ledger.chain import MOST_AGENTS, genesis_hash, row_hash
from proctor.ledger.reader import EpisodeSummary, Ledger, format_agents
from proctor.ledger.verify import verify
from proctor.models.events import Event
from tests.ledger.session_events import (
    NOON,
    SIGNER,
    altered,
    batch_reset,
    batch_step,
    closed,
    episode,
    failure,
    granted,
    judged,
    left,
    opened,
    reset,
    rows,
    session,
    step,
    writer,
    written,
)


def found(path: Path, text: str) -> EpisodeSummary:
    with Ledger.open(path) as ledger:
        return ledger.find(text)


def test_an_episode_is_summed_up(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        [
            opened(policy={"name": "strict"}),
            reset(),
            step(number=1, reward=None),
            step(number=2, reward=0.25, truncated=True),
            step(number=3, reward=0.5, terminated=True),
            closed(steps=3, outcome="conforming"),
            left(),
        ],
    )

    one = found(path, "s.1")

    assert one == EpisodeSummary(
        chain="s.1",
        session="s",
        epoch=1,
        environment="plume",
        target="proctor/Plume-v0",
        episode_id="s-e1",
        seed=7,
        opened_at=NOON + 1,
        closed_at=NOON + 1.9,
        steps=3,
        total_reward=0.75,
        terminated=True,
        truncated=True,
        reason="closed",
        governed=True,
        outcome="conforming",
        num_envs=None,
        rows=6,
        head=f"s.1@6:{rows(path, 's.1')[-1].hash.hex()}",
        file=path,
        boot="b",
        agent="",
        tier="none",
        refusals=0,
        state=None,
    )


def test_a_batch_and_an_open_episode_are_summed_up(tmp_path: Path) -> None:
    path = written(tmp_path, [opened(num_envs=2), batch_reset(), batch_step(number=1), batch_step(number=2)])

    one = found(path, "s.1")

    assert (one.num_envs, one.steps, one.total_reward, one.seed, one.reason) == (2, 2, None, None, "")


def test_the_steps_of_a_batch_are_counted_over_its_chain(tmp_path: Path) -> None:
    """A reset of some of a batch begins its own count anew."""
    story: list[Event] = [opened(num_envs=2), batch_reset(), batch_step(), batch_step(number=2)]
    story += [batch_reset(epoch=2, mask=b"[true,false]"), batch_step(epoch=2)]
    still_open = written(tmp_path / "open", story)
    ended = written(tmp_path / "ended", [*story, closed(epoch=2, steps=1), left()])

    assert [found(path, "s.1").steps for path in (still_open, ended)] == [3, 3]
    assert verify(ended, public=SIGNER.public).ok


def test_a_sum_of_rewards_that_is_no_number_is_none(tmp_path: Path) -> None:
    story: list[Event] = [opened(), reset(), *(step(number=number, reward=1e308) for number in (1, 2))]
    still_open = written(tmp_path / "open", story)
    ended = written(tmp_path / "ended", [*story, closed(steps=2), left()])

    assert [found(path, "s.1").total_reward for path in (still_open, ended)] == [None, None]
    assert verify(ended, public=SIGNER.public).ok


def test_episodes_come_in_order_of_opening_from_all_files(tmp_path: Path) -> None:
    written(tmp_path, [opened("a"), reset("a", epoch=5)], worker=0)
    written(tmp_path, [opened("b"), reset("b", epoch=2)], worker=1)

    with Ledger.open(tmp_path) as ledger:
        assert [each.chain for each in ledger.episodes()] == ["b.2", "a.5"]
        assert [path.name for path in ledger.files] == ["worker-0.ledger", "worker-1.ledger"]
        assert [row.number for row in ledger.all_rows()] == [1, 2, 3, 4, 5, 6] * 2


def test_an_episode_is_found_by_its_name_its_id_or_a_beginning(tmp_path: Path) -> None:
    path = written(
        tmp_path, [*session("abc", episodes=2), *session("abd"), opened("x"), reset("x", epoch=10), reset("x", epoch=1)]
    )

    assert found(path, "abc.1").chain == "abc.1"
    assert found(path, "abc-e2").chain == "abc.2"
    assert found(path, "abd").chain == "abd.1"
    assert found(path, "x.1").chain == "x.1"
    with pytest.raises(ValidationError, match=r"several.*abc\.1, abc\.2"):
        found(path, "abc")
    with pytest.raises(ValidationError, match=r"no such episode.*abc\.1, abd\.1, x\.1, abc\.2"):
        found(path, "zzz")
    with pytest.raises(ValidationError, match="no such chain"):
        rows(path, "abc")


def test_what_there_is_is_listed_shortly(tmp_path: Path) -> None:
    path = written(tmp_path, session("s", episodes=25, steps=0))

    with pytest.raises(ValidationError, match=r"and 5 more"):
        found(path, "zzz")
    with pytest.raises(ValidationError, match="a ledger with episodes"):
        found(written(tmp_path / "empty", []), "zzz")


def test_a_reader_sees_what_a_live_writer_has_committed(tmp_path: Path) -> None:
    into = writer(tmp_path)
    with Ledger.open(tmp_path) as ledger:
        for count, event in enumerate(episode(), start=1):
            into.record(event)

            assert len(list(ledger.rows("s.1"))) == count
    into.close()


def test_reading_makes_no_files(tmp_path: Path) -> None:
    path = written(tmp_path, session())
    before = {each.name: each.stat().st_mtime_ns for each in tmp_path.iterdir()}

    found(path, "s.1")

    assert {each.name: each.stat().st_mtime_ns for each in tmp_path.iterdir()} == before


def test_a_ledger_can_be_read_where_nothing_can_be_written(tmp_path: Path) -> None:
    path = written(tmp_path, session())
    path.chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        assert found(path, "s.1").rows == 6
    finally:
        tmp_path.chmod(0o700)


def test_there_must_be_a_ledger(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(ValidationError, match="no ledger"):
            Ledger(path)


def test_one_file_that_is_none_hides_no_other(tmp_path: Path) -> None:
    written(tmp_path, session(), worker=1)
    (tmp_path / "worker-0.ledger").write_bytes(b"no")

    with Ledger.open(tmp_path) as ledger:
        assert ledger.find("s").chain == "s.1"
        assert len(list(ledger.rows("s.1"))) == 6
        assert [path.name for path in ledger.unread] == ["worker-0.ledger"]


def test_one_file_whose_pages_are_damaged_hides_no_other(tmp_path: Path) -> None:
    path = written(tmp_path, session("t"))
    written(tmp_path, session(), worker=1)
    content = path.read_bytes()
    path.write_bytes(content[:4096] + bytes(len(content) - 4096))

    with Ledger.open(tmp_path) as ledger:
        assert [episode.chain for episode in ledger.episodes()] == ["s.1"]
        assert len(list(ledger.rows("s.1"))) == 6
        assert list(ledger.unread) == [path]
    with pytest.raises(ValidationError), Ledger.open(path) as ledger:
        ledger.episodes()


@pytest.mark.parametrize("statement", [None, "PRAGMA journal_mode = WAL"])
def test_a_file_that_nothing_was_written_to_is_passed_over(tmp_path: Path, statement: str | None) -> None:
    """A server that is killed while it starts leaves one, and one that starts has one for a moment."""
    written(tmp_path, session())
    altered(tmp_path / "worker-1.ledger", statement or "SELECT 1")
    (tmp_path / "worker-1.ledger").touch()

    with Ledger.open(tmp_path) as ledger:
        assert (len(ledger.files), ledger.unread) == (1, {})
    assert verify(tmp_path, public=SIGNER.public).ok
    (tmp_path / "worker-0.ledger").unlink()
    with pytest.raises(ValidationError, match="no ledger"):
        Ledger(tmp_path)


def test_a_row_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, session())
    number = rows(path, "s.1")[3].number
    altered(path, ("UPDATE rows SET body = x'7b' WHERE number = ?", (number,)))

    with pytest.raises(ValidationError, match=rf"row {number} .*s\.1, 3"):
        rows(path, "s.1")
    assert found(path, "s.1").rows == 6


def test_a_hash_that_is_none_finds_no_observation(tmp_path: Path) -> None:
    with Ledger.open(written(tmp_path, session())) as ledger, pytest.raises(ValidationError, match="hash"):
        ledger.observation("xyz")


STORY: list[Event] = [
    opened(policy={"name": "strict"}, tier="process"),
    reset(),
    granted("one"),
    granted("other"),
    judged(False, number=1),
    step(number=1),
    failure(epoch=1),
    judged(True, "S3_DECIDE", number=2),
]
END: list[Event] = [closed(steps=1, outcome="open", state="S9_SAFEMODE"), left()]


def told(one: EpisodeSummary) -> tuple[str, str, int | None, str | None]:
    return one.agent, one.tier, one.refusals, one.state


def test_agents_refusals_and_the_state_are_told_of_an_open_episode(tmp_path: Path) -> None:
    assert told(found(written(tmp_path, STORY), "s.1")) == ("one +1", "process", 2, "S3_DECIDE")


def test_they_are_told_of_an_ended_one_whether_its_rows_are_read_or_not(tmp_path: Path) -> None:
    path = written(tmp_path, [*STORY, *END])
    quick = found(path, "s.1")
    altered(path, "DELETE FROM rows WHERE number = (SELECT last + 1 FROM chains WHERE name = 's.1')")

    assert told(quick) == ("one +1", "process", 2, "S9_SAFEMODE")
    assert found(path, "s.1") == quick


def test_a_chain_that_ends_without_a_word_still_has_its_state(tmp_path: Path) -> None:
    one = found(written(tmp_path, [*STORY, left()]), "s.1")

    assert (one.reason, *told(one)) == (None, "one +1", "process", 2, "S3_DECIDE")


def changed_ends(path: Path, change: dict[str, object], *, drop: bool = False) -> None:
    """Write what the server says of ended chains anew, and every hash after it, as a writer would have."""
    connection = sqlite3.connect(path)
    before = genesis_hash("server.b")
    rows = connection.execute("SELECT number, seq, body FROM rows WHERE chain = 1 ORDER BY number").fetchall()
    for number, seq, body in rows:
        said = msgspec.json.decode(body)
        if said.get("own", {}).get("own") == "chainended":
            said["own"] = {key: value for key, value in said["own"].items() if not drop or key not in change}
            said["own"] |= {} if drop else change
            body = msgspec.json.encode(said)
        before = row_hash(before, number, seq, body)
        connection.execute("UPDATE rows SET body = ?, hash = ? WHERE number = ?", (body, before, number))
    connection.commit()
    connection.close()


def test_a_file_of_an_earlier_version_is_read_and_verified(tmp_path: Path) -> None:
    path = written(tmp_path, [*STORY, *END], signer=None)
    changed_ends(path, dict.fromkeys(("refusals", "agents", "state")), drop=True)

    assert verify(path).ok
    # It is read whole, for its end does not say it: nobody is told to have been alone who was not.
    assert told(found(path, "s.1")) == ("one +1", "process", 2, "S9_SAFEMODE")


@pytest.mark.parametrize(
    "change",
    [
        {"refusals": 1},
        {"agents": ["one"]},
        {"state": "S0_IDLE"},
        {"refusals": None},
        {"refusals": None, "agents": ["bob"], "state": "S9_SAFEMODE"},
    ],
    ids=str,
)
def test_an_end_that_says_other_refusals_agents_or_another_state_is_found(
    tmp_path: Path, change: dict[str, object]
) -> None:
    path = written(tmp_path, [*STORY, *END], signer=None)
    changed_ends(path, change)

    assert [each.what for each in verify(path).findings] == [
        "what the server says of its agents and refusals is another"
    ]


def test_the_state_of_an_episode_that_was_closed_without_one_is_the_last_that_was_judged(tmp_path: Path) -> None:
    one = found(written(tmp_path, [*STORY, closed(steps=1, reason="lost"), left()]), "s.1")

    assert (one.reason, one.state) == ("lost", "S3_DECIDE")


@pytest.mark.parametrize(
    ("names", "words"),
    [([], ""), (["a"], "a"), (["a", "b", "c"], "a +2"), ([f"n{n}" for n in range(MOST_AGENTS)], "n0 +15 or more")],
)
def test_agents_are_told_in_few_words(names: list[str], words: str) -> None:
    assert format_agents(names) == words
