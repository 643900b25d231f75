"""Where two episodes first differ: moments (resets and steps), and lines of governed episodes, compared side by side. Pure.

Rule 1: moments are aligned by their order after the reset and compared by what was done (the action) and what came of it:
    observation, reward and its parts, flags, and the picture where both have one. What an environment says besides (its metadata,
    in which there may be times) is left out. Values whose digests are the same are never loaded.
Rule 2: lines are aligned by their order and compared by kind, verdict, rules, state and payload. Ids and times differ by nature, so
    they are left out.
Rule 3: of a difference of either sort the one that was recorded first counts.
Rule 4: nothing large is read here: a value that a row does not hold is named by its digest, and looked up when somebody asks for it.
Rule 5: a row that cannot be read is passed over, and whoever reads is told of it.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import zip_longest
from typing import Any, Final, TypeAlias

import msgspec

from proctor.errors import ValidationError
from proctor.ledger.rows import EventRow, lacks_observation, parse_event_row
from proctor.ledger.storage.ledger_file import StoredRow
from proctor.models.events import BatchReset, BatchStepped, EpisodeReset, EpisodeStepped, PacketJudged
from proctor.replay.comparison import Difference as Place
from proctor.replay.comparison import EnvironmentEvent, find_difference, find_value_difference
from proctor.viewer.slices import StepCount

NULL: Final = b"null"
PACKET_MARK: Final = b"packet_judged"
"""Stands in the body of every row that holds a judged line, so that the others need not be read."""
FindValue: TypeAlias = Callable[[str], bytes | None]
"""Finds a value by its digest; None: it was not stored."""
StoredValues: TypeAlias = tuple[bytes | None, bytes | None]
"""An observation and a picture as JSON; None: it was not stored."""

OUTCOME_FIELDS: Final = {
    "action": ("action", "actions"),
    "reward": ("reward", "rewards"),
    "reward's parts": ("parts", "parts"),
    "raw reward": ("raw_reward", "raw_rewards"),
    "terminated": ("terminated", "terminations"),
    "truncated": ("truncated", "truncations"),
}
"""What is compared of a step besides what it shows, in the order in which people ask: the fields of a step, and of a batch's."""
AS_PAID: Final = ("reward", "reward's parts")
"""What is not compared where nobody knows what was paid."""
_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class EpisodeMoment:
    """A reset or a step, as far as it is compared."""

    number: int
    step: int
    """Counted from the reset that began the chain."""
    outcome: dict[str, bytes]
    """What was done and what was given for it, as JSON, by `OUTCOME_FIELDS`; what only one has is not compared."""
    observation: str
    """Its digest."""
    scene: str
    """The digest of the picture; empty: there is none, and it is not compared."""
    values: Callable[[], StoredValues]
    """Looks behind the digests."""
    after_gap: bool = False
    """Whether a row before it could not be read."""


@dataclass(frozen=True, slots=True)
class StatedLine:
    """A line of a governed episode; `own` is what stands in the ids that its proctor made."""

    number: int
    step: int
    kind: str
    accepted: bool
    rules: tuple[str, ...]
    state: str
    line: bytes
    own: str


def read_row(content: bytes) -> EventRow | None:
    """Return what a row says, None if it cannot be read."""
    try:
        return parse_event_row(content)
    except (ValidationError, TypeError):
        return None


