"""One deliberately broken subject for each clause, and the sound ones beside them.

Rule 1: a mutant differs from a sound subject in one place, so that it shows which sentence its clause adds.
Rule 2: `MUTANTS` and `SOUND` are keyed by clause id; a test checks that no clause is missing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from gymnasium import spaces
from msgspec.structs import force_setattr

from proctor.contracts.chance import Chance
from proctor.contracts.clauses import CLAUSES, Subject
from proctor.contracts.components import ConcentrationField, EnvState
from proctor.contracts.lifecycle import TABLE, EnvironmentState, LifecycleTransition
from proctor.contracts.spatial import AgentState, Coordinates, GridSize
from proctor.envs.plume.actions import DiscreteGridActions, EightDirectionActions
from proctor.envs.plume.env import PlumeSearchEnv
from proctor.envs.plume.fields import GaussianPlume, PuffField, PuffPlume
from proctor.envs.plume.rewards import SparseGoalReward
from proctor.envs.plume.sensors import ConcentrationSensor, HistorySensor
from proctor.envs.popper.env import ColumnPopperEnv
from tests.envs.popper.conformance_mutants import MORE_POPPER, POPPER

Make = Callable[..., Any]
CREATED, READY, TERMINATED, TRUNCATED, CLOSED = EnvironmentState
GRID = GridSize(4, 3)
SOURCE = Coordinates(1, 1)
FIVE = spaces.Discrete(5)


# ---------------------------------------------------------------------------------------------------- environments
def wrapping(method: str, around: Callable[..., Any]) -> type[PlumeSearchEnv]:
    """Return an environment whose `method` is `around(env, call, *arguments)`, where `call()` is the sound one."""

    def changed(self: Any, *arguments: Any, **keywords: Any) -> Any:
        return around(self, partial(getattr(PlumeSearchEnv, method), self, *arguments, **keywords), *arguments)

    return type("Changed", (PlumeSearchEnv,), {method: changed})


def after(method: str, change: Callable[[Any], object]) -> type[PlumeSearchEnv]:
    """Return an environment that does `change` to itself after each call of `method` that was accepted."""
    return wrapping(method, lambda env, call, *_: (call(), change(env))[0])


def before(method: str, change: Callable[..., object]) -> type[PlumeSearchEnv]:
    """Return an environment that does `change` to itself, given the arguments, before each call of `method`."""
    return wrapping(method, lambda env, call, *arguments: (change(env, *arguments), call())[1])


def answering(method: str, change: Callable[[Any, Any], Any]) -> type[PlumeSearchEnv]:
    """Return an environment whose `method` answers `change(env, result)`."""
    return wrapping(method, lambda env, call, *_: change(env, call()))


def instead(method: str, state: EnvironmentState, answer: Callable[[Any], Any]) -> type[PlumeSearchEnv]:
    """Return an environment whose `method` does something else while in `state`."""
    return wrapping(method, lambda env, call, *_: answer(env) if env._state is state else call())


def lenient(name: str, is_good: Callable[[Any], bool]) -> type[PlumeSearchEnv]:
    """Return an environment whose constructor quietly drops a bad value of the keyword `name`."""

    class Lenient(PlumeSearchEnv):
        def __init__(self, **keywords: Any) -> None:
            if name in keywords and not is_good(keywords[name]):
                del keywords[name]
            super().__init__(**keywords)

    Lenient.__init__.__wrapped__ = PlumeSearchEnv.__init__  # type: ignore[attr-defined]  # for inspect.signature
    return Lenient


def sets(**values: Any) -> Callable[[Any], None]:
    """Return a change that sets private attributes."""

    def change(env: Any) -> None:
        for name, value in values.items():
            setattr(env, f"_{name}", value)

    return change


def begins(change: Callable[[Any], object]) -> type[PlumeSearchEnv]:
    """Return an environment that does `change` to itself when it is made."""
    mutant = after("__init__", change)
    mutant.__init__.__wrapped__ = PlumeSearchEnv.__init__  # type: ignore[attr-defined]  # for inspect.signature
    return mutant


def _reopen(env: Any) -> None:
    env._state = CREATED if env._state is CLOSED else env._state


def _count_wrong_action(env: Any, action: Any) -> None:
    env._step_count += env._state is READY and not env._action_proc.validate_action(action)


def _count_refusal(env: Any, action: Any) -> None:
    env._episode_count += env._state is CREATED


def _forget_window(env: Any) -> None:
    env._window = None


def _refuse_second_close(env: Any) -> None:
    if env._state is CLOSED:
        raise RuntimeError("closed already")


def resetting(change: Callable[[Any, Any], tuple[Any, Any]]) -> type[PlumeSearchEnv]:
    """Return an environment that resets with `change(seed, options)` instead."""

    def reset(self: Any, *, seed: Any = None, options: Any = None) -> Any:
        seed, options = change(seed, options)
        return PlumeSearchEnv.reset(self, seed=seed, options=options)

    return type("Resetting", (PlumeSearchEnv,), {"reset": reset})


def _drop_bad_seed(seed: Any, options: Any) -> tuple[Any, Any]:
    return (seed if type(seed) is int and 0 <= seed < 2**31 else None), options


def _refuse_numpy_seed(seed: Any, options: Any) -> tuple[Any, Any]:
    if isinstance(seed, np.integer):
        raise TypeError("a seed is an int")
    return seed, options


class TakesAnyAction(PlumeSearchEnv):
    def step(self, action: Any) -> Any:
        return super().step(action if self._action_proc.validate_action(action) else 0)


class SecretlyMoves(PlumeSearchEnv):
    """A failed step leaves all counters alone, but not the field."""

    def step(self, action: Any) -> Any:
        try:
            return super().step(action)
        except ValueError:
            self._get_observation = lambda env_state: np.zeros(1, np.float32)
            raise


class DrawsNoSeed(PlumeSearchEnv):
    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        result = super().reset(seed=seed, options=options)
        self._seed = seed
        return result


class RemembersUnseeded(PlumeSearchEnv):
    """An episode without a seed of its own cannot be replayed from the seed that is reported."""

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        observation, info = super().reset(seed=seed, options=options)
        return (observation if seed is not None else observation / 2), info


_tags = itertools.count(1)


def _tampered(place: int, change: Callable[[Any], Any]) -> type[PlumeSearchEnv]:
    return answering("step", lambda env, result: (*result[:place], change(result[place]), *result[place + 1 :]))


def _without(key: str) -> Callable[[Any], Any]:
    return lambda info: {name: value for name, value in info.items() if name != key}


def misled(row: LifecycleTransition) -> type[PlumeSearchEnv]:
    """Return an environment that breaks one row of the lifecycle's table."""
    if row.target is None:
        return instead(row.method, row.source, lambda env: None)

    def mislead(env: Any, call: Callable[[], Any], *_: Any) -> Any:
        was = env._state
        result = call()
        if was is row.source and env._state is row.target:
            env._state = CREATED if row.target is not CREATED else READY
        return result

    return wrapping(row.method, mislead)


