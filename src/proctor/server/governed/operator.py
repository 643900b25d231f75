"""The operator's acts, over all governed episodes of one server: read, answer, approve, alert, clear, revoke.

Rule 1: an operator never resets and never steps. What it does is a packet or a record of an episode, judged like any other.
Rule 2: an act does not wait for the agent: it is judged at once, whatever call runs.
Rule 3: what cannot be done is a refusal (`answers.Refused`) with a code; what the judge refuses is an answer (`Done`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec import Raw
from msgspec.structs import replace

from proctor.models.control import Code
from proctor.models.operator import Done, GovernedSession, JudgedPage, Waiting
from proctor.server.answers import refused
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
    async def answer(self, id: str, *, choice: str | None = None, text: str = "") -> Done:  # noqa: A002  # its name
        """Answer the escalation `id`, by the id of one of its options, in words, or both."""
        if choice is None and not text:
            raise refused(Code.VALIDATION_ERROR, "an answer says something", expected="a choice, a text, or both")
        return await self._asking(id).acts.answer(id, choice, text)

    async def approve(
        self,
        id: str,  # noqa: A002  # its name
        *,
        uses: int | None = None,
        life_seconds: float | None = None,
        text: str = "",
    ) -> Done:
        """Issue the token of the request `id`; `uses` and `life_seconds` may make it smaller than was asked for."""
        return await self._asking(id).acts.approve(id, uses, life_seconds, text)

    async def deny(self, id: str, *, text: str = "") -> Done:  # noqa: A002  # its name
        """Refuse the token of the request `id`."""
        return await self._asking(id).acts.deny(id, text)

    # ----------------------------------------------------------------------------------------------------------- acts
    async def alert(self, session: str, severity: str, summary: str, *, epoch: int | None = None) -> Done:
        """State an IntegrityAlertPacket in the session's episode; CRITICAL is safe mode, and stops its agents at once."""
        return await self._governor(session, epoch).acts.alert(severity, summary)

    async def clear(self, session: str, summary: str = "", *, epoch: int | None = None) -> Done:
        """Lift the safe mode of the session's episode."""
        return await self._governor(session, epoch).acts.clear(summary)

    async def revoke(self, session: str, *, token_id: str | None = None, grant: str | None = None) -> Done:
        """Take a token back, or an agent's grant; exactly one of the two is named."""
        if (token_id is None) == (grant is None):
            raise refused(Code.VALIDATION_ERROR, "one thing is revoked at a time", expected="a token_id or a grant")
        governor = self._governor(session)
        if token_id is not None:
            return await governor.acts.revoke(token_id)
        return await self._grant_revoked(governor, grant or "")

    async def approve_budget(
        self,
        session: str,
        *,
        token_budget: int = 0,
        tool_call_budget: int = 0,
        time_budget_seconds: int = 0,
        note: str = "",
    ) -> Done:
        """Add to what may be spent in the session's episode."""
        return await self._governor(session).acts.approve_budget(
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

    def _governor(self, session: str, epoch: int | None = None) -> Governor:
        found = self._registry.find(session)
        if found is not None and epoch not in (None, found.epoch):
            raise refused(
                Code.VALIDATION_ERROR, "this episode is over: its session has gone on", expected=f"epoch {found.epoch}"
            )
        if found is None:
            raise refused(
                Code.VALIDATION_ERROR,
                "there is no such session with a governed episode",
                expected="one that `sessions` lists",
            )
        return found

    def _asking(self, waiting: str) -> Governor:
        """Return the governor of the episode in which this waits."""
        for governor in self._registry:
            if governor.acts.waits(waiting):
                return governor
        raise refused(
            Code.VALIDATION_ERROR,
            "nothing of this id waits: it was answered, or its episode is over",
            expected="one that `pending` lists",
        )
