"""The checks of the parts' clauses: action processors, sensors and rewards over small grids, fields on their own grid."""

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from numbers import Real
from typing import Any, Final

import gymnasium as gym
import numpy as np

from proctor.contracts.chance import Chance
from proctor.contracts.components import EnvState, RecallingModel
from proctor.contracts.conformance.report import (
    CannotTell,
    CheckProbe,
    CheckTable,
    expect_refusal,
    make_check,
    shorten,
    with_twin,
)
from proctor.contracts.conformance.samples import (
    GRIDS,
    ProcessorCall,
    RampField,
    is_identical,
    iterate_agent_states,
    iterate_arrays,
    iterate_cells,
    iterate_env_states,
    iterate_steps,
    members,
    non_members,
)
from proctor.contracts.spatial import AgentState, Coordinates, GridSize

CHECKS: Final = CheckTable()


def _find_wrong_metadata(probe: CheckProbe, keys: Mapping[str, type]) -> str | None:
    """Return what is wrong with `get_metadata()` of the subject, which owes a dict with these keys and types."""
    part = probe.make()
    probe.doing = "get_metadata()"
    metadata = part.get_metadata()
    if not isinstance(metadata, dict):
        return f"returns {shorten(metadata)}, no dict"
    wrong = [key for key, kind in keys.items() if not isinstance(metadata.get(key), kind)]
    return f"{wrong[0]!r} is {shorten(metadata.get(wrong[0]))}, expected a {keys[wrong[0]].__name__}" if wrong else None


_METADATA: Final = {"type": str, "parameters": dict}
for _clause, _name, _keys in (
    ("SENSOR-6", "metadata_names_type_and_parameters", _METADATA),
    ("REWARD-5", "metadata_names_type_and_parameters", _METADATA),
    ("ACT-META", "metadata_names_type_parameters_and_movement", {**_METADATA, "movement_model": str}),
):
    CHECKS[_clause] = make_check(_name, partial(_find_wrong_metadata, keys=_keys))


# ------------------------------------------------------------------------------------------------ action processors
_LARGE: Final = GridSize(10, 10)
_CORNERS: Final = ((0, 0), (9, 0), (0, 9), (9, 9))
_EDGES: Final = ((5, 0), (9, 5), (5, 9), (0, 5))

Place = tuple[AgentState, GridSize]
Question = tuple[Any, ProcessorCall]


def _ask(
    probe: CheckProbe, places: Iterable[Place], choose: Callable[[gym.Space[Any]], Iterable[Any]] = members
) -> Iterator[Question]:
    """Yield a processor with a call for each place and each action that is chosen from its space."""
    processor = probe.make()
    choices = list(choose(processor.action_space))
    for state, grid in places:
        for action in choices:
            call = ProcessorCall(action, state, grid)
            probe.doing = call
            yield processor, call


def _moves(probe: CheckProbe) -> Iterator[Question]:
    return _ask(probe, ((state, grid) for grid in GRIDS for state in iterate_agent_states(grid)))


def _foreign_actions(probe: CheckProbe) -> Iterator[Question]:
    return _ask(probe, [(AgentState(Coordinates(0, 0)), GridSize(1, 1))], non_members)


def _moves_off_the_grid(probe: CheckProbe) -> Iterator[Question]:
    spots = ((x, y, grid) for grid in GRIDS for x, y in ((-3, 0), (0, -3), (grid.width + 2, 0), (0, grid.height + 2)))
    return _ask(
        probe, ((AgentState(Coordinates(x, y), degrees), grid) for x, y, grid in spots for degrees in (0.0, 90.0))
    )


def _moves_from(*spots: tuple[int, int]) -> Callable[[CheckProbe], Iterator[Question]]:
    """Return the moves from these cells of a large grid."""
    headings = (0.0, 90.0, 180.0, 270.0)
    return lambda probe: _ask(
        probe, ((AgentState(Coordinates(*spot), degrees), _LARGE) for spot in spots for degrees in headings)
    )


def _moves_everywhere(probe: CheckProbe) -> Iterator[Question]:
    yield from _moves(probe)
    yield from _moves_from(*_CORNERS, *_EDGES)(probe)