def _human_returns(env: Any, picture: Any) -> Any:
    return np.zeros((1, 1, 3), np.uint8) if env.render_mode == "human" else picture


def _grid_is_good(grid: Any) -> bool:
    return grid is None or min(grid) > 0


ENVIRONMENTS: dict[str, Make] = {
    "ENV-I1": after("reset", sets(state="odd")),
    "ENV-I2": after("reset", sets(agent_state=None)),
    "ENV-I3": instead("render", CLOSED, lambda self: None),
    "ENV-I4": begins(sets(episode_count=-1)),
    "ENV-I5": after("close", sets(plume=None)),
    "ENV-I6": after("reset", sets(step_count=-1)),
    "ENV-I7": after("step", sets(state=READY)),
    "ENV-I8": after("close", sets(episode_count=-5)),
    "ENV-I9": after("reset", sets(seed=2**31)),
    "ENV-INIT-P1": lenient("config", lambda config: config is None),
    "ENV-INIT-P2": lenient("reward_fn", lambda part: hasattr(part, "compute_reward")),
    "ENV-INIT-P3": lenient("grid_size", _grid_is_good),
    "ENV-INIT-P4": lenient("max_steps", lambda steps: steps > 0),
    "ENV-INIT-P5": lenient("goal_radius", lambda radius: radius > 0),
    "ENV-INIT-P6": lenient("render_mode", lambda mode: mode in (None, "human", "rgb_array")),
    "ENV-INIT-C1": begins(sets(state=READY)),
    "ENV-INIT-C2": begins(sets(episode_count=1)),
    "ENV-INIT-C3": begins(sets(step_count=1)),
    "ENV-INIT-C4": begins(sets(reward_fn=object())),
    "ENV-INIT-C5": begins(lambda env: setattr(env, "action_space", spaces.Discrete(4))),
    "ENV-INIT-C6": begins(lambda env: setattr(env, "observation_space", spaces.Box(0, 1, (1,)))),
    "ENV-INIT-C7": begins(sets(agent_state=AgentState(SOURCE))),
    "ENV-RESET-P1": before("reset", _reopen),
    "ENV-RESET-P2": resetting(_drop_bad_seed),
    "ENV-RESET-P3": resetting(lambda seed, options: (seed, options if isinstance(options, dict) else None)),
    "ENV-RESET-C1": after("reset", sets(state=CREATED)),
    "ENV-RESET-C2": after("reset", sets(step_count=1)),
    "ENV-RESET-C3": after("reset", lambda env: sets(episode_count=env._episode_count + 1)(env)),
    "ENV-RESET-C4": after("reset", sets(agent_state=AgentState(SOURCE, 0.0, 1))),
    "ENV-RESET-C5": after("reset", sets(seed=5)),
    "ENV-RESET-C6": answering("reset", lambda env, result: (result[0], _without("episode")(result[1]))),
    "ENV-RESET-D1": answering("reset", lambda env, result: (np.array([1.0 / next(_tags)], np.float32), result[1])),
    "ENV-STEP-P1": instead("step", TERMINATED, lambda env: None),
    "ENV-STEP-P2": TakesAnyAction,
    "ENV-STEP-C1": answering("step", lambda env, result: result[:4]),
    "ENV-STEP-C2": _tampered(0, lambda observation: observation + 2),
    "ENV-STEP-C3": _tampered(1, lambda reward: reward + 1),
    "ENV-STEP-C4": _tampered(2, int),
    "ENV-STEP-C5": _tampered(3, int),
    "ENV-STEP-C6": _tampered(4, _without("total_reward")),
    "ENV-STEP-C7": after("step", lambda env: sets(step_count=env._step_count + 1)(env)),
    "ENV-STEP-C8": after("step", sets(state=CREATED)),
    "ENV-STEP-D1": _tampered(1, lambda reward: float(next(_tags))),
    "ENV-CLOSE-C1": type("StaysOpen", (PlumeSearchEnv,), {"close": lambda self: None}),
    "ENV-CLOSE-C2": before("close", _forget_window),
    "ENV-CLOSE-C3": instead("step", CLOSED, lambda env: None),
    "ENV-CLOSE-I1": before("close", _refuse_second_close),
    "ENV-RENDER-P1": instead("render", CREATED, lambda self: None),
    "ENV-RENDER-P2": instead("render", READY, lambda self: None),
    "ENV-RENDER-C1": answering("render", lambda env, picture: picture / 255 if picture is not None else None),
    "ENV-RENDER-C2": answering("render", _human_returns),
    "ENV-ATOMIC": before("step", _count_wrong_action),
    **{row.rule: misled(row) for row in TABLE},
}

