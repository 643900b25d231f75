"""What is said of a replay: identical, the first difference, or why there was none."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from proctor import replay
from proctor.errors import ValidationError
from proctor.ledger.reader import Ledger, Row
from proctor.ledger.writer import LedgerWriter
from proctor.models.events import SessionOpened
from proctor.replay import driver as supplies
from proctor.replay.driver import DriverCache, make_driver
from proctor.replay.replayer import PROGRESS_EVERY, ReplayResult, replay_episode, replay_rows
from tests.replay.recorded_ledgers import PLUME, Play, Sitting, chains, record, rows_of

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
    driver_cache = DriverCache()

    found = results(folder, driver_cache)

    assert [result.identical for result in found] == [True] * 5
    driver_cache.drop()
    assert driver_cache.current is None


def test_they_can_be_replayed_in_any_order(tmp_path: Path) -> None:
    folder = record(tmp_path / "ledger", Sitting(f"{HERE}Adding", plays=[Play(seed=n) for n in range(4)]))
    driver_cache = DriverCache()

    with Ledger.open(folder) as ledger:
        found = [replay_episode(ledger, f"boot0.{n}", driver_cache=driver_cache) for n in (4, 2, 3, 1)]

    assert [result.identical for result in found] == [True] * 4
    driver_cache.drop()


def test_an_unknown_seed_is_drawn_again_where_the_episodes_before_were_replayed(tmp_path: Path) -> None:
    plays = [Play(seed=3), Play(seed=None), Play(seed=None)]
    folder = record(tmp_path / "ledger", Sitting(f"{HERE}Drawn", plays=plays))
    driver_cache = DriverCache()

    together, alone = results(folder, driver_cache), results(folder)

    driver_cache.drop()
    assert [result.identical for result in together] == [True, True, True]
    assert [bool(result.why_not) for result in alone] == [False, True, True]


def test_an_unknown_seed_that_cannot_be_drawn_again_is_no_difference(tmp_path: Path) -> None:
    folder = record(tmp_path / "ledger", Sitting(f"{HERE}Drawn", plays=[Play(seed=3), Play(seed=None)]))
    first = rows_of(folder, 0)
    cut = written(tmp_path / "cut", [*first[:4], *rows_of(folder, 1)[1:]])
    driver_cache = DriverCache()

    found = results(cut, driver_cache)

    driver_cache.drop()
    assert found[0].identical
    assert (found[1].first, bool(found[1].why_not)) == (None, True)


def test_a_guess_that_fails_is_not_yielded_as_a_difference(tmp_path: Path) -> None:
    folder = record(tmp_path / "ledger", Sitting(f"{HERE}Drawn", plays=[Play(seed=3), Play(seed=None)]))
    first, second = rows_of(folder, 0), rows_of(folder, 1)
    opened: Any = first[0].event
    driver_cache = DriverCache()
    list(replay_rows(opened, first[:3], driver_cache=driver_cache))

    with pytest.raises(ValidationError, match="without a seed"):
        list(replay_rows(opened, second, driver_cache=driver_cache))

    driver_cache.drop()


def test_a_new_environment_that_differs_gets_no_second_chance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = record(tmp_path / "ledger", Sitting(f"{HERE}Drifting", plays=[Play(actions=[1] * 6)] * 2))
    environments: list[Any] = []

    def counted(opened: SessionOpened) -> Any:
        environments.append(make_driver(opened))
        return environments[-1]

    monkeypatch.setattr(supplies, "make_driver", counted)
    driver_cache = DriverCache()

    with Ledger.open(folder) as ledger:
        replay_episode(ledger, "boot0.1", driver_cache=driver_cache)
        after_one = len(environments)
        replay_episode(ledger, "boot0.2", driver_cache=driver_cache)

    driver_cache.drop()
    assert (after_one, len(environments)) == (1, 2)


def test_a_difference_is_not_blamed_on_an_environment_that_was_used_before(tmp_path: Path) -> None:
    folder = record(tmp_path / "ledger", Sitting(f"{HERE}Drifting", plays=[Play(actions=[1] * 6), Play(actions=[1])]))
    driver_cache = DriverCache()

    drifted, short = results(folder, driver_cache)

    driver_cache.drop()
    assert not drifted.identical
    assert short.identical


def test_pixels_that_are_drawn_differently_are_told_and_are_no_difference(tmp_path: Path) -> None:
    folder = record(tmp_path / "ledger", Sitting(f"{HERE}Flickering", plays=[Play(actions=[0, 1, 1])], scenes=True))

    with Ledger.open(folder) as ledger:
        found = replay_episode(ledger, "boot0.1")

    assert (found.identical, found.steps, found.first) == (True, 3, None)
    assert "4 pictures are not as recorded; pixels are for people, and make no difference" in found.notes


# ------------------------------------------------------------------------------------- the room itself
def test_the_room_names_what_others_use() -> None:
    assert all(callable(getattr(replay, name)) for name in replay.__all__)
    with pytest.raises(AttributeError):
        _ = replay.nothing