@CHECKS.add("ACT-SPACE-C1")
def space_is_a_gymnasium_space(probe: CheckProbe) -> str | None:
    space = probe.make().action_space
    probe.doing = "action_space"
    return None if isinstance(space, gym.Space) else f"is {shorten(space)}, no gymnasium space"


@CHECKS.add("ACT-SPACE-C2")
def space_immutability(probe: CheckProbe) -> str | None:
    processor = probe.make()
    probe.doing = "action_space, read twice"
    before = processor.action_space
    return None if processor.action_space is before else "gives two different instances"


@CHECKS.add("ACT-SPACE-C3", _moves)
def every_member_of_the_space_is_an_action(processor: Any, call: ProcessorCall) -> None:
    call.ask(processor)


@CHECKS.add("ACT-PROC-P1", _foreign_actions)
def refuses_an_action_outside_the_space(processor: Any, call: ProcessorCall) -> str | None:
    return expect_refusal((ValueError,), call.ask, processor)


@CHECKS.add("ACT-PROC-P2")
def refuses_what_is_no_agent_state(probe: CheckProbe) -> str | None:
    processor = probe.make()
    for action in members(processor.action_space):
        for state in (None, "no state", (0, 0)):
            probe.doing = f"process_action({shorten(action)}, {state!r}, 1 x 1)"
            refusals = (ValueError, TypeError, AttributeError)
            found = expect_refusal(refusals, processor.process_action, action, state, GridSize(1, 1))
            if found is not None:
                return found
    return None


def _find_off_grid(after: AgentState, call: ProcessorCall) -> str | None:
    place = after.position
    return None if call.grid.contains(place) else f"leads to ({place.x}, {place.y})"


@CHECKS.add("ACT-PROC-P3", _moves_off_the_grid)
def a_position_off_the_grid_goes_no_further(processor: Any, call: ProcessorCall) -> str | None:
    try:
        after = call.ask(processor)
    except (ValueError, IndexError):
        return None
    return None if after.position == call.state.position else _find_off_grid(after, call)


@CHECKS.add("ACT-PROC-C1", _moves)
def the_result_is_a_valid_agent_state(processor: Any, call: ProcessorCall) -> str | None:
    after: Any = call.ask(processor)
    valid = (
        isinstance(after, AgentState)
        and isinstance(after.position, Coordinates)
        and type(after.position.x) is type(after.position.y) is int
        and 0.0 <= after.orientation < 360.0
    )
    return None if valid else f"leads to {shorten(after)}"


@CHECKS.add("ACT-PROC-C2", _moves)
def the_result_lies_on_the_grid(processor: Any, call: ProcessorCall) -> str | None:
    return _find_off_grid(call.ask(processor), call)


corner_actions: Final = make_check("corner_actions", the_result_lies_on_the_grid, _moves_from(*_CORNERS))
edge_actions: Final = make_check("edge_actions", the_result_lies_on_the_grid, _moves_from(*_EDGES))
CHECKS["ACT-1"] = make_check("boundary_safety", the_result_lies_on_the_grid, _moves_everywhere)


@CHECKS.add("ACT-PROC-C3", _moves)
def it_answers_alike_twice(processor: Any, call: ProcessorCall) -> str | None:
    once, again = call.ask(processor), call.ask(processor)
    return None if once == again else f"gives {shorten(once)}, then {shorten(again)}"


@CHECKS.add("ACT-PROC-C4", _moves)
def the_result_is_a_new_value(processor: Any, call: ProcessorCall) -> str | None:
    return "returns the very state that came in" if call.ask(processor) is call.state else None


@CHECKS.add("ACT-2", with_twin(_moves))
def determinism(processor: Any, call: ProcessorCall, twin: Any) -> str | None:
    one, other = call.ask(processor), call.ask(twin)
    return None if one == other else f"one processor gives {shorten(one)}, another of the kind {shorten(other)}"


@CHECKS.add("ACT-3")
def purity(probe: CheckProbe) -> str | None:
    answers: list[tuple[Any, ProcessorCall, AgentState]] = []
    for processor, call in _moves(probe):
        before = copy.deepcopy((call.state, call.grid, call.action))
        answers.append((processor, call, call.ask(processor)))
        after = (call.state, call.grid, call.action)
        names = ("state", "grid", "action")
        changed = [name for name, old, new in zip(names, before, after, strict=True) if not is_identical(old, new)]
        if changed:
            return f"changes the {changed[0]} that it was given"
    # Asked again backwards, an answer that depends on the calls in between differs.
    for processor, call, earlier in reversed(answers):
        probe.doing = call
        now = call.ask(processor)
        if earlier != now:
            return f"gives {shorten(now)}, but gave {shorten(earlier)} before other calls"
    return None


