"""One deliberately broken Column Popper for each of its clauses.

Rule 1: a mutant differs from the sound environment in one place; most swap one method of the board or of the game.
Rule 2: `POPPER` is keyed by clause id; `MORE_POPPER` breaks a clause in other ways.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from proctor.envs.popper.env import ColumnPopperEnv
from proctor.envs.popper.game import COLUMN_FULL, NOBODY, NOTHING_THERE, Board, Game, run_length
from proctor.errors import ValidationError

Make = Callable[..., Any]


def begins(change: Callable[[Any], object]) -> Make:
    """Return an environment that does `change` to itself when it is made."""

    class Changed(ColumnPopperEnv):
        def __init__(self, **keywords: Any) -> None:
            super().__init__(**keywords)
            change(self)

    Changed.__init__.__wrapped__ = ColumnPopperEnv.__init__  # type: ignore[attr-defined]  # for inspect.signature
    return Changed


def lenient(name: str, is_good: Callable[[Any], bool]) -> Make:
    """Return an environment whose constructor quietly drops a bad value of the keyword `name`."""

    class Lenient(ColumnPopperEnv):
        def __init__(self, **keywords: Any) -> None:
            if name in keywords and not is_good(keywords[name]):
                del keywords[name]
            super().__init__(**keywords)

    Lenient.__init__.__wrapped__ = ColumnPopperEnv.__init__  # type: ignore[attr-defined]  # for inspect.signature
    return Lenient


def starting(change: Callable[[Any], object]) -> Make:
    """Return an environment that does `change` to itself when a game has begun."""

    class Starting(ColumnPopperEnv):
        def _start(self, episode_seed: int, options: dict[str, Any]) -> Any:
            result = super()._start(episode_seed, options)
            change(self)
            return result

    return Starting


def on_board(board: type[Board]) -> Make:
    """Return an environment that plays on this kind of board."""
    return starting(lambda env: setattr(env._game.board, "__class__", board))


def in_game(game: type[Game]) -> Make:
    """Return an environment that plays this kind of game."""
    return starting(lambda env: setattr(env._game, "__class__", game))


def stepping(change: Callable[[Any, list[Any]], object]) -> Make:
    """Return an environment whose `step` answers what `change(env, result)` made of the result."""

    class Stepping(ColumnPopperEnv):
        def step(self, action: Any) -> Any:
            result = list(super().step(action))
            change(self, result)
            return tuple(result)

    return Stepping


def telling(change: Callable[[dict[str, Any]], object]) -> Make:
    """Return an environment that does `change` to every info."""

    class Telling(ColumnPopperEnv):
        def _info(self, episode_seed: int | None, popped: int) -> dict[str, Any]:
            info = super()._info(episode_seed, popped)
            change(info)
            return info

    return Telling


def observing(change: Callable[[Any, Any], Any]) -> Make:
    """Return an environment that shows `change(env, observation)`."""

    class Observing(ColumnPopperEnv):
        def _observation(self) -> Any:
            return change(self, super()._observation())

    return Observing


def rewritten(board: Board) -> None:
    """Bring the cells of a board in line with its stacks."""
    board.cells[:] = 0
    for column, stack in enumerate(board.stacks):
        board.cells[: len(stack), column] = stack
    twin = Board(board.cells, board.held, board._pool)
    board._occupied, board._roomy = twin._occupied, twin._roomy


def spaced(name: str, space: spaces.Space[Any]) -> Make:
    return begins(lambda env: env.observation_space.spaces.update({name: space}))


def widen_the_time(env: Any) -> None:
    if "time_left_norm" in env.observation_space.spaces:
        env.observation_space.spaces["time_left_norm"] = spaces.Box(0.0, 60.0, (1,), np.float32)


class TakesAnyBoard(ColumnPopperEnv):
    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        try:
            return super().reset(seed=seed, options=options)
        except ValidationError:
            if "selection" in (options or {}):
                raise
            return super().reset(seed=seed)


class TakesAnySelection(ColumnPopperEnv):
    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        try:
            return super().reset(seed=seed, options=options)
        except ValidationError:
            if "selection" not in (options or {}):
                raise
            return super().reset(seed=seed)


class FallsTwice(ColumnPopperEnv):
    def _start(self, episode_seed: int, options: dict[str, Any]) -> Any:
        _, info = super()._start(episode_seed, options)
        self._game.board.fall(episode_seed, 1)
        return self._observation(), info


class BeginsHolding(ColumnPopperEnv):
    def _start(self, episode_seed: int, options: dict[str, Any]) -> Any:
        _, info = super()._start(episode_seed, options)
        self._game.board.held = 0
        return self._observation(), info


class MirrorsTheBoard(ColumnPopperEnv):
    def _make_board(self, episode_seed: int, options: Any) -> Board:
        board = super()._make_board(episode_seed, options)
        board.stacks.reverse()
        rewritten(board)
        return board


class AnyBoard(ColumnPopperEnv):
    """Claims to be the contract's id, but has no board of its own."""


