"""uvicorn as it is used here: it tells nobody about itself, says when it listens, and lets us say goodbye before it closes."""

import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import uvicorn

GRACE_SECONDS: Final = 5


def quiet_config(application: Any, **more: Any) -> uvicorn.Config:
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
