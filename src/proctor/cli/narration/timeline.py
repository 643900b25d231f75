"""An episode as a timeline: an entry for every row, or for several that repeat each other. Pure.

Rule 1: every kind of event has a row in `EVENT_NARRATORS`; what has none is shown by its name.
Rule 2: `Narrator` knows what earlier rows say about later ones: who the agents are, when the episode began, what actions are called.
Rule 3: steps that repeat the step before them (the same actor, tool and action) are shown together, up to an end.
Rule 4: times count from the reset; the session's opening is shown by the header, not here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple

from msgspec import Raw

from proctor.cli.narration.descriptions import (
    MOST_DECODED_BYTES,
    ActionDescriber,
    action_describer,
    decode_short,
    describe_packet,
    describe_size,
    format_path,
)
from proctor.cli.terminal import format_count
from proctor.errors import ValidationError
from proctor.ledger.reader import Row
from proctor.models.events import (
    AgentGranted,
    AgentRevoked,
    BatchReset,
    BatchStepped,
    EpisodeClosed,
    EpisodeReset,
    EpisodeStepped,
    Failed,
    PacketJudged,
    SessionClosed,
    SessionOpened,
    SessionResumed,
)
from proctor.models.value_text import describe_value, format_number


@dataclass(slots=True)
class EpisodeCounts:
    """What the whole episode comes to, for the footer."""

    packets: int = 0
    refused: int = 0
    warnings: int = 0
    failures: int = 0
    rules: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Narrator:
    """Knows what was said before: who the agents are, when the episode began, what its actions are called."""

    began: float | None = None
    opened: SessionOpened | None = None
    seed: str = ""
    agents: dict[str, str] = field(default_factory=dict)
    count: EpisodeCounts = field(default_factory=EpisodeCounts)
    words: ActionDescriber = field(default_factory=lambda: action_describer(None))

    def hear(self, event: Any) -> None:
        """Take note of what later rows refer to."""
        match event:
            case SessionOpened():
                self.opened = event
                self.words = action_describer(event)
            case EpisodeReset() | BatchReset() if self.began is None:
                self.began = event.at
                self.seed = describe_seed(event)
            case AgentGranted():
                self.agents[event.grant] = event.agent
            case PacketJudged():
                self._judge(event)
            case Failed():
                self.count.failures += 1

    def _judge(self, event: PacketJudged) -> None:
        self.count.packets += 1
        self.count.warnings += len(event.warnings)
        if not event.accepted:
            self.count.refused += 1
            for rule in event.rules:
                self.count.rules[rule] = self.count.rules.get(rule, 0) + 1

    def who(self, event: Any) -> str:
        """Return who caused an event, by name where there is one."""
        grant = getattr(event, "grant", None) or ""
        if event.principal != "agent":
            return str(event.principal)
        return f"agent {self.agents.get(grant) or grant}".rstrip()

    def since(self, at: float) -> float:
        """Return the seconds since the episode began."""
        return at - (at if self.began is None else self.began)


def describe_seed(event: EpisodeReset | BatchReset) -> str:
    """Return the seed that was asked for, or the one that the environment says it drew."""
    if event.seed is not None:
        return describe_value(event.seed)
    told = decode_short(event.metadata, None) if isinstance(event, EpisodeReset) else None
    drawn = told.get("seed") if isinstance(told, dict) else None
    return "drawn" if drawn is None else f"{describe_value(drawn)} (drawn)"


NOT_KEPT: Final = "only its digest was kept"
UNREADABLE: Final = "cannot be read"


class ResultTone(StrEnum):
    """How a result is meant."""

    PLAIN = "plain"
    GOOD = "good"
    BAD = "bad"
    ENDED = "ended"
    NOTED = "noted"


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One line of the story; `remark` is what stands dimmed beside the result, `whole` asks for all of the result."""

    at: float
    step: str
    who: str
    what: str
    result: str = ""
    tone: ResultTone = ResultTone.PLAIN
    remark: str = ""
    whole: bool = False


