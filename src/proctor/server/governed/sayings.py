"""What an agent says with its six own tools: each becomes a packet, which is judged, recorded and answered."""

from itertools import islice
from typing import Any, Final

import msgspec

from proctor.episode.kinds import DecisionOutcome
from proctor.episode.packets import AnyPacket, Packet
from proctor.episode.payloads import Decision, Directive, VerificationPlan
from proctor.episode.states import Position
from proctor.errors import ValidationError
from proctor.models.control import Code, Problem
from proctor.server.answers import Refused
from proctor.server.governed import wording
from proctor.server.governed.acts import Acts
from proctor.server.governed.admission import Terms, barred, completed, content_bars, reference_bars
from proctor.server.governed.errands import Errand, Errands
from proctor.server.governed.forms import Believe, Decide, Escalate, PlanVerification, RequestToken, SubmitPacket
from proctor.server.governed.judging import MOST_KEPT, Judging, attempt, too_long
from proctor.server.governed.questions import Question
from proctor.server.governed.replies import Teller, Tools
from proctor.server.governed.requests import Requests
from proctor.server.governed.stream import MOST_LISTED, Bar, Stream, Voice
from proctor.server.governed.tools import Saying, read_form
from proctor.server.telling import Told

ENDED: Final = Problem(
    "the environment has ended: its tools do nothing any more, and there is nothing left to act on. Say what you have learned "
    'with `believe`, which ends your work; if that is refused, decide(outcome="CANCEL") and then `believe`',
    Code.ENDED,
)
DOING: Final = (DecisionOutcome.ACT, DecisionOutcome.VERIFY_FIRST)
SAFE: Final = (Bar("E7", "the episode is in safe mode"),)
NO_QUESTION: Final = Bar("SCHEMA", "no question is pending: say what you ask, and two or three options", "/question")
NO_OPTIONS: Final = Bar("SCHEMA", "an operator needs something to choose from: give two or three options", "/options")


