"""What is told of one event: who did what, and what came of it. Pure.

Rule: every kind of event has a row in `TELLERS`; what has none is told by its name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from msgspec import Raw

from proctor.cli.columns import many
from proctor.cli.narrator import Narrator, seed_words
from proctor.cli.packet_words import packet_words, places
from proctor.cli.short_values import LONGEST, decode_short, told_size
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
    SessionResumed,
)
from proctor.models.value_words import told_number, told_value

NOT_KEPT: Final = "only its digest was kept"
UNREADABLE: Final = "cannot be read"


class Tone(StrEnum):
    """How a result is meant."""

    PLAIN = "plain"
    GOOD = "good"
    BAD = "bad"
    ENDED = "ended"
    NOTED = "noted"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the story; `remark` is what stands dimmed beside the result, `whole` asks for all of the result."""

    at: float
    step: str
    who: str
    what: str
    result: str = ""
    tone: Tone = Tone.PLAIN
    remark: str = ""
    whole: bool = False


def told(row: Row, narrator: Narrator) -> Entry:
    """Return the story of one row."""
    teller = TELLERS.get(type(row.event))
    if teller is None:
        name = type(row.event).__name__
        return Entry(narrator.since(row.event.at), "", "system", name)
    return teller(row.event, narrator, row.values)


def _entry(event: Any, narrator: Narrator, what: str, step: str = "", **rest: Any) -> Entry:
    return Entry(narrator.since(event.at), step, narrator.who(event), what, **rest)


# -------------------------------------------------------------------------------------------------------- resets, steps
def _reset(event: EpisodeReset, narrator: Narrator, values: bool) -> Entry:
    asked = " ".join([f"seed={seed_words(event)}", *_options(event.options)])
    return _entry(event, narrator, f"reset {asked}", "0", result="began", remark=seen(event.observation, values))


def _batch_reset(event: BatchReset, narrator: Narrator, values: bool) -> Entry:
    asked = " ".join([f"seed={seed_words(event)}", *_options(event.options)])
    which = "batch" if bytes(event.mask) == b"null" else "some of the batch"
    return _entry(event, narrator, f"reset {which} {asked}", result="began", remark=seen(event.observations, values))


def _options(options: Raw) -> list[str]:
    said = decode_short(options, {"options": told_size(options)})
    return [f"{key}={told_value(value)}" for key, value in said.items()] if isinstance(said, dict) else []


def told_step(event: EpisodeStepped, narrator: Narrator, values: bool) -> Entry:
    """Return the story of one step."""
    what = narrator.words(event.action)
    if event.tool is not None and event.tool != what:
        what = f"{event.tool} {what}"
    ended = event.terminated or event.truncated
    return _entry(
        event,
        narrator,
        what,
        str(event.step),
        result=rewarded(event.reward, event),
        tone=Tone.ENDED if ended else Tone.PLAIN,
        remark=seen(event.observation, values),
    )


def rewarded(reward: float | None, event: EpisodeStepped) -> str:
    """Return what a step, or several up to this one, came to."""
    words = [] if reward is None else [f"reward {told_number(reward)}"]
    words += ["terminated"] * event.terminated + ["truncated"] * event.truncated
    return ", ".join(words) or "no reward"


def _batch_stepped(event: BatchStepped, narrator: Narrator, values: bool) -> Entry:
    rewards = _numbers(event.rewards)
    words = [f"the rewards {UNREADABLE}" if rewards is None else f"reward {told_number(sum(rewards))} in all"]
    flags = {"terminated": _numbers(event.terminations), "truncated": _numbers(event.truncations)}
    words += [f"who is {name} {UNREADABLE}" for name, found in flags.items() if found is None]
    ended = {name: sum(map(bool, found)) for name, found in flags.items() if found is not None}
    words += [f"{count} {name}" for name, count in ended.items() if count]
    return _entry(
        event,
        narrator,
        "step of the batch" if rewards is None else f"step of {len(rewards)}",
        str(event.step),
        result=", ".join(words),
        tone=Tone.ENDED if any(ended.values()) else Tone.PLAIN,
        remark=seen(event.observations, values),
    )


def _numbers(text: Raw) -> list[float] | None:
    """Return an array over sub-environments as a list, whichever way it was written; None if it is none, or too long."""
    from proctor.models.arrays import NAMED, unpacked

    said = decode_short(text, None)
    try:
        listed = unpacked(said, most=LONGEST).tolist() if isinstance(said, dict) else said
        return [float(NAMED[each] if isinstance(each, str) else each) for each in listed]
    # No list, one of something else than numbers, or with one that is too large.
    except (ValidationError, TypeError, KeyError, OverflowError):
        return None


