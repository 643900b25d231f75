"""What governs the episodes of agents: stakes, quality, budgets, tools, tokens, escalations; from a TOML file.

Rule 1: a policy that makes no sense is refused when it is read, with the place and what was expected.
Rule 2: a policy is a value that goes on record whole (`as_document`) and comes back from there (`policy_from_document`).
Rule 3: a policy makes tools stricter than the environment says they are, never weaker.
Rule 4: names are the packets' own (`stakes_level`, `tool_call_budget`, ...), so that a file reads like an envelope.
Rule 5: an `EscalationCondition` says when an agent must ask first: `write at HIGH stakes`. It is about what the agent is about to do
    (`act`: to decide so; `write`: to use a tool that acts) and the stakes at which it does so; a level means that level or a higher one.
Rule 6: a directive runs only if its result and its observation could be stated right after it. So no rule of the house, and no
    limit of the judge, leaves a step on record without its result. What is so in every episode is known when a policy is loaded
    (`find_permanent_blocker`).
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from pydantic import BaseModel, ConfigDict, Field
from pydantic import ValidationError as ModelError

from proctor.contracts.tools import Tool, ToolSafety
from proctor.episode.episode_state import EpisodeState
from proctor.episode.packets import enums, fields
from proctor.episode.packets.writer import LAYERS, PacketDefaults
from proctor.episode.rules.catalogue import LIMIT_2
from proctor.episode.rules.governance import governance_settings
from proctor.episode.rules.house_rules import (
    Form,
    HouseRule,
    Marks,
    Rules,
    find_violations,
    initial_marks,
    load_rules,
    next_marks,
)
from proctor.episode.settings import Limits, OnOverrun, Profile, Settings
from proctor.episode.transition_table import DIRECTIVES, Event
from proctor.errors import ProctorError, ValidationError
from proctor.small_files import read_small_text

PACKETS_OF_A_CALL: Final = 3
"""The directive, its result and the observation."""
PACKETS_TO_STOP: Final = 20
"""Packets that are kept for an agent to stop in an episode that is full."""


def find_result_blockers(
    episode: EpisodeState, rules: Rules, directive: Event, limits: Limits
) -> list[tuple[str, str]]:
    """Return the rules by which what comes of a directive could not be stated if it were accepted now, with the reasons."""
    if episode.packets + PACKETS_OF_A_CALL + PACKETS_TO_STOP > limits.packets:
        return [(LIMIT_2.id, f"the episode is nearly full: it holds {limits.packets} packets")]
    after = next_marks(rules, episode.marks, directive)
    refusals = _refusals(rules, after, (Event.RESULT, Event.OBSERVATION))
    return [(rule.id, f"what comes of it could not be stated: {reason}") for rule, reason in refusals]


def find_permanent_blocker(rules: Rules) -> HouseRule | None:
    """Return a rule under which no episode could begin, or no directive of some sort could ever have its result."""
    found = list(_refusals(rules, initial_marks(rules), (Event.OBSERVATION,)))
    # At best all that had to come before has come, and nothing has that forbids or promises something.
    best = tuple(1 if rule.form is Form.BEFORE else 0 for rule in rules)
    for directive in DIRECTIVES:
        found += _refusals(rules, next_marks(rules, best, directive), (Event.RESULT, Event.OBSERVATION))
    return found[0][0] if found else None


def _refusals(rules: Rules, marks: Marks, events: tuple[Event, ...]) -> Iterator[tuple[HouseRule, str]]:
    """Yield the rules that refuse one of the events, coming one after the other."""
    for event in events:
        yield from ((rule, reason) for rule, reason in find_violations(rules, marks, event) if rule.level == "error")
        marks = next_marks(rules, marks, event)


_SHAPE: Final = re.compile(r"(?P<deed>\w+) at (?P<level>\w+) stakes")
LEVELS: Final = tuple(enums.Level)


class GuardedAction(StrEnum):
    """What an agent is about to do."""

    ACT = "act"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class EscalationCondition:
    """Something that an agent may do only after an operator has answered."""

    deed: GuardedAction
    level: enums.Level

    def __str__(self) -> str:
        return f"{self.deed} at {self.level} stakes"

    def holds(self, deed: GuardedAction, level: enums.Level) -> bool:
        """Return whether it is about this deed, at stakes of this level."""
        return deed is self.deed and LEVELS.index(level) >= LEVELS.index(self.level)


def parse_condition(text: str) -> EscalationCondition:
    """Return the condition that a text says, or raise a ValidationError."""
    found = _SHAPE.fullmatch(" ".join(text.split()))
    if found is not None and found["deed"] in tuple(GuardedAction) and found["level"] in LEVELS:
        return EscalationCondition(GuardedAction(found["deed"]), enums.Level(found["level"]))
    raise ValidationError(
        "this is no condition for an escalation",
        found=text,
        expected=f"`{' or '.join(GuardedAction)} at {', '.join(LEVELS)} stakes`",
    )


FOLDER: Final = Path(__file__).parent / "policies"
SHIPPED: Final = ("open", "standard", "strict")
LONGEST: Final = 10**9
Seconds = Annotated[float, Field(gt=0, le=LONGEST)]
Count = Annotated[int, Field(ge=0, le=fields.GREATEST)]
PositiveCount = Annotated[int, Field(ge=1, le=fields.GREATEST)]
Text = Annotated[str, Field(min_length=1, max_length=10_000)]
MOST_CALLS: Final = Limits().packets * 9 // 10 // PACKETS_OF_A_CALL
"""Of tools in one episode: a tenth of its packets is left for what agents say."""
STRICTNESS: Final = {ToolSafety.READ: 0, ToolSafety.MIXED: 1, ToolSafety.WRITE: 1}
"""A tool that does both counts as one that acts."""


class PolicySection(BaseModel):
    """Any part of a policy: a value that refuses what it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class StakesPolicy(PolicySection):
    """What could go wrong, and how badly: the least that an agent may state."""

    impact: enums.Level = enums.Level.LOW
    irreversibility: enums.Irreversibility = enums.Irreversibility.REVERSIBLE
    uncertainty: enums.Uncertainty = enums.Uncertainty.LOW
    adversariality: enums.Adversariality = enums.Adversariality.BENIGN
    stakes_level: enums.Level = enums.Level.LOW


