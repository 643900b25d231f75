"""What a remote Gymnasium environment and a remote batch share: the connection, the spaces, and what they refuse.

Rule 1: the spaces are the server's own, rebuilt from its `schema`; values travel in their form, arrays as bytes.
Rule 2: a credential is not kept in a `spec`, which is printed and compared.
Rule 3: a remote environment belongs to the process that made it: it is neither pickled nor copied.
"""

from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, NoReturn, TypeVar

import gymnasium as gym
import msgspec
from gymnasium.envs.registration import EnvSpec

from proctor.client.blocking import shared_loop
from proctor.client.connection import Connection
from proctor.client.settings import Settings
from proctor.errors import ComponentError, StateError, ValidationError
from proctor.models.control import Schemas
from proctor.models.spaces import Codec, space_from
from proctor.models.wire import Encoding

T = TypeVar("T")
AnySpace = gym.Space[Any]


class Line:
    """A connection for one remote environment, used without `await`."""

    def __init__(self, url: str, token: str | None, settings: Settings | None) -> None:
        settings = replace(Settings() if settings is None else settings, packed=True)
        self.connection = Connection(url, token=token, settings=settings)
        self._loop = shared_loop()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return what the coroutine returns."""
        return self._loop.run(coroutine)

    def spaces(self) -> tuple[AnySpace, AnySpace]:
        """Return the spaces of action and observation; a server without spaces is refused."""
        schemas: Schemas = self.run(self.connection.schema())
        if schemas.spaces is None:
            raise ValidationError(
                "the server's environment has no Gymnasium spaces", expected="an EnvClient, which needs none"
            )
        return space_from(schemas.spaces["action"]), space_from(schemas.spaces["observation"])

    @property
    def encoding(self) -> Encoding:
        """How arrays are written to this server."""
        welcome = self.connection.welcome
        return Encoding() if welcome is None else Encoding(welcome.packed, welcome.compression)

    def close(self) -> None:
        """Close the connection; calling it again does nothing."""
        self.run(self.connection.close())


def said(codec: Codec, key: str, value: Any, encoding: Encoding) -> bytes:
    """Return the JSON object that says `value` under `key`; what is not of the space's form is a ValidationError."""
    try:
        return msgspec.json.encode({key: codec.encode(value, encoding)})
    except ComponentError as problem:
        raise ValidationError(problem.message, found=value, expected=problem.expected) from None


def reset_text(given: dict[str, Any]) -> bytes:
    """Return the data of a reset; None says nothing, arrays are written as lists."""
    said = {key: value for key, value in given.items() if value is not None}
    try:
        return msgspec.json.encode(said, enc_hook=_listed) if said else b""
    except TypeError as problem:
        raise ValidationError(f"this cannot be said in JSON: {problem}", expected="JSON values and arrays") from None


def _listed(value: Any) -> Any:
    # numpy's arrays and scalars alike.
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no JSON value")


def without_credential(spec: EnvSpec | None) -> EnvSpec | None:
    """Return a spec that tells where, not how to get in."""
    if spec is None:
        return None
    kwargs = {key: value for key, value in spec.kwargs.items() if key != "token"}
    if isinstance(kwargs.get("url"), str):
        scheme, separator, rest = kwargs["url"].partition("://")
        kwargs["url"] = scheme + separator + rest.rpartition("@")[2]
    return replace(spec, kwargs=kwargs)


def refuse_copy(what: str) -> NoReturn:
    """Raise: a connection cannot be in two places."""
    raise StateError(
        f"a {what} cannot be pickled or copied: its session belongs to this process",
        expected="a new one, made where it is used",
    )
