"""Where environments run is decided once, and whatever they are made of is found from there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from proctor.envs.targets import Target
from proctor.errors import ComponentError, ValidationError
from proctor.server import isolation
from proctor.server.isolation import choose_isolation
from proctor.server.sandbox.pool.container_pool import ContainerPool
from proctor.server.sandbox.probe import TierReport
from proctor.server.sandbox.tiers import Tier
from proctor.server.settings import parse_settings
from tests.server.sandbox.made_up_reports import reported


@pytest.mark.parametrize(("target", "found"), [("own_tools:Warehouse", True), ("CartPole-v1", False)])
def test_a_users_own_module_is_found_where_the_command_was_typed(
    target: str, found: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def start(*_: Any) -> None:
        seen.append(str(tmp_path) in sys.path)
        raise ComponentError("no engine")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(ContainerPool, "start", start)
    settings = parse_settings({"target": target, "sandbox": "docker", "image": "some"})

    with pytest.raises(ComponentError, match="no engine"):
        choose_isolation(settings, Target(target))
    assert seen == [found]


def test_a_host_that_enforces_no_sandbox_is_refused_unless_none_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = [TierReport(tier, lacking="this is no Linux") for tier in (Tier.PROCESS, Tier.BWRAP, Tier.STRICT)]
    monkeypatch.setattr(isolation, "quick_report", lambda wish: reported(lacking))
    target = Target("CartPole-v1")

    with pytest.raises(ValidationError, match="this is no Linux") as caught:
        choose_isolation(parse_settings({"target": target.text}), target)
    asked_for = choose_isolation(parse_settings({"target": target.text, "sandbox": "none"}), target)

    assert "--sandbox none" in str(caught.value.expected)
    assert (asked_for.tier, asked_for.pool) == (Tier.NONE, None)
