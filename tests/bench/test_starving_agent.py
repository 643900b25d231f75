"""The agent that tries to take the server from everybody else: what it sends, and what it gets."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import pytest

from bench.attacks.starving_agent import ALL_KINDS, GOVERNED, flood, request_of, show, summarize
from tests.server.agents.stand_in import OTHER_TOKEN, TOKEN, plane_of
from tests.server.bare_sessions import run
from tests.server.governed.governed_sessions import Hall

SMALL = ("calls that are carried out", "tools/list", "handshakes")


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_every_attack_is_one_request_with_json_in_it(kind: str) -> None:
    head, _, body = request_of("http://127.0.0.1:1/mcp", "a-token", kind).partition(b"\r\n\r\n")

    assert f"Content-Length: {len(body)}".encode() in head
    said = json.loads(body)
    if isinstance(said, dict) and said.get("method") == "tools/call":
        assert f"Mcp-Name: {said['params']['name']}".encode() in head


@pytest.mark.parametrize(
    ("kind", "code", "lines"),
    [
        ("packets of 1000 unknown fields", "REFUSED", 1),
        ("packets of 2000 unknown fields", "VALIDATION_ERROR", 0),
        ("beliefs of 1000 lists", None, 1),
        ("beliefs of 54 KiB of lists", "VALIDATION_ERROR", 0),
        ("plans of 28 kB", "REFUSED", 1),
        ("plans of 60 kB", "REFUSED", 0),
        ("plans of 1 MiB", "VALIDATION_ERROR", 0),
    ],
)
def test_of_each_governed_attack_the_largest_that_is_judged_is_sent_and_larger_ones(
    kind: str, code: str | None, lines: int
) -> None:
    async def scenario() -> None:
        hall = Hall(policy="open")
        agent = await hall.agent()
        before = len(hall.lines)
        called = json.loads(GOVERNED[kind]()[2])["params"]

        told = await agent.use(called["name"], **called["arguments"])

        assert told.said.get("code") == code
        assert len([line for line in hall.lines[before:] if line.judged]) == lines

    run(scenario())


@pytest.mark.parametrize("kind", [kind for kind in ALL_KINDS if kind not in SMALL])
def test_no_body_of_an_attack_reaches_a_tool_or_the_library(kind: str) -> None:
    with plane_of() as plane:
        counts = asyncio.run(flood(plane.url, TOKEN, kind, 0.05, connections=4))
        other = plane.modern("tools/list", token=OTHER_TOKEN)

        assert other.status_code == 200
        assert set(counts) <= {"400", "413", "429"}
        assert plane.stand_in.views[TOKEN].calls == []


@pytest.mark.parametrize("kind", SMALL)
def test_an_attacker_with_small_requests_is_served_or_told_to_wait(kind: str) -> None:
    with plane_of() as plane:
        counts = asyncio.run(flood(plane.url, TOKEN, kind, 0.05, connections=4))

        # The stand-in has no such tool: a call is refused by name.
        assert set(counts) <= {"200", "400", "429"}
        assert plane.modern("tools/list", token=OTHER_TOKEN).status_code == 200


def test_the_figures_are_those_of_the_latencies(capsys: pytest.CaptureFixture[str]) -> None:
    seen = summarize([0.001] * 99 + [0.1], os.getpid())
    rows: Any = [("quiet", seen, {}), ("attack", seen, {"429": 3})]

    show(rows)

    assert (seen.steps, round(seen.p50, 3), round(seen.longest)) == (100, 1.0, 100)
    assert "{'429': 3}" in capsys.readouterr().out
