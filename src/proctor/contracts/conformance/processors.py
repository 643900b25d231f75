"""The checks of the action processor's clauses, over every cell, heading and action of small grids."""

import copy
from collections.abc import Callable, Iterable
from typing import Any, Final

import gymnasium as gym

from proctor.contracts.conformance.parts import has_metadata, refused
from proctor.contracts.conformance.report import KEPT, Check, Outcome, Probe, short
from proctor.contracts.conformance.scopes import GRIDS, Move, members, moves, same, strangers
from proctor.contracts.spatial import AgentState, Coordinates, GridSize

_LARGE: Final = GridSize(10, 10)
_CORNERS: Final = ((0, 0), (9, 0), (0, 9), (9, 9))
_EDGES: Final = ((5, 0), (9, 5), (5, 9), (0, 5))
_NO_STATE: Final = (ValueError, TypeError, AttributeError)


def _each(probe: Probe, questions: Iterable[Move], problem: Callable[[Move], str | None]) -> Outcome:
    """Return the outcome of asking `problem` about every question until it finds one."""
    for move in questions:
        probe.doing = move
        found = problem(move)
        if found is not None:
            return probe.broken(found)
    return KEPT


def _place(state: Any) -> str:
    return f"leads to ({state.position.x}, {state.position.y})"


def space_is_a_gymnasium_space(probe: Probe) -> Outcome:
    """ACT-SPACE-C1."""
    space = probe.make().action_space
    probe.doing = "action_space"
    return KEPT if isinstance(space, gym.Space) else probe.broken(f"is {short(space)}, no gymnasium space")


def space_immutability(probe: Probe) -> Outcome:
    """ACT-SPACE-C2."""
    processor = probe.make()
    probe.doing = "action_space, read twice"
    before = processor.action_space
    return KEPT if processor.action_space is before else probe.broken("gives two different instances")


def every_member_of_the_space_is_an_action(probe: Probe) -> Outcome:
    """ACT-SPACE-C3."""
    processor = probe.make()

    def problem(move: Move) -> str | None:
        move.ask(processor)
        return None

    return _each(probe, moves(processor.action_space), problem)


def a_stranger_to_the_space_is_refused(probe: Probe) -> Outcome:
    """ACT-PROC-P1."""
    processor = probe.make()
    state = AgentState(Coordinates(0, 0))
    questions = (Move(action, state, GridSize(1, 1)) for action in strangers(processor.action_space))
    return _each(probe, questions, lambda move: refused((ValueError,), move.ask, processor))


def no_agent_state_is_refused(probe: Probe) -> Outcome:
    """ACT-PROC-P2."""
    processor = probe.make()
    for action in members(processor.action_space):
        for state in (None, "no state", (0, 0)):
            probe.doing = f"process_action({short(action)}, {state!r}, 1 x 1)"
            found = refused(_NO_STATE, processor.process_action, action, state, GridSize(1, 1))
            if found is not None:
                return probe.broken(found)
    return KEPT


def a_position_off_the_grid_goes_no_further(probe: Probe) -> Outcome:
    """ACT-PROC-P3."""
    processor = probe.make()

    def problem(move: Move) -> str | None:
        try:
            after = move.ask(processor)
        except (ValueError, IndexError):
            return None
        alone = after.position == move.state.position
        return None if alone or move.grid.contains(after.position) else _place(after)

    questions = (
        Move(action, AgentState(Coordinates(x, y), degrees), grid)
        for grid in GRIDS
        for x, y in ((-3, 0), (0, -3), (grid.width + 2, 0), (0, grid.height + 2))
        for degrees in (0.0, 90.0)
        for action in members(processor.action_space)
    )
    return _each(probe, questions, problem)


def the_result_is_a_valid_agent_state(probe: Probe) -> Outcome:
    """ACT-PROC-C1."""
    processor = probe.make()

    def problem(move: Move) -> str | None:
        after: Any = move.ask(processor)
        valid = (
            isinstance(after, AgentState)
            and isinstance(after.position, Coordinates)
            and type(after.position.x) is type(after.position.y) is int
            and 0.0 <= after.orientation < 360.0
        )
        return None if valid else f"leads to {short(after)}"

    return _each(probe, moves(processor.action_space), problem)


def _stays(probe: Probe, questions: Callable[[gym.Space[Any]], Iterable[Move]]) -> Outcome:
    processor = probe.make()

    def problem(move: Move) -> str | None:
        after = move.ask(processor)
        return None if move.grid.contains(after.position) else _place(after)

    return _each(probe, questions(processor.action_space), problem)


def the_result_lies_on_the_grid(probe: Probe) -> Outcome:
    """ACT-PROC-C2."""
    return _stays(probe, moves)


