"""Who is let in: every Origin, Host and endpoint, and ten thousand credentials that are none.

The matrix and a thousand of the credentials are presented over a real socket, in bytes; nine thousand more, for which a
socket each would take too long, are handed to the same application as uvicorn hands it a request (ASGI).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import random
import re
import socket
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from proctor.access.credentials import CONTROL, Credential, find_credential
from proctor.server.app import Keys, Listening, Server
from proctor.server.net.uvicorn_server import bind_tcp, port_of
from proctor.server.net.uvicorn_websocket import ABORT, LISTEN, WRITABLE
from proctor.server.settings import parse_settings
from tests.server.live_server import PATIENCE, Served, Session, Talk, serving, until
from tests.server.witness_env import LEDGER

pytestmark = pytest.mark.anyio

WITNESS = "tests.server.witness_env:Witness"
SECRET: Final = "the-secret-of-this-server-0123456789"
OTHERS: Final = "the-secret-of-another-server-0123456"
NAME, PAGE = "proctor.example", "https://page.example"

ORIGINS: Final = {
    "none": (),
    "allowed": (PAGE,),
    "itself": ("http://127.0.0.1:{port}",),
    "foreign": ("https://evil.example",),
    "null": ("null",),
    "unreadable": ("https://p\xe4ge.example",),
}
HOSTS: Final = {
    "address": ("127.0.0.1:{port}",),
    "loopback name": ("localhost:{port}",),
    "allowed": (NAME,),
    "foreign": ("evil.example:{port}",),
    "another port": ("127.0.0.1:{another}",),
    "none": (),
}
ENDPOINTS: Final = {
    "socket": ("GET", "/ws"),
    "health": ("GET", "/health"),
    "metadata": ("GET", "/metadata"),
    "schema": ("GET", "/schema"),
    "metrics": ("GET", "/metrics"),
    "mcp": ("POST", "/mcp"),
}


def verdict(origin: str, host: str, endpoint: str, *, secret: bool) -> int:
    """Return the status that a request must get: Host first, then Origin, then the credential."""
    if host in {"none", "foreign", "another port"}:
        return 400 if host == "none" else 403
    if origin in {"itself", "foreign", "null", "unreadable"}:
        return 400 if origin == "unreadable" else 403
    if not secret and endpoint != "health":
        return 401
    return 101 if endpoint == "socket" else 200


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(WITNESS, secret=SECRET, allow_hosts=[NAME], allow_origins=[PAGE]) as there:
        yield there


def spoken(served: Served, endpoint: str, headers: list[tuple[str, str]]) -> tuple[int, bytes]:
    """Return the status and everything that a real socket hears after one request."""
    method, path = ENDPOINTS[endpoint]
    if endpoint == "socket":
        key = base64.b64encode(b"sixteen bytes it").decode()
        headers = [*headers, ("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Version", "13")]
        headers.append(("Sec-WebSocket-Key", key))
    elif method == "POST":
        headers = [*headers, ("Content-Length", "2"), ("Connection", "close")]
    else:
        headers = [*headers, ("Connection", "close")]
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers), "", ""]
    with socket.create_connection(("127.0.0.1", served.port), PATIENCE) as raw:
        raw.sendall("\r\n".join(lines).encode("latin-1") + (b"{}" if method == "POST" else b""))
        heard = raw.recv(65536)
        while not heard.startswith(b"HTTP/1.1 101") and (more := raw.recv(65536)):
            heard += more
    return int(heard.split(b" ", 2)[1]), heard


def header_lines(served: Served, origin: str, host: str, *, secret: bool) -> list[tuple[str, str]]:
    values = {"port": served.port, "another": served.port % 65535 + 1}
    headers = [("Host", each.format(**values)) for each in HOSTS[host]]
    headers += [("Origin", each.format(**values)) for each in ORIGINS[origin]]
    return [*headers, ("Authorization", f"Bearer {SECRET}")] if secret else headers


def count(served: Served, name: str) -> float:
    page = served.on_loop(served.server.metrics.page).decode()
    return sum(float(each) for each in re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", page, re.MULTILINE))


def test_the_matrix_has_216_cases() -> None:
    assert len(ORIGINS) * len(HOSTS) * len(ENDPOINTS) == 216


@pytest.mark.parametrize("secret", [True, False], ids=["with the secret", "without"])
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_every_origin_and_host_gets_its_verdict_and_leaves_no_trace(
    served: Served, endpoint: str, secret: bool
) -> None:
    made, refused = len(LEDGER.made), count(served, "proctor_refused_total")
    opened = count(served, "proctor_sessions_opened_total")
    expected, found = {}, {}
    for origin in ORIGINS:
        for host in HOSTS:
            expected[origin, host] = verdict(origin, host, endpoint, secret=secret)
            status, heard = spoken(served, endpoint, header_lines(served, origin, host, secret=secret))
            found[origin, host] = status
            assert b"evil" not in heard
            assert SECRET.encode() not in heard

    assert found == expected
    until(lambda: served.on_loop(lambda: len(served.server.plane.connections)) == 0)
    assert count(served, "proctor_refused_total") - refused == sum(status >= 400 for status in expected.values())
    assert (len(LEDGER.made), count(served, "proctor_sessions_opened_total")) == (made, opened)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_two_origins_are_refused_whatever_they_are(served: Served, endpoint: str) -> None:
    headers = [*header_lines(served, "allowed", "address", secret=True), ("Origin", PAGE)]

    assert spoken(served, endpoint, headers)[0] == 400


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def near_misses(secret: str) -> list[str]:
    """Return headers that are nearly right."""
    digest = hashlib.sha256(secret.encode())
    wrong = [secret[:-1], secret[1:], secret + "x", "x" + secret, secret.swapcase(), secret[::-1], secret * 2]
    wrong += [secret[:n] + chr(ord(secret[n]) ^ 1) + secret[n + 1 :] for n in range(len(secret))]
    wrong += [digest.hexdigest(), base64.b64encode(digest.digest()).decode(), "null", "None", "undefined"]
    headers = [f"Bearer {each}" for each in wrong] + [basic("proctor", each) for each in wrong]
    headers += [basic(user, secret) for user in ("", "Proctor", "admin", "proctor ", "root", secret)]
    headers += [basic(secret, ""), basic(secret, secret), basic("proctor:", secret), basic("proctor", secret + ":")]
    headers += [f"{scheme} {secret}" for scheme in ("Basic", "Token", "Digest", "Negotiate", "Bearer:", "Bearerx")]
    headers += [
        secret,
        f"Bearer{secret}",
        f"Bearer {secret} {secret}",
        f"Bearer {secret},Bearer {secret}",
        "Bearer",
        "",
    ]
    headers += [f'Bearer "{secret}"', f"Bearer {secret}=", f"Bearer token={secret}", f"{basic('proctor', secret)}="]
    return headers


def forged(rng: random.Random, number: int) -> list[str]:
    """Return headers that somebody guessed."""
    letters = string.ascii_letters + string.digits + "-_"

    def guess() -> str:
        text = "".join(rng.choices(letters, k=rng.choice([16, len(SECRET), 43, 64, 1024])))
        return rng.choice([f"Bearer {text}", basic("proctor", text)])

    return [guess() for _ in range(number)]


def crossed(served: Served) -> list[str]:
    """Return credentials that are good for something else: resume tokens of live sessions, another server's secret."""
    with Talk(served, greet=True) as talk:
        tokens = [Session(talk).opened["resume_token"] for _ in range(3)]
    return [f"Bearer {each}" for each in (*tokens, OTHERS)] + [basic("proctor", each) for each in (*tokens, OTHERS)]


