"""Attacks with tokens: stolen, worn out, bent, or put where none belongs."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from tests.server.live_server import until
from tests.system.attacks.arena import CONTROL_SECRET
from tests.system.attacks.book import check
from tests.system.attacks.doors import PING
from tests.system.attacks.scene import AGENTS, Scene, scene_of
from tests.system.attacks.vault import END
from tests.system.attacks.wire import QUIET, Header, parsed, request


def _worn_out(scene: Scene, end: Callable[[], object]) -> str:
    """Use a token and an MCP session before and after what ends them."""
    session = scene.agent.opened()
    before = scene.agent.rpc("tools/list", session=session).status
    end()
    say = {"name": "say", "arguments": {"word": "late"}}
    found = {
        scene.agent.rpc("tools/call", say, session=session).status,
        scene.agent.rpc("tools/call", say).status,
        scene.agent.rpc("tools/list").status,
        scene.agent.wire.ask("GET", "/mcp", scene.agent.headers(session=session)).status,
        scene.agent.wire.ask("DELETE", "/mcp", scene.agent.headers(session=session)).status,
    }

    check(before == 200 and found == {401}, f"a token that is over was answered with {found}")
    return "401 for every request after the end"


@AGENTS.attack
def replay_after_a_reset(scene: Scene) -> str:
    """Go on with the token of an episode when the orchestrator has begun the next one."""
    return _worn_out(scene, lambda: scene.session.ask("reset", {"seed": scene.seed}))


@AGENTS.attack
def replay_after_a_revocation(scene: Scene) -> str:
    """Go on with a token that the orchestrator has taken back."""
    return _worn_out(scene, lambda: scene.session.ask("revoke", {"grant": scene.granted["grant"]}))


@AGENTS.attack
def replay_after_the_session_is_closed(scene: Scene) -> str:
    """Go on with a token whose session is closed."""
    scene.over = True
    return _worn_out(scene, lambda: scene.session.ask("close"))


@AGENTS.attack
def replay_after_the_time_is_up(scene: Scene) -> str:
    """Go on with a token whose time is up."""
    with scene_of(scene.arena, scene.victim, ttl_seconds=1.0) as brief:
        scene.more.append(brief.agent.wire)
        return _worn_out(brief, lambda: until(lambda: brief.agent.rpc("ping").status == 401))


@AGENTS.attack
def calls_after_the_end(scene: Scene) -> str:
    """Use every tool when the episode is over, to move it once more or to begin another."""
    scene.steps = 1
    scene.agent.call("say", {"word": END})
    calls: list[tuple[str, dict[str, Any]]] = [
        ("look", {}),
        ("spell", {"text": "x"}),
        ("say", {"word": "late"}),
        ("say", {"word": "late", "times": 20}),
    ]
    answers = [scene.agent.call(tool, arguments) for tool, arguments in calls]
    codes = {answer["_meta"]["proctor/error"]["code"] for answer in answers}

    check(all(answer["isError"] for answer in answers) and codes == {"ENDED"}, f"a tool answered with {codes}")
    return "ENDED for every tool"


@AGENTS.attack
def bit_flips(scene: Scene) -> str:
    """Flip each of 192 bits of the token, one at a time, and drop, double or swap characters."""
    raw = scene.token.encode()
    flipped = [raw[: bit // 8] + bytes([raw[bit // 8] ^ 1 << bit % 8]) + raw[bit // 8 + 1 :] for bit in range(192)]
    bent = [raw[:-1], raw + b"A", raw + b"=", raw[1:] + raw[:1], raw.swapcase(), raw + b"\x00", b" " + raw, raw + raw]
    found = set()
    for each in (*flipped, *bent):
        header = ("Authorization", "Bearer " + each.decode("utf-8", "surrogateescape"))
        found.add(scene.agent.wire.ask("POST", "/mcp", [*scene.agent.headers(token=False), header], PING).status)

    check(found <= {400, 401}, f"a bent token was answered with {found}")
    return f"{len(flipped) + len(bent)} tokens: {sorted(found)}"


@AGENTS.attack
def tokens_in_other_places(scene: Scene) -> str:
    """Send a good token where it would be logged, cached or sent along by a browser, or twice."""
    token, bare = scene.token, scene.agent.headers(token=False)
    bearer, basic = scene.agent.bearer, base64.b64encode(f"agent:{token}".encode()).decode()
    places: tuple[tuple[str, list[Header]], ...] = (
        (f"/mcp?token={token}", []),
        (f"/mcp?access_token={token}&authorization=Bearer+{token}", []),
        (f"/mcp/{token}", []),
        ("/mcp", [("Cookie", f"token={token}; authorization={token}")]),
        ("/mcp", [("X-API-Key", token), ("Proxy-Authorization", f"Bearer {token}")]),
        ("/mcp", [("Authorization", f"Basic {basic}")]),
        ("/mcp", [("Authorization", token)]),
        ("/mcp", [("Authorization", f"Digest {token}")]),
        ("/mcp", [("Authorization", f"Bearer {token}, Bearer {token}")]),
        ("/mcp", [bearer, bearer]),
        ("/mcp", [("Authorization", "Bearer x"), bearer]),
        ("/mcp", [bearer, ("authorization", "Bearer x")]),
        ("/mcp", [("Authorization", "Bearer\t" + token)]),
        ("/mcp", [("Mcp-Session-Id", token)]),
    )
    found = {scene.agent.wire.ask("POST", target, [*bare, *more], PING).status for target, more in places}
    in_body = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"token":"%s"}}' % token.encode()
    found.add(scene.agent.wire.ask("POST", "/mcp", bare, in_body).status)

    check(found == {401}, f"a token in another place was answered with {found}")
    return f"{len(places) + 1} places: 401"


@AGENTS.attack
def other_credentials(scene: Scene) -> str:
    """Come with what opens other doors: the control credential, a resume token, names of sessions and grants."""
    secrets = (
        *(CONTROL_SECRET, scene.session.opened["resume_token"], scene.session.name, scene.granted["grant"]),
        *(scene.victim.granted["grant"], scene.victim.session.name, scene.victim.mcp_session, "x" * 100_000),
    )
    found = {scene.another(secret).post(PING).status for secret in secrets}

    check(found <= {400, 401, 431}, f"another credential was answered with {found}")
    return f"{len(secrets)} credentials: {sorted(found)}"


@AGENTS.attack
def another_grants_mcp_session(scene: Scene) -> str:
    """Use, listen to, and close the MCP session of another grant, whose id has leaked."""
    stolen = scene.victim.mcp_session
    say = {"name": "say", "arguments": {"word": "stolen"}}
    headers = scene.agent.headers(session=stolen)
    found = {
        scene.agent.rpc("tools/call", say, session=stolen).status,
        scene.agent.rpc("tools/list", session=stolen).status,
        scene.agent.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}, session=stolen).status,
        scene.agent.wire.ask("GET", "/mcp", headers).status,
        scene.agent.wire.ask("DELETE", "/mcp", headers).status,
    }  # fmt: skip
    own = scene.agent.headers(session=scene.agent.opened())
    resumed = [scene.agent.wire.ask("GET", "/mcp", [*some, ("Last-Event-ID", "0")]).status for some in (headers, own)]

    check(found == {404}, f"another's MCP session answered with {found}")
    check(resumed == [400, 400], f"what is resumed depends on whose session it is: {resumed}")
    return "404: it does not exist for others"


@AGENTS.attack
def two_mcp_sessions_in_one_request(scene: Scene) -> str:
    """Name one's own MCP session and another grant's in the same request, in both orders."""
    own, stolen = scene.agent.opened(), scene.victim.mcp_session
    body = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"look","arguments":{}}}'
    found = []
    for first, second in ((own, stolen), (stolen, own)):
        headers = [*scene.agent.headers(session=first), ("Mcp-Session-Id", second)]
        found.append(scene.agent.wire.ask("POST", "/mcp", headers, body))
    scene.agent.rpc("tools/call", {"name": "no_such_tool", "arguments": {}}, session=own)

    # Served with the first one, it is the attacker's own token that decides what is seen.
    check(all(b"three" not in reply.body for reply in found), "another episode was shown")
    return f"{[reply.status for reply in found]}: the token decides"


@AGENTS.attack
def a_victims_token_that_was_revoked(scene: Scene) -> str:
    """Steal the token of another episode's agent; its orchestrator has noticed and taken it back."""
    with scene_of(scene.arena, scene.victim) as other:
        session = other.agent.opened()
        other.session.ask("revoke", {"grant": other.granted["grant"]})
        thief = scene.another(other.token)
        found = {
            thief.rpc("tools/call", {"name": "say", "arguments": {"word": "stolen"}}).status,
            thief.rpc("tools/call", {"name": "say", "arguments": {"word": "stolen"}}, session=session).status,
            thief.rpc("tools/call", {"name": "look", "arguments": {}}, session=scene.agent.opened()).status,
        }
        other.check()

    check(found == {401}, f"a stolen token was answered with {found}")
    return "401, and the episode stands where it stood"


@AGENTS.attack
def kept_connections_after_the_end(scene: Scene) -> str:
    """Keep a connection that was let in open, and go on with it when the grant is dead."""
    host = scene.agent.wire.host
    session = scene.agent.opened()
    ask = request("POST", "/mcp", host, scene.agent.headers(session=session), PING, keep=True)
    with scene.agent.wire.connect() as peer:
        peer.sendall(ask)
        before = scene.agent.wire.one(peer).status
        scene.session.ask("revoke", {"grant": scene.granted["grant"]})
        peer.sendall(ask)
        after = parsed(scene.agent.wire.rest(peer, QUIET)).status

    check((before, after) == (200, 401), f"a kept connection was answered with {after}")
    return "401: the token is looked at with every request"