def narrate_row(row: Row, narrator: Narrator) -> TimelineEntry:
    """Return the story of one row."""
    teller = EVENT_NARRATORS.get(type(row.event))
    if teller is None:
        name = type(row.event).__name__
        return TimelineEntry(narrator.since(row.event.at), "", "system", name)
    return teller(row.event, narrator, row.values)


def _make_entry(event: Any, narrator: Narrator, what: str, step: str = "", **rest: Any) -> TimelineEntry:
    return TimelineEntry(narrator.since(event.at), step, narrator.who(event), what, **rest)


# -------------------------------------------------------------------------------------------------------- resets, steps
def _narrate_reset(event: EpisodeReset, narrator: Narrator, values: bool) -> TimelineEntry:
    asked = " ".join([f"seed={describe_seed(event)}", *_describe_options(event.options)])
    return _make_entry(
        event, narrator, f"reset {asked}", "0", result="began", remark=describe_observation(event.observation, values)
    )


def _narrate_batch_reset(event: BatchReset, narrator: Narrator, values: bool) -> TimelineEntry:
    asked = " ".join([f"seed={describe_seed(event)}", *_describe_options(event.options)])
    which = "batch" if bytes(event.mask) == b"null" else "some of the batch"
    return _make_entry(
        event,
        narrator,
        f"reset {which} {asked}",
        result="began",
        remark=describe_observation(event.observations, values),
    )


def _describe_options(options: Raw) -> list[str]:
    said = decode_short(options, {"options": describe_size(options)})
    return [f"{key}={describe_value(value)}" for key, value in said.items()] if isinstance(said, dict) else []


def narrate_step(event: EpisodeStepped, narrator: Narrator, values: bool) -> TimelineEntry:
    """Return the story of one step."""
    what = narrator.words(event.action)
    if event.tool is not None and event.tool != what:
        what = f"{event.tool} {what}"
    ended = event.terminated or event.truncated
    return _make_entry(
        event,
        narrator,
        what,
        str(event.step),
        result=describe_reward(event.reward, event),
        tone=ResultTone.ENDED if ended else ResultTone.PLAIN,
        remark=describe_observation(event.observation, values),
    )


def describe_reward(reward: float | None, event: EpisodeStepped) -> str:
    """Return what a step, or several up to this one, came to."""
    words = [] if reward is None else [f"reward {format_number(reward)}"]
    words += ["terminated"] * event.terminated + ["truncated"] * event.truncated
    return ", ".join(words) or "no reward"


def _narrate_batch_step(event: BatchStepped, narrator: Narrator, values: bool) -> TimelineEntry:
    rewards = _parse_numbers(event.rewards)
    words = [f"the rewards {UNREADABLE}" if rewards is None else f"reward {format_number(sum(rewards))} in all"]
    flags = {"terminated": _parse_numbers(event.terminations), "truncated": _parse_numbers(event.truncations)}
    words += [f"who is {name} {UNREADABLE}" for name, found in flags.items() if found is None]
    ended = {name: sum(map(bool, found)) for name, found in flags.items() if found is not None}
    words += [f"{count} {name}" for name, count in ended.items() if count]
    return _make_entry(
        event,
        narrator,
        "step of the batch" if rewards is None else f"step of {len(rewards)}",
        str(event.step),
        result=", ".join(words),
        tone=ResultTone.ENDED if any(ended.values()) else ResultTone.PLAIN,
        remark=describe_observation(event.observations, values),
    )


def _parse_numbers(text: Raw) -> list[float] | None:
    """Return an array over sub-environments as a list, whichever way it was written; None if it is none, or too long."""
    from proctor.models.arrays import NON_FINITE, unpack_array

    said = decode_short(text, None)
    try:
        listed = unpack_array(said, most=MOST_DECODED_BYTES).tolist() if isinstance(said, dict) else said
        return [float(NON_FINITE[each] if isinstance(each, str) else each) for each in listed]
    # No list, one of something else than numbers, or with one that is too large.
    except (ValidationError, TypeError, KeyError, OverflowError):
        return None


