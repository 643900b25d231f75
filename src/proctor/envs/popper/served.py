"""Column Popper behind its typed models."""

from typing import Any, Final

from proctor.contracts.lifecycle import EnvironmentState
from proctor.contracts.toolboxes import declared_toolbox
from proctor.contracts.tools import Toolbox
from proctor.envs.adapted import AdaptedEnvironment
from proctor.envs.popper.env import ColumnPopperEnv
from proctor.envs.popper.models import PopperAction, PopperObservation, PopperState, PopperView, TimedPopperView
from proctor.envs.popper.tools import board_in_words, rules_in_words, tools_for
from proctor.models.wire import assembled

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

    def _value_of(self, action: PopperAction) -> int:
        return action.action

    def _seen(self, observation: Any) -> PopperView:
        fields: dict[str, Any] = {
            "board": tuple(map(tuple, observation["board"].tolist())),
            "selection": tuple(observation["selection"].tolist()),
        }
        if self._view is TimedPopperView:
            fields["time_left_norm"] = tuple(observation["time_left_norm"].tolist())
        return assembled(self._view, fields)

    def _generated(self) -> Toolbox:
        rules = self._game.rules
        found = declared_toolbox(tools_for(rules.columns)(self.latest), PopperAction, PopperObservation)
        return (found or super()._generated()).noted(rules_in_words(rules))

    def told(self, observation: PopperObservation) -> str:
        """Return the board as text, what is held, and the time that is left if the observation tells it."""
        return board_in_words(observation.observation, self._held(observation))

    def _held(self, observation: PopperObservation) -> int | None:
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
