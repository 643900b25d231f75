"""The checks of the action processor's clauses, over every cell, heading and action of small grids."""

import copy
from collections.abc import Callable, Iterable
from typing import Any, Final

import gymnasium as gym

from proctor.contracts.conformance.report import KEPT, Check, CheckProbe, Outcome, expect_refusal, has_metadata, shorten
from proctor.contracts.conformance.samples import (
    GRIDS,
    ProcessorCall,
    is_identical,
    iterate_moves,
    members,
    non_members,
)
from proctor.contracts.spatial import AgentState, Coordinates, GridSize

_LARGE: Final = GridSize(10, 10)
_CORNERS: Final = ((0, 0), (9, 0), (0, 9), (9, 9))
_EDGES: Final = ((5, 0), (9, 5), (5, 9), (0, 5))
_NO_STATE: Final = (ValueError, TypeError, AttributeError)


def _each(
    probe: CheckProbe, questions: Iterable[ProcessorCall], problem: Callable[[ProcessorCall], str | None]
) -> Outcome:
    """Return the outcome of asking `problem` about every question until it finds one."""
    for move in questions:
        probe.doing = move
        found = problem(move)
        if found is not None:
            return probe.broken(found)
    return KEPT


def _describe_position(state: Any) -> str:
    return f"leads to ({state.position.x}, {state.position.y})"


def space_is_a_gymnasium_space(probe: CheckProbe) -> Outcome:
    """ACT-SPACE-C1."""
    space = probe.make().action_space
    probe.doing = "action_space"
    return KEPT if isinstance(space, gym.Space) else probe.broken(f"is {shorten(space)}, no gymnasium space")


def space_immutability(probe: CheckProbe) -> Outcome:
    """ACT-SPACE-C2."""
    processor = probe.make()
    probe.doing = "action_space, read twice"
    before = processor.action_space
    return KEPT if processor.action_space is before else probe.broken("gives two different instances")


def every_member_of_the_space_is_an_action(probe: CheckProbe) -> Outcome:
    """ACT-SPACE-C3."""
    processor = probe.make()

    def problem(move: ProcessorCall) -> str | None:
        move.ask(processor)
        return None

    return _each(probe, iterate_moves(processor.action_space), problem)


def refuses_an_action_outside_the_space(probe: CheckProbe) -> Outcome:
    """ACT-PROC-P1."""
    processor = probe.make()
    state = AgentState(Coordinates(0, 0))
    questions = (ProcessorCall(action, state, GridSize(1, 1)) for action in non_members(processor.action_space))
    return _each(probe, questions, lambda move: expect_refusal((ValueError,), move.ask, processor))


def refuses_what_is_no_agent_state(probe: CheckProbe) -> Outcome:
    """ACT-PROC-P2."""
    processor = probe.make()
    for action in members(processor.action_space):
        for state in (None, "no state", (0, 0)):
            probe.doing = f"process_action({shorten(action)}, {state!r}, 1 x 1)"
            found = expect_refusal(_NO_STATE, processor.process_action, action, state, GridSize(1, 1))
            if found is not None:
                return probe.broken(found)
    return KEPT


def a_position_off_the_grid_goes_no_further(probe: CheckProbe) -> Outcome:
    """ACT-PROC-P3."""
    processor = probe.make()

    def problem(move: ProcessorCall) -> str | None:
        try:
            after = move.ask(processor)
        except (ValueError, IndexError):
            return None
        alone = after.position == move.state.position
        return None if alone or move.grid.contains(after.position) else _describe_position(after)

    questions = (
        ProcessorCall(action, AgentState(Coordinates(x, y), degrees), grid)
        for grid in GRIDS
        for x, y in ((-3, 0), (0, -3), (grid.width + 2, 0), (0, grid.height + 2))
        for degrees in (0.0, 90.0)
        for action in members(processor.action_space)
    )
    return _each(probe, questions, problem)


def the_result_is_a_valid_agent_state(probe: CheckProbe) -> Outcome:
    """ACT-PROC-C1."""
    processor = probe.make()

    def problem(move: ProcessorCall) -> str | None:
        after: Any = move.ask(processor)
        valid = (
            isinstance(after, AgentState)
            and isinstance(after.position, Coordinates)
            and type(after.position.x) is type(after.position.y) is int
            and 0.0 <= after.orientation < 360.0
        )
        return None if valid else f"leads to {shorten(after)}"

    return _each(probe, iterate_moves(processor.action_space), problem)


def _check_stays_on_grid(probe: CheckProbe, questions: Callable[[gym.Space[Any]], Iterable[ProcessorCall]]) -> Outcome:
    processor = probe.make()

    def problem(move: ProcessorCall) -> str | None:
        after = move.ask(processor)
        return None if move.grid.contains(after.position) else _describe_position(after)

    return _each(probe, questions(processor.action_space), problem)


def the_result_lies_on_the_grid(probe: CheckProbe) -> Outcome:
    """ACT-PROC-C2."""
    return _check_stays_on_grid(probe, iterate_moves)


def _make_calls_from_cells(spots: tuple[tuple[int, int], ...]) -> Callable[[gym.Space[Any]], list[ProcessorCall]]:
    def questions(space: gym.Space[Any]) -> list[ProcessorCall]:
        states = [AgentState(Coordinates(x, y), degrees) for x, y in spots for degrees in (0.0, 90.0, 180.0, 270.0)]
        return [ProcessorCall(action, state, _LARGE) for state in states for action in members(space)]

    return questions


