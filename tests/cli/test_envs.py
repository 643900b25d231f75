"""`proctor envs` names everything that can be chosen."""

from __future__ import annotations

import json

import pytest

from proctor.cli.main import main
from proctor.envs.plume.config import EnvironmentConfig
from proctor.envs.plume.factories import Kind, component_types
from proctor.envs.plume.policies import POLICIES


def test_the_list_names_ids_options_parts_and_policies(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs"]) == 0

    out = capsys.readouterr().out
    words = ["proctor/PlumeSearch-v0", "Discrete(4)", "start, orientation", "path=required", *POLICIES]
    words += EnvironmentConfig.model_fields
    words += [name for kind in Kind for name in component_types(kind)]
    assert [word for word in words if word not in out] == []


def test_the_json_says_the_same_with_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs", "--json"]) == 0

    document = json.loads(capsys.readouterr().out)
    plume = next(item for item in document["environments"] if item["id"] == "proctor/PlumeSearch-v0")
    assert plume["options"]["max_steps"] == {"default": 1000}
    assert plume["options"]["plume"] == {"default": "gaussian"}
    assert plume["parts"]["plume"]["gaussian"] == {"sigma": {"default": 12.0}}
    assert plume["parts"]["plume"]["movie"]["path"] == {"required": True}
    assert plume["reset_options"] == ["start", "orientation"]
    assert plume["batched"] is True
    assert set(document["policies"]) == set(POLICIES)
