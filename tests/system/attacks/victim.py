"""Somebody else's episode, which an attacker must neither move nor read."""

from __future__ import annotations

from typing import Any, Final

from tests.server.live_server import Session
from tests.system.attacks.arena import Arena
from tests.system.attacks.mcp_calls import Caller
from tests.system.attacks.vault import hidden_by

SEED: Final = 1_987_654_321
WORDS: Final = ("one", "two", "three")


class Victim:
    """An episode whose agent has said three words, and says no more."""

    def __init__(self, arena: Arena, session: Session) -> None:
        self.session = session
        begun = session.ask("reset", {"seed": SEED, "episode_id": "of-the-victim", "grant": {"agent": "victim"}})
        self.granted: dict[str, Any] = begun["data"]["grant"]
        self.agent = Caller(arena.agent_port, self.granted["token"])
        self.mcp_session = self.agent.opened()
        for word in WORDS:
            self.agent.call("say", {"word": word}, session=self.mcp_session)
        self._stood = self._stand()
        assert self._stood[0]["steps"] == len(WORDS), self._stood

    @property
    def canaries(self) -> tuple[str, ...]:
        """What nobody else may learn."""
        return (
            *(self.granted["token"], self.granted["grant"], self.session.opened["resume_token"], self.session.name),
            *(str(SEED), hidden_by(SEED), "of-the-victim"),
        )

    def check(self) -> None:
        """Raise unless the episode is exactly where it was, and its agent can go on."""
        seen = self.agent.call("look", {}, session=self.mcp_session)

        assert self._stand() == self._stood
        assert seen["structuredContent"]["observation"] == {"heard": WORDS[-1], "count": len(WORDS)}

    def _stand(self) -> tuple[Any, Any]:
        return self.session.ask("wait_end", {"wait_seconds": 0})["data"], self.session.ask("state")["data"]