def corner_actions(probe: CheckProbe) -> Outcome:
    """ACT-1, in the corners of a large grid."""
    return _check_stays_on_grid(probe, _make_calls_from_cells(_CORNERS))


def edge_actions(probe: CheckProbe) -> Outcome:
    """ACT-1, at the edges of a large grid."""
    return _check_stays_on_grid(probe, _make_calls_from_cells(_EDGES))


def boundary_safety(probe: CheckProbe) -> Outcome:
    """ACT-1."""
    ways = (iterate_moves, _make_calls_from_cells(_CORNERS), _make_calls_from_cells(_EDGES))
    return _check_stays_on_grid(probe, lambda space: (move for questions in ways for move in questions(space)))


def it_answers_alike_twice(probe: CheckProbe) -> Outcome:
    """ACT-PROC-C3."""
    processor = probe.make()

    def problem(move: ProcessorCall) -> str | None:
        once, again = move.ask(processor), move.ask(processor)
        return None if once == again else f"gives {shorten(once)}, then {shorten(again)}"

    return _each(probe, iterate_moves(processor.action_space), problem)


def the_result_is_a_new_value(probe: CheckProbe) -> Outcome:
    """ACT-PROC-C4."""
    processor = probe.make()

    def problem(move: ProcessorCall) -> str | None:
        return "returns the very state that came in" if move.ask(processor) is move.state else None

    return _each(probe, iterate_moves(processor.action_space), problem)


def determinism(probe: CheckProbe) -> Outcome:
    """ACT-2."""
    processor, twin = probe.make(), probe.make()

    def problem(move: ProcessorCall) -> str | None:
        one, other = move.ask(processor), move.ask(twin)
        return None if one == other else f"one processor gives {shorten(one)}, another of the kind {shorten(other)}"

    return _each(probe, iterate_moves(processor.action_space), problem)


def purity(probe: CheckProbe) -> Outcome:
    """ACT-3."""
    processor = probe.make()
    questions = list(iterate_moves(processor.action_space, GRIDS))
    answers = []

    def changes(move: ProcessorCall) -> str | None:
        before = copy.deepcopy((move.state, move.grid, move.action))
        answers.append(move.ask(processor))
        after = (move.state, move.grid, move.action)
        names = ("state", "grid", "action")
        changed = [name for name, old, new in zip(names, before, after, strict=True) if not is_identical(old, new)]
        return f"changes the {changed[0]} that it was given" if changed else None

    def remembers(move: ProcessorCall) -> str | None:
        earlier, now = answers.pop(), move.ask(processor)
        return None if earlier == now else f"gives {shorten(now)}, but gave {shorten(earlier)} before other calls"

    outcome = _each(probe, questions, changes)
    # Asked again backwards, an answer that depends on the calls in between differs.
    return outcome if outcome is not KEPT else _each(probe, reversed(questions), remembers)


def keeps_the_other_fields(probe: CheckProbe) -> Outcome:
    """ACT-4."""
    processor = probe.make()

    def problem(move: ProcessorCall) -> str | None:
        after = move.ask(processor)
        for name in ("step_count", "total_reward", "goal_reached"):
            if getattr(after, name) != getattr(move.state, name):
                return f"{name} was {getattr(move.state, name)}, is {getattr(after, name)}"
        return None

    return _each(probe, iterate_moves(processor.action_space), problem)


def validate_action_consistency(probe: CheckProbe) -> Outcome:
    """ACT-VALID."""
    processor = probe.make()
    space = processor.action_space
    for expected, actions in ((True, members(space)), (False, non_members(space))):
        for action in actions:
            probe.doing = f"validate_action({shorten(action)})"
            answer = processor.validate_action(action)
            if answer is not expected:
                return probe.broken(f"returns {shorten(answer)}; the space says {expected}")
    return KEPT


def metadata_names_type_parameters_and_movement(probe: CheckProbe) -> Outcome:
    """ACT-META."""
    return has_metadata(probe, {"type": str, "parameters": dict, "movement_model": str})


CHECKS: Final[dict[str, Check]] = {
    "ACT-SPACE-C1": space_is_a_gymnasium_space,
    "ACT-SPACE-C2": space_immutability,
    "ACT-SPACE-C3": every_member_of_the_space_is_an_action,
    "ACT-PROC-P1": refuses_an_action_outside_the_space,
    "ACT-PROC-P2": refuses_what_is_no_agent_state,
    "ACT-PROC-P3": a_position_off_the_grid_goes_no_further,
    "ACT-PROC-C1": the_result_is_a_valid_agent_state,
    "ACT-PROC-C2": the_result_lies_on_the_grid,
    "ACT-PROC-C3": it_answers_alike_twice,
    "ACT-PROC-C4": the_result_is_a_new_value,
    "ACT-1": boundary_safety,
    "ACT-2": determinism,
    "ACT-3": purity,
    "ACT-4": keeps_the_other_fields,
    "ACT-VALID": validate_action_consistency,
    "ACT-META": metadata_names_type_parameters_and_movement,
}
