"""Verdicts in words: why a line of a governed episode was refused, what would be legal, and what to do.

Rule 1: the lines on record are judged again under the policy on record, up to the one that is asked for. What the judge says now is
    told only as long as it is what was recorded; from the first line on which they disagree, and under a policy that cannot be
    read, a row is explained by what it says itself.
Rule 2: what was refused before the judge saw it is explained by its rule, and by what was legal where it was tried.
Rule 3: a line that cannot be read is passed over; those after it speak for themselves.
Rule 4: nothing is guessed, and whatever stands in a line, this does not fail on it.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Final

import msgspec
from msgspec import Struct

from proctor.episode.episode_state import EpisodeState, classify_packet, classify_record, new_episode
from proctor.episode.judge import Judge
from proctor.episode.legal_moves import event_label, legal_next, shortest_way
from proctor.episode.packets.enums import RecordKind
from proctor.episode.packets.reader import Malformed, Packet, read
from proctor.episode.rules.governance import POLICY_1, POLICY_2, advice_for, context_from_policy
from proctor.episode.rules.house_rules import initial_marks
from proctor.episode.transition_table import Event, Position
from proctor.episode.verdicts import JudgingContext, Verdict, list_obligations
from proctor.errors import ValidationError
from proctor.ledger.chain import is_episode_chain
from proctor.ledger.reader import Ledger
from proctor.ledger.storage.ledger_file import ChainEntry, LedgerFile
from proctor.models.events import PacketJudged, SessionOpened
from proctor.narration import verdicts
from proctor.viewer.documents import Explanation, RuleSentence, clean_text
from proctor.viewer.first_difference import PACKET_MARK, read_row

LONGEST: Final = 64
"""Of a name that an agent chose and that stands in a headline."""
LONGEST_WHY: Final = 200
MOST_REASONS: Final = 8
MOST_CHAINS: Final = 2
"""So many episodes stay judged again for the next question."""
MOST_HELD: Final = 2**26
"""About so many bytes of each."""
LINE_SIZE: Final = 2048
"""About what a line takes besides what it says."""

NOTE_WORDS: Final = {
    "token_request": "An agent asked for a token, and an operator decides about it.",
    "token_denied": "An operator denied the token that an agent had asked for.",
}
"""What is on record without being a line of the judge's stream."""
_WAY_BY: Final = {POLICY_1: (Event.VERIFY_FIRST, Event.PLAN, Event.READ, Event.BELIEF, Event.ACT)}


def explain_line(ledger: Ledger, chain: str, number: int) -> Explanation:
    """Return the explanation of the judged line in this row; a ValidationError if the row is no such line of the chain."""
    return _EXPLAINER.explain(ledger, chain, number)


def explain_refusals(ledger: Ledger, chain: str) -> dict[int, Explanation]:
    """Return the explanations of all lines that were refused, by the numbers of their rows."""
    told = _RejudgedChain(*ledger.find_chain(chain)).rejudge(sys.maxsize)
    return {number: each.explain(number) for number, each in told if not each.event.accepted}


