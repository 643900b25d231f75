"""All tests that the two contracts list by name exist, in the files that they name."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from proctor.contracts.conformance import ActionProcessorSuite

HERE = Path(__file__).parent

STATE_MACHINE = [
    "test_initial_state_is_created", "test_cannot_step_before_reset", "test_reset_transitions_to_ready",
    "test_step_keeps_ready_when_not_terminal", "test_step_transitions_to_terminated_on_goal",
    "test_step_transitions_to_truncated_on_timeout", "test_can_reset_from_terminated",
    "test_can_reset_from_truncated", "test_close_from_any_state", "test_cannot_reset_after_close",
    "test_cannot_step_after_close", "test_close_is_idempotent", "test_state_always_valid",
    "test_agent_state_exists_when_ready", "test_episode_count_monotonic", "test_step_count_non_negative",
    "test_step_count_resets_with_episode", "test_step_count_bounded", "test_reset_determinism",
    "test_episode_determinism",
]  # fmt: skip
INTERFACE = [
    "test_boundary_safety", "test_determinism", "test_purity", "test_space_immutability",
    "test_validate_action_consistency",
]  # fmt: skip
EDGES = ["test_corner_actions", "test_edge_actions"]


def names_in(file: str) -> set[str]:
    """Return the tests in a file, those in a class with the name of the class before them."""
    body = ast.parse((HERE / file).read_text("utf-8")).body
    classes = [("", body), *((f"{node.name}.", node.body) for node in body if isinstance(node, ast.ClassDef))]
    return {prefix + node.name for prefix, nodes in classes for node in nodes if isinstance(node, ast.FunctionDef)}


def test_the_tests_of_the_state_machine_exist() -> None:
    assert set(STATE_MACHINE) <= names_in("test_environment_state_transitions.py")


def test_the_universal_and_the_edge_tests_of_action_processors_exist() -> None:
    universal = {f"TestActionProcessorInterface.{name}" for name in INTERFACE}

    assert universal | set(EDGES) <= names_in("test_action_processor_interface.py")


@pytest.mark.parametrize("name", [*INTERFACE, *EDGES])
def test_the_suite_for_users_has_the_same_names(name: str) -> None:
    assert callable(getattr(ActionProcessorSuite, name))
