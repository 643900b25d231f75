"""What a governed agent gets besides a tool's result: acceptance, refusal, answer and status, as one JSON object and in sentences.

Rule 1: a refusal names the rule, the reason, and the calls that lead on. Nobody needs to know the protocol to go on.
Rule 2: packets are the protocol's words and calls are the agent's: `legal_next` says the first, `next_calls` and `way` the second.
Rule 3: pure, but for reading where the stream stands.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from proctor.contracts.tools import ToolSafety
from proctor.episode.episode_state import IssuedToken
from proctor.episode.legal_moves import shortest_way
from proctor.episode.packets.reader import AnyPacket
from proctor.episode.rules.governance import POLICY_1, POLICY_2, advice_for
from proctor.episode.transition_table import Event, Position
from proctor.episode.verdicts import Verdict
from proctor.narration.verdicts import find_way_on
from proctor.server.governed.episode_memory import OperatorAnswer
from proctor.server.governed.packet_stream import PacketStream, PreJudgeRefusal
from proctor.server.governed.policy import TokenIssuer
from proctor.server.sessions.tool_results import ToolResult

IN_WORDS: Final[Mapping[Position, str]] = {
    Position.IDLE: "nothing has been observed yet",
    Position.SENSE: "something was observed; say what you believe",
    Position.MODEL: "you have beliefs; decide what to do",
    Position.DECIDE_ACT: "you decided to act; use a tool that reads, or ask for a token",
    Position.DECIDE_ESCALATE: "you decided to ask a human operator; ask",
    Position.DECIDE_DEFER: "you decided to stop for now; say what you believe, and the matter is closed",
    Position.DECIDE_CANCEL: "you decided to stop; say what you believe, and the matter is closed",
    Position.DECIDE_AFRESH: "the operator has answered; decide what to do",
    Position.VERIFY: "verify your assumptions with tools that only read, then say what you believe",
    Position.AUTHORIZE: "you have a token; use the tools that it permits",
    Position.EXECUTE: "use your tools, and say what you believe when you have seen enough",
    Position.SETTLE: "what you did is noted; decide what to do next",
    Position.REVIEW: "the matter is closed; nothing more need be done",
    Position.ESCALATE_DUE: "a budget is overrun; ask a human operator",
    Position.ESCALATED: "a human operator is asked; wait for the answer",
    Position.SAFEMODE: "everything is stopped until an operator lifts safe mode",
    Position.CLOSED: "the episode is closed",
}
SPENT: Final = "the token that you had opens nothing any more; ask for another"
ENVIRONMENT_ENDED: Final = "the environment has ended; say what you have learned, and you are done"
REFUSED: Final = "REFUSED"
"""The code of a refusal by the judge or by the policy."""
SAFE_MODE: Final = "SAFE_MODE"
MOST_TOLD: Final = 4000
"""Bytes of an observation that are repeated."""
encode: Final = msgspec.json.Encoder().encode

# Calls that stand for packets and records; the rest is said by the proctor or by an operator.
_CALLS: Final = {
    "BeliefUpdatePacket": "believe",
    "DecisionPacket": "decide",
    "VerificationPlanPacket": "plan_verification",
    "ToolAuthorizationToken": "request_token",
    "EscalationPacket": "escalate",
    "user_input record": "escalate() again, to wait for the operator's answer",
    "ObservationPacket(user_input)": "escalate() again, to wait for the operator's answer",
}
_TOOLS_OF: Final[Mapping[str, str]] = {
    Event.READ: "a tool that only reads, and you have none",
    Event.WRITE: "a tool that acts, and you have none",
    Event.TOKEN: "a token, and here none are issued",
}
"""What packets need that an agent may have no call for."""
_STUCK: Final = "If nothing that you can call leads on, only the orchestrator can end this."


class TokenDescription(Struct):
    """A token that was issued."""

    token_id: str
    tools: list[str]
    operations: list[str]
    uses_left: int
    expires_at: str
    seconds_left: int


class GovernedReply(Struct, omit_defaults=True):
    """What is answered."""

    verdict: Annotated[
        Literal["accepted", "refused", "waiting"],
        Meta(description="accepted; refused: nothing has changed; waiting: an operator has not answered yet"),
    ]
    state: Annotated[str, Meta(description="The state of the episode now, S0_IDLE to S9_SAFEMODE.")]
    legal_next: Annotated[list[str], Meta(description="The packets that are legal now, in the protocol's words.")]
    next_calls: Annotated[list[str], Meta(description="What you can call now.")]
    obligations: Annotated[list[str], Meta(description="What is still open.")]
    packet_id: Annotated[str | UnsetType, Meta(description="The packet that was made of your words.")] = UNSET
    rules: Annotated[list[str] | UnsetType, Meta(description="The rules that were broken.")] = UNSET
    reason: Annotated[str | UnsetType, Meta(description="Why it was refused.")] = UNSET
    way: Annotated[
        list[str] | UnsetType, Meta(description="The calls that lead to what you tried, it itself last.")
    ] = UNSET
    warnings: Annotated[list[str] | UnsetType, Meta(description="What was accepted but is not as it should be.")] = (
        UNSET
    )
    token: Annotated[TokenDescription | UnsetType, Meta(description="The token that was issued.")] = UNSET
    answer: Annotated[OperatorAnswer | UnsetType, Meta(description="What the operator answered.")] = UNSET
    observation: Annotated[Raw | UnsetType, Meta(description="What was observed when the episode began.")] = UNSET
    result: Annotated[Raw | UnsetType, Meta(description="What the tool of a directive answered.")] = UNSET
    closed: Annotated[bool, Meta(description="The episode is closed: there is nothing more to do.")] = False
    code: str | UnsetType = UNSET


class GovernedStatus(Struct):
    """Where the governed episode stands after the call."""

    state: str
    legal_next: list[str]
    next_calls: list[str]
    obligations: list[str]
    observation_packet_id: str | None
    """What a belief may name as its evidence."""


def _make_schema(kind: type[Struct]) -> dict[str, Any]:
    (found,), parts = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    whole: dict[str, Any] = parts.pop(found["$ref"].removeprefix("#/$defs/"))
    return {**whole, "$defs": parts} if parts else whole


REPLY_SCHEMA: Final = _make_schema(GovernedReply)
STATUS_SCHEMA: Final = _make_schema(GovernedStatus)
GOVERNED: Final = "governed"
"""Under this key it stands in what a tool of the environment answers."""

Tools = Mapping[str, ToolSafety]
"""The environment's tools that an agent has, as the policy sees them."""


