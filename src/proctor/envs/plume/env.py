"""The plume search: an agent on a grid looks for the source of an odor.

Rule 1: a step computes everything first and commits last; whatever raises, the environment is as it was.
Rule 2: parts are known by their Protocols only. What a part returns is checked where it would break an invariant.
Rule 3: an episode starts anywhere outside the goal disc. The free cells are counted row by row, once per (grid, source,
    radius), so that a draw is one search among the rows, exact at any grid size, and the same in the batched kernels.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from proctor.contracts.arguments import is_choice, parse_number
from proctor.contracts.chance import Chance, Stream, integer_from_bits
from proctor.contracts.components import (
    ActionProcessor,
    ConcentrationField,
    EnvState,
    Observation,
    ObservationModel,
    RewardFunction,
    VaryingPlume,
    add_reward,
    bad_move_error,
    check_members,
    convert_reward,
)
from proctor.contracts.guarded_env import NO_SNAPSHOT, GuardedEnv
from proctor.contracts.lifecycle import AFTER_STEP, STEPPABLE, LifecycleMethod, guard
from proctor.contracts.spatial import MAX_SIDE, AgentState, Coordinates, GridSize, normalize_heading
from proctor.envs.plume.actions import invalid_action_error
from proctor.envs.plume.config import ComponentKind, EnvironmentConfig, Site, build
from proctor.envs.plume.fields import check_source, describe_field, describe_plume
from proctor.errors import ComponentError, ValidationError


@dataclass(frozen=True, slots=True)
class StartCells:
    """Row y has its free cells left of `skip_from[y]` and from `skip_to[y]` on; `before[y]` are free below row y."""

    before: tuple[int, ...]
    skip_from: tuple[int, ...]
    skip_to: tuple[int, ...]

    @property
    def total(self) -> int:
        """How many cells are free."""
        return self.before[-1]

    def pick(self, bits: int) -> tuple[int, int]:
        """Return the free cell (x, y) that 64 random bits fall on."""
        rank = integer_from_bits(bits, self.total)
        y = bisect_right(self.before, rank) - 1
        x = rank - self.before[y]
        return (x if x < self.skip_from[y] else x + self.skip_to[y] - self.skip_from[y]), y


def _cells_outside(grid: GridSize, source: Coordinates, radius: float) -> StartCells:
    before, skip_from, skip_to = [0], [], []
    for y in range(grid.height):
        # The largest dx with sqrt(dx^2 + dy^2) <= radius, judged by that very comparison; -1 if there is none.
        dy = y - source.y
        reach = int(sqrt(max(radius * radius - dy * dy, 0.0))) + 1 if abs(dy) <= radius else -1
        while reach >= 0 and not sqrt(reach * reach + dy * dy) <= radius:
            reach -= 1
        low = max(source.x - reach, 0) if reach >= 0 else grid.width
        high = min(source.x + reach + 1, grid.width) if reach >= 0 else grid.width
        skip_from.append(low)
        skip_to.append(high)
        before.append(before[-1] + grid.width - (high - low))
    return StartCells(tuple(before), tuple(skip_from), tuple(skip_to))


@lru_cache(maxsize=64)
def start_cells(grid: GridSize, source: Coordinates, goal_radius: float) -> StartCells:
    """Return the cells outside the goal disc; if there are none all but the source; on a 1 x 1 grid that one."""
    # No cell is farther away than this, and its square is finite.
    radius = min(goal_radius, 2.0 * MAX_SIDE)
    choices = (_cells_outside(grid, source, without) for without in (radius, 0.0, -1.0))
    return next(cells for cells in choices if cells.total)


TRAIL_LENGTH: Final = 256


class PlumeSearchEnv(GuardedEnv[Observation, Any]):
    """Find the source of an odor plume on a grid.

    | | |
    |---|---|
    | Observation | the sensor's; by default the concentration at the agent's cell, `Box(0, 1, (1,), float32)` |
    | Action | the action processor's; by default `Discrete(4)`: 0 up, 1 right, 2 down, 3 left |
    | Reward | the reward function's; by default 1.0 at the goal, else 0.0 |
    | End | terminated within `goal_radius` of the source, truncated after `max_steps`; both on the last step: both |
    | Start | uniform over the cells outside the goal disc, heading 0 degrees |
    | Reset options | `start`: (x, y); `orientation`: degrees |
    | Info | reset: `seed`, `episode`; step: `step_count`, `total_reward`, `goal_reached`; both: `agent_xy`, |
    | | `distance_to_source`, unless `info_level` is "minimal" |

    Settings come from defaults, `config`, keywords and injected components, the later the stronger.
    """

    metadata: dict[str, Any] = {"render_modes": ["human", "rgb_array"], "render_fps": 30}
    reset_options = ("start", "orientation")
    policies: ClassVar[str] = "proctor.envs.plume.policies"

    def __init__(
        self,
        *,
        plume_model: ConcentrationField | VaryingPlume | None = None,
        reward_fn: RewardFunction | None = None,
        observation_model: ObservationModel | None = None,
        action_processor: ActionProcessor | None = None,
        config: EnvironmentConfig | Mapping[str, Any] | str | Path | None = None,
        grid_size: tuple[int, int] | None = None,
        source_location: tuple[int, int] | None = None,
        max_steps: int | None = None,
        goal_radius: float | None = None,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self.config: Final = EnvironmentConfig.of(
            config, grid_size=grid_size, source_location=source_location, max_steps=max_steps, goal_radius=goal_radius
        )
        self.goal_radius: Final = self.config.goal_radius
        """How near to the source the search ends."""
        self._max_steps = self.config.max_steps
        self._full_info = self.config.info_level == "full"
        self._plume: Any = self._resolve_plume(plume_model)
        self._action_proc: ActionProcessor = self._build_part("action", "action_processor", action_processor)
        self._obs_model: ObservationModel = self._build_part("observation", "observation_model", observation_model)
        self._reward_fn: RewardFunction = self._build_part("reward", "reward_fn", reward_fn)
        self.action_space = self._action_proc.action_space
        self.observation_space = self._obs_model.observation_space
        self._cache_lookups()
        self._agent_state: AgentState | None = None
        self._plume_field: Any = None
        self._chance: Chance | None = None
        self._memory: Any = None
        self._trail: deque[Coordinates] = deque(maxlen=TRAIL_LENGTH)

    def _resolve_plume(self, plume_model: Any) -> Any:
        """Fix the grid, the source and the plume; a plume brings what neither keyword nor configuration sets."""
        self._grid, self._source = _resolve_site(self.config, plume_model)
        plume = self._build_part("plume", "plume_model", plume_model)
        self._grid, self._source = _resolve_site(self.config, plume)
        own = (plume.grid_size, getattr(plume, "source_location", self._source))
        if own != (self._grid, self._source):
            raise ComponentError(
                "the plume's grid or source differs from the environment's",
                found=own,
                expected=f"{self._grid} and {self._source}",
                clause="ENV-INIT-P2",
            )
        check_source(self._source, self._grid)
        return plume

    def _build_part(self, kind: str, argument: str, injected: Any) -> Any:
        part = injected
        if part is None:
            spec = getattr(self.config, kind).model_dump()
            part = build(kind, spec, Site(self._grid, self._source, self.goal_radius))
        check_members(argument, part)
        return part

    def _cache_lookups(self) -> None:
        """Look up once what every step needs; a sensor that needs a wind which the plume has not is a ComponentError."""
        self._validate_action = self._action_proc.validate_action
        self._process_action = self._action_proc.process_action
        self._compute_reward = self._reward_fn.compute_reward
        self._get_observation = self._obs_model.get_observation
        self._advance = getattr(self._plume, "advance", None)
        self._recalls = hasattr(self._obs_model, "observe")
        # A varying plume has wind if its model says so; what its fields bring is looked up in every step.
        self._has_wind = hasattr(self._plume, "wind_field") or hasattr(self._plume, "wind")
        self._senses_field_only = not self._has_wind and self._advance is None and not self._recalls
        self._source_x, self._source_y = self._source.x, self._source.y
        if getattr(self._obs_model, "needs_wind", False) and not self._has_wind:
            raise ComponentError(
                "a wind sensor needs a plume with wind",
                found=type(self._plume).__name__,
                expected="an advected or puff plume",
                clause="ENV-INIT-P2",
            )

    @property
    def agent_state(self) -> AgentState | None:
        """The agent's state; None before the first reset."""
        return self._agent_state

    @property
    def plume_field(self) -> ConcentrationField:
        """The odor at this instant."""
        field: ConcentrationField = self._plume if self._advance is None else self._plume_field
        return field

    @property
    def grid_size(self) -> GridSize:
        """The grid."""
        return self._grid

    @property
    def source_location(self) -> Coordinates:
        """Where the odor comes from."""
        return self._source

    @property
    def max_steps(self) -> int:
        """After how many steps an episode is truncated."""
        return self._max_steps

    @property
    def components(self) -> dict[ComponentKind, Any]:
        """The parts that the environment is built from."""
        return {
            ComponentKind.PLUME: self._plume,
            ComponentKind.ACTION: self._action_proc,
            ComponentKind.OBSERVATION: self._obs_model,
            ComponentKind.REWARD: self._reward_fn,
        }

    def _check_options(self, options: dict[str, Any], episode_seed: int | None) -> None:
        if options.get("start") is not None:
            self._parse_start(options["start"])
        parse_number("orientation", options.get("orientation", 0.0), clause="ENV-RESET-P3")

    def _parse_start(self, start: Any) -> Coordinates:
        pair = start.tolist() if isinstance(start, np.ndarray) else start
        if isinstance(pair, tuple | list) and len(pair) == 2:
            x, y = pair
            if is_choice(x, self._grid.width) and is_choice(y, self._grid.height):
                return Coordinates(int(x), int(y))
        raise ValidationError(
            "not a start cell",
            found=start,
            expected=f"(x, y) with 0 <= x < {self._grid.width} and 0 <= y < {self._grid.height}",
            clause="ENV-RESET-P3",
        )

    def _start(self, episode_seed: int, options: dict[str, Any]) -> tuple[Observation, dict[str, Any]]:
        chance = Chance(episode_seed)
        if options.get("start") is not None:
            start = self._parse_start(options["start"])
        else:
            cells = start_cells(self._grid, self._source, self.goal_radius)
            start = Coordinates(*cells.pick(chance.bits(Stream.START, 0)))
        agent = AgentState(start, normalize_heading(float(options.get("orientation", 0.0))))
        field = self._plume if self._advance is None else self._plume.begin(chance)
        observation, memory = self._observe(agent, field, chance, None)

        self._chance = chance
        self._agent_state = agent
        self._plume_field = field
        self._memory = memory
        self._trail.clear()
        self._trail.append(agent.position)
        if not self._full_info:
            return observation, {}
        info = {"agent_xy": (start.x, start.y), "distance_to_source": start.distance_to(self._source)}
        return observation, info

    def _observe(self, agent: AgentState, field: Any, chance: Chance, memory: Any) -> tuple[Observation, Any]:
        """Return what the agent observes in this state, and what its sensor will remember."""
        env_state: EnvState = {
            "agent_state": agent,
            "plume_field": field,
            "time_step": agent.step_count,
            "grid_size": self._grid,
            "chance": chance,
        }
        if self._senses_field_only:
            return self._get_observation(env_state), None
        wind = getattr(field, "wind_field", None)
        if wind is not None:
            env_state["wind_field"] = wind
        if not self._recalls:
            return self._get_observation(env_state), None
        env_state["memory"] = memory
        recalling: Any = self._obs_model
        seen: tuple[Observation, Any] = recalling.observe(env_state, memory)
        return seen

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Move the agent; a step that raises leaves the environment exactly as it was."""
        if self._state is not STEPPABLE:
            guard(self._state, LifecycleMethod.STEP)
        if not self._validate_action(action):
            raise invalid_action_error(self._action_proc, action, "ENV-STEP-P2")
        before: AgentState = self._agent_state  # type: ignore[assignment]  # READY has an agent (ENV-I2)
        chance: Chance = self._chance  # type: ignore[assignment]  # and its chance
        grid = self._grid
        moved = self._process_action(action, before, grid)
        if not isinstance(moved, AgentState):
            raise bad_move_error(moved, grid)
        position = moved.position
        x = position.x
        y = position.y
        if not (0 <= x < grid.width and 0 <= y < grid.height):
            raise bad_move_error(moved, grid)
        step_count = self._step_count + 1
        field = self._plume_field if self._advance is None else self._advance(self._plume_field, chance, step_count)
        dx = x - self._source_x
        dy = y - self._source_y
        distance = sqrt(dx * dx + dy * dy)
        terminated = distance <= self.goal_radius
        truncated = step_count >= self._max_steps
        after = AgentState(position, moved.orientation, step_count, before.total_reward, terminated)
        reward = self._compute_reward(before, action, after, field)
        if type(reward) is not float:
            reward = convert_reward(reward)
        if reward:
            after = add_reward(after, reward)
        observation, memory = self._observe(after, field, chance, self._memory)
        snapshot = self._snapshot() if self._shows else NO_SNAPSHOT

        self._agent_state = after
        self._plume_field = field
        self._memory = memory
        self._step_count = step_count
        self._trail.append(position)
        if terminated or truncated:
            self._state = AFTER_STEP[terminated, truncated]
        if self._shows:
            self._show(snapshot)
        info: dict[str, Any] = {
            "step_count": step_count,
            "total_reward": after.total_reward,
            "goal_reached": terminated,
        }
        if self._full_info:
            info["agent_xy"] = (x, y)
            info["distance_to_source"] = distance
        return observation, reward, terminated, truncated, info

    def scene(self) -> dict[str, Any]:
        """Return what is to be seen: `static` stays for the episode, `frame` changes with every step."""
        frame = self.frame()
        return {
            "environment": "plume",
            "static": {
                "grid": [self._grid.width, self._grid.height],
                "source": [self._source.x, self._source.y],
                "goal_radius": self.goal_radius,
                "max_steps": self._max_steps,
                "field": describe_plume(self._plume, varying=self._advance is not None),
            },
            "frame": {**frame, "trail": [[cell.x, cell.y] for cell in self._trail]},
        }

    def frame(self) -> dict[str, Any]:
        """Return the scene's frame without the trail, which earlier frames tell."""
        guard(self._state, LifecycleMethod.RENDER)
        agent: AgentState = self._agent_state  # type: ignore[assignment]  # the guard has seen a reset
        field = self._plume_field
        wind = getattr(field, "wind_field", None)
        return {
            "step": self._step_count,
            "total_reward": agent.total_reward,
            "state": str(self._state),
            "agent": {"at": [agent.position.x, agent.position.y], "heading": agent.orientation},
            "field": describe_field(field) if self._advance is not None else None,
            "wind": None if wind is None else list(wind.sample(agent.position)),
        }

    def _draw(self, scene: dict[str, Any]) -> Any:
        from proctor.envs.plume.drawing.picture import draw

        return draw(scene)

    def _snapshot(self) -> dict[str, Any]:
        return {**super()._snapshot(), "_trail": self._trail.copy()}

    def _open_window(self) -> Any:
        from proctor.envs.drawing.frames import Window

        return Window(title="Plume search", fps=self.metadata["render_fps"])


def _resolve_site(config: EnvironmentConfig, plume: Any) -> tuple[GridSize, Coordinates]:
    """Return the grid and the source that hold beside `plume`, which may be None: set values before its own."""
    own_grid: Any = getattr(plume, "grid_size", None)
    adopts = isinstance(own_grid, GridSize) and "grid_size" not in config.model_fields_set
    grid: GridSize = own_grid if adopts else GridSize(*config.grid_size)
    if config.source_location is not None:
        return grid, Coordinates(*config.source_location)
    own_source: Coordinates | None = getattr(plume, "source_location", None)
    return grid, grid.center() if own_source is None else own_source
