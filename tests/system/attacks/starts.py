"""Attacks with what happens before a session: the import, the making, and what an environment says of itself.

Each has a server of its own; isolation of host and server is promised against all of it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Final

from tests.server.commands import Command
from tests.server.live_server import Session, Talk, until
from tests.system.attacks.arena import CANARIES, Arena, without
from tests.system.attacks.book import Book, check
from tests.system.attacks.stage import ENDED, clue_of, family, listening
from tests.system.attacks.treacherous import HANG_THE_NEXT, LET_THE_NEXT
from tests.system.attacks.wire import Wire

TREACHEROUS: Final = "tests.system.attacks.treacherous:Treacherous"
FORGER: Final = "tests.system.attacks.forger:Forger"
SLOW: Final = "tests.system.attacks.slow_import:Slow"
IMPORT_SECONDS: Final = 120.0
"""How long a server may take to give up an import; it waits for 60 seconds, beside its own start."""

STARTS: Final[Book[Arena]] = Book()
"""The attacks by code that runs in the zygote; each is given a server whose module is treacherous."""


@STARTS.attack
def the_host_from_the_zygote(arena: Arena) -> str:
    """Take from workers, while the module is imported, the code that would confine them, and go for host and server."""
    start = arena.record.end
    with arena.session() as session, listening():
        session.ask("reset", {})
        reply = session.ask("step", {"attack": "the_host_from_the_zygote", "clue": asdict(clue_of(arena))})
        seen = reply["data"]["observation"]
        unharmed(arena)

        check(not seen["reached"] and bool(seen["denied"]), f"reached: {seen['reached']}")
        check(any("denied" in json.dumps(line) for line in arena.record.lines(start)), "it is not on record")
        without(CANARIES, json.dumps(reply).encode(), "what the attack reported")
    return f"{len(seen['denied'])} refused by bubblewrap and by being nobody, as {seen['denied'][1]}"


@STARTS.attack
def hunger_of_the_unconfined(arena: Arena) -> str:
    """Take all memory and all processes with workers that were never confined; the cgroup is the server's own doing."""
    start = arena.log.end
    with arena.session() as session:
        session.ask("reset", {})
        forks = session.ask("step", {"attack": "fork_bomb"})["data"]["observation"]
        memory = session.ask("step", {"attack": "memory_bomb"})["data"]
        unharmed(arena)

        check(not forks["reached"], f"{forks['reached']}")
        check(memory.get("code") in ENDED and "memory" in memory["message"], f"{memory}")
        arena.logged(start, memory["incident"])
    return f"{forks['denied'][0]}; {memory['message']}"


@STARTS.attack
def hangs_while_it_is_made(arena: Arena) -> str:
    """Never come back from the making of the next environment, so that whoever opens a session waits for ever."""
    with arena.session() as session:
        session.ask("reset", {})
        session.ask("step", {"word": HANG_THE_NEXT})
        workers = len(family(arena.command.process.pid))
        with arena.talk() as talk, hung_up(talk):
            until(lambda: len(family(arena.command.process.pid)) > workers)
            others = session.ask("step", {"word": "meanwhile"})
            unharmed(arena)
        until(lambda: len(family(arena.command.process.pid)) <= workers)
        session.ask("step", {"word": LET_THE_NEXT})

        check(others["type"] == "observation", f"others do not go on: {others}")
    return "others go on; the worker goes with the client that waits for it"


@contextmanager
def hung_up(talk: Talk) -> Iterator[None]:
    """Ask for a session that will not come; the connection is closed when the block ends."""
    thread = threading.Thread(target=_opened, args=(talk,), daemon=True)
    thread.start()
    yield
    talk.socket.close()
    thread.join(300)


def _opened(talk: Talk) -> None:
    # Whatever comes of it, nobody is there to hear it.
    with suppress(Exception):
        Session(talk)


def unharmed(arena: Arena) -> None:
    """Raise unless server and host are as they were."""
    check(arena.alive, "the server died")
    check(
        [Wire(port).ask("GET", "/health").status for port in (arena.control_port, arena.agent_port)] == [200, 200],
        "the server does not answer",
    )
    home: Path = arena.canary_file.parent
    check(
        arena.canary_file.read_text() in CANARIES and not list(home.rglob("*pwned*")), "the host's folder was changed"
    )


def refused_to_start(command: Command, words: str, seconds: float) -> str:
    """Return why a server did not start, or raise that it did."""
    code = command.process.wait(seconds)
    said = command.log + command.out

    check(code != 0 and words in said, f"it ended with {code}: {said[-500:]}")
    check("\nTraceback" not in f"\n{said}", f"it ended with a traceback: {said[-500:]}")
    return said[said.index("proctor: ") :]
