"""The checks of what an environment's calls take and promise (ENV-INIT, ENV-RESET, ENV-STEP, ENV-ATOMIC, ENV-CLOSE, ENV-RENDER)."""

import math
import warnings
from collections.abc import Iterable, Iterator
from functools import partial
from numbers import Real
from types import SimpleNamespace
from typing import Any, Final

import gymnasium as gym
import numpy as np

from proctor.contracts import components
from proctor.contracts.chance import SEED_LIMIT, Chance
from proctor.contracts.components import REQUIRED_MEMBERS, EnvState, RecallingModel
from proctor.contracts.conformance.env_driver import (
    SEEDS,
    SHORT,
    EnvDriver,
    ObservedStep,
    StateView,
    accepts_keyword,
    drives,
    in_each_state,
    iterate_settings,
    iterate_steps,
    require_keyword,
)
from proctor.contracts.conformance.report import (
    CannotTell,
    Cases,
    CheckProbe,
    CheckTable,
    FindProblem,
    expect_refusal,
    make_check,
    shorten,
)
from proctor.contracts.conformance.samples import is_identical, non_members, samples
from proctor.contracts.guarded_env import GuardedEnv
from proctor.contracts.lifecycle import AFTER_STEP, EnvironmentState
from proctor.contracts.spatial import AgentState
from proctor.errors import ComponentError

CREATED, READY, TERMINATED, TRUNCATED, CLOSED = EnvironmentState
CHECKS: Final = CheckTable()


def _new_environments(probe: CheckProbe) -> Iterator[tuple[EnvDriver]]:
    """Yield a new environment of every size."""
    return ((EnvDriver(probe, small),) for small in iterate_settings(probe))


def _resets(probe: CheckProbe) -> Iterator[tuple[EnvDriver, StateView, Any]]:
    """Yield (environment, its state before, what reset gave) for a first and a second reset, in every size, with two seeds."""
    for drive, seed in drives(probe):
        for again in range(2):
            before = drive.view()
            yield drive, before, drive.reset(seed=seed + again)
            drive.call("step")


# --------------------------------------------------------------------------------- what an attribute must be afterwards
def _expect_attribute(name: str, expected: object) -> FindProblem:
    return lambda drive, *_: drive.find_other(name, expected)


_ATTRIBUTES: Final[tuple[tuple[str, str, Cases, str, object], ...]] = (
    ("ENV-INIT-C1", "a_new_environment_is_in_the_first_state", _new_environments, "_state", CREATED),
    ("ENV-INIT-C2", "a_new_environment_has_no_episode", _new_environments, "_episode_count", 0),
    ("ENV-INIT-C3", "a_new_environment_has_taken_no_step", _new_environments, "_step_count", 0),
    ("ENV-INIT-C7", "a_new_environment_has_no_agent", _new_environments, "_agent_state", None),
    ("ENV-RESET-C1", "reset_makes_ready", _resets, "_state", READY),
    ("ENV-RESET-C2", "reset_starts_the_step_count_anew", _resets, "_step_count", 0),
)
for _clause, _name, _cases, _attribute, _expected in _ATTRIBUTES:
    CHECKS[_clause] = make_check(_name, _expect_attribute(_attribute, _expected), _cases)


# --------------------------------------------------------------------------------------- what may not be called now
def _refuses(*methods: str) -> FindProblem:
    return lambda drive: drive.refuses(*methods)


_FORBIDDEN: Final[tuple[tuple[str, str, tuple[EnvironmentState, ...], tuple[str, ...]], ...]] = (
    ("ENV-RESET-P1", "reset_fails_after_close", (CLOSED,), ("reset",)),
    ("ENV-STEP-P1", "step_is_refused_unless_ready", (CREATED, TERMINATED, TRUNCATED, CLOSED), ("step",)),
    ("ENV-CLOSE-C3", "nothing_is_legal_after_close", (CLOSED,), ("reset", "step", "render")),
    ("ENV-RENDER-P1", "render_is_refused_before_reset_and_after_close", (CREATED, CLOSED), ("render",)),
)
for _clause, _name, _states, _methods in _FORBIDDEN:
    CHECKS[_clause] = make_check(_name, _refuses(*_methods), in_each_state(*_states))


# ----------------------------------------------------------------------------------------------------- construction
def _find_accepted_value(probe: CheckProbe, keyword: str, values: Iterable[Any]) -> str | None:
    require_keyword(probe, keyword)
    for value in values:
        probe.doing = f"make({keyword}={shorten(value)})"
        found = expect_refusal((ValueError, ComponentError), partial(probe.make, **{keyword: value}))
        if found is not None:
            return found
    return None


