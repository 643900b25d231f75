"""What governs the episodes of agents, besides the machine: seven rules, what to do about a refusal, and the settings.

Rule 1: GOV-1 to GOV-3, POLICY-1 to POLICY-3 and SIZE-1 are checked before a line reaches the judge, so they are no part of its catalogue.
    Their sentences stand here, for whoever refuses by them and for whoever explains a refusal.
Rule 2: what a policy says of the judging goes on record with it, and is read from there by `context_from_policy`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from proctor.episode.rules.house_rules import load_rules
from proctor.episode.settings import LayerRules, OnOverrun, Profile, Settings
from proctor.episode.verdicts import JudgingContext
from proctor.errors import ValidationError

GOV_1, GOV_2, GOV_3 = "GOV-1", "GOV-2", "GOV-3"
POLICY_1, POLICY_2, POLICY_3 = "POLICY-1", "POLICY-2", "POLICY-3"
SIZE_1 = "SIZE-1"

SENTENCES: Final[Mapping[str, str]] = {
    GOV_1: (
        "An agent states beliefs, decisions, plans, directives and escalations, from layers 2 to 5, and a directive names a "
        "tool of this episode; observations, results, tokens, alerts and records come from the proctor or an operator."
    ),
    GOV_2: (
        "The proctor sets a packet's id, its time, the episode and the state of the tools itself; an agent may leave them out, "
        "may name no other episode, call no tools worse than they are, and name packets only by the ids that it was told."
    ),
    GOV_3: (
        "Nothing is played down: no stakes and no quality below the policy's, no budget above it, and no tool that acts as "
        "one that reads."
    ),
    POLICY_1: (
        "Under VERIFY_ONE nothing is decided to ACT before a verification of this episode; under VERIFY_ALL each ACT has one "
        "of its own."
    ),
    POLICY_2: (
        "What the policy escalates is done only after an operator was asked and has answered; an answer is good for one ACT."
    ),
    POLICY_3: (
        "A token is issued within the policy's limits: for known tools, uses and operations, one request of an agent at a "
        "time, and none at all where the policy issues none."
    ),
    SIZE_1: "A packet, and the arguments of a call, have no more bytes than the server allows for one packet.",
    "ENDED": "After the environment has ended nothing more is done in it; what is left is to say what was learned.",
}
"""What is refused before the judge sees it, by rule."""

_AGAIN: Final = 'Call believe, decide(outcome="ACT") and request_token for the tool, then the tool again.'
ADVICE: Final[Mapping[str, str]] = {
    "SCHEMA": "Correct the fields that are named and call again.",
    "JSON": "Send one JSON object.",
    "E4": _AGAIN,
    "INV-007": _AGAIN,
    "INV-003": 'Verify the assumptions first: decide(outcome="VERIFY_FIRST"), plan_verification, a tool that reads, believe.',
    "INV-004": "Name a packet with an observation as evidence.",
    "INV-005": 'Ask for more: decide(outcome="ESCALATE"), then escalate.',
    "INV-006": "Decide something else than ACT, or check again.",
    "E3": "Complete the verification: plan_verification, a tool that reads, then believe.",
    "S4": "Complete the verification: plan_verification, a tool that reads, then believe.",
    "E6": "Wait until the tool that runs has answered.",
    "S8": "Call escalate without a question to wait for the operator's answer.",
    "ID-1": "Leave packet_id out.",
    GOV_1: "Use the tools that you have: what you know comes from them, and permissions come from request_token.",
    GOV_2: "Leave the field out, or name the packet by the id that you were told.",
    GOV_3: "Leave the envelope as the policy says, or stricter.",
    POLICY_1: 'Call decide(outcome="VERIFY_FIRST"), plan_verification, a tool that only reads, believe, then decide again.',
    POLICY_2: 'Call decide(outcome="ESCALATE"), then escalate; after the operator\'s answer decide again.',
    POLICY_3: "Ask for what the policy allows, wait for what you asked for, or go on without.",
    SIZE_1: "Say less at once: several short packets, or a digest of what is long.",
    "LIMIT-2": 'There is room to stop: believe, decide(outcome="CANCEL") and believe.',
}
"""What an agent does about a refusal, in a sentence, by rule."""


def advice_for(rules: Iterable[str]) -> str:
    """Return what to do about a refusal by these rules; empty if nothing is known."""
    return next((ADVICE[rule] for rule in rules if rule in ADVICE), "")


def governance_settings(profile: Profile, on_overrun: OnOverrun, *, initial_beliefs: bool) -> Settings:
    """Return how governed episodes are judged: a packet from the wrong layer is refused."""
    return Settings(profile, LayerRules.ERROR, on_overrun=on_overrun, initial_beliefs=initial_beliefs)


class _RecordedPolicy(Struct, frozen=True):
    """As much of a recorded policy as the judge needs; the rest is not read."""

    profile: Profile = Profile.STRICT
    on_overrun: OnOverrun = OnOverrun.SAFEMODE
    initial_beliefs: bool = False
    rules: str = ""


def context_from_policy(document: Mapping[str, Any]) -> JudgingContext:
    """Return under what the episodes of a recorded policy are judged; a ValidationError if it cannot be read."""
    try:
        said = msgspec.convert(dict(document), _RecordedPolicy)
    except msgspec.ValidationError as problem:
        raise ValidationError(f"this policy cannot be read: {problem}") from problem
    settings = governance_settings(said.profile, said.on_overrun, initial_beliefs=said.initial_beliefs)
    return JudgingContext(settings, load_rules(said.rules))
