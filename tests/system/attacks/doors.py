"""Attacks on the doors: who is asked, by which name, on which path, in which protocol."""

from __future__ import annotations

import base64
import os

from tests.system.attacks.book import check
from tests.system.attacks.scene import AGENTS, Scene
from tests.system.attacks.wire import QUIET, Header, parsed, request, statuses

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
CONTROL_PATHS = ("/metadata", "/schema", "/openapi.json", "/metrics", "/state", "/reset", "/step", "/ws", "/docs", "/")
CONTROL_WORDS = ("reset", "step", "state", "close", "open", "resume", "grant", "hello")


def upgrade(path: str, host: str, *more: Header) -> bytes:
    """Return a WebSocket handshake."""
    key = base64.b64encode(os.urandom(16)).decode()
    lines = (
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Key", key),
        ("Sec-WebSocket-Version", "13"),
    )
    return request("GET", path, host, (*lines, *more), keep=True)


@AGENTS.attack
def grant_token_on_the_control_socket(scene: Scene) -> str:
    """Open the control plane's WebSocket with a grant's token, in every way that a token can be sent."""
    basic = base64.b64encode(f"proctor:{scene.token}".encode()).decode()
    ways: tuple[tuple[str, tuple[Header, ...]], ...] = (
        ("/ws", (scene.agent.bearer,)),
        ("/ws", (("Authorization", f"Basic {basic}"),)),
        (f"/ws?token={scene.token}", ()),
        ("/ws", (("Cookie", f"token={scene.token}"),)),
        ("/ws", (("Sec-WebSocket-Protocol", f"bearer, {scene.token}"),)),
    )
    found = {parsed(scene.control.raw(upgrade(path, scene.control.host, *more), QUIET)).status for path, more in ways}

    check(found == {401}, f"a handshake was answered with {found}")
    return "401 for every handshake"


@AGENTS.attack
def grant_token_on_the_control_pages(scene: Scene) -> str:
    """Read and post to every page of the control plane with a grant's token."""
    found = {
        scene.control.ask(method, path, [scene.agent.bearer], body).status
        for path in (*CONTROL_PATHS, "/mcp")
        for method, body in (("GET", b""), ("POST", PING), ("DELETE", b""))
    }

    check(found == {401}, f"a page was answered with {found}")
    return "401 for every page"


@AGENTS.attack
def mcp_session_id_on_the_control_plane(scene: Scene) -> str:
    """Use the id of an MCP session as a credential and as a session of the control plane."""
    session = scene.agent.opened()
    header = ("Mcp-Session-Id", session)
    found = {
        scene.control.ask("POST", "/mcp", [header, scene.agent.bearer], PING).status,
        scene.control.ask("POST", "/mcp", [header, ("Authorization", f"Bearer {session}")], PING).status,
        scene.control.ask("GET", f"/state?session={session}", [header]).status,
        parsed(scene.control.raw(upgrade(f"/ws?session={session}", scene.control.host, header), QUIET)).status,
        parsed(
            scene.control.raw(upgrade("/ws", scene.control.host, ("Authorization", f"Bearer {session}")), QUIET)
        ).status,
    }

    check(found == {401}, f"the control plane answered with {found}")
    return "401: a session's id opens nothing"


@AGENTS.attack
def websocket_on_the_agent_port(scene: Scene) -> str:
    """Open a WebSocket on the agent plane's port, with a good token, and speak the control protocol on it."""
    replies = [
        scene.agent.wire.raw(
            upgrade(path, scene.agent.wire.host, scene.agent.bearer) + b'\x81\x90abcd{"type":"reset"}', QUIET
        )
        for path in ("/ws", "/mcp", "//ws", "/mcp/../ws")
    ]
    found = {parsed(reply).status for reply in replies}

    check(101 not in found and b"observation" not in b"".join(replies), f"the upgrade was answered with {found}")
    return f"no upgrade: {sorted(found)}"


