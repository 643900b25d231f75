"""What a governed agent is told of its words and its calls: as one JSON object, and in sentences that it can act on.

Rule 1: a refusal names the rule, the reason, and the calls that lead on. Nobody needs to know the protocol to go on.
Rule 2: packets are the protocol's words and calls are the agent's: `legal_next` says the first, `next_calls` and `way` the second.
Rule 3: pure, but for reading where the stream stands.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from proctor.contracts.tools import ToolSafety
from proctor.episode.governing import POLICY_1, advice_for
from proctor.episode.history import Episode
from proctor.episode.packets import AnyPacket
from proctor.episode.states import Event, Position
from proctor.episode.verdict_words import way_on
from proctor.episode.verdicts import Verdict
from proctor.episode.ways import shortest_way
from proctor.server.governed.advice import ENDED, IN_WORDS, SPENT
from proctor.server.governed.memory import Answered
from proctor.server.governed.policy import Issuer
from proctor.server.governed.stream import Bar, Stream
from proctor.server.telling import Told

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


def _say(text: str) -> Any:
    return Meta(description=text)


class Permission(Struct):
    """A token that was issued."""

    token_id: str
    tools: list[str]
    operations: list[str]
    uses_left: int
    expires_at: str
    seconds_left: int


class Reply(Struct, omit_defaults=True):
    """What is answered."""

    verdict: Annotated[
        Literal["accepted", "refused", "waiting"],
        _say("accepted; refused: nothing has changed; waiting: an operator has not answered yet"),
    ]
    state: Annotated[str, _say("The state of the episode now, S0_IDLE to S9_SAFEMODE.")]
    legal_next: Annotated[list[str], _say("The packets that are legal now, in the protocol's words.")]
    next_calls: Annotated[list[str], _say("What you can call now.")]
    obligations: Annotated[list[str], _say("What is still open.")]
    packet_id: Annotated[str | UnsetType, _say("The packet that was made of your words.")] = UNSET
    rules: Annotated[list[str] | UnsetType, _say("The rules that were broken.")] = UNSET
    reason: Annotated[str | UnsetType, _say("Why it was refused.")] = UNSET
    way: Annotated[list[str] | UnsetType, _say("The calls that lead to what you tried, it itself last.")] = UNSET
    warnings: Annotated[list[str] | UnsetType, _say("What was accepted but is not as it should be.")] = UNSET
    token: Annotated[Permission | UnsetType, _say("The token that was issued.")] = UNSET
    answer: Annotated[Answered | UnsetType, _say("What the operator answered.")] = UNSET
    observation: Annotated[Raw | UnsetType, _say("What was observed when the episode began.")] = UNSET
    result: Annotated[Raw | UnsetType, _say("What the tool of a directive answered.")] = UNSET
    closed: Annotated[bool, _say("The episode is closed: there is nothing more to do.")] = False
    code: str | UnsetType = UNSET


def _schema() -> dict[str, Any]:
    (found,), parts = msgspec.json.schema_components([Reply], ref_template="#/$defs/{name}")
    whole: dict[str, Any] = parts.pop(found["$ref"].removeprefix("#/$defs/"))
    return {**whole, "$defs": parts}


REPLY_SCHEMA: Final = _schema()


class Standing(Struct):
    """Where an episode stands, beside what an environment's tool answered."""

    state: str
    legal_next: list[str]
    next_calls: list[str]
    obligations: list[str]
    observation_packet_id: str | None
    """What a belief may name as its evidence."""


STANDING_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "description": "Where the governed episode stands after the call.",
    "properties": {
        "state": {"type": "string"},
        "legal_next": {"type": "array", "items": {"type": "string"}},
        "next_calls": {"type": "array", "items": {"type": "string"}},
        "obligations": {"type": "array", "items": {"type": "string"}},
        "observation_packet_id": {"type": ["string", "null"]},
    },
    "required": ["state", "legal_next", "next_calls", "obligations", "observation_packet_id"],
}
GOVERNED: Final = "governed"
"""Under this key it stands in what a tool of the environment answers."""

Tools = Mapping[str, ToolSafety]
"""The environment's tools that an agent has, as the policy sees them."""