class Sayings:
    """What agents say in one episode."""

    def __init__(self, stream: Stream, judging: Judging, errands: Errands, acts: Acts) -> None:
        self._stream = stream
        self._judging = judging
        self._errands = errands
        self._acts = acts
        self._requests = Requests(stream, judging)

    async def heard(
        self, saying: Saying, arguments: bytes, voice: Voice, tools: Tools, teller: Teller
    ) -> Told | Errand | Question:
        """Return what the agent is told, an errand to carry out, or what its call waits for."""
        try:
            form = read_form(saying, arguments)
            match form:
                case Believe():
                    return await self._believed(form, voice, teller)
                case Decide():
                    return await self._decided(form, voice, teller)
                case PlanVerification():
                    self.check_running()
                    return await self._said(wording.plan(self._stream, form), voice, teller)
                case RequestToken():
                    self.check_running()
                    return await self._requests.made(form, voice, tools, teller)
                case Escalate():
                    return await self._escalated(form, voice, teller)
            return await self._submitted(form, voice, tools, teller)
        except ValidationError as problem:
            expected = "" if problem.expected is None else f"; expected {problem.expected}"
            bars = (Bar("SCHEMA", f"{problem.message}{expected}"),)
            return await self._judging.barred(saying, bars, voice, teller, arguments)

    async def halted(self, tool: str, arguments: bytes, voice: Voice, teller: Teller) -> Told:
        """Put on record what an agent tried in safe mode; return that it is."""
        await self._stream.bar(tool, attempt(tool, arguments), SAFE, voice)
        return teller.halted()

    async def answered(self, question: Question, voice: Voice, teller: Teller) -> Told:
        """Return what an operator answered, or that there is no answer yet."""
        if self._stream.halted:
            return teller.halted()
        waits = self._acts.waits(question.id)
        answer = self._stream.memory.answer
        if question.id.startswith("request_"):
            if waits:
                return teller.waiting("No operator has decided about your token yet.", "request_token()")
            return await self._requests.answered(question.id, voice, teller)
        if not waits and answer is not None and answer.escalation == question.id:
            return teller.answered(answer)
        return teller.waiting("No operator has answered yet.", "escalate()")

    def check_running(self) -> None:
        """Refuse what needs an environment that still runs."""
        if self._stream.session.over:
            raise Refused(ENDED)

    # ------------------------------------------------------------------------------------------------------- sayings
    async def _said(self, packet: AnyPacket, voice: Voice, teller: Teller) -> Told:
        verdict = await self._judging.judged(packet, voice, teller)
        return verdict if isinstance(verdict, Told) else teller.accepted(verdict)

    async def _believed(self, form: Believe, voice: Voice, teller: Teller) -> Told:
        packet = wording.belief(self._stream, form)
        if self._stream.position is Position.REVIEW and not self._stream.session.over:
            await self._observed_again(packet)
            packet = wording.belief(self._stream, form)
        return await self._said(packet, voice, teller)

    async def _observed_again(self, belief: AnyPacket) -> None:
        """Begin a new cycle with what was observed last (S7 to S1), if the belief is then accepted."""
        seen = self._stream.memory.seen
        if seen is None:
            return
        again = wording.observation(self._stream, msgspec.json.decode(seen.data, type=dict[str, Any]), seen.tool)
        if self._stream.would_follow(again, belief):
            await self._stream.declare(again)

    async def _decided(self, form: Decide, voice: Voice, teller: Teller) -> Told:
        if form.outcome in DOING:
            self.check_running()
        return await self._said(wording.decision(self._stream, form), voice, teller)

    async def _escalated(self, form: Escalate, voice: Voice, teller: Teller) -> Told | Question:
        if form.question is None:
            return await self._asked_before(form, voice, teller)
        if form.options is None:
            return await self._judging.barred(Saying.ESCALATE, (NO_OPTIONS,), voice, teller, _said_in(form))
        packet = wording.escalation(self._stream, form.question, form)
        verdict = await self._judging.judged(packet, voice, teller)
        return verdict if isinstance(verdict, Told) else Question(packet.header.packet_id, form.wait_seconds)

    async def _asked_before(self, form: Escalate, voice: Voice, teller: Teller) -> Told | Question:
        """Return the question that is pending, or the answer that came meanwhile."""
        pending, answer = self._acts.question, self._stream.memory.answer
        if pending is not None:
            return Question(pending.header.packet_id, form.wait_seconds)
        if answer is not None and self._stream.position is Position.DECIDE_AFRESH:
            await self._stream.safe()
            return teller.answered(answer)
        return await self._judging.barred(Saying.ESCALATE, (NO_QUESTION,), voice, teller, _said_in(form))

    # -------------------------------------------------------------------------------------------------- whole packets
    async def _submitted(self, form: SubmitPacket, voice: Voice, tools: Tools, teller: Teller) -> Told | Errand:
        stream = self._stream
        terms = Terms(stream.name, stream.new_id("pkt"), stream.now(), stream.tools_state)
        bars = barred(form.packet, terms, stream.policy)
        if not bars and stream.halted:
            bars = SAFE
        line = completed(form.packet, terms)
        if not bars and len(line) > stream.packet_limits.packet_bytes:
            bars = too_long(line, stream)
        said = stream.read(line)
        if isinstance(said, Packet) and not bars:
            named = islice(reference_bars(said, stream.stated_by(voice)), MOST_LISTED)
            bars = (*content_bars(said, tools), *named)
        if bars:
            await stream.bar(_kind(form.packet), _kept(msgspec.json.encode(form.packet)), bars, voice)
            return teller.halted() if bars is SAFE else teller.barred(bars)
        if not isinstance(said, Packet):
            return teller.refused(await stream.state_line(line, said, voice), Saying.SUBMIT_PACKET)
        if _does(said):
            self.check_running()
        if isinstance(said.payload, Directive):
            return await self._errands.accepted(said, voice, teller, submitted=True)
        return await self._said(said, voice, teller)


def _does(packet: AnyPacket) -> bool:
    """Return whether a packet leads to something being done."""
    payload = packet.payload
    if isinstance(payload, Decision):
        return payload.decision_outcome in DOING
    return isinstance(payload, Directive | VerificationPlan)


def _said_in(form: Escalate) -> bytes:
    """Return a form as JSON."""
    return form.model_dump_json(exclude_none=True).encode()


def _kept(submitted: bytes) -> bytes:
    """Return what is on record of a packet that was refused before it was judged: one that is too long is only named."""
    return submitted if len(submitted) <= MOST_KEPT else attempt(Saying.SUBMIT_PACKET, submitted)


def _kind(submitted: dict[str, Any]) -> str:
    """Return what a submitted object says that it is."""
    header = submitted.get("header")
    kind = header.get("packet_type") if isinstance(header, dict) else submitted.get("record")
    return kind[:64] if isinstance(kind, str) else ""
