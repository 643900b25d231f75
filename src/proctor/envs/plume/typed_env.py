"""The plume search behind its typed models."""

from typing import Any

from gymnasium import spaces

from proctor.contracts.toolboxes import toolbox_from_methods
from proctor.contracts.tools import Toolbox
from proctor.envs.gym_adapter import AdaptedEnvironment, space_toolbox
from proctor.envs.plume.config import ComponentKind
from proctor.envs.plume.env import PlumeSearchEnv
from proctor.envs.plume.models import PlumeAction, PlumeObservation, PlumeState
from proctor.envs.plume.tools import describe_rules, find_describer, make_tools
from proctor.errors import ComponentError


class PlumeEnvironment(AdaptedEnvironment[PlumeAction, PlumeObservation, PlumeState]):
    """Find the source of an odor plume on a grid.

    Any `PlumeSearchEnv` whose action is a choice or a velocity and whose sensors give rows of numbers; all of ours do.
    Reset options: `start`, `orientation`. The environment itself judges the action.
    """

    def __init__(self, env: PlumeSearchEnv) -> None:
        action, observation = env.action_space, env.observation_space
        acts = isinstance(action, spaces.Discrete) or (isinstance(action, spaces.Box) and action.shape == (2,))
        rows = observation.spaces.values() if isinstance(observation, spaces.Dict) else (observation,)
        if not acts or not all(_is_row(row) for row in rows):
            raise ComponentError(
                "the typed models do not fit these spaces",
                found=(action, observation),
                expected="a choice or a velocity, and rows of numbers; GymEnvironment takes any space",
            )
        super().__init__(env)
        self._search = env
        self._describe_reading = find_describer(env.components[ComponentKind.OBSERVATION])

    def _convert_action(self, action: PlumeAction) -> Any:
        return action.action

    def _convert_observation(self, observation: Any) -> Any:
        if isinstance(observation, dict):
            return {name: tuple(reading.tolist()) for name, reading in observation.items()}
        return tuple(observation.tolist())

    def _generate_toolbox(self) -> Toolbox:
        search, actions = self._search, self._search.components[ComponentKind.ACTION]
        searcher = make_tools(actions, self.latest)
        found = None if searcher is None else toolbox_from_methods(searcher, PlumeAction, PlumeObservation)
        facts = describe_rules(actions, search.goal_radius, search.max_steps)
        return (found or space_toolbox(search, _action_from_value, self.latest)).with_note(facts)

    def describe_observation(self, observation: PlumeObservation) -> str:
        """Return what the sensor says, and nothing that it does not."""
        return self._describe_reading(observation.observation)

    @property
    def state(self) -> PlumeState:
        """Where the search stands."""
        search, agent = self._search, self._search.agent_state
        about_agent: dict[str, Any] = {}
        if agent is not None:
            about_agent = {name: getattr(agent, name) for name in ("orientation", "total_reward", "goal_reached")}
            about_agent["position"] = (agent.position.x, agent.position.y)
        return PlumeState(
            episode_id=self._episode_id,
            step_count=self._step_count,
            lifecycle=search.state,
            seed=search.seed,
            episode_count=search.episode_count,
            **about_agent,
        )


def _action_from_value(value: Any) -> PlumeAction:
    return PlumeAction(action=value.tolist())


def _is_row(space: object) -> bool:
    return isinstance(space, spaces.Box | spaces.MultiBinary | spaces.MultiDiscrete) and len(space.shape) == 1
