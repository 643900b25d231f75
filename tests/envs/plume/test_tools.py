"""The tools of a searcher: what there is, what it does, and what each sensor says in words."""

import json
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from proctor.contracts.components import ObservationModel
from proctor.contracts.spatial import AgentState, GridSize
from proctor.contracts.tools import Tool, ToolPlan, ToolSafety, tool
from proctor.envs.plume import sensors
from proctor.envs.plume.env import PlumeSearchEnv
from proctor.envs.plume.models import PlumeAction, PlumeObservation
from proctor.envs.plume.tools import DESCRIBERS, MOST_STEPS, find_describer
from proctor.envs.plume.typed_env import PlumeEnvironment
from proctor.errors import StateError, ValidationError
from tests.envs.plume.catalogue import OwnSensor
from tests.models.space_strategies import json_values

ACTIONS: dict[str, list[str]] = {
    "discrete_grid": ["sniff", "move"],
    "eight_direction": ["sniff", "move"],
    "oriented_grid": ["sniff", "move", "turn"],
    "run_tumble": ["sniff", "move", "turn"],
    "continuous": ["sniff", "move"],
}


def made(action: Any = "discrete_grid", **more: Any) -> PlumeEnvironment:
    return PlumeEnvironment(PlumeSearchEnv(config={"action": action}, grid_size=(21, 21), max_steps=50, **more))


def tool_of(environment: PlumeEnvironment, name: str) -> Tool:
    (found,) = (each for each in environment.toolbox().tools if each.name == name)
    return found


def actions(environment: PlumeEnvironment, name: str, **arguments: Any) -> list[Any]:
    plan = environment.toolbox().plan(name, json.dumps(arguments).encode())
    assert isinstance(plan, ToolPlan)
    return [action.action for action in plan.actions if isinstance(action, PlumeAction)]


def walked(environment: PlumeEnvironment, name: str, **arguments: Any) -> tuple[Any, Any]:
    """Return where a call leads from the middle of the grid, and the heading then."""
    environment.configure({"start": [5, 5]})
    environment.reset(seed=1)
    for action in actions(environment, name, **arguments):
        environment.step(PlumeAction(action=action))
    return environment.state.position, environment.state.orientation


@pytest.mark.parametrize("action", ACTIONS)
def test_there_are_the_tools_that_the_action_processor_has(action: str) -> None:
    tools = made(action).toolbox().tools

    assert [each.name for each in tools] == ACTIONS[action]
    assert [each.safety for each in tools] == [ToolSafety.READ] + [ToolSafety.WRITE] * (len(tools) - 1)
    for each in tools:
        Draft202012Validator.check_schema(each.input_schema)
        assert "or after 50 steps" in each.description


FOUR = {"up": (5, 6), "right": (6, 5), "down": (5, 4), "left": (4, 5)}
EIGHT = {
    "north": (5, 6), "north_east": (6, 6), "east": (6, 5), "south_east": (6, 4), "south": (5, 4),
    "south_west": (4, 4), "west": (4, 5), "north_west": (4, 6), "stay": (5, 5),
}  # fmt: skip


@pytest.mark.parametrize(("action", "positions"), [("discrete_grid", FOUR), ("eight_direction", EIGHT)])
def test_a_direction_leads_where_it_says(action: str, positions: dict[str, tuple[int, int]]) -> None:
    assert {way: walked(made(action), "move", direction=way)[0] for way in positions} == positions


def test_several_steps_are_as_many_actions() -> None:
    environment = made()

    assert actions(environment, "move", direction="right") == [1]
    assert actions(environment, "move", direction="right", steps=3) == [1, 1, 1]
    assert walked(environment, "move", direction="right", steps=3)[0] == (8, 5)


@pytest.mark.parametrize("steps", [0, MOST_STEPS + 1, -1, 1.5, "2", None])
def test_there_are_neither_no_steps_nor_too_many(steps: Any) -> None:
    with pytest.raises(ValidationError, match="steps"):
        actions(made(), "move", direction="up", steps=steps)


