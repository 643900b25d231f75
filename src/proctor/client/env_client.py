"""The typed client: `reset`, `step` and `state` of one environment that a server runs.

Rule 1: an action goes out and an observation comes in as the models that the class names; a reply that does not fit them is
    a ValidationError, never a guess.
Rule 2: this is the one implementation; `sync()` and `blocking()` give the same calls without `await`.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Generic, Self

from pydantic import BaseModel, JsonValue

from proctor.client.blocking import SyncEnvClient
from proctor.client.connection import Connection, Noticed
from proctor.client.grants import Grant, wish_of
from proctor.client.parsing import json_of, observation_text, read_model
from proctor.client.session import Session
from proctor.client.settings import Settings
from proctor.client.transitions import Transition, transition_of
from proctor.client.watching import Episode, OnMissed, Watching
from proctor.client.wire_types import difference, parameters_of
from proctor.contracts.environment import ActT, ObsT, StateT
from proctor.errors import ComponentError, RemoteError, ValidationError
from proctor.models import grants
from proctor.models.control import Code, Metadata, Open, Schemas, Seen
from proctor.models.grants import Ended, Granted, GrantWish, Revoke
from proctor.models.wire import Action, Observation, State


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
        shared: bool = False,
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
        order = Open(step_timeout_seconds=step_timeout_seconds, shared=shared)
        self.session: Final = Session(self.connection, order, Seen)
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
    def blocking(
        cls,
        url: str,
        *,
        token: str | None = None,
        settings: Settings | None = None,
        on_notice: Noticed | None = None,
        shared: bool = False,
        check_schema: bool = False,
    ) -> SyncEnvClient[ActT, ObsT, StateT]:
        """Return a client whose calls need no `await`."""
        return cls(
            url, token=token, settings=settings, on_notice=on_notice, shared=shared, check_schema=check_schema
        ).sync()

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
        given = {"seed": seed, "episode_id": episode_id, "options": options, "grant": wish_of(grant)}
        data = {key: value for key, value in given.items() if value is not None}
        if "grant" in data:
            await self.session.open()
            self.session.check_agents()
        seen = await self.session.reset(json_of(data) if data else b"")
        self.granted = Grant.of(seen.grant) if isinstance(seen.grant, Granted) else None
        if self.granted is None and "grant" in data:
            raise RemoteError("the episode has begun, but the server gave no grant on it", code=Code.NO_AGENT_PLANE)
        return self._observed(seen)

    async def step(self, action: ActT) -> ObsT:
        """Return what `action` leads to, with its reward."""
        if not isinstance(action, self.action_type):
            raise ValidationError("not an action of this client", found=action, expected=self.action_type.__name__)
        return self._observed(await self.session.step(action.__pydantic_serializer__.to_json(action)))

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
        wish = wish_of(GrantWish(agent, ttl_seconds, calls_per_second, names))
        return Grant.of(await self.session.grant(json_of(wish)))

    async def revoke(self, grant: Grant | str) -> bool:
        """Take a grant back, and return whether it was live until now."""
        name = grant.grant if isinstance(grant, Grant) else grant
        return (await self.session.revoke(json_of(Revoke(name)))).live

    def watch(
        self, after: int = 0, *, follow: bool = True, on_missed: OnMissed = "raise"
    ) -> AsyncIterator[Transition[ActT, ObsT]]:
        """Yield every step that an agent takes in this episode, until it is over; `after` is the last row that one has.

        With `follow=False` it ends with the last row that there is: for when the agent has gone and the episode has not
        ended. Raises Missed if rows are no longer kept (`on_missed="skip"` goes on with the next one), and EpisodeLost at the
        end of an episode that broke off.
        """
        return self.watching(after, follow=follow, on_missed=on_missed).awaited()

    def watching(self, after: int = 0, *, follow: bool = True, on_missed: OnMissed = "raise") -> Watching[ActT, ObsT]:
        """Return what `watch` reads from, for one who wants the rows in bunches: `more()`."""
        return Watching(self.session, self._transition, after=after, follow=follow, on_missed=on_missed)

    async def wait_end(self, timeout: float | None = None) -> Ended:
        """Return how this episode ended, whoever ended it; raise RequestTimeout if it goes on for longer."""
        return await Episode(self.session).end(timeout)

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
        return read_model(self.observation_type, observation_text(seen), "observation")

    def _transition(self, row: grants.Transition) -> Transition[ActT, ObsT]:
        return transition_of(row, self.action_type, self.observation_type)

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