# Further ways to break a clause than the first one that comes to mind.
MORE_ENVIRONMENTS: list[tuple[str, Make]] = [
    ("ENV-I4", after("reset", sets(episode_count=0))),
    ("ENV-I6", after("step", sets(step_count=-1))),
    ("ENV-RESET-P2", resetting(_refuse_numpy_seed)),
    ("ENV-RESET-C4", after("reset", sets(agent_state=None))),
    ("ENV-RESET-C5", answering("reset", lambda env, result: (sets(seed=-1)(env), result)[1])),
    ("ENV-RESET-C6", answering("reset", lambda env, result: (result[0] + 2, result[1]))),
    ("ENV-RESET-C6", answering("reset", lambda env, result: (result[0], {**result[1], "seed": 99}))),
    ("ENV-RESET-C6", answering("reset", lambda env, result: (np.zeros(1, np.float32), result[1]))),
    ("ENV-STEP-C3", _tampered(1, lambda reward: float("inf"))),
    ("ENV-STEP-C6", _tampered(4, lambda info: None)),
    ("ENV-RENDER-P2", answering("render", lambda env, picture: "a picture")),
    ("ENV-RENDER-C1", answering("render", lambda env, picture: np.zeros((4, 4), np.uint8))),
    ("ENV-RENDER-C1", after("render", lambda env: sets(step_count=env._step_count + 1)(env))),
    ("ENV-RENDER-C2", type("ShowsNothing", (PlumeSearchEnv,), {"render": lambda self: None})),
    ("ENV-ATOMIC", SecretlyMoves),
    ("ENV-RESET-C5", RemembersUnseeded),
    ("ENV-RESET-C5", DrawsNoSeed),
    ("NO-STEP-BEFORE-RESET", before("step", _count_refusal)),
]


