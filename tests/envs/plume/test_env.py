"""The plume search as a whole: its constructor, its seeds, its steps, and that nothing half-done ever stays."""

from __future__ import annotations

import copy
import gc
import inspect
import json
import math
import pickle
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.contracts.chance import SEED_LIMIT, Chance
from proctor.contracts.lifecycle import EnvironmentState
from proctor.contracts.spatial import AgentState, Coordinates, GridSize
from proctor.envs.plume.actions import DiscreteGridActions, EightDirectionActions
from proctor.envs.plume.env import PlumeSearchEnv
from proctor.envs.plume.fields import GaussianPlume, PuffPlume
from proctor.envs.plume.rewards import SparseGoalReward, StepPenaltyReward
from proctor.envs.plume.sensors import ConcentrationSensor, HistorySensor
from proctor.errors import ComponentError, RenderingError, StateError, ValidationError
from tests.envs.plume.catalogue import ACTIONS, SENSORS

CREATED, READY, TERMINATED, TRUNCATED, CLOSED = EnvironmentState
UP, RIGHT, DOWN, LEFT = range(4)

PLUMES: dict[str, Any] = {
    "gaussian": {"type": "gaussian", "sigma": 3.0},
    "advected": {"type": "advected", "wind": [0.5, 0.2]},
    "puffs": {"type": "puffs", "warm_up": 5, "release_every": 2, "lifetime": 12},
    "movie": {"type": "movie", "steps_per_frame": 2, "at_end": "loop"},
}
WINDLESS = ("gaussian", "movie")


def small(**keywords: Any) -> PlumeSearchEnv:
    """Return a search on a grid of 9 x 7 cells with the source at (4, 3)."""
    return PlumeSearchEnv(**{"grid_size": (9, 7), "source_location": (4, 3), **keywords})


def begun(
    *, start: tuple[int, int] = (0, 0), orientation: float = 0.0, seed: int = 0, **keywords: Any
) -> PlumeSearchEnv:
    """Return a small search whose agent stands at `start`."""
    env = small(**keywords)
    env.reset(seed=seed, options={"start": start, "orientation": orientation})
    return env


def plain(value: Any) -> Any:
    """Return a value with arrays as lists, so that `==` compares everything, dtypes included."""
    if isinstance(value, np.ndarray):
        return [str(value.dtype), value.tolist()]
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [plain(part) for part in value]
    return value


def run(env: PlumeSearchEnv, actions: list[Any]) -> list[Any]:
    """Return everything that the steps return, resetting (unseeded) after each end."""
    seen = []
    for action in actions:
        if env.state is not READY:
            seen.append(plain(env.reset()))
        seen.append(plain(env.step(action)))
    return seen


def sampled(env: PlumeSearchEnv, count: int, seed: int = 1) -> list[Any]:
    """Return legal actions, always the same ones."""
    space = copy.deepcopy(env.action_space)
    space.seed(seed)
    return [space.sample() for _ in range(count)]


@pytest.fixture
def film(tmp_path: Path) -> str:
    """Return the path of a movie on a grid of 9 x 7 cells."""
    np.save(tmp_path / "film.npy", np.random.default_rng(0).random((4, 7, 9)))
    return str(tmp_path / "film.npy")


# ---------------------------------------------------------------------------------------------- the constructor


