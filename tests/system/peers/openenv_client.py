"""OpenEnv's own clients against a server of ours: `python openenv_client.py URL`, in the environment of OpenEnv.

It does what an OpenEnv user does and prints what was found as one JSON object; the test judges.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable
from dataclasses import asdict
from typing import Any

from openenv.core.generic_client import GenericEnvClient
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

Found = dict[str, Any]


async def failure(call: Awaitable[object]) -> str:
    """Return the class and the text of the exception that a call ends with."""
    try:
        return f"no failure: {await call}"
    except Exception as problem:  # noqa: BLE001  # whatever the peer's client makes of it is what is asked
        return f"{type(problem).__name__}: {problem}"


async def an_episode(url: str) -> Found:
    """Reset, step, state, close."""
    async with GenericEnvClient(base_url=url) as client:
        begun = await client.reset(seed=1, episode_id="ep1")
        steps = [await client.step({"message": f"word {number}"}) for number in range(3)]
        return {"reset": asdict(begun), "steps": [asdict(step) for step in steps], "state": await client.state()}


async def errors(url: str) -> Found:
    """What is refused, and that the episode goes on afterwards."""
    async with GenericEnvClient(base_url=url) as client:
        found = {"before the reset": await failure(client.step({"message": "x"}))}
        await client.reset(episode_id="ep2")
        await client.step({"message": "one"})
        found["bad action"] = await failure(client.step({"massage": "x"}))
        found["bad reset"] = await failure(client.reset(seed="seven"))
        going_on = await client.step({"message": "two"})
        found["broken"] = await failure(client.step({"message": "break"}))
        found["after the break"] = await failure(client.step({"message": "x"}))
        begun = await client.reset(episode_id="ep3")
    return {**found, "going on": asdict(going_on), "begun again": asdict(begun)}


async def raw_messages(url: str) -> Found:
    """What its client never sends."""
    async with connect(url.replace("http", "ws", 1) + "/ws", proxy=None) as socket:

        async def said(message: str | bytes) -> Any:
            await socket.send(message)
            return json.loads(await socket.recv())

        found = {
            "unknown type": await said('{"type":"dance"}'),
            "no JSON": await said("{"),
            "an array": await said("[]"),
            "additional key": await said('{"type":"state","extra":1}'),
            "binary": await said(b"\x00\x01"),
            "reset": await said('{"type":"reset"}'),
        }
        await socket.send('{"type":"close"}')
        try:
            await socket.recv()
        except ConnectionClosed as closed:
            found["closed with"] = closed.rcvd.code if closed.rcvd else None
    return found


async def a_slow_step(url: str) -> Found:
    """A step that takes many times what a ping may take."""
    client = GenericEnvClient(base_url=url, websocket_ping_interval_s=0.2, websocket_ping_timeout_s=1.0)
    async with client:
        await client.reset()
        return asdict(await client.step({"message": "slower"}))


def the_sync_way(url: str) -> Found:
    """The synchronous face."""
    with GenericEnvClient(base_url=url).sync() as client:
        begun = client.reset(seed=1)
        stepped = client.step({"message": "sync"})
        state = client.state()
    return {"reset": asdict(begun), "step": asdict(stepped), "state": state}


async def wrong_secret(url: str) -> str:
    """The same address with another secret."""
    scheme, _, rest = url.partition("://")
    client = GenericEnvClient(base_url=f"{scheme}://proctor:not-the-secret-0123@{rest.rpartition('@')[2]}")
    return await failure(client.connect())


async def with_a_header(url: str) -> Found:
    """The secret as a header instead of in the address."""
    scheme, _, rest = url.partition("://")
    user, _, place = rest.rpartition("@")
    headers = {"Authorization": f"Bearer {user.partition(':')[2]}"}
    async with GenericEnvClient(base_url=f"{scheme}://{place}", headers=headers) as client:
        return asdict(await client.reset())


async def everything(url: str) -> Found:
    """Return what each part found, by its name."""
    parts = (an_episode, errors, raw_messages, a_slow_step, wrong_secret, with_a_header)
    found = {part.__name__: await part(url) for part in parts}
    return {**found, "the_sync_way": await asyncio.to_thread(the_sync_way, url)}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(everything(*sys.argv[1:]))))
