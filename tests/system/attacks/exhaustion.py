"""Attacks with much: sessions, streams, bodies, headers, calls, cancellations, until nobody else would be served."""

from __future__ import annotations

import json
import socket
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

from tests.server.agents.stand_in import call_of, handshake
from tests.server.live_server import until
from tests.system.attacks.book import check
from tests.system.attacks.messages import error_of
from tests.system.attacks.scene import AGENTS, Scene, scene_of
from tests.system.attacks.vault import PAUSE, PAUSE_SECONDS
from tests.system.attacks.wire import QUIET, Reply, parsed, request, statuses

AT_ONCE = 32


def many(ask: Any, count: int) -> list[Any]:
    """Return the answers to the same question, asked many times at once."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(ask, range(count)))


def others_are_served(scene: Scene) -> None:
    """Raise unless others get an answer now."""
    scene.victim.check()


def steps_now(scene: Scene) -> int:
    """Return how many steps the attacker's own episode has had when all its calls have ended."""
    before = -1
    while before != (now := _steps(scene)):
        before = now
        scene.session.ask("wait_end", {"wait_seconds": 3 * PAUSE_SECONDS})
    return now


def _steps(scene: Scene) -> int:
    return int(scene.session.ask("wait_end", {"wait_seconds": 0})["data"]["steps"])


@AGENTS.attack
def hundreds_of_mcp_sessions(scene: Scene) -> str:
    """Open 400 MCP sessions with one grant, so that there is no room for those of others."""
    replies: list[Reply] = many(lambda _: scene.agent.post(handshake()), 400)
    found = Counter(reply.status for reply in replies)
    others_are_served(scene)
    opened = [reply.headers["mcp-session-id"] for reply in replies if reply.status == 200]
    first = scene.agent.rpc("tools/list", session=opened[0]).status

    check(set(found) <= {200, 429}, f"sessions were answered with {found}")
    check(first == 404, "the first of so many sessions is still there")
    return f"{dict(found)}, and the oldest are closed"


@AGENTS.attack
def bodies_that_never_come(scene: Scene) -> str:
    """Begin 200 requests, say that a body follows, and send one byte of it (slow loris)."""
    head = request("POST", "/mcp", scene.agent.wire.host, scene.agent.headers(), b"", keep=True)
    head = head.replace(b"Content-Length: 0", b"Content-Length: 1000")
    with ExitStack() as stack:
        peers = [stack.enter_context(scene.agent.wire.connect()) for _ in range(200)]
        for peer in peers:
            peer.sendall(head + b"{")
        others_are_served(scene)
        own = scene.agent.rpc("tools/call", {"name": "look", "arguments": {}})
    until(scene.traces)

    check(own.status in {200, 429}, f"the attacker's own next request was answered with {own.status}")
    return f"others are served meanwhile; the attacker's own next request gets {own.status}"


@AGENTS.attack
def headers_without_end(scene: Scene) -> str:
    """Send 64 MB of header lines, one header of 16 MB, and 100 000 headers, and never an empty line."""
    begin = f"POST /mcp HTTP/1.1\r\nHost: {scene.agent.wire.host}\r\n".encode()
    before = memory_of(scene)
    sent = []
    for piece, times in ((b"X-Much: " + b"y" * 2**16 + b"\r\n", 1024), (b"y" * 2**16, 256), (b"X: y\r\n" * 1000, 100)):
        with scene.agent.wire.connect() as peer:
            peer.settimeout(QUIET * 5)
            sent.append(_poured(peer, begin + b"Z: ", piece, times))
            reply = scene.agent.wire.rest(peer, QUIET)
            grown = memory_of(scene) - before
            others_are_served(scene)
            check(
                grown < 32 * 2**20,
                f"{sent[-1]} bytes of headers made the server {grown >> 20} MB larger; {reply[:50]!r}",
            )

    return f"cut off after {[f'{size >> 10} KB' for size in sent]}"