# ------------------------------------------------------------------------------------------------ action processors
def acting(**members: Any) -> type[DiscreteGridActions]:
    """Return an action processor with other members."""
    return type("Acting", (DiscreteGridActions,), members)


def moving(change: Callable[[Any, Any, AgentState, GridSize, AgentState], Any]) -> type[DiscreteGridActions]:
    """Return a processor that answers `change(self, action, state, grid, sound answer)`."""

    def process_action(self: Any, action: Any, current_state: AgentState, grid_size: GridSize) -> Any:
        sound = DiscreteGridActions.process_action(self, action, current_state, grid_size)
        return change(self, action, current_state, grid_size, sound)

    return acting(process_action=process_action)


def _unclamped(self: Any, action: Any, state: AgentState, grid: GridSize) -> AgentState:
    dx, dy = self.moves[action]
    return AgentState(Coordinates(state.position.x + dx, state.position.y + dy), state.orientation)


def _runs_on(self: Any, action: Any, state: AgentState, grid: GridSize) -> AgentState:
    if grid.contains(state.position):
        return DiscreteGridActions.process_action(self, action, state, grid)
    return _unclamped(self, action, state, grid)


def _takes_any_action(self: Any, action: Any, state: AgentState, grid: GridSize) -> AgentState:
    sound = action if self.validate_action(action) else 0
    return DiscreteGridActions.process_action(self, sound, state, grid)


def _takes_no_state(self: Any, action: Any, state: Any, grid: GridSize) -> AgentState:
    known = state if isinstance(state, AgentState) else AgentState(Coordinates(0, 0))
    return DiscreteGridActions.process_action(self, action, known, grid)


def _off_the_large_grid(self: Any, action: Any, state: AgentState, grid: GridSize, sound: AgentState) -> AgentState:
    return sound if grid.width < 10 else AgentState(Coordinates(-1, 0))


def _alternating(self: Any, action: Any, state: AgentState, grid: GridSize, sound: AgentState) -> AgentState:
    self.odd = not getattr(self, "odd", False)
    return AgentState(sound.position, 10.0 if self.odd else 20.0)


