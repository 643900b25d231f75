"""A wire between a client and a real server that can be cut, and on which replies can be lost."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE = 120.0


class Wire:
    """Passes bytes between its own port and a server's, until told otherwise."""

    def __init__(self, loop: asyncio.AbstractEventLoop, port: int) -> None:
        self.target = port
        self.accepts = True
        self.deaf = False
        """Bytes of the server are thrown away."""
        self.made = 0
        """Connections so far."""
        self.requests: list[bytes] = []
        """What the client sent, as it came."""
        self._loop = loop
        self._writers: list[asyncio.StreamWriter] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def cut(self) -> None:
        """Break all connections, without farewell."""
        self._on_loop(self._abort_all)

    def _abort_all(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def _on_loop(self, work: Callable[[], Any]) -> None:
        done = threading.Event()

        def call() -> None:
            work()
            done.set()

        self._loop.call_soon_threadsafe(call)
        assert done.wait(PATIENCE)

    async def serve(self) -> None:
        async with await asyncio.start_server(self._join, sock=self.listener) as server:
            await server.serve_forever()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.made += 1
        if not self.accepts:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self._writers += [writer, far_writer]
        await asyncio.gather(
            self._pass(reader, far_writer, heard=True), self._pass(far_reader, writer), return_exceptions=True
        )
        for each in (writer, far_writer):
            each.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, heard: bool = False) -> None:
        while chunk := await reader.read(2**16):
            if heard:
                self.requests.append(chunk)
            if heard or not self.deaf:
                writer.write(chunk)
                await writer.drain()
        writer.transport.abort()


@contextmanager
def wire_to(port: int) -> Iterator[Wire]:
    """Lay a wire to the server at `port`; serve it with `allow_hosts=["127.0.0.1"]`."""
    loop = asyncio.new_event_loop()
    wire = Wire(loop, port)
    serving = loop.create_task(wire.serve())
    thread = threading.Thread(target=_run, args=(loop, serving), daemon=True)
    thread.start()
    try:
        yield wire
    finally:
        wire.cut()
        loop.call_soon_threadsafe(serving.cancel)
        thread.join(PATIENCE)
        assert not thread.is_alive()


def _run(loop: asyncio.AbstractEventLoop, serving: asyncio.Task[None]) -> None:
    try:
        loop.run_until_complete(asyncio.wait([serving]))
        others = asyncio.all_tasks(loop)
        for task in others:
            task.cancel()
        if others:
            loop.run_until_complete(asyncio.wait(others))
    finally:
        loop.close()