def any_board(**keywords: Any) -> Any:
    env = AnyBoard(**keywords)
    env.spec = gym.spec("SpecKitAI/ColumnPopper-v1")
    return env


class PlacesOnTop(Board):
    def toggle(self, column: int) -> int:
        held = self.held
        if held < 0 or column == held or len(self.stacks[column]) == len(self.cells):
            return super().toggle(column)
        self.stacks[column].insert(0, self.stacks[held].pop())
        self.held = NOBODY
        rewritten(self)
        return 0


class NeverLetsGo(Board):
    def toggle(self, column: int) -> int:
        return 0 if column == self.held else super().toggle(column)


class NeverPops(Board):
    def _remove(self, column: int) -> int:
        return 0


class PopsThree(Board):
    """Only ever three, however long the run."""

    def _remove(self, column: int) -> int:
        del self.stacks[column][-3:]
        rewritten(self)
        return 3


class PopsTheRun(Board):
    """The whole run, also what is over the triples."""

    def _remove(self, column: int) -> int:
        run = run_length(self.stacks[column])
        del self.stacks[column][-run:]
        rewritten(self)
        return run


class Cascades(Board):
    def _remove(self, column: int) -> int:
        count = super()._remove(column)
        if run_length(self.stacks[column]) >= 3:
            count += super()._remove(column)
        return count


class PicksAnother(Board):
    """Where there is nothing to pick, it picks elsewhere."""

    def toggle(self, column: int) -> int:
        outcome = super().toggle(column)
        if outcome == NOTHING_THERE:
            self.held = max(range(len(self.stacks)), key=lambda other: len(self.stacks[other]))
        return outcome


class LosesItsGrip(Board):
    """A placement on a full column lets go of the block."""

    def toggle(self, column: int) -> int:
        outcome = super().toggle(column)
        if outcome == COLUMN_FULL:
            self.held = NOBODY
        return outcome


class DropsAnyway(Board):
    """A placement on a full column takes the block from its own."""

    def toggle(self, column: int) -> int:
        outcome = super().toggle(column)
        if outcome == COLUMN_FULL:
            self.stacks[self.held].pop()
            rewritten(self)
        return outcome


class SwapsAsItFalls(Board):
    def fall(self, key: int, number: int) -> bool:
        room = super().fall(key, number)
        self.stacks[:2] = self.stacks[1::-1]
        rewritten(self)
        return room


class PopsByFalls(Board):
    def fall(self, key: int, number: int) -> bool:
        room = super().fall(key, number)
        for column, stack in enumerate(self.stacks):
            if run_length(stack) >= 3:
                self._remove(column)
        return room


class EmptiesAtTheEnd(Board):
    """A fall without room clears the board."""

    def fall(self, key: int, number: int) -> bool:
        room = super().fall(key, number)
        if not room:
            for stack in self.stacks:
                stack.clear()
            rewritten(self)
        return room


class FullTooSoon(Board):
    def fall(self, key: int, number: int) -> bool:
        return self.longest() < len(self.cells) - 1 and super().fall(key, number)


def with_more_numbers(env: Any) -> None:
    pool = (*env.rules.number_pool, 8)
    env._game.board._pool = pool
    env._game.board._others = {value: [other for other in pool if other != value] for value in pool}


def without_care(env: Any) -> None:
    env._game.board._others = dict.fromkeys(env.rules.number_pool, env.rules.number_pool)


