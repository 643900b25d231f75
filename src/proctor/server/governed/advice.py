"""What to do about a refusal, in a sentence, by rule; and what each position means to an agent."""

from collections.abc import Mapping
from typing import Final

from proctor.episode.states import Position

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
ENDED: Final = "the environment has ended; say what you have learned, and you are done"
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
    "GOV-1": "Use the tools that you have: what you know comes from them, and permissions come from request_token.",
    "GOV-2": "Leave the field out.",
    "GOV-3": "Leave the envelope as the policy says, or stricter.",
    "POLICY-1": 'Call decide(outcome="VERIFY_FIRST"), plan_verification, a tool that only reads, believe, then decide again.',
    "POLICY-2": 'Call decide(outcome="ESCALATE"), then escalate; after the operator\'s answer decide again.',
    "POLICY-3": "Ask for what the policy allows, wait for what you asked for, or go on without.",
    "LIMIT-2": 'There is room to stop: believe, decide(outcome="CANCEL") and believe.',
}