def test_the_constructor_is_exactly_the_contract_s() -> None:
    parameters = inspect.signature(PlumeSearchEnv).parameters

    assert list(parameters) == [
        "plume_model", "reward_fn", "observation_model", "action_processor", "config", "grid_size", "source_location",
        "max_steps", "goal_radius", "render_mode",
    ]  # fmt: skip
    assert {parameter.kind for parameter in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert {parameter.default for parameter in parameters.values()} == {None}


def test_the_defaults_are_the_contract_s() -> None:
    env = PlumeSearchEnv()

    assert env.grid_size == GridSize(128, 128)
    assert env.source_location == Coordinates(64, 64)
    assert (env.max_steps, env.goal_radius, env.config.info_level, env.render_mode) == (1000, 1.0, "full", None)
    assert isinstance(env._action_proc, DiscreteGridActions)
    assert isinstance(env._obs_model, ConcentrationSensor)
    assert isinstance(env._reward_fn, SparseGoalReward)
    assert isinstance(env._plume, GaussianPlume)
    assert env._plume.sigma == 12.0


@pytest.mark.parametrize("name", ["state", "agent_state", "plume_field", "grid_size", "step_count"])
def test_the_public_names_are_read_only(name: str) -> None:
    env = begun()

    with pytest.raises(AttributeError):
        setattr(env, name, None)


@pytest.mark.parametrize(
    ("argument", "part"),
    [
        ("plume_model", SimpleNamespace()),
        ("plume_model", SimpleNamespace(grid_size=GridSize(9, 7))),
        ("plume_model", SimpleNamespace(grid_size=(9, 7), sample=lambda position: 0.0)),
        ("reward_fn", SimpleNamespace()),
        ("observation_model", SimpleNamespace()),
        ("action_processor", SimpleNamespace()),
        ("action_processor", 0),
        ("observation_model", ""),
    ],
)
def test_an_injected_part_without_its_members_is_a_component_error(argument: str, part: Any) -> None:
    with pytest.raises(ComponentError) as caught:
        PlumeSearchEnv(**{argument: part})

    assert caught.value.clause == "ENV-INIT-P2"
    assert "plume" in str(caught.value) if argument == "plume_model" else argument in str(caught.value)


@pytest.mark.parametrize(
    ("shape", "given", "source"),
    [((4, 7, 9), {}, (4, 3)), ((1, 150, 200), {"source_location": (180, 140)}, (180, 140))],
)
def test_a_movie_in_the_config_brings_its_grid_and_the_source_is_its_centre_or_anywhere_on_it(
    tmp_path: Path, shape: tuple[int, int, int], given: dict[str, Any], source: tuple[int, int]
) -> None:
    np.save(tmp_path / "film.npy", np.zeros(shape))

    env = PlumeSearchEnv(config={"plume": {"type": "movie", "path": str(tmp_path / "film.npy")}, **given})

    assert (env.grid_size, env.source_location) == (GridSize(shape[2], shape[1]), Coordinates(*source))


@pytest.mark.parametrize(
    ("given", "error", "reason"),
    [({"source_location": (20, 3)}, ValidationError, "source"), ({"grid_size": (20, 20)}, ComponentError, "grid")],
)
def test_a_source_beyond_the_movie_and_another_grid_are_refused(
    film: str, given: dict[str, Any], error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        PlumeSearchEnv(config={"plume": {"type": "movie", "path": film}}, **given)


# ---------------------------------------------------------------------------------------------------- the reset


def test_a_reset_makes_the_environment_ready_and_the_agent_new() -> None:
    env = small()

    observation, info = env.reset(seed=5)

    assert env.state is READY
    assert (env.step_count, env.episode_count, env.seed, env.np_random_seed) == (0, 1, 5, 5)
    agent = env.agent_state
    assert agent is not None
    assert (agent.orientation, agent.step_count, agent.total_reward, agent.goal_reached) == (0.0, 0, 0.0, False)
    assert env.observation_space.contains(observation)
    assert observation[0] == np.float32(env.plume_field.sample(agent.position))
    assert info == {
        "seed": 5,
        "episode": 1,
        "agent_xy": (agent.position.x, agent.position.y),
        "distance_to_source": math.dist((agent.position.x, agent.position.y), (4, 3)),
    }


def test_minimal_info_is_only_what_the_contract_asks_for() -> None:
    env = small(config={"info_level": "minimal"})

    _, reset_info = env.reset(seed=5)
    step_info = env.step(UP)[4]

    assert set(reset_info) == {"seed", "episode"}
    assert set(step_info) == {"step_count", "total_reward", "goal_reached"}


@pytest.mark.parametrize(
    "options",
    [
        [], "start", 5, {"nowhere": 1}, {"start": (9, 0)}, {"start": (0, 7)}, {"start": (-1, 0)}, {"start": (1,)},
        {"start": (1, 2, 3)}, {"start": 3}, {"start": "ab"}, {"start": (1.0, 2)}, {"start": (True, 2)},
        {"start": (None, 2)}, {"orientation": math.nan}, {"orientation": math.inf}, {"orientation": "north"},
        {"orientation": True}, {"orientation": None}, {"orientation": [1]}, {"orientation": np.array([1.0, 2.0])},
        {"orientation": 10**400}, {"start": (1, 1), "speed": 2},
    ],
    ids=lambda value: repr(value)[:40],
)  # fmt: skip
def test_bad_options_are_refused_and_change_nothing(options: Any) -> None:
    env = begun()
    env.step(UP)
    before = pickle.dumps(env)

    with pytest.raises(ValidationError):
        env.reset(seed=3, options=options)

    assert pickle.dumps(env) == before


@pytest.mark.parametrize("start", [(8, 6), [8, 6], (np.int64(8), 6), (4, 3), np.array([2, 1], np.int32)], ids=repr)
def test_the_start_can_be_chosen_even_on_the_source(start: Any) -> None:
    _, info = small().reset(options={"start": start})

    assert info["agent_xy"] == (int(start[0]), int(start[1]))
    assert type(info["agent_xy"][0]) is int


@pytest.mark.parametrize(
    ("degrees", "orientation"),
    [(90, 90.0), (450, 90.0), (-90.0, 270.0), (-1e-20, 0.0), (360, 0.0), (np.float32(45), 45.0)],
)
def test_the_orientation_can_be_chosen_and_is_brought_into_the_circle(degrees: Any, orientation: float) -> None:
    agent = begun(orientation=degrees).agent_state

    assert agent == AgentState(Coordinates(0, 0), orientation)


@given(
    width=st.integers(1, 7),
    height=st.integers(1, 7),
    radius=st.sampled_from([0.5, 1.0, 2.0, 20.0]),
    seed=st.integers(0, SEED_LIMIT - 1),
    data=st.data(),
)
@settings(max_examples=60)
def test_an_episode_starts_outside_the_goal_if_that_is_possible(
    width: int, height: int, radius: float, seed: int, data: st.DataObject
) -> None:
    source = (data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1)))
    env = PlumeSearchEnv(grid_size=(width, height), source_location=source, goal_radius=radius)
    cells = [(x, y) for x in range(width) for y in range(height)]
    outside = [cell for cell in cells if math.dist(cell, source) > radius]

    _, info = env.reset(seed=seed)

    assert info["agent_xy"] in (outside or [cell for cell in cells if cell != source] or cells)