def with_a_hole(env: Any, observation: Any) -> Any:
    observation["board"][0][observation["board"][1] > 0] = 0
    return observation


def with_the_top_selected(env: Any, observation: Any) -> Any:
    board = env._game.board
    if board.held >= 0:
        observation["selection"][1] = board.stacks[board.held][0]
    return observation


def with_a_ghost(env: Any, observation: Any) -> Any:
    if not observation["selection"][0]:
        observation["selection"][1] = 1
    return observation


def ends_on_an_empty_pick(env: Any, result: list[Any]) -> None:
    if result[4]["reward_parts"]["invalid_action"]:
        result[2] = True


class FallsLate(Game):
    def _tick(self, manual: bool) -> bool:
        super()._tick(manual)
        return manual or self.elapsed - self.last_fall > self.interval


class OnlyForwards(Game):
    """Jumps, but lets no row fall."""

    def _tick(self, manual: bool) -> bool:
        return super()._tick(manual) and not manual


class GoesOn(Game):
    """A fall without room is no matter."""

    def _fall(self) -> bool:
        super()._fall()
        return True


class ForgivesTheSchedule(Game):
    """Only a fall that somebody asked for can end the game."""

    def _fall(self) -> bool:
        asked = self.elapsed - self.last_fall < self.interval
        return super()._fall() or not asked


class KeepsWaiting(ColumnPopperEnv):
    """A manual fall does not start the wait anew."""

    def step(self, action: Any) -> Any:
        last = self._game.last_fall
        result = super().step(action)
        if action == self._columns:
            self._game.last_fall = last
        return result


class FallsOnceMore(ColumnPopperEnv):
    """A manual fall as a scheduled one is due makes two."""

    def step(self, action: Any) -> Any:
        result = super().step(action)
        if action == self._columns and self._game.elapsed % 3000 == 0:
            self._game.board.fall(0, 0)
        return self._observation(), *result[1:]


def never_truncated(env: Any, result: list[Any]) -> None:
    result[3] = False


def both_at_once(env: Any, result: list[Any]) -> None:
    result[3] = env._game.elapsed >= env._game.duration


def clock_before_fall(env: Any, result: list[Any]) -> None:
    if env._game.elapsed >= env._game.duration:
        result[2:4] = False, True


def with_the_time_gone(env: Any, observation: Any) -> Any:
    if "time_left_norm" in observation:
        observation["time_left_norm"] = 1 - observation["time_left_norm"]
    return observation


def with_another_preset(env: Any) -> None:
    env._game._table = replace(env._game._table, valid_action=0.5)
    env._game._worths = {}


def loses_a_part(env: Any, result: list[Any]) -> None:
    result[4]["reward_parts"]["step"] = 0.0


class ForgetsItsSeed(ColumnPopperEnv):
    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        observation, info = super().reset(seed=seed, options=options)
        return observation, {**info, "seed": seed}


class TellsAnotherSeed(ColumnPopperEnv):
    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        observation, info = super().reset(seed=seed, options=options)
        return observation, {**info, "seed": info["seed"] + (seed is None)}


def alive(env: Any, observation: Any) -> Any:
    return {**observation, "board": env._game.board.cells}


class ReusesItsArray(ColumnPopperEnv):
    """Writes every observation into the same array."""

    def _observation(self) -> Any:
        observation = super()._observation()
        page = self.__dict__.setdefault("_page", np.zeros_like(observation["board"]))
        page[...] = observation["board"]
        return {**observation, "board": page}


