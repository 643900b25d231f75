"""Listening sockets, and uvicorn as it serves them here: it tells nobody about itself, says when it listens, and lets us say goodbye before it closes.

Connections are accepted here and not by uvicorn's own servers: libuv accepts all that wait before it does anything else, so that
whoever opens a thousand connections at once would hold up every session.

Ports that a server had before are remembered: its clients and agents come back to the same address.

Rule 1: a port that was asked for is taken or refused, as ever; only one that anybody may choose is remembered.
Rule 2: where a remembered port is taken by somebody else, a free one does for this run; what is remembered stays, because
    the other may be the very server that it was remembered for.
"""

import asyncio
import json
import logging
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import uvicorn

from proctor.access.request_policy import HIGHEST_PORT
from proctor.errors import ValidationError

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
        # As uvicorn itself does.
        state, app_state, kind = self.server_state, self.lifespan.state, cast("Any", self.config.http_protocol_class)
        protocol = partial(kind, config=self.config, server_state=state, app_state=app_state)
        self.servers = [FairListener(each, self.config.backlog, protocol) for each in sockets or []]  # type: ignore[misc]  # only closed


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


BACKLOG: Final = 2048
FILE: Final = "ports.json"


def bind_tcp(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to the address, or raise a ValidationError that says why not."""
    if not host:
        raise ValidationError(
            "cannot listen on no address", expected="a name or a number; 127.0.0.1 is this machine alone"
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named: asyncio's own loop sends small writes at once only on sockets of which it knows it.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), port))
    except OSError as problem:
        listener.close()
        raise ValidationError(
            f"cannot listen on {host}:{port}: {problem.strerror}", expected="a free port (0 takes any) on this machine"
        ) from None
    listener.listen(BACKLOG)
    return listener


def bind_unix(path: Path) -> socket.socket:
    """Return a socket at `path` that only its owner can connect to; a dead one in its place is removed."""
    if path.is_socket():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()
            except OSError:
                pass  # what it is, `bind` will say
            else:
                raise ValidationError(f"somebody listens on {path} already", expected="another path")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        path.chmod(0o600)
    except OSError as problem:
        listener.close()
        reason = problem.strerror or str(problem)
        raise ValidationError(f"cannot listen on {path}: {reason}", expected="a new path") from None
    listener.listen(BACKLOG)
    return listener


def port_of(listener: socket.socket) -> int | None:
    """Return the port that was really taken; None for a Unix socket."""
    return None if listener.family == socket.AF_UNIX else int(listener.getsockname()[1])


def bind_remembered_port(folder: Path | None, name: str, host: str, port: int) -> socket.socket:
    """Return a socket that listens on the port; for port 0, on the one that `name` had before, if it is free.

    What was had before is kept in the ledger's `folder`; without one nothing is remembered.
    """
    if port != 0 or folder is None:
        return bind_tcp(host, port)
    file = folder / FILE
    remembered: dict[str, int] = {}
    with suppress(OSError, msgspec.DecodeError):  # what cannot be read was not written down
        remembered = msgspec.json.decode(file.read_bytes(), type=dict[str, int])
    before = remembered.get(name, 0)
    if 0 < before <= HIGHEST_PORT:
        with suppress(ValidationError):
            return bind_tcp(host, before)
        return bind_tcp(host, 0)
    listener = bind_tcp(host, 0)
    beside = file.with_name(f"{file.name}.new")
    with suppress(OSError):  # where nothing can be written, the ledger itself will say so
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside.touch(mode=0o600)
        beside.write_text(json.dumps(remembered | {name: port_of(listener)}, indent=1))
        beside.replace(file)
    return listener
