"""Any two episodes stand side by side with their first difference, and a branch beside what it left."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from proctor.errors import ValidationError
from proctor.ledger.reader import Ledger
from proctor.ledger.writer import LedgerWriter
from proctor.models.control import Reset
from proctor.models.events import EpisodeReset, EpisodeStepped, Event, PacketJudged, SessionOpened
from proctor.viewer.catalog import EpisodeCatalog
from proctor.viewer.comparison import MOST_VALUE, SAME, SAME_STEPS, UNKNOWN_REWARDS, compare_episodes, fork_episode
from proctor.viewer.documents import MOST_ACTIONS, EpisodeDifference, Fork
from tests.replay.recorded_ledgers import Play, Sitting, make_session, record
from tests.server.governed.governed_sessions import Agent, Hall
from tests.server.live_server import PATIENCE
from tests.viewer import ledgers

HERE = "tests.replay.environments:"
STEPS = 30
SHAPED: tuple[dict[str, Any], ...] = ({"type": "scale", "factor": 0.5}, {"type": "step_cost", "cost": 0.01})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a ledger with episodes that differ in one thing each; nobody changes it."""
    folder = tmp_path_factory.mktemp("compared")
    ledgers.plume_episode(folder, STEPS, session="one")
    ledgers.plume_episode(folder, STEPS, session="alike")
    ledgers.plume_episode(folder, STEPS, session="turned", turns_at=12)
    ledgers.plume_episode(folder, 12, session="short")
    ledgers.plume_episode(folder, STEPS, session="seeded", seed=9)
    ledgers.plume_episode(folder, STEPS, session="shaped", transforms=SHAPED)
    ledgers.popper_episode(folder, STEPS, session="game")
    ledgers.batch_episode(folder, 8, session="batch")
    ledgers.unknown_episode(folder, 8, session="unknown")
    ledgers.forged_episode(folder, session="forged")
    return folder


def compared(folder: Path, one: str, other: str) -> EpisodeDifference:
    with Ledger.open(folder) as ledger:
        return compare_episodes(ledger, f"{one}.1", f"{other}.1")


def values(found: EpisodeDifference) -> tuple[Any, Any]:
    return msgspec.json.decode(found.left), msgspec.json.decode(found.right)


@pytest.mark.parametrize("name", ["one", "game", "batch", "unknown", "forged"])
def test_an_episode_never_differs_from_itself(folder: Path, name: str) -> None:
    found = compared(folder, name, name)

    assert found.same
    assert (found.step, found.what, found.text) == (None, "", SAME)


def test_two_runs_with_the_same_seed_and_actions_are_the_same(folder: Path) -> None:
    assert compared(folder, "one", "alike").same


def test_the_first_step_that_differs_is_found_with_both_rows(folder: Path) -> None:
    found = compared(folder, "one", "turned")
    again = compared(folder, "turned", "one")

    assert (found.same, found.step, found.what, found.where) == (False, 12, "action", "/action")
    assert values(found) == tuple(reversed(values(again)))
    assert (found.number_one, found.number_other) == (again.number_other, again.number_one)
    assert found.text.startswith("At step 12 the action differs at /action: ")
    with Ledger.open(folder) as ledger:
        rows = {row.number: row.event for name in ("one.1", "turned.1") for row in ledger.rows(name)}
    assert {rows[number].step for number in (found.number_one, found.number_other) if number is not None} == {12}  # type: ignore[union-attr]


def test_an_episode_that_ends_earlier_differs_there(folder: Path) -> None:
    found = compared(folder, "short", "one")

    assert (found.what, found.step, found.number_one) == ("end", 12, None)
    assert found.number_other is not None
    assert values(found) == ("ends", "goes on")
    assert found.text == "The left one ends after step 12; the right one goes on."


@pytest.mark.parametrize("other", ["alike", "turned", "short", "seeded", "game", "batch"])
def test_the_sentence_is_told_for_either_order(folder: Path, other: str) -> None:
    found, again = compared(folder, "one", other), compared(folder, other, "one")

    assert (found.turned, again.turned) == (again.text, found.text)


