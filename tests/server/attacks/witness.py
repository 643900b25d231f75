"""A session that goes on while its server is attacked, and that knows exactly what it must hear.

Rule 1: every word is new, so that an answer for another session, another step or another episode is noticed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.server.attacks.raw_socket import Address, RawSocket

HELLO = {"type": "hello", "id": 1, "data": {"protocols": [1]}}
STEPS_AN_EPISODE = 50
PACE = 0.005
"""Seconds between two steps: the witness looks on and leaves the machine to the attack."""


class Touched(AssertionError):
    """The witness heard something else than it had to."""


class Witness:
    """One session, stepped until it is told to stop; `steps` counts what was exactly right."""

    def __init__(self, raw: RawSocket, name: str) -> None:
        self._raw = raw
        self._name = name
        self._ids = iter(range(2, 2**53))
        self._stopped = False
        self.session: str | None = None
        self.resume_token = ""
        self.steps = 0

    @classmethod
    async def in_base_mode(cls, address: Address) -> Witness:
        """Return a witness that speaks OpenEnv's messages only."""
        return cls(await RawSocket.upgraded(address), "base")

    @classmethod
    async def after_hello(cls, address: Address) -> Witness:
        """Return a witness in a session of Proctor's protocol."""
        witness = cls(await RawSocket.upgraded(address), "hello")
        await witness._raw.ask(HELLO)
        opened = await witness._raw.ask({"type": "open", "id": 1, "data": {}})
        witness.session = opened["session"]
        witness.resume_token = opened["data"]["resume_token"]
        return witness

    def stop(self) -> None:
        """End after the step under way."""
        self._stopped = True

    async def testify(self) -> None:
        """Play episode after episode, or raise Touched."""
        epoch = 0
        while not self._stopped:
            epoch += 1
            await self._play(epoch)
        self._raw.reset()

    async def _play(self, epoch: int) -> None:
        begun = await self._ask("reset", epoch, {"episode_id": f"{self._name}-{epoch}"})
        self._check(begun["data"]["observation"], {"echoed": "", "count": 0})
        for step in range(1, STEPS_AN_EPISODE + 1):
            word = f"{self._name} {epoch} {step}"
            heard = (await self._ask("step", epoch, {"message": word}))["data"]
            self._check(heard["observation"], {"echoed": word, "count": step})
            self._check((heard["reward"], heard["done"]), (1.0, False))
            self._check(heard.get("step", step), step)
            self._check(heard.get("episode_id", f"{self._name}-{epoch}"), f"{self._name}-{epoch}")
            self.steps += 1
            await asyncio.sleep(PACE)
        state = await self._ask("state", epoch, None)
        self._check(state["data"]["step_count"], STEPS_AN_EPISODE)
        self._check(state["data"]["episode_id"], f"{self._name}-{epoch}")

    async def _ask(self, kind: str, epoch: int, data: dict[str, Any] | None) -> Any:
        message: dict[str, Any] = {"type": kind}
        if data is not None:
            message["data"] = data
        if self.session is not None:
            message |= {"id": next(self._ids), "session": self.session}
            message |= {"epoch": epoch} if kind == "step" else {}
        reply = await self._raw.ask(message)
        if reply["type"] == "error":
            raise Touched(f"the {self._name} witness asked for {message} and heard {reply}")
        if self.session is not None:
            self._check((reply["id"], reply["session"], reply["epoch"]), (message["id"], self.session, epoch))
        return reply

    def _check(self, found: object, expected: object) -> None:
        if found != expected:
            raise Touched(f"the {self._name} witness heard {found!r} where {expected!r} was right")


@asynccontextmanager
async def watched(address: Address) -> AsyncIterator[tuple[Witness, ...]]:
    """Give two witnesses that step along; at the end both must have been right to the last step."""
    witnesses = (await Witness.in_base_mode(address), await Witness.after_hello(address))
    async with asyncio.TaskGroup() as group:
        for witness in witnesses:
            group.create_task(witness.testify())
        try:
            yield witnesses
        finally:
            for witness in witnesses:
                witness.stop()


def complain_of(witnesses: tuple[Witness, ...]) -> list[str]:
    """Return that a witness made no step, if one made none."""
    steps = [witness.steps for witness in witnesses]
    return [] if min(steps) else [f"a witness stood still: {steps}"]
