"""The lifecycle of an environment: which call is legal in which state, as one table.

Rule 1: a transition that is not in `TABLE` does not exist. The guard, the diagram in the docs, the clauses and the
    tests are derived from it.
Rule 2: this file knows states and methods, never an environment's dynamics, and does no I/O.
"""

from collections.abc import Iterable
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


def targets(source: EnvironmentState, method: LifecycleMethod) -> frozenset[EnvironmentState]:
    """Return the states that `method` can lead to from `source`; empty where the call is refused."""
    return frozenset(
        row.target for row in TABLE if row.source is source and row.method is method and row.target is not None
    )


def legal_methods(source: EnvironmentState) -> tuple[LifecycleMethod, ...]:
    """Return the calls that are legal in `source`."""
    return tuple(method for method in LifecycleMethod if targets(source, method))


def reachable(source: EnvironmentState) -> frozenset[EnvironmentState]:
    """Return the states that one legal call can lead to from `source`."""
    return frozenset().union(*(targets(source, method) for method in LifecycleMethod))


def guard(state: EnvironmentState, method: LifecycleMethod) -> None:
    """Raise a StateError that names the rule if `method` is not legal in `state`."""
    row = REFUSALS.get((state, method))
    if row is not None:
        legal = ", ".join(f"{name}()" for name in legal_methods(state))
        raise StateError(
            f"{method}() is not legal when the environment is {state}",
            found=str(state),
            expected=f"{' or '.join(sorted(sources(method)))} (legal now: {legal})",
            clause=row.rule,
        )


def sources(method: LifecycleMethod) -> frozenset[EnvironmentState]:
    """Return the states in which `method` is legal."""
    return frozenset(row.source for row in TABLE if row.method is method and row.target is not None)


def _after_step(*, terminated: bool, truncated: bool) -> EnvironmentState:
    when = "terminated" if terminated else "truncated, not terminated" if truncated else "no end"
    (row,) = (row for row in TABLE if row.method is STEP and row.when == when)
    return row.target or row.source


# For hot paths: the one state in which step() is legal, and where each pair of flags leads.
(STEPPABLE,) = sources(STEP)
AFTER_STEP: Final = {
    (terminated, truncated): _after_step(terminated=terminated, truncated=truncated)
    for terminated in (False, True)
    for truncated in (False, True)
}


def diagram(rows: Iterable[LifecycleTransition] = TABLE) -> str:
    """Return the table as a Mermaid state diagram; refused calls are left out, calls that keep a state are loops."""
    lines = ["stateDiagram-v2", f"    [*] --> {CREATED.name}: __init__()"]
    for row in rows:
        if row.target is not None:
            condition = f" [{row.when}]" if row.when else ""
            lines.append(f"    {row.source.name} --> {row.target.name}: {row.method}(){condition}")
    lines.append(f"    {CLOSED.name} --> [*]")
    return "\n".join(lines) + "\n"
