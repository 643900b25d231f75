"""What a story's earlier rows tell about its later ones: who the agents are, when it began, what its actions are called."""

from dataclasses import dataclass, field
from typing import Any

from proctor.cli.action_words import Words, action_words
from proctor.cli.short_values import decode_short
from proctor.models.events import AgentGranted, BatchReset, EpisodeReset, Failed, PacketJudged, SessionOpened
from proctor.models.value_words import told_value


@dataclass(slots=True)
class Count:
    """What the whole episode comes to, for the footer."""

    packets: int = 0
    refused: int = 0
    warnings: int = 0
    failures: int = 0
    rules: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Narrator:
    """Knows what was said before: who the agents are, when the episode began, what its actions are called."""

    began: float | None = None
    opened: SessionOpened | None = None
    seed: str = ""
    agents: dict[str, str] = field(default_factory=dict)
    count: Count = field(default_factory=Count)
    words: Words = field(default_factory=lambda: action_words(None))

    def hear(self, event: Any) -> None:
        """Take note of what later rows refer to."""
        match event:
            case SessionOpened():
                self.opened = event
                self.words = action_words(event)
            case EpisodeReset() | BatchReset() if self.began is None:
                self.began = event.at
                self.seed = seed_words(event)
            case AgentGranted():
                self.agents[event.grant] = event.agent
            case PacketJudged():
                self._judge(event)
            case Failed():
                self.count.failures += 1

    def _judge(self, event: PacketJudged) -> None:
        self.count.packets += 1
        self.count.warnings += len(event.warnings)
        if not event.accepted:
            self.count.refused += 1
            for rule in event.rules:
                self.count.rules[rule] = self.count.rules.get(rule, 0) + 1

    def who(self, event: Any) -> str:
        """Return who caused an event, by name where there is one."""
        grant = getattr(event, "grant", None) or ""
        if event.principal != "agent":
            return str(event.principal)
        return f"agent {self.agents.get(grant) or grant}".rstrip()

    def since(self, at: float) -> float:
        """Return the seconds since the episode began."""
        return at - (at if self.began is None else self.began)


def seed_words(event: EpisodeReset | BatchReset) -> str:
    """Return the seed that was asked for, or the one that the environment says it drew."""
    if event.seed is not None:
        return told_value(event.seed)
    told = decode_short(event.metadata, None) if isinstance(event, EpisodeReset) else None
    drawn = told.get("seed") if isinstance(told, dict) else None
    return "drawn" if drawn is None else f"{told_value(drawn)} (drawn)"
