"""How an episode stands: as far as the steps of one environment tell, and where in its session; and who is told how it ended."""

from dataclasses import dataclass, field
from typing import Protocol

from proctor.models.events import EpisodeStepped


@dataclass(frozen=True, slots=True)
class EpisodeConclusion:
    """What is said of an episode when it is closed: the judge's outcome, the state it was in and what was still open."""

    outcome: str | None = None
    state: str | None = None
    obligations: tuple[str, ...] = ()


class EpisodeObserver(Protocol):
    """Who goes with an episode to its end: the judge of a governed one."""

    async def conclude(self, reason: str) -> EpisodeConclusion:
        """Say the last words, which go on record before the episode is closed; called once, in the session's turn."""
        ...


@dataclass(frozen=True, slots=True)
class Loss:
    """Why an episode cannot go on."""

    code: str
    message: str


@dataclass(slots=True)
class EpisodeStatus:
    """From the reset to now."""

    terminated: bool = False
    truncated: bool = False
    reward: float | None = None
    """Of the last step, after transforms."""
    total_reward: float = 0.0

    @property
    def ended(self) -> bool:
        """Whether the environment has ended the episode."""
        return self.terminated or self.truncated

    def move(self, event: EpisodeStepped) -> None:
        """Take a step into account."""
        self.terminated, self.truncated, self.reward = event.terminated, event.truncated, event.reward
        if event.reward is not None:
            self.total_reward += event.reward


@dataclass(slots=True)
class SessionPosition:
    """Where a session stands, as far as its record tells."""

    epoch: int = 0
    step: int = 0
    total_steps: int = 0
    episode_id: str | None = None
    resets: int = 0
    """Of the environment that is there now."""
    concluded: bool = True
    """Whether there is no episode whose end is still to be stated."""
    loss: Loss | None = None
    standing: EpisodeStatus = field(default_factory=EpisodeStatus)
