"""The control plane as one ASGI application: the access checks first, then a page, or `/ws` and its messages.

Rule 1: nothing is routed before the access checks have judged Host, Origin and credential, on HTTP and on WebSockets alike.
Rule 2: every port has its own policy, because a Host names a port.
Rule 3: what is below `/operator/` is opened by the operator's credential and by no other. That credential opens nothing
    else, but for the pages that say how the server is and what it serves; it never opens a socket.
Rule 4: where there is a viewer, what is below `/viewer/` is the operator's, too, and a browser's visit opens both, with more
    asked of it (`access/request_policy.py`). Nothing else looks at a cookie.
Rule 5: reading a socket never stops while a request runs, so that pings are answered and a `cancel` gets through. Whatever comes that
    is no request gets a coded error and touches no session; a frame that is not text, too.
Rule 6: a connection that breaks loses nothing: its sessions are detached, and wait for their client.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping
from functools import partial
from typing import Any, Final

import msgspec
from starlette.applications import Starlette

from proctor import __version__
from proctor.access.limits import RequestLimits
from proctor.access.request_policy import (
    OPERATOR_PATH,
    PAGE_PATH,
    READING,
    AccessPolicy,
    AccessVerdict,
    Visits,
    is_open_page,
    is_open_path,
    is_page_path,
    judge_request,
    judge_visitor,
)
from proctor.errors import ValidationError
from proctor.models.control import Code, Hello, MessageKind, Open, Problem, Request, Resume, Resumed, Welcome
from proctor.models.wire import Encoding
from proctor.server.control.channel import GONE, SessionChannel
from proctor.server.control.protocol import (
    RequestRule,
    choose_protocol,
    decode_data,
    encode_reply,
    find_rule,
    read_request,
)
from proctor.server.control.session_registry import SessionRegistry
from proctor.server.net.connections import RefusalLog, authenticate, note_refusal
from proctor.server.net.metrics import Metrics
from proctor.server.net.uvicorn_websocket import ABORT, LISTEN, WRITABLE, run_first_part
from proctor.server.runtime.env_adapter import EnvDescription
from proctor.server.runtime.executors import run_on_thread
from proctor.server.runtime.results import RequestError, RequestRefused, log_internal_error, make_refusal

LOG: Final = logging.getLogger("proctor.control")
PATH: Final = "/ws"
OPERATOR_READS: Final = frozenset({"/health", "/metadata"})
"""The pages that the operator's credential opens as well."""
WEBSOCKET: Final = "WEBSOCKET"
"""What the access checks call the method of a handshake."""
GOING_AWAY: Final = 1001
GOODBYE_SECONDS: Final = 2.0
Scope = Mapping[str, Any]
Policies = Mapping[int | None, AccessPolicy]
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

    def __init__(self, plane: "ControlPlane", scope: Scope, send: Send) -> None:
        extensions = scope["extensions"]
        self.abort: Final[Callable[[], None]] = extensions[ABORT]
        """Cuts the connection at once."""
        self._send = send
        self._writable: asyncio.Event = extensions[WRITABLE]
        self._listen: Callable[[Callable[[str], bool] | None], object] = extensions.get(LISTEN, lambda listener: None)
        self._plane = plane
        self._address = plane.find_address(scope)
        self._sessions = plane.sessions
        self._metrics = plane.metrics
        self._limits = plane.limits
        self._bucket = plane.limits.bucket()
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
                # Set before the wait: what is heard in the meantime must not overtake.
                self._taking = True
                if self._background is not None:
                    await asyncio.wait([self._background])
                await self._take(message.get("text"))
                self._taking = False
        finally:
            self._listen(None)
            self._open = False
            self._leave()

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
            return encode_reply("error", problem)
        return encode_reply("error", problem, request.id, request.session)

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
            self._plane.description.name,
            self._address,
            hello.packed,
            hello.compression,
            self._limits.max_message_bytes,
            self._plane.max_pending,
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
            answer = encode_reply("error", problem.problem, request.id)
        except Exception as problem:  # noqa: BLE001  # an entry file, as in `_take`
            answer = encode_reply("error", log_internal_error(problem), request.id)
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
            channel.replies.last_id,
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

    async def _describe(self, request: Request, rule: RequestRule) -> bytes:
        card = self._plane.description
        data = card.metadata if rule.kind is MessageKind.METADATA else card.schemas
        return encode_reply(rule.kind, data, request.id)


def _refuse_rate(wait: float) -> RequestRefused:
    return make_refusal(Code.RATE_LIMITED, "too many requests", retry_after_seconds=wait)


_HANDLERS: Final[dict[MessageKind, Callable[[ControlConnection, Request, RequestRule], Awaitable[bytes | None]]]] = {
    MessageKind.HELLO: ControlConnection._greet,
    MessageKind.OPEN: ControlConnection._open_session,
    MessageKind.RESUME: ControlConnection._resume,
    MessageKind.CLOSE: ControlConnection._close,
    MessageKind.METADATA: ControlConnection._describe,
    MessageKind.SCHEMA: ControlConnection._describe,
}


