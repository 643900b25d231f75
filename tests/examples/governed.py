"""Governed episodes for tests of the reference agent: a real server, the agent as a process of its own, and an operator."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from proctor.client import GenericClient, Grant, GrantWish, OperatorClient
from proctor.ledger.reader import Ledger
from proctor.models.events import EpisodeClosed, EpisodeStepped, PacketJudged
from tests.server.commands import serve

ROOT = Path(__file__).resolve().parents[2]
AGENT = ROOT / "examples" / "governed_agent.py"
SECONDS = 60.0
GLANCE_SECONDS = 0.2
ASKS = 8
"""A seed with which the agent comes to where it is unsure, in the field of the tests."""


@dataclass
class Acted:
    """What an agent did and said, and what is on record of it."""

    code: int
    out: str
    err: str
    packets: list[PacketJudged]
    steps: list[EpisodeStepped]
    closed: EpisodeClosed

    @property
    def refusals(self) -> list[tuple[str, list[str]]]:
        return [(packet.kind, packet.rules) for packet in self.packets if not packet.accepted]

    def kinds(self, kind: str) -> list[PacketJudged]:
        return [packet for packet in self.packets if packet.kind == kind and packet.accepted]


def variables(grant: Grant) -> dict[str, str]:
    """Return all that an agent is given."""
    return {"PROCTOR_GRANT_ADDRESS": grant.address, "PROCTOR_GRANT_TOKEN": grant.token}


def acted(
    home: Path,
    target: str,
    policy: str,
    *arguments: str,
    settings: tuple[str, ...] = (),
    operator: Callable[[OperatorClient], object] | None = None,
    seed: int = ASKS,
) -> Acted:
    """Return what the agent did in one episode; `operator` is called again and again while it works."""
    said = [part for setting in settings for part in ("--set", setting)]
    ports = ("--port", "0", "--agent-port", "0", "--json")
    with serve(home, target, *said, *ports, "--governed", policy, "--ledger", str(home / "ledger")) as command:
        url, state = command.document["url"], home / "state" / "proctor"
        with GenericClient.blocking(url, token=(state / "control-token").read_text().strip()) as client:
            client.reset(seed=seed, grant=GrantWish(agent="reference"))
            assert client.granted is not None
            operators = OperatorClient(url, token=(state / "operator-token").read_text().strip())
            process = subprocess.Popen(
                [sys.executable, "-W", "error", str(AGENT), *arguments],
                env=variables(client.granted),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            with process:
                out, err = _attended(process, operators, operator)
            session = client.client.session
            chain = f"{session.name}.{session.position.epoch}"
    with Ledger.open(home / "ledger") as ledger:
        events = [row.event for row in ledger.rows(chain)]
    closed = events[-1]
    assert isinstance(closed, EpisodeClosed)
    return Acted(
        process.returncode,
        out,
        err,
        [event for event in events if isinstance(event, PacketJudged)],
        [event for event in events if isinstance(event, EpisodeStepped)],
        closed,
    )


def _attended(
    process: subprocess.Popen[str], operators: OperatorClient, operator: Callable[[OperatorClient], object] | None
) -> tuple[str, str]:
    """Return what a process wrote; while it runs, the operator has a look now and then."""
    for _ in range(int(SECONDS / GLANCE_SECONDS)):
        try:
            return process.communicate(timeout=GLANCE_SECONDS)
        except subprocess.TimeoutExpired:
            if operator is not None:
                operator(operators)
    process.kill()
    raise AssertionError("the agent did not come to an end")


def obliging(operators: OperatorClient) -> None:
    """Approve every token, and choose the first option of every question."""
    for waiting in operators.pending():
        if waiting.kind == "token":
            operators.approve(waiting)
        else:
            operators.answer(waiting, waiting.options[0].option_id)