class DefinitionOfDonePolicy(PolicySection):
    """When the work counts as done."""

    text: Text = "the environment's own end, or a decision not to go on"
    checks: Annotated[tuple[Text, ...], Field(min_length=1)] = ("every directive has its result",)


class QualityPolicy(PolicySection):
    """How good the work is meant to be: the least that an agent may state."""

    quality_tier: enums.QualityTier = enums.QualityTier.PAR
    satisficing_mode: bool = True
    definition_of_done: DefinitionOfDonePolicy = DefinitionOfDonePolicy()
    verification_requirement: enums.VerificationRequirement = enums.VerificationRequirement.OPTIONAL
    """VERIFY_ONE: no ACT before a verification in this episode; VERIFY_ALL: each ACT has one of its own."""


class RiskBudgetPolicy(PolicySection):
    """How much may be lost."""

    envelope: str = "low"
    max_loss: str | float = 0.0


class BudgetPolicy(PolicySection):
    """What may be spent in an episode: the most that an agent may state."""

    token_budget: Count = 100_000
    tool_call_budget: Count = 1000
    time_budget_seconds: Count = 600
    """Of the time that tools take."""
    risk_budget: RiskBudgetPolicy = RiskBudgetPolicy()


class TokenIssuer(StrEnum):
    """Who issues tokens."""

    AUTO = "auto"
    HUMAN = "human"
    NEVER = "never"


class TokenPolicy(PolicySection):
    """Who issues tokens, and what one may allow at most."""

    issuer: TokenIssuer = TokenIssuer.AUTO
    max_uses: PositiveCount = 10
    life_seconds: Seconds = 300.0
    operations: Annotated[frozenset[enums.OperationType], Field(min_length=1)] = frozenset({enums.OperationType.WRITE})


class EscalationPolicy(PolicySection):
    """What an agent may do only after an operator has answered it, and how long one call waits for that at most."""

    when: tuple[str, ...] = ()
    answer_seconds: Annotated[float, Field(ge=0, le=3600)] = 300.0

    def model_post_init(self, context: Any) -> None:
        """Refuse what is no condition."""
        self.conditions()

    def conditions(self) -> tuple[EscalationCondition, ...]:
        """Return the conditions, read."""
        return tuple(parse_condition(text) for text in self.when)


