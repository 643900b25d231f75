"""An episode in words: an entry for every row, or for several steps that repeat each other. Pure.

Rule 1: every kind of event has a row in `EVENT_NARRATORS`; what has none is shown by its name.
Rule 2: `Narrator` knows what earlier rows say about later ones: who the agents are, when the episode began, what actions are called.
Rule 3: steps that repeat the step before them (the same actor, tool and action) are shown together, up to an end.
Rule 4: times count from the reset; how the session was opened has no entry.
Rule 5: an action gets a name only where the settings on record say which actions there are; else its value is shown. No environment is
    made or imported for it.
Rule 6: describing never fails, whatever stands in a row. A long value is never decoded: as Python's objects it can take more than twenty
    times its length.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import groupby
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw

from proctor.errors import ValidationError
from proctor.ledger.reader import Row
from proctor.models import events
from proctor.models.descriptions import describe_value, format_count, format_number

NOT_KEPT: Final = "only its digest was kept"
UNREADABLE: Final = "cannot be read"
UNREADABLE_PACKET: Final = "unreadable packet"
MOST_DECODED_BYTES: Final = 2**21
"""Bytes of a value that is decoded: the rewards of the largest batch have fewer."""
MOST_NAMES: Final = 3
"""How many of several names are told."""


class ResultTone(StrEnum):
    """How a result is meant."""

    PLAIN = "plain"
    GOOD = "good"
    BAD = "bad"
    ENDED = "ended"
    NOTED = "noted"


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """What is told of one row; `remark` is what stands dimmed beside the result, `whole` asks for all of the result."""

    at: float
    step: str
    who: str
    what: str
    result: str = ""
    tone: ResultTone = ResultTone.PLAIN
    remark: str = ""
    whole: bool = False


@dataclass(slots=True)
class EpisodeCounts:
    """What the whole episode comes to."""

    packets: int = 0
    refused: int = 0
    warnings: int = 0
    failures: int = 0
    rules: dict[str, int] = field(default_factory=dict)


# -------------------------------------------------------------------------------------------------------------- actions
ActionDescriber: TypeAlias = Callable[[Raw], str]
"""Tells an action, given as it stands on record."""
PLUME_ACTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "discrete_grid": ("up", "right", "down", "left"),
    "eight_direction_stay": (
        *("north", "north_east", "east", "south_east", "south", "south_west", "west", "north_west"),
        "stay",
    ),
    "oriented_grid": ("ahead", "turn left", "turn right"),
}
"""The names of a plume search's actions, by the type of its action processor."""
POPPER_COLUMNS: Final = 3
"""Of Column Popper, where the settings do not say another number."""


def action_describer(opened: events.SessionOpened | None) -> ActionDescriber:
    """Return what tells the actions of a session."""

    def words(action: Raw) -> str:
        said = decode_short(action, describe_size(action))
        value = said["action"] if isinstance(said, dict) and said.keys() == {"action"} else said
        name = _name_action(opened, value) if opened is not None and type(value) is int else None
        return describe_value(value) if name is None else name

    return words


def _name_action(opened: events.SessionOpened, number: int) -> str | None:
    if opened.num_envs is not None or number < 0:
        return None
    settings = opened.settings
    if "PlumeSearch-" in opened.environment:
        action = settings.get("action", "discrete_grid")
        kind = action.get("type") if isinstance(action, Mapping) else action
        is_known = {"config", "action_processor"}.isdisjoint(settings)
        names = PLUME_ACTIONS.get(kind, ()) if isinstance(kind, str) and is_known else ()
        return names[number] if number < len(names) else None
    columns = settings.get("columns", POPPER_COLUMNS)
    if "ColumnPopper-" not in opened.environment or type(columns) is not int or number > columns:
        return None
    return "fall" if number == columns else f"column {number}"


