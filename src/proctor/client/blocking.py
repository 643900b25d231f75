"""The client without `await`: one event loop on a thread of its own, shared by all blocking clients of a process.

Rule 1: a call is handed to the loop with one callback and waits on one lock; nothing is written twice.
Rule 2: between two calls the loop runs on, so that pings are answered while a learner computes.
Rule 3: threads do not survive a fork: a child process gets a loop of its own, and a client that its parent made is refused.
"""

import asyncio
import os
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from pydantic import JsonValue

from proctor.client.agents import Grant, OnMissed, Transition
from proctor.contracts.environment import ActT, ObsT, StateT
from proctor.errors import StateError
from proctor.models.control import Ended, GrantWish, Metadata, Schemas

if TYPE_CHECKING:
    from proctor.client.env_client import EnvClient

T = TypeVar("T")


class LoopThread:
    """An event loop on a daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proctor-client", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return what the coroutine returns; if waiting is interrupted, it is cancelled."""
        if self._process != os.getpid() or self._thread is threading.current_thread():
            coroutine.close()
            raise StateError(
                "this client cannot be used here",
                expected="the process that made it" if self._process != os.getpid() else "the async client on the loop",
            )
        over = threading.Lock()
        over.acquire()
        tasks: list[asyncio.Task[T]] = []

        def end(task: asyncio.Task[T]) -> None:
            if not task.cancelled():
                task.exception()  # whoever was interrupted does not ask any more
            over.release()

        def begin() -> None:
            tasks.append(self._loop.create_task(coroutine))
            tasks[0].add_done_callback(end)

        def cancel() -> None:
            tasks[0].cancel()

        self._loop.call_soon_threadsafe(begin)
        try:
            over.acquire()
        except KeyboardInterrupt:
            self._loop.call_soon_threadsafe(cancel)  # after `begin`: callbacks run in their order
            raise
        return tasks.pop().result()


class _Shared:
    """The loop thread of this process, made when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: LoopThread | None = None
        self._inherited: list[LoopThread] = []

    def get(self) -> LoopThread:
        """Return the loop thread of this process."""
        with self._lock:
            if self._current is None:
                self._current = LoopThread()
            return self._current

    def after_fork(self) -> None:
        """Forget the parent's thread; its loop is kept untouched, because closing it would disturb the parent's."""
        self._lock = threading.Lock()
        if self._current is not None:
            self._inherited.append(self._current)
            self._current = None


_SHARED: Final = _Shared()
os.register_at_fork(after_in_child=_SHARED.after_fork)


get_shared_loop: Final = _SHARED.get
"""Returns the loop that all blocking clients of this process share."""


class SyncEnvClient(Generic[ActT, ObsT, StateT]):
    """An `EnvClient` whose calls need no `await`; made by `EnvClient.sync()` or `EnvClient.blocking()`."""

    def __init__(self, client: "EnvClient[ActT, ObsT, StateT]") -> None:
        self.client: Final = client
        self._run: Final = get_shared_loop().run

    def __repr__(self) -> str:
        return f"{self.client!r}.sync()"

    def __enter__(self) -> Self:
        self._run(self.client.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def connect(self) -> None:
        """Connect and open the session; doing it again does nothing."""
        self._run(self.client.connect())

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        options: Mapping[str, JsonValue] | None = None,
        grant: GrantWish | bool | None = None,
    ) -> ObsT:
        """Begin an episode and return its first observation; with `grant`, its tools are then in `granted`."""
        return self._run(self.client.reset(seed, episode_id, options, grant))

    def step(self, action: ActT) -> ObsT:
        """Return what `action` leads to, with its reward."""
        return self._run(self.client.step(action))

    def state(self) -> StateT:
        """Return where the environment stands."""
        return self._run(self.client.state())

    @property
    def head(self) -> str | None:
        """What proves the record (see `EnvClient.head`)."""
        return self.client.head

    @property
    def granted(self) -> Grant | None:
        """What the last reset brought along, if it asked for a grant."""
        return self.client.granted

    def grant(
        self,
        agent: str = "",
        ttl_seconds: float | None = None,
        calls_per_second: float | None = None,
        tools: Sequence[str] | None = None,
    ) -> Grant:
        """Return a way for an agent to the tools of the episode that runs; `agent` is its name in the record."""
        return self._run(self.client.grant(agent, ttl_seconds, calls_per_second, tools))

    def revoke(self, grant: Grant | str) -> bool:
        """Take a grant back, and return whether it was live until now."""
        return self._run(self.client.revoke(grant))

    def watch(
        self, after: int = 0, *, follow: bool = True, on_missed: OnMissed = "raise"
    ) -> Iterator[Transition[ActT, ObsT]]:
        """Yield every step that an agent takes in this episode, until it is over (see `EnvClient.watch`)."""
        return self.client.watching(after, follow=follow, on_missed=on_missed).iterate_blocking(self._run)

    def wait_end(self, timeout: float | None = None) -> Ended:
        """Return how this episode ended, whoever ended it; raise RequestTimeout if it goes on for longer."""
        return self._run(self.client.wait_end(timeout))

    def metadata(self) -> Metadata:
        """Return who serves what."""
        return self._run(self.client.metadata())

    def schema(self) -> Schemas:
        """Return the JSON Schemas of the server's wire types."""
        return self._run(self.client.schema())

    def close(self) -> None:
        """End the session and the connection; calling it again does nothing."""
        self._run(self.client.close())
