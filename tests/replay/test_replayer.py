"""What is said of a replay: identical, the first difference, or why there was none."""

import asyncio
import platform
from dataclasses import replace as with_fields
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from proctor.errors import ValidationError
from proctor.ledger.reader import Ledger, Row
from proctor.ledger.writer import LedgerWriter
from proctor.models.events import EpisodeReset, EpisodeStepped, PacketJudged, SessionOpened
from proctor.models.wire import Encoding
from proctor.replay import driver as supplies
from proctor.replay.comparison import Difference, RowComparison, same_number
from proctor.replay.driver import DriverCache, make_driver
from proctor.replay.replayer import PROGRESS_EVERY, ReplayResult, replay_episode, replay_rows
from tests.replay.environments import Stubborn
from tests.replay.recorded_ledgers import PLUME, POPPER, Play, Sitting, chains, record, rows_of

HERE = "tests.replay.environments:"


def results(folder: Path, driver_cache: DriverCache | None = None) -> list[ReplayResult]:
    with Ledger.open(folder) as ledger:
        return [replay_episode(ledger, each, driver_cache=driver_cache) for each in sorted(chains(folder))]


def written(folder: Path, rows: list[Row], **opened: Any) -> Path:
    """Write the events of an episode to a ledger of their own, as another server would have stated them."""
    folder.mkdir()
    writer = LedgerWriter(folder, boot="other", server="1", signer=None, durability="off")
    for row in rows:
        event: Any = row.event
        writer.record(replace(event, **opened) if isinstance(event, SessionOpened) else event)
    writer.close()
    return folder


def test_an_episode_that_replays_is_identical_and_counted(tmp_path: Path) -> None:
    (result,) = results(record(tmp_path / "ledger", Sitting()))

    assert result.identical
    assert (result.steps, result.first, result.at_step, result.why_not, result.notes) == (20, None, None, "", ())
    assert result.recorded_seconds == pytest.approx(0.020, abs=0.002)
    assert result.speed == pytest.approx(result.recorded_seconds / result.seconds)
    assert not result.by_digest


def test_the_first_difference_is_told_with_its_step_and_its_row(tmp_path: Path) -> None:
    folder = record(tmp_path / "ledger", Sitting(f"{HERE}Drifting", plays=[Play(actions=[1] * 6)]))

    (result,) = results(folder)

    assert not result.identical
    assert (result.at_step, result.seq, result.steps) == (3, 4, 3)
    assert result.first is not None
    assert result.first.what == "observation"


def test_digests_are_said_to_be_what_was_compared(tmp_path: Path) -> None:
    (result,) = results(record(tmp_path / "ledger", Sitting(), observations="digest"))

    assert result.identical
    assert result.by_digest


def test_an_episode_that_cannot_be_replayed_is_neither_identical_nor_an_error(tmp_path: Path) -> None:
    (result,) = results(record(tmp_path / "ledger", Sitting("CartPole-v1", plays=[Play(seed=None)])))

    assert not result.identical
    assert result.first is None
    assert "without a seed" in result.why_not


@pytest.mark.parametrize("chain", ["server.boot", "nowhere.1"])
def test_a_chain_that_is_no_episode_is_said_to_be_none(tmp_path: Path, chain: str) -> None:
    folder = record(tmp_path / "ledger", Sitting())

    with Ledger.open(folder) as ledger:
        result = replay_episode(ledger, chain)

    assert not result.identical
    assert result.why_not


def test_changed_code_and_versions_are_notes_beside_an_identical_replay(tmp_path: Path) -> None:
    rows = rows_of(record(tmp_path / "ledger", Sitting()))

    (result,) = results(written(tmp_path / "other", rows, code="ab" * 32, python="3.99.0", numpy="0.1"))

    assert result.identical
    code, python, numpy = result.notes
    assert "abababababab" in code
    assert python == f"recorded with Python 3.99.0, replayed with {platform.python_version()}"
    assert "numpy 0.1" in numpy