def without_date(heard: bytes) -> bytes:
    return re.sub(rb"(?i)\r\ndate: [^\r]*", b"", heard)


def test_a_thousand_forged_or_crossed_credentials_are_refused_over_a_real_socket_in_the_same_words() -> None:
    with serving(WITNESS, secret=SECRET) as served:
        headers = crossed(served) + near_misses(SECRET)
        headers += forged(random.Random(1), 1000 - len(headers))
        answers: dict[str, set[bytes]] = {"socket": set(), "metadata": set()}
        host = ("Host", f"127.0.0.1:{served.port}")
        for number, header in enumerate(headers):
            endpoint = "socket" if number % 2 else "metadata"
            status, heard = spoken(served, endpoint, [host, ("Authorization", header)])
            assert status == 401, header
            answers[endpoint].add(without_date(heard))
        right = [spoken(served, each, [host, ("Authorization", f"Bearer {SECRET}")])[0] for each in answers]

        assert len(headers) == 1000
        assert {endpoint: len(found) for endpoint, found in answers.items()} == {"socket": 1, "metadata": 1}
        assert right == [101, 200]


async def asked(server: Server, port: int, kind: str, path: str, headers: list[tuple[bytes, bytes]]) -> list[Any]:
    """Return what the application answers to one request that uvicorn would hand it."""
    answers: list[Any] = []

    async def send(message: Any) -> None:
        answers.append(message)

    async def receive() -> Any:
        return {"type": "websocket.disconnect"} if answers else {"type": f"{kind}.connect"}

    scope: dict[str, Any] = {
        "type": kind,
        "method": "GET",
        "path": path,
        "query_string": b"",
        "server": ("127.0.0.1", port),
        "headers": [(b"host", f"127.0.0.1:{port}".encode()), *headers],
        "extensions": {ABORT: lambda: None, WRITABLE: asyncio.Event(), LISTEN: lambda listener: None},
    }
    await server.plane(scope, receive, send)
    return answers