# ---------------------------------------------------------------------------------------------------- the seeds


@pytest.mark.parametrize("plume", ["gaussian", "puffs"])
def test_an_unseeded_episode_replays_from_the_seed_in_its_info(plume: str) -> None:
    config = {"plume": PLUMES[plume], "observation": SENSORS["dict"]}
    env = small(config=config)
    env.reset(seed=3)
    first = env.reset()
    actions = sampled(env, 20)
    trajectory = [plain(env.step(action)) for action in actions if env.state is READY]

    replay = small(config=config)
    again = replay.reset(seed=first[1]["seed"])

    assert plain(again[0]) == plain(first[0])
    assert again[1] == {**first[1], "episode": 1}
    assert [plain(replay.step(action)) for action in actions[: len(trajectory)]] == trajectory


# ----------------------------------------------------------------------------------------------------- the step


def test_a_step_returns_observation_reward_flags_and_info() -> None:
    env = begun(start=(1, 1))

    observation, reward, terminated, truncated, info = env.step(RIGHT)

    assert env.observation_space.contains(observation)
    assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert info == {
        "step_count": 1,
        "total_reward": 0.0,
        "goal_reached": False,
        "agent_xy": (2, 1),
        "distance_to_source": math.sqrt(8),
    }
    assert env.agent_state == AgentState(Coordinates(2, 1), 0.0, 1, 0.0, False)


