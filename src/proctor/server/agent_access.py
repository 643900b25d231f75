"""All that the agent plane can do: look a token up, and use the tools of the one episode that it is good for.

Rule 1: there is no reset here, no state, no seed, no other session. What an agent is told is decided by `tool_results`.
Rule 2: an agent's mistake is an answer (`ToolResult`), never an exception.
Rule 3: an agent that goes away while its call runs does not break the episode: the action that runs is finished and counted,
    and what the call still had to do is left undone. So it is when the orchestrator wants to reset or to close: it does not
    wait for more than the action that runs.
Rule 4: in a governed episode a call is heard by the governor first, and by the environment only if the governor says so.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from msgspec import Struct

from proctor.access.limits import (
    DEEPEST,
    KIB,
    LogBudget,
    RequestLimits,
    has_duplicate_keys,
    has_infinite_number,
    has_more_values,
    is_too_deep,
)
from proctor.contracts.tools import Tool, max_argument_bytes, max_argument_depth, max_argument_values
from proctor.models.control import Code, Problem
from proctor.models.descriptions import describe_arguments
from proctor.server.governed.agent_calls import GovernedCall, OperatorQuestion, ToolExecution
from proctor.server.governed.governance_tools import status_fits, view_for_agent
from proctor.server.governed.governor import Governor
from proctor.server.governed.replies import REFUSED
from proctor.server.grants import AgentGrant, GrantRegistry
from proctor.server.net.metrics import Metrics
from proctor.server.runtime.results import RequestError, RequestFailed, RequestRefused, ToolOutcome, log_internal_error
from proctor.server.sessions.response_builder import Caller
from proctor.server.sessions.session import PendingRecord
from proctor.server.sessions.tool_results import (
    ToolResult,
    make_error_result,
    make_observation_schema,
    make_tool_result,
    write_instructions,
)

LOG: Final = logging.getLogger("proctor.agents")
MOST_WAITING: Final = 32
"""Calls of agents that may wait for their turn in one session."""
REST: Final = 3.0
MOST_REST_SECONDS: Final = 0.02
"""An agent that has several calls waiting at once rests between two of them: so many times as long as the last one took."""
SMALL_ARGUMENTS: Final = 4 * KIB
"""Arguments up to this are decoded by the agent plane; larger ones are checked here, and decoded by the tool alone."""
LARGE_ARGUMENTS: Final = 64 * KIB
"""Larger arguments are checked by a thread."""
VALUE_BYTES, SAID_VALUE_BYTES = 16, 32
"""A tool takes one value for so many bytes of arguments that it takes; more are said by a governed agent to the judge."""
PROGRESS_SECONDS: Final = 1.0
"""How long a call may wait for its agent to hear how far it is."""
ENDED: Final = Problem(
    "the episode is over for you: no tool does anything any more, and only the orchestrator can begin another",
    Code.ENDED,
)
BUSY: Final = Problem("too many calls wait in this episode", Code.BUSY, expected="one call at a time")
CLAIMED: Final = Problem("the orchestrator is about to end this episode", Code.BUSY)
GIVEN_UP: Final = Problem("the call was given up before its turn came", Code.CANCELLED)
Progress = Callable[[int, int], Awaitable[None]]
"""Told how many actions of a call are done, and of how many."""
WAITING: Final = ToolResult("", b"{}")
"""Of a call whose answer is still to come."""


class AgentTool(Struct, frozen=True):
    """A tool, what it answers with, and how many bytes of arguments its governor takes at most."""

    tool: Tool
    output_schema: dict[str, Any]
    packet_bytes: int | None = None

    def most_bytes(self, limits: RequestLimits) -> int:
        """Return how many bytes of arguments it takes: what its author says, else what they need; no more than a body, or a packet."""
        asked = self.tool.max_arguments_bytes
        if asked is None:
            asked = max(limits.max_arguments_bytes, max_argument_bytes(self.tool.input_schema) or 0)
        allowed = min(asked, limits.max_body_bytes)
        return allowed if self.packet_bytes is None else min(allowed, self.packet_bytes)

    def most_values(self, limits: RequestLimits) -> int:
        """Return how many values its arguments may have: in proportion to the bytes, or as many as its schema counts."""
        value_bytes = VALUE_BYTES if self.packet_bytes is None else SAID_VALUE_BYTES
        usual = max(LARGE_ARGUMENTS, self.most_bytes(limits)) // value_bytes
        return max(usual, max_argument_values(self.tool.input_schema) or 0)


class AgentView:
    """One grant, as the agent plane sees it."""

    def __init__(self, grant: AgentGrant, grants: GrantRegistry, metrics: Metrics, limits: RequestLimits) -> None:
        card = grant.session.spec.card
        self.grant: Final = grant.name
        governor = grant.governor
        if governor is None:
            self.instructions = write_instructions(card)
            tools = [(tool, tool.output_schema or make_observation_schema(card)) for tool in grant.tools]
        else:
            self.instructions, tools = view_for_agent(governor.stream, grant.tools)
        packet_bytes = None if governor is None else governor.stream.packet_limits.packet_bytes
        self.tools: Final = tuple(AgentTool(tool, schema, packet_bytes) for tool, schema in tools)
        self._by_name = {tool.name: tool for tool, _ in tools}
        self._depths = {tool.name: max_argument_depth(tool.input_schema) for tool, _ in tools}
        self._values = {each.tool.name: each.most_values(limits) for each in self.tools}
        self._log = LogBudget()
        self._governor = governor
        self._grant = grant
        self._grants = grants
        self._metrics = metrics

    async def call(self, tool: str, arguments: bytes, progress: Progress | None = None) -> ToolResult:
        """Use a tool; a call that is cancelled ends after the action that runs."""
        known = self._by_name.get(tool)
        if known is None:
            names = ", ".join(self._by_name)
            return self._refuse(Problem("there is no such tool", Code.VALIDATION_ERROR, expected=f"one of {names}"))
        misfit = None
        if len(arguments) > LARGE_ARGUMENTS:
            misfit = await asyncio.to_thread(self._find_misfit, tool, arguments)
        elif len(arguments) > SMALL_ARGUMENTS:
            misfit = self._find_misfit(tool, arguments)
        if misfit is not None:
            problem = f"these are no arguments of {tool}: {misfit}"
            expected = describe_arguments(known.input_schema)
            return self._refuse(Problem(problem, Code.VALIDATION_ERROR, expected=expected), tool)
        call = _ToolCall(self._grant, self._grants, known, arguments, progress)
        if self._governor is not None:
            call = _GovernedToolCall(self._governor, self._grant, self._grants, known, arguments, progress)
        work = asyncio.ensure_future(call.run())
        try:
            answer = await asyncio.shield(work)
            if answer.is_error and self._governor is not None:
                self._note(REFUSED, tool)
            return answer
        except asyncio.CancelledError:
            call.give_up()
            work.add_done_callback(_consume_result)
            raise
        except RequestError as problem:
            return self._refuse(problem.problem, tool)

    def _find_misfit(self, tool: str, arguments: bytes) -> str | None:
        most, depth = self._values[tool], self._depths[tool]
        if has_more_values(arguments, most):
            return f"they have more than {most} commas, colons, lists and objects"
        if depth is not None and is_too_deep(arguments, min(depth, DEEPEST)):
            return "lists or objects are nested deeper than it takes"
        if has_infinite_number(arguments):
            return "a number is too large"
        return "an object has the same key twice" if has_duplicate_keys(arguments) else None

    def take_call(self) -> float:
        """Take one call of the agent's rate and return 0.0, or return the seconds to wait."""
        return 0.0 if self._grant.bucket is None else self._grant.bucket.take()

    def _refuse(self, problem: Problem, tool: str = "an unknown tool") -> ToolResult:
        self._note(problem.code, tool)
        return make_error_result(problem)

    def _note(self, code: str, tool: str) -> None:
        self._metrics.count_error(code)
        fields = self._log.take()
        if fields is not None:
            LOG.info("a call of %s was refused: %s", tool, code, extra={"grant": self.grant, **fields})


