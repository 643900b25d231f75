"""A server as `proctor serve` joins it, in a process that also tells how many tasks its event loop has.

`python -m tests.server.attacks.host SETTINGS`, the settings as JSON. Its first line on standard output is the port; every
line on standard input is answered with the number of tasks. The secret comes from the environment, none means none.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

import uvloop

from proctor.access.credentials import Credential
from proctor.server.app import Keys, Listening, Server
from proctor.server.net.uvicorn_server import bind_tcp, port_of
from proctor.server.settings import parse_settings

SECRET = "PROCTOR_CONTROL_TOKEN"


async def main(settings: str) -> None:
    """Serve until standard input ends."""
    secret = os.environ.get(SECRET)
    listener = bind_tcp("127.0.0.1", 0)
    credential = None if secret is None else Credential.of(secret)
    server = Server(parse_settings(json.loads(settings)), Keys(credential), Listening([listener]))
    serving = asyncio.create_task(server.serve())
    print(port_of(listener), flush=True)
    questions = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(questions), sys.stdin)
    while await questions.readline():
        print(len(asyncio.all_tasks()), flush=True)
    server.stop()
    await serving


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
