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
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any, Final, Unpack

import msgspec
from msgspec import Raw

from proctor.episode.episode_state import EpisodeState, IssuedToken, new_episode
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
from proctor.models.control import Code, Problem
from proctor.models.events import PacketJudged, Principal, encode_event
from proctor.models.operator import JudgedRow
from proctor.server.governed.episode_memory import NOTES, EpisodeMemory, Note, TokenRequest
from proctor.server.governed.policy import GovernancePolicy
from proctor.server.runtime.results import RequestFailed, RequestRefused, make_failure, make_refusal
from proctor.server.sessions.episode_status import RowLog
from proctor.server.sessions.session import PendingRecord, Session

LOG: Final = logging.getLogger("proctor.governed")
OBSERVED_IN: Final = (Position.EXECUTE, Position.VERIFY)
TICK: Final = timedelta(microseconds=1)
MOST_LISTED: Final = 20
"""Errors of one line that are looked for and put on record."""
CLOSED: Final = Problem("the episode is closed: there is nothing more to do", Code.ENDED)
MARK_DIGITS: Final = 6
"""Of the name of a run: enough to tell it from the one before, and few enough to be typed."""
encode: Final = msgspec.json.Encoder().encode
_row_values: Final = attrgetter(*JudgedRow.__struct_fields__[1:])


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

    async def wait(self, seconds: float) -> None:
        """Return when it rings, or when so much time has passed."""
        self.waiting += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._event.wait()
        finally:
            self.waiting -= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """What the streams of one server share; `wall` tells the time, `clock` counts seconds, `boot` names this run."""

    policy: GovernancePolicy
    boot: str
    wall: Callable[[], float]
    clock: Callable[[], float]
    packet_limits: PacketLimits = PacketLimits()
    rows: RowLog = field(default_factory=RowLog)
    """The lines of all episodes of this run, counted from 1, for whoever watches."""

    @property
    def mark(self) -> str:
        """What ids that are made in this run end with."""
        return self.boot[:MARK_DIGITS]


class PacketStream:
    """The lines of one episode; `standing` is the episode as the judge sees it."""

    def __init__(self, settings: StreamSettings, session: Session) -> None:
        self.policy: Final = settings.policy
        self.packet_limits: Final = settings.packet_limits
        self.clock: Final = settings.clock
        self.session: Final = session
        self.epoch: Final = session.epoch
        self.name: Final = f"corr_{session.name}_{session.epoch}"
        self.memory: Final = EpisodeMemory()
        self.context: Final = JudgingContext(self.policy.settings, self.policy.written_rules)
        self.standing: EpisodeState = new_episode(self.name, initial_marks(self.context.house_rules))
        self.limits: Final = Limits(errors=MOST_LISTED)
        self.notifier: Final = Notifier()
        """Rings when a call that waits for an operator may go on, or has to end."""
        self.closing = False
        """Whether the episode is being closed, or is closed."""
        self.unrecorded: Final[set[str]] = set()
        """The ids of packets and of requests that are not on record yet."""
        self._refused_bytes = 0
        """That refused lines of agents have put on record."""
        self._machine = Machine(self.context, self.limits)
        self._is_open = False
        self._writing: asyncio.Future[None] | None = None
        """Done when the latest line is on record."""
        self._settings = settings
        self._writer = PacketWriter(self.name, at=self.now(), policy=self.policy.defaults, step=TICK)

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
    def question(self) -> AnyPacket | None:
        """The escalation that waits for an operator's answer."""
        return self.memory.escalation if self.position is Position.ESCALATED else None

    def waits(self, name: str) -> bool:
        """Return whether a question or a request of this id waits for an operator, be it not yet on record."""
        asked = self.question
        return name in self.memory.requests or (asked is not None and asked.header.packet_id == name)

    @property
    def live_tokens(self) -> list[IssuedToken]:
        """The tokens that can still be used."""
        now = self.now()
        return [permit for permit in self.standing.tokens.values() if permit.live(now)]

    @property
    def obligations(self) -> list[str]:
        """What is open, in words."""
        return [
            " ".join(part for part in (f"{owed.kind}:", owed.id, owed.what) if part)
            for owed in list_obligations(self.standing, self.context)
        ]

    def now(self) -> datetime:
        """Return the time of the next line."""
        return max(datetime.fromtimestamp(self._settings.wall(), UTC), self.memory.at + TICK)

    def new_id(self, prefix: str) -> str:
        """Return an id that nothing in this episode has, nor had before a crash."""
        tail, number = self.name.removeprefix("corr_"), self.memory.lines + 1
        # Where a crash can take lines from the record, the next run of the server counts them again.
        while (found := f"{prefix}_{tail}_{number}-{self._settings.mark}") in self.standing.seen:
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

    def latest_evidence(self) -> list[EvidenceRef]:
        """Return the latest observation as evidence."""
        seen = self.memory.seen
        return [] if seen is None else self.references([seen.packet_id])

    def agent_packet_ids(self, speaker: Speaker) -> dict[str, str]:
        """Return the ids that an agent gave to packets of its own, each with what the packet is called."""
        seen = self.standing.seen
        stated = self.memory.stated.items()
        return {name: given for (grant, name), given in stated if grant == speaker.grant and name not in seen}

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

    def check_open(self) -> None:
        """Refuse what comes after the episode was closed."""
        if self.closing:
            raise RequestRefused(CLOSED)

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
        findings = verdict.findings
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
            reason=verdict.reason,
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
            at=self._settings.wall(),
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
        rows = self._settings.rows
        written = self._writing = asyncio.get_running_loop().create_future()
        try:
            await self.session.record(*events, pending=pending)
        finally:
            written.set_result(None)
            self.unrecorded.difference_update(names)
        for event in events:
            rows.add(encode(JudgedRow(rows.last + 1, *_row_values(event))))

    def _count_refused_bytes(self, event: PacketJudged) -> int:
        """Return how much agents' refused lines have put on record, this one with them; 0 if it is none."""
        if event.accepted or event.grant is None:
            return 0
        self._refused_bytes += len(encode_event(event))
        return self._refused_bytes

    def restore(self, events: Sequence[PacketJudged]) -> None:
        """Take up the episode that these lines tell; a ComponentError if they get other verdicts than they did."""
        for event in events:
            line = bytes(event.line)
            self._count_refused_bytes(event)
            if not event.judged:
                kind = NOTES.get(event.kind)
                self.memory.note(event, None if kind is None else msgspec.json.decode(line, type=kind))
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


def _line_kind(said: AnyPacket | Record | Malformed) -> str:
    if isinstance(said, Malformed):
        return ""
    return str(said.kind) if isinstance(said, Packet) else str(said.record)
