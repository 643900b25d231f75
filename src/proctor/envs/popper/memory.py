"""What a policy of Column Popper knows beyond the observation: the clock and the held column, from its own actions.

Rule 1: everything is worked out from the rules, the observations and the actions taken; nothing is asked of the game.
Rule 2: the observation wins. Where it contradicts the memory, the memory gives way.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from proctor.envs.popper.board import NOBODY, stacks_of
from proctor.envs.popper.rules import PopperRules


class Memory:
    """The clock and the hand of one episode; `look` at each observation, then `note` the action that follows.

    `stacks` are the columns as last seen, the open end last. `held` is the column whose open end is held, or `NOBODY`.
    """

    def __init__(self, rules: PopperRules) -> None:
        self._rules = rules
        self.forget()

    def forget(self) -> None:
        """Begin an episode."""
        self._elapsed = 0
        self._due = self._rules.schedule.next_fall(0)
        self.held = NOBODY
        self.stacks: list[list[int]] = [[] for _ in range(self._rules.columns)]

    @property
    def steps_left(self) -> int:
        """How many actions the clock still allows, at least one: whoever asks may act."""
        return max(1, (self._rules.schedule.last_tick - self._elapsed) // self._rules.action_ms)

    @property
    def steps_to_fall(self) -> int:
        """How many actions until the next scheduled fall, which comes with the last of them."""
        return -(-(self._due - self._elapsed) // self._rules.action_ms)

    def look(self, observation: Mapping[str, Any]) -> None:
        """Take in what is seen; of a held block only the value is, so any column that it fits will do."""
        self.stacks = stacks_of(observation["board"])
        selected, value = observation["selection"].tolist()
        if not selected:
            self.held = NOBODY
        elif self.held == NOBODY or self.stacks[self.held][-1:] != [value]:
            fitting = (column for column, stack in enumerate(self.stacks) if stack[-1:] == [value])
            self.held = next(fitting, NOBODY)

    def note(self, action: int) -> None:
        """Remember an action: the time that it takes and what it does to the hand."""
        is_fall = action == self._rules.columns
        if not is_fall:
            self._toggle(action)
        if is_fall and self._rules.fast_forward:
            self._elapsed = self._due
        else:
            self._elapsed += self._rules.action_ms
        if is_fall or self._elapsed >= self._due:
            self._due = self._rules.schedule.next_fall(self._elapsed)

    def falls(self, steps: Sequence[int], *, after_fall: bool = False) -> list[int]:
        """Return how many scheduled falls come with each of these stretches, given by their actions.

        With `after_fall` the first stretch follows on a manual fall of one row.
        """
        elapsed, due = self._elapsed, self._due
        if after_fall:
            elapsed += self._rules.action_ms
            due = self._rules.schedule.next_fall(elapsed)
        counts: list[int] = []
        for stretch in steps:
            elapsed += stretch * self._rules.action_ms
            counts.append(0)
            while due <= elapsed:
                counts[-1] += 1
                due = self._rules.schedule.next_fall(due)
        return counts

    def _toggle(self, column: int) -> None:
        stack = self.stacks[column]
        if self.held == NOBODY:
            self.held = column if stack else NOBODY
        elif column == self.held or len(stack) < self._rules.height:
            self.held = NOBODY