@CHECKS.add("ACT-4", _moves)
def keeps_the_other_fields(processor: Any, call: ProcessorCall) -> str | None:
    after = call.ask(processor)
    for name in ("step_count", "total_reward", "goal_reached"):
        if getattr(after, name) != getattr(call.state, name):
            return f"{name} was {getattr(call.state, name)}, is {getattr(after, name)}"
    return None


@CHECKS.add("ACT-VALID")
def validate_action_consistency(probe: CheckProbe) -> str | None:
    processor = probe.make()
    space = processor.action_space
    for expected, actions in ((True, members(space)), (False, non_members(space))):
        for action in actions:
            probe.doing = f"validate_action({shorten(action)})"
            answer = processor.validate_action(action)
            if answer is not expected:
                return f"returns {shorten(answer)}; the space says {expected}"
    return None


# ---------------------------------------------------------------------------------------------------------- sensors
def _smells(probe: CheckProbe) -> Iterator[tuple[Any, EnvState]]:
    sensor = probe.make()
    for env_state in iterate_env_states():
        agent, grid = env_state["agent_state"], env_state["grid_size"]
        x, y = agent.position.x, agent.position.y
        probe.doing = f"get_observation() at ({x}, {y}) heading {agent.orientation:g} on {grid.width} x {grid.height}"
        yield sensor, env_state


def _overlap(one: Any, other: Any) -> bool:
    return any(np.shares_memory(a, b) for a in iterate_arrays(one) for b in iterate_arrays(other))


@CHECKS.add("SENSOR-1")
def the_space_is_one_gymnasium_space(probe: CheckProbe) -> str | None:
    sensor = probe.make()
    probe.doing = "observation_space, read twice"
    space = sensor.observation_space
    if not isinstance(space, gym.Space):
        return f"is {shorten(space)}, no gymnasium space"
    return None if sensor.observation_space is space else "gives two different instances"


@CHECKS.add("SENSOR-2", _smells)
def every_observation_lies_in_the_space(sensor: Any, env_state: EnvState) -> str | None:
    observation = sensor.get_observation(env_state)
    return None if sensor.observation_space.contains(observation) else f"returns {shorten(observation)}"


@CHECKS.add("SENSOR-3", with_twin(_smells))
def the_same_state_gives_the_same_observation(sensor: Any, env_state: EnvState, twin: Any) -> str | None:
    one, *others = (model.get_observation(env_state) for model in (sensor, sensor, twin))
    differing = [other for other in others if not is_identical(one, other)]
    return f"gives {shorten(one)}, then {shorten(differing[0])}" if differing else None


@CHECKS.add("SENSOR-4", _smells)
def observing_changes_nothing(sensor: Any, env_state: EnvState) -> str | None:
    handed: Any = {**env_state}
    agent, values = copy.deepcopy(env_state["agent_state"]), env_state["plume_field"].field_array.copy()
    sensor.get_observation(handed)
    if handed.keys() != env_state.keys() or any(handed[key] is not value for key, value in env_state.items()):
        return "changes the dict that it was given"
    if env_state["agent_state"] != agent:
        return "changes the agent's state"
    return None if is_identical(env_state["plume_field"].field_array, values) else "changes the field"


@CHECKS.add("SENSOR-5", _smells)
def every_observation_is_fresh(sensor: Any, env_state: EnvState) -> str | None:
    once, again = (sensor.get_observation(env_state) for _ in range(2))
    if _overlap(once, env_state["plume_field"].field_array):
        return "returns a view of the field"
    return "returns the same array twice" if _overlap(once, again) else None