def describe_observation(observation: Raw, values: bool) -> str:
    """Return an observation in a few words."""
    if not values:
        return NOT_KEPT
    said = decode_short(observation, describe_size(observation))
    if isinstance(said, dict) and said.keys() == {"observation"}:
        said = said["observation"]
    return describe_value(_shorten_arrays(said))


def _shorten_arrays(value: Any) -> Any:
    """Return a value with packed arrays by their dtype and shape: nobody reads base64."""
    if not isinstance(value, dict):
        return value
    if value.keys() >= {"dtype", "shape", "data"}:
        return f"{value['dtype']} of shape {value['shape']}"
    return {key: _shorten_arrays(each) for key, each in value.items()}


# --------------------------------------------------------------------------------------------------- agents, packets
def _narrate_grant(event: AgentGranted, narrator: Narrator, values: bool) -> TimelineEntry:
    name = f"agent {event.agent or event.grant}"
    until = "" if event.expires_at is None else f", for {event.expires_at - event.at:.0f} s"
    return _make_entry(
        event,
        narrator,
        f"grant to {name}",
        result=f"{format_count(len(event.tools), 'tool')}{until}",
        remark=", ".join(event.tools),
    )


def _narrate_revocation(event: AgentRevoked, narrator: Narrator, values: bool) -> TimelineEntry:
    return _make_entry(
        event, narrator, f"revoke agent {narrator.agents.get(event.grant) or event.grant}", result="revoked"
    )


def _narrate_packet(event: PacketJudged, narrator: Narrator, values: bool) -> TimelineEntry:
    what = describe_packet(event.kind, event.line)
    step = str(event.step)
    if not event.accepted:
        by = ", ".join(event.rules) or "the door"
        result = f"refused by {by}: {event.reason}".rstrip(": ")
        return _make_entry(event, narrator, what, step, result=result, tone=ResultTone.BAD, whole=True)
    moved = format_path(event.path) or format_path([event.state])
    noted = f"warning: {'; '.join(event.warnings)}" if event.warnings else ""
    return _make_entry(
        event, narrator, what, step, result=f"accepted {moved}".rstrip(), tone=ResultTone.GOOD, remark=noted
    )


def _narrate_failure(event: Failed, narrator: Narrator, values: bool) -> TimelineEntry:
    did = "" if bytes(event.action) == b"null" else f" {narrator.words(event.action)}"
    words = [f"{'failed' if event.incident else 'refused'}: {event.code}"]
    words += [event.clause] if event.clause else []
    words += [f"incident {event.incident}"] if event.incident else []
    words += ["the episode is lost"] if event.lost else []
    what = f"{event.request or 'the server'}{did}"
    return _make_entry(event, narrator, what, str(event.step), result=", ".join(words), tone=ResultTone.BAD, whole=True)


# ------------------------------------------------------------------------------------------------------------ ends
def _narrate_episode_end(event: EpisodeClosed, narrator: Narrator, values: bool) -> TimelineEntry:
    words = [] if event.outcome is None else [event.outcome]
    words += [f"in {format_path([event.state])}"] if event.state else []
    words += [f"still open: {'; '.join(event.obligations)}"] if event.obligations else []
    tone = {"conforming": ResultTone.GOOD, "violated": ResultTone.BAD}.get(event.outcome or "", ResultTone.NOTED)
    lost = event.reason == "lost"
    return _make_entry(
        event,
        narrator,
        f"episode over ({event.reason})",
        str(event.steps),
        result=", ".join(words) or _REASONS.get(event.reason, "over"),
        tone=ResultTone.BAD if lost else tone,
        whole=True,
    )


_REASONS: Final[Mapping[str, str]] = {
    "reset": "the next episode began",
    "closed": "the session was closed",
    "lost": "lost: nobody can know where it stood",
}


