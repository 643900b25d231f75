"""Governance of one server: its policy, the governors of its episodes, and its operator, who reads, answers, approves, alerts, clears, revokes.

Rule 1: an operator never resets and never steps. What it does is a packet or a record of an episode, judged like any other.
Rule 2: an act does not wait for the agent: it is judged at once, whatever call runs.
Rule 3: an act names its episode by session and epoch, and an answer its question; it never reaches another one.
Rule 4: what cannot be done is a `RequestRefused` with a code; what the judge refuses is an answer (`Done`).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from proctor.contracts.tools import Tool
from proctor.models.control import Code
from proctor.models.events import EpisodeClosed, PacketJudged
from proctor.models.operator import Done, GovernedSession, InEpisode, JudgedPage, NamedQuestion, Waiting
from proctor.models.wire import PLAIN
from proctor.server.governed.governance_tools import GOVERNANCE_TOOL_NAMES
from proctor.server.governed.governor import Governor, Registry
from proctor.server.governed.operator_actions import OperatorActions
from proctor.server.governed.packet_stream import PacketLimits
from proctor.server.governed.policy import GovernancePolicy
from proctor.server.runtime.results import RequestError, make_refusal
from proctor.server.sessions.session import Session
from proctor.server.sessions.tool_results import encode_first_observation

MOST_ROWS: Final = 1000
"""Of one answer to `watch`."""
LONGEST_WAIT: Final = 60.0
RevokeGrant = Callable[[Governor, str], Awaitable[bool]]
"""Takes a grant of the governor's session back; says whether it was live."""
NameAgents = Callable[[Governor], dict[str, str]]
"""What the agents of the governor's episode are called, by their grants."""


class Operator:
    """What an operator can do; `revoke_grant` and `agents_of` are set by whoever knows the grants."""

    def __init__(self, registry: Registry[Governor]) -> None:
        self._registry = registry
        self.revoke_grant: RevokeGrant | None = None
        self.agents_of: NameAgents = lambda _: {}

    # -------------------------------------------------------------------------------------------------------- reading
    def pending(self) -> list[Waiting]:
        """Return what waits for an operator, the oldest first."""
        found = [waiting for governor in self._registry for waiting in self._name_agents(governor)]
        return sorted(found, key=lambda waiting: waiting.since)

    def sessions(self) -> list[GovernedSession]:
        """Return how every governed episode stands that runs, in the order of their beginnings."""
        return [replace(each.standing(), agent=self._agents(each)) for each in self._registry]

    async def watch(self, after: int = 0, wait_seconds: float = 20.0) -> JudgedPage:
        """Return the lines after row `after` (each a JudgedRow), as soon as there are some or the wait is over.

        Who has seen more rows than there are has seen another run of the server, and is told at once.
        """
        rows = self._registry.rows
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(max(wait_seconds, 0.0), LONGEST_WAIT)
        while True:
            page = rows.after(after, MOST_ROWS)
            left = deadline - loop.time()
            if page.rows or page.missed or left <= 0 or after > rows.last:
                return JudgedPage([Raw(row) for row in page.rows], rows.last, page.missed, self._registry.boot)
            await rows.wait_for_change(left)

    # -------------------------------------------------------------------------------------------------------- answers
    async def answer(self, asked: NamedQuestion, *, choice: str | None = None, text: str = "") -> Done:
        """Answer an escalation, by the id of one of its options, in words, or both."""
        if choice is None and not text:
            raise make_refusal(Code.VALIDATION_ERROR, "an answer says something", expected="a choice, a text, or both")
        return await self._find_actions(asked).answer(asked.id, choice, text)

    async def approve(
        self, asked: NamedQuestion, *, uses: int | None = None, life_seconds: float | None = None, text: str = ""
    ) -> Done:
        """Issue the token that was asked for; `uses` and `life_seconds` may make it smaller than that."""
        return await self._find_actions(asked).approve(asked.id, uses, life_seconds, text)

    async def deny(self, asked: NamedQuestion, *, text: str = "") -> Done:
        """Refuse the token that was asked for."""
        return await self._find_actions(asked).deny(asked.id, text)

    # ----------------------------------------------------------------------------------------------------------- acts
    async def alert(self, episode: InEpisode, severity: str, summary: str) -> Done:
        """State an IntegrityAlertPacket in the episode; CRITICAL is safe mode, and stops its agents at once."""
        return await self._find_governor(episode).acts.alert(severity, summary)

    async def clear(self, episode: InEpisode, summary: str = "") -> Done:
        """Lift the safe mode of the episode."""
        return await self._find_governor(episode).acts.clear(summary)

    async def revoke(self, episode: InEpisode, *, token_id: str | None = None, grant: str | None = None) -> Done:
        """Take a token back, or an agent's grant; exactly one of the two is named."""
        if (token_id is None) == (grant is None):
            raise make_refusal(
                Code.VALIDATION_ERROR, "one thing is revoked at a time", expected="a token_id or a grant"
            )
        governor = self._find_governor(episode)
        if token_id is not None:
            return await governor.acts.revoke(token_id)
        return await self._revoke_grant(governor, grant or "")

    async def approve_budget(
        self,
        episode: InEpisode,
        *,
        token_budget: int = 0,
        tool_call_budget: int = 0,
        time_budget_seconds: int = 0,
        note: str = "",
    ) -> Done:
        """Add to what may be spent in the episode."""
        return await self._find_governor(episode).acts.approve_budget(
            token_budget, tool_call_budget, time_budget_seconds, note
        )

    # --------------------------------------------------------------------------------------------------------- inside
    def _name_agents(self, governor: Governor) -> list[Waiting]:
        """Return what waits in one episode, each with the name of who asks."""
        waiting = governor.acts.waiting()
        agents = self.agents_of(governor) if waiting else {}
        return [replace(each, agent=agents.get(each.grant or "", "")) for each in waiting]

    def _agents(self, governor: Governor) -> str:
        return ", ".join(dict.fromkeys(filter(None, self.agents_of(governor).values())))

    async def _revoke_grant(self, governor: Governor, grant: str) -> Done:
        live = self.revoke_grant is not None and await self.revoke_grant(governor, grant)
        reason = "" if live else "there is no such grant that lives"
        return governor.acts.report(accepted=live, reason=reason)

    def _find_governor(self, episode: InEpisode) -> Governor:
        """Return the governor of the episode that an act names, or refuse: another one runs, or none."""
        found = self._registry.find(episode.session)
        if found is None:
            raise make_refusal(
                Code.VALIDATION_ERROR,
                "there is no such session with a governed episode",
                expected="one that `sessions` lists",
            )
        if found.epoch != episode.epoch:
            raise make_refusal(
                Code.STALE_EPOCH,
                "this is not the episode that runs in the session",
                expected=f"epoch {found.epoch}",
            )
        return found

    def _find_actions(self, asked: NamedQuestion) -> OperatorActions:
        """Return the acts of the episode in which this question waits, or refuse: it does not."""
        found = self._registry.find(asked.session)
        if found is None or found.epoch != asked.epoch or not found.acts.lists(asked.id):
            raise make_refusal(
                Code.STALE_QUESTION,
                "this question does not wait: it was answered or withdrawn, or its episode is over",
                expected="one that `pending` lists",
            )
        return found.acts


