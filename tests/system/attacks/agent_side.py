"""All attacks from the agent's side: an address and a token in the hand, and nothing else."""

from __future__ import annotations

from typing import Final

from tests.system.attacks import arguments, doors, exhaustion, messages, tokens
from tests.system.attacks.scene import AGENTS

CHAPTERS: Final = (arguments, doors, exhaustion, messages, tokens)
"""Read, so that their attacks are in the book."""

__all__ = ["AGENTS", "CHAPTERS"]