_REFUSED_VALUES: Final[tuple[tuple[str, str, str, tuple[Any, ...]], ...]] = (
    ("ENV-INIT-P1", "refuses_a_configuration_that_does_not_resolve", "config", ({"no such setting": 1}, 42)),
    ("ENV-INIT-P3", "refuses_a_grid_without_cells", "grid_size", ((0, 1), (1, 0), (-1, 1))),
    ("ENV-INIT-P4", "refuses_a_maximum_of_no_steps", "max_steps", (0, -1)),
    ("ENV-INIT-P5", "refuses_a_goal_radius_that_is_not_positive", "goal_radius", (0.0, -1.0, math.nan, math.inf)),
    ("ENV-INIT-P6", "refuses_an_unknown_render_mode", "render_mode", ("no such mode",)),
)
for _clause, _name, _keyword, _values in _REFUSED_VALUES:
    CHECKS[_clause] = make_check(_name, partial(_find_accepted_value, keyword=_keyword, values=_values))


def _iterate_incomplete_parts(choices: Iterable[tuple[str, ...]]) -> Iterator[object]:
    """Yield parts that lack everything, and parts that lack just one of their members."""
    yield object()
    for names in choices:
        for absent in names:
            yield type(f"Without_{absent}", (), {name: None for name in names if name != absent})()


@CHECKS.add("ENV-INIT-P2")
def refuses_a_part_without_its_members(probe: CheckProbe) -> str | None:
    arguments = [name for name in REQUIRED_MEMBERS if accepts_keyword(probe, name)]
    if not arguments:
        raise CannotTell("the constructor takes no parts")
    problems = (
        _find_accepted_value(probe, name, _iterate_incomplete_parts(REQUIRED_MEMBERS[name])) for name in arguments
    )
    return next(filter(None, problems), None)


@CHECKS.add("ENV-INIT-C4", _new_environments)
def a_new_environment_has_all_its_parts(drive: EnvDriver) -> str | None:
    parts: dict[str, tuple[type, ...]] = {
        "_action_proc": (components.ActionProcessor,),
        "_obs_model": (components.ObservationModel,),
        "_reward_fn": (components.RewardFunction,),
        "_plume": (components.ConcentrationField, components.VaryingPlume),
    }
    wrong = [name for name, kinds in parts.items() if not isinstance(drive.get(name), kinds)]
    return f"{wrong[0]} is {shorten(drive.get(wrong[0]))}" if wrong else None


@CHECKS.add("ENV-INIT-C5", _new_environments)
def the_action_space_is_the_processors_own(drive: EnvDriver) -> str | None:
    own = drive.get("_action_proc").action_space
    return None if drive.get("action_space") is own else "action_space is not the processor's"


@CHECKS.add("ENV-INIT-C6", _new_environments)
def the_observation_space_is_the_models_own(drive: EnvDriver) -> str | None:
    own = drive.get("_obs_model").observation_space
    return None if drive.get("observation_space") is own else "observation_space is not the model's"


# ------------------------------------------------------------------------------------------------------------ reset
def _find_accepted_reset(probe: CheckProbe, arguments: Iterable[dict[str, Any]]) -> str | None:
    found = (expect_refusal((ValueError,), partial(EnvDriver(probe).reset, **each)) for each in arguments)
    return next(filter(None, found), None)


@CHECKS.add("ENV-RESET-P2")
def refuses_a_bad_seed_and_takes_a_good_one(probe: CheckProbe) -> str | None:
    found = _find_accepted_reset(probe, ({"seed": bad} for bad in (-1, SEED_LIMIT, True, 0.5, "0")))
    if found is None:
        for good in (0, SEED_LIMIT - 1, np.int64(5)):
            EnvDriver(probe).reset(seed=good)
    return found


@CHECKS.add("ENV-RESET-P3")
def refuses_options_that_are_no_dict(probe: CheckProbe) -> str | None:
    bad_options = (3, "start", [("start", (0, 0))])
    found = _find_accepted_reset(probe, ({"seed": SEEDS[0], "options": bad} for bad in bad_options))
    if found is None:
        EnvDriver(probe).reset(seed=SEEDS[0], options={})
    return found


@CHECKS.add("ENV-RESET-C3", _resets)
def reset_counts_one_episode(drive: EnvDriver, before: StateView, result: Any) -> str | None:
    return drive.find_other("_episode_count", before["_episode_count"] + 1)