def test_code_of_a_batch_is_that_of_its_environments(tmp_path: Path) -> None:
    sittings = [Sitting(target, num_envs=2) for target in (PLUME, "CartPole-v1")]

    assert [result.notes for result in results(record(tmp_path / "ledger", *sittings))] == [(), ()]


def test_progress_is_told_now_and_then(tmp_path: Path) -> None:
    folder = record(tmp_path / "ledger", Sitting(f"{HERE}Adding", plays=[Play(actions=[0] * (2 * PROGRESS_EVERY + 1))]))
    told: list[int] = []

    with Ledger.open(folder) as ledger:
        replay_episode(ledger, chains(folder)[0], progress=told.append)

    assert told == [0, PROGRESS_EVERY, 2 * PROGRESS_EVERY]


# ------------------------------------------------------------------------------------- one after the other
def test_episodes_of_one_session_share_an_environment_that_counts_on(tmp_path: Path) -> None:
    folder = record(tmp_path / "ledger", Sitting(f"{HERE}Adding", plays=[Play(seed=n) for n in range(4)]), Sitting())

    with DriverCache() as driver_cache:
        assert [result.identical for result in results(folder, driver_cache)] == [True] * 5
    assert driver_cache.current is None


def test_they_can_be_replayed_in_any_order(tmp_path: Path) -> None:
    folder = record(tmp_path / "ledger", Sitting(f"{HERE}Adding", plays=[Play(seed=n) for n in range(4)]))

    with Ledger.open(folder) as ledger, DriverCache() as cache:
        found = [replay_episode(ledger, f"boot0.{n}", driver_cache=cache) for n in (4, 2, 3, 1)]

    assert [result.identical for result in found] == [True] * 4


def test_an_unknown_seed_is_drawn_again_where_the_episodes_before_were_replayed(tmp_path: Path) -> None:
    plays = [Play(seed=3), Play(seed=None), Play(seed=None)]
    folder = record(tmp_path / "ledger", Sitting(f"{HERE}Drawn", plays=plays))

    with DriverCache() as driver_cache:
        together, alone = results(folder, driver_cache), results(folder)

    assert [result.identical for result in together] == [True, True, True]
    assert [bool(result.why_not) for result in alone] == [False, True, True]


def test_an_unknown_seed_that_cannot_be_drawn_again_is_no_difference(tmp_path: Path) -> None:
    folder = record(tmp_path / "ledger", Sitting(f"{HERE}Drawn", plays=[Play(seed=3), Play(seed=None)]))
    first = rows_of(folder, 0)
    cut = written(tmp_path / "cut", [*first[:4], *rows_of(folder, 1)[1:]])

    with DriverCache() as driver_cache:
        first_result, second = results(cut, driver_cache)

    assert first_result.identical
    assert (second.first, bool(second.why_not)) == (None, True)


def test_a_guess_that_fails_is_not_yielded_as_a_difference(tmp_path: Path) -> None:
    folder = record(tmp_path / "ledger", Sitting(f"{HERE}Drawn", plays=[Play(seed=3), Play(seed=None)]))
    first, second = rows_of(folder, 0), rows_of(folder, 1)
    opened: Any = first[0].event
    with DriverCache() as driver_cache:
        list(replay_rows(opened, first[:3], driver_cache=driver_cache))

        with pytest.raises(ValidationError, match="without a seed"):
            list(replay_rows(opened, second, driver_cache=driver_cache))


def test_a_new_environment_that_differs_gets_no_second_chance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = record(tmp_path / "ledger", Sitting(f"{HERE}Drifting", plays=[Play(actions=[1] * 6)] * 2))
    environments: list[Any] = []

    def counted(opened: SessionOpened) -> Any:
        environments.append(make_driver(opened))
        return environments[-1]

    monkeypatch.setattr(supplies, "make_driver", counted)

    with Ledger.open(folder) as ledger, DriverCache() as driver_cache:
        replay_episode(ledger, "boot0.1", driver_cache=driver_cache)
        after_one = len(environments)
        replay_episode(ledger, "boot0.2", driver_cache=driver_cache)

    assert (after_one, len(environments)) == (1, 2)


