"""All attacks from inside a worker, as they look from outside."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.server.live_server import until
from tests.system.attacks.book import Book, check
from tests.system.attacks.hostile import CHAPTERS, HANGS
from tests.system.attacks.mcp_calls import Caller
from tests.system.attacks.stage import ENDED, LATE, LOST, TOO_LARGE, Stage, family
from tests.system.attacks.within.pipe import FORGED
from tests.system.attacks.within.tries import INSIDE

__all__ = ["CHAPTERS", "WORKERS"]

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
    "a_length_that_is_too_large": TOO_LARGE,
    "errors_without_end": ENDED,
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
        "an_answer_too_many", "answers_while_nobody_asks", "a_forged_incident", "descriptors_for_the_server", "a_very_long_answer", "a_rather_long_answer", "tiny_lists",
        "waits_at_a_meeting", "comes_to_a_meeting", "priorities_of_others", "fork_bomb_that_spreads", "shared_memory",
        "uses_up_counters", "counters_are_left",
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
    too_large = reply["data"].get("code") == "RECORD_TOO_LARGE"
    if reply["type"] == "error" and not too_large:
        stage.is_in_the_log(reply["data"])
        return
    lines = stage.arena.record.lines(stage.record_start)
    events = [line["event"] for line in lines if line["session"] == stage.session.name]
    check(("failed" if too_large else "episode_stepped") in events, f"the record does not tell of the attack: {events}")


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
    """Answer with 7 MB, which is allowed, so that others wait while they are read."""
    reply = stage.attack("a_rather_long_answer")
    _noted(stage, reply)
    stage.heard.clear()

    check(reply["type"] in {"observation", "error"}, f"{str(reply)[:200]}")
    return f"{reply['type']}: and the neighbour went on"


@WORKERS.attack
def an_answer_of_tiny_lists(stage: Stage) -> str:
    """Answer with 7 MB of empty lists, which is allowed, so that the server builds two million values while others wait."""
    Path(f"/proc/{stage.arena.command.process.pid}/clear_refs").write_text("5")  # the most is counted from here
    before = memory(stage)
    reply = stage.attack("tiny_lists")
    grown = memory(stage, "VmHWM") - before
    _noted(stage, reply)
    stage.heard.clear()

    check(reply["type"] == "observation", f"{str(reply)[:200]}")
    check(grown < 120 * 2**20, f"the server built the answer: it was {grown >> 20} MB larger")
    return f"the server was {grown >> 20} MB larger, and the neighbour went on"


def memory(stage: Stage, field: str = "VmRSS") -> int:
    """Return how many bytes of memory the server's own process has, or had at most."""
    status = Path(f"/proc/{stage.arena.command.process.pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(field))


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
def counters_of_one_user(stage: Stage) -> str:
    """Use up what the kernel counts for each user, so that the session next door has nothing left of it."""
    with stage.arena.session() as other:
        other.ask("reset", {})
        taken = other.ask("step", {"attack": "uses_up_counters"})
        check(taken["type"] == "observation", f"nothing is used up: {taken}")
        return stage.refused("counters_are_left")


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