@CHECKS.add("ENV-RESET-C4", _resets)
def reset_gives_a_fresh_agent(drive: EnvDriver, before: StateView, result: Any) -> str | None:
    agent = drive.get("_agent_state")
    fresh = isinstance(agent, AgentState) and agent == AgentState(agent.position, agent.orientation)
    return None if fresh else f"_agent_state is {shorten(agent)}"


@CHECKS.add("ENV-RESET-C5")
def reset_remembers_the_seed_that_replays(probe: CheckProbe) -> str | None:
    for small in iterate_settings(probe):
        drive = EnvDriver(probe, small)
        for seed in SEEDS:
            drive.reset(seed=seed)
            if drive.get("_seed") != seed:
                return f"_seed is {shorten(drive.get('_seed'))}"
        observation, _ = drive.reset()
        drawn = drive.get("_seed")
        if type(drawn) is not int or not 0 <= drawn < SEED_LIMIT:
            return f"_seed is {shorten(drawn)}"
        if not is_identical(EnvDriver(probe, small).reset(seed=drawn)[0], observation):
            return f"does not repeat the observation {shorten(observation)} of reset()"
    return None


def _present_observation(drive: EnvDriver) -> Any:
    """Return what the observation model says about the environment as it stands after a reset."""
    field = drive.get("plume_field")
    env_state: EnvState = {
        "agent_state": drive.get("_agent_state"),
        "plume_field": field,
        "time_step": 0,
        "grid_size": drive.get("grid_size"),
        "chance": Chance(drive.get("_seed")),
    }
    if hasattr(field, "wind_field"):
        env_state["wind_field"] = field.wind_field
    model = drive.get("_obs_model")
    return model.observe(env_state, None)[0] if isinstance(model, RecallingModel) else model.get_observation(env_state)


@CHECKS.add("ENV-RESET-C6", _resets)
def reset_returns_the_present_observation_and_info(drive: EnvDriver, before: StateView, result: Any) -> str | None:
    observation, info = result
    if not drive.env.observation_space.contains(observation):
        return f"the observation {shorten(observation)} is not in the space"
    for key, name in (("seed", "_seed"), ("episode", "_episode_count")):
        if key not in info:
            return f"info {shorten(info)} has no {key!r}"
        if info[key] != drive.get(name):
            return f"info[{key!r}] is {shorten(info[key])}, {name} is {shorten(drive.get(name))}"
    present = _present_observation(drive)
    same = is_identical(observation, present)
    return None if same else f"returns {shorten(observation)}, but it is {shorten(present)}"


@CHECKS.add("ENV-RESET-D1")
def the_same_seed_shows_the_same_first_observation(probe: CheckProbe) -> str | None:
    for small in iterate_settings(probe):
        for seed in SEEDS:
            one, other = (EnvDriver(probe, small).reset(seed=seed)[0] for _ in range(2))
            if not is_identical(one, other):
                return f"one environment shows {shorten(one)}, another {shorten(other)}"
    return None


# ------------------------------------------------------------------------------------------------------------- step
@CHECKS.add("ENV-STEP-P2")
def refuses_an_action_that_is_not_legal(probe: CheckProbe) -> str | None:
    for action in non_members(EnvDriver(probe).env.action_space):
        drive = EnvDriver(probe)
        drive.reset(seed=SEEDS[0])
        found = expect_refusal((ValueError,), drive.step, action)
        if found is not None:
            return found
    return None


@CHECKS.add("ENV-STEP-C1", iterate_steps)
def step_returns_five_things(step: ObservedStep) -> str | None:
    five = isinstance(step.result, tuple) and len(step.result) == 5
    return None if five else f"returns {shorten(step.result)}"


@CHECKS.add("ENV-STEP-C2", iterate_steps)
def the_observation_lies_in_the_space(step: ObservedStep) -> str | None:
    inside = step.drive.env.observation_space.contains(step.result[0])
    return None if inside else f"the observation {shorten(step.result[0])} is not in the space"


@CHECKS.add("ENV-STEP-C3", iterate_steps)
def the_reward_is_the_reward_functions(step: ObservedStep) -> str | None:
    reward = step.result[1]
    if not isinstance(reward, Real) or not math.isfinite(reward):
        return f"the reward is {shorten(reward)}"
    function, before = step.drive.get("_reward_fn"), step.before["_agent_state"]
    agent: AgentState = step.drive.get("_agent_state")
    # The reward function sees the step before the reward is added up.
    after = AgentState(agent.position, agent.orientation, agent.step_count, before.total_reward, agent.goal_reached)
    expected = function.compute_reward(before, step.action, after, step.drive.get("plume_field"))
    return None if reward == expected else f"the reward is {shorten(reward)}, expected {shorten(expected)}"