class GovernancePolicy(PolicySection):
    """What governs the episodes of one server."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    profile: Profile = Profile.STRICT
    on_overrun: OnOverrun = OnOverrun.SAFEMODE
    initial_beliefs: bool = False
    stakes: StakesPolicy = StakesPolicy()
    quality: QualityPolicy = QualityPolicy()
    budgets: BudgetPolicy = BudgetPolicy()
    tools: Mapping[str, ToolSafety] = {}
    """What tools are, where that is stricter than what the environment says."""
    tokens: TokenPolicy = TokenPolicy()
    escalation: EscalationPolicy = EscalationPolicy()
    wrap_up_seconds: Annotated[float, Field(ge=0, le=LONGEST)] = 30.0
    """How long an agent may still review an episode whose environment has ended."""
    house_rules: str | None = None
    """A file of rules about the order of packets, beside the policy's own file."""
    rules: str = ""
    """What is in that file."""

    def model_post_init(self, context: Any) -> None:
        """Refuse rules that cannot be read."""
        load_rules(self.rules)

    @property
    def settings(self) -> Settings:
        """How episodes are judged: a packet from the wrong layer is refused."""
        return governance_settings(self.profile, self.on_overrun, initial_beliefs=self.initial_beliefs)

    @property
    def written_rules(self) -> tuple[HouseRule, ...]:
        """The rules of the file, read."""
        return load_rules(self.rules)

    @property
    def defaults(self) -> PacketDefaults:
        """What packets say where nobody says otherwise; tokens come from layer 1."""
        return PacketDefaults(
            intent=fields.Intent(summary=f"an episode under the policy {self.name}", scope="this episode"),
            stakes=msgspec.convert(self.stakes.model_dump(), fields.Stakes),
            quality=msgspec.convert(self.quality.model_dump(), fields.Quality),
            budgets=msgspec.convert(self.budgets.model_dump(), fields.Budgets),
            layers={**LAYERS, enums.PacketKind.TOKEN: 1},
            token_life=timedelta(seconds=self.tokens.life_seconds),
        )

    def safety_of(self, tool: Tool) -> ToolSafety:
        """Return what a tool is under this policy: what the environment says, or something stricter."""
        stated = self.tools.get(tool.name, tool.safety)
        return stated if STRICTNESS[stated] >= STRICTNESS[tool.safety] else tool.safety

    def lets_go_on(self, tools: Iterable[Tool]) -> bool:
        """Return whether an agent with these tools can always go on or stop: where it must verify, or gets no tokens, it reads."""
        verifying = (enums.VerificationRequirement.VERIFY_ONE, enums.VerificationRequirement.VERIFY_ALL)
        verifies = self.quality.verification_requirement in verifying
        if not verifies and self.tokens.issuer is not TokenIssuer.NEVER:
            return True
        return any(self.safety_of(tool) is ToolSafety.READ for tool in tools)

    def check(self, tools: Iterable[Tool], reserved: Iterable[str]) -> None:
        """Raise a ValidationError if this policy cannot govern an environment with these tools.

        None may be called like one of `reserved`, those that every governed agent has, and what the policy says of tools
        must be about tools that there are, and not weaker than what the environment says.
        """
        known = {tool.name: tool for tool in tools}
        taken = sorted(known.keys() & set(reserved))
        if taken:
            raise ValidationError(
                "this environment cannot be governed: one of its tools has a name that is taken in governed episodes",
                found=taken[0],
                expected=f"tools with other names than {', '.join(reserved)}: tool(..., name=)",
            )
        if not self.lets_go_on(known.values()):
            raise ValidationError(
                f"the policy {self.name} cannot govern this environment: its agents could come to where nothing leads on",
                expected="a tool that only reads, under a policy that wants verifications or issues no tokens",
            )
        for name, safety in self.tools.items():
            if name not in known:
                raise ValidationError(
                    f"the policy {self.name} speaks of a tool that there is not",
                    found=name,
                    expected=f"one of {', '.join(known)}",
                )
            if STRICTNESS[safety] < STRICTNESS[known[name].safety]:
                raise ValidationError(
                    f"the policy {self.name} makes the tool {name} weaker than its environment says",
                    found=str(safety),
                    expected=str(known[name].safety),
                )

    def as_document(self) -> dict[str, Any]:
        """Return the policy as JSON values, for the record."""
        said = self.model_dump(mode="json")
        said["tokens"]["operations"].sort()
        return said


def load_policy(name_or_path: str | Path) -> GovernancePolicy:
    """Return a shipped policy by its name, or the one in a TOML file; what is wrong is a ValidationError."""
    name = str(name_or_path)
    path = FOLDER / f"{name}.toml" if name in SHIPPED else Path(name_or_path)
    try:
        said = tomllib.loads(_read_text(path))
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise ValidationError(f"the policy {name!r} is no TOML: {problem}") from problem
    beside = said.get("house_rules")
    if isinstance(beside, str):
        if "rules" in said:
            raise ValidationError(f"the policy {name!r} has rules twice", expected="house_rules or rules, not both")
        said["rules"] = _read_text(path.parent / beside)
    policy = policy_from_document(said, name)
    _check_results_possible(policy)
    return policy


def _check_results_possible(policy: GovernancePolicy) -> None:
    rule = find_permanent_blocker(policy.written_rules)
    if rule is not None:
        raise ValidationError(
            f"the policy {policy.name!r} has a house rule that refuses what the proctor must state: the first observation, or "
            "the result and the observation that follow every directive",
            found=rule.text,
            expected="a rule that leaves room for these packets, which count among the N of `leads to`",
        )
    if policy.budgets.tool_call_budget > MOST_CALLS:
        raise ValidationError(
            f"the policy {policy.name!r} promises more tool calls than an episode has room for",
            found=policy.budgets.tool_call_budget,
            expected=f"a tool_call_budget of at most {MOST_CALLS}",
        )


def policy_from_document(document: Mapping[str, Any], name: str = "") -> GovernancePolicy:
    """Return the policy that a document says, as `as_document` wrote it."""
    try:
        return GovernancePolicy.model_validate(document)
    except ModelError as problem:
        found = problem.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, found["loc"])) or "the file"
        raise ValidationError(f"the policy {name!r} is not valid at {where}: {found['msg']}") from problem
    except ProctorError as problem:
        raise ValidationError(f"the policy {name!r} is not valid: {problem}") from problem


def _read_text(path: Path) -> str:
    return read_small_text(path, expected=f"a file, or one of {', '.join(SHIPPED)}")
