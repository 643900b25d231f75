"""Column Popper behind its typed models."""

from typing import Any, Final

from proctor.contracts.lifecycle import EnvironmentState
from proctor.contracts.toolboxes import toolbox_from_methods
from proctor.contracts.tools import Toolbox
from proctor.envs.gym_adapter import AdaptedEnvironment
from proctor.envs.popper.env import ColumnPopperEnv
from proctor.envs.popper.models import PopperAction, PopperObservation, PopperState, PopperView, TimedPopperView
from proctor.envs.popper.tools import describe_board, describe_rules, make_tool_class
from proctor.models.wire import assemble_model

UNPLAYED: Final = (EnvironmentState.CREATED, EnvironmentState.CLOSED)
"""Where a game has no scene."""


class PopperEnvironment(AdaptedEnvironment[PopperAction, PopperObservation, PopperState]):
    """Sort falling blocks: three equal ones at the open end of a column pop.

    Reset options: `board`, `selection`. The environment itself judges the action.
    """

    def __init__(self, env: ColumnPopperEnv) -> None:
        super().__init__(env)
        self._game = env
        self._view: type[PopperView] = TimedPopperView if env.rules.include_time_left_norm else PopperView

    def _convert_action(self, action: PopperAction) -> int:
        return action.action

    def _convert_observation(self, observation: Any) -> PopperView:
        fields: dict[str, Any] = {
            "board": tuple(map(tuple, observation["board"].tolist())),
            "selection": tuple(observation["selection"].tolist()),
        }
        if self._view is TimedPopperView:
            fields["time_left_norm"] = tuple(observation["time_left_norm"].tolist())
        return assemble_model(self._view, fields)

    def _generate_toolbox(self) -> Toolbox:
        rules = self._game.rules
        found = toolbox_from_methods(make_tool_class(rules.columns)(self.latest), PopperAction, PopperObservation)
        return (found or super()._generate_toolbox()).with_note(describe_rules(rules))

    def describe_observation(self, observation: PopperObservation) -> str:
        """Return the board as text, what is held, and the time that is left if the observation tells it."""
        return describe_board(observation.observation, self._find_held_column(observation))

    def _find_held_column(self, observation: PopperObservation) -> int | None:
        """Return the column of the held block: an observation does not tell it, the game that it is of does."""
        is_held, _ = observation.observation.selection
        if not is_held or observation is not self._latest or self._game.state in UNPLAYED:
            return None
        held: int | None = self._game.scene()["frame"]["held"]
        return held

    @property
    def state(self) -> PopperState:
        """Where the game stands."""
        game = self._game
        played: dict[str, Any] = {}
        if game.state not in UNPLAYED:
            frame = game.scene()["frame"]
            played = {
                "score": frame["score"],
                "total_reward": frame["total_reward"],
                "clock_ms": game.rules.duration_ms - frame["time_left_ms"],
                "held": frame["held"],
                "next_fall_ms": frame["next_fall_ms"],
                "fault": frame["fault"],
            }
        return PopperState(
            episode_id=self._episode_id,
            step_count=self._step_count,
            lifecycle=game.state,
            seed=game.seed,
            episode_count=game.episode_count,
            **played,
        )