def _poured(peer: socket.socket, begin: bytes, piece: bytes, times: int) -> int:
    """Send a piece many times; return how many bytes were taken before the peer closed."""
    taken = 0
    with suppress(OSError):
        peer.sendall(begin)
        for _ in range(times):
            peer.sendall(piece)
            taken += len(piece)
    return taken


def memory_of(scene: Scene) -> int:
    """Return how many bytes of memory the server's own process has."""
    status = f"/proc/{scene.arena.command.process.pid}/status"
    with open(status) as file:  # noqa: PTH123  # a file of the kernel
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS"))


@AGENTS.attack
def bodies_that_are_too_large(scene: Scene) -> str:
    """Send 10 MB: as an argument, as a body of unknown length, as one that says it is a terabyte."""
    large = json.dumps(call_of("say", {"word": "x" * 10 * 2**20})).encode()
    host, headers = scene.agent.wire.host, scene.agent.headers()
    whole = request("POST", "/mcp", host, headers, large)
    in_pieces = request("POST", "/mcp", host, [*headers, ("Transfer-Encoding", "chunked")], b"", keep=True)
    in_pieces = in_pieces.replace(b"Content-Length: 0\r\n", b"") + (b"10000\r\n" + b"[" * 65536 + b"\r\n") * 160
    said = request("POST", "/mcp", host, headers, b"", keep=True).replace(
        b"Content-Length: 0", b"Content-Length: %d" % 2**40
    )
    replies = [parsed(scene.agent.wire.raw(each, QUIET * 2)).status for each in (whole, in_pieces, said + large)]
    others_are_served(scene)

    # A server that has heard enough closes, and its reply may be lost with what was still being sent.
    check(set(replies) <= {413, 0}, f"10 MB were answered with {replies}")
    return f"{replies}"


@AGENTS.attack
def long_arguments(scene: Scene) -> str:
    """Fill a call with as much as a body may have: a text of a megabyte, 100 000 list members, 100 000 keys."""
    session = scene.agent.opened()
    words: tuple[Any, ...] = ("x" * (2**20 - 500), list(range(100_000)), {str(number): 1 for number in range(60_000)})
    codes = [error_of(scene.agent.post(call_of("say", {"word": word}), session=session)) for word in words]
    others_are_served(scene)

    check(None not in codes, f"a call of a megabyte was answered with {codes}")
    return f"{codes}"


@AGENTS.attack
def hundreds_of_calls_at_once(scene: Scene) -> str:
    """Make 300 slow calls at once, so that the server has no hands left."""
    replies = many(lambda _: scene.agent.rpc("tools/call", {"name": "say", "arguments": {"word": PAUSE}}), 48)
    call = scene.agent.written("tools/call", {"name": "say", "arguments": {"word": PAUSE}})
    with ExitStack() as stack:
        peers = [stack.enter_context(scene.agent.wire.connect()) for _ in range(252)]
        for peer in peers:
            peer.sendall(call)
        others_are_served(scene)
    done = sum(reply.status == 200 and error_of(reply) is None for reply in replies)
    found = Counter(str(error_of(reply)) if reply.status == 200 else str(reply.status) for reply in replies)
    scene.steps = steps_now(scene)

    check(done <= scene.steps <= done + 64, f"{done} calls were answered, and {scene.steps} steps were taken")
    return f"others are served meanwhile; {dict(found)}"


@AGENTS.attack
def streams_that_nobody_reads(scene: Scene) -> str:
    """Open 100 event streams with one grant and read none of them."""
    sessions = [scene.agent.opened() for _ in range(16)]
    with ExitStack() as stack:
        for number in range(100):
            peer = stack.enter_context(scene.agent.wire.connect())
            headers = [("Accept", "text/event-stream"), scene.agent.bearer, ("Mcp-Session-Id", sessions[number % 16])]
            peer.sendall(request("GET", "/mcp", scene.agent.wire.host, headers, keep=True))
        until(scene.traces)
        others_are_served(scene)

    return "one stream for each session, some sessions for each grant; others are served"