@dataclass(slots=True)
class Narrator:
    """Knows what was said before: who the agents are, when the episode began, what its actions are called."""

    began: float | None = None
    opened: events.SessionOpened | None = None
    seed: str = ""
    agents: dict[str, str] = field(default_factory=dict)
    count: EpisodeCounts = field(default_factory=EpisodeCounts)
    words: ActionDescriber = field(default_factory=lambda: action_describer(None))

    def hear(self, event: Any) -> None:
        """Take note of what later rows refer to."""
        match event:
            case events.SessionOpened():
                self.opened = event
                self.words = action_describer(event)
            case events.EpisodeReset() | events.BatchReset() if self.began is None:
                self.began = event.at
                self.seed = describe_seed(event)
            case events.AgentGranted():
                self.agents[event.grant] = event.agent
            case events.PacketJudged():
                count = self.count
                count.packets += 1
                count.warnings += len(event.warnings)
                count.refused += not event.accepted
                for rule in () if event.accepted else event.rules:
                    count.rules[rule] = count.rules.get(rule, 0) + 1
            case events.Failed():
                self.count.failures += 1

    def who(self, event: Any) -> str:
        """Return who caused an event, by name where there is one."""
        grant = getattr(event, "grant", None) or ""
        if event.principal != "agent":
            return str(event.principal)
        return f"agent {self.agents.get(grant) or grant}".rstrip()

    def since(self, at: float) -> float:
        """Return the seconds since the episode began."""
        return at - (at if self.began is None else self.began)

    def narrate(self, row: Row) -> TimelineEntry:
        """Return what is told of one row."""
        event = row.event
        describe = EVENT_NARRATORS.get(type(event))
        found = {"what": type(event).__name__} if describe is None else describe(event, self, row.values)
        return TimelineEntry(self.since(event.at), found.pop("step", ""), self.who(event), **found)


# --------------------------------------------------------------------------------------------------------------- values
def decode_short(value: Raw, otherwise: Any) -> Any:
    """Return what a value says, or `otherwise` where it is long or cannot be decoded."""
    if memoryview(value).nbytes > MOST_DECODED_BYTES:
        return otherwise
    try:
        return msgspec.json.decode(value)
    # A whole number of more than 4300 digits is JSON, too.
    except (msgspec.DecodeError, RecursionError):
        return otherwise


def describe_size(value: Raw) -> str:
    """Return the size of a value, which stands for one that is not told itself."""
    return f"{memoryview(value).nbytes:,} bytes"


def format_path(path: Iterable[str]) -> str:
    """Return states by their numbers, once where it was stayed in one: S2>S3."""
    return ">".join(state for state, _ in groupby(each.partition("_")[0] for each in path))


def describe_seed(event: events.EpisodeReset | events.BatchReset) -> str:
    """Return the seed that was asked for, or the one that the environment says it drew."""
    if event.seed is not None:
        return describe_value(event.seed)
    told = decode_short(event.metadata, None) if isinstance(event, events.EpisodeReset) else None
    drawn = told.get("seed") if isinstance(told, dict) else None
    return "drawn" if drawn is None else f"{describe_value(drawn)} (drawn)"


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


def describe_reward(reward: float | None, event: events.EpisodeStepped) -> str:
    """Return what a step, or several up to this one, came to."""
    words = [] if reward is None else [f"reward {format_number(reward)}"]
    words += ["terminated"] * event.terminated + ["truncated"] * event.truncated
    return ", ".join(words) or "no reward"


def describe_refusal(rules: Sequence[str], reason: str) -> str:
    """Return why a packet was refused: the rules, and the reason."""
    return ": ".join(filter(None, (", ".join(rules), reason)))


def describe_failure(event: Any) -> str:
    """Return why an event is a refusal, a failure or a loss; empty if it is none."""
    match event:
        case events.PacketJudged(accepted=False):
            by = f" by {', '.join(event.rules)}" if event.rules else ""
            return f"refused{by}: {event.reason}".rstrip(": ")
        case events.Failed():
            return event.code
        case events.SessionResumed(lost=str(lost)):
            return lost
    return ""


