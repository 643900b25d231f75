"""All attacks from inside a worker, as they look from outside: what is asked of the worker, and what must come of it.

Rule 1: an attack that the kernel refuses and the environment reports is a step like any other: its report is on record, and
    says that nothing was reached.
Rule 2: an attack that ends its worker ends its session with a coded error, and the log has the incident.
Rule 3: whatever it is, the session next door hears what it would have heard without it.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.server.served import Session, until
from tests.system.attacks.arena import CANARIES, Arena, without
from tests.system.attacks.book import Book, check
from tests.system.attacks.hostile import HANGS, INSIDE
from tests.system.attacks.mcp_calls import Caller
from tests.system.attacks.neighbour import Neighbour
from tests.system.attacks.wire import Wire
from tests.system.attacks.within.pipe import FORGED
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
ABSTRACT: Final = "a-name-of-the-host"
ENDED: Final = frozenset({"EXECUTION_ERROR"})
LATE: Final = frozenset({"STEP_TIMEOUT"})
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
        addresses=sorted({found[4][0] for found in socket.getaddrinfo(socket.gethostname(), 80, socket.AF_INET)}),
        files=[
            str(arena.canary_file),
            str(home / "err"),
            str(home / "record.jsonl"),
            str(home / "state"),
            str(home / "settings.toml"),
        ],
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


WORKERS: Final[Book[Stage]] = Book()
"""The attacks from inside a worker."""

ENDING: Final[dict[str, frozenset[str]]] = {
    "tracing_ends_the_tracer": ENDED,
    "mounting_ends_the_worker": ENDED,
    "a_call_that_ends_the_worker": ENDED,
    "signals_to_itself": ENDED,
    "memory_bomb": ENDED,
    "memory_in_files": ENDED,
    "a_file_that_is_too_large": ENDED,
    "never_returns": LATE,
    "leaves_at_once": ENDED,
    "exits_by_exception": ENDED,
    "too_deep": ENDED,
    "nonsense": ENDED,
    "a_length_that_is_too_large": ENDED,
    "half_a_message": LATE,
    "a_flood": ENDED,
    "a_pickle": ENDED,
    "a_forged_code": ENDED,
    "injected_fields": ENDED,
    "numbers_that_are_none": ENDED,
    "nested_without_end": ENDED,
    "nested_messages": ENDED,
}
"""Attacks after which there is no worker any more, and with which codes that is told."""
OTHERWISE: Final = frozenset(
    {
        "an_answer_too_many", "answers_while_nobody_asks", "a_forged_incident", "descriptors_for_the_server", "a_very_long_answer", "a_rather_long_answer",
        "waits_at_a_meeting", "comes_to_a_meeting", "priorities_of_others", "fork_bomb_that_spreads", "shared_memory",
    }
)  # fmt: skip
"""Attacks whose end is looked at more closely, below."""


def _generic(name: str) -> Callable[[Stage], str]:
    def run(stage: Stage) -> str:
        return stage.ended(name, ENDING[name]) if name in ENDING else stage.refused(name)

    run.__doc__ = INSIDE[name].__doc__
    return run


for _name in INSIDE:
    if _name not in OTHERWISE:
        WORKERS.named(_name, _generic(_name))


@WORKERS.attack
def an_answer_too_many(stage: Stage) -> str:
    """Answer, and answer again what nobody asked, in the hope that it is taken for the answer to another's question."""
    reply = stage.attack("an_answer_too_many")
    after = stage.session.ask("step", {"word": "after"})
    code = reply["data"].get("code") or after["data"].get("code")

    check(code in LOST | {"EPISODE_LOST"}, f"an answer that nobody asked for was taken: {reply}, {after}")
    stage.is_in_the_log(reply["data"] if reply["type"] == "error" else after["data"])
    stage.session.ask("reset", {})
    return f"{code}: the session is lost"


@WORKERS.attack
def answers_while_nobody_asks(stage: Stage) -> str:
    """Leave a thread behind that goes on talking when the step is over."""
    workers = len(family(stage.arena.command.process.pid))
    stage.attack("answers_while_nobody_asks")
    until(lambda: len(family(stage.arena.command.process.pid)) < workers)
    reply = stage.session.ask("step", {"word": "after"})

    check(reply["data"].get("code") in LOST, f"an answer that nobody asked for was taken: {reply}")
    stage.is_in_the_log(reply["data"])
    return f"{reply['data']['code']}: {reply['data']['message']}"


@WORKERS.attack
def a_forged_incident(stage: Stage) -> str:
    """Answer with an error whose incident and text would begin lines of their own in the log."""
    how = stage.ended("a_forged_incident")
    lines = stage.arena.log.lines(stage.log_start)
    forged = [line for line in lines if line["event"] == FORGED]

    check(not forged, f"the log has a line that nobody wrote: {forged[:1]}")
    check(
        all(b"\x1b" not in line for line in stage.arena.log.text(stage.log_start).splitlines()),
        "the log steers a terminal",
    )
    check(len(stage.arena.log.text(stage.log_start)) < 2**17, "the log was filled")
    return how


@WORKERS.attack
def descriptors_for_the_server(stage: Stage) -> str:
    """Send the server thousands of descriptors, so that it has none left for others."""
    before = _descriptors(stage)
    reply = stage.attack("descriptors_for_the_server")
    until(lambda: _descriptors(stage) <= before + 10)

    check(reply["type"] in {"observation", "error"}, f"{reply}")
    _noted(stage, reply)
    return "the kernel drops what is not asked for"


def _descriptors(stage: Stage) -> int:
    return len(os.listdir(f"/proc/{stage.arena.command.process.pid}/fd"))  # noqa: PTH208


