"""The typed client: `reset`, `step` and `state` of one environment that a server runs.

Rule 1: an action goes out and an observation comes in as the models that the class names; a reply that does not fit them is
    a ValidationError, never a guess.
Rule 2: this is the one implementation; `sync()` and `blocking()` give the same calls without `await`.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

import msgspec
from msgspec import Raw
from pydantic import BaseModel, JsonValue
from pydantic import ValidationError as ModelError

from proctor.client.blocking import SyncEnvClient
from proctor.client.connection import Connection, Noticed
from proctor.client.session import Session
from proctor.client.settings import Settings
from proctor.client.wire_types import difference, parameters_of
from proctor.contracts.environment import ActT, ObsT, StateT
from proctor.errors import ComponentError, ValidationError
from proctor.models.control import Metadata, Open, Schemas, Seen
from proctor.models.wire import Action, Observation, State

ModelT = TypeVar("ModelT", bound=BaseModel)
WORDS: Final = {True: b"true", False: b"false"}


class EnvClient(Generic[ActT, ObsT, StateT]):
    """One session on a server; connects when it is first used, or with `async with`.

    `url` is a server's address or a `Connection` that several clients share. A subclass names its types,
    `class PlumeClient(EnvClient[PlumeAction, PlumeObservation, PlumeState])`; without a subclass they are given here.
    With `check_schema` the server's schemas are compared with them once, before the first episode.
    """

    action_type: type[ActT]
    observation_type: type[ObsT]
    state_type: type[StateT]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        names = ("action_type", "observation_type", "state_type")
        for name, found in zip(names, parameters_of(cls, EnvClient), strict=True):
            if found is not None and name not in vars(cls):
                setattr(cls, name, found)

    def __init__(
        self,
        url: str | Connection,
        *,
        action_type: type[ActT] | None = None,
        observation_type: type[ObsT] | None = None,
        state_type: type[StateT] | None = None,
        token: str | None = None,
        settings: Settings | None = None,
        on_notice: Noticed | None = None,
        step_timeout_seconds: float | None = None,
        check_schema: bool = False,
    ) -> None:
        self.action_type = self._typed("action_type", action_type, Action)
        self.observation_type = self._typed("observation_type", observation_type, Observation)
        self.state_type = self._typed("state_type", state_type, State)
        self._owns = not isinstance(url, Connection)
        if isinstance(url, Connection):
            if token is not None or settings is not None or on_notice is not None:
                raise ValidationError("a shared connection has its own credential and settings", expected="neither")
            self.connection = url
        else:
            self.connection = Connection(url, token=token, settings=settings, on_notice=on_notice)
        self.session: Final = Session(self.connection, Open(step_timeout_seconds=step_timeout_seconds), Seen)
        self._unchecked = check_schema

    @classmethod
    def on(cls, connection: Connection) -> Self:
        """Return a client with a session of its own on a connection that others use as well."""
        return cls(connection)

    @classmethod
    def blocking(
        cls,
        url: str,
        *,
        token: str | None = None,
        settings: Settings | None = None,
        on_notice: Noticed | None = None,
        check_schema: bool = False,
    ) -> SyncEnvClient[ActT, ObsT, StateT]:
        """Return a client whose calls need no `await`."""
        return cls(url, token=token, settings=settings, on_notice=on_notice, check_schema=check_schema).sync()

    def sync(self) -> SyncEnvClient[ActT, ObsT, StateT]:
        """Return this client without `await`; from now on it is used through that alone."""
        return SyncEnvClient(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.connection.address)!r})"

    async def __aenter__(self) -> Self:
        entered = False
        try:
            await self.connect()
            entered = True
        finally:
            if not entered:
                await self.close()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def connect(self) -> None:
        """Connect and open the session; doing it again does nothing."""
        if self._unchecked:
            await self._check_schema()
        await self.session.open()

    async def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        options: Mapping[str, JsonValue] | None = None,
    ) -> ObsT:
        """Begin an episode and return its first observation."""
        if self._unchecked:
            await self._check_schema()
        given = {"seed": seed, "episode_id": episode_id, "options": options}
        data = {key: value for key, value in given.items() if value is not None}
        return self._observed(await self.session.reset(_json(data) if data else b""))

    async def step(self, action: ActT) -> ObsT:
        """Return what `action` leads to, with its reward."""
        if not isinstance(action, self.action_type):
            raise ValidationError("not an action of this client", found=action, expected=self.action_type.__name__)
        return self._observed(await self.session.step(action.__pydantic_serializer__.to_json(action)))

    async def state(self) -> StateT:
        """Return where the environment stands."""
        return _read(self.state_type, await self.session.state(), "state")

    async def metadata(self) -> Metadata:
        """Return who serves what."""
        return await self.connection.metadata()

    async def schema(self) -> Schemas:
        """Return the JSON Schemas of the server's wire types."""
        return await self.connection.schema()

    async def close(self) -> None:
        """End the session, and the connection unless it is shared; calling it again does nothing."""
        await self.session.close()
        if self._owns:
            await self.connection.close()

    def _typed(self, name: str, given: Any, parent: type[BaseModel]) -> Any:
        found = getattr(type(self), name, None) if given is None else given
        if not isinstance(found, type) or not issubclass(found, parent):
            raise ComponentError(
                f"{type(self).__name__} does not name its {name}",
                found=found,
                expected=f"a subclass of {parent.__name__}, as parameter of the class or as {name}=",
            )
        return found

    def _observed(self, seen: Seen) -> ObsT:
        return _read(self.observation_type, observation_text(seen), "observation")

    async def _check_schema(self) -> None:
        schemas = await self.connection.schema()
        rows: tuple[tuple[str, type[BaseModel], dict[str, Any]], ...] = (
            ("action", self.action_type, schemas.action),
            ("observation", self.observation_type, schemas.observation),
            ("state", self.state_type, schemas.state),
        )
        for word, model, theirs in rows:
            found = difference(model, theirs, sent=word == "action")
            if found is not None:
                raise ValidationError(
                    f"the server's {word} is not what this client speaks: {found}", expected=f"a {model.__name__}"
                )
        self._unchecked = False


