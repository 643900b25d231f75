"""Users' own rules about the order of packets: one a line, three forms, kept beside the built-in ones.

    # comments begin with a hash
    ASK-FIRST: approval record before DecisionPacket(ACT)
    NO-WRITE [warning]: never TaskDirectivePacket(WRITE) after IntegrityAlertPacket
    TELL: TaskResultPacket leads to ObservationPacket within 3

Rule 1: `A before B`: B is refused unless an A was accepted before it. `never A after B`: A is refused once a B was
    accepted. `A leads to B within N`: of the N packets accepted next after an A, one is a B; the N-th that is not is
    refused, and so is a close before the B came.
Rule 2: a rule's state in an episode is one number, its mark, and all the marks are one tuple beside the rules. Nothing
    here changes anything: `after` returns the next marks.
Rule 3: records and what the machine makes itself are no packets: they use up none of the N.
Rule 4: a rule of level "warning" says the same and refuses nothing; a promise not kept in time is told once and dropped.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from proctor.episode.transition_table import CLOSES, EVENTS, PACKETS, RECORDS, Event
from proctor.errors import ValidationError


class Form(StrEnum):
    """What a rule says about its two sorts of events."""

    BEFORE = "before"
    NEVER = "never"
    LEADS = "leads to"


Level: TypeAlias = Literal["error", "warning"]


class HouseRule(Struct, frozen=True):
    """One rule; `first` and `second` are A and B in the order of the line, `text` is the line as written."""

    id: str
    level: Level
    form: Form
    first: frozenset[Event]
    second: frozenset[Event]
    within: int | None
    text: str


Rules: TypeAlias = tuple[HouseRule, ...]
# For "before" and "never": 1 if the event that decides was seen. For "leads to": in how many packets B is due; 0 is no
# promise.
Marks: TypeAlias = tuple[int, ...]
Violation: TypeAlias = tuple[HouseRule, str]

_PACKETS: Final = frozenset(PACKETS)
_CLOSES: Final = frozenset(CLOSES)

# A packet's bare name stands for all that it can be, so an issued token has a name of its own here.
_ISSUED: Final = f"{Event.TOKEN}(issued)"
LABELS: Final[Mapping[str, frozenset[Event]]] = {
    **{str(event): frozenset((event,)) for event in Event if event in _PACKETS or event in RECORDS},
    "close": _CLOSES,
    _ISSUED: frozenset((Event.TOKEN,)),
    **{str(kind): frozenset(events) for kind, events in EVENTS.items()},
}
_NAMES: Final = {events: label for label, events in LABELS.items()}

# The ids that the built-in rules have or may get.
BUILT_IN: Final = re.compile(
    r"JSON|SCHEMA|FSM|EPISODE_CLOSED|ENDED|[ES][0-9]+|(?:INV|ID|TIME|QUEUE|SAFETY|LAYER|LIMIT|RECORD|GOV|POLICY)-.*",
    re.IGNORECASE,
)
_LINE: Final = re.compile(r"([^:]*):(.*)")
_HEAD: Final = re.compile(r"(?P<id>[A-Za-z][A-Za-z0-9_.-]*)(?: \[(?P<level>\w+)\])?")
# No label has such words in it.
_BODIES: Final = {
    Form.NEVER: re.compile(r"never (?P<first>.+?) after (?P<second>.+)"),
    Form.BEFORE: re.compile(r"(?P<first>.+?) before (?P<second>.+)"),
    Form.LEADS: re.compile(r"(?P<first>.+?) leads to (?P<second>.+) within (?P<within>.+)"),
}
_COUNT: Final = re.compile(r"[1-9][0-9]{0,8}")
_ID: Final = "letters, digits, `_`, `.` and `-`, a letter first"
_SHAPE: Final = "`ID: A before B`, `ID: never A after B` or `ID: A leads to B within N`"


def load_rules(text: str) -> Rules:
    """Return the rules in `text`, in its order; a mistake is a ValidationError that names the line."""
    found: dict[str, HouseRule] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        written = line.partition("#")[0].strip()
        if not written:
            continue
        rule = _parse_rule(number, written)
        if rule.id in found:
            raise _mistake(number, "the id is used by an earlier rule", rule.id, "an id of its own for every rule")
        found[rule.id] = rule
    return tuple(found.values())


def _mistake(number: int, what: str, found: str, expected: str) -> ValidationError:
    return ValidationError(f"house rules, line {number}: {what}", found=found, expected=expected)


def _parse_rule(number: int, written: str) -> HouseRule:
    line = _LINE.fullmatch(written)
    if line is None:
        raise _mistake(number, "there is no colon after an id", written, _SHAPE)
    # One blank between two words is as good as several.
    head, body = (" ".join(words.split()) for words in line.groups())
    rule_id, level = _parse_head(number, head)
    for form, pattern in _BODIES.items():
        said = pattern.fullmatch(body)
        if said is not None:
            first, second = (_parse_events(number, label) for label in said.group("first", "second"))
            within = _parse_count(number, said["within"]) if form is Form.LEADS else None
            return HouseRule(rule_id, level, form, first, second, within, written)
    raise _mistake(number, "the rule has none of the three forms", body, _SHAPE)


def _parse_head(number: int, head: str) -> tuple[str, Level]:
    found = _HEAD.fullmatch(head)
    if found is None:
        raise _mistake(number, "this is no id", head, f"{_ID}, and `[warning]` after it if it only warns")
    if BUILT_IN.fullmatch(found["id"]):
        raise _mistake(number, "the id is one of the built-in rules", found["id"], "another id")
    if found["level"] not in (None, "warning"):
        raise _mistake(number, "there is no such level", found["level"], "`[warning]`, or nothing for an error")
    return found["id"], "error" if found["level"] is None else "warning"


def _parse_events(number: int, label: str) -> frozenset[Event]:
    """Return what a label stands for; a mistake in a packet's variant is answered with those that it has."""
    found = LABELS.get(label)
    if found is None:
        kind = label.partition("(")[0]
        known = [name for name in LABELS if name.startswith(f"{kind}(")] or sorted(LABELS)
        raise _mistake(number, "there is no such event", label, f"one of {', '.join(known)}")
    return found


