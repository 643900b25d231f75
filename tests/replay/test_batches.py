"""A batch replays as a whole, and each of its sub-episodes alone with the single environment."""

from dataclasses import replace as with_fields
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec import Raw
from msgspec.structs import replace

from proctor.errors import ValidationError
from proctor.ledger.reader import Ledger, Row
from proctor.models.control import MOST_ENVS
from proctor.models.events import BatchReset, BatchStepped, SessionOpened
from proctor.models.wire import Encoding
from proctor.replay.batches import SubEpisode, SubEpisodeReplay, replay_sub_episodes, sub_episodes
from proctor.replay.comparison import Difference, parse_array
from proctor.replay.fork import state_at
from proctor.replay.replayer import replay_rows
from tests.replay.recorded_ledgers import PLUME, POPPER, Play, Sitting, chains, record, rows_of

MODES = ["next_step", "same_step", "disabled"]
SMALL: dict[str, dict[str, Any]] = {
    PLUME: {"max_steps": 9, "grid_size": [9, 9]},
    POPPER: {"duration_ms": 1500},
    "CartPole-v1": {},
    "tests.replay.environments:Drawn": {},
}
OURS = [PLUME, POPPER]
COUNT = 3


def batch(target: str, mode: str, *plays: Play, **fields: Any) -> Sitting:
    return Sitting(target, SMALL[target], plays or (Play(seed=7, steps=40),), COUNT, mode, **fields)


def differences(rows: list[Row]) -> list[tuple[int, Difference]]:
    first = rows[0].event
    assert isinstance(first, SessionOpened)
    return [(each.step, found) for each in replay_rows(first, rows) for found in each.differences]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("target", SMALL)
@pytest.mark.parametrize(("infos", "encoding"), [(True, Encoding()), (False, Encoding(True, True))])
def test_a_batch_replays_as_a_whole(tmp_path: Path, target: str, mode: str, infos: bool, encoding: Encoding) -> None:
    plays = [Play(seed=7, steps=30), Play(seed=[5, 1, 9], steps=12)]
    folder = record(tmp_path / "ledger", batch(target, mode, *plays, infos=infos, encoding=encoding))

    assert len(chains(folder)) == 2
    assert differences(rows_of(folder, 0)) == differences(rows_of(folder, 1)) == []


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("target", OURS)
def test_seeds_that_were_drawn_are_read_from_the_infos(tmp_path: Path, target: str, mode: str) -> None:
    folder = record(tmp_path / "ledger", batch(target, mode, Play(seed=None, steps=30), encoding=Encoding(True)))

    assert differences(rows_of(folder)) == []


def test_a_batch_whose_seeds_nobody_knows_cannot_be_replayed(tmp_path: Path) -> None:
    rows = rows_of(record(tmp_path / "ledger", batch("CartPole-v1", "same_step", Play(seed=None, steps=3))))

    with pytest.raises(ValidationError, match="begun without a seed"):
        differences(rows)


def test_a_batch_compares_digests_where_values_were_not_stored(tmp_path: Path) -> None:
    rows = rows_of(record(tmp_path / "ledger", batch(PLUME, "next_step"), observations="digest"))

    whole = differences(rows)
    rows[4] = with_fields(rows[4], digest="00" * 32)

    assert whole == []
    assert [(step, found.what) for step, found in differences(rows)] == [(3, "observation")]


def test_a_changed_number_of_one_sub_environment_is_named_by_its_index(tmp_path: Path) -> None:
    rows = rows_of(record(tmp_path / "ledger", batch(POPPER, "next_step", encoding=Encoding(True))))
    event: Any = rows[6].event
    rewards = parse_array(event.raw_rewards).tolist()
    changed = [*rewards[:2], 7.5]
    rows[6] = with_fields(rows[6], event=replace(event, raw_rewards=Raw(msgspec.json.encode(changed))))

    assert differences(rows) == [(5, Difference("reward", 7.5, rewards[2], "/2"))]


def test_paid_rewards_of_a_batch_are_the_sum_of_their_parts(tmp_path: Path) -> None:
    scaled = [{"type": "scale", "factor": 2.0}]
    rows = rows_of(record(tmp_path / "ledger", batch(POPPER, "next_step", transforms=scaled)))
    event: Any = rows[6].event
    paid = msgspec.json.encode((parse_array(event.rewards) + 1.0).tolist())

    whole = differences(rows)
    rows[6] = with_fields(rows[6], event=replace(event, rewards=Raw(paid)))

    assert whole == []
    assert [(step, found.what) for step, found in differences(rows)] == [(5, "paid reward")]