@AGENTS.attack
def faster_than_the_rate(scene: Scene) -> str:
    """Call 60 times at once with a grant that allows five calls a second."""
    with scene_of(scene.arena, scene.victim, calls_per_second=5.0) as limited:
        scene.more.append(limited.agent.wire)
        replies: list[Reply] = many(
            lambda _: limited.agent.rpc("tools/call", {"name": "say", "arguments": {"word": "x"}}), 60
        )
        found = Counter(reply.status for reply in replies)
        limited.steps = _steps(limited)
        wait = {reply.headers.get("retry-after") for reply in replies if reply.status == 429}

        check(limited.steps == found[200] <= 15, f"{limited.steps} steps, {found}")
        check(wait == {"1"}, f"they were told to wait for {wait}")
    return f"{dict(found)}"


@AGENTS.attack
def a_storm_of_cancellations(scene: Scene) -> str:
    """Cancel calls that run, that are over, that never were, and those of others, 90 times over."""
    session = scene.agent.opened()
    numbers: list[Any] = [1, 2, 3, "1", -1, 2**53, None, [], {"a": 1}]

    def cancel(number: int) -> int:
        params = {"requestId": numbers[number % len(numbers)], "reason": "x" * 100}
        return scene.agent.post(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}, session=session
        ).status

    with ThreadPoolExecutor(4) as pool:
        calls = [
            pool.submit(scene.agent.post, call_of("say", {"word": PAUSE, "times": 2}, number), session=session)
            for number in (1, 2, 3)
        ]
        found = Counter(many(cancel, 90))
        others_are_served(scene)
        ended = [call.result().status for call in calls]
    scene.agent.post(call_of("reset", {}), session=session)
    scene.steps = steps_now(scene)

    check(set(found) <= {200, 202, 400, 429}, f"cancellations were answered with {found}")
    check(scene.steps <= 6, f"{scene.steps} steps were taken by three calls of two")
    return f"{dict(found)}, calls {ended}: an action that runs is finished, and counted"


@AGENTS.attack
def calls_that_hang_up(scene: Scene) -> str:
    """Begin 40 calls of many slow actions and hang up at once, so that they run on for nobody."""
    call = scene.agent.written("tools/call", {"name": "say", "arguments": {"word": PAUSE, "times": 20}})
    for _ in range(40):
        with scene.agent.wire.connect() as peer:
            peer.sendall(call)
    others_are_served(scene)
    scene.agent.rpc("reset")
    scene.steps = steps_now(scene)

    check(scene.steps <= 40, f"{scene.steps} actions were carried out for nobody")
    return f"{scene.steps} of 800 actions were carried out"


@AGENTS.attack
def many_requests_on_one_connection(scene: Scene) -> str:
    """Send 500 requests on one connection and read no reply."""
    one = request(
        "POST",
        "/mcp",
        scene.agent.wire.host,
        scene.agent.headers(),
        b'{"jsonrpc":"2.0","id":1,"method":"reset"}',
        keep=True,
    )
    with scene.agent.wire.connect() as peer:
        with suppress(OSError):
            peer.sendall(one * 500)
        others_are_served(scene)
        found = Counter(statuses(scene.agent.wire.rest(peer, QUIET * 3)))

    check(not set(found) & {200, 202, 500}, f"they were answered with {found}")
    return f"{dict(found)}"


@AGENTS.attack
def a_thousand_connections(scene: Scene) -> str:
    """Open a thousand connections to both ports and say nothing."""
    with ExitStack() as stack:
        for _ in range(500):
            stack.enter_context(scene.agent.wire.connect())
            stack.enter_context(scene.control.connect())
        others_are_served(scene)
        own = scene.agent.rpc("tools/call", {"name": "no_such_tool", "arguments": {}})

    check(error_of(own) == -32602, f"the attacker's own next request was answered with {own.status}")
    return "others are served meanwhile"