class _ResetReply(Struct):
    """The part of a reset's reply that an agent may know."""

    observation: Raw


class Governance:
    """What governs the episodes of one server; `boot` names this run of it, `wall` tells the time, `clock` counts seconds."""

    def __init__(
        self,
        policy: GovernancePolicy,
        *,
        boot: str | None = None,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        packet_limits: PacketLimits | None = None,
    ) -> None:
        self.policy: Final = policy
        self.registry: Final[Registry[Governor]] = Registry(boot)
        self.operator: Final = Operator(self.registry)
        self._wall = wall
        self._clock = clock
        self._packet_limits = PacketLimits() if packet_limits is None else packet_limits

    def check(self, tools: Iterable[Tool]) -> None:
        """Raise a ValidationError if an environment with these tools cannot be governed by this policy."""
        self.policy.check(tools, GOVERNANCE_TOOL_NAMES)

    def check_grant(self, session: Session, names: Sequence[str] | None) -> None:
        """Refuse a grant of these tools (None: of all) with which an agent could come to where nothing leads on."""
        if session.spec.num_envs is not None:
            return
        tools = [tool for tool in session.spec.card.tools if names is None or tool.name in names]
        if not self.policy.lets_go_on(tools):
            raise make_refusal(
                Code.VALIDATION_ERROR,
                f"under the policy {self.policy.name} an agent needs a tool that only reads: without one it could not go on",
                expected="such a tool among the tools of the grant",
            )

    async def begin(self, session: Session, reply: bytes) -> None:
        """Govern the episode that a reset has begun; `reply` is the data of the reset's reply. A batch has no agents."""
        if session.spec.num_envs is not None:
            return
        observation = (
            msgspec.json.decode(reply, type=_ResetReply).observation if session.spec.encoding == PLAIN else None
        )
        await self._create_governor(session).begin(encode_first_observation(observation, session.standing))

    def restore_governor(
        self, session: Session, events: Sequence[PacketJudged], closed: EpisodeClosed | None = None
    ) -> Governor:
        """Return the governor of an episode that another run of the server began; nothing is put on record.

        `events` are the PacketJudged of the session's latest episode in order, `closed` is its EpisodeClosed if there is one;
        the session's epoch is set before. Once the resumption is on record, await `Governor.resumed`.
        """
        governor = self._create_governor(session)
        governor.restore(events, closed)
        return governor

    async def sweep(self) -> None:
        """Close the episodes whose environments have ended and whose time to be reviewed has passed."""
        for governor in self.registry:
            turn = governor.session.turn
            if not turn.locked():  # whoever has it will be done before the next look
                async with turn:
                    # What cannot be recorded has lost that one episode; the others have their turn all the same.
                    with suppress(RequestError):
                        await governor.wrap_up()

    def _create_governor(self, session: Session) -> Governor:
        return Governor(
            self.policy,
            session,
            self.registry,
            wall=self._wall,
            clock=self._clock,
            packet_limits=self._packet_limits,
        )
