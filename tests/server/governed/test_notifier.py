"""The bell: it wakes all who wait, and nobody waits for ever."""

from __future__ import annotations

import asyncio

from proctor.server.governed.packet_stream import Notifier
from tests.server.bare_sessions import run


def test_it_wakes_all_who_wait() -> None:
    async def scenario() -> None:
        bell = Notifier()
        waits = [asyncio.create_task(bell.wait(15)) for _ in range(3)]
        await asyncio.sleep(0)
        waiting = bell.waiting

        bell.notify()
        await asyncio.gather(*waits)

        assert (waiting, bell.waiting) == (3, 0)

    run(scenario())


def test_who_waits_in_vain_goes_on_after_a_while() -> None:
    async def scenario() -> None:
        bell = Notifier()

        await bell.wait(0.001)

        assert bell.waiting == 0

    run(scenario())


def test_a_bell_that_rang_before_is_not_heard() -> None:
    async def scenario() -> None:
        bell = Notifier()
        bell.notify()
        wait = asyncio.create_task(bell.wait(15))
        await asyncio.sleep(0)
        done = wait.done()

        bell.notify()
        await wait

        assert not done

    run(scenario())