class Explainer:
    """Explains one line after the other, and remembers how far the latest episodes were judged again; any thread may ask."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._chains: dict[tuple[Path, str], _RejudgedChain] = {}

    def explain(self, ledger: Ledger, chain: str, number: int) -> Explanation:
        """Return the explanation of a judged line, as the function of that name does."""
        with self._lock:
            file, entry = ledger.find_chain(chain)
            # The one that was asked for last stands last.
            known = self._chains.pop((file.path, chain), None)
            if known is None or not known.can_continue(file, entry, number):
                known = _RejudgedChain(file, entry)
            self._chains[file.path, chain] = known
            if len(self._chains) > MOST_CHAINS:
                del self._chains[next(iter(self._chains))]
            told = known.find_line(number)
        if told is None:
            raise ValidationError("this row is no judged line", found=number, expected=f"the number of one in {chain}")
        return told.explain(number)


_EXPLAINER: Final = Explainer()
"""Of this process: people ask for one line after the other of the same episode."""


class _RejudgedChain:
    """The lines of one chain, judged again in order as far as somebody asked."""

    def __init__(self, file: LedgerFile, chain: ChainEntry) -> None:
        self._file = file
        self._chain = chain
        first = file.read_row(chain.first)
        opened = None if first is None or (said := read_row(first[3])) is None else said.event
        if not is_episode_chain(chain.name) or not isinstance(opened, SessionOpened | None):
            raise ValidationError("this chain is no episode", found=chain.name, expected="the chain of an episode")
        self._context = JudgingContext()
        self._agrees = opened is not None
        """Whether every line up to here is judged now as it was judged then."""
        if opened is not None and opened.policy is not None:
            try:
                self._context = context_from_policy(opened.policy)
            except ValidationError:
                self._agrees = False
        self._judge = Judge(self._context.settings, rules=self._context.house_rules)
        self._state: EpisodeState = new_episode("", initial_marks(self._context.house_rules))
        self._mark: tuple[int, bytes] = (chain.first - 1, b"")
        """Number and hash of the last row that was read."""
        self._known: dict[int, _RejudgedLine] = {}
        self._held = 0
        self._forgotten = 0
        """Of the lines up to this number nothing is known any more."""

    def can_continue(self, file: LedgerFile, chain: ChainEntry, number: int) -> bool:
        """Read on in the same file, opened anew; return whether it is the same, and the row of this number not forgotten."""
        last, row_hash = self._mark
        stored = file.read_row(last)
        self._file, self._chain = file, chain
        return number > self._forgotten and stored is not None and stored[4] == row_hash

    def find_line(self, number: int) -> "_RejudgedLine | None":
        """Return what there is to tell of a row; None: it is no line that can be read."""
        for found, told in self.rejudge(number):
            size = LINE_SIZE + memoryview(told.event.line).nbytes
            self._known[found] = told
            self._held += size
            if self._held > MOST_HELD:
                self._known = {found: told}
                self._held, self._forgotten = size, found - 1
        return self._known.get(number)

    def rejudge(self, upto: int) -> Iterator[tuple[int, "_RejudgedLine"]]:
        """Yield the lines that were not judged again yet, with the numbers of their rows."""
        rows = self._file.read_rows_of_chains([self._chain.first], start=self._mark[0] + 1)
        for number, first, _, content, row_hash in rows:
            if number > upto or first != self._chain.first:
                return
            self._mark = (number, row_hash)
            if PACKET_MARK not in content:
                continue
            said = read_row(content)
            if said is None:
                # What comes after a line that cannot be read cannot be judged again.
                self._agrees = False
            elif isinstance(said.event, PacketJudged):
                yield number, self._rejudge_line(said.event)

    def _rejudge_line(self, event: PacketJudged) -> "_RejudgedLine":
        """Take the next line; what it was judged is compared with what it is judged now."""
        verdict = self._judge.apply(bytes(event.line)) if self._agrees and event.judged else None
        if verdict is not None and not _is_same_verdict(event, verdict):
            self._agrees, verdict = False, None
        if verdict is not None and verdict.accepted and verdict.after is not None:
            # An `open` record may state other settings than the policy.
            self._state, self._context = verdict.after, verdict.context
        return _RejudgedLine(event, self._context, verdict, self._state if self._agrees else None)


def _is_same_verdict(event: PacketJudged, verdict: Verdict) -> bool:
    """Return whether a line gets the verdict that it got."""
    after = event.state if verdict.after is None else verdict.after.state
    # Of a line that is no packet the server listed the first errors only.
    rules = list(verdict.rules if verdict.event is not None else verdict.rules[: max(1, len(event.rules))])
    return verdict.accepted == event.accepted and rules == event.rules and after == event.state


@dataclass(frozen=True, slots=True)
class _RejudgedLine:
    """One line with what is known of it: `verdict` if it was judged again, `state` where the episode stood after it."""

    event: PacketJudged
    context: JudgingContext
    verdict: Verdict | None
    state: EpisodeState | None

    def explain(self, number: int) -> Explanation:
        """Return the line in words."""
        event, state, accepted = self.event, self.state, self.event.accepted
        legal = [] if state is None else list(legal_next(state, self.context.settings))
        way = [] if accepted else list(self._way())
        warned = list(dict.fromkeys(warning.partition(":")[0] for warning in event.warnings))
        rules = warned if accepted else event.rules
        obligations = () if state is None else list_obligations(state, self.context)
        return Explanation(
            number=number,
            accepted=accepted,
            headline=self._headline(),
            reason=self._reason(),
            pointers=list(event.pointers),
            rules=[RuleSentence(rule=rule, sentence=verdicts.rule_sentence(rule, self.context)) for rule in rules],
            state=event.state,
            legal_next=legal,
            way=way,
            obligations=[verdicts.describe_obligation(owed) for owed in obligations],
            advice="" if accepted else self._advice(way, legal),
        )

    def _headline(self) -> str:
        event = self.event
        if event.accepted and not event.judged:
            name = clean_text(event.kind, LONGEST) or "without a name"
            return NOTE_WORDS.get(event.kind, f"A note was put on record: {name}.")
        what = _describe_line(event)
        what = what[:1].upper() + what[1:]
        if not event.accepted:
            why = clean_text(verdicts.short_reason(event.rules, event.reason), LONGEST_WHY) or "nobody said why"
            return f"{what} was refused: {why}."
        path = list(dict.fromkeys(event.path or [event.state]))
        went = f"went from {' to '.join(path)}" if len(path) > 1 else f"stays in {path[0]}"
        return f"{what} was accepted{' with a warning' if event.warnings else ''}: the episode {went}."

    def _reason(self) -> str:
        if self.event.accepted:
            return "; ".join(self.event.warnings)
        if self.verdict is None:
            return self.event.reason
        told = list(dict.fromkeys(finding.reason.rstrip(".") for finding in self.verdict.findings))
        more = [f"and {len(told) - MOST_REASONS} more"] if len(told) > MOST_REASONS else []
        return "; ".join(told[:MOST_REASONS] + more)

    def _way(self) -> Sequence[str]:
        """Return the packets that lead to what was refused, it itself last; none if nothing has to be said before it."""
        if self.verdict is not None:
            return verdicts.find_way_on(self.verdict)
        if self.state is None:
            return ()
        rule = next(iter(self.event.rules), "")
        if rule != POLICY_2:
            return tuple(map(event_label, _WAY_BY.get(rule, ())))
        # An operator is asked first, and then what was tried is decided and tried again.
        asked = shortest_way(self.state, self.context.settings, Event.ESCALATION)
        tried = _find_event(self.event)
        again = () if tried is None or tried is Event.ACT else (event_label(tried),)
        return (*asked, event_label(Event.ANSWER), event_label(Event.ACT), *again) if asked else ()

    def _advice(self, way: Sequence[str], legal: Sequence[str]) -> str:
        known = advice_for(self.event.rules)
        if known:
            return known
        if self.state is not None and self.state.position is Position.CLOSED:
            return "Nothing more can be said in this episode: begin another one."
        if way:
            return f"Take the shortest way there: {', then '.join(way)}."
        return "Send one of the packets that are legal now." if legal else ""


def _describe_line(event: PacketJudged) -> str:
    said = _find_event(event)
    if said is not None:
        return verdicts.EVENT_WORDS[said]
    kind = event.kind or _read_kind(bytes(event.line))
    called = bool(kind) and kind == event.tool
    return f"a call of {clean_text(kind, LONGEST)}" if called else verdicts.describe_kind(clean_text(kind, LONGEST))


class _Header(Struct, frozen=True):
    packet_type: str = ""


class _LineKind(Struct, frozen=True):
    """As much of a line as says what it would be; it may be no packet."""

    header: _Header = _Header()
    record: str = ""


_LINE_KIND: Final = msgspec.json.Decoder(_LineKind)


def _read_kind(line: bytes) -> str:
    try:
        said = _LINE_KIND.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return said.header.packet_type or said.record


def _find_event(event: PacketJudged) -> Event | None:
    """Return what the table would see of a line; None if it is no packet and no record."""
    said = read(bytes(event.line))
    if isinstance(said, Packet):
        return classify_packet(said)
    if isinstance(said, Malformed) or said.record is RecordKind.OPEN:
        return None
    return classify_record(said)