class AgentAccess:
    """The agent plane's only way into the server."""

    def __init__(self, grants: GrantRegistry, metrics: Metrics, limits: RequestLimits | None = None) -> None:
        self._grants = grants
        self._metrics = metrics
        self._limits = RequestLimits() if limits is None else limits
        self._views: dict[str, AgentView] = {}
        grants.on_forget(self._forget)

    def find_view(self, secret: str | None) -> AgentView | None:
        """Return what the holder of this token may use; None if the token is good for nothing."""
        grant = self._grants.find(secret)
        if grant is None:
            return None
        view = self._views.get(grant.name)
        if view is None:
            view = self._views[grant.name] = AgentView(grant, self._grants, self._metrics, self._limits)
        return view

    def _forget(self, grant: str) -> None:
        self._views.pop(grant, None)

    def take_call(self, view: AgentView) -> float:
        """Take one call of the agent's rate and return 0.0, or return the seconds to wait."""
        return view.take_call()


class _ToolCall:
    """One use of a tool: what it has to do, one action after the other."""

    def __init__(
        self, grant: AgentGrant, grants: GrantRegistry, tool: Tool, arguments: bytes, progress: Progress | None
    ) -> None:
        self.given_up = False
        self._cut = ""
        """How much was done of what the call asked for, if it was not all."""
        self._grant = grant
        self._grants = grants
        self._session = grant.session
        self._tool = tool
        self._caller = Caller(grant.name, grant.agent, tool.name)
        self._arguments = arguments
        self._progress = progress
        self._pending: PendingRecord | None = None
        """Where the last action need not be safe before more is said of it."""

    def give_up(self) -> None:
        """Do no more than the action that runs: nobody waits for the answer."""
        self.given_up = True

    async def run(self) -> ToolResult:
        """Return what the agent is told, or raise why nothing was done."""
        session, grant = self._session, self._grant
        if session.callers >= MOST_WAITING:
            raise RequestRefused(BUSY)
        waits = grant.callers > 0
        session.callers += 1
        grant.callers += 1
        try:
            async with grant.turn:
                rest = grant.rest_until - time.perf_counter()
                if waits and rest > 0:
                    await asyncio.sleep(rest)
                async with session.turn:
                    began = time.perf_counter()
                    try:
                        return await self._in_turn()
                    finally:
                        ended = time.perf_counter()
                        grant.rest_until = ended + min(MOST_REST_SECONDS, REST * (ended - began))
        finally:
            session.callers -= 1
            grant.callers -= 1

    async def _in_turn(self) -> ToolResult:
        if self.given_up:
            raise RequestRefused(GIVEN_UP)
        if self._session.claims:
            raise RequestRefused(CLAIMED)
        self._check_holds()
        self._session.calls += 1
        try:
            return await self._use()
        except RequestError:
            raise
        except Exception as problem:  # noqa: BLE001  # whatever is wrong in the server, the agent is answered
            self._session.lose(Code.SESSION_ERROR, "the server failed")
            raise RequestFailed(log_internal_error(problem, lost=True)) from None

    async def _use(self) -> ToolResult:
        return await self._finish(await self._session.call(self._tool.name, self._arguments, self._caller))

    async def _finish(self, answer: ToolOutcome) -> ToolResult:
        session = self._session
        done, count = 1, 1 + len(answer.left)
        for action in answer.left:
            if self._pending is not None:
                await session.record(pending=self._pending)
            await self._tell_progress(done, count)
            if self._is_stopped():
                # An environment that has ended leaves nothing to do.
                self._cut = "" if session.standing.ended else _describe_progress(done, count)
                break
            try:
                answer = await session.act(action, self._caller, self._pending)
            except RequestError as problem:
                raise type(problem)(_add_progress(done, count, problem.problem)) from None
            done += 1
        counted = f"{_describe_progress(done, count)}. " if count > 1 else ""
        return make_tool_result(answer, self._tool, session.spec.card, session.standing, session.step_count, counted)

    def _is_stopped(self) -> bool:
        return self.given_up or bool(self._session.claims) or not self._grants.is_live(self._grant)

    def _check_holds(self) -> None:
        """Refuse what a grant does not allow any more."""
        if self._session.loss is None and not self._grants.is_live(self._grant):
            raise RequestRefused(ENDED)

    async def _tell_progress(self, done: int, count: int) -> None:
        if self._progress is None:
            await asyncio.sleep(0)
            return
        # An agent that does not listen does not hold its episode up, and whatever is wrong with its ears is its own affair.
        try:
            async with asyncio.timeout(PROGRESS_SECONDS):
                await self._progress(done, count)
        except Exception as problem:  # noqa: BLE001  # of a library that was given this agent's connection
            LOG.debug("progress was not heard: %s", type(problem).__name__, extra={"grant": self._grant.name})
            self._progress = None


