"""uvicorn, which says when it listens, and lets us say goodbye before it closes the sockets."""

import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import uvicorn


class DrainingServer(uvicorn.Server):
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
