"""The plume search behind its typed models."""

from typing import Any

from gymnasium import spaces

from proctor.contracts.toolboxes import declared_toolbox
from proctor.contracts.tools import Toolbox
from proctor.envs.adapted import AdaptedEnvironment
from proctor.envs.plume.env import PlumeSearchEnv
from proctor.envs.plume.factories import Kind
from proctor.envs.plume.models import PlumeAction, PlumeObservation, PlumeState
from proctor.envs.plume.told import telling_of
from proctor.envs.plume.tools import facts_in_words, searching
from proctor.envs.space_tools import space_toolbox
from proctor.errors import ComponentError


class PlumeEnvironment(AdaptedEnvironment[PlumeAction, PlumeObservation, PlumeState]):
    """Find the source of an odor plume on a grid.

    Any `PlumeSearchEnv` whose action is a choice or a velocity and whose sensors give rows of numbers; all of ours do.
    Reset options: `start`, `orientation`. The environment itself judges the action.
    """

    def __init__(self, env: PlumeSearchEnv) -> None:
        if not _is_action_space(env.action_space) or not _is_observation_space(env.observation_space):
            raise ComponentError(
                "the typed models do not fit these spaces",
                found=(env.action_space, env.observation_space),
                expected="a choice or a velocity, and rows of numbers; GymEnvironment takes any space",
            )
        super().__init__(env)
        self._search = env
        self._telling = telling_of(env.components[Kind.OBSERVATION])

    def _value_of(self, action: PlumeAction) -> Any:
        return action.action

    def _seen(self, observation: Any) -> Any:
        if isinstance(observation, dict):
            return {name: tuple(reading.tolist()) for name, reading in observation.items()}
        return tuple(observation.tolist())

    def _generated(self) -> Toolbox:
        search, actions = self._search, self._search.components[Kind.ACTION]
        searcher = searching(actions, self.latest)
        found = None if searcher is None else declared_toolbox(searcher, PlumeAction, PlumeObservation)
        facts = facts_in_words(actions, search.goal_radius, search.max_steps)
        return (found or space_toolbox(search, _said, self.latest)).noted(facts)

    def told(self, observation: PlumeObservation) -> str:
        """Return what the sensor says, and nothing that it does not."""
        return self._telling(observation.observation)

    @property
    def state(self) -> PlumeState:
        """Where the search stands."""
        search, agent = self._search, self._search.agent_state
        about_agent: dict[str, Any] = {}
        if agent is not None:
            about_agent = {
                "position": (agent.position.x, agent.position.y),
                "orientation": agent.orientation,
                "total_reward": agent.total_reward,
                "goal_reached": agent.goal_reached,
            }
        return PlumeState(
            episode_id=self._episode_id,
            step_count=self._step_count,
            lifecycle=search.state,
            seed=search.seed,
            episode_count=search.episode_count,
            **about_agent,
        )


def _said(value: Any) -> PlumeAction:
    """Return the action for a value of the action space."""
    return PlumeAction(action=value.tolist())


def _is_action_space(space: object) -> bool:
    return isinstance(space, spaces.Discrete) or (isinstance(space, spaces.Box) and space.shape == (2,))


def _is_observation_space(space: object) -> bool:
    if isinstance(space, spaces.Dict):
        return all(_is_row(part) for part in space.spaces.values())
    return _is_row(space)


def _is_row(space: object) -> bool:
    return isinstance(space, spaces.Box | spaces.MultiBinary | spaces.MultiDiscrete) and len(space.shape) == 1