class TurnsByAge(DiscreteGridActions):
    def __init__(self) -> None:
        super().__init__()
        self.tag = float(next(_tags) % 360)

    def process_action(self, action: Any, current_state: AgentState, grid_size: GridSize) -> AgentState:
        sound = super().process_action(action, current_state, grid_size)
        return AgentState(sound.position, self.tag)


def _turning_the_state(self: Any, action: Any, state: AgentState, grid: GridSize, sound: AgentState) -> AgentState:
    force_setattr(state, "orientation", 1.0)
    return sound


def _growing_tired(self: Any, action: Any, state: AgentState, grid: GridSize, sound: AgentState) -> AgentState:
    self.asked = getattr(self, "asked", 0) + 1
    return AgentState(sound.position, 0.0 if self.asked < 50 else 90.0)


def _stays_itself(self: Any, action: Any, state: AgentState, grid: GridSize, sound: AgentState) -> AgentState:
    return state if sound.position == state.position else sound


def showing(make_space: Callable[[], Any]) -> property:
    """Return a space that is made anew whenever it is read, whatever the constructor sets."""
    return property(lambda self: make_space(), lambda self, space: None)


PROCESSORS: dict[str, Make] = {
    "ACT-SPACE-C1": acting(action_space=showing(lambda: 4)),
    "ACT-SPACE-C2": acting(action_space=showing(lambda: spaces.Discrete(4))),
    "ACT-SPACE-C3": acting(action_space=showing(lambda: FIVE)),
    "ACT-PROC-P1": acting(process_action=_takes_any_action),
    "ACT-PROC-P2": acting(process_action=_takes_no_state),
    "ACT-PROC-P3": acting(process_action=_runs_on),
    "ACT-PROC-C1": moving(lambda self, action, state, grid, sound: SimpleNamespace(position=sound.position)),
    "ACT-PROC-C2": acting(process_action=_unclamped),
    "ACT-PROC-C3": moving(_alternating),
    "ACT-PROC-C4": moving(_stays_itself),
    "ACT-1": moving(_off_the_large_grid),
    "ACT-2": TurnsByAge,
    "ACT-3": moving(_turning_the_state),
    "ACT-4": moving(lambda self, action, state, grid, sound: AgentState(sound.position, sound.orientation)),
    "ACT-VALID": acting(validate_action=lambda self, action: True),
    "ACT-META": acting(get_metadata=lambda self: {"type": "mine", "parameters": {}}),
}
MORE_PROCESSORS: list[tuple[str, Make]] = [
    ("ACT-3", moving(_growing_tired)),
    ("ACT-VALID", acting(validate_action=lambda self, action: np.bool_(True))),
    ("ACT-META", acting(get_metadata=lambda self: None)),
]


# ---------------------------------------------------------------------------------------------------------- sensors
def sensing(**members: Any) -> type[ConcentrationSensor]:
    """Return a sensor with other members."""
    return type("Sensing", (ConcentrationSensor,), members)


def smelling(smell: Callable[[Any, Any], Any]) -> type[ConcentrationSensor]:
    """Return a sensor whose observation is `smell(self, env_state)`."""
    return sensing(get_observation=smell)


def _writes_a_note(self: Any, env_state: Any) -> Any:
    env_state["note"] = 1
    return np.zeros(1, np.float32)


def _turns_the_agent(self: Any, env_state: Any) -> Any:
    force_setattr(env_state["agent_state"], "orientation", 1.0)
    return np.zeros(1, np.float32)


def _empties_the_field(self: Any, env_state: Any) -> Any:
    values = env_state["plume_field"].field_array
    values.flags.writeable = True
    values[:] = 0.5
    return np.zeros(1, np.float32)


class OneArray(ConcentrationSensor):
    def __init__(self) -> None:
        super().__init__()
        self.array = np.zeros(1, np.float32)

    def get_observation(self, env_state: EnvState) -> Any:
        return {"inside": [self.array]}


