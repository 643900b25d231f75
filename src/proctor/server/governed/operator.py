"""The operator's acts, over all governed episodes of one server: read, answer, approve, alert, clear, revoke.

Rule 1: an operator never resets and never steps. What it does is a packet or a record of an episode, judged like any other.
Rule 2: an act does not wait for the agent: it is judged at once, whatever call runs.
Rule 3: an act names its episode by session and epoch, and an answer its question; it never reaches another one.
Rule 4: what cannot be done is a refusal (`answers.Refused`) with a code; what the judge refuses is an answer (`Done`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec import Raw
from msgspec.structs import replace

from proctor.models.control import Code
from proctor.models.operator import Done, GovernedSession, InEpisode, JudgedPage, NamedQuestion, Waiting
from proctor.server.answers import refused
from proctor.server.governed.acts import Acts
from proctor.server.governed.governor import Governor
from proctor.server.governed.registry import Registry

MOST_ROWS: Final = 1000
"""Of one answer to `watch`."""
LONGEST_WAIT: Final = 60.0
Revoking = Callable[[Governor, str], Awaitable[bool]]
"""Takes a grant of the governor's session back; says whether it was live."""
Naming = Callable[[Governor], dict[str, str]]
"""What the agents of the governor's episode are called, by their grants."""


class Operator:
    """What an operator can do; `revoke_grant` and `agents_of` are set by whoever knows the grants."""

    def __init__(self, registry: Registry[Governor]) -> None:
        self._registry = registry
        self.revoke_grant: Revoking | None = None
        self.agents_of: Naming = lambda _: {}

    # -------------------------------------------------------------------------------------------------------- reading
    def pending(self) -> list[Waiting]:
        """Return what waits for an operator, the oldest first."""
        found = [waiting for governor in self._registry for waiting in self._named(governor)]
        return sorted(found, key=lambda waiting: waiting.since)

    def sessions(self) -> list[GovernedSession]:
        """Return how every governed episode stands that runs, in the order of their beginnings."""
        return [replace(each.standing(), agent=self._agents(each)) for each in self._registry]

    async def watch(self, after: int = 0, wait_seconds: float = 20.0) -> JudgedPage:
        """Return the lines after row `after` (each a JudgedRow), as soon as there are some or the wait is over.

        Who has seen more rows than there are has seen another run of the server, and is told at once.
        """
        rows = self._registry.rows
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(max(wait_seconds, 0.0), LONGEST_WAIT)
        while True:
            page = rows.after(after, MOST_ROWS)
            left = deadline - loop.time()
            if page.rows or page.missed or left <= 0 or after > rows.last:
                return JudgedPage([Raw(row) for row in page.rows], rows.last, page.missed, self._registry.boot)
            await rows.changed(left)

    # -------------------------------------------------------------------------------------------------------- answers
    async def answer(self, asked: NamedQuestion, *, choice: str | None = None, text: str = "") -> Done:
        """Answer an escalation, by the id of one of its options, in words, or both."""
        if choice is None and not text:
            raise refused(Code.VALIDATION_ERROR, "an answer says something", expected="a choice, a text, or both")
        return await self._acts_on(asked).answer(asked.id, choice, text)

    async def approve(
        self, asked: NamedQuestion, *, uses: int | None = None, life_seconds: float | None = None, text: str = ""
    ) -> Done:
        """Issue the token that was asked for; `uses` and `life_seconds` may make it smaller than that."""
        return await self._acts_on(asked).approve(asked.id, uses, life_seconds, text)

    async def deny(self, asked: NamedQuestion, *, text: str = "") -> Done:
        """Refuse the token that was asked for."""
        return await self._acts_on(asked).deny(asked.id, text)

    # ----------------------------------------------------------------------------------------------------------- acts
    async def alert(self, episode: InEpisode, severity: str, summary: str) -> Done:
        """State an IntegrityAlertPacket in the episode; CRITICAL is safe mode, and stops its agents at once."""
        return await self._governor(episode).acts.alert(severity, summary)

    async def clear(self, episode: InEpisode, summary: str = "") -> Done:
        """Lift the safe mode of the episode."""
        return await self._governor(episode).acts.clear(summary)

    async def revoke(self, episode: InEpisode, *, token_id: str | None = None, grant: str | None = None) -> Done:
        """Take a token back, or an agent's grant; exactly one of the two is named."""
        if (token_id is None) == (grant is None):
            raise refused(Code.VALIDATION_ERROR, "one thing is revoked at a time", expected="a token_id or a grant")
        governor = self._governor(episode)
        if token_id is not None:
            return await governor.acts.revoke(token_id)
        return await self._grant_revoked(governor, grant or "")

    async def approve_budget(
        self,
        episode: InEpisode,
        *,
        token_budget: int = 0,
        tool_call_budget: int = 0,
        time_budget_seconds: int = 0,
        note: str = "",
    ) -> Done:
        """Add to what may be spent in the episode."""
        return await self._governor(episode).acts.approve_budget(
            token_budget, tool_call_budget, time_budget_seconds, note
        )

    # --------------------------------------------------------------------------------------------------------- inside
    def _named(self, governor: Governor) -> list[Waiting]:
        """Return what waits in one episode, each with the name of who asks."""
        waiting = governor.acts.waiting()
        agents = self.agents_of(governor) if waiting else {}
        return [replace(each, agent=agents.get(each.grant or "", "")) for each in waiting]

    def _agents(self, governor: Governor) -> str:
        return ", ".join(dict.fromkeys(filter(None, self.agents_of(governor).values())))

    async def _grant_revoked(self, governor: Governor, grant: str) -> Done:
        live = self.revoke_grant is not None and await self.revoke_grant(governor, grant)
        reason = "" if live else "there is no such grant that lives"
        return governor.acts.done(accepted=live, reason=reason)

    def _governor(self, episode: InEpisode) -> Governor:
        """Return the governor of the episode that an act names, or refuse: another one runs, or none."""
        found = self._registry.find(episode.session)
        if found is None:
            raise refused(
                Code.VALIDATION_ERROR,
                "there is no such session with a governed episode",
                expected="one that `sessions` lists",
            )
        if found.epoch != episode.epoch:
            raise refused(
                Code.STALE_EPOCH,
                "this is not the episode that runs in the session",
                expected=f"epoch {found.epoch}",
            )
        return found

    def _acts_on(self, asked: NamedQuestion) -> Acts:
        """Return the acts of the episode in which this question waits, or refuse: it does not."""
        found = self._registry.find(asked.session)
        if found is None or found.epoch != asked.epoch or not found.acts.lists(asked.id):
            raise refused(
                Code.STALE_QUESTION,
                "this question does not wait: it was answered or withdrawn, or its episode is over",
                expected="one that `pending` lists",
            )
        return found.acts
