"""One socket: reads frames, hands each to the session that it names, writes replies. The only file that awaits it.

Rule 1: reading never stops while a request runs, so that pings are answered and a `cancel` gets through.
Rule 2: whatever comes that is no request gets a coded error and touches no session; a frame that is not text, too.
Rule 3: a connection that breaks loses nothing: its sessions are detached, and wait for their client.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping
from functools import partial
from typing import Any, Final

from proctor import __version__
from proctor.access.limits import RequestLimits
from proctor.models.control import Code, Hello, MessageKind, Open, Problem, Request, Resume, Resumed, Welcome
from proctor.models.wire import Encoding
from proctor.server.control.channel import GONE, SessionChannel
from proctor.server.control.protocol import (
    RequestRule,
    choose_protocol,
    decode_data,
    encode_error,
    encode_reply,
    find_rule,
    read_request,
)
from proctor.server.control.session_registry import SessionRegistry
from proctor.server.net.metrics import Metrics
from proctor.server.net.uvicorn_websocket import ABORT, LISTEN, WRITABLE, run_first_part
from proctor.server.runtime.env_description import ServerDescription
from proctor.server.runtime.executors import run_on_thread
from proctor.server.runtime.results import RequestError, RequestRefused, log_internal_error, make_refusal

LOG: Final = logging.getLogger("proctor.control")
NORMAL: Final = 1000
LARGE: Final = 64 * 1024
"""A message beyond this is read on a thread, and not at all when there were too many before it."""
MOST_TASKS: Final = 64
"""Sessions that may be on their way, and requests that may wait for agents, on one connection."""
WAITING: Final = (MessageKind.WATCH, MessageKind.WAIT_END)
SEND_SECONDS: Final = 30.0
"""How long a peer may leave its replies unread before its connection is cut."""
TEXT_ONLY: Final = Problem("a message is a text frame", Code.INVALID_JSON)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class ControlConnection:
    """One accepted socket."""

    def __init__(
        self,
        scope: Mapping[str, Any],
        send: Send,
        sessions: SessionRegistry,
        description: ServerDescription,
        metrics: Metrics,
        *,
        limits: RequestLimits,
        max_pending: int,
        address: str | None,
    ) -> None:
        extensions = scope["extensions"]
        self.abort: Final[Callable[[], None]] = extensions[ABORT]
        """Cuts the connection at once."""
        self._send = send
        self._writable: asyncio.Event = extensions[WRITABLE]
        self._listen: Callable[[Callable[[str], bool] | None], object] = extensions.get(LISTEN, lambda listener: None)
        self._sessions = sessions
        self._description = description
        self._metrics = metrics
        self._limits = limits
        self._max_pending = max_pending
        self._address = address
        self._bucket = limits.bucket()
        self._fresh = True
        self._hello: Hello | None = None
        self._channels: dict[str, SessionChannel] = {}
        self._plain: SessionChannel | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._taking = False
        self._background: asyncio.Task[None] | None = None
        self._open = True

    async def serve(self, receive: Receive) -> None:
        """Read until the socket closes, then leave every session to whoever resumes it.

        Where the socket knows of listeners, frames come to `hear` first; what it cannot take at once is received here, one
        after the other.
        """
        self._listen(self.hear)
        try:
            while self._open:
                message = await receive()
                if message["type"] == "websocket.disconnect":
                    break
                await self._take_in_turn(message.get("text"))
        finally:
            self._listen(None)
            self._open = False
            self._leave()

    async def _take_in_turn(self, text: str | None) -> None:
        # Set before the wait: what is heard in the meantime must not overtake.
        self._taking = True
        try:
            if self._background is not None:
                await asyncio.wait([self._background])
            await self._take(text)
        finally:
            self._taking = False

    def hear(self, text: str) -> bool:
        """Answer a frame at once; False if another is still being answered."""
        if self._taking or self._background is not None or not self._open:
            return False
        rest = run_first_part(self._take(text))
        if rest is not None:
            # A peer that reads slowly, or a record that takes its time.
            self._background = rest
            rest.add_done_callback(self._clear_background)
        return True

    def _clear_background(self, rest: "asyncio.Task[None]") -> None:
        self._background = None

    async def send(self, message: bytes) -> None:
        """Send a reply; a peer that is gone, or never reads, does not hold anybody up."""
        if not self._open:
            return
        if not self._writable.is_set():
            await self._send_to_slow_peer({"type": "websocket.send", "text": message.decode()})
            return
        try:
            await self._send({"type": "websocket.send", "text": message.decode()})
        except OSError:
            self._open = False

    def post(self, message: bytes) -> None:
        """Send without waiting."""
        self._start(self.send(message))

    def end(self, code: int, reason: str) -> None:
        """Close the socket without waiting; what was sent before arrives before."""
        self._start(self.close(code, reason))

    async def close(self, code: int, reason: str) -> None:
        """Close the socket; closing it again does nothing."""
        if self._open:
            self._open = False
            await self._send_to_slow_peer({"type": "websocket.close", "code": code, "reason": reason})

    async def _send_to_slow_peer(self, message: Message) -> None:
        # Not for every message: a timer costs as much as a step.
        late = asyncio.get_running_loop().call_later(SEND_SECONDS, self.abort)
        try:
            await self._send(message)
        except OSError:
            self._open = False
        finally:
            late.cancel()

    def forget(self, session: str) -> None:
        """Let go of a session that has ended."""
        self._channels.pop(session, None)

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _start_within_limit(self, work: Coroutine[Any, Any, None]) -> None:
        if len(self._tasks) >= MOST_TASKS:
            work.close()
            raise make_refusal(Code.BUSY, "too many requests of this connection wait for something")
        self._start(work)

    async def _wait_and_send(self, channel: SessionChannel, request: Request, rule: RequestRule) -> None:
        await self.send(await channel.wait(request, rule))

    def _leave(self) -> None:
        if self._plain is not None:
            self._sessions.detach(self._plain, self)
        for channel in self._channels.values():
            self._sessions.detach(channel, self)
        for task in self._tasks:
            task.cancel()

    async def _take(self, text: str | None) -> None:
        """Answer one frame."""
        request: Request | None = None
        wait = 0.0 if self._bucket is None else self._bucket.take()
        try:
            if text is None or wait or len(text) > LARGE:
                request = await self._read(text, wait)
            else:
                request = read_request(text.encode("utf-8", "surrogatepass"), self._limits)
            if not self._open:
                # It broke while the frame was read: a session that it is given now would wait for it for ever.
                return
            if wait:
                raise _refuse_rate(wait)
            rule = find_rule(request, greeted=self._hello is not None, fresh=self._fresh)
            self._fresh = False
            answer = await self._answer(request, rule)
        except RequestError as problem:
            self._metrics.count_error(problem.problem.code)
            answer = self._error(problem.problem, request)
        except Exception as problem:  # noqa: BLE001  # an entry file: it is logged here, and the peer learns a number
            answer = self._error(log_internal_error(problem), request)
        # Without hello replies come in the order of requests, so an answer of our own waits for those before it.
        if answer is not None and not (self._plain is not None and self._plain.follow(answer)):
            await self.send(answer)

    async def _read(self, text: str | None, wait: float) -> Request:
        """Return the request in a large frame, or refuse one that is no text, or came too early: that is read to know which it was."""
        if text is None or (wait and len(text) > LARGE):
            raise _refuse_rate(wait) if wait else RequestRefused(TEXT_ONLY)
        read = partial(read_request, text.encode("utf-8", "surrogatepass"), self._limits)
        try:
            # On a thread, so that nobody else waits for it.
            return await run_on_thread(read, "proctor-reader") if len(text) > LARGE else read()
        except RequestRefused as problem:
            raise _refuse_rate(wait) if wait else problem from None

    def _error(self, problem: Problem, request: Request | None) -> bytes:
        if request is None or self._hello is None:
            return encode_error(problem)
        return encode_error(problem, request.id, request.session)

    async def _answer(self, request: Request, rule: RequestRule) -> bytes | None:
        """Return the reply, or None if it comes later or not at all."""
        if rule.kind in WAITING:
            self._start_within_limit(self._wait_and_send(self._channel(request), request, rule))
            return None
        if rule.names_session:
            channel = self._channels.get(request.session or "")
            if channel is None or channel.outlet is not self:
                channel = self._channel(request)
            return await channel.take(request, rule)
        return await _HANDLERS[rule.kind](self, request, rule)

    def _channel(self, request: Request) -> SessionChannel:
        if self._hello is None:
            if self._plain is None:
                self._plain = self._sessions.create_plain(self)
            return self._plain
        channel = self._channels.get(request.session or "")
        if channel is None or channel.closed or channel.outlet is not self:
            raise RequestRefused(GONE)
        return channel

    async def _greet(self, request: Request, rule: RequestRule) -> bytes:
        hello = decode_data(request, Hello)
        version = choose_protocol(hello)
        self._hello = hello
        welcome = Welcome(
            version,
            f"proctor/{__version__}",
            self._sessions.boot,
            self._description.metadata.name,
            self._address,
            hello.packed,
            hello.compression,
            self._limits.max_message_bytes,
            self._max_pending,
        )
        return encode_reply("hello", welcome, request.id)

    async def _open_session(self, request: Request, rule: RequestRule) -> None:
        self._start_within_limit(self._open_and_reply(request, decode_data(request, Open)))

    async def _open_and_reply(self, request: Request, wish: Open) -> None:
        hello = self._hello or Hello([])
        channel: SessionChannel | None = None
        try:
            channel, opened = await self._sessions.open(wish, self, Encoding(hello.packed, hello.compression))
            self._channels[channel.session.name] = channel
            answer = encode_reply("opened", opened, request.id, channel.session.name, 0)
        except RequestError as problem:
            self._metrics.count_error(problem.problem.code)
            answer = encode_error(problem.problem, request.id)
        except Exception as problem:  # noqa: BLE001  # an entry file, as in `_take`
            answer = encode_error(log_internal_error(problem), request.id)
        if not self._open and channel is not None:
            self._sessions.detach(channel, self)
        await self.send(answer)

    async def _resume(self, request: Request, rule: RequestRule) -> bytes:
        channel = self._sessions.resume(decode_data(request, Resume), self)
        session = channel.session
        self._channels[session.name] = channel
        resumed = Resumed(
            session.episode_id,
            session.step_count,
            channel.last_id,
            session.loss is not None,
            session.spec.num_envs,
            session.spec.autoreset_mode,
        )
        return encode_reply("resumed", resumed, request.id, session.name, session.epoch)

    async def _close(self, request: Request, rule: RequestRule) -> bytes | None:
        if request.session is not None:
            return await self._channel(request).take(request, rule)
        if self._plain is None or not self._plain.follow(None):
            await self.close(NORMAL, "closed")
        return None

    async def _metadata(self, request: Request, rule: RequestRule) -> bytes:
        return encode_reply("metadata", self._description.metadata, request.id)

    async def _schema(self, request: Request, rule: RequestRule) -> bytes:
        return encode_reply("schema", self._description.schemas, request.id)


def _refuse_rate(wait: float) -> RequestRefused:
    return make_refusal(Code.RATE_LIMITED, "too many requests", retry_after_seconds=wait)


_HANDLERS: Final[dict[MessageKind, Callable[[ControlConnection, Request, RequestRule], Awaitable[bytes | None]]]] = {
    MessageKind.HELLO: ControlConnection._greet,
    MessageKind.OPEN: ControlConnection._open_session,
    MessageKind.RESUME: ControlConnection._resume,
    MessageKind.CLOSE: ControlConnection._close,
    MessageKind.METADATA: ControlConnection._metadata,
    MessageKind.SCHEMA: ControlConnection._schema,
}