def name_event(event: Any) -> str:
    """Return what an event is, in a word or two."""
    if isinstance(event, events.PacketJudged):
        return event.kind or UNREADABLE_PACKET
    return _EVENT_NAMES.get(type(event)) or str(type(event).__struct_config__.tag)


_EVENT_NAMES: Final[Mapping[type, str]] = {
    events.EpisodeReset: "reset",
    events.BatchReset: "reset",
    events.EpisodeStepped: "step",
    events.BatchStepped: "step",
    events.EpisodeClosed: "closed",
}


# -------------------------------------------------------------------------------------------------------------- packets
DESCRIBED_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "ObservationPacket": ("observation_type", "source_tool"),
    "BeliefUpdatePacket": ("belief_changes",),
    "DecisionPacket": ("decision_outcome", "decision_summary"),
    "VerificationPlanPacket": ("plan_summary",),
    "ToolAuthorizationToken": ("authorized_scope", "token_id"),
    "TaskDirectivePacket": ("execution_method",),
    "TaskResultPacket": ("result_status",),
    "EscalationPacket": ("escalation_trigger", "recommended_next_step"),
    "IntegrityAlertPacket": ("severity", "alert_type", "summary"),
    "open": ("profile",),
    "approval": ("note",),
    "user_input": ("choice", "text"),
    "safemode": ("reason",),
}
"""What is told of a kind, in this order: fields of a packet's payload, or of a record's data."""
INNER_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "belief_changes": ("domain", "key"),
    "authorized_scope": ("tool_ids",),
    "execution_method": ("tool_id", "code_ref", "method"),
    "recommended_next_step": ("step",),
}
"""Of a field that is an object, which part is told: the first that is there; of beliefs all of them, joined."""


def describe_packet(kind: str, line: Raw) -> str:
    """Return what a line of a governed episode says, in one line; of one that is long or cannot be read, its kind alone."""
    name = kind or UNREADABLE_PACKET
    said = decode_short(line, None)
    inside = said.get("payload", said.get("data")) if isinstance(said, dict) else None
    if not isinstance(inside, dict):
        return name
    parts = [_describe_field(field, inside.get(field)) for field in DESCRIBED_FIELDS.get(kind, ())]
    if kind == "EscalationPacket":
        parts.insert(0, _find_question(said))
    return " ".join([f"record {name}" if "record" in said else name, *filter(None, parts)])


def _find_question(packet: dict[str, Any]) -> str:
    found: Any = packet
    for key in ("mcp", "intent", "summary"):
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, str) else ""


def _describe_field(field: str, value: Any) -> str:
    if isinstance(value, list):
        more = f" and {len(value) - MOST_NAMES} more" if len(value) > MOST_NAMES else ""
        return ", ".join(_describe_field(field, each) for each in value[:MOST_NAMES]) + more
    if isinstance(value, dict):
        inner = (value.get(each) for each in INNER_FIELDS.get(field, ()))
        parts = [_describe_field("", each) for each in inner if each is not None]
        return ".".join(parts) if field == "belief_changes" else next(iter(parts), "")
    return "" if value is None else str(value)


# --------------------------------------------------------------------------------------------------------------- events
def _narrate_reset(event: events.EpisodeReset, narrator: Narrator, values: bool) -> dict[str, Any]:
    remark = describe_observation(event.observation, values)
    return {"what": _describe_request("reset", event), "step": "0", "result": "began", "remark": remark}


def _narrate_batch_reset(event: events.BatchReset, narrator: Narrator, values: bool) -> dict[str, Any]:
    which = "batch" if bytes(event.mask) == b"null" else "some of the batch"
    remark = describe_observation(event.observations, values)
    return {"what": _describe_request(f"reset {which}", event), "result": "began", "remark": remark}