def _narrate_resumption(event: SessionResumed, narrator: Narrator, values: bool) -> TimelineEntry:
    result = "rebuilt, every digest as it was" if event.lost is None else f"lost: {event.lost}"
    tone = ResultTone.GOOD if event.lost is None else ResultTone.BAD
    return _make_entry(
        event, narrator, "taken up after a restart", str(event.step), result=result, tone=tone, whole=True
    )


def _narrate_session_end(event: SessionClosed, narrator: Narrator, values: bool) -> TimelineEntry:
    return _make_entry(event, narrator, f"session over: {event.reason}", result=f"{event.episodes} episodes")


EventNarrator = Callable[[Any, Narrator, bool], TimelineEntry]
EVENT_NARRATORS: Final[Mapping[type, EventNarrator]] = {
    EpisodeReset: _narrate_reset,
    EpisodeStepped: narrate_step,
    BatchReset: _narrate_batch_reset,
    BatchStepped: _narrate_batch_step,
    AgentGranted: _narrate_grant,
    AgentRevoked: _narrate_revocation,
    PacketJudged: _narrate_packet,
    Failed: _narrate_failure,
    EpisodeClosed: _narrate_episode_end,
    SessionResumed: _narrate_resumption,
    SessionClosed: _narrate_session_end,
}


class _StepKey(NamedTuple):
    """What two steps must share to be told together."""

    who: str
    tool: str | None
    action: bytes


@dataclass(slots=True)
class _StepRun:
    """Steps that are told together."""

    like: _StepKey
    first: EpisodeStepped
    last: EpisodeStepped
    values: bool
    steps: int = 1
    reward: float = 0.0


def timeline_entries(
    rows: Iterable[Row], narrator: Narrator, *, folded: bool = True, wanted: range | None = None
) -> Iterator[TimelineEntry]:
    """Yield the story of these rows, of which only those with a `seq` in `wanted` are told; `folded` is rule 1."""
    run: _StepRun | None = None
    for row in _follow_rows(rows, narrator, wanted):
        event = row.event
        if folded and run is not None and _extend_run(run, row, narrator):
            continue
        if run is not None:
            yield _narrate_run(run, narrator)
            run = None
        if isinstance(event, EpisodeStepped):
            run = _StepRun(_step_key(event, narrator), event, event, row.values, reward=event.reward or 0.0)
        elif not isinstance(event, SessionOpened):
            yield narrate_row(row, narrator)
    if run is not None:
        yield _narrate_run(run, narrator)


def _follow_rows(rows: Iterable[Row], narrator: Narrator, wanted: range | None) -> Iterator[Row]:
    """Yield the rows that are wanted; the narrator hears them all."""
    for row in rows:
        narrator.hear(row.event)
        if wanted is None or row.seq in wanted:
            yield row


def _step_key(event: EpisodeStepped, narrator: Narrator) -> _StepKey:
    return _StepKey(narrator.who(event), event.tool, bytes(event.action))


def _extend_run(run: _StepRun, row: Row, narrator: Narrator) -> bool:
    """Return whether a row is one step more of the run, which then has it."""
    event = row.event
    if run.last.terminated or run.last.truncated or not isinstance(event, EpisodeStepped):
        return False
    if run.like != _step_key(event, narrator):
        return False
    run.last = event
    run.values = row.values
    run.steps += 1
    run.reward += event.reward or 0.0
    return True


def _narrate_run(run: _StepRun, narrator: Narrator) -> TimelineEntry:
    entry = narrate_step(run.last, narrator, run.values)
    if run.steps == 1:
        return entry
    return replace(
        entry,
        at=narrator.since(run.first.at),
        step=f"{run.first.step}-{run.last.step}",
        what=f"{entry.what} x{run.steps}",
        result=entry.result if run.last.reward is None else describe_reward(run.reward, run.last),
    )