def _parse_count(number: int, word: str) -> int:
    if _COUNT.fullmatch(word) is None:
        raise _mistake(number, "this is no number of packets", word, "a whole number from 1 to 999999999")
    return int(word)


def initial_marks(rules: Rules) -> Marks:
    """Return the marks at the beginning of an episode."""
    return (0,) * len(rules)


def find_violations(rules: Rules, marks: Marks, event: Event) -> tuple[Violation, ...]:
    """Return the rules that `event` would break if it came now, each with its reason; a caller looks at the level."""
    told = ((rule, _find_breach(rule, mark, event)) for rule, mark in zip(rules, marks, strict=True))
    return tuple((rule, reason) for rule, reason in told if reason is not None)


def next_marks(rules: Rules, marks: Marks, event: Event) -> Marks:
    """Return the marks once `event` is accepted."""
    return tuple(_next_mark(rule, mark, event) for rule, mark in zip(rules, marks, strict=True))


def open_promises(rules: Rules, marks: Marks) -> tuple[Violation, ...]:
    """Return the open promises, each with what is due."""
    return tuple(
        (rule, f"{_NAMES[rule.second]} within {_next_packets(mark)}, since {_NAMES[rule.first]} leads to it")
        for rule, mark in zip(rules, marks, strict=True)
        if rule.form is Form.LEADS and mark
    )


def _next_packets(count: int) -> str:
    return "the next packet" if count == 1 else f"the next {count} packets"


def _find_breach(rule: HouseRule, mark: int, event: Event) -> str | None:
    """Return why `event` breaks the rule; None if it does not."""
    if rule.form is Form.BEFORE:
        return None if mark or event not in rule.second else f"{event} comes before any {_NAMES[rule.first]}"
    if rule.form is Form.NEVER:
        return f"{event} comes after {_NAMES[rule.second]}" if mark and event in rule.first else None
    if not mark or event in rule.second:
        return None
    promise = f"{_NAMES[rule.second]}, to which {_NAMES[rule.first]} leads"
    if event in _CLOSES:
        return f"the episode would close before {promise}"
    return f"{event} comes where {promise}, is due at the latest" if mark == 1 and event in _PACKETS else None


def _next_mark(rule: HouseRule, mark: int, event: Event) -> int:
    """Return the mark once `event` is accepted; of several promises the earliest counts, and one B keeps them all."""
    if rule.form is not Form.LEADS:
        return 1 if event in (rule.first if rule.form is Form.BEFORE else rule.second) else mark
    if event in rule.second:
        mark = 0
    elif mark and event in _PACKETS:
        mark -= 1
    return (rule.within or 0) if not mark and event in rule.first else mark
