"""May this request come in? Host, then Origin, then the credential."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.access.credentials import Credential
from proctor.access.request_policy import (
    LOOPBACK_NAMES,
    AccessPolicy,
    AccessVerdict,
    is_loopback,
    judge_request,
    parse_host,
    parse_origin,
    policy_for,
)
from proctor.errors import ValidationError

SECRET = "a-secret-for-the-tests"
CREDENTIAL = Credential.of(SECRET)
LOCAL = policy_for("127.0.0.1", 8000, CREDENTIAL)
OPEN = policy_for("127.0.0.1", 8000, None)
UNIX = policy_for("127.0.0.1", None, CREDENTIAL)
GOOD = (b"authorization", b"Bearer " + SECRET.encode())


def judged(
    policy: AccessPolicy,
    host: str | bytes | None = "127.0.0.1:8000",
    origin: str | bytes | None = None,
    *,
    path: str = "/ws",
    method: str = "WEBSOCKET",
    credential: bool = True,
) -> AccessVerdict:
    named = [(name, value) for name, value in ((b"host", host), (b"origin", origin)) if value is not None]
    headers = [(name, value.encode() if isinstance(value, str) else value) for name, value in named]
    return judge_request(policy, method, path, [*headers, GOOD] if credential else headers)


HOSTS_BY_VERDICT: dict[AccessVerdict, tuple[str | bytes | None, ...]] = {
    AccessVerdict.ALLOWED: (
        *("127.0.0.1:8000", "localhost:8000", "LocalHost:8000", " localhost:8000\t", "[::1]:8000"),
        *("[0:0:0:0:0:0:0:1]:8000", "[0000::0001]:8000"),
    ),
    AccessVerdict.FOREIGN_HOST: (
        # another port, or none, which means 80
        *("127.0.0.1", "localhost", "localhost:8001", "localhost:80", "localhost:443"),
        # other names, some of which lead here
        *("evil.example", "evil.example:8000", "127.0.0.1.evil.example:8000", "localhost.evil.example:8000"),
        *("evil-localhost:8000", "localhost6:8000", "localhost.localdomain:8000", "127.1:8000", "127.0.0.2:8000"),
        *("2130706433:8000", "0x7f000001:8000", "0177.0.0.1:8000", "0.0.0.0:8000", "[::]:8000"),
        *("[::ffff:127.0.0.1]:8000", "192.168.0.1:8000"),
    ),
    AccessVerdict.BAD_HOST: (
        *(None, "", " ", ":8000", "localhost:", "localhost.:8000", "localhost..:8000", ".localhost:8000"),
        *("localhost:08000", "localhost:+8000", "localhost:8000:8000", "localhost:65536", "localhost:99999"),
        *("localhost:٨٠٠٠", "localhost:8000, evil.example", "localhost:8000 evil.example", "proctor@localhost:8000"),
        *("localhost:8000@evil.example", "evil.example#localhost:8000", "localhost:8000/"),
        *("localhost:8000\\.evil.example", "http://localhost:8000", "*", "::1", "::1:8000", "[::1", "[::1]8000"),
        *("[::1%lo]:8000", "[127.0.0.1]:8000", "[:::1]:8000", "[[::1]]:8000", "ｌocalhost:8000", "localhoſt:8000"),
        *("127。0。0。1:8000", b"localhost\xff:8000", b"localhost\x00:8000", b"localhost:8000\n"),
        *(b"localhost:8000\r\nx: y", "a" * 301),
    ),
}
HOSTS = [(host, verdict) for verdict, hosts in HOSTS_BY_VERDICT.items() for host in hosts]

FOREIGN_ORIGINS = [
    *("null", "NULL", "", "http://localhost:8000", "http://127.0.0.1:8000", "http://evil.example", "file://"),
    *("https://good.example.evil.example", "http://good.example", "https://good.example:444"),
    *("https://good.example/", "https://good.example, https://good.example"),
]
ORIGINS: list[tuple[str | bytes | None, AccessVerdict | None]] = [
    (None, None),
    (b"http://\xff", AccessVerdict.BAD_ORIGIN),
    *((origin, AccessVerdict.FOREIGN_ORIGIN) for origin in FOREIGN_ORIGINS),
]


@pytest.mark.parametrize(("host", "verdict"), HOSTS)
def test_only_a_name_of_the_server_with_its_port_is_answered(host: str | bytes | None, verdict: AccessVerdict) -> None:
    assert judged(LOCAL, host) is verdict


@pytest.mark.parametrize(("origin", "on_origin"), ORIGINS)
@pytest.mark.parametrize("credential", [True, False])
def test_the_host_is_judged_before_the_origin_and_the_origin_before_the_credential(
    origin: str | bytes | None, on_origin: AccessVerdict | None, credential: bool
) -> None:
    on_credential = AccessVerdict.ALLOWED if credential else AccessVerdict.NO_CREDENTIAL

    verdicts = [(host, judged(LOCAL, host, origin, credential=credential)) for host, _ in HOSTS]

    assert verdicts == [(host, on_origin or on_credential if on_host.allowed else on_host) for host, on_host in HOSTS]


PATHS = [
    *("/ws", "/health", "/metadata", "/schema", "/openapi.json", "/metrics", "/mcp", "/nowhere", "/health/"),
    "/healthy",
]
METHODS = ["GET", "HEAD", "POST", "OPTIONS", "WEBSOCKET"]


@pytest.mark.parametrize(("path", "method"), list(itertools.product(PATHS, METHODS)))
def test_without_a_credential_only_health_can_be_read(path: str, method: str) -> None:
    verdict = judged(LOCAL, path=path, method=method, credential=False)

    assert verdict.allowed == (path == "/health" and method in {"GET", "HEAD"})
    assert judged(LOCAL, path=path, method=method).allowed


@pytest.mark.parametrize("origin", [None, "http://evil.example", "null"])
@pytest.mark.parametrize("host", ["localhost:8000", "evil.example"])
def test_the_open_path_still_needs_the_right_host_and_origin(host: str, origin: str | None) -> None:
    verdict = judged(LOCAL, host, origin, path="/health", method="GET", credential=False)

    assert verdict.allowed == (host == "localhost:8000" and origin is None)


@pytest.mark.parametrize("path", ["", "*", "http://localhost:8000/health", "localhost:8000", "health"])
def test_a_target_that_is_no_path_is_refused(path: str) -> None:
    assert judged(LOCAL, path=path) is AccessVerdict.BAD_TARGET


@pytest.mark.parametrize(
    "path", ["/health/../metadata", "//health", "/HEALTH", "/health?token=x", "/health;x", "/%68ealth"]
)
def test_no_other_spelling_of_the_open_path_is_open(path: str) -> None:
    assert judged(LOCAL, path=path, method="GET", credential=False) is AccessVerdict.NO_CREDENTIAL


@pytest.mark.parametrize("name", [b"host", b"Host", b"HOST"])
def test_two_hosts_are_refused_even_if_both_are_right(name: bytes) -> None:
    headers = [(b"host", b"localhost:8000"), (name, b"localhost:8000"), GOOD]

    assert judge_request(LOCAL, "GET", "/ws", headers) is AccessVerdict.BAD_HOST


def test_two_origins_are_refused_even_if_both_are_allowed() -> None:
    policy = policy_for("localhost", 8000, CREDENTIAL, allow_origins=["https://good.example"])
    origin = (b"origin", b"https://good.example")

    assert judge_request(policy, "GET", "/", [(b"host", b"localhost:8000"), origin, GOOD]) is AccessVerdict.ALLOWED
    assert (
        judge_request(policy, "GET", "/", [(b"host", b"localhost:8000"), origin, origin, GOOD])
        is AccessVerdict.BAD_ORIGIN
    )


@pytest.mark.parametrize("header", [b"x-forwarded-host", b"forwarded", b"x-forwarded-for", b"x-original-host"])
def test_headers_of_proxies_are_not_read(header: bytes) -> None:
    headers = [(b"host", b"evil.example"), (header, b"localhost:8000"), GOOD]

    assert judge_request(LOCAL, "GET", "/ws", headers) is AccessVerdict.FOREIGN_HOST


@pytest.mark.parametrize(("origin", "refusal"), ORIGINS)
def test_an_origin_that_was_named_is_answered_and_no_other(
    origin: str | bytes | None, refusal: AccessVerdict | None
) -> None:
    policy = policy_for("localhost", 8000, CREDENTIAL, allow_origins=["HTTPS://Good.Example"])

    assert judged(policy, origin="https://good.example") is AccessVerdict.ALLOWED
    assert judged(policy, origin=origin) is (refusal or AccessVerdict.ALLOWED)


@pytest.mark.parametrize(
    ("host", "origin", "allowed"),
    [
        ("localhost:8000", "http://localhost:8000", True),
        ("LOCALHOST:8000", "http://LocalHost:8000", True),
        ("[::1]:8000", "http://[::1]:8000", True),
        ("viewer.example", "https://viewer.example", True),
        ("localhost:8000", "http://127.0.0.1:8000", False),
        ("localhost:8000", "http://localhost:8001", False),
        ("localhost:8000", "http://localhost", False),
        ("localhost:8000", "ftp://localhost:8000", False),
        ("localhost:8000", "http://localhost:8000@evil.example", False),
        ("localhost:8000", "http://evil.example", False),
        ("localhost:8000", "null", False),
    ],
)
def test_where_pages_are_served_they_may_ask_the_address_they_came_from(host: str, origin: str, allowed: bool) -> None:
    policy = policy_for("127.0.0.1", 8000, CREDENTIAL, allow_hosts=["viewer.example"], pages=True)

    assert judged(policy, host, origin) is (AccessVerdict.ALLOWED if allowed else AccessVerdict.FOREIGN_ORIGIN)
    assert judged(replace(policy, pages=False), host, origin) is AccessVerdict.FOREIGN_ORIGIN


@pytest.mark.parametrize(
    ("host", "verdict"),
    [
        ("proctor.example", AccessVerdict.ALLOWED),
        ("Proctor.Example:9", AccessVerdict.ALLOWED),
        ("mapped:9000", AccessVerdict.ALLOWED),
        ("mapped:8000", AccessVerdict.FOREIGN_HOST),
        ("mapped", AccessVerdict.FOREIGN_HOST),
        ("sub.proctor.example", AccessVerdict.FOREIGN_HOST),
    ],
)
def test_a_host_that_was_named_is_answered_with_any_port_or_with_its_own(host: str, verdict: AccessVerdict) -> None:
    policy = policy_for("127.0.0.1", 8000, CREDENTIAL, allow_hosts=["proctor.example", "mapped:9000"])

    assert judged(policy, host) is verdict


@pytest.mark.parametrize(
    ("bound", "host", "allowed"),
    [
        ("0.0.0.0", "10.1.2.3:8000", True),
        ("0.0.0.0", "[fe80::1]:8000", True),
        ("::", "127.0.0.1:8000", True),
        ("[::]", "localhost:8000", True),
        ("0.0.0.0", "10.1.2.3:8001", False),
        ("0.0.0.0", "10.1.2.3.evil.example:8000", False),
        ("0.0.0.0", "evil.example:8000", False),
        ("10.1.2.3", "10.1.2.3:8000", True),
        ("10.1.2.3", "127.0.0.1:8000", False),
        ("10.1.2.3", "10.1.2.4:8000", False),
        ("fe80::1", "[fe80::1]:8000", True),
        ("box.example", "box.example:8000", True),
        ("box.example", "localhost:8000", False),
        ("127.0.0.2", "127.0.0.2:8000", True),
    ],
)
def test_a_server_answers_to_what_it_is_bound_to(bound: str, host: str, allowed: bool) -> None:
    policy = policy_for(bound, 8000, CREDENTIAL)

    assert judged(policy, host) is (AccessVerdict.ALLOWED if allowed else AccessVerdict.FOREIGN_HOST)


def test_no_port_means_the_port_of_http() -> None:
    assert judged(policy_for("localhost", 80, CREDENTIAL), "localhost") is AccessVerdict.ALLOWED


@pytest.mark.parametrize("host", [*LOOPBACK_NAMES, "localhost:1", "127.0.0.1:65535"])
def test_on_a_unix_socket_every_loopback_name_is_right_whatever_its_port(host: str) -> None:
    assert judged(UNIX, host) is AccessVerdict.ALLOWED
    assert judged(UNIX, host, credential=False) is AccessVerdict.NO_CREDENTIAL


@pytest.mark.parametrize("host", ["evil.example", "10.1.2.3", "unix"])
def test_on_a_unix_socket_no_other_name_is_right(host: str) -> None:
    assert judged(UNIX, host) is AccessVerdict.FOREIGN_HOST
    assert judged(policy_for("127.0.0.1", None, CREDENTIAL, allow_hosts=[host]), host) is AccessVerdict.ALLOWED


def test_without_a_credential_host_and_origin_are_still_judged() -> None:
    assert judged(OPEN, credential=False) is AccessVerdict.ALLOWED
    assert judged(OPEN, "evil.example", credential=False) is AccessVerdict.FOREIGN_HOST
    assert judged(OPEN, origin="http://evil.example", credential=False) is AccessVerdict.FOREIGN_ORIGIN
    assert judged(policy_for("127.0.0.1", None, None), "localhost", credential=False) is AccessVerdict.ALLOWED


@pytest.mark.parametrize(
    ("bound", "allow_hosts"),
    [("0.0.0.0", []), ("::", []), ("10.1.2.3", []), ("box.example", []), ("127.0.0.1", ["proctor.example"])],
)
def test_no_credential_is_only_for_loopback(bound: str, allow_hosts: list[str]) -> None:
    with pytest.raises(ValidationError, match="without a credential"):
        policy_for(bound, 8000, None, allow_hosts=allow_hosts)


def test_no_credential_is_possible_for_other_ports_of_loopback() -> None:
    policy = policy_for("::1", 8000, None, allow_hosts=["localhost:9000"])

    assert judged(policy, "localhost:9000", credential=False) is AccessVerdict.ALLOWED


NASTY = st.text(st.sampled_from("localhost127.0[]:8/@#\\%, é") | st.characters(), max_size=30).map(
    lambda text: text.encode("utf-8", "surrogatepass")
)
HEADERS = st.lists(st.tuples(st.sampled_from([b"host", b"origin", b"authorization", b"Host"]), NASTY), max_size=5)


@given(st.sampled_from([LOCAL, OPEN, UNIX]), HEADERS, st.sampled_from(METHODS), st.text(max_size=8))
def test_no_headers_raise_and_no_verdict_repeats_them(
    policy: AccessPolicy, headers: list[tuple[bytes, bytes]], method: str, path: str
) -> None:
    verdict = judge_request(policy, method, path, headers)

    assert verdict.status in {200, 400, 401, 403}
    assert verdict.text in {each.text for each in AccessVerdict}


@given(HEADERS, st.sampled_from(PATHS), st.sampled_from(METHODS))
def test_nobody_comes_in_without_the_secret(headers: list[tuple[bytes, bytes]], path: str, method: str) -> None:
    verdict = judge_request(LOCAL, method, path, [(b"host", b"localhost:8000"), *headers])

    assert not verdict.allowed or (path == "/health" and method in {"GET", "HEAD"})


@given(NASTY)
def test_a_host_is_answered_only_if_it_is_one_of_three_names(value: bytes) -> None:
    verdict = judge_request(LOCAL, "GET", "/ws", [(b"host", value), GOOD])

    assert not verdict.allowed or value.strip(b" \t").lower().endswith((b"t:8000", b"1:8000", b"]:8000"))


def test_only_a_missing_credential_comes_with_a_challenge() -> None:
    assert dict(AccessVerdict.NO_CREDENTIAL.headers) == {b"www-authenticate": b'Bearer realm="proctor"'}
    assert all(each.headers == () for each in AccessVerdict if each is not AccessVerdict.NO_CREDENTIAL)


@pytest.mark.parametrize(
    "text", ["", "a b", "http://a", "a:x", "a:99999", "é.example", "\u212aelvin", "a/b", "*.a", "a."]
)
def test_a_host_that_is_none_cannot_be_allowed(text: str) -> None:
    with pytest.raises(ValidationError, match="not a host"):
        parse_host(text)


@pytest.mark.parametrize(
    "text", ["", "null", "*", "good.example", "https://", "https://a/b", "https://u@a", "https://a:b"]
)
def test_an_origin_that_is_none_cannot_be_allowed(text: str) -> None:
    with pytest.raises(ValidationError, match="not an origin"):
        parse_origin(text)


@pytest.mark.parametrize(
    ("name", "local"),
    [
        *(("localhost", True), ("127.0.0.1", True), ("127.9.9.9", True), ("[::1]", True), ("::1", True)),
        *(("0.0.0.0", False), ("10.0.0.1", False), ("localhost.example", False)),
    ],
)
def test_loopback_is_known_by_name_and_by_number(name: str, local: bool) -> None:
    assert is_loopback(name) is local
