import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.client.address import TOKEN_VARIABLE, Address, follow_address, is_loopback, parse_address
from proctor.errors import ValidationError

SECRET = "sesame-open-sesame"


@pytest.mark.parametrize(
    ("url", "uri"),
    [
        ("http://127.0.0.1:8000", "ws://127.0.0.1:8000/ws"),
        ("http://127.0.0.1:8000/", "ws://127.0.0.1:8000/ws"),
        ("https://Example.org", "wss://example.org/ws"),
        ("ws://host:1/ws", "ws://host:1/ws"),
        ("wss://host/base/", "wss://host/base/ws"),
        ("http://[::1]:80", "ws://[::1]:80/ws"),
        (f"http://proctor:{SECRET}@host:1", "ws://host:1/ws"),
    ],
)
def test_an_address_leads_to_the_websocket(url: str, uri: str) -> None:
    assert parse_address(url).uri == uri


def test_a_unix_socket_is_an_address() -> None:
    address = parse_address("unix:///run/proctor%20one.sock")

    assert address.socket_path == "/run/proctor one.sock"
    assert address.is_local
    assert str(address) == "unix:///run/proctor one.sock"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8000",
        "ftp://host",
        "http://",
        "http://host:0",
        "http://host:99999",
        "http://host?token=x",
        "http://host#x",
        "unix://relative/path",
        "http://[::1",
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        parse_address(url)
    assert refusal.value.expected is not None


def test_the_credential_is_the_keyword_then_the_address_then_the_variable() -> None:
    environment = {TOKEN_VARIABLE: "from-the-variable"}

    assert parse_address("http://proctor:in-url@h", token="given", environment=environment).token == "given"
    assert parse_address("http://proctor:in-url@h", environment=environment).token == "in-url"
    assert parse_address("http://only-a-token@h").token == "only-a-token"
    assert parse_address("http://h", environment=environment).token == "from-the-variable"
    assert parse_address("http://h", environment={}).token is None


def test_a_credential_in_an_address_may_be_written_with_percents() -> None:
    assert parse_address("http://proctor:a%2Fb%40c@h").token == "a/b@c"


@pytest.mark.parametrize("token", ["", "two words", "new\nline", "ünicode"])
def test_what_cannot_be_sent_as_a_credential_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        parse_address("http://h", token=token)
    assert not token or token not in str(refusal.value)


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=40), st.booleans())
def test_a_credential_is_never_shown(token: str, good: bool) -> None:
    from urllib.parse import quote

    url = f"http://proctor:{quote(token, safe='')}@some-host:8000" + ("" if good else "?x=1")
    try:
        shown = repr(parse_address(url)) + str(parse_address(url))
    except ValidationError as refusal:
        shown = str(refusal)

    assert token not in shown.replace("some-host", "")


def test_the_credential_is_presented_as_bearer() -> None:
    assert parse_address("http://h", token=SECRET).headers == {"Authorization": f"Bearer {SECRET}"}
    assert Address("ws://h/ws", "h").headers == {}


@pytest.mark.parametrize(
    ("given_url", "announced", "expected"),
    [
        ("http://127.0.0.1:1", "ws://127.0.0.1:2/ws", "ws://127.0.0.1:2/ws"),
        ("http://localhost:1", "ws://127.0.0.1:2/ws", "ws://127.0.0.1:2/ws"),
        ("http://host:1", "ws://host:2/ws", "ws://host:2/ws"),
        ("https://host", "wss://host:2/ws", "wss://host:2/ws"),
        ("http://host:1", None, "ws://host:1/ws"),
        ("http://host:1", "ws://evil:2/ws", "ws://host:1/ws"),
        ("http://host:1", "ws://127.0.0.1:2/ws", "ws://host:1/ws"),
        ("https://host", "ws://host:2/ws", "wss://host/ws"),
        ("http://host:1", "not an address", "ws://host:1/ws"),
        ("http://host:1", "ws://host@evil:2/ws", "ws://host:1/ws"),
    ],
)
def test_an_announced_address_is_followed_only_where_the_credential_may_go(
    given_url: str, announced: str | None, expected: str
) -> None:
    found = follow_address(parse_address(given_url, token=SECRET), announced)

    assert found.uri == expected
    assert found.token == SECRET


def test_a_unix_socket_is_not_left_for_a_host_of_the_same_name_elsewhere() -> None:
    assert follow_address(parse_address("unix:///a"), "ws://other:1/ws").socket_path == "/a"
    assert follow_address(parse_address("unix:///a"), "unix:///b").socket_path == "/b"


@given(st.ip_addresses())
def test_a_number_is_loopback_when_the_standard_says_so(number: object) -> None:
    assert is_loopback(str(number)) == number.is_loopback  # type: ignore[attr-defined]
