"""The screen: pictures that fill any terminal, with and without colours."""

import io
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from proctor.cli.play import GamePainter, least_size, needs_room
from proctor.cli.play.game import GameSession, PlumePlayer, PopperPlayer
from proctor.envs.plume.env import PlumeSearchEnv
from proctor.envs.popper.env import ColumnPopperEnv

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def console(**settings: Any) -> Console:
    given: dict[str, Any] = {"color_system": "256", "force_terminal": True, "_environ": {}, **settings}
    return Console(file=io.StringIO(), **given)


def painter(**settings: Any) -> GamePainter:
    return GamePainter(console(**settings), lambda seed: f"proctor play it --seed {seed}")


def popper(**settings: Any) -> GameSession:
    env = ColumnPopperEnv(**settings)
    return GameSession(env, PopperPlayer(env), now=0.0, seed=3)


def plume(**settings: Any) -> GameSession:
    env = PlumeSearchEnv(**settings)
    return GameSession(env, PlumePlayer(env), now=0.0, seed=3)


def plain(sitting: GameSession, columns: int = 80, rows: int = 24) -> str:
    return painter(color_system=None).picture(sitting, columns, rows)


@given(columns=st.integers(1, 200), rows=st.integers(1, 60), keys=st.lists(st.sampled_from("asdfpr?"), max_size=5))
def test_every_picture_fills_the_terminal_exactly(columns: int, rows: int, keys: list[str]) -> None:
    for sitting in (popper(duration_ms=200), plume(max_steps=2)):
        sitting.advance(0.15, [*keys, "up"])

        lines = painter().picture(sitting, columns, rows).split("\n")

        assert len(lines) == rows
        assert {len(COLOUR.sub("", line)) for line in lines} == {columns}


def test_a_terminal_of_80_by_24_shows_the_board_the_clocks_the_score_and_the_keys() -> None:
    text = plain(popper())

    for words in (
        "Column Popper   seed 3",
        "time 60.0 s",
        "score 0",
        "return 0.00",
        "next fall [",
        "a [s] d",
        "? keys",
    ):
        assert words in text
    assert sum(line.strip().startswith(("|", "!")) for line in text.splitlines()) == 12


def test_the_keys_of_the_columns_stand_under_the_columns() -> None:
    lines = plain(popper()).splitlines()

    top = next(line for line in lines if line.strip().startswith("|"))
    keys = next(line for line in lines if "[s]" in line)

    assert [place for place, sign in enumerate(top) if sign.isdigit()] == [keys.index(sign) for sign in "asd"]
    assert not any(line.split() == ["0", "1", "2"] for line in lines)


def test_a_console_without_colours_gets_plain_ascii() -> None:
    for sitting in (popper(), plume()):
        assert plain(sitting).isascii()
        assert "\x1b" not in plain(sitting)


def test_no_color_leaves_colours_out_but_not_bold() -> None:
    text = painter(no_color=True).picture(popper(), 80, 24)

    assert set(COLOUR.findall(text)) == {"\x1b[1m", "\x1b[2m", "\x1b[0m"}


def test_a_picture_has_colours_where_the_console_has() -> None:
    texts = [painter().picture(scene, 80, 24) for scene in (plume(), popper())]

    # Which codes depends on the colours of whatever terminal was drawn for first in this process: rich keeps them.
    for text in texts:
        assert set(COLOUR.findall(text)) > {"\x1b[1m", "\x1b[2m", "\x1b[0m"}


def test_a_paused_board_is_hidden_and_the_clock_is_not() -> None:
    sitting = popper()
    board = plain(sitting)
    sitting.advance(0.05, ["p"])

    assert "+---------+" in board
    assert "+---------+" not in plain(sitting)
    assert "paused" in plain(sitting)
    assert "time 60.0 s" in plain(sitting)


def test_the_foot_stays_where_it_is_in_every_phase() -> None:
    sitting = popper(duration_ms=100)
    feet = [plain(sitting).splitlines()[-1]]
    sitting.advance(0.05, ["p"])
    feet.append(plain(sitting).splitlines()[-1])
    sitting.advance(0.05, ["p"])
    sitting.advance(0.2)
    feet.append(plain(sitting).splitlines()[-1])

    assert len(set(feet)) == 1
    assert feet[0].startswith("? keys")


def test_the_help_names_the_keys_of_the_game() -> None:
    sitting = popper()
    assert "a/s/d pick or place" not in plain(sitting)

    sitting.advance(0.05, ["?"])

    assert "a/s/d pick or place   left/right cursor   up or space there   f or down fall" in plain(sitting)
    assert "1-5 pick or place" in plain_help(columns=5)
    assert "1-9 pick or place" in plain_help(columns=12)


def plain_help(columns: int) -> str:
    sitting = popper(columns=columns)
    sitting.advance(0.05, ["?"])
    return plain(sitting)


def test_a_result_tells_the_end_the_facts_the_best_and_the_way_back() -> None:
    sitting = popper(duration_ms=100)
    sitting.advance(0.05, ["a"])

    text = plain(sitting)

    for words in ("time is up", "score  0", "actions  1", "first game of this sitting", "proctor play it --seed 3"):
        assert words in text
    assert "r plays a new game, q leaves" in text
    assert "best: score 0" in text.splitlines()[0]
    sitting.advance(0.1, ["r", "a"])
    assert "best  score 0, seed 3, of 2 games" in plain(sitting)


def test_the_best_game_may_be_the_one_just_played() -> None:
    sitting = popper(duration_ms=100)
    sitting.advance(0.05, ["a", "r", "a"])
    seed, result = sitting.games[1]
    sitting.games[1] = (seed, replace(result, rank=(27.0,), words="score 27"))

    assert "best  score 27, this one, of 2 games" in plain(sitting)


@pytest.mark.parametrize("size", [(43, 24), (80, 16), (5, 2)])
def test_a_terminal_that_is_too_small_is_told_so(size: tuple[int, int]) -> None:
    sitting = popper()

    assert needs_room(sitting, *size)
    assert "the t" in plain(sitting, *size)
    assert not needs_room(sitting, *least_size(sitting))
    assert not needs_room(sitting, 80, 24)


@pytest.mark.parametrize(
    "sitting", [popper(), popper(height=30, columns=16), plume()], ids=["popper", "large", "plume"]
)
def test_the_smallest_terminal_that_is_enough_shows_everything(sitting: GameSession) -> None:
    lines = plain(sitting, *least_size(sitting)).splitlines()

    signs = sitting.player.hint(sitting.moment)
    assert lines[-3].strip() == signs
    assert lines[-1].startswith("? keys")
    if isinstance(sitting.player, PopperPlayer):
        assert lines[-4].strip() == sitting.player._signs(sitting.moment).strip()


def test_the_message_of_a_small_terminal_says_what_is_needed() -> None:
    text = plain(popper(), 40, 10)

    assert "it has 40 x 10" in text
    assert "needed: 44 x 17" in text
