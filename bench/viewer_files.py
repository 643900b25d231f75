"""Ledgers that the viewer is measured with, and the addresses of its pages.

Rule 1: what is recorded is a real search of the plume, with its scenes, in every run the same.
Rule 2: an address holds a code that is good once; who has it drives the browser.
"""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Raw

from bench.control_servers import PATIENCE, Server, ended
from bench.ledger_events import NOON, begun, opened, stepped
from bench.ledger_files import OPERATORS, RECORDED, folder, writer_in
from bench.peers import ROOT
from proctor.envs.settings import make_env
from proctor.models.events import EpisodeClosed, Event

PLUME: Final = "proctor/PlumeSearch-v0"
SESSION: Final = "search"
CHAIN: Final = f"{SESSION}.1"
ROUND: Final = (1, 0, 3, 2)
"""Right, up, left, down, as often as a side is long."""
SIDE: Final = 20
LINK: Final = re.compile(r"http://\S+/viewer/#code=\S+")


def searched(stack: ExitStack, steps: int) -> Path:
    """Return the finished ledger of one search of so many steps, which goes round and round."""
    place = folder(stack)
    with ExitStack() as writing:
        writer = writer_in(writing, place, RECORDED)
        for event in _search(steps):
            writer.record(event)
    return place


def _search(steps: int) -> list[Event]:
    env: Any = make_env(PLUME, {"max_steps": steps + 1}).unwrapped
    env.reset(seed=1, options={"start": (20, 20)})
    reset = msgspec.structs.replace(begun(SESSION), scene=_raw(env.scene()))
    closed = EpisodeClosed(session=SESSION, at=NOON + steps / 1000, epoch=1, steps=steps, reason="closed")
    return [opened(SESSION), reset, *(_step(env, number) for number in range(1, steps + 1)), closed]


def _step(env: Any, number: int) -> Event:
    action = ROUND[number // (SIDE + number // 500) % 4]
    seen, reward, *_ = env.step(action)
    return msgspec.structs.replace(
        stepped(SESSION),
        step=number,
        at=NOON + number / 1000,
        action=_raw({"action": action}),
        observation=_raw({"observation": [float(seen[0])]}),
        raw_reward=float(reward),
        reward=float(reward),
        scene=_raw(env.frame()),
    )


def _raw(value: Any) -> Raw:
    return Raw(msgspec.json.encode(value))


def viewed(stack: ExitStack, place: Path) -> str:
    """Return the address of `proctor view` over a ledger, which `stack` ends."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "proctor", "view", str(place), "--port", "0", "--no-open"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    stack.callback(ended, process)
    out = process.stdout
    for line in iter(out.readline, b"") if out is not None else ():
        found = LINK.search(line.decode())
        if found:
            return found.group()
    raise ChildProcessError("`proctor view` ended without an address")


def linked(server: Server) -> str:
    """Return the address of the pages of a server with a ledger."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    try:
        connection.request("POST", "/operator/link", headers={"Authorization": f"Bearer {OPERATORS}"})
        answer = connection.getresponse()
        found: str = json.loads(answer.read())["url"]
    finally:
        connection.close()
    return found