def _describe_request(what: str, event: events.EpisodeReset | events.BatchReset) -> str:
    said = decode_short(event.options, {"options": describe_size(event.options)})
    options = said if isinstance(said, dict) else {}
    seed = f"seed={describe_seed(event)}"
    return " ".join([what, seed, *(f"{key}={describe_value(value)}" for key, value in options.items())])


def _narrate_step(event: events.EpisodeStepped, narrator: Narrator, values: bool) -> dict[str, Any]:
    action = narrator.words(event.action)
    return {
        "what": action if event.tool in (None, action) else f"{event.tool} {action}",
        "step": str(event.step),
        "result": describe_reward(event.reward, event),
        "tone": ResultTone.ENDED if event.terminated or event.truncated else ResultTone.PLAIN,
        "remark": describe_observation(event.observation, values),
    }


def _narrate_batch_step(event: events.BatchStepped, narrator: Narrator, values: bool) -> dict[str, Any]:
    rewards = _parse_numbers(event.rewards)
    words = [f"the rewards {UNREADABLE}" if rewards is None else f"reward {format_number(sum(rewards))} in all"]
    flags = {"terminated": _parse_numbers(event.terminations), "truncated": _parse_numbers(event.truncations)}
    words += [f"who is {name} {UNREADABLE}" for name, found in flags.items() if found is None]
    ended = {name: sum(map(bool, found)) for name, found in flags.items() if found is not None}
    words += [f"{count} {name}" for name, count in ended.items() if count]
    return {
        "what": "step of the batch" if rewards is None else f"step of {len(rewards)}",
        "step": str(event.step),
        "result": ", ".join(words),
        "tone": ResultTone.ENDED if any(ended.values()) else ResultTone.PLAIN,
        "remark": describe_observation(event.observations, values),
    }


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


def _narrate_grant(event: events.AgentGranted, narrator: Narrator, values: bool) -> dict[str, Any]:
    until = "" if event.expires_at is None else f", for {event.expires_at - event.at:.0f} s"
    return {
        "what": f"grant to agent {event.agent or event.grant}",
        "result": f"{format_count(len(event.tools), 'tool')}{until}",
        "remark": ", ".join(event.tools),
    }


def _narrate_revocation(event: events.AgentRevoked, narrator: Narrator, values: bool) -> dict[str, Any]:
    return {"what": f"revoke agent {narrator.agents.get(event.grant) or event.grant}", "result": "revoked"}


def _narrate_packet(event: events.PacketJudged, narrator: Narrator, values: bool) -> dict[str, Any]:
    what = {"what": describe_packet(event.kind, event.line), "step": str(event.step)}
    if not event.accepted:
        return {**what, "result": describe_failure(event), "tone": ResultTone.BAD, "whole": True}
    return {
        **what,
        "result": f"accepted {format_path(event.path) or format_path([event.state])}".rstrip(),
        "tone": ResultTone.GOOD,
        "remark": f"warning: {'; '.join(event.warnings)}" if event.warnings else "",
    }


def _narrate_failure(event: events.Failed, narrator: Narrator, values: bool) -> dict[str, Any]:
    did = "" if bytes(event.action) == b"null" else f" {narrator.words(event.action)}"
    words = [f"{'failed' if event.incident else 'refused'}: {event.code}"]
    words += [event.clause] if event.clause else []
    words += [f"incident {event.incident}"] if event.incident else []
    words += ["the episode is lost"] if event.lost else []
    what, result = f"{event.request or 'the server'}{did}", ", ".join(words)
    return {"what": what, "step": str(event.step), "result": result, "tone": ResultTone.BAD, "whole": True}


def _narrate_episode_end(event: events.EpisodeClosed, narrator: Narrator, values: bool) -> dict[str, Any]:
    words = [] if event.outcome is None else [event.outcome]
    words += [f"in {format_path([event.state])}"] if event.state else []
    words += [f"still open: {'; '.join(event.obligations)}"] if event.obligations else []
    tone = {"conforming": ResultTone.GOOD, "violated": ResultTone.BAD}.get(event.outcome or "", ResultTone.NOTED)
    return {
        "what": f"episode over ({event.reason})",
        "step": str(event.steps),
        "result": ", ".join(words) or _REASONS.get(event.reason, "over"),
        "tone": ResultTone.BAD if event.reason == "lost" else tone,
        "whole": True,
    }


