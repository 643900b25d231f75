"""What an operator does in one governed episode: answers, tokens, alerts, budgets; what waits for it, and who is woken then.

Rule 1: an act is one line, judged at once, whatever call of an agent runs; who waits for it is woken (`Notifier`).
Rule 2: what waits (`OperatorQuestion`) is read off the episode and its memory: an escalation that was presented, tokens that were
    asked for.
Rule 3: an operator sees a question once it is on record: a crash never leaves an answer to what nobody asked. Where a crash can
    take a question from the record again (durability), no other one ever gets its id.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import Raw

from proctor.episode.packets.enums import CLEAR, Severity
from proctor.episode.packets.fields import Alert, Escalation, Record
from proctor.episode.packets.reader import AnyPacket
from proctor.episode.packets.writer import parse_word
from proctor.episode.transition_table import Position
from proctor.errors import ValidationError
from proctor.models.control import Code
from proctor.models.operator import Choice, Done, Waiting
from proctor.server.governed.episode_memory import TokenDenial, TokenRequest
from proctor.server.governed.packet_builders import token_packet
from proctor.server.governed.packet_stream import OPERATOR, PacketStream
from proctor.server.runtime.results import make_refusal, refusal_from_error


@dataclass(frozen=True, slots=True)
class OperatorQuestion:
    """Something that waits for an operator: its id, and how long the agent's call waits for the answer."""

    id: str
    seconds: float


