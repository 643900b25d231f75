"""One hostile session: what is asked of its worker, what must come of it, and what is looked at afterwards.

Rule 1: an attack that the kernel refuses and the environment reports is a step like any other: its report is on record, and
    says that nothing was reached.
Rule 2: an attack that ends its worker ends its session with a coded error, and the log has the incident.
Rule 3: whatever it is, the session next door hears what it would have heard without it.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.server.live_server import Session
from tests.system.attacks.arena import CANARIES, Arena, without
from tests.system.attacks.book import check
from tests.system.attacks.neighbour import Neighbour
from tests.system.attacks.wire import Wire
from tests.system.attacks.within.tries import Clue

CONFIG: Final = """
step_timeout_seconds = 6.0
[worker]
memory_mb = 384
processes = 40
tmp_mb = 16
file_mb = 8
open_files = 128
"""
TOKEN_FILE: Final = "token"
SERVER_FILES: Final = ("err", "record.jsonl", "state", "settings.toml")
ABSTRACT: Final = "a-name-of-the-host"
ENDED: Final = frozenset({"EXECUTION_ERROR"})
LATE: Final = frozenset({"STEP_TIMEOUT"})
TOO_LARGE: Final = frozenset({"TOO_LARGE"})
LOST: Final = ENDED | LATE


@dataclass
class Stage:
    """One hostile session, and who must not notice it."""

    arena: Arena
    neighbour: Neighbour
    session: Session
    clue: Clue
    log_start: int
    record_start: int
    heard: list[dict[str, Any]] = field(default_factory=list)

    def attack(self, name: str, **clue: Any) -> dict[str, Any]:
        """Return the reply to a step in which the environment does this, while the neighbour goes on."""
        move = {"word": "attack", "attack": name, "clue": asdict(self.clue) | clue}
        reply = self.neighbour.during(lambda: self.session.ask("step", move))
        self.heard.append(reply)
        return reply

    def refused(self, name: str, **clue: Any) -> str:
        """Have an attack tried that the environment survives; return how it was stopped."""
        reply = self.attack(name, **clue)
        check(reply["type"] == "observation", f"the worker did not survive: {reply}")
        seen = reply["data"]["observation"]
        check(not seen["reached"] and bool(seen["denied"]), f"reached: {seen['reached']}; denied: {seen['denied']}")
        self.goes_on()
        self.is_on_record(name)
        return f"{len(seen['denied'])} refused, as {seen['denied'][0]}"

    def ended(self, name: str, codes: frozenset[str] = ENDED) -> str:
        """Have an attack tried that must end the session; return how."""
        reply = self.attack(name)
        check(
            reply["type"] == "error" and reply["data"]["code"] in codes,
            f"the session was not ended: {str(reply)[:500]}",
        )
        self.is_in_the_log(reply["data"])
        self.begins_anew()
        return f"{reply['data']['code']}: {reply['data']['message'][:80]}"

    def goes_on(self) -> None:
        """Raise unless the hostile session itself is still served."""
        check(self.session.ask("step", {"word": "after"})["type"] == "observation", "the session does not go on")

    def begins_anew(self) -> None:
        """Raise unless the session is lost until a reset, and only until then."""
        lost = self.session.ask("step", {"word": "after"})
        check(lost["data"].get("code") == "EPISODE_LOST", f"the episode went on: {lost}")
        check(self.session.ask("reset", {})["type"] == "observation", "there is no new episode")

    def is_on_record(self, name: str) -> None:
        """Raise unless the record tells of the attack, and of what came of it."""
        lines = [line for line in self.arena.record.lines(self.record_start) if line["session"] == self.session.name]
        steps = [line for line in lines if line["event"] == "episode_stepped" and line["action"].get("attack") == name]
        check(bool(steps) and "denied" in steps[0]["observation"], "the record does not tell of the attack")

    def is_in_the_log(self, problem: dict[str, Any]) -> None:
        """Raise unless the log tells of the incident, and the record of the failure."""
        check(bool(problem.get("incident")), f"there is no incident: {problem}")
        self.arena.logged(self.log_start, problem["incident"])
        failures = [line for line in self.arena.record.lines(self.record_start) if line["event"] == "failed"]
        check(any(line["incident"] == problem["incident"] and line["lost"] for line in failures), "it is not on record")

    def check(self) -> None:
        """Raise unless host and server are as they were, and nothing was found out."""
        assert self.arena.alive
        assert [
            Wire(port).ask("GET", "/health").status for port in (self.arena.control_port, self.arena.agent_port)
        ] == [200, 200]
        home = self.arena.canary_file.parent
        assert self.arena.canary_file.read_text() in CANARIES
        assert not list(home.rglob("*pwned*"))
        assert not list(home.rglob("core*"))
        without((*CANARIES, "neighbour-"), json.dumps(self.heard).encode(), "what the attack reported")
        without(CANARIES, self.arena.log.text(self.log_start), "the log")


@contextmanager
def stage_of(arena: Arena, neighbour: Neighbour) -> Iterator[Stage]:
    """Give a hostile environment a session, and tell it all that can be known of the host."""
    with arena.session() as session, listening():
        session.ask("reset", {"seed": 5})
        session.ask("step", {"word": "before"})
        yield Stage(arena, neighbour, session, clue_of(arena), arena.log.end, arena.record.end)


@contextmanager
def listening() -> Iterator[None]:
    """Have the host listen on an abstract name."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind("\0" + ABSTRACT)
        listener.listen()
        yield


def clue_of(arena: Arena) -> Clue:
    """Return all that an attack could wish to know."""
    home = arena.command.home
    return Clue(
        control_port=arena.control_port,
        agent_port=arena.agent_port,
        server_pid=arena.command.process.pid,
        sandbox_pids=family(arena.command.process.pid),
        abstract=ABSTRACT,
        addresses=sorted({str(found[4][0]) for found in socket.getaddrinfo(socket.gethostname(), 80, socket.AF_INET)}),
        files=[str(arena.canary_file), *(str(home / name) for name in (TOKEN_FILE, *SERVER_FILES))],
        folder=str(home),
    )


def family(pid: int) -> list[int]:
    """Return the children of a process, theirs, and so on."""
    found: list[int] = []
    # Processes come and go while they are counted.
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *family(child)]
    return found
