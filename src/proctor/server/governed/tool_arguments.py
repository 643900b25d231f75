"""What an agent says with each governance tool: the arguments, typed and described for a language model.

Rule: a form is what an agent must know and no more. Ids, times, layers and the envelope are the proctor's affair.
"""

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field, JsonValue, field_validator

from proctor.contracts.tool_arguments import ToolMessage
from proctor.errors import ValidationError

Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=200)]
Words: TypeAlias = Annotated[str, Field(min_length=1, max_length=4000)]
PacketName: TypeAlias = Annotated[str, Field(pattern=r"^pkt_[A-Za-z0-9_-]{1,200}$")]
Wait: TypeAlias = Annotated[
    float,
    Field(
        ge=0, le=3600, description="How many seconds this call may wait for the operator. Call again to wait longer."
    ),
]
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