def read_moments(
    rows: Iterable[StoredRow], lookup: FindValue, unread: set[int], *, paid: bool = True
) -> Iterator[EpisodeMoment]:
    """Yield the resets and the steps in these rows; without `paid` the rewards as they were paid are not compared.

    The numbers of rows that cannot be read are added to `unread`.
    """
    steps = StepCount()
    gap = False
    for number, _, _, content, _ in rows:
        if PACKET_MARK in content[:80]:
            continue
        body = read_row(content)
        if body is None:
            unread.add(number)
            gap = True
            continue
        event = body.event
        names = [name for name in OUTCOME_FIELDS if paid or name not in AS_PAID]
        if isinstance(event, EpisodeStepped | BatchStepped):
            steps.count_step(event.step)
            is_batch = isinstance(event, BatchStepped)
            outcome = {name: _encode(getattr(event, OUTCOME_FIELDS[name][is_batch])) for name in names}
        elif isinstance(event, EpisodeReset | BatchReset):
            steps.restart()
            outcome = dict.fromkeys(names, NULL)
        else:
            continue
        scene = bytes(getattr(event, "scene", NULL))
        shown = body.scene or ("" if scene in (b"", NULL) else sha256(scene).hexdigest())
        values = partial(_load_values, event, body, scene, lookup)
        yield EpisodeMoment(number, steps.count, outcome, body.digest or "", shown, values, gap)
        gap = False


def _load_values(event: EnvironmentEvent, body: EventRow, scene: bytes, lookup: FindValue) -> StoredValues:
    absent = body.digest is not None and lacks_observation(event, body.digest)
    seen = event.observations if isinstance(event, BatchReset | BatchStepped) else event.observation
    observation = lookup(body.digest or "") if absent else bytes(seen)
    picture = scene if body.scene is None else lookup(body.scene)
    return observation, None if picture == NULL else picture


def read_lines(rows: Iterable[StoredRow], unread: set[int]) -> Iterator[StatedLine]:
    """Yield the lines of a governed episode in these rows; the numbers of those that cannot be read are added to `unread`."""
    for number, _, _, content, _ in rows:
        if PACKET_MARK not in content:
            continue
        body = read_row(content)
        if body is None:
            unread.add(number)
        elif isinstance(body.event, PacketJudged):
            event = body.event
            verdict = (event.kind, event.accepted, tuple(event.rules), event.state)
            own = f"_{event.session}_{event.epoch}_"
            yield StatedLine(number, event.step, *verdict, bytes(event.line), own)


ENDS, GOES_ON = "ends", "goes on"
END: Final = "end"
SILENCE: Final = "silence"


@dataclass(frozen=True, slots=True)
class FirstDifference:
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


def find_moment_difference(one: Iterable[EpisodeMoment], other: Iterable[EpisodeMoment]) -> FirstDifference | None:
    """Return where two streams of moments part; None: nowhere."""
    last = 0
    for left, right in _pair_moments(iter(one), iter(other)):
        if left is None or right is None:
            return _build_end_difference(END, left, right, last)
        place = next(filter(None, _find_places(left, right)), None)
        if place is not None:
            seen = (left.step, left.number, right.number)
            return FirstDifference(place.what, place.where, place.recorded, place.found, *seen)
        last = left.step
    return None


def _pair_moments(
    one: Iterator[EpisodeMoment], other: Iterator[EpisodeMoment]
) -> Iterator[tuple[EpisodeMoment | None, EpisodeMoment | None]]:
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


def find_line_difference(one: Iterable[StatedLine], other: Iterable[StatedLine]) -> FirstDifference | None:
    """Return where two streams of lines part; None: nowhere."""
    for left, right in zip_longest(one, other):
        if left is None or right is None:
            return _build_end_difference(SILENCE, left, right)
        place = next(filter(None, _find_line_places(left, right)), None)
        if place is not None:
            seen = (left.step, left.number, right.number)
            return FirstDifference(place.what, place.where, place.recorded, place.found, *seen, kind=left.kind)
    return None


def choose_first(moment: FirstDifference | None, line: FirstDifference | None) -> FirstDifference | None:
    """Return which of two differences was recorded first."""
    if moment is None or line is None:
        return moment or line
    for name in ("number_one", "number_other"):
        by_moment, by_line = getattr(moment, name), getattr(line, name)
        if by_moment is not None and by_line is not None:
            return moment if by_moment < by_line else line
    return moment if moment.step <= line.step else line


