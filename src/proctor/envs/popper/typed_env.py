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

UNPLAYED: Final = (EnvironmentState.CREATED, EnvironmentState.CLOSED)  # where a game has no scene


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
        fields: dict[str, Any] = {name: tuple(part.tolist()) for name, part in observation.items()}
        fields["board"] = tuple(map(tuple, fields["board"]))
        return assemble_model(self._view, fields)

    def _generate_toolbox(self) -> Toolbox:
        rules = self._game.rules
        found = toolbox_from_methods(make_tool_class(rules.columns)(self.latest), PopperAction, PopperObservation)
        return (found or super()._generate_toolbox()).with_note(describe_rules(rules))

    def describe_observation(self, observation: PopperObservation) -> str:
        """Return the board as text, what is held, and the time that is left if the observation tells it."""
        held: int | None = None
        # An observation does not tell the column of the held block; the game that it is of does.
        if observation.observation.selection[0] and observation is self._latest and self._game.state not in UNPLAYED:
            held = self._game.scene()["frame"]["held"]
        return describe_board(observation.observation, held)

    @property
    def state(self) -> PopperState:
        """Where the game stands."""
        game = self._game
        played: dict[str, Any] = {}
        if game.state not in UNPLAYED:
            frame = game.scene()["frame"]
            played = {name: frame[name] for name in ("score", "total_reward", "held", "next_fall_ms", "fault")}
            played["clock_ms"] = game.rules.duration_ms - frame["time_left_ms"]
        return PopperState(
            episode_id=self._episode_id,
            step_count=self._step_count,
            lifecycle=game.state,
            seed=game.seed,
            episode_count=game.episode_count,
            **played,
        )