@CHECKS.add("SENSOR-7")
def a_memory_is_left_as_it_was(probe: CheckProbe) -> str | None:
    memory = None
    for sensor, env_state in _smells(probe):
        if not isinstance(sensor, RecallingModel):
            raise CannotTell("the sensor has no method `observe`, so it remembers nothing")
        before = copy.deepcopy(memory)
        observation, remembered = sensor.observe(env_state, memory)
        if not is_identical(memory, before):
            return f"observe() changes the memory that it was given: {shorten(before)} became {shorten(memory)}"
        if _overlap(observation, remembered):
            return "the observation is an array that observe() also remembers"
        other = sensor.get_observation({**env_state, "memory": memory})
        if not is_identical(observation, other):
            return f"observe() gives {shorten(observation)}, not {shorten(other)}"
        memory = remembered
    return None


# ---------------------------------------------------------------------------------------------------------- rewards
Step = tuple[AgentState, AgentState, RampField]


def _steps(probe: CheckProbe) -> Iterator[tuple[Any, Step]]:
    reward_fn = probe.make()
    for step in iterate_steps():
        (here, there), grid = (state.position for state in step[:2]), step[2].grid_size
        goal = ", goal reached" if step[1].goal_reached else ""
        probe.doing = f"step from ({here.x}, {here.y}) to ({there.x}, {there.y}) on {grid.width} x {grid.height}{goal}"
        yield reward_fn, step


def _value(reward_fn: Any, step: Step) -> Any:
    before, after, field = step
    return reward_fn.compute_reward(before, 0, after, field)


@CHECKS.add("REWARD-1", _steps)
def the_reward_is_a_real_number(reward_fn: Any, step: Step) -> str | None:
    reward = _value(reward_fn, step)
    return None if isinstance(reward, Real) and not isinstance(reward, bool) else f"is {shorten(reward)}"


@CHECKS.add("REWARD-2", _steps)
def the_reward_is_finite(reward_fn: Any, step: Step) -> str | None:
    reward = _value(reward_fn, step)
    return None if math.isfinite(reward) else f"is {shorten(reward)}"


@CHECKS.add("REWARD-3", with_twin(_steps))
def the_same_step_gives_the_same_reward(reward_fn: Any, step: Step, twin: Any) -> str | None:
    one, *others = (_value(function, step) for function in (reward_fn, reward_fn, twin))
    differing = [other for other in others if not is_identical(one, other)]
    return f"is {shorten(one)}, then {shorten(differing[0])}" if differing else None


@CHECKS.add("REWARD-4")
def valuing_a_step_changes_nothing(probe: CheckProbe) -> str | None:
    earlier = None
    for reward_fn, step in _steps(probe):
        states, values = copy.deepcopy(step[:2]), step[2].field_array.copy()
        reward = _value(reward_fn, step)
        if step[:2] != states:
            return "changes the states that it was given"
        if not is_identical(step[2].field_array, values):
            return "changes the field"
        if earlier is not None and not is_identical(_value(reward_fn, earlier[0]), earlier[1]):
            return "the step asked about before is now valued differently"
        earlier = step, reward
    return None


# ----------------------------------------------------------------------------------------------------------- fields
MOST_CELLS: Final = 1024
"""All cells of a grid are looked at up to so many, then the rim and a lattice."""
INSTANTS: Final = 4
SEEDS: Final = (0, 1)


def _varies(plume: Any) -> bool:
    return hasattr(plume, "begin") and hasattr(plume, "advance")


def _instants(plume: Any, seed: int) -> Iterator[tuple[str, Any]]:
    """Yield (words, field) for a field, or for the first instants of a plume."""
    if not _varies(plume):
        yield "the field", plume
        return
    chance = Chance(seed)
    field = plume.begin(chance)
    yield f"seed {seed}, step 0", field
    for step in range(1, INSTANTS):
        field = plume.advance(field, chance, step)
        yield f"seed {seed}, step {step}", field


def _fields(probe: CheckProbe) -> Iterator[tuple[Any, Any]]:
    """Yield the plume with each of its first instants."""
    plume = probe.make()
    for seed in SEEDS if _varies(plume) else SEEDS[:1]:
        for words, field in _instants(plume, seed):
            probe.doing = words
            yield plume, field


def _require_variation(plume: Any) -> None:
    if not _varies(plume):
        raise CannotTell("the field does not vary: it has no `begin` and `advance`")


