"""What an environment offers to agents: tools, and what one call of a tool asks for.

Rule 1: a tool moves nothing. One that acts returns actions, and whoever called it carries them out, one step each, in
    order. So an agent's call goes the same way as an orchestrator's step.
Rule 2: what is told of a tool (`Tool`) is a value that can cross a pipe; who made it is not trusted, so a name that is
    no name, or one of `RESERVED`, is a ComponentError wherever a Tool is made.
Rule 3: arguments that do not fit are a ValidationError that says what is wrong and what would be right; nothing has run.
Rule 4: this file knows how a toolbox is used. How methods and action models become tools is said in `toolboxes`.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from proctor.errors import ComponentError, ValidationError
from proctor.models.wire import Action, Observation

NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
RESERVED: Final = frozenset({"reset", "step", "state", "close", "seed"})
"""What only an orchestrator does: no tool is called like that."""
MARK_ATTRIBUTE: Final = "__proctor_tool__"
SHORT: Final = 64
"""How much of an unknown name is repeated to whoever called it."""

MethodT = TypeVar("MethodT", bound=Callable[..., Any])


class ToolSafety(StrEnum):
    """Whether a tool only reads, or acts."""

    READ = "READ"
    WRITE = "WRITE"
    MIXED = "MIXED"
    """Acts, and is called for what it tells as much as for what it does."""


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """What is told of a tool."""

    name: str
    description: str
    """For a language model: what it does, what comes back, when not to use it."""
    safety: ToolSafety
    input_schema: dict[str, Any]
    """The JSON Schema of the arguments: an object that takes no others."""
    output_schema: dict[str, Any] | None = None
    """The JSON Schema of the value that it answers with, an object; None: it answers with an observation."""
    title: str | None = None
    destructive: bool = False
    max_arguments_bytes: int | None = None
    """How long the JSON text of the arguments may be, as far as the server allows it; None: as its limits say."""

    def __post_init__(self) -> None:
        most = self.max_arguments_bytes
        if most is not None and (type(most) is not int or most < 1):
            raise ComponentError("not a number of bytes", found=most, expected="max_arguments_bytes=, at least 1")
        if not NAME.fullmatch(self.name):
            raise ComponentError(
                "not a tool's name", found=self.name, expected="1 to 64 of a-z, 0-9 and _, the first of them a letter"
            )
        if self.name in RESERVED:
            raise ComponentError(
                "a tool has a reserved name",
                found=self.name,
                expected=f"another name than {', '.join(sorted(RESERVED))}, which are the orchestrator's: tool(..., name=)",
            )


class ToolPlan(msgspec.Struct, frozen=True):
    """What a call asks for; one of the three.

    `actions` are to be carried out. `value` is a JSON object, the answer. `seen` is the observation to show. Nothing of
    the three: the latest observation is to be shown, which whoever drives the environment remembers.
    """

    actions: tuple[Action, ...] = ()
    value: Any = None
    seen: Observation | None = None


PlanFunction: TypeAlias = Callable[[bytes], ToolPlan | Awaitable[ToolPlan]]
"""Reads a call's arguments, a JSON object, and returns what the call asks for."""


class Toolbox:
    """The tools of one environment, in a fixed order."""

    def __init__(self, plans: Iterable[tuple[Tool, PlanFunction]]) -> None:
        pairs = tuple(plans)
        self.tools: tuple[Tool, ...] = tuple(tool for tool, _ in pairs)
        self._plans = {tool.name: plan for tool, plan in pairs}
        if len(self._plans) < len(self.tools):
            names = [tool.name for tool in self.tools]
            raise ComponentError(
                "two tools have the same name",
                found=next(name for name in names if names.count(name) > 1),
                expected="a name of its own for every tool: tool(..., name=)",
            )

    def plan(self, name: str, arguments: bytes) -> ToolPlan | Awaitable[ToolPlan]:
        """Return what a call of the tool `name` asks for, or raise a ValidationError; nothing is carried out.

        It is awaitable where the tool's method is a coroutine. What the method itself raises leaves as it is.
        """
        plan = self._plans.get(name)
        if plan is None:
            known = f"one of {', '.join(self._plans)}" if self._plans else "nothing: there are no tools"
            raise ValidationError("there is no such tool", found=name[:SHORT], expected=known)
        return plan(arguments)

    def with_note(self, note: str) -> "Toolbox":
        """Return a toolbox whose tools all say `note` besides: what holds for this environment and not for its class."""
        return Toolbox(
            (msgspec.structs.replace(tool, description=f"{tool.description}\n\n{note}"), self._plans[tool.name])
            for tool in self.tools
        )


@dataclass(frozen=True, slots=True)
class ToolMark:
    """What the decorator was told."""

    safety: ToolSafety
    name: str | None
    title: str | None
    destructive: bool
    max_arguments_bytes: int | None = None


def tool(
    safety: ToolSafety,
    *,
    name: str | None = None,
    title: str | None = None,
    destructive: bool = False,
    max_arguments_bytes: int | None = None,
) -> Callable[[MethodT], MethodT]:
    """Make a method of an Environment a tool for agents; the method itself stays what it is.

    Its parameters are typed, and JSON can say them; its docstring, all of it, is what a language model reads. What it
    returns decides what it is. An Action, or a list or tuple of them: it acts (WRITE or MIXED). An Observation: it
    shows that one (READ). Anything else: it answers with the value (READ). `max_arguments_bytes` is for a tool that takes
    more than the 64 KiB of arguments that a server allows by default, or wants less.
    """
    if not isinstance(safety, ToolSafety):
        raise ComponentError(
            "a tool is not said to read or to act", found=safety, expected="@tool(ToolSafety.READ), ..."
        )

    def mark_method(method: MethodT) -> MethodT:
        if not inspect.isfunction(method):
            raise ComponentError(
                "only methods can be tools", found=method, expected="@tool(...) directly above a method that takes self"
            )
        setattr(method, MARK_ATTRIBUTE, ToolMark(safety, name, title, destructive, max_arguments_bytes))
        return method

    return mark_method