def observation_text(seen: Seen) -> bytes:
    """Return the JSON of a whole observation: what is inside, and what travelled beside it.

    A server without `hello` says only `done`: then it is taken for `terminated`.
    """
    inside = bytes(seen.observation)
    if inside[:1] != b"{" or inside[-1:] != b"}":
        raise ValidationError("the server's observation is no object", expected="a JSON object")
    terminated = seen.terminated if isinstance(seen.terminated, bool) else seen.done
    truncated = seen.truncated if isinstance(seen.truncated, bool) else False
    # Ours come last and hold if the object inside has such keys as well; but metadata may be inside (OpenEnv's are).
    fields = inside[1:-1].strip()
    return b'{"metadata":{},%b"reward":%b,"terminated":%b,"truncated":%b%b}' % (
        fields + b"," if fields else b"",
        b"null" if seen.reward is None else repr(seen.reward).encode(),
        WORDS[terminated],
        WORDS[truncated],
        b',"metadata":%b' % seen.metadata if isinstance(seen.metadata, Raw) else b"",
    )


def _json(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except TypeError as problem:
        raise ValidationError(f"this cannot be said in JSON: {problem}", expected="JSON values") from None


def _read(model: type[ModelT], text: bytes | Raw, word: str) -> ModelT:
    try:
        return model.__pydantic_validator__.validate_json(bytes(text))  # type: ignore[no-any-return]
    except ModelError as problem:
        first = problem.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "it"
        raise ValidationError(
            f"the server's {word} does not fit {model.__name__}: {where}: {first['msg']}",
            expected="a client whose types match the server's",
        ) from None