def sets(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda info: info.update(values)


POPPER: dict[str, Make] = {
    "POP-INIT-P1": lenient("number_pool", lambda pool: pool == (1,)),
    "POP-INIT-P2": lenient("strict_invalid", lambda flag: flag is True),
    "POP-INIT-P3": lenient("duration_ms", lambda time: isinstance(time, int) and time > 0),
    "POP-INIT-P4": lenient("fall_curve", bool),
    "POP-INIT-P5": lenient("manual_fall", lambda name: name == "fast_forward"),
    "POP-INIT-P6": lenient("reward_preset", lambda preset: preset == "contract"),
    "POP-INIT-P7": lenient("height", lambda height: height == 1),
    "POP-SPACE-1": spaced("board", spaces.Box(0, 9, (12, 3), np.int64)),
    "POP-SPACE-2": spaced("selection", spaces.Box(0, 1, (2,), np.int32)),
    "POP-SPACE-3": spaced("time_left_norm", spaces.Box(0.0, 1.0, (1,), np.float32)),
    "POP-SPACE-4": begins(lambda env: setattr(env, "action_space", spaces.Discrete(5))),
    "POP-RESET-P1": TakesAnyBoard,
    "POP-RESET-P2": TakesAnySelection,
    "POP-RESET-C1": FallsTwice,
    "POP-RESET-C2": MirrorsTheBoard,
    "POP-I1": starting(with_more_numbers),
    "POP-I2": observing(with_a_hole),
    "POP-I3": observing(with_a_ghost),
    "POP-PICK": observing(with_the_top_selected),
    "POP-PLACE": on_board(PlacesOnTop),
    "POP-PUTBACK": on_board(NeverLetsGo),
    "POP-POP": on_board(NeverPops),
    "POP-CASCADE": on_board(Cascades),
    "POP-NOOP": on_board(PicksAnother),
    "POP-DROP": starting(lambda env: setattr(env._game, "_strict", False)),
    "POP-SPAWN-1": starting(without_care),
    "POP-FALL-1": in_game(FallsLate),
    "POP-FALL-2": KeepsWaiting,
    "POP-FALL-3": on_board(SwapsAsItFalls),
    "POP-FALL-4": on_board(PopsByFalls),
    "POP-FALL-5": starting(lambda env: setattr(env._game, "_fast_forward", False)),
    "POP-FALL-6": telling(sets(fall_interval=3.0)),
    "POP-OVERFLOW": in_game(GoesOn),
    "POP-TIME": stepping(never_truncated),
    "POP-TIME-LEFT": telling(lambda info: info.update(time_left=info["time_left"] * 1000)),
    "POP-TIME-NORM": observing(with_the_time_gone),
    "POP-END": stepping(both_at_once),
    "POP-POPS": telling(lambda info: info.update(pops_this_step=info["pops_this_step"] // 3)),
    "POP-SCORE": telling(lambda info: info.update(score=info["score"] // 3)),
    "POP-REWARD": starting(with_another_preset),
    "POP-REWARD-PARTS": stepping(loses_a_part),
    "POP-INFO": telling(lambda info: info.pop("version")),
    "POP-SEED": telling(sets(seed=7)),
    "POP-FAULT": telling(sets(fault=None)),
    "POP-MASK": telling(lambda info: info["action_mask"].fill(1)),
    "POP-FRESH": observing(alive),
}
MORE_POPPER: list[tuple[str, Make]] = [
    ("POP-INIT-P2", lenient("include_time_left_norm", lambda flag: flag is True)),
    ("POP-INIT-P7", any_board),
    ("POP-SPACE-1", spaced("board", spaces.Box(0, 9, (36,), np.int32))),
    ("POP-SPACE-3", begins(widen_the_time)),
    ("POP-RESET-C1", BeginsHolding),
    ("POP-POP", on_board(PopsThree)),
    ("POP-POP", on_board(PopsTheRun)),
    ("POP-NOOP", on_board(LosesItsGrip)),
    ("POP-NOOP", stepping(ends_on_an_empty_pick)),
    ("POP-DROP", stepping(ends_on_an_empty_pick)),
    ("POP-DROP", on_board(DropsAnyway)),
    ("POP-FALL-2", FallsOnceMore),
    ("POP-FALL-5", in_game(OnlyForwards)),
    ("POP-OVERFLOW", in_game(ForgivesTheSchedule)),
    ("POP-OVERFLOW", on_board(EmptiesAtTheEnd)),
    ("POP-OVERFLOW", on_board(FullTooSoon)),
    ("POP-END", stepping(clock_before_fall)),
    ("POP-SCORE", telling(lambda info: info.update(score=info["score"] + 3))),
    ("POP-INFO", telling(sets(version=""))),
    ("POP-SEED", ForgetsItsSeed),
    ("POP-SEED", TellsAnotherSeed),
    ("POP-MASK", telling(lambda info: info.update(action_mask=info["action_mask"].tolist()))),
    ("POP-FRESH", ReusesItsArray),
]