def test_an_oriented_searcher_goes_ahead_and_turns() -> None:
    environment = made("oriented_grid")

    assert walked(environment, "move", steps=2) == ((7, 5), 0.0)
    assert walked(environment, "turn", direction="left") == ((5, 5), 90.0)
    assert walked(environment, "turn", direction="right") == ((5, 5), 270.0)


def test_a_tumble_turns_to_a_heading_by_its_number() -> None:
    environment = made({"type": "run_tumble", "n_headings": 4})
    heading = tool_of(environment, "turn").input_schema["properties"]["heading"]

    assert walked(environment, "turn", heading=1) == ((5, 5), 90.0)
    assert walked(environment, "turn", heading=0) == ((5, 5), 0.0)
    assert (heading["minimum"], heading["maximum"]) == (0, 3)
    assert heading["description"].startswith("Which one of 4 headings: times 90 degrees")
    with pytest.raises(ValidationError, match="heading"):
        actions(environment, "turn", heading=4)


def test_a_velocity_moves_by_its_share_of_the_full_speed() -> None:
    environment = made({"type": "continuous", "max_speed": 3.0})

    assert walked(environment, "move", vx=1, vy=-0.5, steps=1)[0] == (8, 3)
    assert actions(environment, "move", vx=0.5, vy=0) == [(0.5, 0.0)]
    assert "The full speed is 3 cells a step." in tool_of(environment, "move").description
    for wrong in ({"vx": 1.01, "vy": 0}, {"vx": 1}, {"vx": "1", "vy": 0}):
        with pytest.raises(ValidationError):
            actions(environment, "move", **wrong)


def test_the_stride_is_told() -> None:
    assert "A move goes 1 cell a step." in tool_of(made(), "move").description
    long = made({"type": "discrete_grid", "step_size": 2})
    assert "A move goes 2 cells a step." in tool_of(long, "move").description


def test_a_sniff_shows_the_latest_reading_and_changes_nothing() -> None:
    environment = made()
    box = environment.toolbox()

    with pytest.raises(StateError, match="nothing has been observed"):
        box.plan("sniff", b"{}")
    environment.reset(seed=1)
    after = environment.step(PlumeAction(action=0))
    before = environment.state
    assert [box.plan("sniff", b"{}") for _ in range(3)] == [ToolPlan(seen=after)] * 3
    assert environment.state == before


@pytest.mark.parametrize("action", ACTIONS)
def test_agents_learn_neither_the_source_nor_their_place_nor_the_reward(action: str) -> None:
    environment = made(action, source_location=(13, 17))
    seen = environment.reset(seed=123_456_789)

    told = environment.describe_observation(seen) + seen.inside().decode()
    told += "".join(each.description + json.dumps(each.input_schema) for each in environment.toolbox().tools)

    assert not any(secret in told for secret in ("13", "17", "123456789", "distance", "agent_xy", "reward"))


@settings(max_examples=40)
@given(action=st.sampled_from(sorted(ACTIONS)), data=st.data())
def test_what_is_taken_fits_the_schema_and_makes_actions_that_the_environment_takes(
    action: str, data: st.DataObject
) -> None:
    environment = made(action)
    environment.reset(seed=1)
    chosen = data.draw(st.sampled_from(environment.toolbox().tools))
    names = st.sampled_from(["steps", "direction", "heading", "vx", "vy", "more"])
    values = st.sampled_from(["up", "stay", "left", 0, 1, 2, 0.5]) | json_values()
    arguments = data.draw(st.dictionaries(names, values))

    try:
        planned = actions(environment, chosen.name, **arguments)
    except ValidationError:
        return
    assert Draft202012Validator(chosen.input_schema).is_valid(arguments)
    for each in planned[:1]:
        environment.step(PlumeAction(action=each))


class Own:
    """Actions that nobody knows."""

    action_space: spaces.Space[Any]

    def validate_action(self, action: Any) -> bool:
        return action in (0, 1)

    def process_action(self, action: Any, current_state: AgentState, grid_size: GridSize) -> AgentState:
        return current_state

    def get_metadata(self) -> dict[str, Any]:
        return {"type": "own", "parameters": {}}


