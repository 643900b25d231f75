"""A client without models: actions and observations are whatever JSON the server speaks."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import JsonValue, model_serializer, model_validator

from proctor.client.blocking import SyncEnvClient
from proctor.client.connection import Noticed
from proctor.client.env_client import EnvClient
from proctor.client.settings import Settings
from proctor.models.wire import OUTSIDE, Action, Observation, State

FIELDS: Final = "fields"
OF_STATE: Final = frozenset(State.model_fields)


def _gathered(value: Any, own: frozenset[str]) -> Any:
    """Return an object whose unknown keys are gathered in `fields`."""
    if not isinstance(value, Mapping) or (FIELDS in value and value.keys() <= {FIELDS, *own}):
        return value
    beside = {key: part for key, part in value.items() if key in own}
    return {**beside, FIELDS: {key: part for key, part in value.items() if key not in own}}


class JsonAction(Action):
    """An action of any fields: `JsonAction(message="hi")`; on the wire it is the fields alone."""

    fields: dict[str, JsonValue] = {}

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, value: Any) -> Any:
        return _gathered(value, frozenset())

    @model_serializer(mode="plain")
    def _spread(self) -> dict[str, JsonValue]:
        return self.fields


class JsonObservation(Observation):
    """An observation of any fields: `observation["echoed"]`."""

    fields: dict[str, JsonValue] = {}

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, value: Any) -> Any:
        return _gathered(value, OUTSIDE)

    def __getitem__(self, name: str) -> JsonValue:
        return self.fields[name]


class JsonState(State):
    """A state of any fields: `state["score"]`."""

    fields: dict[str, JsonValue] = {}

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, value: Any) -> Any:
        return _gathered(value, OF_STATE)

    def __getitem__(self, name: str) -> JsonValue:
        return self.fields[name]


def _action(action: JsonAction | Mapping[str, JsonValue]) -> JsonAction:
    return action if isinstance(action, JsonAction) else JsonAction(fields=dict(action))


class SyncGenericClient(SyncEnvClient[JsonAction, JsonObservation, JsonState]):
    """A `GenericClient` whose calls need no `await`."""

    def step(self, action: JsonAction | Mapping[str, JsonValue]) -> JsonObservation:
        """Return what `action` leads to, with its reward."""
        return super().step(_action(action))


class GenericClient(EnvClient[JsonAction, JsonObservation, JsonState]):
    """Drives any server without its models: `await client.step({"action": 1})`."""

    @classmethod
    def blocking(
        cls,
        url: str,
        *,
        token: str | None = None,
        settings: Settings | None = None,
        on_notice: Noticed | None = None,
        shared: bool = False,
        check_schema: bool = False,
    ) -> SyncGenericClient:
        """Return a client whose calls need no `await`."""
        return cls(
            url, token=token, settings=settings, on_notice=on_notice, shared=shared, check_schema=check_schema
        ).sync()

    def sync(self) -> SyncGenericClient:
        """Return this client without `await`; from now on it is used through that alone."""
        return SyncGenericClient(self)

    async def step(self, action: JsonAction | Mapping[str, JsonValue]) -> JsonObservation:
        """Return what `action` leads to, with its reward."""
        return await super().step(_action(action))
