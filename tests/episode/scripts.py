"""A stream and what is expected of it, written side by side: the language of the goldens and of the tests of decisions.

Rule 1: an expectation is written by hand from the specification, next to the line that it is about.
Rule 2: a script never asks the machine anything.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import msgspec

from proctor.episode.author import Author
from proctor.episode.packets.enums import DecisionOutcome
from proctor.episode.packets.fields import Decision, Directive, Record, TaskResult, Token
from proctor.episode.packets.reader import AnyPacket, Packet
from proctor.episode.packets.writer import PacketDefaults
from proctor.episode.transition_table import ProtocolState
from proctor.episode.verdicts import Verdict

START: Final = datetime(2025, 1, 1, tzinfo=UTC)
STATE: Final = {state.value[:2]: state.value for state in ProtocolState}

Line = AnyPacket | Record | bytes
LineT = TypeVar("LineT", bound=Line)


class Expected(msgspec.Struct, frozen=True):
    """What is expected of one line; `path_end` is null if the line belongs to no episode."""

    line: int
    verdict: str
    rules: list[str]
    warnings: list[str]
    path_end: str | None


class Script:
    """A stream under way; the short names of states are S0 to S9."""

    def __init__(self, correlation_id: str = "corr_golden", *, campaign_id: str | None = None) -> None:
        self.lines: list[bytes] = []
        self.expected: list[Expected] = []
        self._authors: dict[str, Author] = {}
        self._accepted: dict[str, str] = {}
        self.author = self.another(correlation_id, campaign_id=campaign_id)

    def another(
        self, correlation_id: str, *, campaign_id: str | None = None, policy: PacketDefaults | None = None
    ) -> Author:
        """Return the author of one more episode in this stream."""
        author = Author(correlation_id, at=START, campaign_id=campaign_id, policy=policy)
        self._authors[correlation_id] = author
        return author

    def takes(self, line: LineT, state: str, *warnings: str) -> LineT:
        """Add a line that is accepted and leads to `state`, and return it."""
        self._add(line, "accepted", (), warnings, state)
        if isinstance(line, Packet):
            self._accepted[line.header.correlation_id] = line.header.packet_id
        return line

    def refuses(self, line: Line, state: str | None, *rules: str, warnings: tuple[str, ...] = ()) -> None:
        """Add a line that breaks `rules` and leaves the episode in `state`; the chain goes on from the line before."""
        self._add(line, "refused", rules, warnings, state)
        for correlation_id, author in self._authors.items():
            author.previous_packet_id = self._accepted.get(correlation_id)

    def _add(
        self, line: Line, verdict: str, rules: tuple[str, ...], warnings: tuple[str, ...], state: str | None
    ) -> None:
        self.lines.append(line if isinstance(line, bytes) else line.line())
        end = None if state is None else STATE[state]
        self.expected.append(Expected(len(self.lines), verdict, list(rules), list(warnings), end))

    # ------------------------------------------------------------------------------------------ the usual beginnings
    def opens(self, **settings: object) -> None:
        """Open the episode with settings of its own."""
        self.takes(self.author.record("open", settings), "S0")

    def senses(self) -> AnyPacket:
        """Begin the episode: one observation, S1."""
        return self.takes(self.author.observation({"level": 3}), "S1")

    def models(self) -> AnyPacket:
        """Go on to S2: an observation and a belief."""
        seen = self.senses()
        self.takes(self.author.belief({"level": 3}, evidence=[seen]), "S2")
        return seen

    def decides(self, outcome: str, **said: Any) -> Packet[Decision]:
        """Go on to S3, or S4 for VERIFY_FIRST."""
        self.models()
        return self.takes(
            self.author.decision(outcome, **said), "S4" if outcome == DecisionOutcome.VERIFY_FIRST else "S3"
        )

    def executes(self, **said: Any) -> Packet[Directive]:
        """Go on to S6 with one READ directive that waits for its result; `said` is about the decision."""
        self.decides("ACT", **said)
        return self.takes(self.author.directive("gauge"), "S6")

    def authorizes(self, **said: Any) -> Packet[Token]:
        """Go on to S5 with one token for the tool "valve"; `said` is about the token."""
        self.decides("ACT")
        return self.takes(self.author.token("valve", **said), "S5")

    def reads_in_s4(self) -> Packet[TaskResult]:
        """Go on to S4 with a plan, a READ directive and its success."""
        self.decides("VERIFY_FIRST")
        self.takes(self.author.plan(), "S4")
        asked = self.takes(self.author.directive("gauge", task_type="verification"), "S4")
        return self.takes(self.author.result(asked), "S4")

    def verifies(self) -> AnyPacket:
        """Go on to S4 with all that the verification needs but its belief; the evidence is returned."""
        self.reads_in_s4()
        return self.takes(self.author.observation({"level": 3}), "S4")

    def reviews(self) -> None:
        """Go on to S7: a deferral."""
        self.decides("DEFER")
        self.takes(self.author.belief(), "S7")

    def escalates(self) -> None:
        """Go on to S8, with a human asked."""
        self.decides("ESCALATE")
        self.takes(self.author.escalation(), "S8")

    def halts(self) -> None:
        """Go on to S9, from S2."""
        self.models()
        self.takes(self.author.alert("CRITICAL"), "S9")

    def closes(self, by: str = "system") -> None:
        """Close the episode."""
        self.takes(self.author.record("close", by=by), "S0")


class Golden(msgspec.Struct, frozen=True):
    """A named script."""

    name: str
    write: Callable[[Script], None]

    def script(self) -> Script:
        """Return the script, written anew."""
        script = Script()
        self.write(script)
        return script


class Shelf:
    """Goldens, by name, in the order in which they are written down."""

    def __init__(self) -> None:
        self.goldens: dict[str, Golden] = {}

    def golden(self, name: str) -> Callable[[Callable[[Script], None]], Callable[[Script], None]]:
        """Return a decorator that puts a function on the shelf."""

        def put(write: Callable[[Script], None]) -> Callable[[Script], None]:
            self.goldens[name] = Golden(name, write)
            return write

        return put


def edited(packet: AnyPacket, changes: Mapping[str, object]) -> bytes:
    """Return the packet's line with other values at these JSON pointers."""
    line = msgspec.json.decode(packet.line())
    for pointer, value in changes.items():
        holder, key = _holder(line, pointer)
        holder[key] = value
    return msgspec.json.encode(line)


def without(packet: AnyPacket, *pointers: str) -> bytes:
    """Return the packet's line without these keys."""
    line = msgspec.json.decode(packet.line())
    for pointer in pointers:
        holder, key = _holder(line, pointer)
        del holder[key]
    return msgspec.json.encode(line)


def _holder(line: Any, pointer: str) -> tuple[Any, str | int]:
    *parents, last = (int(part) if part.isdigit() else part for part in pointer.split("/")[1:])
    for part in parents:
        line = line[part]
    return line, last


def everything(verdict: Verdict) -> tuple[Any, ...]:
    """Return all that a verdict says."""
    return (
        *(getattr(verdict, name) for name in ("accepted", "packet_id", "correlation_id", "event", "path", "synthetic")),
        *(getattr(verdict, name) for name in ("rules", "pointers", "reason", "findings", "warnings", "state")),
        *(getattr(verdict, name) for name in ("legal_next", "way", "obligations")),
    )