def test_episodes_that_began_differently_are_told_so(folder: Path) -> None:
    found = compared(folder, "one", "seeded")

    assert found.step == 0
    assert found.text.startswith("At the reset the ")
    assert found.text.endswith(" They did not begin alike: they differ in seed (8 and 9).")


def test_rewards_that_were_paid_differently_differ(folder: Path) -> None:
    found = compared(folder, "one", "shaped")

    assert (found.what, found.step) == ("reward", 1)
    assert found.text.endswith("they differ in transforms.")


@pytest.mark.parametrize(
    ("other", "what", "text"),
    [
        ("game", "environment", "They are episodes of two environments: proctor/PlumeSearch-v0 on the left, "),
        ("batch", "num_envs", "The left one is of one environment, the right one of a batch of 4."),
    ],
    ids=["another environment", "a batch"],
)
def test_episodes_of_two_sorts_are_not_compared_step_by_step(folder: Path, other: str, what: str, text: str) -> None:
    found = compared(folder, "one", other)

    assert (found.same, found.what, found.step, found.number_one, found.number_other) == (False, what, None, None, None)
    assert found.text.startswith(text)


def test_a_long_value_is_told_in_part(tmp_path: Path) -> None:
    folder = record(tmp_path / "ledger", *(Sitting(f"{HERE}Adding", plays=[Play(seed=1, actions=[1])]),) * 2)
    with Ledger.open(folder) as ledger:
        events = [row.event for row in ledger.rows("boot0.1")]

    def worded(event: Event, session: str, word: str) -> Event:
        changed = replace(event, session=session)
        if not isinstance(changed, SessionOpened) and hasattr(changed, "observation"):
            return replace(changed, observation=msgspec.Raw(msgspec.json.encode({"word": word})))
        return changed

    with ledgers.writing(tmp_path / "long", ledgers.Clock(1.0)) as writer:
        for session, word in (("a", "x" * 9000), ("b", "y" * 9000)):
            for event in events:
                writer.record(worded(event, session, word))  # type: ignore[arg-type]
    with Ledger.open(tmp_path / "long") as ledger:
        found = compare_episodes(ledger, "a.1", "b.1")

    assert (found.what, found.where) == ("observation", "/word")
    assert max(len(bytes(each)) for each in (found.left, found.right)) < MOST_VALUE
    assert len(found.text) < 500


@pytest.mark.parametrize("size", [1, 5000], ids=["in the row", "beside the rows"])
def test_pictures_that_differ_differ_wherever_they_are_stored(tmp_path: Path, size: int) -> None:
    with ledgers.writing(tmp_path, ledgers.Clock(1.0)) as writer:
        for session, mark in (("a", "x"), ("b", "y"), ("c", "x")):
            scene = msgspec.Raw(msgspec.json.encode({"environment": "e", "frame": {"mark": mark * size}}))
            seen: dict[str, Any] = {"episode_id": "e", "observation": msgspec.Raw(b"{}"), "scene": scene}
            writer.record(ledgers.opened(session, 1.0))
            writer.record(EpisodeReset(session=session, at=1.0, epoch=1, **seen))
    with Ledger.open(tmp_path) as ledger:
        other, same = compare_episodes(ledger, "a.1", "b.1"), compare_episodes(ledger, "a.1", "c.1")

    assert (other.what, other.where, other.step) == ("picture", "/frame/mark", 0)
    assert same.same


def test_observations_that_were_not_stored_are_compared_by_their_digests(tmp_path: Path) -> None:
    plays = [Sitting(f"{HERE}Adding", plays=[Play(seed=seed, actions=[1, 2])]) for seed in (1, 1, 2)]
    folder = record(tmp_path / "ledger", *plays, observations="digest")

    with Ledger.open(folder) as ledger:
        same, other = compare_episodes(ledger, "boot0.1", "boot1.1"), compare_episodes(ledger, "boot0.1", "boot2.1")

    assert same.same
    assert other.what == "observation"
    assert all(str(value).startswith("sha256:") for value in values(other))


