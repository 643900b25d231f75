"""A sitting: one step a slot, time that stands still when it should, and games one after the other."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.cli.play.game import AHEAD, LATE, GamePhase, GameSession, PlumePlayer, PopperPlayer
from proctor.envs.plume.env import PlumeSearchEnv
from proctor.envs.popper.env import ColumnPopperEnv

TICK = 0.1
START = 1000.0
FALL = "f"


def popper(speed: float = 1.0, **settings: Any) -> tuple[ColumnPopperEnv, GameSession]:
    env = ColumnPopperEnv(**settings)
    return env, GameSession(env, PopperPlayer(env), now=START, seed=3, speed=speed)


def plume(**settings: Any) -> tuple[PlumeSearchEnv, GameSession]:
    env = PlumeSearchEnv(**settings)
    return env, GameSession(env, PlumePlayer(env), now=START, seed=3)


def at(ticks: float) -> float:
    return START + ticks * TICK


def test_a_slot_without_a_key_ends_with_a_wait() -> None:
    env, sitting = popper()

    sitting.advance(at(0.9))
    assert env.step_count == 0
    sitting.advance(at(1.01))
    assert env.step_count == 1
    assert sitting.moment.moves == 0
    assert sitting.moment.scene["frame"]["time_left_ms"] == 59_900


def test_a_key_acts_at_once_and_its_slot_has_no_wait() -> None:
    env, sitting = popper()

    sitting.advance(at(0.5), ["a"])
    assert (env.step_count, sitting.moment.scene["frame"]["held"]) == (1, 0)
    sitting.advance(at(1.01))
    assert env.step_count == 1
    sitting.advance(at(2.01))
    assert (env.step_count, sitting.moment.moves) == (2, 1)


def test_keys_that_come_too_soon_are_kept_for_the_next_slots_but_not_too_many() -> None:
    env, sitting = popper()

    sitting.advance(at(0.5), [FALL] * 9)
    counts = [sitting.moment.moves]
    for tick in range(1, 6):
        sitting.advance(at(tick + 0.01))
        counts.append(sitting.moment.moves)

    assert counts == [1, 2, 3, 3, 3, 3]
    assert AHEAD == 2
    assert env.step_count == 5


@given(st.lists(st.tuples(st.floats(0, LATE - 1), st.lists(st.sampled_from("asd"), max_size=4)), max_size=40))
def test_a_game_has_made_one_step_for_each_slot_that_is_over(moments: list[tuple[float, list[str]]]) -> None:
    env, sitting = popper()
    now = 0.0

    for later, keys in moments:
        now += later
        sitting.advance(at(now), keys)

        assert sitting.phase is GamePhase.PLAYING
        # The clock's own rounding may put an instant on either side of the end of a slot.
        assert int(now - 1e-6) <= env.step_count <= int(now + 1e-6) + 1


@pytest.mark.parametrize(("speed", "steps"), [(0.25, 1), (1.0, 4), (4.0, 16)])
def test_the_speed_is_that_of_the_clock(speed: float, steps: int) -> None:
    env, sitting = popper(speed)

    for tick in range(1, 41):
        sitting.advance(at(tick / 10 + 0.001))

    assert env.step_count == steps


def test_a_machine_that_slept_does_not_catch_up() -> None:
    env, sitting = popper()

    sitting.advance(at(200))

    assert env.step_count == 1
    assert sitting.wakes_in(at(200)) == pytest.approx(TICK)


def test_a_pause_stops_the_clock_and_keys_but_not_the_commands() -> None:
    env, sitting = popper()

    sitting.advance(at(0.5), ["p", "a", FALL])
    sitting.advance(at(30), ["s"])

    assert sitting.phase is GamePhase.PAUSED
    assert env.step_count == 0
    assert sitting.wakes_in(at(30)) is None
    sitting.advance(at(30), ["?", "p"])
    assert sitting.shows_keys
    assert sitting.wakes_in(at(30)) == pytest.approx(TICK)
    sitting.advance(at(31.01))
    assert env.step_count == 1


def test_a_pause_from_outside_changes_nothing_in_a_game_that_is_over() -> None:
    _, sitting = popper(duration_ms=100)
    sitting.advance(at(1.01))

    sitting.pause()
    sitting.advance(at(2), ["p"])

    assert sitting.phase is GamePhase.OVER


def test_actions_asked_for_before_a_pause_are_forgotten() -> None:
    env, sitting = popper()

    sitting.advance(at(0.5), [FALL, FALL, FALL, "p", "p"])
    sitting.advance(at(1.6))

    assert (env.step_count, sitting.moment.moves) == (2, 1)


def test_the_end_of_a_game_is_kept_with_its_seed_and_time_stands_still() -> None:
    env, sitting = popper(duration_ms=300)
    assert sitting.best is None

    sitting.advance(at(3.5), ["a", FALL])

    assert sitting.phase is GamePhase.OVER
    assert sitting.wakes_in(at(4)) is None
    assert [(seed, result.ending) for seed, result in sitting.games] == [(3, "time is up")]
    sitting.advance(at(9), ["a"])
    assert env.step_count == 3


def test_a_new_game_has_a_seed_that_replays_it() -> None:
    env, sitting = popper()

    sitting.advance(at(0.5), [FALL, "r"])

    other = ColumnPopperEnv()
    other.reset(seed=sitting.seed)
    assert sitting.seed != 3
    assert sitting.moment.moves == 0
    assert sitting.moment.scene == other.scene()
    assert env.step_count == 0


def test_the_best_game_is_the_first_of_those_with_the_highest_rank() -> None:
    env, sitting = plume(grid_size=(9, 9), max_steps=2, goal_radius=1.0)
    sitting.advance(START, ["up", "up", "r", "up", "up"])
    assert [result.words for _, result in sitting.games] == ["not found", "not found"]
    assert sitting.best == sitting.games[0]

    sitting.advance(START, ["r"])
    env.reset(options={"start": (4, 2)})
    sitting.advance(START, ["up"])

    assert sitting.best == sitting.games[2]
    assert sitting.games[2][1].words == "found in 1 step"


def test_a_game_without_ticks_makes_every_action_at_once_and_waits_for_ever() -> None:
    env, sitting = plume(grid_size=(30, 30))

    sitting.advance(START, ["up", "up", "left", "x", "down"])
    sitting.advance(START + 1e6)

    assert env.step_count == sitting.moment.moves == 4
    assert sitting.wakes_in(START) is None


def test_who_has_left_does_nothing_more() -> None:
    env, sitting = popper()

    sitting.advance(at(0.5), ["q", "a", "r"])

    assert sitting.phase is GamePhase.LEFT
    assert (sitting.seed, env.step_count) == (3, 0)