def _build_end_difference(
    what: str, left: EpisodeMoment | StatedLine | None, right: EpisodeMoment | StatedLine | None, step: int = 0
) -> FirstDifference:
    """Return that one of two streams is over, at a step; of lines it is told at which the other one goes on."""
    goes_on = left or right
    kind, step = (goes_on.kind, goes_on.step) if isinstance(goes_on, StatedLine) else ("", step)
    sides = (ENDS, GOES_ON) if left is None else (GOES_ON, ENDS)
    one, other = (None if each is None else each.number for each in (left, right))
    return FirstDifference(what, "", *sides, step, one, other, kind)


def _find_places(left: EpisodeMoment, right: EpisodeMoment) -> Iterator[Place | None]:
    for name, value in left.outcome.items():
        if name in right.outcome:
            yield find_difference(name, value, right.outcome[name])
        if name == "action" and left.observation != right.observation:
            yield _compare_stored_values("observation", left, right, 0)
    if left.scene and right.scene and left.scene != right.scene:
        yield _compare_stored_values("picture", left, right, 1)


def _compare_stored_values(what: str, left: EpisodeMoment, right: EpisodeMoment, place: int) -> Place | None:
    """Return how two values differ whose digests do; by the digests if one of them was not stored."""
    one, other = left.values()[place], right.values()[place]
    if one is not None and other is not None:
        return find_difference(what, one, other)
    digests = [f"sha256:{(each.observation, each.scene)[place]}" for each in (left, right)]
    return Place(what, *digests)


VARYING_FIELDS: Final = frozenset(
    (
        *("packet_id", "previous_packet_id", "directive_packet_id", "observation_packet_id", "verification_packet_id"),
        *("blocking_decision_packet_id", "related_packet_ids", "conflicting_packet_ids", "triggering_decision_id"),
        *("token_id", "authorization_token_id", "revoked_token_ids", "task_id", "plan_id", "alert_id", "grant"),
        *("correlation_id", "campaign_id", "related_episode_id", "evidence_integration", "escalation"),
        *("expiry", "since", "detected_at", "execution_time_ms", "latency_ms"),
    )
)
"""What is another in every run: the names of packets and grants, and times."""
NOTE_KINDS: Final = frozenset({"token_request", "token_denied"})
"""Lines whose `id` is of that sort, too."""
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?")


def _find_line_places(left: StatedLine, right: StatedLine) -> Iterator[Place | None]:
    if left.kind != right.kind:
        yield Place("kind", left.kind, right.kind)
    if left.accepted != right.accepted:
        yield Place("verdict", *("accepted" if each.accepted else "refused" for each in (left, right)))
    if left.rules != right.rules:
        yield Place("rules", list(left.rules), list(right.rules))
    if left.state != right.state:
        yield Place("state", left.state, right.state)
    yield find_value_difference("payload", _decode_line(left), _decode_line(right))


def _decode_line(line: StatedLine) -> Any:
    """Return what a line says: its payload or its data, without what differs by nature."""
    try:
        said = msgspec.json.decode(line.line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if isinstance(said, dict):
        said = said.get("payload", said.get("data", said))
    left_out = VARYING_FIELDS | {"id"} if line.kind in NOTE_KINDS else VARYING_FIELDS
    return _remove_fields(said, left_out, line.own)


def _remove_fields(value: Any, names: frozenset[str], own: str) -> Any:
    if isinstance(value, dict):
        return {key: _remove_fields(each, names, own) for key, each in value.items() if key not in names}
    if isinstance(value, list):
        return [_remove_fields(each, names, own) for each in value]
    if isinstance(value, str):
        # What ids have of their episode, and of the run that made them.
        value = re.sub(rf"{re.escape(own)}(?:(\d+)-[0-9a-f]{{6}}(?![\w-]))?", r"*\1", value) if own else value
        return _TIME.sub("(time)", value)
    return value
