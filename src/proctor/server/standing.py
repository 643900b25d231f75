"""How an episode stands, as far as the steps of one environment tell."""

from dataclasses import dataclass

from proctor.models.events import EpisodeStepped


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
