"""What an agent waits for: an operator's answer to an escalation, or to a request of a token."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Question:
    """Something that waits for an operator: its id, and how long the agent's call waits for the answer."""

    id: str
    seconds: float
