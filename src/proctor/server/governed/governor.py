"""The governor of one episode: it hears its agents, has their words judged, and closes the packet episode.

Rule 1: whatever an agent calls is an answer (`Told`), an errand that is to be carried out, or a question that waits; never an
    exception, but for what cannot be put on record and for episodes that are over.
Rule 2: in safe mode every call is refused; only an operator's clear lifts it.
Rule 3: after the environment's end an agent may still believe, defer, cancel and escalate, until the episode is reviewed or
    `wrap_up_seconds` have passed. Then the packet episode is closed, and only then its grants die.
Rule 4: calls of agents are heard in the session's turn; an operator's acts are not.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from proctor.episode.states import Position
from proctor.episode.verdicts import Outcome
from proctor.models.control import Code, Problem
from proctor.models.events import EpisodeClosed, PacketJudged
from proctor.models.operator import GovernedSession
from proctor.server.answers import Refused
from proctor.server.companions import Conclusion
from proctor.server.governed import wording
from proctor.server.governed.acts import Acts, live_tokens
from proctor.server.governed.bell import Bell
from proctor.server.governed.errands import Errand, Errands, data_of
from proctor.server.governed.judging import Judging, attempt, too_long
from proctor.server.governed.policy import GovernancePolicy
from proctor.server.governed.questions import Question
from proctor.server.governed.registry import Registry
from proctor.server.governed.replies import Teller, Tools
from proctor.server.governed.sayings import Sayings
from proctor.server.governed.stream import PROCTOR, Bar, PacketLimits, Stream, Voice
from proctor.server.governed.tools import NAMES, Saying
from proctor.server.session import Session
from proctor.server.telling import Told

MOST_WAITING: Final = 32
"""Calls of agents that may wait for an operator in one episode."""
GLANCE_SECONDS: Final = 1.0
"""After so long a call that waits looks whether it may still wait: not everything that ends a wait rings a bell."""
REVIEWED: Final = (Position.REVIEW, Position.SETTLE)
"""Where an episode can be closed."""
BUSY: Final = Problem("too many calls wait for the operator in this episode", Code.BUSY, expected="one call at a time")
AFTER_END: Final = "the environment has ended"
CLOSED: Final = Problem("the episode is closed: there is nothing more to do", Code.ENDED)


class Governor:
    """The governor of one episode of a session; `wall` tells the time, `clock` counts seconds."""

    def __init__(
        self,
        policy: GovernancePolicy,
        session: Session,
        registry: "Registry[Governor]",
        *,
        wall: Callable[[], float],
        clock: Callable[[], float],
        packet_limits: PacketLimits,
    ) -> None:
        self.session: Final = session
        self.epoch: Final = session.epoch
        self.policy: Final = policy
        self.stream: Final = Stream(
            policy,
            session,
            session.epoch,
            wall=wall,
            rows=registry.rows,
            run=registry.mark,
            packet_limits=packet_limits,
        )
        self.bell: Final = Bell()
        self.acts: Final = Acts(self.stream, self.bell, lambda: not self._closing and session.loss is None)
        self.conclusion: Conclusion | None = None
        """What was said of the episode when it was closed."""
        self._judging = Judging(self.stream)
        self._errands = Errands(self.stream, self._judging, clock)
        self._sayings = Sayings(self.stream, self._judging, self._errands, self.acts)
        self._registry = registry
        self._clock = clock
        self._ended_at: float | None = None
        self._closing = False

    # -------------------------------------------------------------------------------------------------- how it stands
    @property
    def closed(self) -> bool:
        """Whether the packet episode is closed: its grants are dead."""
        return self.conclusion is not None

    @property
    def halted(self) -> bool:
        """Whether the episode is in safe mode."""
        return self.stream.halted

    def tools(self, names: Sequence[str] | None = None) -> Tools:
        """Return the environment's tools as the policy sees them; those with these names only, if some are given."""
        found = self.session.opening.card.tools
        return {each.name: self.policy.safety_of(each) for each in found if names is None or each.name in names}

    def standing(self) -> GovernedSession:
        """Return how the episode stands, for an operator."""
        stream = self.stream
        return GovernedSession(
            session=self.session.name,
            epoch=self.epoch,
            episode_id=self.session.episode_id,
            policy=self.policy.name,
            state=stream.standing.state,
            safe_mode=stream.halted,
            legal_next=list(stream.legal_next),
            obligations=stream.obligations,
            tokens=live_tokens(stream),
            steps=self.session.step_count,
            packets=stream.standing.packets,
            refusals=stream.memory.refusals,
            over=self.session.over,
            waiting=len(self.acts.waiting()),
        )

    # ------------------------------------------------------------------------------------------------------ beginning
    async def begin(self, observation: bytes) -> None:
        """Open the packet episode and state what was observed first (S0 to S1)."""
        self.session.companion = self
        settings = msgspec.to_builtins(self.policy.settings)
        await self.stream.declare(self.stream.record("open", settings, "system"))
        await self.stream.declare(wording.observation(self.stream, data_of(observation)))
        self._registry.add(self)

    def restore(self, events: Sequence[PacketJudged], closed: EpisodeClosed | None = None) -> None:
        """Take up the episode that these lines tell; `closed` if its end is on record, too.

        A ComponentError says that the lines get other verdicts than they did. Nothing is put on record.
        """
        self.session.companion = self
        self.stream.restore(events)
        if closed is None and self.stream.position is not Position.CLOSED:
            self._registry.add(self)
            return
        self._closing = True
        self.conclusion = Conclusion(
            Outcome.CONFORMING.value if closed is None else closed.outcome,
            self.stream.standing.state if closed is None else closed.state,
            () if closed is None else tuple(closed.obligations),
        )

    async def resumed(self) -> None:
        """State that directives whose end nobody knows are cancelled; called once after a restart, in the session's turn."""
        if not self.closed and self.session.loss is None:
            await self._errands.cancel()

    # -------------------------------------------------------------------------------------------------------- hearing
    async def heard(self, tool: str, arguments: bytes, voice: Voice, tools: Tools) -> Told | Errand | Question:
        """Hear what an agent calls, in the session's turn: one of its own tools, or one of the environment's."""
        self._check_open()
        teller = Teller(self.stream, tools)
        if len(arguments) > self.stream.packet_limits.packet_bytes:
            # Not read at all: what it says is of no interest.
            return await self._judging.barred(tool, too_long(arguments, self.stream), voice, teller, arguments)
        if self.stream.halted and tool != Saying.SUBMIT_PACKET:
            # What is submitted is held against GOV-1 first: who forges a clear is told that it is forged.
            return await self._sayings.halted(tool, arguments, voice, teller)
        try:
            if tool in NAMES:
                heard = await self._sayings.heard(Saying(tool), arguments, voice, tools, teller)
            else:
                self._sayings.check_running()
                heard = await self._errands.directed(tool, arguments, voice, tools)
        except Refused as problem:
            if problem.problem.code == Code.ENDED:
                await self.stream.bar(tool, attempt(tool, arguments), (Bar(Code.ENDED, AFTER_END),), voice)
            raise
        return await self._settled(heard, teller) if isinstance(heard, Told) else heard

    def goes_on(self, errand: Errand) -> bool:
        """Return whether an errand may go on: safe mode and an overrun void its directive."""
        return self._errands.goes_on(errand)

    async def done(self, errand: Errand, told: Told, *, inside: bool, cut: str = "") -> Told:
        """State that an errand was carried out, or cut short as `cut` says; return what the agent is told."""
        self._check_open()
        return await self._errands.done(errand, told, inside=inside, cut=cut)

    async def failed(self, errand: Errand, problem: Problem) -> Told:
        """State that an errand was not carried out to its end; return what the agent is told."""
        self._check_open()
        return await self._errands.failed(errand, problem)

    async def answered(self, question: Question, voice: Voice, tools: Tools, check: Callable[[], None]) -> Told:
        """Return an operator's answer, or that there is none yet; not in the session's turn.

        `check` refuses once the agent may not wait any more; it is asked whenever the bell rings, and now and then.
        """
        if self.bell.waiting >= MOST_WAITING:
            raise Refused(BUSY)
        loop = asyncio.get_running_loop()
        patience = min(question.seconds, self.policy.escalation.answer_seconds)
        deadline = loop.time() + patience
        while self.acts.waits(question.id) and not self._closing and not self.stream.halted:
            left = deadline - loop.time()
            if left <= 0:
                break
            await self.bell.heard(min(left, GLANCE_SECONDS))
            check()
        await self.stream.safe()
        self._check_open()
        check()
        return await self._sayings.answered(question, voice, Teller(self.stream, tools))

    # ----------------------------------------------------------------------------------------------------------- end
    async def wrap_up(self) -> None:
        """Close the episode if its environment has ended and it is reviewed, or if the time for that has passed.

        The turn is the caller's.
        """
        session = self.session
        if self._closing or not session.standing.ended or session.loss is not None or session.closed:
            return
        if self._ended_at is None:
            self._ended_at = self._clock()
        late = self._clock() - self._ended_at >= self.policy.wrap_up_seconds
        if late or self.stream.position in REVIEWED:
            await session.conclude("ended")

    async def conclude(self, reason: str) -> Conclusion:
        """Close the packet episode, where that is legal, and say how it stood; called by the session, in its turn."""
        if self.conclusion is not None:
            return self.conclusion
        self._closing = True
        # It stays, so that whoever asks how the episode ended is told.
        self.session.companion = self
        conclusion = Conclusion(Outcome.OPEN.value, self.stream.standing.state.value, tuple(self.stream.obligations))
        try:
            close = self.stream.record("close", {}, "system")
            if self.session.loss is None and self.stream.check(close).accepted:
                verdict = await self.stream.state(close, PROCTOR)
                conclusion = Conclusion(Outcome.CONFORMING.value, verdict.path[0].value)
        finally:
            self.conclusion = conclusion
            self._registry.remove(self)
            self.bell.ring()
            self.session.rows.wake()
        return conclusion

    async def _settled(self, told: Told, teller: Teller) -> Told:
        """Close the episode if there is nothing more to do, and say so."""
        await self.wrap_up()
        return teller.closing(told) if self.closed else told

    def _check_open(self) -> None:
        if self._closing:
            raise Refused(CLOSED)


def governor_of(session: Session) -> Governor | None:
    """Return the governor of a session's latest episode; None if it is free."""
    companion = session.companion
    return companion if isinstance(companion, Governor) and companion.epoch == session.epoch else None
