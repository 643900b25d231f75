"""One step that an agent caused, as its trainer sees it, with the models of the client."""

from dataclasses import dataclass
from typing import Generic

from proctor.client.parsing import observation_text, read_model
from proctor.contracts.environment import ActT, ObsT
from proctor.models import grants
from proctor.models.control import Seen


@dataclass(frozen=True, slots=True)
class Transition(Generic[ActT, ObsT]):
    """What was done and what it led to; `observation` is complete, with the reward that the agent is trained on."""

    row: int
    """Counts the steps of all agents in the session, from 1."""
    epoch: int
    step: int
    """Counts the steps of the episode, from 1, those of the orchestrator too."""
    at: float
    """In seconds since 1970."""
    grant: str
    agent: str
    tool: str
    """By which the agent acted."""
    action: ActT
    observation: ObsT
    raw_reward: float | None
    """As the environment gave it, before transforms."""
    parts: dict[str, float]
    """The change that each transform made to the reward."""

    @property
    def reward(self) -> float | None:
        """What the step was rewarded with, after transforms."""
        return self.observation.reward

    @property
    def terminated(self) -> bool:
        """Whether the environment came to its end with this step."""
        return self.observation.terminated

    @property
    def truncated(self) -> bool:
        """Whether the episode was cut with this step."""
        return self.observation.truncated

    @property
    def done(self) -> bool:
        """Whether the episode ended with this step, one way or the other."""
        return self.observation.done


def transition_of(
    row: grants.Transition, action_type: type[ActT], observation_type: type[ObsT]
) -> Transition[ActT, ObsT]:
    """Return a row in the client's models, or raise a ValidationError."""
    done = row.terminated or row.truncated
    seen = Seen(row.observation, row.reward, done, row.metadata, row.terminated, row.truncated)
    return Transition(
        row=row.row,
        epoch=row.epoch,
        step=row.step,
        at=row.at,
        grant=row.grant,
        agent=row.agent,
        tool=row.tool,
        action=read_model(action_type, row.action, "action"),
        observation=read_model(observation_type, observation_text(seen), "observation"),
        raw_reward=row.raw_reward,
        parts=row.parts,
    )
