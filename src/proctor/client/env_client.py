"""The clients of one environment on a server: `EnvClient` with models, `GenericClient` with whatever JSON there is.

Rule 1: an action goes out and an observation comes in as the models that the class names; a reply that does not fit them is
    a ValidationError, never a guess.
Rule 2: this is the one implementation; `sync()` and `blocking()` give the same calls without `await`.
Rule 3: `class PlumeClient(EnvClient[PlumeAction, PlumeObservation, PlumeState])` names its types once, there.
Rule 4: schemas agree if every value that one side sends is described alike by both; titles, descriptions, defaults and
    what travels beside an observation say nothing about that.
"""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, Self, TypedDict, TypeVar, Unpack, get_args, get_origin

from pydantic import BaseModel, JsonValue, model_serializer, model_validator

from proctor.client.agents import (
    Grant,
    OnMissed,
    Transition,
    TransitionReader,
    WatchedEpisode,
    make_grant_wish,
    read_transition,
)
from proctor.client.blocking import SyncEnvClient
from proctor.client.connection import Connection, ConnectionSettings, NoticeHandler
from proctor.client.replies import encode_json, encode_observation, read_model
from proctor.client.session import ClientSession
from proctor.contracts.environment import ActT, ObsT, StateT
from proctor.errors import ComponentError, RemoteError, ValidationError
from proctor.models.control import Code, Ended, Granted, GrantWish, Metadata, ObservationReply, Open, Revoke, Schemas
from proctor.models.wire import OUTSIDE, Action, Observation, State

IGNORED_KEYWORDS: Final = frozenset({"title", "description", "default", "examples", "$defs", "$schema"})
"""What a schema says to people only, or what is looked up where it is referred to."""
REFERENCE: Final = "#/$defs/"
DEEPEST: Final = 32


def find_schema_difference(model: type[BaseModel], theirs: Mapping[str, Any], *, sent: bool) -> str | None:
    """Return where the server's schema differs from the client's model, None if it does not.

    `sent`: the client sends such values; otherwise it receives them.
    """
    mine = model.model_json_schema(mode="validation" if sent else "serialization")
    return next(_find_differences(mine, theirs, (mine, theirs), ""), None)


def _find_differences(mine: Any, theirs: Any, roots: tuple[Any, Any], where: str) -> Iterator[str]:
    mine, theirs = _resolve_reference(mine, roots[0]), _resolve_reference(theirs, roots[1])
    if where.count("/") > DEEPEST:
        return
    if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
        for key in sorted((mine.keys() | theirs.keys()) - IGNORED_KEYWORDS):
            if (key in mine) != (key in theirs):
                yield f"{where}/{key} is {'missing on the server' if key in mine else 'unknown to the client'}"
            else:
                yield from _find_differences(*_inside(key, mine[key], theirs[key], where), roots, f"{where}/{key}")
    elif isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        for index, (one, other) in enumerate(zip(mine, theirs, strict=True)):
            yield from _find_differences(one, other, roots, f"{where}/{index}")
    elif mine != theirs:
        yield f"{where} is {mine!r} for the client and {theirs!r} for the server"


def _inside(key: str, mine: Any, theirs: Any, where: str) -> tuple[Any, Any]:
    """Return both without what travels beside an observation, which is not part of it; only the top has such fields."""
    if where or key not in ("properties", "required"):
        return mine, theirs
    if key == "required":
        return sorted(set(mine) - OUTSIDE), sorted(set(theirs) - OUTSIDE)
    return tuple({name: part for name, part in side.items() if name not in OUTSIDE} for side in (mine, theirs))  # type: ignore[return-value]


def _resolve_reference(schema: Any, root: Any) -> Any:
    reference = schema.get("$ref") if isinstance(schema, Mapping) else None
    if isinstance(reference, str) and reference.startswith(REFERENCE):
        return root.get("$defs", {}).get(reference.removeprefix(REFERENCE), schema)
    return schema


class ClientOptions(TypedDict, total=False):
    """What `EnvClient` takes besides the address and its types."""

    token: str | None
    settings: ConnectionSettings | None
    on_notice: NoticeHandler | None
    step_timeout_seconds: float | None
    shared: bool
    check_schema: bool


