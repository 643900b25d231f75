"""The agent that tries to take the server from everybody else: what it sends, and what it gets."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import pytest

from bench.attacks.starving_agent import KINDS, flood, request_of, show, summarize
from tests.server.agents.stand_in import OTHER_TOKEN, TOKEN, plane_of

SMALL = ("calls that are carried out", "tools/list", "handshakes")


@pytest.mark.parametrize("kind", KINDS)
def test_every_attack_is_one_request_with_json_in_it(kind: str) -> None:
    head, _, body = request_of("http://127.0.0.1:1/mcp", "a-token", kind).partition(b"\r\n\r\n")

    assert f"Content-Length: {len(body)}".encode() in head
    json.loads(body)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in SMALL])
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
