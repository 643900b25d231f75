"""Governed sessions without a server: an agent, an operator, and time that passes when it is told to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import msgspec

from proctor.episode.judge import Judge
from proctor.episode.settings import Limits
from proctor.episode.verdicts import Verdict
from proctor.models.control import Reset
from proctor.models.events import EpisodeClosed, EpisodeStepped, Event, PacketJudged
from proctor.models.operator import EpisodeAct
from proctor.server.agent_access import AgentView
from proctor.server.governed.governance import Governance, Operator
from proctor.server.governed.governor import Governor, find_governor
from proctor.server.governed.packet_stream import MOST_LISTED, PacketLimits
from proctor.server.governed.policy import GovernancePolicy, load_policy, policy_from_document
from proctor.server.grants import GrantService
from proctor.server.sessions.tool_results import ToolResult
from tests.server.bare_sessions import Room

PLUME = "proctor/PlumeSearch-v0"
POPPER = "proctor/ColumnPopper-v0"


def policy_with(name: str = "standard", **changes: Any) -> GovernancePolicy:
    """Return a shipped policy with some values changed, sections by name."""
    said = load_policy(name).as_document()
    for key, value in changes.items():
        said[key] = {**said[key], **value} if isinstance(value, dict) else value
    return policy_from_document(said)


class Hall(Room):
    """One governed session of an environment."""

    def __init__(
        self,
        target: str = PLUME,
        policy: str | GovernancePolicy = "standard",
        seed: int = 1,
        packet_limits: PacketLimits | None = None,
        boot: str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(target, **settings)
        self.policy = load_policy(policy) if isinstance(policy, str) else policy
        self.seed = seed
        self.governance = Governance(
            self.policy, boot=boot, wall=self.wall, clock=lambda: self.now, packet_limits=packet_limits
        )
        self.granting = GrantService(self.grants, wall=self.wall, governance=self.governance)

    @classmethod
    async def with_agent(cls, *args: Any, **settings: Any) -> tuple[Self, Agent]:
        """Return a hall in which an episode has begun, and an agent in it."""
        hall = cls(*args, **settings)
        return hall, await hall.agent()

    def wall(self) -> float:
        return self.now + 1e9

    @property
    def operator(self) -> Operator:
        return self.governance.operator

    @property
    def episode(self) -> EpisodeAct:
        """What an operator's act says of the episode that runs."""
        return EpisodeAct(self.session.name, self.session.epoch)

    @property
    def governor(self) -> Governor:
        governor = find_governor(self.session)
        assert governor is not None
        return governor

    async def begin(self, seed: int | None = None) -> None:
        if self.session.epoch == 0:
            await self.session.open()
        await self.granting.reset(self.session, Reset(seed=self.seed if seed is None else seed), 1)

    async def agent(self, **wish: Any) -> Agent:
        """Begin an episode if none runs, and return an agent in it."""
        if self.session.epoch == 0:
            await self.begin()
        return Agent(self.view(self.give(**wish)))

    @property
    def events(self) -> Sequence[Event]:
        return self.diary.events

    @property
    def lines(self) -> list[PacketJudged]:
        """The lines of the latest episode."""
        return [event for event in self.events if isinstance(event, PacketJudged) and event.epoch == self.session.epoch]

    @property
    def steps(self) -> int:
        return sum(isinstance(event, EpisodeStepped) for event in self.events)

    @property
    def ends(self) -> list[EpisodeClosed]:
        return [event for event in self.events if isinstance(event, EpisodeClosed)]


