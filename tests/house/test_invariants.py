"""The invariants that can be read off the code itself; docs/invariants.md names what holds the others."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Struct
from pydantic import BaseModel

from proctor.access.redaction import SECRET_NAME
from proctor.client import EnvClient
from proctor.client.env_client import find_schema_difference
from proctor.contracts.environment import WIRE_TYPES, Environment
from proctor.envs.gym_adapter import GymEnvironment
from proctor.envs.plume.models import PlumeAction, PlumeObservation, PlumeState
from proctor.envs.plume.typed_env import PlumeEnvironment
from proctor.envs.popper.models import PopperAction, PopperObservation, PopperState
from proctor.envs.popper.typed_env import PopperEnvironment
from proctor.envs.targets import Target
from proctor.models.control import Request, StepBatch
from proctor.models.wire import check_wire_type
from proctor.server.control.http_routes import make_openapi_document
from proctor.server.control.protocol import RULES
from proctor.server.runtime.env_adapter import describe_target
from proctor.server.settings import LimitSettings, ServerSettings

SERVED = ["CartPole-v1", "proctor/PlumeSearch-v0", "SpecKitAI/ColumnPopper-v1"]
SIGNATURES: dict[str, dict[str, Any]] = {
    "reset": {"seed": None, "episode_id": None},
    "step": {"action": inspect.Parameter.empty},
}


def parameters(call: Callable[..., Any]) -> dict[str, Any]:
    return {name: each.default for name, each in inspect.signature(call).parameters.items() if name != "self"}


@pytest.mark.parametrize("owner", [Environment, GymEnvironment, PlumeEnvironment, PopperEnvironment])
@pytest.mark.parametrize("call", SIGNATURES)
def test_the_calls_of_an_environment_keep_their_signatures(owner: type, call: str) -> None:
    assert parameters(getattr(owner, call)) == SIGNATURES[call]
    assert isinstance(inspect.getattr_static(owner, "state"), property)


def test_the_calls_of_a_client_begin_like_the_environments() -> None:
    assert list(parameters(EnvClient.reset).items())[:2] == list(SIGNATURES["reset"].items())
    assert parameters(EnvClient.step) == SIGNATURES["step"]
    assert parameters(EnvClient.state) == {}


@pytest.mark.parametrize("target", SERVED)
def test_whatever_is_served_names_three_pydantic_models_that_json_can_say(target: str) -> None:
    environment = Target(target).make()

    assert isinstance(environment, Environment)
    for name, parent in WIRE_TYPES.items():
        model = getattr(environment, name)
        assert issubclass(model, parent)
        assert issubclass(model, BaseModel)
        check_wire_type(model)
    environment.close()


@pytest.mark.parametrize(
    ("target", "action", "observation", "state"),
    [
        ("proctor/PlumeSearch-v0", PlumeAction, PlumeObservation, PlumeState),
        ("SpecKitAI/ColumnPopper-v1", PopperAction, PopperObservation, PopperState),
    ],
)
def test_the_models_that_a_client_imports_are_those_that_the_server_speaks(
    target: str, action: type[BaseModel], observation: type[BaseModel], state: type[BaseModel]
) -> None:
    schemas = describe_target(Target(target)).schemas

    assert find_schema_difference(action, schemas.action, sent=True) is None
    assert find_schema_difference(observation, schemas.observation, sent=False) is None
    assert find_schema_difference(state, schemas.state, sent=False) is None


def test_http_carries_no_request_that_drives_an_environment() -> None:
    paths = make_openapi_document(describe_target(Target("CartPole-v1")))["paths"]

    driving = {name for name, rule in RULES.items() if rule.names_session or name in {"open", "resume", "close"}}
    assert not {path.strip("/") for path in paths} & driving
    assert {"reset", "step", "state"} <= driving


def test_no_request_can_speak_of_rewards() -> None:
    messages: list[type[Struct]] = [Request, StepBatch, *(rule.data for rule in RULES.values() if rule.data)]
    fields = {field for message in messages for field in message.__struct_fields__}

    assert fields
    assert [field for field in fields if "reward" in field or "transform" in field] == []


def test_no_setting_holds_a_secret() -> None:
    names = [*ServerSettings.model_fields, *LimitSettings.model_fields]

    assert [name for name in names if SECRET_NAME.search(name)] == []
