"""Errors by the thousand, of every kind, on both planes; all that is answered is kept.

Rule 1: each function returns how many errors it forced, and raises if something was not refused that had to be.
Rule 2: secrets are sent where a careless client would put them: in headers, paths, queries, cookies, as other tokens.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count, cycle, islice
from random import Random
from typing import Any, Final
from urllib.parse import quote

from tests.server.agents.stand_in import call_of
from tests.server.attacks.bad_messages import AFTER_HELLO, ANYWHERE
from tests.server.attacks.bad_messages import Scene as Messages
from tests.server.live_server import Session, Talk
from tests.system.attacks.arena import Arena
from tests.system.attacks.leaky import WAYS
from tests.system.attacks.mcp_calls import Caller
from tests.system.attacks.wire import Header, Wire, request, statuses

PIPELINE: Final = 50
"""Requests that are sent before their replies are read."""
MAKERS: Final = tuple((ANYWHERE | AFTER_HELLO).values())
PATHS: Final = ("/mcp", "/ws", "/metrics", "/state", "/schema", "/nothing", "/mcp/x", "/reset")


@dataclass
class Forcing:
    """One server, what it must not say, and what it said."""

    arena: Arena
    rng: Random
    heard: bytearray = field(default_factory=bytearray)
    """Every reply, but for those that hand a token to its owner."""
    handed_out: list[str] = field(default_factory=list)
    """The tokens of those."""

    @contextmanager
    def session(self, **wish: Any) -> Iterator[Session]:
        """Give a session; its resume token is a secret from now on."""
        with self.arena.session(**wish) as session:
            self.handed_out.append(session.opened["resume_token"])
            yield session

    def ask(self, session: Session, kind: str, data: Any = None) -> dict[str, Any]:
        """Return a reply, which is kept."""
        reply = session.ask(kind, data)
        self.heard += json.dumps(reply).encode()
        return reply

    def granted(self, session: Session) -> Caller:
        """Begin an episode; return an agent with a grant on it, whose token is a secret from now on."""
        granted = session.ask("reset", {"grant": {"agent": "agent"}})["data"]["grant"]
        self.handed_out.append(granted["token"])
        return Caller(self.arena.agent_port, granted["token"])

    def messages(self, number: int) -> int:
        """Send messages that are wrong, in a session's name and in another's."""
        with self.session() as other, self.session() as session:
            session.ask("reset", {})
            scene = Messages(session.name, session.epoch, other.name, other.opened["resume_token"], count(1000))
            makers = islice(cycle(MAKERS), number)
            while chunk := list(islice(makers, PIPELINE)):
                self._sent(session.talk, [make(self.rng, scene) for make in chunk])
            session.last_id = next(scene.ids) + 10**7
        return number

    def _sent(self, talk: Talk, messages: Sequence[bytes]) -> None:
        for message in messages:
            try:
                talk.socket.send(message.decode())
            except UnicodeDecodeError:
                talk.socket.send(message)
        for message in messages:
            reply = talk.receive()
            self.heard += json.dumps(reply).encode()
            assert reply["type"] == "error", f"{message[:200]!r} was answered with {str(reply)[:500]}"

    def at_the_doors(self, number: int, secrets: Sequence[str]) -> int:
        """Come to both ports with secrets in the wrong places, and with wrong ones in the right place."""
        done = 0
        for wire in cycle((Wire(self.arena.control_port), Wire(self.arena.agent_port))):
            if done == number:
                return done
            with wire.connect() as peer:
                peer.sendall(self._request(wire, self.rng.choice(secrets)))
                replies = wire.rest(peer)
            found = statuses(replies)
            assert {status // 100 for status in found} == {4}, found
            self.heard += replies
            done += len(found)
        raise AssertionError("a cycle has no end")

    def _request(self, wire: Wire, secret: str) -> bytes:
        """Return one request that must be refused, the only one of its connection."""
        shown = quote(secret, safe="")
        plain = shown.replace("%", "")
        basic = b64encode(f"proctor:{plain}x".encode()).decode()
        wrong: tuple[tuple[str, list[Header], str], ...] = (
            ("", [("Authorization", f"Bearer {plain}x")], wire.host),
            ("", [("Authorization", f"Basic {basic}")], wire.host),
            ("", [("Authorization", f"Bearer {plain}"), ("Authorization", f"Bearer {plain}")], wire.host),
            (f"?token={shown}&api_key={shown}", [("Cookie", f"session={plain}")], wire.host),
            (f"/{shown}", [("X-API-Key", plain)], wire.host),
            ("", [("Origin", f"http://{plain[:20]}.example")], wire.host),
            ("", [("Referer", f"http://x/{shown}"), ("User-Agent", shown)], f"{plain[:30]}.example"),
            ("", [("Mcp-Session-Id", plain), ("Last-Event-ID", plain)], wire.host),
        )
        more, headers, host = self.rng.choice(wrong)
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": shown, "params": {"token": shown}}).encode()
        return request(self.rng.choice(("GET", "POST", "DELETE")), self.rng.choice(PATHS) + more, host, headers, body)

    def calls(self, number: int) -> int:
        """Make calls that are wrong: unknown tools, arguments that do not fit, methods that do not exist."""
        with self.session() as session:
            caller = self.granted(session)
            mcp_session = caller.opened()
            bad: tuple[Any, ...] = (
                *(call_of("reset", {}), call_of("nudge", {"way": 7}), call_of("nudge", {"way": "x", "seed": 1})),
                *(call_of("look", {"way": []}), call_of("x" * 5_000, {})),
                {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": []},
                {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": {}, "arguments": 1}},
                *(b'{"jsonrpc":"2.0","id":1,"method":', b"[1]", b"[" * 1000),
                {"jsonrpc": "2.0", "id": 1, "method": "reset"},
            )
            for message in islice(cycle(bad), number):
                reply = caller.post(message, session=mcp_session)
                assert reply.status >= 400 or b'"error"' in reply.body or b'"isError":true' in reply.body, reply
            self.heard += caller.wire.heard
        return number

    def in_steps(self, number: int) -> int:
        """Have the environment go wrong in steps and in its state."""
        with self.session() as session:
            for way in islice(cycle(WAYS), number):
                session.ask("reset", {})
                as_state = self.rng.random() < 0.2
                reply = self.ask(session, "step", {"way": f"state {way}" if as_state else way})
                reply = self.ask(session, "state") if as_state else reply
                assert (reply["type"], reply["data"].get("lost")) == ("error", True), reply
        return number

    def in_calls(self, number: int) -> int:
        """Have the environment go wrong in tools: while it acts, and while nothing is done."""
        with self.session() as session:
            for way in islice(cycle(WAYS), number):
                caller = self.granted(session)
                answer = caller.call(self.rng.choice(("nudge", "look")), {"way": way})
                self.heard += caller.wire.heard
                assert answer["isError"], answer
        return number

    def hang_ups(self, number: int) -> int:
        """Leave connections in the middle of what they were saying."""
        for port in islice(cycle((self.arena.control_port, self.arena.agent_port)), number):
            wire = Wire(port)
            with wire.connect() as peer, suppress(OSError):
                peer.sendall(
                    f"POST /mcp HTTP/1.1\r\nHost: {wire.host}\r\nAuthorization: Bearer {self.arena.secret}x".encode()
                )
        return number