class Disk:
    """What a hall's recorder is like: it takes events in their order, and they are safe once it is let go."""

    def __init__(self, hall: Hall) -> None:
        self.waiting: list[asyncio.Future[None]] = []
        self._holds = False
        quick = hall.diary.record

        def record(event: Event) -> Any:
            quick(event)
            if not self._holds:
                return None
            self.waiting.append(asyncio.get_running_loop().create_future())
            return self.waiting[-1]

        hall.diary.record = record  # type: ignore[method-assign]  # a disk that takes its time

    def holds(self, count: int) -> bool:
        """Return whether so many events were held so far."""
        return len(self.waiting) == count

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold whatever is recorded until the end of the block."""
        self._holds = True
        try:
            yield
        finally:
            self._holds = False
            for each in self.waiting:
                if not each.done():
                    each.set_result(None)


async def until(true: Callable[[], object], tries: int = 1000) -> None:
    """Give way to others until something holds."""
    for _ in range(tries):
        if true():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came true")


async def turns(count: int = 50) -> None:
    """Let everybody go on who can."""
    for _ in range(count):
        await asyncio.sleep(0)


class Heard:
    """What an agent was told."""

    def __init__(self, told: ToolResult) -> None:
        self.text = told.text
        self.said: dict[str, Any] = json.loads(told.structured)
        self.refused = told.is_error

    @property
    def state(self) -> str:
        standing = self.said.get("governed", self.said)
        return str(standing["state"])

    @property
    def rules(self) -> list[str]:
        return list(self.said.get("rules", []))

    @property
    def code(self) -> str:
        return str(self.said["code"])


class Agent:
    """An agent that calls tools by name."""

    def __init__(self, view: AgentView) -> None:
        self.view = view

    async def use(self, tool: str, **arguments: Any) -> Heard:
        return Heard(await self.view.call(tool, json.dumps(arguments).encode()))

    async def believe(self, **changes: Any) -> Heard:
        return await self.use("believe", changes=changes or {"something": True})

    async def decide(self, outcome: str = "ACT", **more: Any) -> Heard:
        return await self.use("decide", outcome=outcome, summary="because", **more)

    async def permitted(self, *tools: str, **more: Any) -> Heard:
        """Go from a new observation to a token."""
        await self.believe()
        await self.decide()
        return await self.use("request_token", tools=list(tools), rationale="to go on", **more)

    async def submit(self, packet: dict[str, Any]) -> Heard:
        return await self.use("submit_packet", packet=packet)


def judged_again(
    lines: Sequence[PacketJudged], policy: GovernancePolicy, limits: Limits | None = None
) -> list[tuple[PacketJudged, Verdict]]:
    """Return the lines that were judged, each with the verdict of a judge who has never seen the episode."""
    judge = Judge(rules=policy.written_rules, limits=limits)
    return [(line, judge.apply(bytes(line.line))) for line in lines if line.judged]


def assert_judged_alike(lines: Sequence[PacketJudged], policy: GovernancePolicy) -> None:
    """Hold the verdicts on record against those of other judges: one that lists as many errors, and one that lists all."""
    for line, verdict in judged_again(lines, policy):
        assert verdict.accepted == line.accepted, line
        assert verdict.reason == line.reason
        assert list(verdict.rules)[: len(line.rules)] == line.rules
        assert list(verdict.pointers)[: len(line.pointers)] == line.pointers
    for line, verdict in judged_again(lines, policy, Limits(errors=MOST_LISTED)):
        assert verdict.accepted == line.accepted, line
        assert list(verdict.path) == line.path
        assert list(verdict.rules) == line.rules
        assert list(verdict.pointers) == line.pointers
        assert verdict.reason == line.reason
        assert verdict.packet_id == line.packet_id
        assert [f"{warning.rule}: {warning.reason}" for warning in verdict.warnings] == line.warnings
        if verdict.after is not None:
            assert verdict.after.state == line.state


def envelope(policy: GovernancePolicy, **sections: Any) -> dict[str, Any]:
    """Return a compliance envelope as the policy has it, with some sections changed."""
    defaults = policy.defaults
    said: dict[str, Any] = {
        "intent": {"summary": "to show something", "scope": "a test"},
        "stakes": msgspec.to_builtins(defaults.stakes),
        "quality": msgspec.to_builtins(defaults.quality),
        "budgets": msgspec.to_builtins(defaults.budgets),
        "epistemics": {
            "status": "DERIVED",
            "confidence": 0.5,
            "calibration_note": "none",
            "freshness_class": "OPERATIONAL",
            "assumptions": [],
        },
        "evidence": {"evidence_refs": [], "evidence_absent_reason": "a test"},
        "routing": {"task_class": "FIND"},
    }
    for name, section in sections.items():
        said[name] = {**said[name], **section}
    return said


def packet(policy: GovernancePolicy, kind: str, payload: Any, layer: Any = 5, **more: Any) -> dict[str, Any]:
    """Return a packet as an agent would submit it: `header` and envelope sections by name change it."""
    header = {"packet_type": kind, "layer_source": layer, **more.pop("header", {})}
    return {"header": header, "mcp": envelope(policy, **more), "payload": payload}


BELIEF = {
    "update_type": "new_belief",
    "belief_changes": [{"domain": "d", "key": "k", "new_value": 1, "prior_value": None}],
}
DECISION = {
    "decision_outcome": "ACT",
    "decision_summary": "go",
    "constraints_satisfied": {"constitutional_check": True, "budget_check": True, "tier_check": True},
}


def directive(tool: str, params: dict[str, Any], safety: str = "READ", token: str | None = None) -> dict[str, Any]:
    """Return the payload of a directive."""
    said: dict[str, Any] = {
        "task_id": "task_mine",
        "task_type": "tool_read" if safety == "READ" else "tool_write",
        "execution_method": {"method": "tool", "tool_id": tool, "tool_params": params},
        "tool_safety_class": safety,
    }
    return said if token is None else {**said, "authorization_token_id": token}