class EnvClient(Generic[ActT, ObsT, StateT]):
    """One session on a server; connects when it is first used, or with `async with`.

    `url` is a server's address or a `Connection` that several clients share. A subclass names its types,
    `class PlumeClient(EnvClient[PlumeAction, PlumeObservation, PlumeState])`; without a subclass they are given here.
    With `check_schema` the server's schemas are compared with them once, before the first episode. In a `shared` session
    the orchestrator may step, too, while an agent holds a grant.
    """

    action_type: type[ActT]
    observation_type: type[ObsT]
    state_type: type[StateT]
    _types: Mapping[str, Any] = {}
    """What a subclass says of each: a type, or the variable that a subclass of its own fills."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for alias in vars(cls).get("__orig_bases__", ()):
            origin = get_origin(alias)
            if isinstance(origin, type) and issubclass(origin, EnvClient):
                variables = getattr(origin, "__parameters__", ())
                given = dict(zip(variables, get_args(alias), strict=True))
                known = origin._types or dict(
                    zip(("action_type", "observation_type", "state_type"), variables, strict=True)
                )
                cls._types = {name: given.get(found, found) for name, found in known.items()}
        for name, found in cls._types.items():
            if not isinstance(found, TypeVar) and name not in vars(cls):
                setattr(cls, name, found)

    def __init__(
        self,
        url: str | Connection,
        *,
        action_type: type[ActT] | None = None,
        observation_type: type[ObsT] | None = None,
        state_type: type[StateT] | None = None,
        token: str | None = None,
        settings: ConnectionSettings | None = None,
        on_notice: NoticeHandler | None = None,
        step_timeout_seconds: float | None = None,
        shared: bool = False,
        check_schema: bool = False,
    ) -> None:
        self.action_type = self._find_type("action_type", action_type, Action)
        self.observation_type = self._find_type("observation_type", observation_type, Observation)
        self.state_type = self._find_type("state_type", state_type, State)
        self._owns = not isinstance(url, Connection)
        if isinstance(url, Connection):
            if token is not None or settings is not None or on_notice is not None:
                raise ValidationError("a shared connection has its own credential and settings", expected="neither")
            self.connection = url
        else:
            self.connection = Connection(url, token=token, settings=settings, on_notice=on_notice)
        order = Open(step_timeout_seconds=step_timeout_seconds, shared=shared)
        self.session: Final = ClientSession(self.connection, order, ObservationReply)
        self.granted: Grant | None = None
        """What the last reset brought along, if it asked for a grant."""
        self._unchecked = check_schema

    @property
    def head(self) -> str | None:
        """What proves the record: the head in the last reply to a reset or a close; None where no ledger is kept.

        `proctor ledger verify --head` takes it, and finds out if anything before it was dropped or changed.
        """
        return self.session.head

    @classmethod
    def on(cls, connection: Connection) -> Self:
        """Return a client with a session of its own on a connection that others use as well."""
        return cls(connection)

    @classmethod
    def blocking(cls, url: str, **options: Unpack[ClientOptions]) -> SyncEnvClient[ActT, ObsT, StateT]:
        """Return a client whose calls need no `await`."""
        return cls(url, **options).sync()

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
        grant: GrantWish | bool | None = None,
    ) -> ObsT:
        """Begin an episode and return its first observation; with `grant`, its tools are then in `granted`."""
        if self._unchecked:
            await self._check_schema()
        given = {"seed": seed, "episode_id": episode_id, "options": options, "grant": make_grant_wish(grant)}
        data = {key: value for key, value in given.items() if value is not None}
        if "grant" in data:
            await self.session.open()
            self.session.check_agents()
        seen = await self.session.reset(encode_json(data) if data else b"")
        self.granted = Grant.of(seen.grant) if isinstance(seen.grant, Granted) else None
        if self.granted is None and "grant" in data:
            raise RemoteError("the episode has begun, but the server gave no grant on it", code=Code.NO_AGENT_PLANE)
        return read_model(self.observation_type, encode_observation(seen), "observation")

    async def step(self, action: ActT) -> ObsT:
        """Return what `action` leads to, with its reward."""
        if not isinstance(action, self.action_type):
            raise ValidationError("not an action of this client", found=action, expected=self.action_type.__name__)
        seen = await self.session.step(action.__pydantic_serializer__.to_json(action))
        return read_model(self.observation_type, encode_observation(seen), "observation")

    async def state(self) -> StateT:
        """Return where the environment stands."""
        return read_model(self.state_type, await self.session.state(), "state")

    async def grant(
        self,
        agent: str = "",
        ttl_seconds: float | None = None,
        calls_per_second: float | None = None,
        tools: Sequence[str] | None = None,
    ) -> Grant:
        """Return a way for an agent to the tools of the episode that runs; `agent` is its name in the record."""
        names = None if tools is None else list(tools)
        wish = make_grant_wish(GrantWish(agent, ttl_seconds, calls_per_second, names))
        return Grant.of(await self.session.grant(encode_json(wish)))

    async def revoke(self, grant: Grant | str) -> bool:
        """Take a grant back, and return whether it was live until now."""
        name = grant.grant if isinstance(grant, Grant) else grant
        return (await self.session.revoke(encode_json(Revoke(name)))).live

    def watch(
        self, after: int = 0, *, follow: bool = True, on_missed: OnMissed = "raise"
    ) -> AsyncIterator[Transition[ActT, ObsT]]:
        """Yield every step that an agent takes in this episode, until it is over; `after` is the last row that one has.

        With `follow=False` it ends with the last row that there is: for when the agent has gone and the episode has not
        ended. Raises Missed if rows are no longer kept (`on_missed="skip"` goes on with the next one), and EpisodeLost at the
        end of an episode that broke off.
        """
        return self.watching(after, follow=follow, on_missed=on_missed).iterate()

    def watching(
        self, after: int = 0, *, follow: bool = True, on_missed: OnMissed = "raise"
    ) -> TransitionReader[ActT, ObsT]:
        """Return what `watch` reads from, for one who wants the rows in bunches: `more()`."""
        read = partial(read_transition, self.action_type, self.observation_type)
        return TransitionReader(self.session, read, after=after, follow=follow, on_missed=on_missed)

    async def wait_end(self, timeout: float | None = None) -> Ended:
        """Return how this episode ended, whoever ended it; raise RequestTimeout if it goes on for longer."""
        return await WatchedEpisode(self.session).end(timeout)

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

    def _find_type(self, name: str, given: Any, parent: type[BaseModel]) -> Any:
        found = getattr(type(self), name, None) if given is None else given
        if not isinstance(found, type) or not issubclass(found, parent):
            raise ComponentError(
                f"{type(self).__name__} does not name its {name}",
                found=found,
                expected=f"a subclass of {parent.__name__}, as parameter of the class or as {name}=",
            )
        return found

    async def _check_schema(self) -> None:
        schemas = await self.connection.schema()
        for word in ("action", "observation", "state"):
            model: type[BaseModel] = getattr(self, f"{word}_type")
            found = find_schema_difference(model, getattr(schemas, word), sent=word == "action")
            if found is not None:
                raise ValidationError(
                    f"the server's {word} is not what this client speaks: {found}", expected=f"a {model.__name__}"
                )
        self._unchecked = False


FIELDS: Final = "fields"


def _gather_fields(value: Any, own: frozenset[str]) -> Any:
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
        return _gather_fields(value, frozenset())

    @model_serializer(mode="plain")
    def _spread(self) -> dict[str, JsonValue]:
        return self.fields


class JsonObservation(Observation):
    """An observation of any fields: `observation["echoed"]`."""

    fields: dict[str, JsonValue] = {}

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, value: Any) -> Any:
        return _gather_fields(value, OUTSIDE)

    def __getitem__(self, name: str) -> JsonValue:
        return self.fields[name]


class JsonState(State):
    """A state of any fields: `state["score"]`."""

    fields: dict[str, JsonValue] = {}

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, value: Any) -> Any:
        return _gather_fields(value, frozenset(State.model_fields))

    def __getitem__(self, name: str) -> JsonValue:
        return self.fields[name]


class GenericClient(EnvClient[JsonAction, JsonObservation, JsonState]):
    """Drives any server without its models: `await client.step({"action": 1})`."""

    @classmethod
    def blocking(cls, url: str, **options: Unpack[ClientOptions]) -> SyncEnvClient[Any, JsonObservation, JsonState]:
        """Return a client whose calls need no `await`."""
        return cls(url, **options).sync()

    def sync(self) -> SyncEnvClient[Any, JsonObservation, JsonState]:
        """Return this client without `await`; from now on it is used through that alone."""
        return SyncEnvClient(self)

    async def step(self, action: JsonAction | Mapping[str, JsonValue]) -> JsonObservation:
        """Return what `action` leads to, with its reward."""
        return await super().step(action if isinstance(action, JsonAction) else JsonAction(fields=dict(action)))
