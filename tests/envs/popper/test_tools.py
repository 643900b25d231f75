"""What an agent can do in Column Popper, and how it sees the board."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from proctor.contracts.tools import ToolPlan, ToolSafety
from proctor.envs.popper.env import ColumnPopperEnv
from proctor.envs.popper.models import PopperAction, PopperObservation, PopperView
from proctor.envs.popper.tools import describe_board
from proctor.envs.popper.typed_env import PopperEnvironment
from proctor.errors import StateError, ValidationError
from tests.models.space_strategies import json_values

OPENING = [[1, 3, 2], [2, 3, 3], [3, 2, 1], [2, 2, 0]]


def made(**settings: Any) -> PopperEnvironment:
    return PopperEnvironment(ColumnPopperEnv(**settings))


def begun(environment: PopperEnvironment, board: list[list[int]] = OPENING) -> PopperObservation:
    rows = [*board, *([0] * len(board[0]) for _ in range(12 - len(board)))]
    environment.configure({"board": rows})  # type: ignore[dict-item]  # rows of numbers are JSON
    return environment.reset(seed=1)


def called(environment: PopperEnvironment, name: str, **arguments: Any) -> PopperObservation:
    plan = environment.toolbox().plan(name, json.dumps(arguments).encode())
    assert isinstance(plan, ToolPlan)
    (action,) = plan.actions
    assert isinstance(action, PopperAction)
    return environment.step(action)


def test_there_are_three_tools() -> None:
    tools = made().toolbox().tools

    assert [(each.name, each.safety) for each in tools] == [
        ("look", ToolSafety.READ),
        ("toggle_column", ToolSafety.WRITE),
        ("fall", ToolSafety.WRITE),
    ]
    for each in tools:
        Draft202012Validator.check_schema(each.input_schema)


@pytest.mark.parametrize("columns", [1, 3, 16])
def test_every_column_of_the_board_can_be_toggled_and_no_other(columns: int) -> None:
    box = made(columns=columns).toolbox()

    for column in range(columns):
        plan = box.plan("toggle_column", json.dumps({"column": column}).encode())
        assert plan == ToolPlan((PopperAction(action=column),))
    assert box.plan("fall", b"{}") == ToolPlan((PopperAction(action=columns),))
    for wrong in (columns, -1, "0", 0.5, None, True):
        with pytest.raises(ValidationError, match="column"):
            box.plan("toggle_column", json.dumps({"column": wrong}).encode())


def test_a_look_shows_the_latest_board_and_changes_nothing() -> None:
    environment = made()
    box = environment.toolbox()

    with pytest.raises(StateError, match="nothing has been observed"):
        box.plan("look", b"{}")
    seen = begun(environment)
    before = environment.state
    assert [box.plan("look", b"{}") for _ in range(2)] == [ToolPlan(seen=seen)] * 2
    assert environment.state == before


def test_the_board_is_drawn_with_its_columns_and_what_is_held() -> None:
    environment = made()
    first = begun(environment)
    drawn = environment.describe_observation(first)

    held = environment.describe_observation(called(environment, "toggle_column", column=0))

    assert drawn.splitlines() == [
        "   | 0  1  2",
        " 0 | 1  3  2",
        " 1 | 2  3  3",
        " 2 | 3  2  1",
        " 3 | 2  2  .",
        "Rows 4 to 11 are empty.",
        "Nothing is held.",
    ]
    assert held.splitlines()[4:] == [
        " 3 |[2] 2  .",
        "Rows 4 to 11 are empty.",
        "A 2 is held, the last block of column 0.",
    ]


def test_of_an_older_observation_only_what_it_says_is_told() -> None:
    environment = made()
    begun(environment)
    held = called(environment, "toggle_column", column=2)
    called(environment, "toggle_column", column=2)
    called(environment, "toggle_column", column=0)

    assert environment.describe_observation(held).endswith("A 1 is held.")
    assert "[" not in environment.describe_observation(held)


def test_a_closed_game_can_still_be_told() -> None:
    environment = made()
    seen = begun(environment)
    environment.close()

    assert environment.describe_observation(seen).endswith("Nothing is held.")


@pytest.mark.parametrize(
    ("rows", "line"), [(12, "Nothing is held."), (11, "Row 11 is empty."), (0, "Rows 0 to 11 are empty.")]
)
def test_empty_rows_are_counted(rows: int, line: str) -> None:
    board = tuple((1,) if row < rows else (0,) for row in range(12))

    drawn = describe_board(PopperView(board=board, selection=(0, 0)), None).splitlines()

    assert drawn[rows + 1] == line


def test_the_time_is_told_where_the_observation_has_it() -> None:
    timed, untimed = made(include_time_left_norm=True), made()

    assert timed.describe_observation(timed.reset(seed=1)).endswith("100.0% of the time is left.")
    assert "time" not in untimed.describe_observation(untimed.reset(seed=1))


def test_the_rules_of_this_game_are_told() -> None:
    usual = made().toolbox().tools[1].description
    strict = made(strict_invalid=True, height=5, columns=4, manual_fall="fast_forward").toolbox().tools[2].description

    assert "12 rows and 3 columns" in usual
    assert "every 3 s at first and every 1 s at the end" in usual
    assert "place on a full column does nothing but take time" in usual
    assert "5 rows and 4 columns" in strict
    assert "`fall` as long as the next row would have taken" in strict
    assert "place on a full column loses the game" in strict


def test_agents_learn_neither_the_seed_nor_the_score_nor_the_reward() -> None:
    environment = made()
    seen = environment.reset(seed=123_456_789)

    told = environment.describe_observation(seen) + seen.inside().decode()
    told += "".join(each.description for each in environment.toolbox().tools)

    assert not any(secret in told for secret in ("123456789", "score", "reward", "next_fall"))


@settings(max_examples=30)
@given(moves=st.lists(st.integers(0, 3), max_size=30), seed=st.integers(0, 99))
def test_the_drawn_board_is_the_observed_one(moves: list[int], seed: int) -> None:
    environment = made(strict_invalid=False)
    seen = environment.reset(seed=seed)
    for move in moves:
        if not seen.done:
            seen = environment.step(PopperAction(action=move))

    lines = environment.describe_observation(seen).splitlines()
    drawn = [line.split("|")[1].replace("[", " ").replace("]", " ").split() for line in lines if "|" in line][1:]

    observed = [[str(value) if value else "." for value in row] for row in seen.observation.board if any(row)]
    assert drawn == observed
    assert (environment.describe_observation(seen).count("[") == 1) is bool(seen.observation.selection[0])


BOX = made().toolbox()
SCHEMA = Draft202012Validator(BOX.tools[1].input_schema)


@given(arguments=st.dictionaries(st.sampled_from(["column", "more"]), st.integers(-1, 4) | json_values()))
def test_what_is_taken_fits_the_schema(arguments: Any) -> None:
    try:
        BOX.plan("toggle_column", json.dumps(arguments).encode())
    except ValidationError:
        return
    assert SCHEMA.is_valid(arguments)
