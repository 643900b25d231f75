"""Requests of tokens: issued by the proctor within limits, put before an operator, or refused, as the policy says."""

from proctor.episode.governing import POLICY_3
from proctor.episode.history import Permit
from proctor.server.governed import wording
from proctor.server.governed.forms import RequestToken
from proctor.server.governed.judging import Judging
from proctor.server.governed.memory import Asked
from proctor.server.governed.policy import Issuer
from proctor.server.governed.questions import Question
from proctor.server.governed.replies import Teller, Tools
from proctor.server.governed.stream import Bar, Stream, Voice
from proctor.server.governed.tokens import excess, permission
from proctor.server.telling import Told

PENDING = "your request of a token waits for an operator: call request_token without tools to wait for the answer"
NOTHING_PENDING = "no request of yours is pending: name the tools that you need"
NAME_AGAIN = "name the tools that you need, to ask for another"
WITHDRAWN = f"your request is withdrawn, by a later decision of yours or by safe mode: {NAME_AGAIN}"
MOST_PENDING = 16
"""Requests of all agents of an episode."""


class Requests:
    """What agents ask for in one episode."""

    def __init__(self, stream: Stream, judging: Judging) -> None:
        self._stream = stream
        self._judging = judging

    async def made(self, form: RequestToken, voice: Voice, tools: Tools, teller: Teller) -> Told | Question:
        """Return what the agent is told of its request, or what it waits for."""
        pending = self._pending(voice)
        if form.tools is None:
            if pending is None:
                return await self._unasked(voice, teller)
            return Question(pending.id, form.wait_seconds)
        limits = self._stream.policy.tokens
        asked = Asked(
            id=self._stream.new_id("request"),
            tools=list(dict.fromkeys(form.tools)),
            operations=wording.operations_of(form.operations, limits.operations),
            uses=limits.max_uses if form.uses is None else form.uses,
            rationale=form.rationale or "",
            grant=voice.grant,
            since=self._stream.now().timestamp(),
        )
        bars = excess(asked.tools, asked.operations, asked.uses, list(tools), self._stream.policy)
        if not bars and (pending is not None or len(self._stream.memory.requests) >= MOST_PENDING):
            bars = (Bar(POLICY_3, PENDING),)
        if bars:
            return await self._judging.barred(voice.tool or "", bars, voice, teller, wording.spoken(asked))
        if limits.issuer is Issuer.AUTO:
            return await self._issued(asked, voice, teller)
        return await self._put_before(asked, form.wait_seconds, voice, teller)

    async def _issued(self, asked: Asked, voice: Voice, teller: Teller) -> Told:
        """Issue a token at once: the proctor states it, because of the agent's call."""
        packet = wording.token(self._stream, asked, asked.uses, self._stream.policy.tokens.life_seconds)
        verdict = await self._judging.judged(packet, Voice("system", voice.grant, voice.tool), teller)
        if isinstance(verdict, Told):
            return verdict
        return teller.issued(permission(self._stream.standing.tokens[packet.payload.token_id], self._stream.now()))

    async def _put_before(self, asked: Asked, seconds: float, voice: Voice, teller: Teller) -> Told | Question:
        """Put a request before an operator, unless no token could be issued now."""
        packet = wording.token(self._stream, asked, asked.uses, self._stream.policy.tokens.life_seconds)
        if not self._stream.check(packet).accepted or self._judging.bars(packet, voice.grant):
            told = await self._judging.judged(packet, Voice("system", voice.grant, voice.tool), teller)
            return told if isinstance(told, Told) else teller.accepted(told)
        await self._stream.note(asked, voice)
        return Question(asked.id, seconds)

    def _pending(self, voice: Voice) -> Asked | None:
        asked = self._stream.memory.requests.values()
        return next((each for each in asked if each.grant == voice.grant), None)

    async def _unasked(self, voice: Voice, teller: Teller) -> Told:
        await self._stream.safe()
        decided = self._decided(voice)
        if decided is None:
            return await self._refused(NOTHING_PENDING, voice, teller)
        return await self.answered(decided, voice, teller)

    def _decided(self, voice: Voice) -> str | None:
        """Return the request of this agent that was decided last."""
        return self._stream.memory.decided.get(voice.grant or "")

    async def answered(self, request: str, voice: Voice, teller: Teller) -> Told:
        """Return what became of a request; a token that opens nothing any more is told as such."""
        memory = self._stream.memory
        issued = memory.issued.get(request)
        permit = None if issued is None else self._stream.standing.tokens.get(issued)
        if permit is not None and permit.live(self._stream.now()):
            return teller.issued(permission(permit, self._stream.now()))
        if permit is not None:
            return await self._refused(f"the token that you got is {_spoilt(permit)}: {NAME_AGAIN}", voice, teller)
        denied = memory.denied.get(request)
        if denied is None:
            return await self._refused(WITHDRAWN, voice, teller)
        said = f": {denied.text}" if denied.text else ""
        return await self._refused(f"the operator denied the token{said}", voice, teller)

    async def _refused(self, reason: str, voice: Voice, teller: Teller) -> Told:
        return await self._judging.barred(voice.tool or "", (Bar(POLICY_3, reason),), voice, teller)


def _spoilt(permit: Permit) -> str:
    """Return why a token opens nothing any more."""
    if permit.revoked:
        return "revoked"
    return "used up" if permit.used >= permit.limit else "expired"