def _noted(stage: Stage, reply: dict[str, Any]) -> None:
    """Raise unless there is a trace of the step, however it ended."""
    if reply["type"] == "error":
        stage.is_in_the_log(reply["data"])
        return
    events = [
        line["event"] for line in stage.arena.record.lines(stage.record_start) if line["session"] == stage.session.name
    ]
    check("episode_stepped" in events, "the record does not tell of the attack")


@WORKERS.attack
def a_very_long_answer(stage: Stage) -> str:
    """Answer with 200 MB, so that nobody else is served while they are read."""
    before = memory(stage)
    reply = stage.attack("a_very_long_answer")
    grown = memory(stage) - before

    check(reply["type"] == "error", f"200 MB were passed on, and the server is {grown >> 20} MB larger")
    stage.is_in_the_log(reply["data"])
    return f"{reply['data']['code']}: {reply['data']['message']}"


@WORKERS.attack
def a_rather_long_answer(stage: Stage) -> str:
    """Answer with eight megabytes, which is allowed, so that others wait while they are read."""
    reply = stage.attack("a_rather_long_answer")
    _noted(stage, reply)
    stage.heard.clear()

    check(reply["type"] in {"observation", "error"}, f"{str(reply)[:200]}")
    return f"{reply['type']}: and the neighbour went on"


def memory(stage: Stage) -> int:
    """Return how many bytes of memory the server's own process has."""
    status = Path(f"/proc/{stage.arena.command.process.pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS"))


@WORKERS.attack
def meetings(stage: Stage) -> str:
    """Meet another hostile session, so that what one was told is known to both: on an abstract name, in folders."""
    name = f"meeting-{os.urandom(6).hex()}"
    with stage.arena.session() as other:
        other.ask("reset", {})
        waits = other.ask("step", {"attack": "waits_at_a_meeting", "clue": {"meeting": name}})
        check(waits["type"] == "observation", f"nobody waits: {waits}")
        return stage.refused("comes_to_a_meeting", meeting=name)


@WORKERS.attack
def shared_memory(stage: Stage) -> str:
    """Meet the session next door in memory and in folders: each of two looks for what the other has left there."""
    with stage.arena.session() as other:
        other.ask("reset", {})
        other.ask("step", {"attack": "shared_memory"})
        return stage.refused("shared_memory")


@WORKERS.attack
def priorities_of_others(stage: Stage) -> str:
    """Make all other processes of the same user slow: their priority, their processors, their limits."""
    others = [pid for pid in stage.clue.sandbox_pids if _exists(pid)]
    before = {pid: _nice(pid) for pid in others}
    how = stage.refused("priorities_of_others")
    slowed = [pid for pid in others if _exists(pid) and _nice(pid) != before[pid]]

    # The attacker's own worker is among them; it may be as slow as it likes.
    check(len(slowed) <= 1, f"{len(slowed)} processes were slowed down")
    return how


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _nice(pid: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, pid)


@WORKERS.attack
def fork_bomb_that_spreads(stage: Stage) -> str:
    """Have every child fork on without end, and leave orphans behind when the session is closed."""
    how = stage.refused("fork_bomb_that_spreads")
    before = len(family(stage.arena.command.process.pid))
    stage.neighbour.during(lambda: stage.session.ask("close"))
    until(lambda: len(family(stage.arena.command.process.pid)) <= max(before - 30, len(stage.clue.sandbox_pids)))
    return f"{how}; {before} processes, and none is left when the session is closed"


@WORKERS.attack
def poisoned_tools(stage: Stage) -> str:
    """Describe a tool in words that would be a new event, a new line in the log, or an order to a terminal."""
    granted = stage.session.ask("grant", {"agent": "reader"}, epoch=stage.session.epoch)["data"]
    check("token" in granted, f"{granted}")
    reader = Caller(stage.arena.agent_port, granted["token"])
    mcp_session = reader.opened()
    replies = [reader.rpc("tools/list", session=each) for each in (mcp_session, None)]
    replies += [
        reader.rpc("tools/call", {"name": "help", "arguments": {}}, session=each) for each in (mcp_session, None)
    ]
    unknown = reader.rpc("tools/call", {"name": "reset", "arguments": {}}, session=mcp_session)
    listed = [[tool["name"] for tool in reply.json()["result"]["tools"]] for reply in replies[:2]]

    check(listed == [["help"]] * 2, f"the list says {listed}")
    check(
        all(
            reply.body.count(b"\ndata: ") <= 2
            and b'\ndata: {"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"reset' not in reply.body
            for reply in replies
        ),
        "an event was forged",
    )
    check("x-mcp-header" not in replies[0].body.decode(), "a schema asks for a header")
    check(unknown.json()["error"]["code"] == -32602, "a tool that was only spoken of can be called")
    stage.arena.logged(stage.log_start, granted["grant"])
    check(
        not [line for line in stage.arena.log.lines(stage.log_start) if line["event"] == "a poisoned line"],
        "a line was forged",
    )
    return "the words stay words: one event, one line, one tool"


@WORKERS.attack
def hangs_in_close(stage: Stage) -> str:
    """Never come back from `close`, so that the session's place is never free again."""
    stage.session.ask("step", {"word": HANGS})
    workers = family(stage.arena.command.process.pid)
    reply = stage.neighbour.during(lambda: stage.session.ask("close"))
    until(lambda: len(family(stage.arena.command.process.pid)) < len(workers))
    closed = [line for line in stage.arena.record.lines(stage.record_start) if line["event"] == "session_closed"]

    check(reply["type"] == "closed" and bool(closed), f"{reply}")
    return "the worker is ended after a while"