@pytest.mark.parametrize(
    ("space", "action", "text", "beyond"),
    [
        (spaces.Discrete(2), 1, b'{"action":1}', b'{"action":2}'),
        (spaces.Box(-1, 1, (2,), np.float32), (0.5, 1.0), b'{"action":[0.5,1.0]}', b'{"action":[0.5,1.5]}'),
    ],
    ids=str,
)
def test_a_users_own_action_processor_is_driven_by_act(
    space: spaces.Space[Any], action: Any, text: bytes, beyond: bytes
) -> None:
    own = Own()
    own.action_space = space
    box = PlumeEnvironment(PlumeSearchEnv(action_processor=own)).toolbox()

    assert [each.name for each in box.tools] == ["observe", "act"]
    plan = box.plan("act", text)
    assert isinstance(plan, ToolPlan)
    assert plan == ToolPlan((PlumeAction(action=action),))
    assert plan.actions[0].model_dump_json().encode() == text
    with pytest.raises(ValidationError):
        box.plan("act", beyond)


class Listening(PlumeEnvironment):
    """A search with a tool of its own."""

    @tool(ToolSafety.READ)
    def listen(self) -> PlumeObservation:
        """Listen."""
        return self.latest()


def test_a_subclass_may_declare_tools_instead() -> None:
    assert [each.name for each in Listening(PlumeSearchEnv()).toolbox().tools] == ["listen"]


OWN = OwnSensor(spaces.Box(0, 1, (2,), np.float32))


@pytest.mark.parametrize(
    ("sensor", "seen", "text"),
    [
        (sensors.ConcentrationSensor(), (0.0132456789,), "Concentration 0.0132457, on a scale from 0 to 1."),
        (sensors.ConcentrationSensor(), (1e-9,), "Concentration 1e-09, on a scale from 0 to 1."),
        (sensors.BinaryHitSensor(), (1,), "There is odor here."),
        (sensors.BinaryHitSensor(), (0,), "There is no odor here."),
        (sensors.PoissonHitSensor(most=7), (3.0,), "Odor hits in this step: 3, of at most 7."),
        (
            sensors.AntennaePair(),
            (0.25, 0.5),
            "Concentration 0.25 at the left antenna, 0.5 at the right one, on a scale from 0 to 1.",
        ),
        (sensors.WindSensor(), (0.5, -1.0), "The wind blows 0.5 cells a step to the right (+x), -1 up (+y)."),
        (
            sensors.HistorySensor(sensors.ConcentrationSensor(), 3),
            (0.0, 0.0, 0.5),
            "The last 3 readings, oldest first: 0; 0; 0.5.",
        ),
        (
            sensors.HistorySensor(sensors.AntennaePair(), 2),
            (0, 0, 0.25, 0.5),
            "The last 2 readings, oldest first: 0, 0; 0.25, 0.5.",
        ),
        (
            sensors.DictSensor({"odor": sensors.ConcentrationSensor(), "hit": sensors.BinaryHitSensor()}),
            {"odor": (0.5,), "hit": (1,)},
            "odor: Concentration 0.5, on a scale from 0 to 1. hit: There is odor here.",
        ),
        (OWN, (0.5, 1.0), "The sensor reads 0.5, 1."),
        (OWN, {"a": (0.5,), "b": (1, 2)}, "a: 0.5. b: 1, 2."),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_sensor_is_told_in_words(sensor: Any, seen: Any, text: str) -> None:
    assert find_describer(sensor)(seen) == text


def test_every_sensor_of_ours_has_its_words() -> None:
    ours = {each for each in vars(sensors).values() if isinstance(each, type) and hasattr(each, "get_observation")}

    assert ours - {ObservationModel} == set(DESCRIBERS)


@settings(max_examples=20)
@given(seed=st.integers(0, 2**31 - 1))
def test_what_is_told_is_what_the_sensor_gave(seed: int) -> None:
    environment = PlumeEnvironment(PlumeSearchEnv())

    seen = environment.reset(seed=seed)

    assert environment.describe_observation(seen) == f"Concentration {seen.concentration:.6g}, on a scale from 0 to 1."