def test_a_difference_is_not_blamed_on_an_environment_that_was_used_before(tmp_path: Path) -> None:
    folder = record(tmp_path / "ledger", Sitting(f"{HERE}Drifting", plays=[Play(actions=[1] * 6), Play(actions=[1])]))

    with DriverCache() as driver_cache:
        drifted, short = results(folder, driver_cache)

    assert not drifted.identical
    assert short.identical


def test_pixels_that_are_drawn_differently_are_told_and_are_no_difference(tmp_path: Path) -> None:
    folder = record(tmp_path / "ledger", Sitting(f"{HERE}Flickering", plays=[Play(actions=[0, 1, 1])], scenes=True))

    with Ledger.open(folder) as ledger:
        found = replay_episode(ledger, "boot0.1")

    assert (found.identical, found.steps, found.first) == (True, 3, None)
    assert "4 pictures are not as recorded; pixels are for people, and make no difference" in found.notes


SCALED = [{"type": "scale", "factor": 2.0}]


def driven(rows: list[Row]) -> list[RowComparison]:
    first = rows[0].event
    assert isinstance(first, SessionOpened)
    return list(replay_rows(first, rows))


def different(rows: list[Row]) -> list[tuple[int, Difference]]:
    return [(each.step, difference) for each in driven(rows) for difference in each.differences]


def changed(rows: list[Row], seq: int, **fields: Any) -> list[Row]:
    """Return the rows with one event changed, as nobody should."""
    event: Any = rows[seq].event
    return [*rows[:seq], with_fields(rows[seq], event=replace(event, **fields)), *rows[seq + 1 :]]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    """An episode of the plume search with 20 steps: row 1 is the reset, row n + 1 is step n."""
    return rows_of(record(tmp_path_factory.mktemp("plume") / "ledger", Sitting(scenes=True)))


# ------------------------------------------------------------------------------------------------- identical
@pytest.mark.parametrize(
    "target", [PLUME, POPPER, "CartPole-v1", f"{HERE}Adding", f"{HERE}AddingLater", f"{HERE}Drawn"]
)
@pytest.mark.parametrize("encoding", [Encoding(), Encoding(packed=True, compress=True)])
def test_every_row_comes_out_as_it_went_in(tmp_path: Path, target: str, encoding: Encoding) -> None:
    rows = rows_of(record(tmp_path / "ledger", Sitting(target, encoding=encoding, scenes=True)))

    compared = driven(rows)

    moves = [row for row in rows if isinstance(row.event, EpisodeReset | EpisodeStepped)]
    assert [each.row for each in compared] == moves
    assert all(each.equal for each in compared)
    assert [each.step for each in compared] == list(range(len(moves)))


def test_an_episode_that_was_not_the_first_of_its_environment_knows_its_number(tmp_path: Path) -> None:
    plays = [Play(seed=5), Play(seed=6), Play(seed=7, options={"plus": 2.0})]
    folder = record(tmp_path / "ledger", Sitting(f"{HERE}Adding", plays=plays))

    third = rows_of(folder, 2)

    assert msgspec.json.decode(third[1].event.metadata)["resets"] == 3  # type: ignore[union-attr]
    assert different(third) == []


def test_the_scene_is_compared_where_there_is_one(rows: list[Row]) -> None:
    event: Any = rows[4].event
    scene = msgspec.json.decode(event.scene)
    scene["agent"]["heading"] = 12.5

    found = different(changed(rows, 4, scene=Raw(msgspec.json.encode(scene))))

    assert found == [(3, Difference("scene", 12.5, 0.0, "/agent/heading"))]


