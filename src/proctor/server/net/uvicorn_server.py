"""uvicorn as it is used here: it tells nobody about itself, says when it listens, and lets us say goodbye before it closes.

Connections are accepted here and not by uvicorn's own servers: libuv accepts all that wait before it does anything else, so that
whoever opens a thousand connections at once would hold up every session.
"""

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import uvicorn

LOG: Final = logging.getLogger("proctor.server")
GRACE_SECONDS: Final = 5
ACCEPTED_AT_ONCE: Final = 4
BATCH_SECONDS: Final = 0.001
"""So many connections are accepted in so many seconds, and no more."""
NO_DESCRIPTOR_SECONDS: Final = 0.5
"""How long nothing is accepted when there is no file descriptor left, or no memory."""


def make_uvicorn_config(application: Any, **more: Any) -> uvicorn.Config:
    """Return how an application is served; `more` is uvicorn's own, such as who speaks HTTP and WebSockets."""
    return uvicorn.Config(
        application,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        **more,
    )


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's event loop, and where that is not installed Python's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class FairListener:
    """Accepts the connections of a listening socket, a few at a time."""

    def __init__(self, listener: socket.socket, backlog: int, protocol_of: Callable[[], asyncio.Protocol]) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._protocol_of = protocol_of
        self._connecting: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        listener.listen(backlog)
        self._loop.add_reader(listener, self._accept)

    def close(self) -> None:
        """Accept no more; the socket is not closed."""
        self._loop.remove_reader(self._listener)
        if self._pause is not None:
            self._pause.cancel()

    async def wait_closed(self) -> None:
        """Return when no connection is about to be made."""
        if self._connecting:
            await asyncio.wait(self._connecting)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                peer, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as problem:
                # It would be tried again at once, for as long as the connection waits.
                LOG.error("a connection could not be accepted: %s", problem.strerror)
                self._wait(NO_DESCRIPTOR_SECONDS)
                return
            peer.setblocking(False)
            task = self._loop.create_task(self._connect(peer))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)
        self._wait(BATCH_SECONDS)

    def _wait(self, seconds: float) -> None:
        self._loop.remove_reader(self._listener)
        self._pause = self._loop.call_later(seconds, self._loop.add_reader, self._listener, self._accept)

    async def _connect(self, peer: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._protocol_of, peer)
        except OSError:  # it has gone again
            peer.close()


class FairServer(uvicorn.Server):
    """uvicorn, on sockets whose connections are accepted a few at a time."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup([])
        listen = self.config.backlog
        self.servers = [FairListener(each, listen, self._protocol) for each in sockets or []]  # type: ignore[misc]  # only closed

    def _protocol(self) -> asyncio.Protocol:
        protocol: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]  # as uvicorn itself does
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol


class DrainingServer(FairServer):
    """A server that waits for `drained` before it closes what is open; `ready` is called when it listens.

    A signal to stop is obeyed and that is all: raised again, as uvicorn would, it would end the process before it has
    closed what it opened.
    """

    def __init__(self, config: uvicorn.Config, drained: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config)
        self.ready: Callable[[], object] = lambda: None
        self._drained = drained

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let signals stop the server while it serves, where there are signals at all."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        self.ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Say goodbye, then close."""
        await self._drained()
        await super().shutdown(sockets)