class _GovernedToolCall(_ToolCall):
    """One use of a tool in a governed episode: heard by the governor, then carried out or waited for, if it is to be."""

    def __init__(
        self,
        governor: Governor,
        grant: AgentGrant,
        grants: GrantRegistry,
        tool: Tool,
        arguments: bytes,
        progress: Progress | None,
    ) -> None:
        super().__init__(grant, grants, tool, arguments, progress)
        self._governor = governor
        tools = {each.name: governor.policy.safety_of(each) for each in grant.tools}
        self._said = GovernedCall(governor.stream, grant.name, tool.name, arguments, tools)
        self._question: OperatorQuestion | None = None
        self._execution: ToolExecution | None = None

    async def run(self) -> ToolResult:
        """Return what the agent is told; whoever waits for an operator leaves the turn to others."""
        answer = await super().run()
        if self._question is None:
            return answer
        return await self._said.wait_for_answer(self._question, self._check_holds)

    def give_up(self) -> None:
        """As of any call; one that waits for an operator is woken, and ends."""
        super().give_up()
        self._governor.stream.notifier.notify()

    async def _use(self) -> ToolResult:
        heard = await self._governor.receive(self._said)
        if isinstance(heard, ToolExecution):
            return await self._carry_out(heard)
        if isinstance(heard, OperatorQuestion):
            self._question = heard
            return WAITING
        return heard

    async def _carry_out(self, execution: ToolExecution) -> ToolResult:
        self._execution = execution
        # The tool that is used, which a submitted directive names.
        self._tool = next(tool for tool in self._grant.tools if tool.name == execution.tool)
        self._caller = Caller(self._grant.name, self._grant.agent, execution.tool)
        pending = self._pending = PendingRecord()
        try:
            outcome = await self._session.call(execution.tool, execution.arguments, self._caller, pending)
            told = await self._finish(outcome)
        except RequestRefused as problem:
            answer = await execution.fail(problem.problem, pending)
        except RequestError:
            pending.abandon()
            raise
        else:
            answer = await execution.finish(told, pending, inside=status_fits(self._tool), cut=self._cut)
        await self._governor.wrap_up()
        return answer

    def _is_stopped(self) -> bool:
        return super()._is_stopped() or self._execution is None or not self._execution.holds

    def _check_holds(self) -> None:
        """As of any call, also while it waits; in the wrap-up an agent may still ask."""
        if self.given_up:
            raise RequestRefused(GIVEN_UP)
        self._governor.stream.check_alive()
        if not self._grants.holds(self._grant):
            raise RequestRefused(ENDED)


def _describe_progress(done: int, count: int) -> str:
    return f"{done} of {count} actions were carried out"


def _add_progress(done: int, count: int, problem: Problem) -> Problem:
    """Return the problem of a later action, which says that the ones before it were carried out."""
    return msgspec.structs.replace(problem, message=f"{_describe_progress(done, count)}, then: {problem.message}")


def _consume_result(work: "asyncio.Future[ToolResult]") -> None:
    """Look at the end of a call that nobody waits for any more, so that it is not reported as forgotten."""
    if not work.cancelled():
        work.exception()
