"""Attacks by name, and what became of each.

Rule 1: an attack is a function with a docstring that says what is tried. It returns how it was stopped, in a few words, and
    raises `Reached` if it was not.
Rule 2: a name is taken once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

SceneT = TypeVar("SceneT")
WIDTH = 100


class Reached(AssertionError):
    """An attack got where it must not get."""


@dataclass(frozen=True, slots=True)
class Attack(Generic[SceneT]):
    """One attack: its name, what it tries, and how it is done."""

    name: str
    tried: str
    run: Callable[[SceneT], str]


@dataclass(slots=True)
class Book(Generic[SceneT]):
    """The attacks of one side."""

    attacks: dict[str, Attack[SceneT]] = field(default_factory=dict)

    def attack(self, run: Callable[[SceneT], str]) -> Callable[[SceneT], str]:
        """Take a function down as an attack."""
        return self.named(run.__name__, run)

    def named(self, name: str, run: Callable[[SceneT], str]) -> Callable[[SceneT], str]:
        """Take a function down under another name than its own."""
        tried = inspect.getdoc(run)
        if not tried or name in self.attacks:
            raise LookupError(f"an attack without a docstring, or one that is there already: {name}")
        self.attacks[name] = Attack(name, tried.partition("\n")[0], run)
        return run

    def __iter__(self) -> Iterator[str]:
        return iter(self.attacks)

    def __len__(self) -> int:
        return len(self.attacks)


def table(stopped: Mapping[str, str]) -> str:
    """Return what became of each attack, a line each."""
    longest = max(map(len, stopped), default=0)
    rows = (f"{name:<{longest}}  {' '.join(how.split())[:WIDTH]}" for name, how in sorted(stopped.items()))
    return "\n".join(("attack".ljust(longest) + "  how it was stopped", *rows))


def check(holds: bool, reached: str) -> None:
    """Raise `Reached` unless it holds."""
    if not holds:
        raise Reached(reached)