def _from_cells(spots: tuple[tuple[int, int], ...]) -> Callable[[gym.Space[Any]], list[Move]]:
    def questions(space: gym.Space[Any]) -> list[Move]:
        states = [AgentState(Coordinates(x, y), degrees) for x, y in spots for degrees in (0.0, 90.0, 180.0, 270.0)]
        return [Move(action, state, _LARGE) for state in states for action in members(space)]

    return questions


def corner_actions(probe: Probe) -> Outcome:
    """ACT-1, in the corners of a large grid."""
    return _stays(probe, _from_cells(_CORNERS))


def edge_actions(probe: Probe) -> Outcome:
    """ACT-1, at the edges of a large grid."""
    return _stays(probe, _from_cells(_EDGES))


def boundary_safety(probe: Probe) -> Outcome:
    """ACT-1."""
    ways = (moves, _from_cells(_CORNERS), _from_cells(_EDGES))
    return _stays(probe, lambda space: (move for questions in ways for move in questions(space)))


def asked_twice_it_answers_alike(probe: Probe) -> Outcome:
    """ACT-PROC-C3."""
    processor = probe.make()

    def problem(move: Move) -> str | None:
        once, again = move.ask(processor), move.ask(processor)
        return None if once == again else f"gives {short(once)}, then {short(again)}"

    return _each(probe, moves(processor.action_space), problem)


def the_result_is_a_new_value(probe: Probe) -> Outcome:
    """ACT-PROC-C4."""
    processor = probe.make()

    def problem(move: Move) -> str | None:
        return "returns the very state that came in" if move.ask(processor) is move.state else None

    return _each(probe, moves(processor.action_space), problem)


def determinism(probe: Probe) -> Outcome:
    """ACT-2."""
    processor, twin = probe.make(), probe.make()

    def problem(move: Move) -> str | None:
        one, other = move.ask(processor), move.ask(twin)
        return None if one == other else f"one processor gives {short(one)}, another of the kind {short(other)}"

    return _each(probe, moves(processor.action_space), problem)


def purity(probe: Probe) -> Outcome:
    """ACT-3."""
    processor = probe.make()
    questions = list(moves(processor.action_space, GRIDS))
    answers = []

    def changes(move: Move) -> str | None:
        before = copy.deepcopy((move.state, move.grid, move.action))
        answers.append(move.ask(processor))
        after = (move.state, move.grid, move.action)
        names = ("state", "grid", "action")
        changed = [name for name, old, new in zip(names, before, after, strict=True) if not same(old, new)]
        return f"changes the {changed[0]} that it was given" if changed else None

    def remembers(move: Move) -> str | None:
        earlier, now = answers.pop(), move.ask(processor)
        return None if earlier == now else f"gives {short(now)}, but gave {short(earlier)} before other calls"

    outcome = _each(probe, questions, changes)
    # Asked again backwards, an answer that depends on the calls in between differs.
    return outcome if outcome is not KEPT else _each(probe, reversed(questions), remembers)


def the_other_fields_are_kept(probe: Probe) -> Outcome:
    """ACT-4."""
    processor = probe.make()

    def problem(move: Move) -> str | None:
        after = move.ask(processor)
        for name in ("step_count", "total_reward", "goal_reached"):
            if getattr(after, name) != getattr(move.state, name):
                return f"{name} was {getattr(move.state, name)}, is {getattr(after, name)}"
        return None

    return _each(probe, moves(processor.action_space), problem)


def validate_action_consistency(probe: Probe) -> Outcome:
    """ACT-VALID."""
    processor = probe.make()
    space = processor.action_space
    for expected, actions in ((True, members(space)), (False, strangers(space))):
        for action in actions:
            probe.doing = f"validate_action({short(action)})"
            answer = processor.validate_action(action)
            if answer is not expected:
                return probe.broken(f"returns {short(answer)}; the space says {expected}")
    return KEPT


def metadata_names_type_parameters_and_movement(probe: Probe) -> Outcome:
    """ACT-META."""
    return has_metadata(probe, {"type": str, "parameters": dict, "movement_model": str})


CHECKS: Final[dict[str, Check]] = {
    "ACT-SPACE-C1": space_is_a_gymnasium_space,
    "ACT-SPACE-C2": space_immutability,
    "ACT-SPACE-C3": every_member_of_the_space_is_an_action,
    "ACT-PROC-P1": a_stranger_to_the_space_is_refused,
    "ACT-PROC-P2": no_agent_state_is_refused,
    "ACT-PROC-P3": a_position_off_the_grid_goes_no_further,
    "ACT-PROC-C1": the_result_is_a_valid_agent_state,
    "ACT-PROC-C2": the_result_lies_on_the_grid,
    "ACT-PROC-C3": asked_twice_it_answers_alike,
    "ACT-PROC-C4": the_result_is_a_new_value,
    "ACT-1": boundary_safety,
    "ACT-2": determinism,
    "ACT-3": purity,
    "ACT-4": the_other_fields_are_kept,
    "ACT-VALID": validate_action_consistency,
    "ACT-META": metadata_names_type_parameters_and_movement,
}
