"""Judges a stream in which many episodes are interleaved.

Rule 1: `check` asks what if; `apply` asks and commits. A refused line changes nothing but the count of refusals.
Rule 2: memory is bounded: a closed episode leaves a summary, and no more episodes are open than the limits say.
Rule 3: the judge has no clock of its own: time is what packets say, or what `now` says where an episode asks for it.
Rule 4: the judge keeps of an episode, open, in a snapshot or closed, what was refused and warned of; what the episode itself
    remembers is in `episode_state.py`.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from proctor.episode.episode_state import EpisodeState, classify_line, new_episode
from proctor.episode.machine import EVIDENCE, Machine, findings_from_errors
from proctor.episode.packets.enums import RecordKind, RecordSource
from proctor.episode.packets.fields import Approval, OpeningSettings, Record
from proctor.episode.packets.reader import Malformed, Packet, ParsedLine, read
from proctor.episode.packets.writer import encode_values, parse_word, read_back
from proctor.episode.rules import Rule, violation
from proctor.episode.rules.catalogue import EPISODE_CLOSED, LIMIT_1, record_1
from proctor.episode.rules.house_rules import HouseRule, initial_marks
from proctor.episode.settings import Clock, Limits, Settings
from proctor.episode.transition_table import Position, ProtocolState
from proctor.episode.verdicts import JudgingContext, Obligation, Outcome, Verdict, list_obligations
from proctor.errors import ValidationError


class JudgeSummary(Struct, frozen=True):
    """What is left of an episode, or what is known of it so far."""

    correlation_id: str
    outcome: Outcome
    state: ProtocolState
    packets: int
    refusals: int
    warnings: int
    broken: dict[str, int]
    campaign_id: str | None = None
    obligations: tuple[Obligation, ...] = ()


class CaseSnapshot(Struct, forbid_unknown_fields=True):
    """An episode as a snapshot has it, with what is counted about it."""

    episode: EpisodeState
    settings: Settings
    refusals: int = 0
    warnings: int = 0
    broken: dict[str, int] = {}
    campaign_id: str | None = None


class EpisodeCase(CaseSnapshot, kw_only=True):
    """An episode that is judged; `bar` is the rule by which there can be none.

    `begun` is whether anything was accepted in it.
    """

    machine: Machine
    bar: Rule | None = None
    begun: bool = False

    @property
    def outcome(self) -> Outcome:
        """What is to be said of the episode so far."""
        if self.refusals:
            return Outcome.VIOLATED
        return Outcome.CONFORMING if self.episode.position is Position.CLOSED else Outcome.OPEN

    def summary(self) -> JudgeSummary:
        """Return what is known of the episode; a closed one owes nothing."""
        closed = self.episode.position is Position.CLOSED
        return JudgeSummary(
            self.episode.correlation_id,
            self.outcome,
            self.episode.state,
            self.episode.packets,
            self.refusals,
            self.warnings,
            self.broken,
            self.campaign_id,
            () if closed else list_obligations(self.episode, self.machine.context),
        )


def count_broken_rules(broken: dict[str, int], verdict: Verdict) -> dict[str, int]:
    """Return how often each rule was broken, the verdict counted in."""
    return broken | {rule: broken.get(rule, 0) + 1 for rule in verdict.rules}


JudgeInput: TypeAlias = bytes | bytearray | memoryview | str | ParsedLine

# Why there is no episode to judge a line in, by the rule that says so.
_BLOCK_REASONS: Final = {
    EPISODE_CLOSED.id: "the episode is closed",
    LIMIT_1.id: "as many episodes are open as may be",
    record_1.id: "the judge has no clock of its own, so an episode cannot ask for it",
}


class _Snapshot(Struct, frozen=True, forbid_unknown_fields=True, tag="proctor judge 1"):
    settings: Settings
    limits: Limits
    rules: tuple[str, ...]
    cases: list[CaseSnapshot]
    closed: list[JudgeSummary]
    refused: list[JudgeSummary]


class Judge:
    """The judge of a stream of packets and records.

    `settings` hold for episodes whose `open` record does not say otherwise; `rules` are the user's own
    (`house_rules.load_rules`); `now` is the clock of episodes that ask for `clock="wall"`.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        limits: Limits | None = None,
        rules: tuple[HouseRule, ...] = (),
        now: Callable[[], datetime] | None = None,
    ) -> None:
        self._settings: Final = Settings() if settings is None else settings
        self._limits: Final = Limits() if limits is None else limits
        self._rules: Final = rules
        self._wall: Final = now
        self._require_clock(self._settings)
        self._machines: Final[dict[Settings, Machine]] = {}
        self._machine: Final = self._machine_for(self._settings)
        self._cases: Final[dict[str, EpisodeCase]] = {}
        self._closed: Final[dict[str, JudgeSummary]] = {}
        # Episodes of which nothing but refusals is known.
        self._refused: Final[dict[str, JudgeSummary]] = {}

    def apply(self, line: JudgeInput) -> Verdict:
        """Return the verdict on `line`; if it is accepted, the episode has moved on."""
        said = read(line, self._limits.errors) if type(line) is bytes else _parse_line(line, self._limits.errors)
        # What nearly every line is: a packet of an episode that is open.
        case = self._cases.get(said.header.correlation_id) if isinstance(said, Packet) else None
        if case is None:
            case = self._find_case(said)
            if case is None:
                return _refuse_without_episode(said)
        return self._commit(case, said, self._judge_line(case, said))

    def check(self, line: JudgeInput) -> Verdict:
        """Return the verdict that `apply` would give; nothing changes."""
        said = _parse_line(line, self._limits.errors)
        case = self._find_case(said)
        return _refuse_without_episode(said) if case is None else self._judge_line(case, said)

    def commit(self, line: JudgeInput, verdict: Verdict) -> Verdict:
        """Make the verdict count that `check` gave on `line`, without judging again; nothing may have come in between."""
        said = _parse_line(line, self._limits.errors)
        case = self._find_case(said)
        if case is None:
            return verdict
        if case.begun and verdict.before is not case.episode:
            raise ValidationError("the episode has moved on since this verdict", found=case.episode.correlation_id)
        return self._commit(case, said, verdict)

    def stream(self, lines: Iterable[bytes | str]) -> Iterator[Verdict]:
        """Yield the verdict on each of `lines` in turn; blank ones are passed over."""
        apply = self.apply
        for line in lines:
            if line and not line.isspace():
                yield apply(line)

    def open(
        self, correlation_id: str, *, at: datetime, by: str = "system", settings: Settings | None = None
    ) -> Verdict:
        """Open an episode under settings of its own."""
        stated = self._settings if settings is None else settings
        return self._record(RecordKind.OPEN, correlation_id, at, by, OpeningSettings(**msgspec.structs.asdict(stated)))

    def close(self, correlation_id: str, *, at: datetime, by: str = "system") -> Verdict:
        """Close an episode: from S7, or from S9 by the operator, with nothing open."""
        return self._record(RecordKind.CLOSE, correlation_id, at, by, {})

    def answer(
        self, correlation_id: str, *, at: datetime, by: str = "operator", data: dict[str, Any] | None = None
    ) -> Verdict:
        """Give a human's answer to the escalation that was presented."""
        return self._record(
            RecordKind.USER_INPUT, correlation_id, at, by, encode_values({} if data is None else data, "/data")
        )

    def approve(
        self,
        correlation_id: str,
        *,
        at: datetime,
        by: str = "operator",
        token_budget: int = 0,
        tool_call_budget: int = 0,
        time_budget_seconds: int = 0,
    ) -> Verdict:
        """Add to what may be spent."""
        given = Approval(token_budget, tool_call_budget, time_budget_seconds)
        return self._record(RecordKind.APPROVAL, correlation_id, at, by, given)

    def halt(self, correlation_id: str, *, at: datetime, by: str = "operator", reason: str = "") -> Verdict:
        """Put an episode into safe mode."""
        return self._record(
            RecordKind.SAFEMODE, correlation_id, at, by, encode_values({"reason": reason} if reason else {}, "/data")
        )

    def outcome(self, correlation_id: str) -> Outcome:
        """Return what became of an episode; one that nobody has heard of is open."""
        known = self._closed.get(correlation_id) or self._refused.get(correlation_id)
        if known is not None:
            return known.outcome
        case = self._cases.get(correlation_id)
        return Outcome.OPEN if case is None else case.outcome

    def summaries(self) -> Iterator[JudgeSummary]:
        """Yield what is known of every episode: closed ones, then those that were only refused, then open ones."""
        yield from self._closed.values()
        yield from self._refused.values()
        for case in self._cases.values():
            yield case.summary()

    def snapshot(self) -> bytes:
        """Return all that the judge remembers, for `restore`."""
        return msgspec.json.encode(
            _Snapshot(
                self._settings,
                self._limits,
                tuple(rule.text for rule in self._rules),
                [
                    CaseSnapshot(*(getattr(case, name) for name in CaseSnapshot.__struct_fields__))
                    for case in self._cases.values()
                ],
                list(self._closed.values()),
                list(self._refused.values()),
            )
        )

    @classmethod
    def restore(
        cls, snapshot: bytes, *, rules: tuple[HouseRule, ...] = (), now: Callable[[], datetime] | None = None
    ) -> "Judge":
        """Return a judge that goes on where `snapshot` was taken; the user's own rules must be the same."""
        try:
            kept = msgspec.json.decode(snapshot, type=_Snapshot)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise ValidationError("this is no snapshot of a judge", expected="what Judge.snapshot() returned") from None
        texts = tuple(rule.text for rule in rules)
        if texts != kept.rules:
            raise ValidationError("the snapshot was taken under other rules", found=texts, expected=str(kept.rules))
        judge = cls(kept.settings, limits=kept.limits, rules=rules, now=now)
        for one in kept.cases:
            judge._require_clock(one.settings)
            case = EpisodeCase(**msgspec.structs.asdict(one), machine=judge._machine_for(one.settings), begun=True)
            judge._cases[one.episode.correlation_id] = case
        judge._closed.update((summary.correlation_id, summary) for summary in kept.closed)
        judge._refused.update((summary.correlation_id, summary) for summary in kept.refused)
        return judge

    def _require_clock(self, settings: Settings) -> None:
        if settings.clock is Clock.WALL and self._wall is None:
            raise ValidationError('clock="wall" needs a clock', expected="now=, a function that returns the time")

    def _machine_for(self, settings: Settings) -> Machine:
        machine = self._machines.get(settings)
        if machine is None:
            machine = self._machines[settings] = Machine(JudgingContext(settings, self._rules), self._limits)
        return machine

    def _find_case(self, said: ParsedLine) -> EpisodeCase | None:
        """Return the episode that a line belongs to, if it says so; a new case if none is open."""
        name = said.correlation_id
        if name is None:
            return None
        known = self._cases.get(name)
        if known is not None:
            return known
        if name in self._closed:
            closed = replace(new_episode(name), position=Position.CLOSED)
            return EpisodeCase(closed, self._settings, machine=self._machine, bar=EPISODE_CLOSED)
        machine = self._machine
        if isinstance(said, Record) and isinstance(said.data, OpeningSettings):
            # An opening states what differs from the judge's settings.
            machine = self._machine_for(said.data.over(self._settings))
        case = EpisodeCase(new_episode(name, initial_marks(self._rules)), machine.context.settings, machine=machine)
        refused = self._refused.get(name)
        if refused is not None:
            case.refusals, case.warnings, case.broken = refused.refusals, refused.warnings, refused.broken
            case.campaign_id = refused.campaign_id
        if machine.timed and self._wall is None:
            case.bar = record_1
        elif len(self._cases) >= self._limits.open_episodes:
            case.bar = LIMIT_1
        return case

    def _judge_line(self, case: EpisodeCase, said: ParsedLine) -> Verdict:
        machine, bar = case.machine, case.bar
        if bar is not None and not (bar is LIMIT_1 and isinstance(said, Malformed)):
            found = violation(bar.id, "", _BLOCK_REASONS[bar.id])
            return machine.refuse(case.episode, classify_line(said), said.packet_id, found)
        wall = self._wall() if machine.timed and self._wall is not None else None
        if isinstance(said, Packet):
            return machine.judge(case.episode, said, wall)
        if isinstance(said, Record):
            return machine.judge_record(case.episode, said, known=case.begun, wall=wall)
        verdict = machine.judge_unreadable(case.episode, said)
        return verdict if case.begun else replace(verdict, path=())

    def _commit(self, case: EpisodeCase, said: ParsedLine, verdict: Verdict) -> Verdict:
        """Return the verdict, once the episode has moved on by it or the refusal is counted."""
        if case.campaign_id is None and isinstance(said, Packet):
            case.campaign_id = said.header.campaign_id
        after = verdict.after
        if not verdict.accepted or after is None:
            self._count_refusal(case, verdict)
            return verdict
        name = after.correlation_id
        if not case.begun:
            case.begun = True
            self._cases[name] = case
            self._refused.pop(name, None)
        case.episode = after
        if verdict.warnings:
            case.warnings += len(verdict.warnings)
        if verdict.packet_id is not None:
            after.seen[verdict.packet_id] = after.packets if verdict.event in EVIDENCE else 0
        elif after.position is Position.CLOSED:
            del self._cases[name]
            self._closed[name] = case.summary()
            _drop_oldest(self._closed, self._limits.closed_episodes)
        return verdict

    def _count_refusal(self, case: EpisodeCase, verdict: Verdict) -> None:
        """Remember that a line of an episode was refused, also where the episode is closed or has not begun."""
        case.refusals += 1
        case.warnings += len(verdict.warnings)
        case.broken = count_broken_rules(case.broken, verdict)
        name = case.episode.correlation_id
        closed = self._closed.get(name)
        if closed is not None:
            broken = count_broken_rules(closed.broken, verdict)
            self._closed[name] = replace(closed, outcome=Outcome.VIOLATED, refusals=closed.refusals + 1, broken=broken)
        elif not case.begun:
            self._refused[name] = case.summary()
            _drop_oldest(self._refused, self._limits.closed_episodes)

    def _record(self, kind: RecordKind, name: str, at: datetime, by: str, data: Any) -> Verdict:
        record, line = read_back(Record(kind, name, at, parse_word(RecordSource, by, "/by"), data))
        return replace(self.apply(record), line=line)


def _parse_line(line: JudgeInput, most_errors: int) -> ParsedLine:
    if isinstance(line, str):
        # A lone surrogate is no text; its bytes are no UTF-8 either, so that the reader says so.
        return read(line.encode("utf-8", "surrogatepass"), most_errors)
    if isinstance(line, bytes | bytearray | memoryview):
        return read(bytes(line), most_errors)
    if isinstance(line, Packet | Record | Malformed):
        return line
    raise ValidationError("this is no line", found=line, expected="bytes, text, a Packet or a Record")


def _refuse_without_episode(said: ParsedLine) -> Verdict:
    errors = said.errors if isinstance(said, Malformed) else ()
    return Verdict(False, None, said.packet_id, None, (), findings_from_errors(errors), (), None, None)


def _drop_oldest(summaries: dict[str, JudgeSummary], limit: int) -> None:
    while len(summaries) > limit:
        del summaries[next(iter(summaries))]