@pytest.mark.parametrize(("one", "other"), [("nobody", "one"), ("one", "nobody")])
def test_a_chain_that_is_not_there_is_refused(folder: Path, one: str, other: str) -> None:
    with pytest.raises(ValidationError, match="no such chain"):
        compared(folder, one, other)


def test_a_chain_that_is_no_episode_is_refused(folder: Path) -> None:
    with Ledger.open(folder) as ledger, pytest.raises(ValidationError, match="no episode"):
        compare_episodes(ledger, "server.boot", "one.1")


# --------------------------------------------------------------------------------------------------------- governed
Scenario = Callable[[Agent], Any]


async def acts(agent: Agent) -> None:
    await agent.permitted("move")
    await agent.use("move", direction="up")


async def hurries(agent: Agent) -> None:
    await agent.use("move", direction="up")
    await acts(agent)


async def cancels(agent: Agent) -> None:
    await agent.believe()
    await agent.decide("CANCEL")


async def believes_else(agent: Agent) -> None:
    await agent.believe(something=False)
    await agent.decide()


async def stops(agent: Agent) -> None:
    await agent.permitted("move")


@pytest.mark.parametrize(
    ("scenario", "what", "text"),
    [
        (
            hurries,
            "kind",
            "Before the first step the left one states a belief update where the right one states a directive.",
        ),
        (cancels, "payload", "Before the first step a decision says different things at /decision_outcome: "),
        (
            believes_else,
            "payload",
            "Before the first step a belief update says different things at /belief_changes/0/new_value",
        ),
        (
            stops,
            "silence",
            "Before the first step the left one states a directive, and the right one states nothing more.",
        ),
    ],
    ids=["hurries", "cancels", "believes", "stops"],
)
def test_governed_episodes_differ_where_their_agents_did(
    tmp_path: Path, scenario: Scenario, what: str, text: str
) -> None:
    ledgers.record_events(tmp_path, Hall(name="first"), acts)
    ledgers.record_events(tmp_path, Hall(name="second"), scenario)

    with Ledger.open(tmp_path) as ledger:
        found = compare_episodes(ledger, "first.1", "second.1")
        lines = {row.number: row.event for row in ledger.rows("first.1") if isinstance(row.event, PacketJudged)}

    assert (found.same, found.step, found.what) == (False, 0, what)
    assert found.text.startswith(text)
    assert found.number_one in lines


def test_two_runs_of_a_governed_agent_are_the_same_but_for_ids_and_times(tmp_path: Path) -> None:
    first, second = ledgers.governed_episode(tmp_path), ledgers.governed_episode(tmp_path, session="again", begun=1.9e9)

    with Ledger.open(tmp_path) as ledger:
        found = compare_episodes(ledger, first, second)

    assert found.same, found.text


def test_hostile_words_leave_the_sentence_readable(tmp_path: Path) -> None:
    one, other = ledgers.hostile_episode(tmp_path), ledgers.forged_episode(tmp_path)

    with Ledger.open(tmp_path) as ledger:
        found = compare_episodes(ledger, one, other)

    assert found.what == "environment"
    assert found.text.isprintable()


# ------------------------------------------------------------------------------------------------------------- forks
def branched(folder: Path, chain: str, step: int, actions: list[Any]) -> Fork:
    with Ledger.open(folder) as ledger:
        return fork_episode(ledger, chain, step, actions)


def actions_of(folder: Path, chain: str) -> list[Any]:
    with Ledger.open(folder) as ledger:
        events = [row.event for row in ledger.rows(chain)]
    return [msgspec.json.decode(event.action) for event in events if isinstance(event, EpisodeStepped)]


