"""An agent made of bytes: MCP messages over `Wire`, in both eras, right or wrong as the caller likes."""

from __future__ import annotations

import json
from itertools import count
from typing import Any, Final

from tests.server.agents.stand_in import HANDSHAKE, MODERN, call_of, envelope, handshake
from tests.system.attacks.wire import Header, Reply, Wire, request

ACCEPTED: Final[tuple[Header, ...]] = (
    ("Accept", "application/json, text/event-stream"),
    ("Content-Type", "application/json"),
)


class Caller:
    """One token on the agent plane."""

    def __init__(self, port: int, token: str) -> None:
        self.wire = Wire(port)
        self.token = token
        self._numbers = count(1)

    @property
    def bearer(self) -> Header:
        """The header with the token."""
        return ("Authorization", f"Bearer {self.token}")

    def post(self, message: Any, *more: Header, session: str | None = None, token: bool = True) -> Reply:
        """Return the reply to a message; bytes are sent as they are."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return self.wire.ask("POST", "/mcp", self.headers(*more, session=session, token=token), body)

    def headers(self, *more: Header, session: str | None = None, token: bool = True) -> list[Header]:
        """Return what a good request has."""
        named = () if session is None else (("Mcp-Session-Id", session), ("MCP-Protocol-Version", HANDSHAKE))
        return [*ACCEPTED, *((self.bearer,) if token else ()), *named, *more]

    def opened(self) -> str:
        """Return a new MCP session."""
        reply = self.post(handshake())
        assert reply.status == 200, reply
        session = reply.headers["mcp-session-id"]
        self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, session=session)
        return session

    def rpc(self, method: str, params: Any = None, session: str | None = None) -> Reply:
        """Return the reply to a request, in the session's era or in the one that has none."""
        message = {"jsonrpc": "2.0", "id": next(self._numbers), "method": method}
        if session is not None:
            return self.post(message | ({} if params is None else {"params": params}), session=session)
        headers, body = self._without_session(message, params)
        return self.wire.ask("POST", "/mcp", headers, body)

    def written(self, method: str, params: Any = None) -> bytes:
        """Return a good request as it is sent, for whoever does not want to wait for the reply."""
        message = {"jsonrpc": "2.0", "id": next(self._numbers), "method": method}
        return request("POST", "/mcp", self.wire.host, *self._without_session(message, params))

    def _without_session(self, message: dict[str, Any], params: Any) -> tuple[list[Header], bytes]:
        name = [("Mcp-Name", params["name"])] if isinstance(params, dict) and "name" in params else []
        headers = self.headers(("MCP-Protocol-Version", MODERN), ("Mcp-Method", message["method"]), *name)
        return headers, json.dumps(message | {"params": {**(params or {}), "_meta": envelope()}}).encode()

    def call(self, tool: str, arguments: dict[str, Any], session: str | None = None) -> dict[str, Any]:
        """Return the result of a call that is well formed."""
        number = next(self._numbers)
        if session is None:
            reply = self.rpc("tools/call", {"name": tool, "arguments": arguments})
        else:
            reply = self.post(call_of(tool, arguments, number), session=session)
        assert reply.status == 200, reply
        result: dict[str, Any] = reply.json()["result"]
        return result