class History(HistorySensor):
    def __init__(self) -> None:
        super().__init__(ConcentrationSensor(), 2)


class OverwritesItsMemory(History):
    def observe(self, env_state: EnvState, memory: Any) -> Any:
        observation, remembered = super().observe(env_state, memory)
        if memory is not None:
            memory[0][:] = 9.0
        return observation, remembered


class RemembersWhatItHandsOut(History):
    def observe(self, env_state: EnvState, memory: Any) -> Any:
        observation, _ = super().observe(env_state, memory)
        return observation, (observation, None)


class ForgetsWhenAsked(History):
    """Says another thing through get_observation() than through observe()."""

    def get_observation(self, env_state: EnvState) -> Any:
        return self.observe(env_state, None)[0]


SENSORS: dict[str, Make] = {
    "SENSOR-1": sensing(observation_space=showing(lambda: spaces.Box(0, 1, (1,), np.float32))),
    "SENSOR-2": smelling(lambda self, env_state: np.array([2.0], np.float32)),
    "SENSOR-3": smelling(lambda self, env_state: np.array([1.0 / next(_tags)], np.float32)),
    "SENSOR-4": smelling(_writes_a_note),
    "SENSOR-5": OneArray,
    "SENSOR-6": sensing(get_metadata=lambda self: {"type": "mine"}),
    "SENSOR-7": OverwritesItsMemory,
}
MORE_SENSORS: list[tuple[str, Make]] = [
    ("SENSOR-1", sensing(observation_space=showing(lambda: "Box"))),
    ("SENSOR-4", smelling(_turns_the_agent)),
    ("SENSOR-4", smelling(_empties_the_field)),
    ("SENSOR-5", smelling(lambda self, env_state: env_state["plume_field"].field_array[0])),
    ("SENSOR-7", ForgetsWhenAsked),
    ("SENSOR-7", RemembersWhatItHandsOut),
]


# ---------------------------------------------------------------------------------------------------------- rewards
def valuing(value: Callable[..., Any]) -> Make:
    """Return a factory of reward functions that answer `value(self, before, after, field)`."""

    def compute_reward(self: Any, before: AgentState, action: Any, later: AgentState, field: ConcentrationField) -> Any:
        return value(self, before, later, field)

    mutant = type("Valuing", (SparseGoalReward,), {"compute_reward": compute_reward})
    return lambda: mutant(SOURCE, 1.0)


def _turns_it(self: Any, before: AgentState, later: AgentState, field: Any) -> float:
    force_setattr(before, "orientation", 1.0)
    return 0.0


def _empties_it(self: Any, before: AgentState, later: AgentState, field: Any) -> float:
    field.field_array.flags.writeable = True
    field.field_array[:] = 0.5
    return 0.0


def _grows(self: Any, before: AgentState, later: AgentState, field: Any) -> float:
    self.paid = getattr(self, "paid", 0.0) + 1.0
    return float(self.paid)


class Wordless(SparseGoalReward):
    def get_metadata(self) -> Any:
        return {"type": 3, "parameters": {}}


REWARDS: dict[str, Make] = {
    "REWARD-1": valuing(lambda self, before, later, field: "much"),
    "REWARD-2": valuing(lambda self, before, later, field: float("nan")),
    "REWARD-3": valuing(lambda self, before, later, field: float(next(_tags))),
    "REWARD-4": valuing(_turns_it),
    "REWARD-5": lambda: Wordless(SOURCE, 1.0),
}
MORE_REWARDS: list[tuple[str, Make]] = [
    ("REWARD-1", valuing(lambda self, before, later, field: True)),
    ("REWARD-4", valuing(_empties_it)),
    ("REWARD-4", valuing(_grows)),
]


# ----------------------------------------------------------------------------------------------------------- fields
def holding(values: Any, **members: Any) -> Make:
    """Return a factory of fields with this array and, if given, other members."""
    mutant = type("Holding", (GaussianPlume,), {"field_array": values, **members})
    return lambda: mutant(GRID, SOURCE)


