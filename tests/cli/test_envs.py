"""`proctor envs` names everything that can be chosen."""

import json
from typing import Any

import gymnasium as gym
import pytest

from proctor.cli.main import main
from proctor.envs.plume.config import ComponentKind, EnvironmentConfig, component_types
from proctor.envs.plume.policies import POLICIES
from proctor.envs.popper.policies import POLICIES as POPPER_POLICIES


def test_the_list_names_ids_options_parts_and_policies(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs"]) == 0

    out = capsys.readouterr().out
    words = ["proctor/PlumeSearch-v0", "Discrete(4)", "start, orientation", "path=required", *POLICIES]
    words += EnvironmentConfig.model_fields
    words += [name for kind in ComponentKind for name in component_types(kind)]
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
    assert plume["policies"] == {name: entry.about for name, entry in POLICIES.items()}


def test_every_environment_of_ours_has_its_own_policies_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs", "--json"]) == 0

    listed = {item["id"]: item for item in json.loads(capsys.readouterr().out)["environments"]}
    assert {"proctor/PlumeSearch-v0", "proctor/ColumnPopper-v0", "SpecKitAI/ColumnPopper-v1"} <= set(listed)
    popper = listed["SpecKitAI/ColumnPopper-v1"]
    assert popper["policies"] == {name: entry.about for name, entry in POPPER_POLICIES.items()}
    assert popper["options"]["number_pool"] == {"default": [1, 2, 3]}
    assert popper["parts"] == {}


class Guest(gym.Env[Any, Any]):
    """Somebody else's."""


def test_the_list_has_every_id_of_ours_whatever_its_namespace_and_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    ours = gym.spec("proctor/PlumeSearch-v0").entry_point
    gym.register("other/Ours-v0", entry_point=ours)
    gym.register("proctor/Guest-v0", entry_point=Guest)  # type: ignore[arg-type]  # never called
    try:
        assert main(["envs", "--json"]) == 0
    finally:
        del gym.registry["other/Ours-v0"], gym.registry["proctor/Guest-v0"]

    ids = [item["id"] for item in json.loads(capsys.readouterr().out)["environments"]]
    assert {"proctor/PlumeSearch-v0", "other/Ours-v0"} <= set(ids)
    assert "proctor/Guest-v0" not in ids
    assert not any(item.startswith("CartPole") for item in ids)
