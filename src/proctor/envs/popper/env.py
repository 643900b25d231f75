"""Column Popper as a Gymnasium environment: lifecycle, observations, info and pictures around a `Game`.

Rule 1: a step checks its action first; after that nothing can fail but the window, and `_snapshot` covers that.
Rule 2: whatever is returned is made of fresh arrays and dicts.
Rule 3: the options of `reset` (a board, a selection) are checked before anything begins.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from proctor.contracts.arguments import is_choice
from proctor.contracts.chance import Stream, derive_key
from proctor.contracts.guarded_env import NO_SNAPSHOT, GuardedEnv
from proctor.contracts.lifecycle import AFTER_STEP, STEPPABLE, LifecycleMethod, guard
from proctor.envs.popper.game import NO_ACTION, NOBODY, Board, Game
from proctor.envs.popper.rewards import RewardTable
from proctor.envs.popper.rules import CONTRACT_BOARD, LARGEST_VALUE, STANDARD_CURVE, PopperRules, parse_rules
from proctor.errors import ValidationError


def parse_board(board: Any, rules: PopperRules) -> NDArray[np.int32]:
    """Return the option `board` as fresh cells, or raise a ValidationError."""
    try:
        cells: NDArray[Any] = np.asarray(board)
    except ValueError:  # a ragged list
        cells = np.empty(0)
    is_board = cells.shape == (rules.height, rules.columns) and cells.dtype.kind in "iu"
    if not is_board or not np.isin(cells, (0, *rules.number_pool)).all():
        raise ValidationError(
            "not a board",
            found=board,
            expected=f"{rules.height} rows of {rules.columns} integers, 0 or one of {rules.number_pool}",
            clause="POP-RESET-P1",
        )
    if ((cells[1:] > 0) & (cells[:-1] == 0)).any():
        raise ValidationError(
            "a board with a hole", found=board, expected="columns that hang from the top", clause="POP-RESET-P1"
        )
    return cells.astype(np.int32, order="C")


def parse_selection(selection: Any, stacks: Sequence[Sequence[int]]) -> int:
    """Return the column that the option `selection` holds: a column, or [is_selected, value] as it is observed."""
    if selection is None:
        return NOBODY
    if is_choice(selection, len(stacks)) and stacks[int(selection)]:
        return int(selection)
    pair = selection.tolist() if isinstance(selection, np.ndarray) else selection
    pair = list(pair) if isinstance(pair, tuple | list) else None
    if pair == [0, 0]:
        return NOBODY
    if isinstance(pair, list) and len(pair) == 2 and pair[0] == 1:
        # An observation does not tell the column; the first one that fits is as good as any.
        fitting = [column for column, stack in enumerate(stacks) if stack and stack[-1] == pair[1]]
        if fitting:
            return fitting[0]
    raise ValidationError(
        "not a selection",
        found=selection,
        expected="a column with a block, or [1, value] with the value of a column's last block, or [0, 0], or None",
        clause="POP-RESET-P2",
    )


Observation: TypeAlias = dict[str, NDArray[Any]]
Step: TypeAlias = tuple[Observation, float, bool, bool, dict[str, Any]]

VERSION: Final = "1.0.0"  # the tag of the observation's schema


class ColumnPopperEnv(GuardedEnv[Observation, Any]):
    """Sort falling blocks: three equal ones at the open end of a column pop.

    | | |
    |---|---|
    | Observation | `board`: `Box(0, 9, (height, columns), int32)`, row 0 on top, 0 is empty; `selection`: `[is_selected, value]`; |
    | | with `include_time_left_norm` also `time_left_norm`: `Box(0, 1, (1,), float32)` |
    | Action | `Discrete(columns + 1)`: a column picks or places there, the last action lets a row fall |
    | Reward | by `reward_preset`: "contract", "pops", "dense", or a table of your own |
    | End | terminated by a fall without room, or a full-column drop if `strict_invalid`; truncated when time is up; never both |
    | Start | an empty board after one fall |
    | Reset options | `board`: rows of numbers; `selection`: the held block's column, or `[is_selected, value]` |
    | Info | `score`, `time_left`, `pops_this_step`, `fall_interval`, `seed`, `version`, `action_mask`, `fault`; |
    | | on reset `episode`, after a step `reward_parts`, which add up to the reward |

    A step takes `action_ms` of simulated time. The default preset is the contract's and can be farmed: see docs/column-popper.md.
    """

    metadata: dict[str, Any] = {"render_modes": ["human", "rgb_array", "ansi"], "render_fps": 10}
    reset_options = ("board", "selection")
    policies: ClassVar[str] = "proctor.envs.popper.policies"
    fixed_board: ClassVar[tuple[int, int] | None] = None  # the one board, height by columns, that a subclass allows

    def __init__(
        self,
        *,
        height: int = CONTRACT_BOARD[0],
        columns: int = CONTRACT_BOARD[1],
        number_pool: Sequence[int] = (1, 2, 3),
        strict_invalid: bool = False,
        include_time_left_norm: bool = False,
        duration_ms: int = 60_000,
        action_ms: int = 100,
        fall_curve: Sequence[tuple[int, int]] = STANDARD_CURVE,
        manual_fall: str = "one_row",
        reward_preset: str | Mapping[str, float] | RewardTable = "contract",
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self._rules: Final = parse_rules(
            height=height,
            columns=columns,
            number_pool=number_pool,
            strict_invalid=strict_invalid,
            include_time_left_norm=include_time_left_norm,
            duration_ms=duration_ms,
            action_ms=action_ms,
            fall_curve=fall_curve,
            manual_fall=manual_fall,
            reward_preset=reward_preset,
        )
        board = (self._rules.height, self._rules.columns)
        if self.fixed_board is not None and board != self.fixed_board:
            raise ValidationError(
                "this id has a board of its own",
                found=board,
                expected=f"height and columns {self.fixed_board}, or the id proctor/ColumnPopper-v0",
                clause="POP-INIT-P7",
            )
        parts: dict[str, spaces.Space[Any]] = {
            "board": spaces.Box(0, LARGEST_VALUE, board, np.int32),
            "selection": spaces.Box(0, LARGEST_VALUE, (2,), np.int32),
        }
        if self._rules.include_time_left_norm:
            parts["time_left_norm"] = spaces.Box(0.0, 1.0, (1,), np.float32)
        self.observation_space: Any = spaces.Dict(parts)
        self.action_space = spaces.Discrete(self._rules.columns + 1)
        self._columns = self._rules.columns
        self._tells_time = self._rules.include_time_left_norm
        # What is copied in every step is kept as its method `copy`: that saves a look-up each time.
        self._selections = [np.array((int(value > 0), value), np.int32).copy for value in range(LARGEST_VALUE + 1)]
        self._masks: dict[int, Callable[[], NDArray[np.int8]]] = {}
        self._game = Game(self._rules)
        self._total_reward = 0.0

    @property
    def rules(self) -> PopperRules:
        """The settings of this game."""
        return self._rules

    def _check_options(self, options: dict[str, Any], episode_seed: int | None) -> None:
        if episode_seed is None:
            # On a board that is given no seed matters.
            episode_seed = self._draw_seed() if options.get("board") is None else 0
        self._make_board(episode_seed, options)

    def _make_board(self, episode_seed: int, options: Mapping[str, Any]) -> Board:
        """Return the board that the options ask for in the game of this seed."""
        rules, given = self._rules, options.get("board")
        if given is None:
            board = Board.first(rules, derive_key(episode_seed, Stream.SPAWN))
        else:
            board = Board(parse_board(given, rules), NOBODY, rules.number_pool)
        board.held = parse_selection(options.get("selection"), board.stacks)
        return board

    def _start(self, episode_seed: int, options: dict[str, Any]) -> tuple[Observation, dict[str, Any]]:
        self._game.begin(episode_seed, self._make_board(episode_seed, options) if options else None)
        self._total_reward = 0.0
        return self._observation(), self._info(episode_seed, 0)

    def step(self, action: Any) -> Step:
        """Pick, place or let a row fall, and let `action_ms` pass; a refused action changes nothing."""
        if self._state is not STEPPABLE:
            guard(self._state, LifecycleMethod.STEP)
        if type(action) is int and 0 <= action <= self._columns:
            return self._advance(action)
        if not is_choice(action, self._columns + 1):
            raise ValidationError(
                "not a legal action", found=action, expected=f"a member of {self.action_space}", clause="ENV-STEP-P2"
            )
        return self._advance(int(action))

    def wait(self) -> Step:
        """Let `action_ms` pass without an action, as a person at the keyboard may; worth the step's cost."""
        guard(self._state, LifecycleMethod.STEP)
        return self._advance(NO_ACTION)

    def _advance(self, action: int) -> Step:
        before = self._snapshot() if self._shows else NO_SNAPSHOT
        game = self._game
        popped, (reward, parts) = game.move(action)
        terminated = game.fault is not None
        truncated = game.elapsed >= game.duration and not terminated
        self._total_reward += reward
        self._step_count += 1
        if terminated or truncated:
            self._state = AFTER_STEP[terminated, truncated]
        if self._shows:
            self._show(before)
        info = self._info(self._seed, popped)
        info["reward_parts"] = parts.copy()
        return self._observation(), reward, terminated, truncated, info

    def _observation(self) -> Observation:
        game = self._game
        board = game.board
        value = board.stacks[board.held][-1] if board.held >= 0 else 0
        observation = {"board": board.cells.copy(), "selection": self._selections[value]()}
        if self._tells_time:
            observation["time_left_norm"] = np.array((game.time_left / game.duration,), np.float32)
        return observation

    def _info(self, episode_seed: int | None, popped: int) -> dict[str, Any]:
        game = self._game
        left = game.duration - game.elapsed
        valid = game.board.valid_columns()
        mask = self._masks.get(valid)
        if mask is None:
            # The columns that are valid, and the fall, the last action, which always is.
            flags = [*(valid >> column & 1 for column in range(self._columns)), 1]
            mask = self._masks[valid] = np.array(flags, np.int8).copy
        return {
            "score": game.score,
            "time_left": left / 1000 if left > 0 else 0.0,
            "pops_this_step": popped,
            "fall_interval": game.interval / 1000,
            "seed": episode_seed,
            "version": VERSION,
            "action_mask": mask(),
            "fault": game.fault,
        }

    def scene(self) -> dict[str, Any]:
        """Return what is to be seen: `static` stays for the episode, `frame` changes with every step."""
        guard(self._state, LifecycleMethod.RENDER)
        rules = self._rules
        return {
            "environment": "popper",
            "static": {
                "height": rules.height,
                "columns": rules.columns,
                "pool": list(rules.number_pool),
                "duration_ms": rules.duration_ms,
            },
            "frame": {
                "step": self._step_count,
                "total_reward": self._total_reward,
                "state": str(self._state),
                **self._game.frame(),
            },
        }

    def _draw(self, scene: dict[str, Any]) -> Any:
        if self.render_mode == "ansi":
            from proctor.envs.popper.drawing.terminal import as_text

            return as_text(scene)
        from proctor.envs.popper.drawing.picture import draw

        return draw(scene)

    def _snapshot(self) -> dict[str, Any]:
        return {**super()._snapshot(), "_game": self._game.copy()}

    def _open_window(self) -> Any:
        from proctor.envs.drawing.frames import Window

        return Window(title="Column Popper", fps=self.metadata["render_fps"])


class ContractColumnPopperEnv(ColumnPopperEnv):
    """Sort falling blocks on the contract's board of 12 rows and 3 columns.

    `ColumnPopperEnv` has the data sheet; `height` and `columns` take no other value here.
    """

    fixed_board = CONTRACT_BOARD
