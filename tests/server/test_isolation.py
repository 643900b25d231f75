"""Where environments run is decided once, and whatever they are made of is found from there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from proctor.envs.targets import Target
from proctor.errors import ComponentError
from proctor.server.isolation import choose_isolation
from proctor.server.sandbox.container.container_pool import ContainerPool
from proctor.server.settings import parse_settings


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
