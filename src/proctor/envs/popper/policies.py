"""Policies to compare with: random, the toggler, two-ply greedy, and the search.

Rule 1: a policy sees observations and its own actions, never `info` or what is still to fall; what it knows besides is
    the rules of the game it was made for.
Rule 2: the score is what counts, not the return: the toggler shows why (docs/column-popper.md).
Rule 3: only the search needs numba; it is imported when it is made.
Rule 4: `GameTracker` works out the clock and the held column from the rules, the observations and the actions taken.
    Where an observation contradicts it, the observation wins.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from proctor.contracts.chance import Chance
from proctor.envs.evaluation import GENERAL_POLICIES, RANDOM_STREAM, Env, Policy, PolicyEntry
from proctor.envs.popper.game import NOBODY, TRIPLE, read_stacks, run_length
from proctor.envs.popper.rules import PopperRules
from proctor.errors import ValidationError


class GameTracker:
    """The clock and the hand of one episode; `look` at each observation, then `note` the action that follows.

    `stacks` are the columns as last seen, the open end last. `held` is the column whose open end is held, or `NOBODY`.
    """

    def __init__(self, rules: PopperRules) -> None:
        self._rules = rules
        self.forget()

    def forget(self) -> None:
        """Begin an episode."""
        self._elapsed = 0
        self._due = self._rules.next_fall(0)
        self.held = NOBODY
        self.stacks: list[list[int]] = [[] for _ in range(self._rules.columns)]

    @property
    def steps_left(self) -> int:
        """How many actions the clock still allows, at least one: whoever asks may act."""
        return max(1, (self._rules.last_tick - self._elapsed) // self._rules.action_ms)

    @property
    def steps_to_fall(self) -> int:
        """How many actions until the next scheduled fall, which comes with the last of them."""
        return -(-(self._due - self._elapsed) // self._rules.action_ms)

    def look(self, observation: Mapping[str, Any]) -> None:
        """Take in what is seen; of a held block only the value is, so any column that it fits will do."""
        self.stacks = read_stacks(observation["board"])
        selected, value = observation["selection"].tolist()
        if not selected:
            self.held = NOBODY
        elif self.held == NOBODY or self.stacks[self.held][-1:] != [value]:
            fitting = (column for column, stack in enumerate(self.stacks) if stack[-1:] == [value])
            self.held = next(fitting, NOBODY)

    def note(self, action: int) -> None:
        """Remember an action: the time that it takes and what it does to the hand."""
        is_fall = action == self._rules.columns
        if not is_fall and self.held == NOBODY:
            self.held = action if self.stacks[action] else NOBODY
        elif not is_fall and (action == self.held or len(self.stacks[action]) < self._rules.height):
            self.held = NOBODY
        if is_fall and self._rules.fast_forward:
            self._elapsed = self._due
        else:
            self._elapsed += self._rules.action_ms
        if is_fall or self._elapsed >= self._due:
            self._due = self._rules.next_fall(self._elapsed)

    def falls(self, steps: Sequence[int], *, after_fall: bool = False) -> list[int]:
        """Return how many scheduled falls come with each of these stretches, given by their actions.

        With `after_fall` the first stretch follows on a manual fall of one row.
        """
        elapsed, due = self._elapsed, self._due
        if after_fall:
            elapsed += self._rules.action_ms
            due = self._rules.next_fall(elapsed)
        counts: list[int] = []
        for stretch in steps:
            elapsed += stretch * self._rules.action_ms
            counts.append(0)
            while due <= elapsed:
                counts[-1] += 1
                due = self._rules.next_fall(due)
        return counts


GREEDY: Final = RANDOM_STREAM + 1
Stacks = Sequence[Sequence[int]]
Move = tuple[int, int]  # from a column to a column; from a column to itself is a put-back


class Toggler:
    """Picks the first column's block and puts it back, for ever: the contract's reward for doing nothing."""

    def reset(self, seed: int) -> None:
        """Begin an episode; there is nothing to forget."""

    def act(self, observation: Any) -> int:
        """Return the first column."""
        return 0


class Greedy:
    """Makes the move that begins the best two; if these pop nothing, lets a row fall while there is room.

    Like moves are told apart by a little chance: without it, two boards may follow each other for ever.
    """

    PAIR: Final = 0.5  # what a pair at an open end adds, in popped cells
    LENGTH: Final = 0.1  # what each cell of the longest column costs
    SOONER: Final = 1.1  # what a cell counts that pops with the first move
    WHIM: Final = 1.0
    WIDE: Final = 6  # columns beyond which it looks at one move only: there are too many pairs of moves

    def __init__(self, rules: PopperRules) -> None:
        self._rules = rules
        self._tracker = GameTracker(rules)
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Forget the last episode."""
        self._tracker.forget()
        self._chance = Chance(seed)
        self._actions = 0

    def act(self, observation: Any) -> int:
        """Return the next action; the target is chosen when the block is held, the board may have changed."""
        self._tracker.look(observation)
        action = self._choose()
        self._tracker.note(action)
        self._actions += 1
        return action

    def _choose(self) -> int:
        held, stacks = self._tracker.held, self._tracker.stacks
        best, popped, source, target = -math.inf, 0, NOBODY, NOBODY
        for k, move in enumerate(iterate_moves(stacks, held, self._rules.height)):
            pops, value = self._promise(stacks, move)
            value += self.WHIM * self._chance.uniform(GREEDY, self._actions, k)
            if value > best:
                best, popped, (source, target) = value, pops, move
        if source == NOBODY:
            return self._rules.columns
        if held != NOBODY:
            return target
        has_room = max(map(len, stacks)) <= self._rules.height // 2 and not self._rules.fast_forward
        return self._rules.columns if popped == 0 and has_room else source

    def _promise(self, stacks: Stacks, move: Move) -> tuple[int, float]:
        """Return how many cells pop with `move` and the best move after it, and what the two are worth."""
        after, popped = apply_move(stacks, move)
        seconds = iterate_moves(after, NOBODY, self._rules.height) if len(stacks) <= self.WIDE else ()
        ahead = [self._value(*apply_move(after, second)) for second in seconds]
        value, more = max(ahead, default=self._value(after, 0))
        return popped + more, self.SOONER * popped + value

    def _value(self, stacks: Stacks, popped: int) -> tuple[float, int]:
        pairs = sum(run_length(stack) == TRIPLE - 1 for stack in stacks)
        return popped + self.PAIR * pairs - self.LENGTH * max(map(len, stacks)), popped