@AGENTS.attack
def rebound_names(scene: Scene) -> str:
    """Come by a name that somebody's DNS has bound to this address: Host names what is not this server."""
    port = scene.arena.agent_port
    names = (
        "evil.example",
        f"evil.example:{port}",
        f"127.0.0.1.evil.example:{port}",
        f"localhost.evil.example:{port}",
        f"localhost.:{port}",
        f"2130706433:{port}",
        f"0x7f.1:{port}",
        f"127.1:{port}",
        f"0.0.0.0:{port}",
        f"[::ffff:127.0.0.1]:{port}",
        f"127.0.0.1:{scene.arena.control_port}",
        "127.0.0.1",
        f"user@127.0.0.1:{port}",
        f"127.0.0.1:{port}/",
        f"127.0.0.1:{port}#",
        f"127.0.0.1:0{port}0",
        "",
    )
    headers = scene.agent.headers()
    found = {scene.agent.wire.ask("POST", "/mcp", headers, PING, host=name).status for name in names}
    foreign = [name for name in names if name != scene.control.host]
    found |= {scene.control.ask("GET", "/health", host=name.replace(str(port), "1")).status for name in foreign}

    check(found <= {400, 403}, f"a foreign name was answered with {found}")
    return f"{len(names)} names: {sorted(found)}"


@AGENTS.attack
def two_hosts(scene: Scene) -> str:
    """Send Host twice, or none, or another one in a proxy's header."""
    host, good = scene.agent.wire.host, scene.agent.headers()
    foreign = ("X-Forwarded-Host", host), ("Forwarded", f"host={host}"), ("X-Original-Host", host)
    found = {
        scene.agent.wire.ask("POST", "/mcp", [("Host", "evil.example"), *good], PING).status,
        scene.agent.wire.ask("POST", "/mcp", [("Host", host), *good], PING).status,
        scene.agent.wire.ask("POST", "/mcp", [*foreign, *good], PING, host="evil.example").status,
        parsed(
            scene.agent.wire.raw(
                request("POST", "/mcp", host, good, PING).replace(f"Host: {host}\r\n".encode(), b""), QUIET
            )
        ).status,
    }

    check(found <= {400, 403}, f"an unclear Host was answered with {found}")
    return f"{sorted(found)}"


@AGENTS.attack
def whole_addresses_as_targets(scene: Scene) -> str:
    """Ask the agent plane for an address on the control plane, as one asks a proxy."""
    control, good = scene.control.host, scene.agent.headers()
    targets = (
        f"http://{control}/ws",
        f"http://{control}/mcp",
        f"//{control}/state",
        "http://evil.example/mcp",
        "*",
        control,
    )
    found = {scene.agent.wire.ask("POST", target, good, PING).status for target in targets}
    found |= {scene.agent.wire.ask("CONNECT", control, good).status, scene.agent.wire.ask("OPTIONS", "*", good).status}

    check(all(status == 0 or 400 <= status < 500 for status in found), f"a target was answered with {found}")
    return f"{sorted(found)}: nothing is forwarded"


@AGENTS.attack
def foreign_origins(scene: Scene) -> str:
    """Come from a page: one that has no origin, a foreign one, one on this machine, one of the other plane."""
    own, control = scene.agent.wire.host, scene.control.host
    origins = (
        "null", "http://evil.example", f"http://{own}", f"http://{control}", "http://localhost", "https://127.0.0.1",
        f"http://{own}.evil.example", "file://", "chrome-extension://abc", "", f"http://{own}, http://evil.example",
    )  # fmt: skip
    headers = [[*scene.agent.headers(), ("Origin", origin)] for origin in origins]
    headers.append([*scene.agent.headers(), ("Origin", f"http://{own}"), ("Origin", "null")])
    found = {scene.agent.wire.ask("POST", "/mcp", each, PING).status for each in headers}
    found |= {scene.control.ask("GET", "/health", [("Origin", origin)]).status for origin in origins}

    check(found <= {400, 403}, f"a page was answered with {found}")
    return f"{len(headers)} origins: {sorted(found)}"


