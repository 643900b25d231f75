"""What each position means to an agent; what it does about a refusal stands in `proctor.episode.governing`."""

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
