"""The socket against real peers: a server of ours, a Unix socket, and one that fragments."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from proctor.client.address import parse_address
from proctor.client.connection import Connection
from proctor.client.socket import MOST_BYTES, Socket, is_final, open_socket
from proctor.errors import ConnectionFailed
from tests.client.conftest import COUNTING
from tests.server.live_server import serving

pytestmark = pytest.mark.anyio

SECRET = "a-secret-that-nobody-may-read"
PATIENCE = 120.0


class Ear:
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[bytes] = asyncio.Queue()
        self.broke: asyncio.Future[Socket] = asyncio.get_running_loop().create_future()

    def on_message(self, message: bytes) -> None:
        self.messages.put_nowait(message)

    def on_broken(self, socket: Socket) -> None:
        self.broke.set_result(socket)


async def hear(handler: Any, count: int) -> list[bytes]:
    async with serve(handler, "127.0.0.1", 0, compression=None) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        ear = Ear()
        socket = await open_socket(
            parse_address(f"http://127.0.0.1:{port}"), ear, seconds=PATIENCE, ping_seconds=PATIENCE
        )
        socket.say(b"go")
        heard = [await asyncio.wait_for(ear.messages.get(), PATIENCE) for _ in range(count)]
        await socket.close()
        assert await asyncio.wait_for(ear.broke, PATIENCE) is socket
        socket.say(b"into the void")
        return heard


def test_messages_come_whole_also_in_pieces_and_between_pings() -> None:
    async def speak(connection: ServerConnection) -> None:
        await connection.recv()
        await connection.send("one")
        await connection.send(["tw", "", "o"])
        await connection.ping()
        await connection.send("ö" * 70_000)

    heard = asyncio.run(hear(speak, 3))

    assert [each.decode() for each in heard] == ["one", "two", "ö" * 70_000]


def test_a_binary_message_says_nothing() -> None:
    async def speak(connection: ServerConnection) -> None:
        await connection.recv()
        await connection.send(b'{"type":"hello"}')
        await connection.send([b'{"type"', b':"hello"}'])

    assert b"hello" not in b"".join(asyncio.run(hear(speak, 2))[:1])


async def test_a_message_beyond_all_measure_breaks_the_connection() -> None:
    async def speak(connection: ServerConnection) -> None:
        await connection.recv()
        head = bytes([0x81, 127]) + (MOST_BYTES + 1).to_bytes(8, "big")
        connection.transport.write(head)
        await connection.wait_closed()

    async with serve(speak, "127.0.0.1", 0, compression=None) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        ear = Ear()
        socket = await open_socket(
            parse_address(f"http://127.0.0.1:{port}"), ear, seconds=PATIENCE, ping_seconds=PATIENCE
        )
        socket.say(b"go")
        broken = await asyncio.wait_for(ear.broke, PATIENCE)
        result = broken.is_open, ear.messages.empty()

    assert result == (False, True)


async def failed_dial(url: str, token: str | None = None, seconds: float = PATIENCE) -> ConnectionFailed:
    with pytest.raises(ConnectionFailed) as failure:
        await open_socket(parse_address(url, token=token), Ear(), seconds=seconds, ping_seconds=PATIENCE)
    return failure.value


def test_a_wrong_credential_is_said_and_is_final() -> None:
    with serving(COUNTING, secret=SECRET) as there:
        failure = asyncio.run(failed_dial(there.url, "a-wrong-credential"))
        nothing = asyncio.run(failed_dial(there.url))

    assert failure.found == nothing.found == 401
    assert "credential" in failure.message
    assert is_final(failure)


def test_the_right_credential_is_let_in_by_keyword_address_and_variable() -> None:
    async def main(url: str, **how: Any) -> str:
        async with Connection(url, **how) as connection:
            return (await connection.metadata()).name

    with serving(COUNTING, secret=SECRET) as there:
        in_url = there.url.replace("//", f"//proctor:{SECRET}@")
        names = [
            asyncio.run(main(there.url, token=SECRET)),
            asyncio.run(main(in_url)),
            asyncio.run(main(there.url, environment={"PROCTOR_CONTROL_TOKEN": SECRET})),
        ]

    assert names == ["Counting"] * 3


def test_no_log_line_and_no_error_shows_the_credential(caplog: pytest.LogCaptureFixture) -> None:
    async def main(url: str) -> str:
        async with Connection(url, token=SECRET) as connection:
            await connection.metadata()
            return repr(connection) + repr(connection.address)

    caplog.set_level(logging.DEBUG)
    with serving(COUNTING, secret=SECRET) as there:
        shown = asyncio.run(main(there.url))
        shown += str(asyncio.run(failed_dial(there.url + "/nowhere", SECRET)))

    assert SECRET not in shown
    # The server of this test has no redaction: its lines do not count.
    lines = [record for record in caplog.records if not record.name.startswith("uvicorn")]
    assert lines
    assert not [line for line in lines if SECRET in line.getMessage() + str(line.args)]


def test_nobody_there_is_a_failure_that_may_pass() -> None:
    failure = asyncio.run(failed_dial("http://127.0.0.1:9"))

    assert not is_final(failure)


@asynccontextmanager
async def odd_server(answer: bytes | None) -> AsyncIterator[str]:
    """Answer a handshake with these bytes and close, or with nothing at all."""
    writers: list[asyncio.StreamWriter] = []

    async def odd(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        if answer is not None:
            writer.write(answer)
            writer.close()

    async with await asyncio.start_server(odd, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for writer in writers:
            writer.transport.abort()
        await asyncio.wait([asyncio.create_task(writer.wait_closed()) for writer in writers])


async def test_a_server_that_never_answers_is_given_up_in_time() -> None:
    async with odd_server(None) as url:
        result = await failed_dial(url, seconds=0.1)

    assert "timed out" in result.message


@pytest.mark.parametrize(
    "answer",
    [b"SSH-2.0\r\n\r\n", b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n", b""],
)
async def test_what_is_no_websocket_is_a_failure_and_no_redirect_is_followed(answer: bytes) -> None:
    async with odd_server(answer) as url:
        result = await failed_dial(url, SECRET)

    assert SECRET not in str(result)


async def test_a_unix_socket_is_spoken_to(tmp_path: Path) -> None:
    async def greet(connection: ServerConnection) -> None:
        async for _ in connection:
            await connection.send('{"type":"error","data":{"message":"no","code":"UNKNOWN_TYPE"}}')

    from websockets.asyncio.server import unix_serve

    path = tmp_path / "proctor.sock"
    async with unix_serve(greet, str(path)), Connection(f"unix://{path}") as connection:
        result = connection.welcome is not None

    assert result is False