_REASONS: Final[Mapping[str, str]] = {
    "reset": "the next episode began",
    "closed": "the session was closed",
    "lost": "lost: nobody can know where it stood",
}


def _narrate_resumption(event: events.SessionResumed, narrator: Narrator, values: bool) -> dict[str, Any]:
    is_rebuilt = event.lost is None
    return {
        "what": "taken up after a restart",
        "step": str(event.step),
        "result": "rebuilt, every digest as it was" if is_rebuilt else f"lost: {event.lost}",
        "tone": ResultTone.GOOD if is_rebuilt else ResultTone.BAD,
        "whole": True,
    }


def _narrate_session_end(event: events.SessionClosed, narrator: Narrator, values: bool) -> dict[str, Any]:
    return {"what": f"session over: {event.reason}", "result": f"{event.episodes} episodes"}


EVENT_NARRATORS: Final[Mapping[type, Callable[[Any, Narrator, bool], dict[str, Any]]]] = {
    events.EpisodeReset: _narrate_reset,
    events.EpisodeStepped: _narrate_step,
    events.BatchReset: _narrate_batch_reset,
    events.BatchStepped: _narrate_batch_step,
    events.AgentGranted: _narrate_grant,
    events.AgentRevoked: _narrate_revocation,
    events.PacketJudged: _narrate_packet,
    events.Failed: _narrate_failure,
    events.EpisodeClosed: _narrate_episode_end,
    events.SessionResumed: _narrate_resumption,
    events.SessionClosed: _narrate_session_end,
}
"""Returns the fields of an entry that an event decides; the bool says whether observations were kept."""


# --------------------------------------------------------------------------------------------------------- the timeline
@dataclass(slots=True)
class _StepRun:
    """Steps that are told together; `like` is what they share."""

    like: tuple[str, str | None, bytes]
    first: events.EpisodeStepped
    last: events.EpisodeStepped
    row: Row
    steps: int = 0
    reward: float = 0.0


def timeline_entries(
    rows: Iterable[Row], narrator: Narrator, *, folded: bool = True, wanted: range | None = None
) -> Iterator[TimelineEntry]:
    """Yield the story of these rows, of which only those with a `seq` in `wanted` are told; `folded` is rule 3."""
    run: _StepRun | None = None
    for row in rows:
        event = row.event
        narrator.hear(event)
        if wanted is not None and row.seq not in wanted:
            continue
        like = (
            (narrator.who(event), event.tool, bytes(event.action)) if isinstance(event, events.EpisodeStepped) else None
        )
        goes_on = run is not None and folded and run.like == like and not (run.last.terminated or run.last.truncated)
        if run is not None and not goes_on:
            yield _narrate_run(run, narrator)
            run = None
        if isinstance(event, events.EpisodeStepped) and like is not None:
            run = _StepRun(like, event, event, row) if run is None else run
            run.last, run.row = event, row
            run.steps, run.reward = run.steps + 1, run.reward + (event.reward or 0.0)
        elif not isinstance(event, events.SessionOpened):
            yield narrator.narrate(row)
    if run is not None:
        yield _narrate_run(run, narrator)


def _narrate_run(run: _StepRun, narrator: Narrator) -> TimelineEntry:
    entry, last = narrator.narrate(run.row), run.last
    if run.steps == 1:
        return entry
    return replace(
        entry,
        at=narrator.since(run.first.at),
        step=f"{run.first.step}-{last.step}",
        what=f"{entry.what} x{run.steps}",
        result=entry.result if last.reward is None else describe_reward(run.reward, last),
    )