def frozen(values: Any) -> Any:
    array = np.array(values, dtype=np.float64)
    array.flags.writeable = False
    return array


class Fades(GaussianPlume):
    """Every look takes something away."""

    def __init__(self) -> None:
        super().__init__(GRID, SOURCE)
        self.looks = 0

    @property
    def field_array(self) -> Any:
        return frozen(super().field_array * 0.9**self.looks)

    def sample(self, position: Coordinates) -> float:
        self.looks += 1
        return super().sample(position)


class Shivers(GaussianPlume):
    def __init__(self) -> None:
        super().__init__(GRID, SOURCE)

    def sample(self, position: Coordinates) -> float:
        return super().sample(position) / next(_tags)


class Plume(PuffPlume):
    def __init__(self) -> None:
        super().__init__(GRID, SOURCE, warm_up=3, lifetime=6)


class AgesWithItsKind(Plume):
    def begin(self, chance: Chance) -> PuffField:
        return super().begin(Chance(next(_tags)))


class MovesInPlace(Plume):
    def advance(self, field: PuffField, chance: Chance, time_step: int) -> PuffField:
        field.x[:] += 1.0
        return super().advance(field, chance, time_step)


class NeverTwiceAlike(Plume):
    def advance(self, field: PuffField, chance: Chance, time_step: int) -> PuffField:
        return super().advance(field, Chance(next(_tags)), time_step)


class NamesAnotherGrid(Plume):
    def begin(self, chance: Chance) -> PuffField:
        field = super().begin(chance)
        self.grid_size = GridSize(9, 9)
        return field


FIELDS: dict[str, Make] = {
    "FIELD-1": holding(frozen(np.zeros((4, 3)))),
    "FIELD-2": holding(frozen([[0.0, 1.5]])),
    "FIELD-3": holding(np.zeros((3, 4))),
    "FIELD-4": holding(frozen(np.zeros((3, 4)))),
    "FIELD-5": Shivers,
    "FIELD-6": AgesWithItsKind,
    "FIELD-7": MovesInPlace,
    "FIELD-8": NamesAnotherGrid,
    "FIELD-SAMPLE-P1": holding(frozen(np.zeros((3, 4))), sample=lambda self, position: 0.0),
}
MORE_FIELDS: list[tuple[str, Make]] = [
    ("FIELD-1", holding([[0.0]])),
    ("FIELD-1", holding(np.zeros((3, 4), np.float32))),
    ("FIELD-2", holding(frozen([[float("nan")]]))),
    ("FIELD-4", holding(frozen(np.zeros((3, 4))), sample=lambda self, position: 0)),
    ("FIELD-5", Fades),
    ("FIELD-7", NeverTwiceAlike),
]

# -------------------------------------------------------------------------------------------------------- the tables
MUTANTS: dict[str, Make] = {**ENVIRONMENTS, **PROCESSORS, **SENSORS, **REWARDS, **FIELDS, **POPPER}
MORE_MUTANTS: list[tuple[str, Make]] = [
    *MORE_ENVIRONMENTS,
    *MORE_PROCESSORS,
    *MORE_SENSORS,
    *MORE_REWARDS,
    *MORE_FIELDS,
    *MORE_POPPER,
]

_SOUND: dict[Subject, Make] = {
    Subject.ENVIRONMENT: PlumeSearchEnv,
    Subject.ACTION_PROCESSOR: EightDirectionActions,
    Subject.SENSOR: History,
    Subject.REWARD: lambda: SparseGoalReward(SOURCE, 1.0),
    Subject.FIELD: Plume,
    Subject.COLUMN_POPPER: ColumnPopperEnv,
}
SOUND: dict[str, Make] = {clause.id: _SOUND[clause.subject] for clause in CLAUSES.values()}
