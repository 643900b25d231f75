"""What somebody tries who has a part of the way in: a cookie, a code, another credential, or a page of their own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.server.viewer_http.served_viewer import Browser, Viewed, get, post, viewed

GOVERNED: dict[str, Any] = {"governed": "standard", "agent_port": 0}
READS = ["/viewer/visit", "/viewer/api/lines", "/viewer/api/machine", "/operator/pending", "/operator/sessions"]
ALERT = {"session": "s", "epoch": 1, "summary": "stop"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Viewed]:
    folder: Path = tmp_path_factory.mktemp("ledger")
    with viewed(folder, **GOVERNED) as there:
        yield there


@pytest.fixture
def browser(server: Viewed) -> Iterator[Browser]:
    with server.entered() as there:
        yield there


def test_a_visit_has_the_operators_rights(browser: Browser) -> None:
    statuses = {path: browser.get(path).status_code for path in READS}
    act = browser.post("/operator/alert", ALERT)

    assert set(statuses.values()) == {200}
    # There is no such session, says the operator's side: the door has let it in.
    assert (act.status_code, act.json()["code"]) == (409, "VALIDATION_ERROR")
    assert browser.visit["can_act"] is True


@pytest.mark.parametrize("path", ["/metrics", "/schema", "/openapi.json", "/metadata", "/mcp", "/ws"])
def test_a_cookie_never_has_the_rights_of_the_control_credential(browser: Browser, path: str) -> None:
    assert browser.get(path).status_code == 401
    assert browser.http.post(path, headers={"X-Proctor-CSRF": browser.visit["csrf"]}).status_code == 401


@pytest.mark.parametrize("path", ["/ws", "/viewer/events", "/viewer/", "/operator/watch"])
def test_a_cookie_opens_no_socket(server: Viewed, browser: Browser, path: str) -> None:
    address = f"ws://127.0.0.1:{server.served.port}{path}"

    with pytest.raises(InvalidStatus) as refusal:
        connect(address, additional_headers={**browser.cookie, "X-Proctor-CSRF": browser.visit["csrf"]})

    assert refusal.value.response.status_code == 401


@pytest.mark.parametrize("path", ["/operator/alert", "/viewer/leave"])
def test_a_stolen_cookie_alone_changes_nothing(server: Viewed, browser: Browser, path: str) -> None:
    thief = {**browser.cookie, "Origin": server.url}

    without = post(f"{server.url}{path}", ALERT, headers=thief)
    wrong = post(f"{server.url}{path}", ALERT, headers={**thief, "X-Proctor-CSRF": "0" * 64})

    assert (without.status_code, wrong.status_code) == (403, 403)
    assert browser.get("/viewer/visit").status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1:3000", "null", "https://localhost"])
def test_a_foreign_page_can_neither_read_nor_post(server: Viewed, browser: Browser, origin: str) -> None:
    posted = browser.post("/operator/alert", ALERT, Origin=origin)
    read = browser.http.get("/viewer/api/lines", headers={"Origin": origin})
    entered = post(f"{server.url}/viewer/enter", {"code": server.code()}, headers={"Origin": origin})

    assert {posted.status_code, read.status_code, entered.status_code} == {403}
    assert "access-control-allow-origin" not in read.headers


def test_a_post_that_does_not_say_where_it_comes_from_is_refused(browser: Browser) -> None:
    answer = browser.http.post("/operator/alert", json=ALERT, headers={"X-Proctor-CSRF": browser.visit["csrf"]})

    assert answer.status_code == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("path", READS)
def test_what_the_browser_sends_for_another_page_is_refused(browser: Browser, site: str, path: str) -> None:
    assert browser.http.get(path, headers={"Sec-Fetch-Site": site}).status_code == 403


@pytest.mark.parametrize("path", ["/viewer/", "/viewer/static/js/main.js", *READS])
def test_a_name_that_was_made_to_point_here_opens_nothing(server: Viewed, browser: Browser, path: str) -> None:
    rebound = {"Host": f"evil.example:{server.served.port}", "Origin": f"http://evil.example:{server.served.port}"}

    assert get(f"{server.url}{path}", headers={**browser.cookie, **rebound}).status_code == 403
    assert post(f"{server.url}/viewer/enter", {"code": server.code()}, headers=rebound).status_code == 403


@pytest.mark.parametrize("path", [*READS, "/viewer/events"])
def test_neither_the_control_credential_nor_a_grant_opens_the_pages(server: Viewed, path: str) -> None:
    with server.client() as client:
        statuses = {
            client.get(path, headers=headers).status_code
            for headers in (server.as_control, {"Authorization": "Bearer the-token-of-a-grant-0123"}, {})
        }

    assert statuses == {401}


def test_a_wrong_credential_beside_a_good_cookie_is_refused(server: Viewed, browser: Browser) -> None:
    assert browser.http.get("/viewer/api/lines", headers=server.as_control).status_code == 401


def test_another_visits_token_is_refused(server: Viewed, browser: Browser) -> None:
    with server.entered() as other:
        answer = browser.post("/operator/alert", ALERT, **{"X-Proctor-CSRF": other.visit["csrf"]})

    assert answer.status_code == 403


def test_a_link_is_given_for_the_credential_only(server: Viewed, browser: Browser) -> None:
    by_cookie = browser.post("/operator/link", {})
    by_control = post(f"{server.url}/operator/link", headers=server.as_control)
    by_operator = post(f"{server.url}/operator/link", headers=server.as_operator)
    address, _, code = by_operator.json()["url"].partition("#code=")

    assert (by_cookie.status_code, by_control.status_code) == (401, 401)
    assert address == f"{server.url}/viewer/"
    with Browser(server.url, code) as other:
        assert other.get("/viewer/visit").status_code == 200


def test_two_cookies_of_our_name_are_none(server: Viewed, browser: Browser) -> None:
    value = browser.cookie["Cookie"]

    answer = get(f"{server.url}/viewer/visit", headers={"Cookie": f"{value}; {value.partition('=')[0]}=tossed"})

    assert answer.status_code == 401


def test_the_operators_credential_opens_the_pages_too(server: Viewed) -> None:
    with server.client(**server.as_operator) as client:
        assert client.get("/viewer/api/lines").status_code == 200
        assert client.get("/viewer/visit").status_code == 401