def test_a_batch_that_counts_its_resets_has_as_many_again(tmp_path: Path) -> None:
    counted = Sitting("tests.replay.environments:Counted", plays=[Play(1, 2), Play(2, 2), Play(3, 2)], num_envs=2)
    rows = rows_of(record(tmp_path / "ledger", counted), 2)

    assert parse_array(rows[1].event.observations).tolist() == [3, 3]  # type: ignore[union-attr]
    assert differences(rows) == []


@pytest.mark.parametrize("mode", MODES)
def test_a_batch_can_be_looked_at_after_any_of_its_steps(tmp_path: Path, mode: str) -> None:
    folder = record(tmp_path / "ledger", batch(PLUME, mode))
    steps = [row.event for row in rows_of(folder) if isinstance(row.event, BatchStepped)]

    with Ledger.open(folder) as ledger:
        found = [state_at(ledger, "boot0.1", step) for step in range(1, len(steps) + 1)]

    ends = [np.flatnonzero(parse_array(s.terminations) | parse_array(s.truncations)).tolist() for s in steps]
    assert [standing.step for standing in found] == list(range(1, 41))
    assert [standing.observation for standing in found] == [msgspec.json.decode(s.observations) for s in steps]
    assert [standing.state["ended"] for standing in found] == ([[]] * 40 if mode == "same_step" else ends)


def test_a_batch_of_more_environments_than_a_server_serves_is_not_made(tmp_path: Path) -> None:
    first, *rows = rows_of(record(tmp_path / "ledger", batch(PLUME, "next_step")))
    assert isinstance(first.event, SessionOpened)
    event = replace(first.event, num_envs=MOST_ENVS + 1)
    large = with_fields(first, event=event)

    for replay in (
        lambda: list(replay_rows(event, rows)),
        lambda: list(replay_sub_episodes([large, *rows])),
        lambda: list(sub_episodes([large, *rows])),
    ):
        with pytest.raises(ValidationError, match="more environments than a server serves") as caught:
            replay()
        assert caught.value.found == MOST_ENVS + 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("target", OURS)
def test_every_sub_episode_is_listed_and_none_overlap(tmp_path: Path, target: str, mode: str) -> None:
    rows = rows_of(record(tmp_path / "ledger", batch(target, mode)))

    found = sub_episodes(rows)

    steps = [row.event for row in rows if isinstance(row.event, BatchStepped)]
    ends = sum(int((parse_array(s.terminations) | parse_array(s.truncations)).sum()) for s in steps)
    assert sum(sub.terminated or sub.truncated for sub in found) == ends > COUNT
    assert [sub.seed for sub in found[:COUNT]] == [7, 8, 9]
    assert all(sub.seed is not None for sub in found)
    for index in range(COUNT):
        own = [sub for sub in found if sub.index == index]
        gap = 1 if mode == "next_step" else 0
        assert [sub.first for sub in own] == [0, *(sub.last + gap for sub in own[:-1])][: len(own)]
        # One that began in the very last row has had no step yet.
        assert own[-1].last == len(steps)


def test_a_reset_by_a_mask_ends_what_it_interrupts(tmp_path: Path) -> None:
    rows = rows_of(record(tmp_path / "ledger", batch(PLUME, "disabled", Play(seed=7, steps=3))))
    event: Any = rows[1].event
    mask = replace(event, mask=Raw(b"[false,true,false]"), seed=[0, 70, 0])
    again = with_fields(rows[1], seq=99, event=mask)

    found = sub_episodes([*rows[:4], again, rows[4]])

    assert [(sub.index, sub.seed, sub.first, sub.last) for sub in found] == [
        (0, 7, 0, 3),
        (1, 8, 0, 2),
        (2, 9, 0, 3),
        (1, 70, 2, 3),
    ]


def test_a_session_of_one_environment_has_no_sub_episodes(tmp_path: Path) -> None:
    rows = rows_of(record(tmp_path / "ledger", Sitting()))

    with pytest.raises(ValidationError, match="no batch"):
        sub_episodes(rows)
    with pytest.raises(ValidationError, match="no batch"):
        list(replay_sub_episodes(rows))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("target", OURS)
@pytest.mark.parametrize(("infos", "encoding"), [(True, Encoding()), (False, Encoding(True))])
def test_each_sub_episode_replays_alone(
    tmp_path: Path, target: str, mode: str, infos: bool, encoding: Encoding
) -> None:
    folder = record(tmp_path / "ledger", batch(target, mode, infos=infos, encoding=encoding))

    rows = rows_of(folder)
    found = list(replay_sub_episodes(rows))

    assert [each for each in found if not each.identical] == []
    assert sorted(map(order, (each.sub for each in found))) == sorted(map(order, sub_episodes(rows)))


def order(sub: SubEpisode) -> tuple[int, ...]:
    return sub.seq, sub.index, sub.first, sub.last


