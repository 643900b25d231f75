"""Where two episodes part: two streams of moments, or of lines, walked side by side up to the first difference. Pure.

Rule 1: moments are aligned by their order after the reset and compared by what was done (the action) and what came of it:
    observation, reward and its parts, flags, and the picture where both have one. What an environment says besides (its metadata,
    in which there may be times) is left out. Digests that are the same are never looked behind.
Rule 2: lines are aligned by their order and compared by kind, verdict, rules, state and payload. Ids and times differ by nature, so
    they are left out.
Rule 3: of a difference of either sort the one that was recorded first counts.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final

import msgspec

from proctor.replay.difference import Difference as Place
from proctor.replay.difference import parted, values_parted
from proctor.viewer.moments import Moment, Spoken

ENDS, GOES_ON = "ends", "goes on"
END: Final = "end"
SILENCE: Final = "silence"


@dataclass(frozen=True, slots=True)
class Parting:
    """The first difference: what differs, where in it, both values, and the rows; None where one has no such row."""

    what: str
    where: str
    left: Any
    right: Any
    step: int
    number_one: int | None
    number_other: int | None
    kind: str = ""
    """Of the line, if it is one that differs."""


def moments_parted(one: Iterable[Moment], other: Iterable[Moment]) -> Parting | None:
    """Return where two streams of moments part; None: nowhere."""
    last = 0
    for left, right in _paired(iter(one), iter(other)):
        if left is None or right is None:
            return _ended(END, left, right, last)
        place = _place(left, right)
        if place is not None:
            return Parting(place.what, place.where, place.recorded, place.found, left.step, left.number, right.number)
        last = left.step
    return None


def _paired(one: Iterator[Moment], other: Iterator[Moment]) -> Iterator[tuple[Moment | None, Moment | None]]:
    """Yield moments side by side; where a row of one could not be read, the other's is passed over, too."""
    left, right = next(one, None), next(other, None)
    while left is not None or right is not None:
        if left is not None and right is not None and left.step < right.step and right.after_gap:
            left = next(one, None)
        elif left is not None and right is not None and right.step < left.step and left.after_gap:
            right = next(other, None)
        else:
            yield left, right
            left, right = next(one, None), next(other, None)


def lines_parted(one: Iterable[Spoken], other: Iterable[Spoken]) -> Parting | None:
    """Return where two streams of lines part; None: nowhere."""
    for left, right in zip_longest(one, other):
        if left is None or right is None:
            goes_on = left or right
            return _ended(SILENCE, left, right, 0 if goes_on is None else goes_on.step)
        place = next(_line_places(left, right), None)
        if place is not None:
            seen = (left.step, left.number, right.number)
            return Parting(place.what, place.where, place.recorded, place.found, *seen, kind=left.kind)
    return None


def first_of(moment: Parting | None, line: Parting | None) -> Parting | None:
    """Return which of two differences was recorded first."""
    if moment is None or line is None:
        return moment or line
    for name in ("number_one", "number_other"):
        by_moment, by_line = getattr(moment, name), getattr(line, name)
        if by_moment is not None and by_line is not None:
            return moment if by_moment < by_line else line
    return moment if moment.step <= line.step else line


def _ended(what: str, left: Moment | Spoken | None, right: Moment | Spoken | None, step: int) -> Parting:
    """Return that one of two streams is over; `step` is where it ended."""
    goes_on = left or right
    kind = goes_on.kind if isinstance(goes_on, Spoken) else ""
    sides = (ENDS, GOES_ON) if left is None else (GOES_ON, ENDS)
    one, other = (None if each is None else each.number for each in (left, right))
    return Parting(what, "", *sides, step, one, other, kind)


# --------------------------------------------------------------------------------------------------------- a moment
def _place(left: Moment, right: Moment) -> Place | None:
    return next((place for place in _places(left, right) if place is not None), None)


def _places(left: Moment, right: Moment) -> Iterator[Place | None]:
    """Yield where two moments differ, in the order in which people ask."""
    yield parted("action", left.action, right.action)
    if left.observation != right.observation:
        yield _behind("observation", left, right, 0)
    if left.reward is not None and right.reward is not None:
        yield parted("reward", left.reward, right.reward)
        yield parted("reward's parts", left.parts, right.parts)
    yield parted("raw reward", left.raw_reward, right.raw_reward)
    yield parted("terminated", left.terminated, right.terminated)
    yield parted("truncated", left.truncated, right.truncated)
    if left.scene and right.scene and left.scene != right.scene:
        yield _behind("picture", left, right, 1)


def _behind(what: str, left: Moment, right: Moment, place: int) -> Place | None:
    """Return how two values differ whose digests do; by the digests if one of them was not stored."""
    one, other = left.values()[place], right.values()[place]
    if one is not None and other is not None:
        return parted(what, one, other)
    digests = [f"sha256:{(each.observation, each.scene)[place]}" for each in (left, right)]
    return Place(what, *digests)


# ----------------------------------------------------------------------------------------------------------- a line
NATURAL: Final = frozenset(
    {
        "packet_id",
        "correlation_id",
        "campaign_id",
        "previous_packet_id",
        "token_id",
        "task_id",
        "plan_id",
        "alert_id",
        "directive_packet_id",
        "observation_packet_id",
        "verification_packet_id",
        "blocking_decision_packet_id",
        "authorization_token_id",
        "triggering_decision_id",
        "related_episode_id",
        "related_packet_ids",
        "conflicting_packet_ids",
        "revoked_token_ids",
        "evidence_integration",
        "escalation",
        "expiry",
        "detected_at",
        "execution_time_ms",
        "latency_ms",
        "grant",
        "since",
    }
)
"""What is another in every run: the names of packets and grants, and times."""
NOTES: Final = frozenset({"token_request", "token_denied"})
"""Lines whose `id` is of that sort, too."""
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?")


def _line_places(left: Spoken, right: Spoken) -> Iterator[Place]:
    """Yield where two lines differ."""
    if left.kind != right.kind:
        yield Place("kind", left.kind, right.kind)
    if left.accepted != right.accepted:
        yield Place("verdict", *("accepted" if each.accepted else "refused" for each in (left, right)))
    if left.rules != right.rules:
        yield Place("rules", list(left.rules), list(right.rules))
    if left.state != right.state:
        yield Place("state", left.state, right.state)
    place = values_parted("payload", _stated(left), _stated(right))
    if place is not None:
        yield place


def _stated(line: Spoken) -> Any:
    """Return what a line says: its payload or its data, without what differs by nature."""
    try:
        said = msgspec.json.decode(line.line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if isinstance(said, dict):
        said = said.get("payload", said.get("data", said))
    left_out = NATURAL | {"id"} if line.kind in NOTES else NATURAL
    return _without(said, left_out, line.own)


def _without(value: Any, names: frozenset[str], own: str) -> Any:
    if isinstance(value, dict):
        return {key: _without(each, names, own) for key, each in value.items() if key not in names}
    if isinstance(value, list):
        return [_without(each, names, own) for each in value]
    if isinstance(value, str):
        return _TIME.sub("(time)", _without_ids(value, own) if own else value)
    return value


def _without_ids(text: str, own: str) -> str:
    """Return a text without what the ids in it have of their episode and of the run that made them, if they say that."""
    return re.sub(rf"{re.escape(own)}(?:(\d+)-[0-9a-f]{{6}}(?![\w-]))?", r"*\1", text)