def test_it_works_where_an_event_loop_runs_already(tmp_path: Path) -> None:
    rows = rows_of(record(tmp_path / "ledger", Sitting(f"{HERE}AddingLater")))

    async def inside() -> list[tuple[int, Difference]]:
        return different(rows)

    assert asyncio.run(inside()) == []


def test_packets_and_other_rows_are_passed_over(rows: list[Row]) -> None:
    packet = PacketJudged(session="s", at=1.0, epoch=1, step=3, line=Raw(b"{}"), kind="", accepted=False)
    governed = [each for row in rows for each in (row, with_fields(row, event=packet))]

    assert [each.row for each in driven(governed)] == [each.row for each in driven(rows)]


# ------------------------------------------------------------------------------------------------- different
def test_a_changed_action_shows_where_the_agent_went_instead(rows: list[Row]) -> None:
    before: Any = rows[6].event
    other = {"action": (msgspec.json.decode(before.action)["action"] + 1) % 4}

    found = different(changed(rows, 6, action=Raw(msgspec.json.encode(other))))

    assert found[0][0] == 5
    assert {difference.what for _, difference in found} >= {"observation", "metadata"}


@pytest.mark.parametrize(
    ("what", "fields"),
    [
        ("reward", {"raw_reward": 0.5, "reward": 0.5}),
        ("terminated", {"terminated": True}),
        ("truncated", {"truncated": True}),
    ],
)
def test_a_changed_reward_or_flag_is_shown_with_both_values(rows: list[Row], what: str, fields: dict[str, Any]) -> None:
    assert different(changed(rows, 9, **fields)) == [(8, Difference(what, fields[what], 0))]


@pytest.mark.parametrize("seq", [1, 10])
def test_a_changed_observation_is_shown_where_it_differs(rows: list[Row], seq: int) -> None:
    event: Any = rows[seq].event
    value = msgspec.json.decode(event.observation)["observation"][0]

    found = different(changed(rows, seq, observation=Raw(b'{"observation":[0.25]}')))

    assert found == [(seq - 1, Difference("observation", 0.25, value, "/observation/0"))]


def test_a_changed_word_about_the_step_is_shown_and_the_order_of_keys_says_nothing(rows: list[Row]) -> None:
    event: Any = rows[10].event
    metadata = dict(reversed(msgspec.json.decode(event.metadata).items()))
    other = metadata | {"step_count": 8}

    found = [different(changed(rows, 10, metadata=Raw(msgspec.json.encode(each)))) for each in (metadata, other)]

    assert found == [[], [(9, Difference("metadata", 8, 9, "/step_count"))]]


def test_an_environment_that_is_not_deterministic_is_found_out_where_it_first_is(tmp_path: Path) -> None:
    rows = rows_of(record(tmp_path / "ledger", Sitting(f"{HERE}Drifting", plays=[Play(actions=[1] * 6)])))

    step, first = different(rows)[0]

    assert (step, first.what, first.where) == (3, "observation", "/total")
    assert first.found > first.recorded


def test_an_environment_that_now_raises_ends_the_replay_with_what_it_says(tmp_path: Path) -> None:
    Stubborn.asked = False
    rows = rows_of(record(tmp_path / "ledger", Sitting(f"{HERE}Stubborn", plays=[Play(actions=[1, 13, 1])])))

    compared = driven(rows)

    assert [each.step for each in compared] == [0, 1, 2]
    assert compared[-1].found is None
    assert compared[-1].differences == (Difference("step", "an answer", "ValidationError: not that number again"),)


def test_an_action_that_is_none_any_more_is_a_difference(rows: list[Row]) -> None:
    ((step, difference),) = different(changed(rows, 3, action=Raw(b'{"action":"up"}')))

    assert (step, difference.what) == (2, "step")