@AGENTS.attack
def other_spellings_of_paths(scene: Scene) -> str:
    """Reach the control plane's pages on the agent port, by name and by every odd spelling of a path."""
    paths = (
        "//mcp", "/mcp/", "/mcp/../ws", "/mcp/%2e%2e/ws", "/%2e%2e/ws", "/mcp/..;/ws", "/MCP", "/%6dcp", "/mcp%00", "/mcp%2f..%2fws",
        "/./mcp", "/mcp;x=1", "/mcp//", "/mcp/session", "/..%5cws", "/ws", "/metrics", "/state", "/reset", "/step", "/schema",
        "/openapi.json", "/metadata", "/sse", "/messages", "/.well-known/oauth-protected-resource", "/mcp/%252e%252e/ws",
    )  # fmt: skip
    good = scene.agent.headers()
    found = {scene.agent.wire.ask(method, path, good, PING).status for path in paths for method in ("GET", "POST")}

    check(found <= {400, 404}, f"a path was answered with {found}")
    return f"{len(paths)} paths: {sorted(found)}"


@AGENTS.attack
def other_methods(scene: Scene) -> str:
    """Use methods that the plane does not know, and one that a person would invent."""
    methods = ("PUT", "PATCH", "OPTIONS", "TRACE", "HEAD", "PROPFIND", "RESET", "STEP", "get")
    replies = [scene.agent.wire.ask(method, "/mcp", scene.agent.headers()) for method in methods]
    found = {reply.status for reply in replies}

    check(found <= {400, 405}, f"a method was answered with {found}")
    check(all(scene.token.encode() not in reply.body for reply in replies), "TRACE sent the token back")
    return f"{len(methods)} methods: {sorted(found)}"


@AGENTS.attack
def older_and_newer_http(scene: Scene) -> str:
    """Speak HTTP/0.9, HTTP/1.0, HTTP/2 (upgraded, and with its preface) and TLS to the agent port, without a token."""
    host = scene.agent.wire.host
    call = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"say","arguments":{"word":"smuggled"}}}'
    upgraded = (("Upgrade", "h2c"), ("Connection", "Upgrade, HTTP2-Settings"), ("HTTP2-Settings", "AAMAAABkAAQAAP__"))
    sent = (
        b"POST /mcp\r\n\r\n" + call,
        b"POST /mcp HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(call) + call,
        b"POST /mcp HTTP/3.0\r\nHost: %s\r\nContent-Length: %d\r\n\r\n" % (host.encode(), len(call)) + call,
        request("POST", "/mcp", host, upgraded, call, keep=True),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(500),
        b"\x00" * 1000 + b"\r\n\r\n",
    )
    found = {parsed(scene.agent.wire.raw(each, QUIET)).status for each in sent}

    check(not found & {101, 200, 202}, f"a foreign protocol was answered with {found}")
    return f"{sorted(found)}"


@AGENTS.attack
def smuggled_requests(scene: Scene) -> str:
    """Hide a second request in the body of a first one whose length is said twice, or falsely."""
    host, bearer = scene.agent.wire.host, f"{scene.agent.bearer[0]}: {scene.agent.bearer[1]}"
    inner = (
        f"POST /mcp HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n"
        '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"say","arguments":{"word":"smuggled"}}}'
    ).encode()
    head = f"POST /mcp HTTP/1.1\r\nHost: {host}\r\n{bearer}\r\nContent-Type: application/json\r\n".encode()
    size = str(len(inner)).encode()
    lengths = (
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: " + size + b"\r\n\r\n0\r\n\r\n",
        b"Content-Length: 0\r\nContent-Length: " + size + b"\r\n\r\n",
        b"Content-Length: 0, " + size + b"\r\n\r\n",
        b"Content-Length: +0\r\n\r\n",
        b"Content-Length: -1\r\n\r\n",
        b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding:\tchunked\r\nTransfer-encoding: x\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n0;" + b"x" * 100 + b"\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        b"X: y\r\n Content-Length: 0\r\n\r\n",
        b"Content-Length : 0\r\n\r\n",
    )
    replies = [scene.agent.wire.raw(head + each + inner, QUIET) for each in lengths]
    found = {status for reply in replies for status in statuses(reply)}

    check(b"smuggled" not in b"".join(replies), "a hidden request was answered")
    check(all(400 <= status < 500 for status in found), f"a hidden request was answered with {found}")
    return f"{len(lengths)} ways: {sorted(found)}"