def _iterate_inspected_cells(grid: GridSize) -> Iterator[Coordinates]:
    """Yield all cells of a small grid, the rim and a lattice of a large one."""
    if grid.total_cells() <= MOST_CELLS:
        return iterate_cells(grid)
    columns = sorted({0, grid.width - 1, *range(0, grid.width, -(-grid.width // 16))})
    rows = sorted({0, grid.height - 1, *range(0, grid.height, -(-grid.height // 16))})
    return (Coordinates(x, y) for y in rows for x in columns)


@CHECKS.add("FIELD-1", _fields)
def the_field_is_a_float64_array_of_the_grid(plume: Any, field: Any) -> str | None:
    values, grid = field.field_array, field.grid_size
    if not isinstance(values, np.ndarray) or values.dtype != np.float64:
        return f"field_array is {shorten(values)}, no float64 array"
    expected = (grid.height, grid.width)
    return None if values.shape == expected else f"field_array has the shape {values.shape}, expected {expected}"


@CHECKS.add("FIELD-2", _fields)
def all_values_lie_between_0_and_1(plume: Any, field: Any) -> str | None:
    values = np.asarray(field.field_array)
    # A NaN compares false with everything.
    outside = np.argwhere(~((values >= 0.0) & (values <= 1.0)))
    return f"[{', '.join(map(str, outside[0]))}] is {values[tuple(outside[0])]}" if len(outside) else None


@CHECKS.add("FIELD-3", _fields)
def the_array_is_read_only(plume: Any, field: Any) -> str | None:
    return "field_array is writeable" if field.field_array.flags.writeable else None


@CHECKS.add("FIELD-4", _fields)
def a_sample_is_what_the_array_holds(plume: Any, field: Any) -> str | None:
    values = field.field_array
    for cell in _iterate_inspected_cells(field.grid_size):
        sampled, held = field.sample(cell), values[cell.y, cell.x]
        if not isinstance(sampled, float) or sampled != held:
            return f"sample at ({cell.x}, {cell.y}) is {shorten(sampled)}, field_array[{cell.y}, {cell.x}] is {held}"
    return None


@CHECKS.add("FIELD-5", _fields)
def looking_changes_nothing(plume: Any, field: Any) -> str | None:
    before = np.array(field.field_array)
    once, again = ([field.sample(cell) for cell in _iterate_inspected_cells(field.grid_size)] for _ in range(2))
    if not is_identical(once, again):
        return "a second sample of the same cells differs"
    return None if is_identical(np.array(field.field_array), before) else "field_array changed after sampling"


@CHECKS.add("FIELD-6")
def the_same_seed_gives_the_same_plume(probe: CheckProbe) -> str | None:
    plume, twin = probe.make(), probe.make()
    _require_variation(plume)
    for seed in SEEDS:
        for (words, one), (_, other) in zip(_instants(plume, seed), _instants(twin, seed), strict=True):
            probe.doing = words
            if not is_identical(np.asarray(one.field_array), np.asarray(other.field_array)):
                return "two plumes of the kind differ"
    return None


@CHECKS.add("FIELD-7")
def advancing_leaves_its_start_as_it_was(probe: CheckProbe) -> str | None:
    plume = probe.make()
    _require_variation(plume)
    for seed in SEEDS:
        chance, field = Chance(seed), plume.begin(Chance(seed))
        for step in range(1, INSTANTS):
            probe.doing = f"seed {seed}, advance to step {step}"
            before = np.array(field.field_array)
            after, again = (plume.advance(field, chance, step) for _ in range(2))
            if not is_identical(np.array(field.field_array), before):
                return "changes the field that it was given"
            if not is_identical(np.asarray(after.field_array), np.asarray(again.field_array)):
                return "done twice from the same field, it gives two different fields"
            field = after
    return None


@CHECKS.add("FIELD-8", _fields)
def every_instant_covers_the_grid(plume: Any, field: Any) -> str | None:
    _require_variation(plume)
    return None if field.grid_size == plume.grid_size else f"covers {field.grid_size}, not {plume.grid_size}"


@CHECKS.add("FIELD-SAMPLE-P1", _fields)
def a_sample_off_the_grid_is_an_index_error(plume: Any, field: Any) -> str | None:
    width, height = field.grid_size.width, field.grid_size.height
    for x, y in ((-1, 0), (0, -1), (width, 0), (0, height), (-1, -1), (width, height)):
        found = expect_refusal((IndexError,), field.sample, Coordinates(x, y))
        if found is not None:
            return f"sample at ({x}, {y}) {found}"
    return None
