"""The lines of one governed episode: each is timed, judged, put on record and shown to whoever watches.

Rule 1: what is judged is on record, in the order in which it was judged, before anybody is answered; accepted or refused.
    Between the judging and the recorder's taking it nothing else can run.
Rule 2: the clock is the proctor's: the time on the wall, made to grow by at least a microsecond from line to line.
Rule 3: what is refused before the judge sees it, and what is no line of the stream, is on record as well, as not judged.
    What is longer than a packet may be is there with its size and digest only. An episode whose refused calls have put
    `max_refused_bytes` on record is lost.
Rule 4: the proctor's own words are never refused in silence: where the judge does not accept one, the episode is lost.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Unpack

import msgspec
from msgspec import Raw

from proctor.episode.episode_state import EpisodeState, new_episode
from proctor.episode.legal_moves import legal_next
from proctor.episode.machine import EVIDENCE, Machine
from proctor.episode.packets.enums import EvidenceKind, TaskClass, ToolsState, VerificationRequirement
from proctor.episode.packets.fields import EvidenceRef, Record, Routing
from proctor.episode.packets.reader import AnyPacket, Malformed, Packet, read
from proctor.episode.packets.writer import PacketFields, PacketWriter
from proctor.episode.rules.house_rules import initial_marks
from proctor.episode.settings import Limits
from proctor.episode.transition_table import Position
from proctor.episode.verdicts import JudgingContext, Verdict, list_obligations
from proctor.errors import ComponentError
from proctor.models.control import Code
from proctor.models.events import PacketJudged, Principal, encode_event
from proctor.models.operator import JudgedRow
from proctor.server.governed.episode_memory import NOTES, EpisodeMemory, Note, TokenRequest
from proctor.server.governed.policy import GovernancePolicy
from proctor.server.runtime.results import RequestFailed, make_failure, make_refusal
from proctor.server.sessions.episode_status import RowLog
from proctor.server.sessions.session import PendingRecord, Session

LOG: Final = logging.getLogger("proctor.governed")
OBSERVED_IN: Final = (Position.EXECUTE, Position.VERIFY)
TICK: Final = timedelta(microseconds=1)
MOST_LISTED: Final = 20
"""Errors of one line that are looked for and put on record."""
encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Speaker:
    """Who speaks: the proctor itself, an operator, or an agent with a grant and one of its tools."""

    principal: Principal = "system"
    grant: str | None = None
    tool: str | None = None


PROCTOR: Final = Speaker()
OPERATOR: Final = Speaker("operator")


@dataclass(frozen=True, slots=True)
class PreJudgeRefusal:
    """Why something is refused before the judge sees it."""

    rule: str
    reason: str
    pointer: str = ""


@dataclass(frozen=True, slots=True)
class PacketLimits:
    """How many bytes an agent may put on record with one packet, and with all that is refused in one episode."""

    packet_bytes: int = 64 * 2**10
    refused_bytes: int = 16 * 2**20


class PacketStream:
    """The lines of one episode; `standing` is the episode as the judge sees it."""

    def __init__(
        self,
        policy: GovernancePolicy,
        session: Session,
        epoch: int,
        *,
        wall: Callable[[], float],
        rows: RowLog,
        run: str,
        packet_limits: PacketLimits,
    ) -> None:
        self.name: Final = f"corr_{session.name}_{epoch}"
        self.policy: Final = policy
        self.session: Final = session
        self.epoch: Final = epoch
        self.memory: Final = EpisodeMemory()
        self.context: Final = JudgingContext(policy.settings, policy.written_rules)
        self.standing: EpisodeState = new_episode(self.name, initial_marks(self.context.house_rules))
        self.limits: Final = Limits(errors=MOST_LISTED)
        self.packet_limits: Final = packet_limits
        self._refused_bytes = 0
        """That refused lines of agents have put on record."""
        self._machine = Machine(self.context, self.limits)
        self._is_open = False
        self.unrecorded: Final[set[str]] = set()
        """The ids of packets and of requests that are not on record yet."""
        self._writing: asyncio.Future[None] | None = None
        """Done when the latest line is on record."""
        self._wall = wall
        self._rows = rows
        self._run = run
        self._writer = PacketWriter(self.name, at=self.now(), policy=policy.defaults, step=TICK)

    # ------------------------------------------------------------------------------------------------- how it stands
    @property
    def position(self) -> Position:
        """The state, with what is pending in it."""
        return self.standing.position

    @property
    def in_safe_mode(self) -> bool:
        """Whether the episode is in safe mode."""
        return self.standing.position is Position.SAFEMODE

    @property
    def verified(self) -> bool:
        """Whether as much was verified as the policy wants before an ACT."""
        match self.policy.quality.verification_requirement:
            case VerificationRequirement.VERIFY_ONE:
                return self.memory.verified
            case VerificationRequirement.VERIFY_ALL:
                return self.memory.verified_since_act
        return True

    @property
    def tools_state(self) -> ToolsState:
        """Whether the environment's tools can be used."""
        return ToolsState.DOWN if self.session.over else ToolsState.OK

    @property
    def legal_next(self) -> tuple[str, ...]:
        """The packets and records that are legal now."""
        return legal_next(self.standing, self.context.settings)

    @property
    def obligations(self) -> list[str]:
        """What is open, in words."""
        return [
            " ".join(part for part in (f"{owed.kind}:", owed.id, owed.what) if part)
            for owed in list_obligations(self.standing, self.context)
        ]

    # ----------------------------------------------------------------------------------------------------- packets
    def now(self) -> datetime:
        """Return the time of the next line."""
        return max(datetime.fromtimestamp(self._wall(), UTC), self.memory.at + TICK)

    def new_id(self, prefix: str) -> str:
        """Return an id that nothing in this episode has, nor had before a crash."""
        tail, number = self.name.removeprefix("corr_"), self.memory.lines + 1
        # Where a crash can take lines from the record, the next run of the server counts them again.
        while (found := f"{prefix}_{tail}_{number}-{self._run}") in self.standing.seen:
            number += 1
        return found

    def packet(self, payload: Any, **said: Unpack[PacketFields]) -> AnyPacket:
        """Return a packet with this payload; its envelope is the policy's. A ValidationError says what cannot be said."""
        said.setdefault("packet_id", self.new_id("pkt"))
        said.setdefault("at", self.now())
        said.setdefault("previous", self.memory.previous)
        said.setdefault("routing", Routing(TaskClass.FIND, self.tools_state))
        return self._writer.packet(payload, **said)

    def record(self, kind: str, data: dict[str, object], by: str) -> Record:
        """Return a record of this episode."""
        return self._writer.record(kind, data, by=by, at=self.now())

    def references(self, named: Sequence[str]) -> list[EvidenceRef]:
        """Return references to observations and results of this episode as evidence."""
        return [EvidenceRef(EvidenceKind.TOOL_OUTPUT, name, self.memory.times[name]) for name in named]

    def agent_packet_ids(self, speaker: Speaker) -> dict[str, str]:
        """Return the ids that an agent gave to packets of its own, each with what the packet is called."""
        seen = self.standing.seen
        stated = self.memory.stated.items()
        return {name: given for (grant, name), given in stated if grant == speaker.grant and name not in seen}

    # ----------------------------------------------------------------------------------------------------- judging
    def judge(self, said: AnyPacket | Record | Malformed) -> Verdict:
        """Return the verdict on what comes next; nothing changes before it is committed."""
        if isinstance(said, Packet):
            return self._machine.judge(self.standing, said)
        if isinstance(said, Record):
            return self._machine.judge_record(self.standing, said, known=self._is_open)
        verdict = self._machine.judge_unreadable(self.standing, said)
        return verdict if said.correlation_id == self.name else msgspec.structs.replace(verdict, path=())

    def would_follow(self, first: AnyPacket, second: AnyPacket) -> bool:
        """Return whether `first` would be accepted now, and `second` after it; nothing changes."""
        verdict = self.judge(first)
        return verdict.accepted and verdict.after is not None and self._machine.judge(verdict.after, second).accepted

    async def state(
        self,
        said: AnyPacket | Record | Malformed,
        speaker: Speaker,
        *,
        line: bytes | None = None,
        verdict: Verdict | None = None,
        pending: PendingRecord | None = None,
    ) -> Verdict:
        """Put on record what is said, with its verdict; return the verdict once that is safe, and what was pending.

        `line` is what was read, `verdict` what `judge` has just said of it.
        """
        verdict = self.judge(said) if verdict is None else verdict
        event = self._commit(said, verdict, speaker, line)
        await self._put_on_record(event, pending=pending)
        return verdict

    async def declare(self, said: AnyPacket | Record, *, pending: PendingRecord | None = None) -> Verdict:
        """State what the proctor has to say, and what must be so; where the judge refuses it, the episode is lost."""
        verdict = await self.state(said, PROCTOR, pending=pending)
        if not verdict.accepted:
            raise self._lose(said, verdict)
        return verdict

    async def declare_result(
        self, result: AnyPacket, observe: Callable[[], AnyPacket], pending: PendingRecord | None = None
    ) -> None:
        """State how a task ended and, where the table has room for it, what was seen; both go on record together."""
        verdict = self.judge(result)
        events = [self._commit(result, verdict, PROCTOR)]
        said = result
        if verdict.accepted and self.position in OBSERVED_IN:
            said = observe()
            verdict = self.judge(said)
            events.append(self._commit(said, verdict, PROCTOR))
        await self._put_on_record(*events, pending=pending)
        if not verdict.accepted:
            raise self._lose(said, verdict)

    def _lose(self, said: AnyPacket | Record, verdict: Verdict) -> RequestFailed:
        rules = ", ".join(verdict.rules)
        message = f"what the proctor had to state was refused by the rules of this server ({rules})"
        LOG.error("%s: %s, %s", message, _line_kind(said), verdict.reason, extra={"session": self.session.name})
        self.session.lose(Code.SESSION_ERROR, message)
        return make_failure(Code.SESSION_ERROR, message)

    async def flush(self) -> None:
        """Return when all that was stated is on record; refuse if it is not, for then the episode is lost."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
        self.check_alive()

    def check_alive(self) -> None:
        """Refuse what comes after the episode was lost."""
        if self.session.loss is not None:
            raise make_refusal(Code.EPISODE_LOST, f"this episode is lost: {self.session.loss.message}", lost=True)

    def read(self, line: bytes) -> AnyPacket | Record | Malformed:
        """Return what a line says, as the judge would read it."""
        return read(line, self.limits.errors)

    async def record_refusal(
        self, kind: str, line: bytes, bars: Sequence[PreJudgeRefusal], speaker: Speaker, packet_id: str | None = None
    ) -> None:
        """Put on record that something was refused before the judge saw it."""
        event = self._build_event(
            speaker,
            line,
            kind,
            packet_id=packet_id,
            judged=False,
            accepted=False,
            rules=list(dict.fromkeys(bar.rule for bar in bars)),
            pointers=list(dict.fromkeys(bar.pointer for bar in bars if bar.pointer)),
            reason=bars[0].reason,
        )
        self.memory.note(event, None)
        await self._put_on_record(event)

    async def note(self, note: Note, speaker: Speaker) -> None:
        """Put on record what is no line of the stream."""
        kind = str(type(note).__struct_config__.tag)
        event = self._build_event(speaker, encode(note), kind, judged=False, accepted=True)
        self.memory.note(event, note)
        await self._put_on_record(event, name=note.id if isinstance(note, TokenRequest) else None)

    def _commit(
        self, said: AnyPacket | Record | Malformed, verdict: Verdict, speaker: Speaker, line: bytes | None = None
    ) -> PacketJudged:
        """Let a verdict count: move the episode on and remember the line; return what goes on record of it."""
        self._advance(said, verdict)
        findings, first = verdict.findings, verdict.findings[0] if verdict.findings else None
        event = self._build_event(
            speaker,
            said.line() if line is None and not isinstance(said, Malformed) else line or b"",
            _line_kind(said),
            packet_id=verdict.packet_id,
            judged=True,
            accepted=verdict.accepted,
            path=list(verdict.path),
            rules=list(verdict.rules) if findings else [],
            pointers=list(verdict.pointers) if findings else [],
            reason="" if first is None else verdict.reason,
            warnings=[f"{warning.rule}: {warning.reason}" for warning in verdict.warnings] if verdict.warnings else [],
        )
        self.memory.note(event, None if isinstance(said, Malformed) else said)
        return event

    def _advance(self, said: AnyPacket | Record | Malformed, verdict: Verdict) -> None:
        after = verdict.after
        if not verdict.accepted or after is None:
            return
        if isinstance(said, Packet):
            after.seen[said.header.packet_id] = after.packets if verdict.event in EVIDENCE else 0
        self._is_open = True
        self.standing = after

    def _build_event(self, speaker: Speaker, line: bytes, kind: str, **said: Any) -> PacketJudged:
        return PacketJudged(
            session=self.session.name,
            at=self._wall(),
            principal=speaker.principal,
            epoch=self.epoch,
            step=self.session.step_count,
            line=Raw(line),
            kind=kind,
            state=self.standing.state,
            grant=speaker.grant,
            tool=speaker.tool,
            **said,
        )

    async def _put_on_record(
        self, *events: PacketJudged, name: str | None = None, pending: PendingRecord | None = None
    ) -> None:
        """Return when the events are safe; until then an operator does not hear of them, nor of the request `name`."""
        if self._count_refused_bytes(events[0]) > self.packet_limits.refused_bytes:
            problem = make_failure(
                Code.EPISODE_FULL,
                "the refused calls of this episode have put as much on record as they may",
                expected=f"at most {self.packet_limits.refused_bytes} bytes (max_refused_bytes)",
            )
            await self.session.break_off(problem)
            raise problem
        names = {each for event in events if (each := event.packet_id) is not None} if name is None else {name}
        self.unrecorded.update(names)
        written = self._writing = asyncio.get_running_loop().create_future()
        try:
            await self.session.record(*events, pending=pending)
        finally:
            written.set_result(None)
            self.unrecorded.difference_update(names)
        for event in events:
            self._rows.add(encode(operator_row(self._rows.last + 1, event)))

    def _count_refused_bytes(self, event: PacketJudged) -> int:
        """Return how much agents' refused lines have put on record, this one with them; 0 if it is none."""
        if event.accepted or event.grant is None:
            return 0
        self._refused_bytes += len(encode_event(event))
        return self._refused_bytes

    # ----------------------------------------------------------------------------------------------------- restoring
    def restore(self, events: Sequence[PacketJudged]) -> None:
        """Take up the episode that these lines tell; a ComponentError if they get other verdicts than they did."""
        for event in events:
            line = bytes(event.line)
            self._count_refused_bytes(event)
            if not event.judged:
                self.memory.note(event, _parse_note(event.kind, line))
                continue
            said = self.read(line)
            verdict = self.judge(said)
            self._advance(said, verdict)
            if verdict.accepted != event.accepted or self.standing.state != event.state:
                raise ComponentError(
                    "a line on record gets another verdict than it did",
                    found=f"{verdict.accepted}, {self.standing.state}",
                    expected=f"{event.accepted}, {event.state}",
                )
            self.memory.note(event, None if isinstance(said, Malformed) else said)


def operator_row(number: int, event: PacketJudged) -> JudgedRow:
    """Return what an operator sees of a line."""
    return JudgedRow(
        number,
        event.session,
        event.epoch,
        event.step,
        event.at,
        event.principal,
        event.kind,
        event.accepted,
        event.judged,
        event.state,
        event.line,
        event.packet_id,
        event.path,
        event.rules,
        event.reason,
        event.grant,
        event.tool,
    )


def _line_kind(said: AnyPacket | Record | Malformed) -> str:
    if isinstance(said, Malformed):
        return ""
    return str(said.kind) if isinstance(said, Packet) else str(said.record)


def _parse_note(kind: str, line: bytes) -> Note | None:
    """Return what a line says that is no line of the stream."""
    known = NOTES.get(kind)
    return None if known is None else msgspec.json.decode(line, type=known)
