"""The lifecycle of an environment: which call is legal in which state, as one table.

Rule 1: a transition that is not in `TABLE` does not exist. The guard, the diagram in the docs, the clauses and the
    tests are derived from it.
Rule 2: this file knows states and methods, never an environment's dynamics, and does no I/O.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from proctor.errors import StateError


class EnvironmentState(StrEnum):
    """Where an environment stands between two calls."""

    CREATED = "created"
    READY = "ready"
    TERMINATED = "terminated"
    TRUNCATED = "truncated"
    CLOSED = "closed"


class LifecycleMethod(StrEnum):
    """The calls that the lifecycle judges."""

    RESET = "reset"
    STEP = "step"
    RENDER = "render"
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class LifecycleTransition:
    """One row: `method` called in `source` leads to `target`, or to a StateError where `target` is None."""

    rule: str
    source: EnvironmentState
    method: LifecycleMethod
    target: EnvironmentState | None
    when: str = ""


CREATED, READY, TERMINATED, TRUNCATED, CLOSED = EnvironmentState
RESET, STEP, RENDER, CLOSE = LifecycleMethod

TABLE: Final = (
    LifecycleTransition("RESET-FROM-CREATED", CREATED, RESET, READY, "seed valid"),
    LifecycleTransition("RESET-FROM-READY", READY, RESET, READY, "seed valid"),
    LifecycleTransition("RESET-AFTER-EPISODE", TERMINATED, RESET, READY, "seed valid"),
    LifecycleTransition("RESET-AFTER-EPISODE", TRUNCATED, RESET, READY, "seed valid"),
    LifecycleTransition("NO-RESET-AFTER-CLOSE", CLOSED, RESET, None),
    LifecycleTransition("STEP-CONTINUE", READY, STEP, READY, "no end"),
    LifecycleTransition("STEP-TERMINATE-GOAL", READY, STEP, TERMINATED, "terminated"),
    LifecycleTransition("STEP-TRUNCATE", READY, STEP, TRUNCATED, "truncated, not terminated"),
    LifecycleTransition("NO-STEP-BEFORE-RESET", CREATED, STEP, None),
    LifecycleTransition("NO-STEP-AFTER-END", TERMINATED, STEP, None),
    LifecycleTransition("NO-STEP-AFTER-END", TRUNCATED, STEP, None),
    LifecycleTransition("NO-STEP-AFTER-CLOSE", CLOSED, STEP, None),
    LifecycleTransition("RENDER", READY, RENDER, READY),
    LifecycleTransition("RENDER", TERMINATED, RENDER, TERMINATED),
    LifecycleTransition("RENDER", TRUNCATED, RENDER, TRUNCATED),
    LifecycleTransition("NO-RENDER-BEFORE-RESET", CREATED, RENDER, None),
    LifecycleTransition("NO-RENDER-AFTER-CLOSE", CLOSED, RENDER, None),
    LifecycleTransition("CLOSE", CREATED, CLOSE, CLOSED),
    LifecycleTransition("CLOSE", READY, CLOSE, CLOSED),
    LifecycleTransition("CLOSE", TERMINATED, CLOSE, CLOSED),
    LifecycleTransition("CLOSE", TRUNCATED, CLOSE, CLOSED),
    LifecycleTransition("CLOSE-AGAIN", CLOSED, CLOSE, CLOSED),
)

REFUSALS: Final = {(row.source, row.method): row for row in TABLE if row.target is None}


def reachable(source: EnvironmentState) -> frozenset[EnvironmentState]:
    """Return the states that one legal call can lead to from `source`."""
    return frozenset(row.target for row in TABLE if row.source is source and row.target is not None)


def guard(state: EnvironmentState, method: LifecycleMethod) -> None:
    """Raise a StateError that names the rule if `method` is not legal in `state`."""
    row = REFUSALS.get((state, method))
    if row is not None:
        legal = ", ".join(f"{name}()" for name in LifecycleMethod if (state, name) not in REFUSALS)
        raise StateError(
            f"{method}() is not legal when the environment is {state}",
            found=str(state),
            expected=f"{' or '.join(sorted(_sources(method)))} (legal now: {legal})",
            clause=row.rule,
        )


def _sources(method: LifecycleMethod) -> set[EnvironmentState]:
    return {state for state in EnvironmentState if (state, method) not in REFUSALS}


# For hot paths: the one state in which step() is legal, and where each pair of flags leads.
(STEPPABLE,) = _sources(STEP)
AFTER_STEP: Final = {
    (False, False): READY,
    (False, True): TRUNCATED,
    (True, False): TERMINATED,
    (True, True): TERMINATED,
}


def diagram() -> str:
    """Return the table as a Mermaid state diagram; refused calls are left out, calls that keep a state are loops."""
    lines = ["stateDiagram-v2", f"    [*] --> {CREATED.name}: __init__()"]
    for row in TABLE:
        if row.target is not None:
            condition = f" [{row.when}]" if row.when else ""
            lines.append(f"    {row.source.name} --> {row.target.name}: {row.method}(){condition}")
    lines.append(f"    {CLOSED.name} --> [*]")
    return "\n".join(lines) + "\n"