@pytest.mark.parametrize("chain", ["one.1", "game.1", "batch.1", "unknown.1", "shaped.1"])
def test_a_fork_is_shaped_like_an_episode(folder: Path, chain: str) -> None:
    action = [0, 1, 2, 3] if chain == "batch.1" else 0
    shelf = EpisodeCatalog(folder)

    found = branched(folder, chain, 5, [action, action])
    whole, head = shelf.slice(chain), shelf.head(chain)

    shelf.close()
    steps = found.slice.steps
    assert found.head.line.chain == found.slice.chain == f"{chain}~fork@5"
    assert (found.head.scene, found.head.observation) == (head.scene, head.observation)
    assert (found.head.target, found.head.settings) == (head.target, head.settings)
    assert steps.step == [1, 2, 3, 4, 5, 6, 7]
    for name in ("action", "observation", "reward", "raw_reward", "scene", "at", "total"):
        assert getattr(steps, name)[:5] == getattr(whole.steps, name)[:5], name
    assert len({len(getattr(steps, name)) for name in steps.__struct_fields__ if name != "parts"}) == 1
    assert [bytes(each) != b"null" for each in steps.scene] == [
        bytes(each) != b"null" for each in whole.steps.scene[:7]
    ]
    assert [set(msgspec.json.decode(each)) for each in steps.action[5:]] == [
        set(msgspec.json.decode(steps.action[0]))
    ] * 2
    assert steps.number == steps.seq == list(range(2, 9))
    assert (found.head.first, found.slice.after, found.slice.last) == (1, 0, 8)
    assert (found.slice.more, found.slice.ended, found.head.line.steps) == (False, True, 7)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Fork) == found


def test_a_fork_differs_from_its_origin_at_its_first_other_action(folder: Path) -> None:
    recorded = actions_of(folder, "one.1")
    other = (recorded[6]["action"] + 1) % 4

    found = branched(folder, "one.1", 5, [recorded[5], other, 0])

    assert (found.difference.one, found.difference.other) == ("one.1", "one.1~fork@5")
    assert (found.difference.what, found.difference.step) == ("action", 7)
    assert values(found.difference) == (recorded[6]["action"], other)
    assert found.slice.steps.number[found.slice.steps.step.index(7)] == found.difference.number_other


@pytest.mark.parametrize("chain", ["one.1", "shaped.1"])
def test_a_fork_with_the_recorded_actions_only_ends_earlier(folder: Path, chain: str) -> None:
    found = branched(folder, chain, 4, actions_of(folder, chain)[4:10])

    assert (found.difference.what, found.difference.step) == ("end", 10)
    assert found.difference.text.startswith("The right one ends after step 10; the left one goes on.")
    assert (UNKNOWN_REWARDS in found.difference.text) is (chain == "shaped.1")


def test_a_fork_has_the_packets_of_its_way(tmp_path: Path) -> None:
    chain = ledgers.governed_episode(tmp_path)

    found = branched(tmp_path, chain, 12, [0])

    assert found.slice.packets
    assert all(packet.step <= 12 for packet in found.slice.packets)
    assert found.head.line.governed
    assert found.slice.steps.step[-1] == 13


def test_actions_after_the_end_are_left_and_a_drift_is_told(tmp_path: Path) -> None:
    sittings = (
        Sitting(f"{HERE}Adding", plays=[Play(actions=[1, 1])]),
        Sitting(f"{HERE}Drifting", plays=[Play(actions=[1] * 6)]),
    )
    folder = record(tmp_path / "ledger", *sittings)

    ended, drifted = branched(folder, "boot0.1", 1, [50, 60, 1, 2]), branched(folder, "boot1.1", 5, [1])

    assert (ended.left, ended.slice.steps.ended) == (2, [0, 0, 1])
    assert (ended.head.line.terminated, ended.head.line.state) == (True, "terminated")
    assert ". The way there was not as recorded: it differs at step 3." in drifted.difference.text


@pytest.mark.parametrize(
    ("chain", "step", "actions"),
    [
        ("one.1", 999, [0]),
        ("one.1", -1, [0]),
        ("one.1", 3, ["<script>"]),
        ("nobody.1", 3, [0]),
        ("server.boot", 0, [0]),
        ("forged.1", 1, [0]),
        ("one.1", 3, [0] * (MOST_ACTIONS + 1)),
    ],
    ids=["too late", "before", "no action", "nobody", "no episode", "cannot be made", "too many"],
)
def test_a_fork_that_cannot_be_is_refused(folder: Path, chain: str, step: int, actions: list[Any]) -> None:
    with pytest.raises(ValidationError):
        branched(folder, chain, step, actions)


