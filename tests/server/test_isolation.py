"""Where environments run is decided once, and whatever they are made of is found from there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from proctor.envs.targets import Target
from proctor.errors import ComponentError
from proctor.server.isolation import isolated
from proctor.server.sandbox.docker import DockerNest
from proctor.server.settings import settings_of


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
    monkeypatch.setattr(DockerNest, "started", start)
    settings = settings_of({"target": target, "sandbox": "docker", "image": "some"})

    with pytest.raises(ComponentError, match="no engine"):
        isolated(settings, Target(target))
    assert seen == [found]