class Notifier:
    """Rings when something has changed; whoever waits looks again."""

    def __init__(self) -> None:
        self.waiting = 0
        """How many wait."""
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Wake all who wait."""
        rung, self._event = self._event, asyncio.Event()
        rung.set()

    async def receive(self, seconds: float) -> None:
        """Return when it rings, or when so much time has passed."""
        self.waiting += 1
        waiter = asyncio.ensure_future(self._event.wait())
        try:
            await asyncio.wait([waiter], timeout=seconds)
        finally:
            waiter.cancel()
            self.waiting -= 1


METHOD: Final = "an operator's own judgment"


class OperatorActions:
    """The operator's acts in one episode; `is_open` says whether it still runs."""

    def __init__(self, stream: PacketStream, notifier: Notifier, is_open: Callable[[], bool]) -> None:
        self._stream = stream
        self._notifier = notifier
        self._is_open = is_open

    # ------------------------------------------------------------------------------------------------------- waiting
    @property
    def question(self) -> AnyPacket | None:
        """The escalation that waits for an answer."""
        return self._stream.memory.escalation if self._stream.position is Position.ESCALATED else None

    def waiting(self) -> list[Waiting]:
        """Return what waits for an operator and is on record."""
        asked = self.question
        tokens = [self._token_entry(each) for each in self._stream.memory.requests.values() if self.lists(each.id)]
        return (
            tokens
            if asked is None or not self.lists(asked.header.packet_id)
            else [self._escalation_entry(asked), *tokens]
        )

    def waits(self, name: str) -> bool:
        """Return whether something of this id waits, be it not yet on record."""
        asked = self.question
        return name in self._stream.memory.requests or (asked is not None and asked.header.packet_id == name)

    def lists(self, name: str) -> bool:
        """Return whether something of this id waits, and an operator may know of it."""
        return self.waits(name) and name not in self._stream.unrecorded

    def _escalation_entry(self, packet: AnyPacket) -> Waiting:
        payload: Escalation = packet.payload
        return Waiting(
            id=packet.header.packet_id,
            session=self._stream.session.name,
            epoch=self._stream.epoch,
            kind="escalation",
            since=packet.header.created_at.timestamp(),
            question=packet.compliance.intent.summary,
            options=[Choice(option.option_id, option.description) for option in payload.top_options],
            packet=Raw(packet.line()),
            grant=self._stream.memory.asker,
        )

    def _token_entry(self, asked: TokenRequest) -> Waiting:
        why = f": {asked.rationale}" if asked.rationale else ""
        shared = ", by any agent of the episode" if self._stream.session.spec.card.max_agents > 1 else ""
        return Waiting(
            id=asked.id,
            session=self._stream.session.name,
            epoch=self._stream.epoch,
            kind="token",
            since=asked.since,
            question=f"{' and '.join(asked.operations)} with {', '.join(asked.tools)}, {asked.uses} times{shared}{why}",
            options=[],
            packet=Raw(msgspec.json.encode(asked)),
            grant=asked.grant,
        )

    # ------------------------------------------------------------------------------------------------------- answers
    async def answer(self, name: str, choice: str | None, text: str) -> Done:
        """Answer the escalation that waits; a choice is the id of one of its options."""
        packet = self.question
        if packet is None or packet.header.packet_id != name:
            raise make_refusal(Code.VALIDATION_ERROR, "this is no escalation", expected="approve or deny, for a token")
        ids = [option.option_id for option in packet.payload.top_options]
        if choice is not None and choice not in ids:
            raise make_refusal(Code.VALIDATION_ERROR, "there is no such option", expected=f"one of {', '.join(ids)}")
        said: dict[str, object] = {"choice": choice, "text": text, "escalation": name}
        record = self._stream.record("user_input", said, "operator")
        return await self._submit(record, self._escalation_entry(packet).question)

    async def approve(self, name: str, uses: int | None, seconds: float | None, text: str) -> Done:
        """Issue a token that was asked for."""
        asked = self._find_request(name)
        question = self._token_entry(asked).question
        limits = self._stream.policy.tokens
        count = asked.uses if uses is None else uses
        life = limits.life_seconds if seconds is None else seconds
        if count > limits.max_uses or life > limits.life_seconds:
            raise make_refusal(
                Code.VALIDATION_ERROR,
                "the policy allows no such token",
                expected=f"at most {limits.max_uses} uses and {limits.life_seconds:g} seconds",
            )
        if text:
            asked = msgspec.structs.replace(asked, rationale=f"{asked.rationale} (approved: {text})")
        try:
            packet = token_packet(self._stream, asked, count, life)
        except ValidationError as problem:
            raise refusal_from_error(problem) from None
        return await self._submit(packet, question)

    async def deny(self, name: str, text: str) -> Done:
        """Refuse a token that was asked for."""
        question = self._token_entry(self._find_request(name)).question
        self._check_open()
        await self._stream.note(TokenDenial(name, text), OPERATOR)
        self._notifier.notify()
        return self.report(question=question)

    def _find_request(self, name: str) -> TokenRequest:
        asked = self._stream.memory.requests.get(name)
        if asked is None:
            raise make_refusal(
                Code.VALIDATION_ERROR, "this is no request of a token", expected="answer, for an escalation"
            )
        return asked

    # ---------------------------------------------------------------------------------------------------------- acts
    async def alert(self, severity: str, summary: str, kind: str = "operator") -> Done:
        """State an alert; CRITICAL is safe mode."""
        try:
            payload = Alert(
                alert_id=self._stream.new_id("alert"),
                alert_type=kind,
                severity=parse_word(Severity, severity, "/payload/severity"),
                summary=summary,
                detected_at=self._stream.now(),
                detection_method=METHOD,
            )
            return await self._submit(self._stream.packet(payload))
        except ValidationError as problem:
            raise refusal_from_error(problem) from None

    async def clear(self, summary: str) -> Done:
        """Lift safe mode; where there is none, that is said."""
        if not self._stream.in_safe_mode:
            return self.report(accepted=False, reason="the episode is not in safe mode")
        return await self.alert(Severity.INFO, summary or "it is safe to go on", CLEAR)

    async def revoke(self, token_id: str) -> Done:
        """Take a token back."""
        permit = self._stream.standing.tokens.get(token_id)
        if permit is None:
            known = ", ".join(self._stream.standing.tokens) or "nothing: no token was issued"
            raise make_refusal(Code.VALIDATION_ERROR, "there is no such token", expected=known)
        payload = Alert(
            alert_id=self._stream.new_id("alert"),
            alert_type="revocation",
            severity=Severity.WARNING,
            summary=f"the token {token_id} is taken back",
            detected_at=self._stream.now(),
            detection_method=METHOD,
            revoked_token_ids=[token_id],
        )
        return await self._submit(self._stream.packet(payload))

    async def approve_budget(self, tokens: int, calls: int, seconds: int, note: str) -> Done:
        """Add to what may be spent."""
        if not tokens and not calls and not seconds:
            raise make_refusal(Code.VALIDATION_ERROR, "nothing is added", expected="an amount above 0")
        said: dict[str, object] = {
            "token_budget": tokens,
            "tool_call_budget": calls,
            "time_budget_seconds": seconds,
            **({"note": note} if note else {}),
        }
        try:
            return await self._submit(self._stream.record("approval", said, "operator"))
        except ValidationError as problem:
            raise refusal_from_error(problem) from None

    # -------------------------------------------------------------------------------------------------------- inside
    async def _submit(self, said: AnyPacket | Record, question: str = "") -> Done:
        self._check_open()
        verdict = await self._stream.state(said, OPERATOR)
        self._notifier.notify()
        return self.report(
            accepted=verdict.accepted,
            packet_id=verdict.packet_id,
            rules=list(verdict.rules),
            reason=verdict.reason,
            question=question,
        )

    def _check_open(self) -> None:
        if not self._is_open():
            raise make_refusal(Code.ENDED, "this episode is closed, or lost", expected="one that `sessions` lists")

    def report(
        self,
        *,
        accepted: bool = True,
        reason: str = "",
        packet_id: str | None = None,
        rules: list[str] | None = None,
        question: str = "",
    ) -> Done:
        """Return what came of an act."""
        stream = self._stream
        state = stream.standing.state
        return Done(stream.session.name, stream.epoch, accepted, state, packet_id, rules or [], reason, question)


def live_token_ids(stream: PacketStream) -> list[str]:
    """Return the ids of tokens that can still be used."""
    now = stream.now()
    return [permit.token_id for permit in stream.standing.tokens.values() if permit.live(now)]
