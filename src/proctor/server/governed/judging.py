"""How an agent's packet is judged: first by the machine, then by the policy, and only then it counts.

The policy's own rules are POLICY-1 and POLICY-2, whose sentences stand in `proctor.episode.governing`.

A directive is refused as well if its result or its observation could not be stated after it: by a rule of the house, which is
named, or because the episode is full (LIMIT-2).

Rule: what the machine refuses is its own refusal, on record as such. The policy speaks only where the machine would accept.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

import msgspec

from proctor.episode.events import event_of
from proctor.episode.governing import POLICY_1, POLICY_2, SIZE_1
from proctor.episode.packets import AnyPacket
from proctor.episode.states import DIRECTIVES, Event
from proctor.episode.verdicts import Verdict
from proctor.server.governed.conditions import LEVELS, Deed
from proctor.server.governed.foresight import unstatable
from proctor.server.governed.replies import Teller
from proctor.server.governed.stream import Bar, Stream, Voice
from proctor.server.telling import Told

MOST_KEPT: Final = 4 * 1024
"""Bytes of a call's arguments that are put on record where it is refused before it is a packet."""
DEEDS: Final = {Event.ACT: Deed.ACT, Event.WRITE: Deed.WRITE, Event.TOKEN: Deed.WRITE}


class Judging:
    """Judges what agents say in one episode."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    async def judged(
        self, packet: AnyPacket, voice: Voice, teller: Teller, *, tried: str | None = None
    ) -> Verdict | Told:
        """Return the verdict on a packet that counts now, or what its agent is told if it does not."""
        line = packet.line()
        if len(line) > self._stream.packet_limits.packet_bytes:
            bars = too_long(line, self._stream)
            await self._stream.bar(packet.kind, summary(line), bars, voice, packet.header.packet_id)
            return teller.barred(bars)
        if self._stream.check(packet).accepted:
            bars = self.bars(packet, voice.grant)
            if bars:
                await self._stream.bar(packet.kind, line, bars, voice, packet.header.packet_id)
                return teller.barred(bars, _way_on(bars[0].rule, teller, tried or voice.tool or ""))
        verdict = await self._stream.state(packet, voice)
        return verdict if verdict.accepted else teller.refused(verdict, tried or voice.tool or "")

    async def barred(
        self, tool: str, bars: Sequence[Bar], voice: Voice, teller: Teller, arguments: bytes = b"null"
    ) -> Told:
        """Put on record that a call was refused before it was a packet; return what its agent is told."""
        await self._stream.bar(tool, attempt(tool, arguments), bars, voice)
        return teller.barred(bars)

    def bars(self, packet: AnyPacket, grant: str | None) -> tuple[Bar, ...]:
        """Return why the policy does not let an agent's packet count that the machine would accept."""
        event = event_of(packet)
        if event in DIRECTIVES:
            rules, limits = self._stream.context.house_rules, self._stream.limits
            silenced = unstatable(self._stream.standing, rules, event, limits)
            if silenced:
                return tuple(Bar(rule, reason) for rule, reason in silenced)
        policy, memory = self._stream.policy, self._stream.memory
        if event is Event.ACT and not self._stream.verified:
            required = policy.quality.verification_requirement
            return (Bar(POLICY_1, f"the policy asks for {required}: nothing is done before it was verified"),)
        deed = DEEDS.get(event)
        if deed is None or memory.allows(grant, deed):
            return ()
        stated = packet.compliance.stakes.stakes_level
        # What is done is at least as grave as the decision that it comes from.
        level = stated if deed is Deed.ACT or memory.stakes is None else max(stated, memory.stakes, key=LEVELS.index)
        return tuple(
            Bar(POLICY_2, f"the policy says that an operator is asked first: {condition}")
            for condition in policy.escalation.conditions()
            if condition.holds(deed, level)
        )


def _way_on(rule: str, teller: Teller, tried: str) -> list[str]:
    """Return the calls that make the policy let something pass, and what was tried, if it is to be called once more."""
    act = 'decide(outcome="ACT")'
    if rule == POLICY_1:
        before = teller.way_by(Event.VERIFY_FIRST, Event.PLAN, Event.READ, Event.BELIEF)
        return [*before, act] if before else []
    if rule != POLICY_2:
        return []
    again = [] if tried in ("decide", "submit_packet") else [tried]
    before = teller.way_to(Event.ESCALATION)
    return [*before, act, *again] if before else []


def too_long(said: bytes, stream: Stream) -> tuple[Bar, ...]:
    """Return why a packet, or a call's arguments, are refused that have more bytes than a packet may have."""
    most = stream.packet_limits.packet_bytes
    return (Bar(SIZE_1, f"it has {len(said)} bytes, and a packet has at most {most}"),)


def summary(said: bytes) -> bytes:
    """Return what is on record of something too long: its size and its digest."""
    return msgspec.json.encode({"bytes": len(said), "sha256": sha256(said).hexdigest()})


def attempt(tool: str, arguments: bytes) -> bytes:
    """Return what is on record of a call that is no packet: the arguments, as far as they can be said as JSON.

    Of what is too long it is the size and the digest.
    """
    said: dict[str, object] = {"tool": tool}
    try:
        if len(arguments) <= MOST_KEPT:
            said["arguments"] = msgspec.json.decode(arguments)
        else:
            said |= {"bytes": len(arguments), "sha256": sha256(arguments).hexdigest()}
    except (msgspec.MsgspecError, ValueError, RecursionError):
        said["unreadable"] = len(arguments)
    return msgspec.json.encode(said)