async def test_nine_thousand_more_are_refused_by_the_application_in_the_same_words(tmp_path: Path) -> None:
    """The older secret of a server that has a new state file now is one of them."""
    old = find_credential(CONTROL, {}, None, tmp_path / "old" / "control-token").secret
    new = find_credential(CONTROL, {}, None, tmp_path / "new" / "control-token")
    assert old is not None
    assert new.secret is not None
    listener = bind_tcp("127.0.0.1", 0)
    port = port_of(listener) or 0
    server = Server(parse_settings({"target": WITNESS, "sandbox": "none"}), Keys(new.credential), Listening([listener]))
    headers = [f"Bearer {old}", basic("proctor", old), *near_misses(old), *near_misses(new.secret)]
    headers += forged(random.Random(2), 9000 - len(headers))

    found = set()
    for number, header in enumerate(headers):
        kind, path = [("websocket", "/ws"), ("http", "/metadata")][number % 2]
        found.add(f"{kind} {await asked(server, port, kind, path, [(b'authorization', header.encode())])}")
    bearer = f"Bearer {new.secret}".encode()
    right = await asked(server, port, "websocket", "/ws", [(b"authorization", bearer)])
    listener.close()

    assert len(headers) == 9000
    assert len(found) == 2
    assert all("'status': 401" in each for each in found)
    assert right == [{"type": "websocket.accept"}]


@pytest.mark.parametrize(
    "extra",
    [
        [("Authorization", f"Bearer {SECRET}"), ("Authorization", f"Bearer {SECRET}")],
        [("Authorization", "Bearer wrong-wrong-wrong-wrong"), ("Authorization", f"Bearer {SECRET}")],
        [("Cookie", f"token={SECRET}")],
        [("X-Api-Key", SECRET)],
        [("Proxy-Authorization", f"Bearer {SECRET}")],
        [("Sec-WebSocket-Protocol", SECRET)],
        [("X-Forwarded-For", "127.0.0.1"), ("X-Forwarded-Host", "localhost")],
    ],
)
def test_a_secret_counts_in_exactly_one_authorization_header(served: Served, extra: list[tuple[str, str]]) -> None:
    host = ("Host", f"127.0.0.1:{served.port}")

    assert {spoken(served, endpoint, [host, *extra])[0] for endpoint in ("socket", "metadata", "mcp")} == {401}


def test_a_secret_in_the_query_or_the_path_opens_nothing(served: Served) -> None:
    for target in (f"/ws?token={SECRET}", f"/ws?access_token={SECRET}", f"/{SECRET}/ws", f"/metadata?token={SECRET}"):
        assert httpx.get(served.url + target, timeout=60.0).status_code == 401


def test_a_control_secret_and_a_thousand_guesses_resume_no_session(served: Served) -> None:
    rng = random.Random(3)
    with Talk(served, greet=True) as owner, Talk(served, greet=True) as thief:
        mine, other = Session(owner), Session(owner)
        mine.ask("reset", {"seed": 1})
        token = mine.opened["resume_token"]
        guesses = [SECRET, OTHERS, other.opened["resume_token"], token[:-1], token + "x", token.swapcase(), ""]
        guesses += ["".join(rng.choices(string.ascii_letters, k=43)) for _ in range(1000)]
        answers = set()
        for number, guess in enumerate(guesses, start=2):
            reply = thief.ask("resume", {"session": mine.name, "resume_token": guess}, id=number)
            assert reply["data"].pop("code") == "EPISODE_LOST"
            answers.add(str(reply["data"]))

        assert len(answers) == 1
        assert mine.ask("step", {"nonce": 2})["data"]["step"] == 1


def test_there_is_one_socket_and_no_other(served: Served) -> None:
    async def ask() -> list[Any]:
        right = (b"authorization", f"Bearer {SECRET}".encode())
        return await asked(served.server, served.port, "websocket", "/reset", [right])

    answers = served.on_loop(ask)

    assert answers[0]["status"] == 404


def test_no_more_connections_are_taken_than_allowed() -> None:
    with serving(WITNESS, max_connections=2) as served:
        first, second = Talk(served), Talk(served)

        assert spoken(served, "socket", [("Host", f"127.0.0.1:{served.port}")])[0] == 503

        first.socket.close()
        until(lambda: served.on_loop(lambda: len(served.server.plane.connections)) == 1)
        with Talk(served) as third:
            assert third.ask("reset", {"seed": 1})["type"] == "observation"
        second.socket.close()


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1:{shared}", "ws://127.0.0.1:{own}/ws"),
        ("localhost:{shared}", "ws://localhost:{own}/ws"),
        ("[::1]:{shared}", "ws://[::1]:{own}/ws"),
        (NAME, f"ws://{NAME}:{{own}}/ws"),
        (f"{NAME}:443", f"ws://{NAME}:{{own}}/ws"),
    ],
)
def test_a_worker_tells_its_own_address_by_the_name_that_its_client_used(host: str, address: str) -> None:
    shared, own = bind_tcp("127.0.0.1", 0), bind_tcp("127.0.0.1", 0)
    ports = {"shared": port_of(shared), "own": port_of(own)}
    settings = parse_settings({"target": WITNESS, "sandbox": "none", "allow_hosts": [NAME], "insecure": False})
    server = Server(settings, Keys(Credential.of(SECRET)), Listening([shared, own], ports["own"]))
    scope = {"server": ("127.0.0.1", ports["shared"]), "headers": [(b"host", host.format(**ports).encode())]}
    at_home = {**scope, "server": ("127.0.0.1", ports["own"])}
    for listener in (shared, own):
        listener.close()

    assert server.plane.find_address(scope) == address.format(**ports)
    assert server.plane.find_address(at_home) is None