# -------------------------------------------------------------------------------------------- open ones, and damaged ones
def test_an_open_episode_has_come_so_far_and_does_not_end(tmp_path: Path) -> None:
    ledgers.plume_episode(tmp_path, 20, session="whole")
    with Ledger.open(tmp_path) as ledger:
        events: list[Any] = [replace(row.event, session="open") for row in ledger.rows("whole.1")]
    with ledgers.writing(tmp_path, ledgers.Clock(2e9)) as into:
        for event in events[:12]:
            into.record(event)

    ahead, behind = compared(tmp_path, "whole", "open"), compared(tmp_path, "open", "whole")

    assert ahead.text == "The right one has come as far as step 10; the left one went on."
    assert (ahead.what, values(ahead)) == ("end", ("goes on", "is here so far"))
    assert (behind.what, values(behind)) == ("end", ("is here so far", "goes on"))


def spoiled(folder: Path, chain: str, seq: int) -> None:
    connection = sqlite3.connect(folder / "worker-0.ledger")
    place = "chain = (SELECT first FROM chains WHERE name = ?) AND seq = ?"
    connection.execute(f"UPDATE rows SET body = x'6e6fff' WHERE {place}", (chain, seq))
    connection.commit()
    connection.close()


@pytest.mark.parametrize("seq", [0, 1, 7])
def test_a_row_that_cannot_be_read_is_passed_over_with_a_word(tmp_path: Path, seq: int) -> None:
    ledgers.plume_episode(tmp_path, 20, session="one")
    ledgers.plume_episode(tmp_path, 20, session="turned", turns_at=12)
    before = compared(tmp_path, "one", "turned")
    spoiled(tmp_path, "one.1", seq)

    found = compared(tmp_path, "one", "turned")

    assert (found.what, found.step, found.number_one) == (before.what, before.step, before.number_one)
    assert found.text.endswith(" Rows that cannot be read were passed over: 1 on the left.")


def test_what_a_server_would_have_paid_is_not_made_up_where_rewards_are_transformed(folder: Path) -> None:
    shaped, plainly = (branched(folder, chain, 5, [0, 0]) for chain in ("shaped.1", "one.1"))

    one, other = shaped.slice.steps, plainly.slice.steps
    assert (one.reward[5], one.raw_reward[5]) == (None, other.raw_reward[5])
    assert other.reward[5] == other.raw_reward[5] is not None
    assert shaped.slice.steps.total[4] is not None
    assert (shaped.slice.steps.total[5:], shaped.head.line.total_reward) == ([None, None], None)
    assert plainly.slice.steps.total[-1] == plainly.head.line.total_reward


def test_a_fork_of_a_governed_episode_says_nothing_of_packets(tmp_path: Path) -> None:
    chain = ledgers.governed_episode(tmp_path)

    found = branched(tmp_path, chain, 12, actions_of(tmp_path, chain)[12:])

    assert found.difference.text == SAME_STEPS


def test_a_fork_of_a_batch_whose_parts_begin_anew_counts_on(tmp_path: Path) -> None:
    async def played(writer: LedgerWriter) -> None:
        session, _ = make_session("masked", Sitting(num_envs=2, mode="disabled"), writer)
        await session.open()
        await session.reset(Reset(seed=1), 1)
        for number in range(3):
            await session.step(b'{"actions":[0,1]}', 2 + number)
        await session.reset(Reset(seed=2, mask=Raw(b"[true,false]")), 10)
        for number in range(3):
            await session.step(b'{"actions":[0,1]}', 11 + number)
        await session.close("client")

    with ledgers.writing(tmp_path, ledgers.Clock(1e9)) as writer:
        asyncio.run(asyncio.wait_for(played(writer), PATIENCE))

    found = branched(tmp_path, "masked.1", 4, [{"actions": [2, 2]}] * 2)

    assert found.slice.steps.step == [1, 2, 3, 4, 5, 6]
    assert (found.difference.step, found.head.line.steps) == (5, 6)
