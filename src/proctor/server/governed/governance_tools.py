"""The tools that every agent of a governed episode has besides the environment's own, as a language model reads them.

Rule 1: a description says what the tool is for, when it may be called and what comes back; the form says the arguments.
Rule 2: a form is what an agent must know and no more. Ids, times, layers and the envelope are the proctor's affair.
Rule 3: `view_for_agent` is how an episode is introduced to an agent: what it reads first, and the tools with their schemas.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from pydantic import Field, JsonValue, field_validator
from pydantic import ValidationError as ModelError

from proctor.contracts.tools import Tool, ToolMessage, ToolSafety, make_json_schema, make_refusal
from proctor.errors import ValidationError
from proctor.server.governed.packet_stream import PacketStream
from proctor.server.governed.policy import GovernancePolicy
from proctor.server.governed.replies import GOVERNED, MOST_TOLD, REPLY_SCHEMA, STATUS_SCHEMA
from proctor.server.sessions.tool_results import make_observation_schema, write_governed_instructions

Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=200)]
Words: TypeAlias = Annotated[str, Field(min_length=1, max_length=4000)]
PacketName: TypeAlias = Annotated[str, Field(pattern=r"^pkt_[A-Za-z0-9_-]{1,200}$")]
_WAIT: Final = "How many seconds this call may wait for the operator. Call again to wait longer."
Wait: TypeAlias = Annotated[float, Field(ge=0, le=3600, description=_WAIT)]
DEFAULT_WAIT: Final = 20.0


class Believe(ToolMessage):
    """Say what you believe now, after what you have seen."""

    changes: Annotated[
        dict[Name, JsonValue],
        Field(
            min_length=1,
            max_length=100,
            description='Your beliefs by name, with their new values, such as {"odor": 0.02, "best_direction": "up"}.',
        ),
    ]
    evidence: Annotated[
        list[PacketName] | None,
        Field(
            max_length=100,
            description="The ids of the packets that you conclude this from. Left out: the latest observation.",
        ),
    ] = None
    domain: Annotated[Name, Field(description="What the beliefs are about.")] = "world"
    kind: Annotated[
        Literal["new_belief", "revision", "contradiction_resolved", "confidence_adjustment", "staleness_refresh"]
        | None,
        Field(
            alias="type",
            description="What happens to your beliefs. Left out: a revision if you believed something of the name before.",
        ),
    ] = None
    confidence: Annotated[float, Field(ge=0, le=1, description="How sure you are, from 0 to 1.")] = 0.8


class Checks(ToolMessage):
    """What you have checked before you decided."""

    constitutional_check: Annotated[bool, Field(description="It breaks no rule that you were given.")] = True
    budget_check: Annotated[bool, Field(description="It fits into the budgets that are left.")] = True
    tier_check: Annotated[bool, Field(description="It is as good as the policy asks for.")] = True


class Decide(ToolMessage):
    """Decide what to do next."""

    outcome: Annotated[
        Literal["ACT", "VERIFY_FIRST", "ESCALATE", "DEFER", "CANCEL"],
        Field(
            description="ACT: use tools. VERIFY_FIRST: check assumptions with tools that only read, then decide again. "
            "ESCALATE: ask a human operator. DEFER or CANCEL: stop here; the next `believe` closes the matter."
        ),
    ]
    summary: Annotated[Words, Field(description="What you decided and why, in a sentence or two.")]
    assumptions: Annotated[
        dict[Words, bool] | None,
        Field(
            max_length=50,
            description='What the decision rests on, and whether you have verified it, such as {"the odor rises upwards": '
            "true}. At HIGH stakes every one must be verified before you ACT.",
        ),
    ] = None
    alternatives: Annotated[
        list[Words] | None, Field(max_length=20, description="What else you considered and rejected.")
    ] = None
    risks: Annotated[list[Words] | None, Field(max_length=20, description="How it could fail.")] = None
    checks: Annotated[Checks | None, Field(description="What you have checked. Left out: all of it.")] = None


class TargetArguments(ToolMessage):
    """One assumption, and how it is verified."""

    assumption: Words
    method: Annotated[Words, Field(description="How you will verify it.")] = "read it again"
    success: Annotated[Words, Field(description="What you must see for it to hold.")] = "it is seen again"
    tool: Annotated[Name | None, Field(description="The tool that you will use, one that only reads.")] = None


class PlanVerification(ToolMessage):
    """Say what you will verify."""

    targets: Annotated[
        list[TargetArguments | Words],
        Field(min_length=1, max_length=20, description="The assumptions to verify: texts, or objects that say how."),
    ]
    summary: Annotated[Words, Field(description="The plan in a sentence.")] = "verify before acting"
    tool_calls: Annotated[int, Field(ge=1, le=10_000, description="How many calls the verification may take.")] = 3
    seconds: Annotated[int, Field(ge=1, le=100_000, description="How long it may take.")] = 60


class RequestToken(ToolMessage):
    """Ask for the permission to use tools that act."""

    tools: Annotated[
        list[Name] | None,
        Field(
            min_length=1,
            max_length=50,
            description="The names of the tools. Left out: wait for the answer to your request that is pending.",
        ),
    ] = None
    rationale: Annotated[Words | None, Field(description="Why you need it; an operator may read this.")] = None
    uses: Annotated[
        int | None, Field(ge=1, le=1_000_000, description="How many calls. Left out: as many as the policy allows.")
    ] = None
    operations: Annotated[
        list[Literal["read", "write", "delete", "modify"]] | None,
        Field(min_length=1, max_length=4, description="What for. Left out: what the policy allows."),
    ] = None
    wait_seconds: Wait = DEFAULT_WAIT


class ChoiceArguments(ToolMessage):
    """Something that the operator can choose."""

    id: Name
    description: Words
    pros: list[Words] = ["it is possible"]
    cons: list[Words] = ["it is not certain"]


class Escalate(ToolMessage):
    """Ask a human operator."""

    question: Annotated[
        Words | None, Field(description="What you ask. Left out: wait for the answer to the question that is pending.")
    ] = None
    options: Annotated[
        list[ChoiceArguments | Words] | None,
        Field(min_length=2, max_length=3, description="Two or three things to choose from: texts, or objects."),
    ] = None
    gaps: Annotated[
        list[Words] | None, Field(min_length=1, max_length=20, description="What you do not know and would have to.")
    ] = None
    recommended: Annotated[Words | None, Field(description="What you would do, and why.")] = None
    trigger: Annotated[
        Literal[
            "high_stakes_high_uncertainty",
            "constitutional_boundary",
            "contradiction_unresolved",
            "budget_insufficient",
            "tools_degraded_critical",
            "user_override_required",
        ],
        Field(description="Why a human is asked."),
    ] = "user_override_required"
    wait_seconds: Wait = DEFAULT_WAIT

    @field_validator("options")
    @classmethod
    def _differ(cls, options: list[ChoiceArguments | str] | None) -> list[ChoiceArguments | str] | None:
        """Refuse two options of one id: nobody could choose between them."""
        ids = [option_id(number, option) for number, option in enumerate(options or [], 1)]
        if len(set(ids)) < len(ids):
            raise ValidationError("two options have one id", found=", ".join(ids), expected="an id of its own for each")
        return options


def option_id(number: int, option: ChoiceArguments | str) -> str:
    """Return the id of an option; a text is named by its place."""
    return option.id if isinstance(option, ChoiceArguments) else f"option_{number}"


class SubmitPacket(ToolMessage):
    """Submit a whole packet."""

    packet: Annotated[
        dict[str, JsonValue],
        Field(description="The packet: an object with `header`, `mcp` (the compliance envelope) and `payload`."),
    ]


class GovernanceTool(StrEnum):
    """What a governed agent can say."""

    BELIEVE = "believe"
    DECIDE = "decide"
    PLAN_VERIFICATION = "plan_verification"
    REQUEST_TOKEN = "request_token"  # noqa: S105  # a tool's name
    ESCALATE = "escalate"
    SUBMIT_PACKET = "submit_packet"


GOVERNANCE_TOOL_NAMES: Final = tuple(str(saying) for saying in GovernanceTool)
ARGUMENT_MODELS: Final[dict[GovernanceTool, type[ToolMessage]]] = {
    GovernanceTool.BELIEVE: Believe,
    GovernanceTool.DECIDE: Decide,
    GovernanceTool.PLAN_VERIFICATION: PlanVerification,
    GovernanceTool.REQUEST_TOKEN: RequestToken,
    GovernanceTool.ESCALATE: Escalate,
    GovernanceTool.SUBMIT_PACKET: SubmitPacket,
}
_ANSWER: Final = (
    "What comes back says whether it was accepted, in which state the episode is now, what you can call next and what is "
    "still open. If it is refused, nothing has changed: read the reason, which names the calls that lead on."
)


def _make_tool(name: GovernanceTool, title: str, text: str) -> Tool:
    return Tool(
        name=name,
        description=f"{text}\n\n{_ANSWER}",
        # It moves nothing in the environment, but it is no mere reading either.
        safety=ToolSafety.MIXED,
        input_schema=make_json_schema(ARGUMENT_MODELS[name]),
        output_schema=REPLY_SCHEMA,
        title=title,
    )


_TOOLS: Final = (
    _make_tool(
        GovernanceTool.BELIEVE,
        "State what you believe",
        "State what you believe now. Call this after every observation, before you decide, and after your tools have "
        "answered, before you decide again. After decide(DEFER or CANCEL) it closes the matter; after that, or when an "
        "operator has lifted safe mode, it begins a new cycle. When the environment has ended, it ends your work.",
    ),
    _make_tool(
        GovernanceTool.DECIDE,
        "Decide what to do",
        "Decide what to do next, after `believe`. ACT lets you use tools that read at once, and `request_token` for tools that "
        "act. VERIFY_FIRST leads to `plan_verification` and tools that read; afterwards call `believe`, then `decide` again. "
        "ESCALATE leads to `escalate`. DEFER and CANCEL lead to `believe`, and then you are done unless you begin anew. One "
        "decision to ACT is good for many calls of tools: decide again only after the next `believe`.",
    ),
    _make_tool(
        GovernanceTool.PLAN_VERIFICATION,
        "Plan a verification",
        "Say what you will verify, after decide(VERIFY_FIRST). Then use tools that only read, and call `believe` with what "
        "you found: its evidence must name what you observed since, as it does if you leave `evidence` out. Then decide "
        "again.",
    ),
    _make_tool(
        GovernanceTool.REQUEST_TOKEN,
        "Ask for a token",
        "Ask for a token, which permits tools that act (WRITE and MIXED) for a while and so many calls. Call this after "
        "decide(ACT), before the tools; they find the token by themselves. When it is used up or expired: `believe`, "
        "decide(ACT) and `request_token` again. {issuer}",
    ),
    _make_tool(
        GovernanceTool.ESCALATE,
        "Ask a human operator",
        "Ask a human operator to choose, after decide(ESCALATE) or when a budget is overrun. The call waits for the answer, "
        "up to `wait_seconds`; if there is none yet, call `escalate` again without a question to go on waiting. After the "
        "answer, decide.",
    ),
    _make_tool(
        GovernanceTool.SUBMIT_PACKET,
        "Submit a whole packet",
        "Submit a whole packet of the episode protocol, if you need a field that the other tools do not have: a "
        "BeliefUpdatePacket, DecisionPacket, VerificationPlanPacket, TaskDirectivePacket (the tool that it names is then "
        "used) or EscalationPacket, from layer 2 to 5. Leave out header.packet_id, header.created_at, "
        "header.correlation_id and mcp.routing.tools_state: they are set for you. The answer says as packet_id what the packet is "
        "called: name it so in later packets. You do not need this tool to do your work.",
    ),
)
_ISSUERS: Final = {
    "auto": "Here the proctor issues it at once, for at most {uses} calls and {seconds:g} seconds.",
    "human": "Here an operator approves it, for at most {uses} calls and {seconds:g} seconds: the call waits, up to "
    "`wait_seconds`; if there is no answer yet, call `request_token` again without tools to go on waiting.",
    "never": "Here no tokens are issued: tools that act cannot be used.",
}


def governance_tools(policy: GovernancePolicy) -> tuple[Tool, ...]:
    """Return the six tools; what is said of tokens is what this policy does."""
    limits = policy.tokens
    issuer = _ISSUERS[limits.issuer].format(uses=limits.max_uses, seconds=limits.life_seconds)
    return tuple(
        msgspec.structs.replace(tool, description=tool.description.replace("{issuer}", issuer)) for tool in _TOOLS
    )


def tool_under_policy(tool: Tool, policy: GovernancePolicy) -> Tool:
    """Return a tool of the environment as a governed agent sees it: as strict as the policy, and with what it needs."""
    safety = policy.safety_of(tool)
    note = f"Governed: this tool acts ({safety}). Call `decide` with ACT and `request_token` before it."
    if safety is ToolSafety.READ:
        note = "Governed: this tool only reads. Call `decide` with ACT or, for a verification, `plan_verification` before it."
    return msgspec.structs.replace(tool, safety=safety, description=f"{tool.description}\n\n{note}")


def parse_arguments(saying: GovernanceTool, arguments: bytes) -> Any:
    """Return the form that the arguments of a call fill in, or raise a ValidationError that says what is wrong."""
    try:
        return ARGUMENT_MODELS[saying].__pydantic_validator__.validate_json(arguments, strict=True)
    except ModelError as problem:
        raise make_refusal(next(tool for tool in _TOOLS if tool.name == saying), problem) from None


def status_fits(tool: Tool) -> bool:
    """Return whether what a tool answers may hold where the episode stands."""
    schema = tool.output_schema
    if schema is None:
        return True
    return schema.get("additionalProperties", True) is not False and GOVERNED not in schema.get("properties", {})


def view_for_agent(stream: PacketStream, tools: Sequence[Tool]) -> tuple[str, list[tuple[Tool, dict[str, Any]]]]:
    """Return the instructions, and all tools with what they answer: the environment's as the policy sees them, then these."""
    card = stream.session.spec.card
    own = [tool_under_policy(tool, stream.policy) for tool in tools]
    reads = [tool.name for tool in own if tool.safety is ToolSafety.READ]
    acts = [tool.name for tool in own if tool.safety is not ToolSafety.READ]
    seen = stream.memory.seen
    first = seen.data if seen is not None and len(seen.data) <= MOST_TOLD else None
    offered = []
    for tool in own:
        schema = make_observation_schema(card) if tool.output_schema is None else tool.output_schema
        if status_fits(tool):
            schema = {**schema, "properties": {**schema.get("properties", {}), GOVERNED: STATUS_SCHEMA}}
        offered.append((tool, schema))
    offered += [(tool, REPLY_SCHEMA) for tool in governance_tools(stream.policy)]
    return write_governed_instructions(card, reads, acts, first), offered