def test_the_goal_is_judged_after_the_move_and_not_before() -> None:
    leaving = begun(start=(4, 3), goal_radius=0.5)
    staying = begun(start=(4, 3), action_processor=EightDirectionActions())

    assert leaving.step(UP)[2] is False
    assert staying.step(8)[2] is True


def test_a_closed_environment_refuses_before_it_looks_at_arguments() -> None:
    env = small()
    env.close()

    with pytest.raises(StateError):
        env.reset(seed=-1)
    with pytest.raises(StateError):
        env.step("nonsense")


def test_the_reward_sees_both_states_the_action_and_the_field_of_the_step() -> None:
    seen: list[tuple[Any, ...]] = []

    class Witness(SparseGoalReward):
        """A reward that remembers what it was shown."""

        def compute_reward(self, *arguments: Any) -> int:
            seen.append(arguments)
            return 2

    env = begun(start=(2, 3), reward_fn=Witness(Coordinates(4, 3), 1.0), config={"plume": PLUMES["puffs"]})
    before, field_before = env.agent_state, env.plume_field

    _, reward, _, _, _ = env.step(RIGHT)

    assert (reward, type(reward)) == (2.0, float)
    ((prev_state, action, next_state, field),) = seen
    assert prev_state is before
    assert action == RIGHT
    assert (next_state.position, next_state.step_count, next_state.goal_reached) == (Coordinates(3, 3), 1, True)
    assert field is env.plume_field
    assert field is not field_before


def test_a_sensor_sees_the_state_after_the_step() -> None:
    seen: list[dict[str, Any]] = []

    class Witness(ConcentrationSensor):
        """A sensor that remembers what it was shown."""

        def get_observation(self, env_state: Any) -> Any:
            seen.append(dict(env_state))
            return super().get_observation(env_state)

    env = begun(start=(1, 1), observation_model=Witness(), config={"plume": PLUMES["advected"]}, seed=9)
    env.step(RIGHT)

    at_reset, at_step = seen
    assert at_reset.keys() == at_step.keys()
    assert (at_reset["time_step"], at_step["time_step"]) == (0, 1)
    assert at_step["plume_field"] is env.plume_field
    assert (at_step["agent_state"], at_step["grid_size"], at_step["chance"]) == (
        env.agent_state,
        GridSize(9, 7),
        Chance(9),
    )
    assert at_step["wind_field"].sample(Coordinates(0, 0)) == (0.5, 0.2)


@pytest.mark.parametrize(
    "observation",
    ["wind", {"type": "history", "sensor": "wind"}, {"type": "dict", "sensors": {"a": "concentration", "b": "wind"}}],
)
def test_a_wind_sensor_without_wind_is_refused(observation: Any) -> None:
    with pytest.raises(ComponentError, match="plume with wind") as caught:
        small(config={"observation": observation})

    assert caught.value.clause == "ENV-INIT-P2"