class Teller:
    """Tells one agent of an episode: `tools` are those that it has."""

    def __init__(self, stream: Stream, tools: Tools) -> None:
        self._stream = stream
        self._reads = [name for name, safety in tools.items() if safety is ToolSafety.READ]
        self._acts = [name for name in tools if name not in self._reads]

    # ------------------------------------------------------------------------------------------------------- replies
    def accepted(self, verdict: Verdict, **more: Any) -> Told:
        """Return what is told of a packet that was accepted."""
        reply = self._reply("accepted", **more)
        if verdict.packet_id is not None:
            reply.packet_id = verdict.packet_id
        if verdict.warnings:
            reply.warnings = [f"{warning.rule}: {warning.reason}" for warning in verdict.warnings]
        named = "" if verdict.packet_id is None else f" as {verdict.packet_id}"
        return Told(f"Accepted{named}.{_seen(reply)} {self._where(reply)}", encode(reply))

    def refused(self, verdict: Verdict, tool: str) -> Told:
        """Return what is told of a packet that was refused; `tool` is what the agent had called."""
        labels = way_on(verdict)
        lacking = self._lacking(labels)
        way = [*self._way(labels[:-1]), tool] if labels and not lacking else []
        if tool in self._acts:
            way = [f'request_token(tools=["{tool}"])' if call == "request_token" else call for call in way]
        reasons = "; ".join(dict.fromkeys(finding.reason for finding in verdict.findings[:3]))
        return self._refusal(verdict.rules, reasons, way, lacking)

    def barred(self, bars: Sequence[Bar], way: Sequence[str] = ()) -> Told:
        """Return what is told of words that were refused before the judge saw them; `way` are the calls that lead on."""
        reason = "; ".join(f"{bar.reason} ({bar.pointer})" if bar.pointer else bar.reason for bar in bars[:3])
        rules = tuple(dict.fromkeys(bar.rule for bar in bars))
        lacking = self._lacking((Event.READ,)) if rules == (POLICY_1,) else ""
        return self._refusal(rules, reason, list(way), lacking)

    def way_to(self, event: Event) -> list[str]:
        """Return the calls by which something becomes legal, its own call last; none if the agent has no tool for one."""
        return self.way_by(*self._labels_to(event, self._stream.standing))

    def way_by(self, *labels: str) -> list[str]:
        """Return the calls that say these packets; none if the agent has no tool for one."""
        return [] if self._lacking(labels) else self._way(labels)

    def waiting(self, text: str, again: str) -> Told:
        """Return that an operator has not answered yet, and what to call to go on waiting."""
        reply = self._reply("waiting")
        reply.next_calls = [again]
        return Told(f"{text} Call {again} to go on waiting.", encode(reply))

    def answered(self, answer: Answered) -> Told:
        """Return an operator's answer to an escalation."""
        reply = self._reply("accepted", answer=answer)
        chosen = "" if answer.choice is None else f" The operator chose {answer.choice}."
        said = f" The operator says: {answer.text}" if answer.text else ""
        return Told(f"Answered.{chosen}{said} {self._where(reply)}", encode(reply))

    def issued(self, token: Permission) -> Told:
        """Return that the token was issued that was asked for."""
        reply = self._reply("accepted", token=token)
        tools, uses = ", ".join(token.tools), "once" if token.uses_left == 1 else f"{token.uses_left} times"
        text = f"A token was issued: you may use {tools} {uses} within {token.seconds_left} seconds."
        return Told(f"{text} {self._where(reply)}", encode(reply))

    def halted(self, before: str = "") -> Told:
        """Return that the episode is in safe mode; `before` says what was done before it was."""
        reply = self._reply("refused", rules=["E7"], reason="the episode is in safe mode", code=SAFE_MODE)
        text = (
            f"{SAFE_MODE}: the episode was stopped. {before}No tool does anything until an operator lifts safe mode. "
            "Stop here, and try again later."
        )
        return Told(text, encode(reply), is_error=True)

    def stopped(self, before: str = "") -> Told:
        """Return that a call was stopped by safe mode, also if that is lifted by now; `before` says what was done."""
        if self._stream.halted:
            return self.halted(before)
        reason = "the episode was stopped meanwhile"
        reply = self._reply("refused", rules=["E7"], reason=reason, code=SAFE_MODE)
        text = f"{SAFE_MODE}: {reason}, and safe mode was lifted since. {before}Your call does not go on."
        return Told(f"{text} {self._where(reply)}", encode(reply), is_error=True)

    def closing(self, told: Told) -> Told:
        """Return what was told, and that the episode is closed."""
        reply = msgspec.json.decode(told.structured, type=Reply)
        reply.closed, reply.next_calls = True, []
        before = told.text if told.is_error else "Accepted."
        return Told(f"{before} {self._where(reply)}", encode(reply), told.is_error)

    def standing(self) -> Standing:
        """Return where the episode stands."""
        stream = self._stream
        seen = None if stream.memory.seen is None else stream.memory.seen.packet_id
        return Standing(stream.standing.state, list(stream.legal_next), self.next_calls(), stream.obligations, seen)

    def beside(self, told: Told, *, inside: bool) -> Told:
        """Return what a tool of the environment told, with where the episode stands; `inside` the object if it may be."""
        standing = self.standing()
        text = f"{told.text}\n{self._where(standing)}"
        if not inside:
            return Told(text, told.structured)
        answer = told.structured.rstrip()
        comma = b"" if answer == b"{}" else b","
        return Told(text, b'%b%b"%b":%b}' % (answer[:-1], comma, GOVERNED.encode(), encode(standing)))

    def result(self, told: Told, packet: AnyPacket) -> Told:
        """Return what the tool of a directive told that the agent wrote itself."""
        reply = self._reply("accepted", packet_id=packet.header.packet_id, result=Raw(told.structured))
        return Told(f"{told.text}\n{self._where(reply)}", encode(reply))

    # --------------------------------------------------------------------------------------------------------- words
    def place(self) -> str:
        """Return where the episode stands, in words."""
        return self._where(self.standing())

    def next_calls(self) -> list[str]:
        """Return what the agent can call now."""
        if self._stream.halted:
            return []
        calls = self._calls(self._stream.legal_next)
        if self._stream.session.over:
            # Nothing can be done any more: what is left is to say so.
            stop = ['decide(outcome="CANCEL")'] if any(call.startswith("decide") for call in calls) else []
            return [call for call in calls if call.startswith(("believe", "escalate"))] + stop
        if self._stream.position is Position.REVIEW:
            return ["believe, which begins a new cycle"]
        return calls

    def _labels_to(self, event: Event, episode: Episode) -> tuple[str, ...]:
        return shortest_way(episode, self._stream.context.settings, event)

    def _way(self, labels: Iterable[str]) -> list[str]:
        """Return the calls of a way, one for each packet that is the agent's to say."""
        steps = (" or ".join(self._call_of(label)) for label in labels)
        return [step for step in steps if step]

    def _lacking(self, labels: Iterable[str]) -> str:
        """Return which tool an agent lacks to go this way, in a sentence; nothing if it lacks none."""
        needed = list(labels)
        if Event.ACT in needed and not self._stream.verified:
            needed.append(Event.READ)
        wanting = next((label for label in needed if label in _TOOLS_OF and not self._call_of(label)), None)
        return "" if wanting is None else f" The way there needs {_TOOLS_OF[wanting]}. {_STUCK}"

    def _calls(self, labels: Iterable[str]) -> list[str]:
        """Return packets as calls; what others say, and decisions of which all are possible, is said in short."""
        return list(dict.fromkeys(call for label in labels for call in self._call_of(label)))

    def _call_of(self, label: str) -> list[str]:
        if label in _CALLS:
            never = label == Event.TOKEN and self._stream.policy.tokens.issuer is Issuer.NEVER
            return [] if never else [_CALLS[label]]
        kind, _, variant = label.removesuffix(")").partition("(")
        if kind == "DecisionPacket":
            return [f'decide(outcome="{variant}")']
        if kind == "TaskDirectivePacket":
            return [*(self._reads if variant != "WRITE" else ()), *(self._acts if variant != "READ" else ())]
        return []

    def _reply(self, verdict: Literal["accepted", "refused", "waiting"], **more: Any) -> Reply:
        stream = self._stream
        memory = stream.memory
        # Not every client shows its model the instructions, so it is repeated until the first decision.
        if memory.seen is not None and memory.decision is None and len(memory.seen.data) <= MOST_TOLD:
            more.setdefault("observation", Raw(memory.seen.data))
        state = stream.standing.state
        return Reply(verdict, state, list(stream.legal_next), self.next_calls(), stream.obligations, **more)

    def _refusal(self, rules: Sequence[str], reason: str, way: list[str], lacking: str = "") -> Told:
        reply = self._reply("refused", rules=list(rules), reason=reason, code=REFUSED)
        if way:
            reply.way = way
        lead = f" To get there, call in this order: {', then '.join(way)}." if way else lacking or _advised(rules)
        text = f"{REFUSED} ({', '.join(rules)}): {reason}. Nothing was done.{lead}{_seen(reply)} {self._where(reply)}"
        return Told(text, encode(reply), is_error=True)

    def _where(self, reply: Reply | Standing) -> str:
        if isinstance(reply, Reply) and reply.closed:
            return "The episode is closed: there is nothing more to do."
        over = self._stream.session.over and not self._stream.halted
        state = f"The episode is in {reply.state}: {ENDED if over else self._in_words()}."
        calls = f" You can call now: {', '.join(reply.next_calls)}." if reply.next_calls else ""
        return f"{state}{calls}"

    def _in_words(self) -> str:
        position, now = self._stream.position, self._stream.now()
        if position is Position.AUTHORIZE and not any(each.live(now) for each in self._stream.standing.tokens.values()):
            return SPENT
        return IN_WORDS[position]


def _advised(rules: Sequence[str]) -> str:
    advice = advice_for(rules)
    return f" {advice}" if advice else ""


def _seen(reply: Reply) -> str:
    if not isinstance(reply.observation, Raw):
        return ""
    return f" What was observed when the episode began: {bytes(reply.observation).decode()}."
