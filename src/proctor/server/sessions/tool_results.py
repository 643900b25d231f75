"""What an agent gets of a step, of the first observation and of an error, with its schema and instructions. Pure.

Rule: of an outcome an agent gets the observation's own fields, the number of the step and whether the episode has ended. The
reward and keys of the metadata follow only if the environment's author lists them. A seed, a state or an id never does.
Governed episodes add their status to it (`governed/replies.py`).
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from proctor.contracts.tools import Tool
from proctor.models.control import Problem
from proctor.models.wire import OUTSIDE
from proctor.server.runtime.env_adapter import EnvDescription
from proctor.server.runtime.results import ToolOutcome
from proctor.server.sessions.episode_status import EpisodeStatus

SEEN: Final = "observation"
OVER: Final = "The episode is over."
LOST: Final = "The episode is lost, and there is nothing more to do."
encode: Final = msgspec.json.Encoder().encode


class WrappedObservation(Struct, frozen=True, forbid_unknown_fields=True):
    """An observation whose only field is called so."""

    observation: Raw


_fields: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_one_field: Final = msgspec.json.Decoder(WrappedObservation).decode


class ToolResult(Struct, frozen=True):
    """What an agent is told: in words, and as one JSON object."""

    text: str
    structured: bytes
    is_error: bool = False


class AgentObservation(Struct, omit_defaults=True):
    """An observation as agents get it."""

    observation: Raw
    step: int
    done: bool
    terminated: bool
    truncated: bool
    reward: float | UnsetType | None = UNSET
    info: dict[str, Raw] | UnsetType = UNSET


def make_tool_result(
    answer: ToolOutcome, tool: Tool, card: EnvDescription, standing: EpisodeStatus, step: int, counted: str = ""
) -> ToolResult:
    """Return what an agent is told of an answer; `counted` says how much of a longer call was done."""
    if tool.output_schema is not None:
        return ToolResult(answer.text, answer.content)
    seen = AgentObservation(
        _unwrap_observation(answer.content), step, standing.ended, standing.terminated, standing.truncated
    )
    if card.shows_reward:
        seen.reward = standing.reward
    if card.agent_info and answer.outcome is not None:
        metadata = _fields(answer.outcome.metadata)
        seen.info = {key: metadata[key] for key in card.agent_info if key in metadata}
    reward = "" if seen.reward is UNSET or seen.reward is None else f" Reward {seen.reward:g}."
    over = f" {OVER}" if seen.done else ""
    return ToolResult(f"{answer.text}\n{counted}Step {step}.{reward}{over}", encode(seen))


def make_error_result(problem: Problem) -> ToolResult:
    """Return what an agent is told when nothing was done, or when something went wrong."""
    if problem.lost is True:
        # What an orchestrator would do about it is nothing that an agent can do.
        problem = msgspec.structs.replace(problem, expected=UNSET)
        return ToolResult(f"{problem.code}: {problem.message}. {LOST}", encode(problem), is_error=True)
    expected = "" if problem.expected is UNSET else f" Expected: {problem.expected}."
    return ToolResult(f"{problem.code}: {problem.message}.{expected}", encode(problem), is_error=True)


def encode_first_observation(observation: Raw | None, standing: EpisodeStatus) -> bytes:
    """Return what an agent is told of the beginning of an episode, as JSON; None: an observation that only a machine reads."""
    if observation is None:
        return encode({"step": 0, "done": standing.ended})
    return encode(
        AgentObservation(
            _unwrap_observation(bytes(observation)), 0, standing.ended, standing.terminated, standing.truncated
        )
    )


GOVERNED: Final = """
This episode is governed: a proctor judges whatever you do, in a fixed order, and everything is on record.
The loop is: believe (say what you believe after what you have seen), decide (ACT, VERIFY_FIRST, ESCALATE, DEFER or CANCEL), then your \
tools, then believe again. After decide(outcome="ACT") you may use the tools that read at once ({reads}); for those that act \
({acts}) call request_token(tools=[...]) first. One decision and one token are good for several calls.
After decide(outcome="VERIFY_FIRST") call plan_verification, use a tool that reads, call believe and decide again. After \
decide(outcome="ESCALATE") call escalate, which asks a human operator and waits for the answer.
If a call is refused, nothing has happened: the refusal says why, and which calls lead on. Do what it says.
In safe mode nothing works until an operator lifts it. When the environment has ended, call believe once more, and you are done."""
FIRST: Final = "\nWhat was observed so far: {seen}"


def write_governed_instructions(
    card: EnvDescription, reads: Sequence[str], acts: Sequence[str], seen: bytes | None
) -> str:
    """Return what an agent of a governed episode reads first: `reads` and `acts` are its tools, `seen` the first observation."""
    loop = GOVERNED.format(reads=", ".join(reads) or "there is none", acts=", ".join(acts) or "there is none")
    first = "" if seen is None else FIRST.format(seen=seen.decode())
    return f"{write_instructions(card)}{loop}{first}"


def write_instructions(card: EnvDescription) -> str:
    """Return what an agent reads first."""
    names = ", ".join(tool.name for tool in card.tools)
    return (
        f"{card.name}: {card.description}\n"
        f"You act in one episode of this environment, with these tools: {names}. "
        "Tools that only read change nothing; every action is one step, and steps cannot be taken back. "
        "When the episode is over, every tool says so, and there is nothing more to do."
    )


def make_observation_schema(card: EnvDescription) -> dict[str, Any]:
    """Return the JSON Schema of an observation as agents get it."""
    whole = card.schemas.observation
    fields = {name: part for name, part in whole.get("properties", {}).items() if name not in OUTSIDE}
    inside: dict[str, Any] = {
        "type": "object",
        "properties": fields,
        "required": [name for name in whole.get("required", ()) if name in fields],
    }
    flag = {"type": "boolean"}
    properties: dict[str, Any] = {
        SEEN: fields[SEEN] if list(fields) == [SEEN] else inside,
        "step": {"type": "integer", "minimum": 0, "description": "How many steps the episode has had."},
        "done": {**flag, "description": "Whether the episode is over."},
        "terminated": {**flag, "description": "Whether it came to its own end."},
        "truncated": {**flag, "description": "Whether it was cut off, as by a limit of steps."},
    }
    required = list(properties)
    if card.shows_reward:
        properties["reward"] = {"type": ["number", "null"], "description": "Of the last step."}
    if card.agent_info:
        properties["info"] = {"type": "object", "properties": {key: {} for key in card.agent_info}}
    schema = {"type": "object", "properties": properties, "required": required}
    return schema | ({"$defs": whole["$defs"]} if "$defs" in whole else {})


def _unwrap_observation(content: bytes) -> Raw:
    """Return the observation; where it has one field that is called so, that field."""
    try:
        return _one_field(content).observation
    except msgspec.ValidationError:
        return Raw(content)