@pytest.mark.parametrize(
    ("kind", "method", "answer", "clause"),
    [
        *(
            (DiscreteGridActions, "process_action", answer, "ACT-PROC-C1")
            for answer in (None, (1, 2), Coordinates(1, 1))
        ),
        *((SparseGoalReward, "compute_reward", reward, "REWARD-2") for reward in (None, "1.0", 10**400, True, [1.0])),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_a_part_that_answers_with_something_else_is_a_component_error(
    kind: type[Any], method: str, answer: Any, clause: str
) -> None:
    wrong = type("Wrong", (kind,), {method: lambda self, *arguments: answer})
    env = begun(action_processor=wrong()) if clause == "ACT-PROC-C1" else begun(reward_fn=wrong(Coordinates(4, 3), 1.0))

    with pytest.raises(ComponentError) as caught:
        env.step(UP)

    assert (caught.value.clause, env.step_count) == (clause, 0)


# ------------------------------------------------------------------------------------------------- atomicity


class Trouble:
    """What goes wrong when a part is called: an exception to raise, a value to return instead, or nothing (None)."""

    def __init__(self) -> None:
        self.now: Any = None

    def strike(self, result: Any) -> Any:
        """Return `result`, unless there is trouble."""
        if isinstance(self.now, Exception):
            raise self.now
        return result if self.now is None else self.now


class Troubled:
    """A part of which one method can fail."""

    def __init__(self, part: Any, method: str, trouble: Trouble) -> None:
        self.part, self.method, self.trouble = part, method, trouble

    def __getattr__(self, name: str) -> Any:
        return self.call if name == self.method else getattr(self.part, name)

    def call(self, *arguments: Any) -> Any:
        """Call the method, or fail."""
        return self.trouble.strike(getattr(self.part, self.method)(*arguments))


class Rig:
    """An environment whose every part can be made to fail."""

    def __init__(self) -> None:
        self.troubles = {name: Trouble() for name in ("action", "plume", "begin", "reward", "sensor")}
        plume: Any = PuffPlume(GridSize(9, 7), Coordinates(4, 3), warm_up=3)
        sensor: Any = Troubled(ConcentrationSensor(), "get_observation", self.troubles["sensor"])
        self.env = PlumeSearchEnv(
            action_processor=Troubled(EightDirectionActions(), "process_action", self.troubles["action"]),
            plume_model=Troubled(Troubled(plume, "begin", self.troubles["begin"]), "advance", self.troubles["plume"]),
            reward_fn=Troubled(StepPenaltyReward(Coordinates(4, 3), 1.0), "compute_reward", self.troubles["reward"]),
            observation_model=HistorySensor(sensor, 3),
            max_steps=6,
        )
        self.env.reset(seed=4, options={"start": (1, 1)})
        self.env.step(1)


FAILURES: list[tuple[str, Any, type[Exception]]] = [
    ("action", RuntimeError("broken"), RuntimeError),
    ("action", AgentState(Coordinates(9, 0)), ComponentError),
    ("action", AgentState(Coordinates(0, -1)), ComponentError),
    ("action", "no state at all", Exception),
    ("plume", RuntimeError("broken"), RuntimeError),
    ("reward", RuntimeError("broken"), RuntimeError),
    ("reward", math.nan, ComponentError),
    ("reward", math.inf, ComponentError),
    ("reward", -math.inf, ComponentError),
    ("reward", np.float32(math.nan), ComponentError),
    ("reward", "no number", Exception),
    ("sensor", RuntimeError("broken"), RuntimeError),
]
every_failure = pytest.mark.parametrize(
    ("part", "failure", "error"), FAILURES, ids=lambda value: value.__name__ if isinstance(value, type) else repr(value)
)


@every_failure
def test_after_a_failed_step_the_episode_goes_on_as_if_it_had_never_been_tried(
    part: str, failure: Any, error: type[Exception]
) -> None:
    rig, smooth = Rig(), Rig()
    rig.troubles[part].now = failure
    before = pickle.dumps(rig.env)
    with pytest.raises(error):
        rig.env.step(3)
    unchanged = pickle.dumps(rig.env) == before
    rig.troubles[part].now = None

    actions = [0, 8, 5, 6, 7, 1, 1, 2]

    assert unchanged
    assert run(rig.env, actions) == run(smooth.env, actions)


def test_a_step_that_would_end_the_episode_ends_it_only_when_it_succeeds() -> None:
    rig = Rig()
    rig.env.reset(seed=1, options={"start": (2, 3)})
    rig.troubles["sensor"].now = RuntimeError("broken")
    with pytest.raises(RuntimeError):
        rig.env.step(2)
    rig.troubles["sensor"].now = None

    assert rig.env.state is READY
    assert rig.env.step(2)[2] is True


def test_finite_rewards_whose_sum_is_not_are_refused() -> None:
    rig = Rig()
    rig.troubles["reward"].now = 1.5e308
    rig.env.step(8)

    with pytest.raises(ComponentError) as caught:
        rig.env.step(8)

    assert caught.value.clause == "REWARD-2"
    assert rig.env.step_count == 2


@pytest.mark.parametrize("seed", [None, 8])
@pytest.mark.parametrize("part", ["begin", "sensor"])
def test_a_reset_that_fails_leaves_the_episode_running_as_it_was(part: str, seed: int | None) -> None:
    rig, smooth = Rig(), Rig()
    rig.troubles[part].now = RuntimeError("broken")

    with pytest.raises(RuntimeError):
        rig.env.reset(seed=seed)

    rig.troubles[part].now = None
    assert (rig.env.state, rig.env.episode_count, rig.env.seed) == (READY, 1, 4)
    actions = [0, 8, 5, 6, 7, 1, 1, 2]
    assert run(rig.env, actions) == run(smooth.env, actions)


# --------------------------------------------------------------------------------------------- copies, memory


@pytest.mark.parametrize("sensor", SENSORS)
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("plume", PLUMES)
def test_copies_made_in_the_middle_of_an_episode_go_on_identically(
    film: str, plume: str, action: str, sensor: str
) -> None:
    if sensor == "wind" and plume in WINDLESS:
        plume = "puffs"
    spec = {**PLUMES[plume], "path": film} if plume == "movie" else PLUMES[plume]
    env = small(
        config={"plume": spec, "action": action, "observation": SENSORS[sensor], "reward": "shaped"},
        max_steps=9,
    )
    env.reset(seed=6)
    actions = sampled(env, 24)
    run(env, actions[:4])

    copies = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]

    went_on = run(env, actions[4:])
    assert [run(twin, actions[4:]) for twin in copies] == [went_on, went_on]


@pytest.mark.parametrize("before", [CREATED, TERMINATED, TRUNCATED, CLOSED])
def test_a_copy_stands_where_the_original_stood(before: EnvironmentState) -> None:
    env = small(max_steps=1, goal_radius=1.0 if before is TERMINATED else 0.5)
    if before is not CREATED:
        env.reset(seed=0, options={"start": (2, 3)})
        env.step(RIGHT)
    if before is CLOSED:
        env.close()

    twin = pickle.loads(pickle.dumps(env))

    assert twin.state is before
    assert twin.agent_state == env.agent_state


def test_a_pickle_is_small_whatever_the_grid() -> None:
    env = PlumeSearchEnv(grid_size=(250, 250))
    env.reset(seed=0)
    run(env, sampled(env, 20))

    assert len(pickle.dumps(env)) < 25_000


def test_a_thousand_environments_share_their_tables() -> None:
    def make(seed: int) -> PlumeSearchEnv:
        env = PlumeSearchEnv(grid_size=(200, 200), config={"plume": "advected"})
        env.reset(seed=seed)
        env.step(UP)
        return env

    kept = [make(seed) for seed in range(3)]
    gc.collect()
    tracemalloc.start()
    try:
        kept += [make(seed) for seed in range(1000)]
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert used / 1000 < 12_000
    assert kept[0].plume_field.field_array is kept[-1].plume_field.field_array


# ------------------------------------------------------------------------------------------- scenes and pictures


@pytest.fixture
def no_warnings() -> Iterator[None]:
    """Turn every warning into an error, whatever the command line says."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("plume", PLUMES)
def test_every_plume_has_a_picture_that_shows_the_step(film: str, plume: str, no_warnings: None) -> None:
    spec = {**PLUMES[plume], "path": film} if plume == "movie" else PLUMES[plume]
    env = begun(config={"plume": spec}, render_mode="rgb_array")

    first = env.render()
    env.step(RIGHT)
    second = env.render()

    assert first.shape == second.shape
    assert (first != second).any()


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Put a stand-in where the real window would open."""
    window = Mock(["show", "close"])
    monkeypatch.setattr(PlumeSearchEnv, "_open_window", lambda env: window)
    return window


def test_human_mode_shows_every_step_too(screen: Mock) -> None:
    env = small(render_mode="human")
    env.reset(seed=0)
    env.step(UP)

    assert screen.show.call_count == 2


def test_human_mode_opens_a_real_window() -> None:
    env = small(render_mode="human")
    env.reset(seed=0)

    returned = env.render()
    env.close()

    assert returned is None
    assert env.state is CLOSED


def test_a_step_that_cannot_be_shown_changes_nothing(screen: Mock) -> None:
    env = small(render_mode="human")
    env.reset(seed=0, options={"start": (0, 0)})
    before = (env.state, env.step_count, env.agent_state)
    screen.show.side_effect = RenderingError("no display")

    with pytest.raises(RenderingError):
        env.step(UP)

    assert (env.state, env.step_count, env.agent_state) == before


def test_an_environment_with_a_window_copies_without_it(screen: Mock) -> None:
    env = small(render_mode="human")
    env.reset(seed=0)

    twin = copy.deepcopy(env)
    twin.close()

    assert not screen.close.called
    assert env.state is READY


class OwnField:
    """A user's own still field, with nothing but what the contract asks for."""

    def __init__(self, grid_size: GridSize) -> None:
        self.grid_size = grid_size
        self.field_array = np.linspace(0, 1, grid_size.total_cells()).reshape(grid_size.height, grid_size.width)

    def sample(self, position: Coordinates) -> float:
        return float(self.field_array[position.y, position.x])


class OwnPlume:
    """A user's own changing plume, with nothing but what the contract asks for."""

    grid_size = GridSize(9, 7)

    def begin(self, chance: Chance) -> OwnField:
        return OwnField(self.grid_size)

    def advance(self, field: Any, chance: Chance, time_step: int) -> OwnField:
        return OwnField(self.grid_size)


SCENES: dict[str, Callable[[], PlumeSearchEnv]] = {
    "gaussian": lambda: PlumeSearchEnv(grid_size=(10_000, 10_000)),
    "puffs": lambda: PlumeSearchEnv(grid_size=(10_000, 10_000), config={"plume": "puffs"}),
    "advected": lambda: PlumeSearchEnv(grid_size=(1_000, 1_000), config={"plume": "advected"}),
    "a user's field": lambda: PlumeSearchEnv(plume_model=OwnField(GridSize(300, 200))),
    "a user's plume": lambda: PlumeSearchEnv(plume_model=OwnPlume()),
}


@pytest.mark.parametrize("make", SCENES.values(), ids=SCENES)
def test_a_scene_is_a_small_json_value(make: Callable[[], PlumeSearchEnv]) -> None:
    env = make()
    env.reset(seed=0)
    run(env, sampled(env, 300, seed=5))
    if env.state is not READY:
        env.reset(seed=1)

    scene = env.scene()

    assert json.loads(json.dumps(scene)) == scene
    assert len(json.dumps(scene)) < 8_000


def test_a_scene_says_where_everything_is() -> None:
    env = begun(start=(1, 1), orientation=90.0, config={"plume": PLUMES["advected"], "action": "oriented_grid"})
    env.step(0)

    scene = env.scene()

    static = scene["static"]
    assert (static["grid"], static["source"], static["goal_radius"]) == ([9, 7], [4, 3], 1.0)
    assert scene["static"]["field"]["kind"] == "advected"
    assert scene["frame"]["agent"] == {"at": [1, 2], "heading": 90.0}
    assert scene["frame"]["trail"] == [[1, 1], [1, 2]]
    assert scene["frame"]["wind"] == [0.5, 0.2]
    assert (scene["frame"]["step"], scene["frame"]["state"]) == (1, "ready")


def test_the_static_part_of_a_scene_stays_for_the_episode() -> None:
    env = begun(config={"plume": PLUMES["puffs"]})
    first = env.scene()
    env.scene()["frame"]["trail"].clear()  # a scene is the caller's own

    env.step(RIGHT)
    second = env.scene()

    assert first["static"] == second["static"]
    assert second["frame"]["trail"] == [[0, 0], [1, 0]]


def test_a_user_s_own_plume_is_searched_like_ours() -> None:
    env = small(plume_model=OwnPlume())
    observation, _ = env.reset(seed=0, options={"start": (8, 6)})

    assert observation.tolist() == [1.0]
    assert env.step(LEFT)[0].tolist() == [np.float32(61 / 62)]


def test_the_environment_is_a_gymnasium_environment() -> None:
    env = small()

    assert isinstance(env, gym.Env)
    assert set(env.metadata["render_modes"]) == {"human", "rgb_array"}
