"""The tools that every agent of a governed episode has besides the environment's own, as a language model reads them.

Rule: a description says what the tool is for, when it may be called and what comes back; the form says the arguments.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec
from pydantic import ValidationError as ModelError

from proctor.contracts.tool_arguments import ToolMessage, make_json_schema, make_refusal
from proctor.contracts.tools import Tool, ToolSafety
from proctor.server.governed import tool_arguments
from proctor.server.governed.policy import GovernancePolicy
from proctor.server.governed.replies import REPLY_SCHEMA


class GovernanceTool(StrEnum):
    """What a governed agent can say."""

    BELIEVE = "believe"
    DECIDE = "decide"
    PLAN_VERIFICATION = "plan_verification"
    REQUEST_TOKEN = "request_token"  # noqa: S105  # a tool's name
    ESCALATE = "escalate"
    SUBMIT_PACKET = "submit_packet"


GOVERNANCE_TOOL_NAMES: Final = tuple(str(saying) for saying in GovernanceTool)
_ANSWER: Final = (
    "What comes back says whether it was accepted, in which state the episode is now, what you can call next and what is "
    "still open. If it is refused, nothing has changed: read the reason, which names the calls that lead on."
)
_TEXTS: Final[Mapping[GovernanceTool, tuple[str, str]]] = {
    GovernanceTool.BELIEVE: (
        "State what you believe",
        (
            "State what you believe now. Call this after every observation, before you decide, and after your tools have "
            "answered, before you decide again. After decide(DEFER or CANCEL) it closes the matter; after that, or when an "
            "operator has lifted safe mode, it begins a new cycle. When the environment has ended, it ends your work."
        ),
    ),
    GovernanceTool.DECIDE: (
        "Decide what to do",
        (
            "Decide what to do next, after `believe`. ACT lets you use tools that read at once, and `request_token` for tools that "
            "act. VERIFY_FIRST leads to `plan_verification` and tools that read; afterwards call `believe`, then `decide` again. "
            "ESCALATE leads to `escalate`. DEFER and CANCEL lead to `believe`, and then you are done unless you begin anew. One "
            "decision to ACT is good for many calls of tools: decide again only after the next `believe`."
        ),
    ),
    GovernanceTool.PLAN_VERIFICATION: (
        "Plan a verification",
        (
            "Say what you will verify, after decide(VERIFY_FIRST). Then use tools that only read, and call `believe` with what "
            "you found: its evidence must name what you observed since, as it does if you leave `evidence` out. Then decide "
            "again."
        ),
    ),
    GovernanceTool.REQUEST_TOKEN: (
        "Ask for a token",
        (
            "Ask for a token, which permits tools that act (WRITE and MIXED) for a while and so many calls. Call this after "
            "decide(ACT), before the tools; they find the token by themselves. When it is used up or expired: `believe`, "
            "decide(ACT) and `request_token` again. {issuer}"
        ),
    ),
    GovernanceTool.ESCALATE: (
        "Ask a human operator",
        (
            "Ask a human operator to choose, after decide(ESCALATE) or when a budget is overrun. The call waits for the answer, "
            "up to `wait_seconds`; if there is none yet, call `escalate` again without a question to go on waiting. After the "
            "answer, decide."
        ),
    ),
    GovernanceTool.SUBMIT_PACKET: (
        "Submit a whole packet",
        (
            "Submit a whole packet of the episode protocol, if you need a field that the other tools do not have: a "
            "BeliefUpdatePacket, DecisionPacket, VerificationPlanPacket, TaskDirectivePacket (the tool that it names is then "
            "used) or EscalationPacket, from layer 2 to 5. Leave out header.packet_id, header.created_at, "
            "header.correlation_id and mcp.routing.tools_state: they are set for you. The answer says as packet_id what the packet is "
            "called: name it so in later packets. You do not need this tool to do your work."
        ),
    ),
}
ARGUMENT_MODELS: Final[Mapping[GovernanceTool, type[ToolMessage]]] = {
    GovernanceTool.BELIEVE: tool_arguments.Believe,
    GovernanceTool.DECIDE: tool_arguments.Decide,
    GovernanceTool.PLAN_VERIFICATION: tool_arguments.PlanVerification,
    GovernanceTool.REQUEST_TOKEN: tool_arguments.RequestToken,
    GovernanceTool.ESCALATE: tool_arguments.Escalate,
    GovernanceTool.SUBMIT_PACKET: tool_arguments.SubmitPacket,
}


def _build_tool(saying: GovernanceTool) -> Tool:
    title, text = _TEXTS[saying]
    return Tool(
        name=saying,
        description=f"{text}\n\n{_ANSWER}",
        # It moves nothing in the environment, but it is no mere reading either.
        safety=ToolSafety.MIXED,
        input_schema=make_json_schema(ARGUMENT_MODELS[saying]),
        output_schema=REPLY_SCHEMA,
        title=title,
    )


_TOOLS: Final = {saying: _build_tool(saying) for saying in GovernanceTool}
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
        msgspec.structs.replace(tool, description=tool.description.replace("{issuer}", issuer))
        for tool in _TOOLS.values()
    )


_NOTES: Final = {
    True: "Governed: this tool acts ({safety}). Call `decide` with ACT and `request_token` before it.",
    False: "Governed: this tool only reads. Call `decide` with ACT or, for a verification, `plan_verification` before it.",
}


def tool_under_policy(tool: Tool, policy: GovernancePolicy) -> Tool:
    """Return a tool of the environment as a governed agent sees it: as strict as the policy, and with what it needs."""
    safety = policy.safety_of(tool)
    note = _NOTES[safety is not ToolSafety.READ].format(safety=safety)
    return msgspec.structs.replace(tool, safety=safety, description=f"{tool.description}\n\n{note}")


def parse_arguments(saying: GovernanceTool, arguments: bytes) -> Any:
    """Return the form that the arguments of a call fill in, or raise a ValidationError that says what is wrong."""
    try:
        return ARGUMENT_MODELS[saying].__pydantic_validator__.validate_json(arguments, strict=True)
    except ModelError as problem:
        raise make_refusal(_TOOLS[saying], problem) from None
