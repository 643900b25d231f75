"""Other people's MCP clients, each from an environment of its own, against a real server with a real grant."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.client.agents import Grant
from tests.server.live_server import Served, Session, Talk, serving
from tests.system.programs import node, run, venv_python

pytestmark = pytest.mark.system

HERE = Path(__file__).parent / "mcp_clients"
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("sniff", {}),
    ("move", {"direction": "up", "steps": 3}),
    ("move", {"direction": "sideways"}),
    ("reset", {"seed": 1}),
    ("sniff", {}),
]
UNKNOWN = "Unknown tool: reset. The tools are sniff, move."


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving("proctor/PlumeSearch-v0", agent_port=0) as server:
        yield server


@pytest.fixture
def grant(served: Served) -> Iterator[Grant]:
    """An agent's way into an episode that has just begun."""
    with Talk(served, greet=True) as talk:
        given = Session(talk).ask("reset", {"seed": 1, "grant": {}})["data"]["grant"]
        yield Grant(**{**given, "tools": tuple(given["tools"])})


def found_by(python: str, script: str, grant: Grant, home: Path, *more: str) -> dict[str, Any]:
    """Return what a client that is a script found."""
    ended = run([python, str(HERE / script), grant.address, grant.token, json.dumps(CALLS), *more], home)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def check_calls(calls: list[dict[str, Any]]) -> None:
    """Check what a client made of `CALLS`."""
    smelt, moved, refused, unknown, again = calls
    assert smelt["error"] is moved["error"] is again["error"] is False
    assert [each["structured"]["step"] for each in (smelt, moved, again)] == [0, 3, 3]
    assert moved["structured"] == again["structured"]
    assert moved["text"].startswith("Concentration ")
    assert "3 of 3 actions were carried out" in moved["text"]
    assert refused["error"] is True
    assert refused["text"].startswith("VALIDATION_ERROR")
    assert UNKNOWN in unknown["refused"]


def check(found: dict[str, Any]) -> None:
    assert found["tools"] == ["sniff", "move"]
    assert found["progress"] == [[1, 3], [2, 3]]
    check_calls(found["calls"])


def test_the_sdk_of_the_first_generation_lists_and_calls(grant: Grant, tmp_path: Path) -> None:
    found = found_by(venv_python("PROCTOR_MCP1"), "mcp1.py", grant, tmp_path)

    check(found)
    assert found["version"] == "2025-11-25"
    assert found["read_only"] == [True, False]
    assert "sniff, move" in found["instructions"]


@pytest.mark.parametrize(("era", "version"), [("legacy", "2025-11-25"), ("2026-07-28",) * 2, ("auto", "2026-07-28")])
def test_the_sdk_of_the_second_generation_lists_and_calls_in_both_eras(
    grant: Grant, tmp_path: Path, era: str, version: str
) -> None:
    found = found_by(sys.executable, "mcp2.py", grant, tmp_path, era)

    check(found)
    assert found["version"] == version
    assert found["read_only"] == [True, False]


def test_fastmcp_lists_and_calls(grant: Grant, tmp_path: Path) -> None:
    check(found_by(venv_python("PROCTOR_FASTMCP"), "fast.py", grant, tmp_path))


def inspected(where: list[str], home: Path, *method: str) -> tuple[int, dict[str, Any], str]:
    """Return the exit code of the Inspector, what it printed, and what it complained of."""
    ended = run([*node("mcp-inspector"), "--cli", *where, "--method", *method], home)
    return ended.returncode, json.loads(ended.stdout or "{}"), ended.stderr


def check_inspector(where: list[str], home: Path) -> None:
    code, listed, complaint = inspected(where, home, "tools/list")
    assert code == 0, complaint
    assert [tool["name"] for tool in listed["tools"]] == ["sniff", "move"]

    _, moved, _ = inspected(
        where, home, "tools/call", "--tool-name", "move", "--tool-arg", "direction=up", "--tool-arg", "steps=3"
    )
    assert moved["structuredContent"]["step"] == 3
    _, refused, _ = inspected(where, home, "tools/call", "--tool-name", "move", "--tool-arg", "direction=sideways")
    assert refused["isError"] is True
    code, _, complaint = inspected(where, home, "tools/call", "--tool-name", "reset")
    assert code != 0
    assert "reset" in complaint


def test_the_inspector_lists_and_calls(grant: Grant, tmp_path: Path) -> None:
    check_inspector(
        [grant.address, "--transport", "http", "--header", f"Authorization: Bearer {grant.token}"], tmp_path
    )


def test_the_inspector_lists_and_calls_over_the_bridge(grant: Grant, tmp_path: Path) -> None:
    path = grant.save(tmp_path / "grant.json")

    check_inspector([sys.executable, "-m", "proctor", "mcp", "--grant", str(path)], tmp_path)
