"""The reference agent: it follows the protocol under every shipped policy, cannot cheat, and asks when it is unsure."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import gymnasium as gym
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.client import Grant, OperatorClient
from tests.examples.governed import AGENT, acted, obliging

PLUME = "proctor/PlumeSearch-v0"
POPPER = "SpecKitAI/ColumnPopper-v1"
FIELD = ("grid_size=[96,48]", "source_location=[14,24]", "plume=advected", "max_steps=600")
WAYS = ("up", "right", "down", "left")


def loaded() -> ModuleType:
    spec = spec_from_file_location("governed_agent", AGENT)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


agent = loaded()


def test_it_finds_the_source_asks_when_it_is_unsure_and_cannot_forge_a_token(tmp_path: Path) -> None:
    found = acted(tmp_path / "home", PLUME, "standard", "--cheat", "--ask", "30", settings=FIELD, operator=obliging)

    assert (found.code, found.err) == (0, "")
    assert found.steps[-1].terminated
    assert found.refusals == [("ToolAuthorizationToken", ["GOV-1"])]
    assert "no forged tokens" in found.out
    assert len(found.kinds("EscalationPacket")) == 1
    assert (found.closed.outcome, found.closed.obligations) == ("conforming", [])


def stopping(operators: OperatorClient) -> None:
    for waiting in operators.pending():
        operators.answer(waiting, "stop")


@pytest.mark.slow
def test_a_human_can_stop_it(tmp_path: Path) -> None:
    found = acted(tmp_path / "home", PLUME, "standard", "--ask", "30", settings=FIELD, operator=stopping)

    assert (found.code, found.err) == (0, "")
    assert not found.steps[-1].terminated
    assert (found.closed.outcome, found.closed.state) == ("conforming", "S7_REVIEW")


@pytest.mark.slow
def test_it_plays_column_popper_and_defers_when_it_has_done_enough(tmp_path: Path) -> None:
    found = acted(tmp_path / "home", POPPER, "open", "--uses", "12")

    assert (found.code, found.err) == (0, "")
    assert len(found.steps) == 12
    assert found.refusals == []
    assert (found.closed.outcome, found.closed.state) == ("conforming", "S7_REVIEW")


@pytest.mark.slow
@pytest.mark.parametrize("target", [PLUME, POPPER])
def test_it_works_under_the_strict_policy_with_an_operator(target: str, tmp_path: Path) -> None:
    found = acted(tmp_path / "home", target, "strict", "--ask", "30", "--uses", "7", operator=obliging)

    assert (found.code, found.err) == (0, "")
    assert found.steps
    assert found.refusals == []
    assert len(found.kinds("ToolAuthorizationToken")) == 2
    assert found.closed.outcome == "conforming"


@pytest.mark.slow
def test_without_an_operator_the_strict_policy_leaves_it_without_a_token_and_it_stops_as_it_should(
    tmp_path: Path,
) -> None:
    found = acted(tmp_path / "home", PLUME, "strict")

    assert (found.code, found.err) == (0, "")
    assert found.steps == []
    assert found.refusals == [("DecisionPacket", ["FSM"])]
    assert (found.closed.outcome, found.closed.state) == ("conforming", "S7_REVIEW")


@pytest.mark.slow
def test_a_policy_that_wants_a_verification_for_every_act_gets_one(tmp_path: Path) -> None:
    policy = tmp_path / "careful.toml"
    policy.write_text('name = "careful"\n[tokens]\nmax_uses = 2\n[quality]\nverification_requirement = "VERIFY_ALL"\n')

    found = acted(tmp_path / "home", PLUME, str(policy), "--uses", "5", settings=FIELD)

    assert (found.code, found.err) == (0, "")
    assert len(found.steps) == 5 * 8
    assert {tuple(rules) for _, rules in found.refusals} == {("POLICY-1",)}
    assert len(found.kinds("VerificationPlanPacket")) == 3
    assert found.closed.outcome == "conforming"


@pytest.mark.slow
def test_a_token_that_expires_is_asked_for_again(tmp_path: Path) -> None:
    policy = tmp_path / "hasty.toml"
    policy.write_text('name = "hasty"\n[tokens]\nmax_uses = 100\nlife_seconds = 1.0\n')

    found = acted(tmp_path / "home", PLUME, str(policy), "--uses", "4", "--pause", "0.35", settings=FIELD)

    assert (found.code, found.err) == (0, "")
    assert len(found.steps) == 4 * 8
    assert {rules[0] for _, rules in found.refusals} == {"E4"}
    assert found.closed.outcome == "conforming"


@pytest.mark.slow
def test_a_policy_that_wants_a_human_asked_first_has_one_asked(tmp_path: Path) -> None:
    policy = tmp_path / "careful.toml"
    policy.write_text('name = "careful"\n[escalation]\nwhen = ["act at LOW stakes"]\n')

    found = acted(
        tmp_path / "home", PLUME, str(policy), "--uses", "5", "--ask", "30", settings=FIELD, operator=obliging
    )

    assert (found.code, found.err) == (0, "")
    assert len(found.steps) == 5 * 8
    assert found.refusals == [("DecisionPacket", ["POLICY-2"])]
    assert found.closed.outcome == "conforming"


def test_what_could_not_be_mended_does_not_keep_the_next_refusal_from_being_mended() -> None:
    class Server:
        """Refuses every call, and says that a belief is missing."""

        def __init__(self) -> None:
            self.calls: list[str] = []

        async def call_tool(self, tool: str, arguments: dict[str, Any]) -> Any:
            self.calls.append(tool)
            told = {"verdict": "refused", "way": ["believe", tool], "next_calls": ["believe"]}
            return SimpleNamespace(structured_content=None, meta={"proctor/error": told}, is_error=True)

    async def scenario() -> list[str]:
        server = Server()
        works = agent.GovernedAgent(server, "sniff", ["move"], SimpleNamespace(uses=1, pause=0.0, ask=0.0))
        for _ in range(2):
            with pytest.raises(agent.Stopped):
                await works.call("decide")
        return server.calls

    assert asyncio.run(scenario()) == ["decide", "believe"] * 2


def test_it_tells_how_it_is_used() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(AGENT), "--help"], env={}, capture_output=True, text=True, check=True
    )

    assert "--grant" in done.stdout


def test_without_a_grant_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_GRANT_ADDRESS", "http://127.0.0.1:1/mcp")
    monkeypatch.delenv("PROCTOR_GRANT_TOKEN", raising=False)

    with pytest.raises(SystemExit, match="PROCTOR_GRANT_TOKEN"):
        agent.grant_of(None)


def test_a_grant_is_read_from_a_file_that_nobody_else_can_read(tmp_path: Path) -> None:
    path = Grant("grant_1", "http://127.0.0.1:1/mcp", "a-token-of-some-length", ("move",), None, "e").save(
        tmp_path / "grant.json"
    )

    found = agent.grant_of(path)
    path.chmod(0o644)

    assert found == ("http://127.0.0.1:1/mcp", "a-token-of-some-length")
    with pytest.raises(SystemExit, match="chmod 600"):
        agent.grant_of(path)


def carried_out(policy_of: Any, first: Any, act: Any) -> int:
    """Return how often a policy was unsure; it is told to go on."""
    doubts = 0
    policy = policy_of({"observation": first, "done": False})
    wish = next(policy, None)
    while wish is not None:
        doubts += isinstance(wish, agent.Ask)
        came = next(iter(wish.options)) if isinstance(wish, agent.Ask) else act(wish)
        try:
            wish = policy.send(came)
        except StopIteration:
            wish = None
    return doubts


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 1000))
def test_the_search_finds_the_source_wherever_it_begins(seed: int) -> None:
    config = {"grid_size": [96, 48], "source_location": [14, 24], "plume": "advected"}
    env = gym.make(PLUME, disable_env_checker=True, config=config)
    first, _ = env.reset(seed=seed)
    ended = []

    def act(wish: Any) -> dict[str, Any]:
        seen = first
        for _ in range(wish.arguments["steps"]):
            seen, _, *flags, _ = env.step(WAYS.index(wish.arguments["direction"]))
            if any(flags):
                ended.append(flags)
                break
        return {"observation": seen.tolist(), "done": bool(ended)}

    carried_out(partial(agent.search, list(WAYS)), first.tolist(), act)

    assert ended == [[True, False]]


@pytest.mark.parametrize("seed", [0, 1])
def test_the_player_lasts_until_time_is_up_and_asks_once(seed: int) -> None:
    env = gym.make(POPPER, disable_env_checker=True)
    first, _ = env.reset(seed=seed)
    ended: list[dict[str, Any]] = []

    def act(wish: Any) -> dict[str, Any]:
        action = 3 if wish.tool == "fall" else wish.arguments["column"]
        seen, _, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            ended.append(info)
        return {"observation": {"board": seen["board"].tolist()}, "done": bool(ended)}

    doubts = carried_out(agent.pop, {"board": first["board"].tolist()}, act)

    assert doubts == 1
    assert ended[0]["score"] > 300


@given(st.lists(st.integers(1, 3), max_size=8))
def test_the_equal_blocks_at_the_end_are_counted(column: list[int]) -> None:
    count = agent.end(column)

    assert len(set(column[len(column) - count :])) <= 1
    assert count == len(column) or column[-count - 1] != column[-1]