@CHECKS.add("ENV-STEP-C4", iterate_steps)
def the_terminated_flag_is_a_bool(step: ObservedStep) -> str | None:
    return None if isinstance(step.result[2], bool | np.bool_) else f"terminated is {shorten(step.result[2])}"


@CHECKS.add("ENV-STEP-C5", iterate_steps)
def the_truncated_flag_is_a_bool(step: ObservedStep) -> str | None:
    return None if isinstance(step.result[3], bool | np.bool_) else f"truncated is {shorten(step.result[3])}"


@CHECKS.add("ENV-STEP-C6", iterate_steps)
def the_info_agrees_with_the_agent(step: ObservedStep) -> str | None:
    info = step.result[4]
    if not isinstance(info, dict) or not all(isinstance(key, str) for key in info):
        return f"the info is {shorten(info)}"
    agent = step.drive.get("_agent_state")
    for name in ("step_count", "total_reward", "goal_reached"):
        if name not in info or info[name] != getattr(agent, name):
            return f"info[{name!r}] is {shorten(info.get(name))}, the agent's is {shorten(getattr(agent, name))}"
    return None


@CHECKS.add("ENV-STEP-C7", iterate_steps)
def step_counts_one_step(step: ObservedStep) -> str | None:
    return step.drive.find_other("_step_count", step.before["_step_count"] + 1)


@CHECKS.add("ENV-STEP-C8", iterate_steps)
def step_leaves_a_state_of_the_episode(step: ObservedStep) -> str | None:
    state = step.drive.get("_state")
    return None if state in AFTER_STEP.values() else f"_state is {shorten(state)}"


@CHECKS.add("ENV-STEP-D1")
def the_same_seed_and_actions_give_the_same_episode(probe: CheckProbe) -> str | None:
    for small in iterate_settings(probe):
        for seed in SEEDS:
            pair = [EnvDriver(probe, small) for _ in range(2)]
            for drive in pair:
                drive.reset(seed=seed)
            for action in samples(pair[0].env.action_space, SHORT):
                one, other = (drive.step(action)[:4] for drive in pair)
                if not is_identical(one, other):
                    return f"one environment gives {shorten(one)}, another {shorten(other)}"
                if one[2] or one[3]:
                    break
    return None


# ----------------------------------------------------------------------------------------------- a step that raises
class _PartFailure(Exception):
    """What a part raises that is made to fail."""


_FEW: Final = 4
# What a step may raise in an environment that is not ours.
_REFUSALS: Final = (_PartFailure, ValueError, TypeError, LookupError, AssertionError, RuntimeError, gym.error.Error)
# Which part fails, by its constructor argument: where the environment keeps it, the methods that fail, at which call.
_FAILING: Final = {
    "reward_fn": ("_reward_fn", ("compute_reward",), 2),
    "observation_model": ("_obs_model", ("get_observation", "observe"), 3),
    "action_processor": ("_action_proc", ("process_action",), 2),
    "plume_model": ("_plume", ("advance",), 2),
}


def _make_failing_part(part: Any, names: tuple[str, ...], at: int) -> Any:
    """Return a part like `part` that raises at the `at`-th call of one of its methods `names`, once."""
    calls = iter(range(1, at + 1))

    def tripping(method: Any) -> Any:
        def call_or_fail(*arguments: Any) -> Any:
            if next(calls, None) == at:
                raise _PartFailure
            return method(*arguments)

        return call_or_fail

    members = {name: getattr(part, name) for name in dir(part) if not name.startswith("_")}
    return SimpleNamespace(**members | {name: tripping(members[name]) for name in names if name in members})


def _iterate_failing_steps(probe: CheckProbe, small: dict[str, Any]) -> Iterator[tuple[EnvDriver, Any]]:
    """Yield environments after one step, with the action of which the next step must fail."""
    for action in non_members(EnvDriver(probe, small).env.action_space)[:_FEW]:
        yield EnvDriver(probe, small), action
    for argument, (attribute, methods, at) in _FAILING.items():
        if accepts_keyword(probe, argument):
            part = _make_failing_part(EnvDriver(probe, small).get(attribute), methods, at)
            drive = EnvDriver(probe, {**small, argument: part})
            yield drive, drive.legal_action