def seen(observation: Raw, values: bool) -> str:
    """Return an observation in a few words."""
    if not values:
        return NOT_KEPT
    said = decode_short(observation, told_size(observation))
    if isinstance(said, dict) and said.keys() == {"observation"}:
        said = said["observation"]
    return told_value(_unfolded(said))


def _unfolded(value: Any) -> Any:
    """Return a value with packed arrays by their dtype and shape: nobody reads base64."""
    if not isinstance(value, dict):
        return value
    if value.keys() >= {"dtype", "shape", "data"}:
        return f"{value['dtype']} of shape {value['shape']}"
    return {key: _unfolded(each) for key, each in value.items()}


# --------------------------------------------------------------------------------------------------- agents, packets
def _granted(event: AgentGranted, narrator: Narrator, values: bool) -> Entry:
    name = f"agent {event.agent or event.grant}"
    until = "" if event.expires_at is None else f", for {event.expires_at - event.at:.0f} s"
    return _entry(
        event,
        narrator,
        f"grant to {name}",
        result=f"{many(len(event.tools), 'tool')}{until}",
        remark=", ".join(event.tools),
    )


def _revoked(event: AgentRevoked, narrator: Narrator, values: bool) -> Entry:
    return _entry(event, narrator, f"revoke agent {narrator.agents.get(event.grant) or event.grant}", result="revoked")


def _judged(event: PacketJudged, narrator: Narrator, values: bool) -> Entry:
    what = packet_words(event.kind, event.line)
    step = str(event.step)
    if not event.accepted:
        by = ", ".join(event.rules) or "the door"
        result = f"refused by {by}: {event.reason}".rstrip(": ")
        return _entry(event, narrator, what, step, result=result, tone=Tone.BAD, whole=True)
    moved = places(event.path) or places([event.state])
    noted = f"warning: {'; '.join(event.warnings)}" if event.warnings else ""
    return _entry(event, narrator, what, step, result=f"accepted {moved}".rstrip(), tone=Tone.GOOD, remark=noted)


def _failed(event: Failed, narrator: Narrator, values: bool) -> Entry:
    did = "" if bytes(event.action) == b"null" else f" {narrator.words(event.action)}"
    words = [f"{'failed' if event.incident else 'refused'}: {event.code}"]
    words += [event.clause] if event.clause else []
    words += [f"incident {event.incident}"] if event.incident else []
    words += ["the episode is lost"] if event.lost else []
    what = f"{event.request or 'the server'}{did}"
    return _entry(event, narrator, what, str(event.step), result=", ".join(words), tone=Tone.BAD, whole=True)


# ------------------------------------------------------------------------------------------------------------ ends
def _closed(event: EpisodeClosed, narrator: Narrator, values: bool) -> Entry:
    words = [] if event.outcome is None else [event.outcome]
    words += [f"in {places([event.state])}"] if event.state else []
    words += [f"still open: {'; '.join(event.obligations)}"] if event.obligations else []
    tone = {"conforming": Tone.GOOD, "violated": Tone.BAD}.get(event.outcome or "", Tone.NOTED)
    lost = event.reason == "lost"
    return _entry(
        event,
        narrator,
        f"episode over ({event.reason})",
        str(event.steps),
        result=", ".join(words) or _REASONS.get(event.reason, "over"),
        tone=Tone.BAD if lost else tone,
        whole=True,
    )


_REASONS: Final[Mapping[str, str]] = {
    "reset": "the next episode began",
    "closed": "the session was closed",
    "lost": "lost: nobody can know where it stood",
}


def _resumed(event: SessionResumed, narrator: Narrator, values: bool) -> Entry:
    result = "rebuilt, every digest as it was" if event.lost is None else f"lost: {event.lost}"
    tone = Tone.GOOD if event.lost is None else Tone.BAD
    return _entry(event, narrator, "taken up after a restart", str(event.step), result=result, tone=tone, whole=True)


def _session_closed(event: SessionClosed, narrator: Narrator, values: bool) -> Entry:
    return _entry(event, narrator, f"session over: {event.reason}", result=f"{event.episodes} episodes")


Teller = Callable[[Any, Narrator, bool], Entry]
TELLERS: Final[Mapping[type, Teller]] = {
    EpisodeReset: _reset,
    EpisodeStepped: told_step,
    BatchReset: _batch_reset,
    BatchStepped: _batch_stepped,
    AgentGranted: _granted,
    AgentRevoked: _revoked,
    PacketJudged: _judged,
    Failed: _failed,
    EpisodeClosed: _closed,
    SessionResumed: _resumed,
    SessionClosed: _session_closed,
}