def test_options_of_a_reset_hold_for_the_episodes_that_it_began(tmp_path: Path) -> None:
    play = Play(seed=3, steps=30, options={"start": [0, 0]})
    rows = rows_of(record(tmp_path / "ledger", batch(PLUME, "same_step", play)))

    found = list(replay_sub_episodes(rows))

    assert {each.sub.options is None for each in found} == {True, False}
    assert all(each.identical for each in found)


def test_a_sub_episode_without_a_known_seed_is_left_out_and_said_to_be(tmp_path: Path) -> None:
    rows = rows_of(record(tmp_path / "ledger", batch("CartPole-v1", "same_step", Play(seed=1, steps=60))))

    found = list(replay_sub_episodes(rows))

    assert [each.identical for each in found if each.sub.first == 0] == [True] * COUNT
    later = [each for each in found if each.sub.first > 0]
    assert later
    assert all("without a seed" in each.why_not for each in later)


@pytest.mark.parametrize("index", range(COUNT))
def test_a_difference_of_one_element_is_found_in_its_own_sub_episode(tmp_path: Path, index: int) -> None:
    rows = rows_of(record(tmp_path / "ledger", batch(PLUME, "next_step")))
    event: Any = rows[4].event
    values = msgspec.json.decode(event.observations)
    before = values[index][0]
    values[index][0] = 0.125
    rows[4] = with_fields(rows[4], event=replace(event, observations=Raw(msgspec.json.encode(values))))

    (different,) = [each for each in replay_sub_episodes(rows) if not each.identical]

    assert (different.sub.index, different.sub.first, different.at_step) == (index, 0, 3)
    assert different.first == Difference("observation", 0.125, before, "/observation/0")


def test_a_changed_word_of_the_infos_is_found(tmp_path: Path) -> None:
    rows = rows_of(record(tmp_path / "ledger", batch(PLUME, "next_step", infos=True)))
    event: Any = rows[4].event
    infos = msgspec.json.decode(event.infos)
    infos["distance_to_source"][1] += 1.0
    rows[4] = with_fields(rows[4], event=replace(event, infos=Raw(msgspec.json.encode(infos))))

    (different,) = [each for each in replay_sub_episodes(rows) if not each.identical]

    assert different.first is not None
    assert (different.sub.index, different.first.what, different.first.where) == (1, "metadata", "/distance_to_source")


def test_only_the_chosen_sub_environments_are_replayed(tmp_path: Path) -> None:
    rows = rows_of(record(tmp_path / "ledger", batch(POPPER, "same_step")))

    found = list(replay_sub_episodes(rows, [2]))

    assert {each.sub.index for each in found} == {2}
    assert len(found) == sum(sub.index == 2 for sub in sub_episodes(rows))


def test_without_stored_values_the_rest_is_compared(tmp_path: Path) -> None:
    rows = rows_of(record(tmp_path / "ledger", batch(POPPER, "next_step"), observations="digest"))
    whole = list(replay_sub_episodes(rows))
    event: Any = rows[4].event
    rewards = parse_array(event.raw_rewards) + np.array([0.0, 0.25, 0.0])
    rows[4] = with_fields(rows[4], event=replace(event, raw_rewards=Raw(msgspec.json.encode(rewards.tolist()))))

    different: list[SubEpisodeReplay] = [each for each in replay_sub_episodes(rows) if not each.identical]

    assert all(each.identical and each.by_digest for each in whole)
    assert [each.sub.index for each in different] == [1]


def test_a_reset_by_a_mask_goes_on_in_the_same_chain(tmp_path: Path) -> None:
    folder = record(tmp_path / "ledger", batch(PLUME, "disabled"))

    with Ledger.open(folder) as ledger:
        (episode,) = ledger.episodes()
        events = [row.event for row in ledger.rows(episode.chain)]

    masks = [event for event in events if isinstance(event, BatchReset) and bytes(event.mask) != b"null"]
    assert masks


@pytest.mark.parametrize(
    "fields",
    [{"raw_rewards": Raw(b"[[1],2]")}, {"infos": Raw(b"[]")}, {"terminations": Raw(b"[true]")}],
    ids=lambda fields: next(iter(fields)),
)
def test_a_row_that_no_batch_could_have_written_is_named(tmp_path: Path, fields: dict[str, Any]) -> None:
    rows = rows_of(record(tmp_path / "ledger", batch(PLUME, "same_step")))
    event: Any = rows[4].event
    rows[4] = with_fields(rows[4], event=replace(event, **fields))

    with pytest.raises(ValidationError, match=r"row 4 of boot0\.1 cannot be read"):
        list(replay_sub_episodes(rows))