class ControlPlane:
    """Everything that listens for orchestrators, and for operators where episodes are governed.

    `operator_policies` has the same ports as `policies`; without it there is no operator, and `/operator/` is nothing
    special. `visits` are those of its viewer, None where there is none. `stopped` is called when the server says goodbye,
    for those who wait for an answer.
    """

    def __init__(
        self,
        policies: Policies,
        sessions: SessionRegistry,
        description: EnvDescription,
        pages: Starlette,
        metrics: Metrics,
        *,
        limits: RequestLimits,
        max_pending: int,
        max_connections: int,
        own_port: int | None,
        operator_policies: Policies | None = None,
        visits: Visits | None = None,
        stopped: Callable[[], object] | None = None,
    ) -> None:
        self.connections: Final[set[ControlConnection]] = set()
        self._policies = policies
        self._operator_policies = None if operator_policies is None else _check_separate(operator_policies, policies)
        self._visits = visits
        self._stopped = stopped
        self.sessions = sessions
        self.description = description
        self._pages = pages
        self.metrics = metrics
        self.limits = limits
        self.max_pending = max_pending
        self._max_connections = max_connections
        self._own_port = own_port
        self._refusals = RefusalLog(LOG)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection or one request."""
        if scope["type"] == "websocket":
            await self._socket(scope, receive, send)
        elif scope["type"] == "http":
            await self._page(scope, receive, send)

    async def _page(self, scope: Scope, receive: Receive, send: Send) -> None:
        verdict = self._judge(scope, scope["method"])
        if verdict.allowed:
            if not self._is_open(scope):
                authenticate(scope)
            await self._pages(dict(scope), receive, send)
            return
        media, text = b"text/plain; charset=utf-8", verdict.text.encode()
        if self._visits is not None and scope["path"].startswith(PAGE_PATH):
            # A page's script reads codes, everybody else a sentence.
            media, text = b"application/json", msgspec.json.encode(Problem(verdict.text, verdict.name))
        headers = [*verdict.headers, (b"content-type", media)]
        await send({"type": "http.response.start", "status": verdict.status, "headers": headers})
        await send({"type": "http.response.body", "body": text})

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # websocket.connect
        verdict = self._judge(scope, WEBSOCKET)
        if not verdict.allowed:
            await _turn_away(send, verdict.status, verdict.text, list(verdict.headers))
        elif scope["path"] != PATH:
            await _turn_away(send, 404, "there is no such socket", [])
        elif self.sessions.stopping or len(self.connections) >= self._max_connections:
            await _turn_away(send, 503, "no more connections are taken", [])
        else:
            await send({"type": "websocket.accept"})
            connection = ControlConnection(self, scope, send)
            self.connections.add(connection)
            self.metrics.count_connection(1)
            try:
                await connection.serve(receive)
            finally:
                self.connections.discard(connection)
                self.metrics.count_connection(-1)

    def _judge(self, scope: Scope, method: str) -> AccessVerdict:
        verdict = self._verdict(scope, method)
        if not verdict.allowed:
            self.metrics.count_refusal(verdict.status)
            peer = scope.get("client")
            fields = {"status": verdict.status, "peer": "unknown" if peer is None else peer[0]}
            note_refusal(scope)
            self._refusals.write("a request was refused by the access checks: %s", verdict.text, extra=fields)
        return verdict

    def _is_open(self, scope: Scope) -> bool:
        """Return whether anybody may ask for this: then it shows no credential."""
        method, path = scope["method"], scope["path"]
        if self._visits is not None and is_open_page(method, path):
            return True
        return is_open_path(method, path)

    def _verdict(self, scope: Scope, method: str) -> AccessVerdict:
        path, operators = scope["path"], self._operator_policies
        if operators is not None and method != WEBSOCKET:
            if self._visits is not None and is_page_path(path):
                policy, port = _find_policy(operators, scope)
                return judge_visitor(policy, self._visits, port, method, path, scope["headers"])
            if path.startswith(OPERATOR_PATH):
                return _judge_by(operators, scope, method)
        verdict = _judge_by(self._policies, scope, method)
        if (
            verdict is AccessVerdict.NO_CREDENTIAL
            and operators is not None
            and method in READING
            and path in OPERATOR_READS
        ):
            return _judge_by(operators, scope, method)
        return verdict

    def find_address(self, scope: Scope) -> str | None:
        """Return where this very worker is found again, by the name that the client used; None if it is where it was."""
        server = scope.get("server")
        if self._own_port is None or server is None or server[1] == self._own_port:
            return None
        host = next(value for name, value in scope["headers"] if name == b"host").decode("ascii")
        name = host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host
        return f"ws://{name}:{self._own_port}{PATH}"

    async def close_connections(self) -> None:
        """Tell every client, and every operator who waits, that the server goes away."""
        if self._stopped is not None:
            self._stopped()
        goodbyes = {
            asyncio.create_task(connection.close(GOING_AWAY, "the server is stopping")): connection
            for connection in self.connections
        }
        if goodbyes:
            _, late = await asyncio.wait(goodbyes, timeout=GOODBYE_SECONDS)
            for goodbye in late:
                goodbyes[goodbye].abort()


def _judge_by(policies: Policies, scope: Scope, method: str) -> AccessVerdict:
    return judge_request(_find_policy(policies, scope)[0], method, scope["path"], scope["headers"])


def _find_policy(policies: Policies, scope: Scope) -> tuple[AccessPolicy, int | None]:
    """Return the policy of the port that a request came to, and that port."""
    server = scope.get("server")
    port = None if server is None or None in policies else server[1]
    return policies[port], port


def _check_separate(operators: Policies, others: Policies) -> Policies:
    """Return the operators' policies, or raise if one secret would open both planes, or none is needed for theirs alone."""
    taken = {policy.credential for policy in others.values()} - {None}
    if taken and any(policy.credential is None for policy in operators.values()):
        raise ValidationError("the operator has no credential", expected="a secret, as the control plane has one")
    if any(policy.credential in taken for policy in operators.values()):
        raise ValidationError(
            "the operator's credential is the one of the control plane", expected="a secret of its own"
        )
    return operators


async def _turn_away(send: Send, status: int, text: str, headers: list[tuple[bytes, bytes]]) -> None:
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": text.encode()})