def iterate_moves(stacks: Stacks, held: int, height: int) -> Iterator[Move]:
    """Yield the moves that can be made; a put-back only where it pops or a block is held."""
    sources = range(len(stacks)) if held == NOBODY else (held,)
    for source in sources:
        for target, stack in enumerate(stacks):
            if not stacks[source]:
                continue
            if len(stack) < height if target != source else held != NOBODY or run_length(stack) >= TRIPLE:
                yield source, target


def apply_move(stacks: Stacks, move: Move) -> tuple[list[Sequence[int]], int]:
    """Return the columns after `move`, and how many cells popped."""
    source, target = move
    after = list(stacks)
    after[source] = after[source][:-1]
    after[target] = [*after[target], stacks[source][-1]]
    popped = run_length(after[target]) // TRIPLE * TRIPLE
    after[target] = after[target][: len(after[target]) - popped]
    return after, popped


def _make_toggler(env: Env) -> Policy:
    return Toggler()


def _make_greedy(env: Env) -> Policy:
    return Greedy(_find_rules(env))


def _make_search_policy(env: Env) -> Policy:
    rules = _find_rules(env)
    from proctor.envs.popper.beam_search import SearchPolicy

    return SearchPolicy(rules)


def _find_rules(env: Env) -> PopperRules:
    rules = getattr(env.unwrapped, "rules", None)
    if not isinstance(rules, PopperRules):
        raise ValidationError(
            "this policy plays Column Popper only",
            found=type(env.unwrapped).__name__,
            expected="a Column Popper, or the policy 'random'",
        )
    return rules


POLICIES: Final[Mapping[str, PolicyEntry]] = {
    **GENERAL_POLICIES,
    "toggler": PolicyEntry("picks and puts back for ever: a return of 296 and no score", _make_toggler),
    "greedy": PolicyEntry("pops what it can in two placements, else lets a row fall", _make_greedy),
    "search": PolicyEntry("searches many moves ahead", _make_search_policy),
}