def _find_difference(drive: EnvDriver, twin: EnvDriver, before: StateView) -> str | None:
    """Return how `drive`, whose last step failed, differs from `twin`, which never made it."""
    changed = drive.find_changes(before)
    if changed:
        return f"the failed step changed {changed[0]} to {shorten(drive.get(changed[0]))}"
    for action in samples(drive.env.action_space, _FEW):
        one, other = (each.step(action)[:4] for each in (twin, drive))
        if not is_identical(one, other):
            return f"gives {shorten(other)}; without the failed step it gives {shorten(one)}"
        if one[2] or one[3]:
            break
    return None


@CHECKS.add("ENV-ATOMIC")
def a_step_that_raises_changes_nothing(probe: CheckProbe) -> str | None:
    raised = False
    for small in iterate_settings(probe):
        for drive, action in _iterate_failing_steps(probe, small):
            twin = EnvDriver(probe, small)
            for each in (twin, drive):
                each.reset(seed=SEEDS[0])
            if any(twin.step(drive.legal_action)[2:4]):
                continue
            drive.step(drive.legal_action)
            before = drive.view()
            try:
                drive.step(action)
            except _REFUSALS:
                raised = True
                found = _find_difference(drive, twin, before)
                if found is not None:
                    return found
    if not raised:
        raise CannotTell("no step could be made to raise")
    return None


# -------------------------------------------------------------------------------------------------- close and render
@CHECKS.add("ENV-CLOSE-C1", in_each_state(CREATED, READY, TERMINATED, TRUNCATED))
def close_closes(drive: EnvDriver) -> str | None:
    drive.close()
    return drive.find_other("_state", CLOSED)


class _Screen:
    """Stands for a window, and remembers what was done to it."""

    def __init__(self) -> None:
        self.pictures: list[Any] = []
        self.closed = False

    def show(self, picture: Any) -> None:
        self.pictures.append(picture)

    def close(self) -> None:
        self.closed = True


def _on_screen(probe: CheckProbe) -> Iterator[tuple[EnvDriver, _Screen]]:
    """Yield an environment in the mode human, after a reset, whose window is a stand-in; only ours have that seam."""
    require_keyword(probe, "render_mode")
    if not isinstance(probe.make().unwrapped, GuardedEnv):
        raise CannotTell("it would open a window")
    drive, screen = EnvDriver(probe, {"render_mode": "human"}), _Screen()
    drive.env.unwrapped._open_window = lambda: screen
    drive.reset(seed=SEEDS[0])
    yield drive, screen


@CHECKS.add("ENV-CLOSE-C2", _on_screen)
def close_releases_the_window(drive: EnvDriver, screen: _Screen) -> str | None:
    drive.render()
    drive.close()
    return None if screen.closed else "the window is still open"


@CHECKS.add("ENV-CLOSE-I1", in_each_state(*EnvironmentState))
def close_is_safe_in_any_state_and_again(drive: EnvDriver) -> None:
    for _ in range(3):
        drive.close()


@CHECKS.add("ENV-RENDER-P2")
def render_without_a_mode_warns(probe: CheckProbe) -> str | None:
    drive = EnvDriver(probe)
    if drive.env.render_mode is not None:
        raise CannotTell(f"the environment comes with the render mode {shorten(drive.env.render_mode)}")
    drive.reset(seed=SEEDS[0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        picture = drive.render()
    if picture is not None:
        return f"returns {shorten(picture)}"
    return None if caught else "does not warn"


@CHECKS.add("ENV-RENDER-C1")
def render_returns_a_picture(probe: CheckProbe) -> str | None:
    require_keyword(probe, "render_mode")
    if "rgb_array" not in probe.make().metadata.get("render_modes", ()):
        raise CannotTell("the environment has no render mode rgb_array")
    drive = EnvDriver(probe, {"render_mode": "rgb_array"})
    drive.reset(seed=SEEDS[0])
    before = drive.view()
    picture = drive.render()
    if not isinstance(picture, np.ndarray) or picture.dtype != np.uint8:
        return f"returns {shorten(picture)}"
    if picture.ndim != 3 or picture.shape[2] != 3:
        return f"the picture has the shape {picture.shape}"
    same = is_identical(picture, drive.render()) and drive.view() == before
    return None if same else "rendering changes what it shows"


@CHECKS.add("ENV-RENDER-C2", _on_screen)
def render_shows_a_picture(drive: EnvDriver, screen: _Screen) -> str | None:
    shown, answer = len(screen.pictures), drive.render()
    if len(screen.pictures) <= shown:
        return "shows nothing"
    return None if answer is None else f"returns {shorten(answer)}"
