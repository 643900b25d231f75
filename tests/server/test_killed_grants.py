"""A server process that is ended by SIGKILL while agents hold grants: which tokens are good afterwards, and what was done."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from proctor.client import OperatorClient
from proctor.errors import RemoteError
from proctor.ledger.reader import Ledger
from proctor.models.events import EpisodeStepped, PacketJudged
from proctor.models.operator import question_name
from tests.server.commands import ROOT, START_SECONDS, Command, serve, variables
from tests.server.live_server import PATIENCE, until
from tests.server.mcp_agents import Answer, agent_with, lets_in
from tests.server.restarts import Add, Adding, Sum
from tests.server.test_workers import TOKEN, Visitor

pytestmark = pytest.mark.slow

OPERATORS = "the-operator-secret-0123456789"
HELD = 7


class Gated(Adding):
    """Adds up; who adds 7 waits until there is a file `open` in the folder, and says so by a file `reached`."""

    quick = False

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = Path(folder)

    def step(self, action: Add) -> Sum:
        if action.by == HELD:
            (self._folder / "reached").touch()
            until((self._folder / "open").exists)
        return super().step(action)


class Killed:
    """A server with a ledger that is killed and started again on the same ports."""

    def __init__(self, stack: ExitStack, folder: Path, *arguments: str) -> None:
        self._stack = stack
        self._folder = folder
        self.ledger = folder / "ledger"
        self._arguments = (*arguments, "--json", "--agent-port", "0", "--ledger", str(self.ledger))
        self.command = self._start("0")
        self.url: str = self.command.document["url"]

    @property
    def websocket(self) -> str:
        found: str = self.command.document["websocket"]
        return found

    def visitor(self) -> Visitor:
        visitor = Visitor(self.websocket)
        self._stack.callback(visitor.close)
        return visitor

    def kill(self) -> None:
        self.command.stopped(signal.SIGKILL)

    def start_again(self) -> None:
        self.command = self._start(self.url.rpartition(":")[2])
        assert self.command.document["url"] == self.url

    def _start(self, port: str) -> Command:
        tokens = {**TOKEN, "PROCTOR_OPERATOR_TOKEN": OPERATORS}
        return self._stack.enter_context(serve(self._folder / "home", *self._arguments, "--port", port, more=tokens))

    def verify(self, *options: str) -> tuple[int, dict[str, Any]]:
        """Return the exit code of `proctor ledger verify`, and what it says."""
        done = subprocess.run(
            [sys.executable, "-m", "proctor", "ledger", "verify", str(self.ledger), "--json", *options],
            cwd=ROOT,
            env=variables(self._folder / "home"),
            capture_output=True,
            timeout=START_SECONDS,
            check=False,
        )
        return done.returncode, json.loads(done.stdout)

    def events(self, kind: type[Any]) -> list[Any]:
        with Ledger.open(self.ledger) as ledger:
            return [row.event for row in ledger.all_rows() if isinstance(row.event, kind)]


def use(grant: dict[str, Any], tool: str, **arguments: Any) -> Answer:
    async def call() -> Answer:
        async with asyncio.timeout(PATIENCE), agent_with(grant["address"], grant["token"]) as agent:
            return await agent.use(tool, **arguments)

    return asyncio.run(call())


def is_good(grant: dict[str, Any]) -> bool:
    return asyncio.run(lets_in(grant["address"], grant["token"]))


class Call(threading.Thread):
    """A call that the server does not live to answer."""

    def __init__(self, grant: dict[str, Any], tool: str, **arguments: Any) -> None:
        super().__init__(daemon=True)
        self.answer: Answer | None = None
        self._call = (grant, tool, arguments)
        self.start()

    def run(self) -> None:
        grant, tool, arguments = self._call
        with suppress(BaseException):  # a client library's own ways to say that the server is gone
            self.answer = use(grant, tool, **arguments)


def begin(visitor: Visitor, number: int, **wish: Any) -> dict[str, Any]:
    """Reset with a grant; return the grant."""
    reply = visitor.ask("reset", {"seed": 1, "grant": wish}, id=number, session=visitor.session)
    found: dict[str, Any] = reply["data"]["grant"]
    return found


def open_session(visitor: Visitor) -> None:
    opened = visitor.ask("open", {}, id=2)
    visitor.session, visitor.token = opened["session"], opened["data"]["resume_token"]


def test_live_grants_live_on_and_dead_ones_stay_dead_and_no_call_is_done_that_was_not_answered(tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = Killed(stack, tmp_path, f"{__name__}:Gated", "--set", f"folder={tmp_path}")
        visitors = [server.visitor() for _ in range(4)]
        for each in visitors:
            open_session(each)
        live, replaced, revoked, late = (begin(each, 1) for each in visitors)
        next_one = begin(visitors[1], 2)
        visitors[2].ask("revoke", {"grant": revoked["grant"]}, id=2, session=visitors[2].session)
        late = begin(visitors[3], 2, ttl_seconds=0.5)
        answered = use(live, "act", by=3)
        call = Call(live, "act", by=HELD)
        until((tmp_path / "reached").exists)

        server.kill()
        call.join(PATIENCE)
        unsealed = server.verify()
        allowed = server.verify("--allow-unsealed")
        (tmp_path / "open").touch()
        server.start_again()
        good = [is_good(each) for each in (live, replaced, next_one, revoked)]
        until(lambda: not is_good(late))
        after = use(live, "act", by=4)
        again = server.visitor()
        resumed = again.resumed(visitors[0])
        rows = again.ask("watch", {"after": 0}, id=10, session=visitors[0].session)["data"]["rows"]
        while_it_runs = server.verify()
        assert server.command.stopped() == 0
        at_the_end = server.verify()
        steps = [json.loads(bytes(event.action))["by"] for event in server.events(EpisodeStepped)]

    assert (call.is_alive(), call.answer) == (False, None)
    assert good == [True, False, True, False]
    assert (answered.told["step"], after.told["step"]) == (1, 2)
    assert after.told["observation"]["total"] == 1 + 3 + 4
    assert (resumed["type"], resumed["data"]["step"]) == ("resumed", 2)
    assert [row["action"]["by"] for row in rows] == steps == [3, 4]
    assert (unsealed[0], unsealed[1]["ok"], allowed[0], allowed[1]["ok"]) == (1, False, 0, True)
    assert (while_it_runs[0], at_the_end[0]) == (0, 0)
    assert at_the_end[1]["unsealed"] == 0


def test_an_agent_that_waited_for_a_human_when_the_server_was_killed_hears_the_answer_after_it(tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = Killed(stack, tmp_path, "proctor/PlumeSearch-v0", "--governed", "open")
        operator = OperatorClient(server.url, token=OPERATORS)
        visitor = server.visitor()
        open_session(visitor)
        grant = begin(visitor, 1, agent="asker")
        use(grant, "believe", changes={"something": True})
        use(grant, "decide", outcome="ESCALATE", summary="ask")
        call = Call(grant, "escalate", question="May I?", options=["yes", "no"], wait_seconds=300)
        [before] = until(operator.pending)

        server.kill()
        call.join(PATIENCE)
        server.start_again()
        [after] = operator.pending()
        done = operator.answer(before, "option_1")
        told = use(grant, "escalate", wait_seconds=0).told
        assert server.command.stopped() == 0
        answers = [event for event in server.events(PacketJudged) if event.kind == "user_input"]
        verified = server.verify()

    assert (call.is_alive(), call.answer) == (False, None)
    assert before == after
    assert (done.accepted, told["answer"]["choice"], told["answer"]["escalation"]) == (True, "option_1", before.id)
    assert len(answers) == 1
    assert (verified[0], verified[1]["unsealed"]) == (0, 0)


def test_an_answer_to_a_question_that_was_lost_with_the_server_reaches_no_other(tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = Killed(stack, tmp_path, "proctor/PlumeSearch-v0", "--governed", "open", "--durability", "off")
        operator = OperatorClient(server.url, token=OPERATORS)
        visitor = server.visitor()
        open_session(visitor)
        grant = begin(visitor, 1, agent="asker")
        use(grant, "believe", changes={"something": True})
        use(grant, "decide", outcome="ESCALATE", summary="ask")
        stated = operator.page(wait_seconds=0).last
        until(lambda: len(server.events(PacketJudged)) == stated)
        # With this durability a kill may leave what was on the disk before the question was asked.
        shutil.copytree(server.ledger, tmp_path / "left")
        use(grant, "escalate", question="May I stop?", options=["yes", "no"], wait_seconds=0)
        [before] = operator.pending()

        server.kill()
        shutil.rmtree(server.ledger)
        shutil.copytree(tmp_path / "left", server.ledger)
        server.start_again()
        lost = operator.pending()
        use(grant, "escalate", question="May I delete everything?", options=["yes", "no"], wait_seconds=0)
        [after] = operator.pending()
        codes = []
        for asked in (before, before.id, question_name(before)):
            with pytest.raises(RemoteError) as problem:
                operator.answer(asked, "option_1")
            codes.append(problem.value.code)
        still = operator.pending()
        done = operator.answer(question_name(after), "option_2")
        assert server.command.stopped() == 0
        answers = [json.loads(bytes(event.line)) for event in server.events(PacketJudged) if event.kind == "user_input"]
        verified = server.verify()

    assert lost == []
    # Both were counted alike: it is the run of the server that tells them apart.
    assert before.id.rpartition("-")[0] == after.id.rpartition("-")[0]
    assert codes == ["STALE_QUESTION"] * 3
    assert still == [after]
    assert (done.accepted, done.question) == (True, "May I delete everything?")
    assert [each["data"]["choice"] for each in answers] == ["option_2"]
    assert verified[0] == 0


def test_without_a_ledger_no_grant_outlives_the_server(tmp_path: Path) -> None:
    arguments = (f"{__name__}:Adding", "--json")
    with serve(tmp_path / "home", *arguments, "--port", "0", "--agent-port", "0", more=TOKEN) as command:
        visitor = Visitor(command.document["websocket"])
        open_session(visitor)
        grant = begin(visitor, 1)
        before = is_good(grant)
        url = command.document["url"]
        command.stopped(signal.SIGKILL)
        visitor.close()
    ports = ("--port", url.rpartition(":")[2], "--agent-port", grant["address"].rpartition(":")[2].partition("/")[0])
    with serve(tmp_path / "home", *arguments, *ports, more=TOKEN) as command:
        again = Visitor(command.document["websocket"])
        after = is_good(grant)
        lost = again.resumed(visitor)
        again.close()

    assert (before, after) == (True, False)
    assert lost["data"]["code"] == "EPISODE_LOST"
