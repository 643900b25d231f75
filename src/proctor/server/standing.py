"""How an episode stands: as far as the steps of one environment tell, and where in its session."""

from dataclasses import dataclass, field

from proctor.models.events import EpisodeStepped


@dataclass(frozen=True, slots=True)
class Loss:
    """Why an episode cannot go on."""

    code: str
    message: str


@dataclass(slots=True)
class Standing:
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
class Position:
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
    standing: Standing = field(default_factory=Standing)
