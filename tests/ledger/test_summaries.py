"""What is said of an episode on one line: agents, refusals, where the machine stands; and what older files do not say."""

import sqlite3
from pathlib import Path

import msgspec
import pytest

from proctor.ledger.chain import genesis_hash, row_hash
from proctor.ledger.chain_state import MOST_AGENTS
from proctor.ledger.reader import EpisodeSummary, Ledger, format_agents
from proctor.ledger.verify import verify
from proctor.models.events import AgentGranted, Event, PacketJudged
from tests.ledger.session_events import NOON, closed, failure, left, opened, reset, step, written


def judged(number: int, *, accepted: bool, state: str) -> PacketJudged:
    return PacketJudged(
        session="s",
        at=NOON + number,
        epoch=1,
        step=number,
        line=msgspec.Raw(b"{}"),
        kind="DECISION",
        accepted=accepted,
        state=state,
    )


def granted(agent: str) -> AgentGranted:
    return AgentGranted(session="s", at=NOON, epoch=1, grant="g", agent=agent, tools=["move"])


STORY: list[Event] = [
    opened(policy={"name": "strict"}, tier="process"),
    reset(),
    granted("one"),
    granted("other"),
    judged(1, accepted=False, state="S1_SENSE"),
    step(number=1),
    failure(epoch=1),
    judged(2, accepted=True, state="S3_DECIDE"),
]
END: list[Event] = [closed(steps=1, outcome="open", state="S9_SAFEMODE"), left()]


def summed_up(path: Path) -> EpisodeSummary:
    with Ledger.open(path) as ledger:
        return ledger.find("s.1")


def told(one: EpisodeSummary) -> tuple[str, str, int | None, str | None]:
    return one.agent, one.tier, one.refusals, one.state


def test_agents_refusals_and_the_state_are_told_of_an_open_episode(tmp_path: Path) -> None:
    assert told(summed_up(written(tmp_path, STORY))) == ("one +1", "process", 2, "S3_DECIDE")


def test_they_are_told_of_an_ended_one_whether_its_rows_are_read_or_not(tmp_path: Path) -> None:
    path = written(tmp_path, [*STORY, *END])
    quick = summed_up(path)
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM rows WHERE number = (SELECT last + 1 FROM chains WHERE name = 's.1')")
    connection.commit()
    connection.close()

    assert told(quick) == ("one +1", "process", 2, "S9_SAFEMODE")
    assert summed_up(path) == quick


def test_a_chain_that_ends_without_a_word_still_has_its_state(tmp_path: Path) -> None:
    one = summed_up(written(tmp_path, [*STORY, left()]))

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
    assert told(summed_up(path)) == ("one +1", "process", 2, "S9_SAFEMODE")


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

    found = verify(path)

    assert [each.what for each in found.findings] == ["what the server says of its agents and refusals is another"]


def test_agents_are_told_in_few_words() -> None:
    assert [format_agents(names) for names in ([], ["a"], ["a", "b", "c"])] == ["", "a", "a +2"]


def test_the_state_of_an_episode_that_was_closed_without_one_is_the_last_that_was_judged(tmp_path: Path) -> None:
    one = summed_up(written(tmp_path, [*STORY, closed(steps=1, reason="lost"), left()]))

    assert (one.reason, one.state) == ("lost", "S3_DECIDE")


def test_more_agents_than_are_remembered_are_told_as_such() -> None:
    assert format_agents([f"n{number}" for number in range(MOST_AGENTS)]) == "n0 +15 or more"
    assert format_agents(["n0", "n1"]) == "n0 +1"
