"""A sitting: one step a slot, time that stands still when it should, and games one after the other."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.cli.play.game import (
    AHEAD,
    LATE,
    GamePhase,
    GameSession,
    GameState,
    Player,
    PlumePlayer,
    PopperPlayer,
    draw_bar,
)
from proctor.envs.plume.env import PlumeSearchEnv
from proctor.envs.popper.env import ColumnPopperEnv
from proctor.errors import ValidationError

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


def seen(env: Any, **start: Any) -> GameState:
    _, info = env.reset(seed=3, **start)
    return GameState(env.scene(), info)


def after(env: Any, action: int | None) -> GameState:
    *_, info = env.wait() if action is None else env.step(action)
    return GameState(env.scene(), info, moves=1)


@pytest.mark.parametrize(
    ("action", "meanings"),
    [
        ("discrete_grid", {"up": 0, "right": 1, "down": 2, "left": 3, "y": None, "space": None}),
        ("eight_direction", {"up": 0, "u": 1, "right": 2, "n": 3, "down": 4, "b": 5, "left": 6, "y": 7, "space": 8}),
        ("oriented_grid", {"up": 0, "left": 1, "right": 2, "down": None}),
        ("run_tumble", {"up": 0, "left": 2, "right": 8, "down": None}),
    ],
)
def test_the_arrows_do_what_the_actions_of_a_plume_search_can(action: str, meanings: dict[str, int | None]) -> None:
    env = PlumeSearchEnv(config={"action": action})
    moment = seen(env)
    player = PlumePlayer(env)

    assert {key: player.press(key, moment) for key in meanings} == meanings


@pytest.mark.parametrize(
    ("key", "moved"), [("up", (0, 1)), ("u", (1, 1)), ("n", (1, -1)), ("b", (-1, -1)), ("y", (-1, 1))]
)
def test_a_diagonal_key_goes_where_it_lies_on_the_keyboard(key: str, moved: tuple[int, int]) -> None:
    env = PlumeSearchEnv(config={"action": "eight_direction"})
    moment = seen(env, options={"start": (20, 20)})

    env.step(PlumePlayer(env).press(key, moment))

    assert env.agent_state is not None
    assert (env.agent_state.position.x - 20, env.agent_state.position.y - 20) == moved


@given(st.lists(st.sampled_from(["left", "right"]), max_size=12), st.integers(2, 12))
def test_turns_of_a_tumbling_agent_go_round_by_one_heading(keys: list[str], headings: int) -> None:
    env = PlumeSearchEnv(config={"action": {"type": "run_tumble", "n_headings": headings}}, grid_size=(9, 9))
    player = PlumePlayer(env)
    moment = seen(env)

    for key in keys:
        *_, info = env.step(player.press(key, moment))
        moment = GameState(env.scene(), info)

    turned = keys.count("left") - keys.count("right")
    assert moment.scene["frame"]["agent"]["heading"] == pytest.approx(turned % headings * 360 / headings)


def test_actions_that_no_key_can_express_are_refused() -> None:
    with pytest.raises(ValidationError, match="nobody can play these actions") as caught:
        PlumePlayer(PlumeSearchEnv(config={"action": "continuous"}))

    assert caught.value.found == "continuous"


def test_a_search_shows_its_steps_and_limit_its_place_and_its_wind() -> None:
    env = PlumeSearchEnv(config={"plume": "puffs"}, grid_size=(30, 20), max_steps=50)
    moment = seen(env, options={"start": (7, 8)})
    player = PlumePlayer(env)

    assert player.status(moment) == ("step 0/50   return 0.00   at (7, 8)",)
    assert player.hint(moment).startswith("heading 0 degrees   wind +")
    assert "wind" not in player.hint(seen(PlumeSearchEnv()))


POPPER_KEYS: dict[str, int | None] = {
    "a": 0,
    "s": 1,
    "d": 2,
    "1": 0,
    "2": 1,
    "3": 2,
    "4": None,
    "f": 3,
    "down": 3,
    "x": None,
}


def test_letters_and_digits_name_the_columns_and_f_is_the_fall() -> None:
    env = ColumnPopperEnv()
    moment = seen(env)
    player = PopperPlayer(env)

    assert {key: player.press(key, moment) for key in POPPER_KEYS} == POPPER_KEYS


@pytest.mark.parametrize(
    ("columns", "key", "action"), [(2, "d", None), (2, "f", 2), (5, "5", 4), (5, "d", 2), (16, "9", 8)]
)
def test_a_board_of_any_width_has_the_keys_of_its_columns(columns: int, key: str, action: int | None) -> None:
    env = ColumnPopperEnv(columns=columns)

    assert PopperPlayer(env).press(key, seen(env)) == action


@given(keys=st.lists(st.sampled_from(["left", "right"])), columns=st.integers(1, 16))
def test_the_cursor_stays_on_the_board_and_toggles_where_it_is(keys: list[str], columns: int) -> None:
    env = ColumnPopperEnv(columns=columns)
    player = PopperPlayer(env)
    moment = seen(env)

    assert all(player.press(key, moment) is None for key in keys)
    assert 0 <= player.cursor < columns
    assert {player.press(key, moment) for key in ("up", "space", "enter")} == {player.cursor}
    player.begin()
    assert player.cursor == (columns - 1) // 2


def test_the_status_tells_the_seconds_the_score_the_return_and_the_next_fall() -> None:
    env = ColumnPopperEnv()
    seen(env)
    player = PopperPlayer(env)
    for _ in range(14):
        env.wait()

    clock, fall = player.status(after(env, None))

    assert clock == "time 58.5 s   score 0   return -0.15"
    assert fall == f"next fall [{'#' * 12}{'-' * 12}] 1.5 s"


def test_what_is_held_and_what_is_not_valid_is_said_in_signs() -> None:
    env = ColumnPopperEnv()
    board = np.zeros((12, 3), int)
    board[:2, 0] = (1, 2)
    board[:, 2] = [1, 2] * 6
    moment = seen(env, options={"board": board})
    player = PopperPlayer(env)

    assert player.hint(moment) == "nothing held: pick a column"
    assert player._signs(moment) == "  a [-] d "
    moment = after(env, 0)
    assert player.hint(moment) == "holding 2: place it"
    player.press("left", moment)
    assert player._signs(moment) == " [a] s  - "


@pytest.mark.parametrize(("columns", "signs"), [(2, " [a] s "), (5, "  1  2 [3] 4  5 ")])
def test_a_board_wider_than_the_letters_shows_digits(columns: int, signs: str) -> None:
    env = ColumnPopperEnv(columns=columns)

    assert PopperPlayer(env)._signs(seen(env)) == signs


@pytest.mark.parametrize(
    ("settings", "board", "actions", "ending"),
    [
        ({"duration_ms": 100}, None, [None], "time is up"),
        ({"height": 2, "strict_invalid": True}, [[1, 1, 1], [2, 0, 0]], [1, 0], "a block was dropped on a full column"),
        ({"height": 1}, None, [3], "overflow: a row fell and a column was full"),
    ],
)
def test_every_way_to_end_a_game_has_its_words(
    settings: dict[str, Any], board: Any, actions: list[int | None], ending: str
) -> None:
    env = ColumnPopperEnv(**settings)
    moment = seen(env, options=None if board is None else {"board": board})
    for action in actions:
        moment = after(env, action)

    result = PopperPlayer(env).result(moment)

    assert result.ending == ending
    assert [name for name, _ in result.facts] == ["score", "return", "actions", "time left"]


@pytest.mark.parametrize(
    "player", [PopperPlayer(ColumnPopperEnv()), PlumePlayer(PlumeSearchEnv())], ids=["popper", "plume"]
)
def test_every_player_has_a_title_and_keys(player: Player) -> None:
    assert player.title
    assert all(keys and meaning for keys, meaning in player.keys)


@given(share=st.floats(-2, 3), width=st.integers(1, 60))
def test_a_bar_has_its_width_and_is_filled_by_its_share(share: float, width: int) -> None:
    drawn = draw_bar(share, width)

    assert len(drawn) == width
    assert drawn == drawn.count("#") * "#" + drawn.count("-") * "-"
    assert abs(drawn.count("#") - min(max(share, 0), 1) * width) <= 0.5
