"""The environment whose agents attack: it says back what it is told, and keeps what no agent may see.

Rule 1: what is hidden follows from the seed, so that whoever finds it in an agent's bytes knows whose it is.
Rule 2: an observation says everything about its episode: what was said last, and how often something was.
"""

from __future__ import annotations

import threading
from typing import Annotated, Final

from pydantic import Field

from proctor.contracts.environment import Environment
from proctor.contracts.tools import ToolSafety, tool
from proctor.models.wire import Action, Observation, State

REWARD: Final = 0.8731946527
"""Of every step; no agent is told."""
PAUSE: Final = "pause"
PAUSE_SECONDS: Final = 0.1
END: Final = "end"
BREAK: Final = "break"
HIDDEN_PREFIX: Final = "buried-under-"


def hidden_by(seed: int) -> str:
    """Return what an episode of this seed hides."""
    return f"{HIDDEN_PREFIX}{seed}"


class Word(Action):
    """What to say."""

    word: str = Field(max_length=1000)


class Heard(Observation):
    """What was said last, and how often something was."""

    heard: str = ""
    count: int = 0


class VaultState(State):
    """Where it stands, and what is in it."""

    hidden: str = ""


class Vault(Environment[Word, Heard, VaultState]):
    """Says back what it is told."""

    max_agents = 2

    def __init__(self) -> None:
        self._seen = Heard()
        self._episode_id: str | None = None
        self._hidden = ""
        self._secrets: dict[str, int | str | None] = {}

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Heard:
        self._episode_id, self._hidden = episode_id, hidden_by(seed or 0)
        self._secrets = {"seed": seed, "hidden": self._hidden}
        self._seen = Heard(metadata=dict(self._secrets))
        return self._seen

    def step(self, action: Word) -> Heard:
        if action.word == PAUSE:
            threading.Event().wait(PAUSE_SECONDS)
        if action.word == BREAK:
            raise RuntimeError(f"broken, with {self._hidden}")
        self._seen = Heard(
            heard=action.word,
            count=self._seen.count + 1,
            reward=REWARD,
            terminated=action.word == END,
            metadata=dict(self._secrets),
        )
        return self._seen

    @property
    def state(self) -> VaultState:
        return VaultState(episode_id=self._episode_id, step_count=self._seen.count, hidden=self._hidden)

    @tool(ToolSafety.READ)
    def look(self) -> Heard:
        """Show what was said last."""
        return self._seen

    @tool(ToolSafety.READ)
    def spell(self, text: str, backwards: bool = False) -> str:
        """Spell a text, forwards or backwards."""
        return text[::-1] if backwards else text

    @tool(ToolSafety.WRITE)
    def say(self, word: str, times: Annotated[int, Field(ge=1, le=20)] = 1) -> list[Word]:
        """Say a word, up to 20 times."""
        return [Word(word=word)] * times