# ------------------------------------------------------------------------------------------------- digests
def test_what_was_not_stored_is_compared_by_its_digest(tmp_path: Path) -> None:
    rows = rows_of(record(tmp_path / "ledger", Sitting(), observations="digest"))
    assert (rows[3].values, different(rows)) == (False, [])
    rows[3] = with_fields(rows[3], digest="ab" * 32)

    ((step, difference),) = different(rows)

    assert (step, difference.what, difference.recorded) == (2, "observation", f"sha256:{'ab' * 32}")


# ------------------------------------------------------------------------------------------------- rewards
def test_paid_rewards_are_the_sum_of_their_parts(tmp_path: Path) -> None:
    rows = rows_of(record(tmp_path / "ledger", Sitting(POPPER, transforms=SCALED)))
    event: Any = rows[5].event

    assert event.parts
    assert different(rows) == []
    ((step, difference),) = different(changed(rows, 5, reward=event.reward + 1e-3))
    assert (step, difference.what) == (4, "paid reward")
    assert difference.found == pytest.approx(event.reward)


@given(st.floats(allow_nan=False) | st.none(), st.floats(allow_nan=False) | st.none())
def test_numbers_are_the_same_to_the_last_bit(recorded: float | None, found: float | None) -> None:
    assert same_number(recorded, found) == (repr(recorded) == repr(found))


# ------------------------------------------------------------------------------------------------- seeds
@pytest.mark.parametrize("target", [PLUME, POPPER])
def test_a_seed_that_was_drawn_is_read_from_the_first_observation(tmp_path: Path, target: str) -> None:
    folder = record(tmp_path / "ledger", Sitting(target, plays=[Play(seed=None), Play(seed=None)]))

    assert different(rows_of(folder, 0)) == different(rows_of(folder, 1)) == []


def test_an_episode_whose_seed_nobody_knows_cannot_be_replayed(tmp_path: Path) -> None:
    rows = rows_of(record(tmp_path / "ledger", Sitting("CartPole-v1", plays=[Play(seed=None)])))

    with pytest.raises(ValidationError, match="begun without a seed"):
        driven(rows)


def test_a_setting_that_was_hidden_is_named(tmp_path: Path) -> None:
    rows = rows_of(record(tmp_path / "ledger", Sitting(f"{HERE}Adding", {"token": "abc"})))

    with pytest.raises(ValidationError, match="token"):
        driven(rows)


def test_an_environment_that_is_not_here_is_named(rows: list[Row]) -> None:
    opened: Any = rows[0].event

    with pytest.raises(ValidationError, match="nowhere_to_be_found"):
        list(replay_rows(replace(opened, target="nowhere_to_be_found:Env", settings={}), rows))


def test_rows_without_a_beginning_are_refused(rows: list[Row]) -> None:
    with pytest.raises(ValidationError, match="does not begin with a reset"):
        driven([rows[0], *rows[2:]])


@pytest.mark.parametrize(
    ("seq", "fields"),
    [
        (1, {"options": Raw(b"[1]")}),
        (1, {"metadata": Raw(b'{"seed":"\xff"}'), "seed": None}),
        (4, {"observation": Raw(b'{"observation":["\xff"]}')}),
        (4, {"metadata": Raw(b"{")}),
    ],
)
def test_a_row_that_nobody_could_have_written_is_named(rows: list[Row], seq: int, fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=f"row {seq} of boot0.1 cannot be read"):
        driven(changed(rows, seq, **fields))


# ------------------------------------------------------------------------------------------------- any change
@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    play = Play(actions=[1, 2, 3, 4, 5])
    return rows_of(record(tmp_path_factory.mktemp("short") / "ledger", Sitting(f"{HERE}Adding", plays=[play])))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(step=st.integers(1, 5), action=st.integers(-50, 50))
def test_whatever_action_is_put_in_its_place_the_first_difference_is_there(
    short: list[Row], step: int, action: int
) -> None:
    found = different(changed(short, step + 1, action=Raw(msgspec.json.encode({"action": action}))))

    assert (found[0][0] if found else None) == (None if action == step else step)