class ReplyBuilder:
    """Tells one agent of an episode: `tools` are those that it has."""

    def __init__(self, stream: PacketStream, tools: Tools) -> None:
        self._stream = stream
        self._reads = [name for name, safety in tools.items() if safety is ToolSafety.READ]
        self._acts = [name for name in tools if name not in self._reads]

    def accept(self, verdict: Verdict, **more: Any) -> ToolResult:
        """Return what is told of a packet that was accepted."""
        reply = self._reply("accepted", **more)
        if verdict.packet_id is not None:
            reply.packet_id = verdict.packet_id
        if verdict.warnings:
            reply.warnings = [f"{warning.rule}: {warning.reason}" for warning in verdict.warnings]
        named = "" if verdict.packet_id is None else f" as {verdict.packet_id}"
        return ToolResult(f"Accepted{named}.{_first_observation(reply)} {self._status_words(reply)}", encode(reply))

    def refuse(self, verdict: Verdict, tool: str) -> ToolResult:
        """Return what is told of a packet that was refused; `tool` is what the agent had called."""
        labels = find_way_on(verdict)
        lacking = self._missing_tool(labels)
        way = [*self._way(labels[:-1]), tool] if labels and not lacking else []
        if tool in self._acts:
            way = [f'request_token(tools=["{tool}"])' if call == "request_token" else call for call in way]
        reasons = "; ".join(dict.fromkeys(finding.reason for finding in verdict.findings[:3]))
        return self._refusal(verdict.rules, reasons, way, lacking)

    def refuse_early(self, bars: Sequence[PreJudgeRefusal], way: Sequence[str] = ()) -> ToolResult:
        """Return what is told of words that were refused before the judge saw them; `way` are the calls that lead on."""
        reason = "; ".join(f"{bar.reason} ({bar.pointer})" if bar.pointer else bar.reason for bar in bars[:3])
        rules = tuple(dict.fromkeys(bar.rule for bar in bars))
        lacking = self._missing_tool((Event.READ,)) if rules == (POLICY_1,) else ""
        return self._refusal(rules, reason, list(way), lacking)

    def way_past(self, rule: str, tried: str) -> list[str]:
        """Return the calls that make the policy let something pass, and what was tried, if it is to be called once more."""
        labels: tuple[str, ...]
        if rule == POLICY_1:
            labels, again = (Event.VERIFY_FIRST, Event.PLAN, Event.READ, Event.BELIEF), []
        elif rule == POLICY_2:
            labels = shortest_way(self._stream.standing, self._stream.context.settings, Event.ESCALATION)
            again = [] if tried in ("decide", "submit_packet") else [tried]
        else:
            return []
        before = [] if self._missing_tool(labels) else self._way(labels)
        return [*before, 'decide(outcome="ACT")', *again] if before else []

    def waiting(self, text: str, again: str) -> ToolResult:
        """Return that an operator has not answered yet, and what to call to go on waiting."""
        reply = self._reply("waiting")
        reply.next_calls = [again]
        return ToolResult(f"{text} Call {again} to go on waiting.", encode(reply))

    def report_answer(self, answer: OperatorAnswer) -> ToolResult:
        """Return an operator's answer to an escalation."""
        reply = self._reply("accepted", answer=answer)
        chosen = "" if answer.choice is None else f" The operator chose {answer.choice}."
        said = f" The operator says: {answer.text}" if answer.text else ""
        return ToolResult(f"Answered.{chosen}{said} {self._status_words(reply)}", encode(reply))

    def report_token(self, permit: IssuedToken) -> ToolResult:
        """Return that the token was issued that was asked for."""
        token = TokenDescription(
            permit.token_id,
            list(permit.tool_ids),
            [str(operation) for operation in permit.operations],
            permit.limit - permit.used,
            permit.expiry.isoformat(timespec="seconds"),
            max(0, round((permit.expiry - self._stream.now()).total_seconds())),
        )
        reply = self._reply("accepted", token=token)
        tools, uses = ", ".join(token.tools), "once" if token.uses_left == 1 else f"{token.uses_left} times"
        text = f"A token was issued: you may use {tools} {uses} within {token.seconds_left} seconds."
        return ToolResult(f"{text} {self._status_words(reply)}", encode(reply))

    def in_safe_mode(self, before: str = "") -> ToolResult:
        """Return that the episode is in safe mode; `before` says what was done before it was."""
        reply = self._reply("refused", rules=["E7"], reason="the episode is in safe mode", code=SAFE_MODE)
        text = (
            f"{SAFE_MODE}: the episode was stopped. {before}No tool does anything until an operator lifts safe mode. "
            "Stop here, and try again later."
        )
        return ToolResult(text, encode(reply), is_error=True)

    def report_stop(self, before: str = "") -> ToolResult:
        """Return that a call was stopped by safe mode, also if that is lifted by now; `before` says what was done."""
        if self._stream.in_safe_mode:
            return self.in_safe_mode(before)
        reason = "the episode was stopped meanwhile"
        reply = self._reply("refused", rules=["E7"], reason=reason, code=SAFE_MODE)
        text = f"{SAFE_MODE}: {reason}, and safe mode was lifted since. {before}Your call does not go on."
        return ToolResult(f"{text} {self._status_words(reply)}", encode(reply), is_error=True)

    def closing(self, told: ToolResult) -> ToolResult:
        """Return what was told, and that the episode is closed."""
        reply = msgspec.json.decode(told.structured, type=GovernedReply)
        reply.closed, reply.next_calls = True, []
        before = told.text if told.is_error else "Accepted."
        return ToolResult(f"{before} {self._status_words(reply)}", encode(reply), told.is_error)

    def _status(self) -> GovernedStatus:
        stream = self._stream
        seen = None if stream.memory.seen is None else stream.memory.seen.packet_id
        legal = stream.legal_next
        return GovernedStatus(stream.standing.state, list(legal), self._next_calls(legal), stream.obligations, seen)

    def with_status(self, told: ToolResult, *, inside: bool) -> ToolResult:
        """Return what a tool of the environment told, with where the episode stands; `inside` the object if it may be."""
        standing = self._status()
        text = f"{told.text}\n{self._status_words(standing)}"
        if not inside:
            return ToolResult(text, told.structured)
        answer = told.structured.rstrip()
        comma = b"" if answer == b"{}" else b","
        return ToolResult(text, b'%b%b"%b":%b}' % (answer[:-1], comma, GOVERNED.encode(), encode(standing)))

    def result(self, told: ToolResult, packet: AnyPacket) -> ToolResult:
        """Return what the tool of a directive told that the agent wrote itself."""
        reply = self._reply("accepted", packet_id=packet.header.packet_id, result=Raw(told.structured))
        return ToolResult(f"{told.text}\n{self._status_words(reply)}", encode(reply))

    def describe_status(self) -> str:
        """Return where the episode stands, in words."""
        return self._status_words(self._status())

    def _next_calls(self, legal: Sequence[str]) -> list[str]:
        if self._stream.in_safe_mode:
            return []
        calls = list(dict.fromkeys(call for label in legal for call in self._calls_for(label)))
        if self._stream.session.over:
            # Nothing can be done any more: what is left is to say so.
            stop = ['decide(outcome="CANCEL")'] if any(call.startswith("decide") for call in calls) else []
            return [call for call in calls if call.startswith(("believe", "escalate"))] + stop
        if self._stream.position is Position.REVIEW:
            return ["believe, which begins a new cycle"]
        return calls

    def _way(self, labels: Iterable[str]) -> list[str]:
        steps = (" or ".join(self._calls_for(label)) for label in labels)
        return [step for step in steps if step]

    def _missing_tool(self, labels: Iterable[str]) -> str:
        """Return which tool an agent lacks to go this way, in a sentence; nothing if it lacks none."""
        needed = list(labels)
        if Event.ACT in needed and not self._stream.verified:
            needed.append(Event.READ)
        wanting = next((label for label in needed if label in _TOOLS_OF and not self._calls_for(label)), None)
        return "" if wanting is None else f" The way there needs {_TOOLS_OF[wanting]}. {_STUCK}"

    def _calls_for(self, label: str) -> list[str]:
        if label in _CALLS:
            never = label == Event.TOKEN and self._stream.policy.tokens.issuer is TokenIssuer.NEVER
            return [] if never else [_CALLS[label]]
        kind, _, variant = label.removesuffix(")").partition("(")
        if kind == "DecisionPacket":
            return [f'decide(outcome="{variant}")']
        if kind == "TaskDirectivePacket":
            return [*(self._reads if variant != "WRITE" else ()), *(self._acts if variant != "READ" else ())]
        return []

    def _reply(self, verdict: Literal["accepted", "refused", "waiting"], **more: Any) -> GovernedReply:
        stream = self._stream
        memory = stream.memory
        # Not every client shows its model the instructions, so it is repeated until the first decision.
        if memory.seen is not None and memory.decision is None and len(memory.seen.data) <= MOST_TOLD:
            more.setdefault("observation", Raw(memory.seen.data))
        state = stream.standing.state
        legal = stream.legal_next
        return GovernedReply(verdict, state, list(legal), self._next_calls(legal), stream.obligations, **more)

    def _refusal(self, rules: Sequence[str], reason: str, way: list[str], lacking: str = "") -> ToolResult:
        reply = self._reply("refused", rules=list(rules), reason=reason, code=REFUSED)
        if way:
            reply.way = way
        advice = advice_for(rules)
        lead = f" To get there, call in this order: {', then '.join(way)}." if way else lacking
        lead = lead or (f" {advice}" if advice else "")
        done = f"{REFUSED} ({', '.join(rules)}): {reason}. Nothing was done."
        text = f"{done}{lead}{_first_observation(reply)} {self._status_words(reply)}"
        return ToolResult(text, encode(reply), is_error=True)

    def _status_words(self, reply: GovernedReply | GovernedStatus) -> str:
        if isinstance(reply, GovernedReply) and reply.closed:
            return "The episode is closed: there is nothing more to do."
        stream = self._stream
        words = IN_WORDS[stream.position]
        if stream.session.over and not stream.in_safe_mode:
            words = ENVIRONMENT_ENDED
        elif stream.position is Position.AUTHORIZE and not stream.live_tokens:
            words = SPENT
        state = f"The episode is in {reply.state}: {words}."
        calls = f" You can call now: {', '.join(reply.next_calls)}." if reply.next_calls else ""
        return f"{state}{calls}"


def _first_observation(reply: GovernedReply) -> str:
    if not isinstance(reply.observation, Raw):
        return ""
    return f" What was observed when the episode began: {bytes(reply.observation).decode()}."
