"""How a browser comes in and goes, and what it can read, on a real server."""

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from proctor import __version__
from proctor.access.request_policy import CODE_SECONDS, VISIT_SECONDS
from proctor.errors import ValidationError
from proctor.server.viewer_http.endpoints import LedgerSource
from proctor.server.viewer_http.feed import COMMENT_SECONDS
from proctor.server.viewer_http.readers import Reader, ReaderAnswer, ReaderProcess, ReadRequest
from proctor.server.viewer_http.routes import CONTENT_SECURITY_POLICY
from proctor.viewer.catalog import EpisodeCatalog
from tests.server.live_server import until
from tests.server.viewer_http.served_viewer import TARGET, Browser, Viewed, get, post, viewed


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Viewed]:
    """A server of which nothing is asked but what is true for all of these tests."""
    with viewed(tmp_path_factory.mktemp("ledger")) as there:
        yield there


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Viewed]:
    """One that a test has for itself, with its clock, its counts and its episodes."""
    with viewed(tmp_path / "ledger") as there:
        yield there


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads for the pages does so in this process, where a test can change what is read."""

    def told(self: ReaderProcess, asked: ReadRequest) -> ReaderAnswer:
        source = LedgerSource(self._path, live=self._live)
        try:
            return Reader(source).answer(asked)
        finally:
            source.close()

    monkeypatch.setattr(ReaderProcess, "_exchange_twice", told)


@pytest.fixture
def browser(server: Viewed) -> Iterator[Browser]:
    with server.entered() as there:
        yield there


# ------------------------------------------------------------------------------------------------------- how it comes in
def test_a_code_is_traded_for_a_cookie_that_no_script_and_no_other_site_can_use(
    server: Viewed, browser: Browser
) -> None:
    name, _, attributes = browser.set_cookie.partition("=")
    rest = {part.strip() for part in attributes.split(";")[1:]}

    assert name == f"proctor_visit_{server.served.port}"
    assert rest == {"Path=/", "HttpOnly", "SameSite=Strict"}


def test_a_visit_says_what_can_be_done(browser: Browser) -> None:
    expected = {"server": __version__, "environment": TARGET, "can_act": False, "can_fork": False, "live": True}

    assert browser.visit == {"csrf": browser.visit["csrf"], **expected}
    assert browser.visit["csrf"]


def test_a_cookie_alone_does_not_bring_the_token_back(browser: Browser) -> None:
    said = browser.get("/viewer/visit")

    assert said.json() == {**browser.visit, "csrf": None}
    assert browser.visit["csrf"] not in str(said.headers)


def test_a_code_is_good_once(server: Viewed) -> None:
    code = server.code()
    with server.client() as client:
        first = client.post("/viewer/enter", json={"code": code})
        client.cookies.clear()
        second = client.post("/viewer/enter", json={"code": code})

    assert (first.status_code, second.status_code) == (200, 401)
    assert second.json()["code"] == "WRONG_CODE"
    assert "set-cookie" not in second.headers


def test_a_code_is_too_old_after_an_hour(fresh: Viewed) -> None:
    code = fresh.code()
    fresh.clock.now += CODE_SECONDS
    with fresh.client() as client:
        answer = client.post("/viewer/enter", json={"code": code})

    assert (answer.status_code, answer.json()["code"]) == (401, "WRONG_CODE")


def test_a_wrong_code_is_counted_and_logged_and_never_written_down(
    fresh: Viewed, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = "a-code-that-somebody-guessed"
    with fresh.client() as client, caplog.at_level("DEBUG"):
        client.post("/viewer/enter", json={"code": wrong})
        counts = client.get("/metrics", headers=fresh.as_control).text

    assert 'proctor_refused_total{status="401"} 1.0' in counts
    assert "a code was refused" in caplog.text
    assert wrong not in caplog.text


@pytest.mark.parametrize(
    ("body", "media", "status"),
    [
        (b'{"code":"x"}', "text/plain", 415),
        (b'{"code":"x"}', "application/x-www-form-urlencoded", 415),
        (b'{"code":"x"}', "", 415),
        (b'{"code":"x"', "application/json", 400),
        (b"{}", "application/json", 400),
        (b'{"code":"x","more":1}', "application/json", 400),
        (b'{"code":"x","code":"y"}', "application/json", 400),
        (b'{"code":7}', "application/json", 400),
        (b'{"code":""}', "application/json", 400),
        (b'{"code":"' + b"x" * 300 + b'"}', "application/json", 400),
        (b'{"code":"' + b"x" * 2000 + b'"}', "application/json", 413),
        (b"[" * 1000, "application/json", 400),
    ],
)
def test_only_a_small_json_with_a_code_is_read(server: Viewed, body: bytes, media: str, status: int) -> None:
    with server.client() as client:
        answer = client.post("/viewer/enter", content=body, headers={"Content-Type": media})

    assert answer.status_code == status
    assert answer.json()["code"]


def test_a_visit_ends_when_one_leaves(browser: Browser) -> None:
    kept = browser.cookie

    left = browser.post("/viewer/leave", {})
    after = get(f"{browser.url}/viewer/visit", headers=kept)

    assert left.json() == {"left": True}
    assert "Max-Age=0" in left.headers["set-cookie"]
    assert (after.status_code, after.json()["code"]) == (401, "NO_CREDENTIAL")


def test_a_stream_ends_when_its_visit_is_left(fresh: Viewed) -> None:
    with (
        fresh.entered() as browser,
        browser.http.stream("GET", "/viewer/events", timeout=COMMENT_SECONDS / 2) as stream,
    ):
        lines = stream.iter_lines()
        assert next(lines) == "event: lines"
        post(f"{browser.url}/viewer/leave", {}, {**browser.cookie, **browser.own})

        assert "event: lines" not in list(lines)


def test_a_visit_ends_after_twelve_hours(fresh: Viewed) -> None:
    with fresh.entered() as browser:
        fresh.clock.now += VISIT_SECONDS

        assert browser.get("/viewer/api/lines").status_code == 401


# -------------------------------------------------------------------------------------------------------------- the page
def test_the_page_has_the_strict_policy_and_is_asked_for_again(server: Viewed) -> None:
    with server.client() as client:
        answer = client.get("/viewer/")
        again = client.get("/viewer/", headers={"If-None-Match": answer.headers["etag"]})

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert answer.headers["cache-control"] == "no-cache"
    assert (again.status_code, again.content) == (304, b"")


def test_scripts_are_scripts_and_come_packed(server: Viewed) -> None:
    with server.client() as client:
        packed = client.get("/viewer/static/js/main.js")
        plain = client.get("/viewer/static/js/main.js", headers={"Accept-Encoding": "identity"})

    assert packed.headers["content-type"] == "text/javascript; charset=utf-8"
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.content == plain.content


def test_what_the_page_names_is_kept_and_nothing_else_is(server: Viewed) -> None:
    with server.client() as client:
        named = client.get("/viewer/").text.partition('src="')[2].partition('"')[0]
        fixed = client.get(f"/viewer/{named}")
        again = client.get(f"/viewer/{named}", headers={"If-None-Match": fixed.headers["etag"]})
        plain = client.get("/viewer/static/js/main.js")
        old = client.get("/viewer/static/0123456789abcdef/js/main.js")

    assert (fixed.status_code, again.status_code, plain.status_code, old.status_code) == (200, 304, 200, 404)
    assert fixed.content == plain.content
    assert fixed.headers.get_list("cache-control") == ["max-age=31536000, immutable"]
    assert again.headers.get_list("cache-control") == ["max-age=31536000, immutable"]
    assert fixed.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert plain.headers.get_list("cache-control") == old.headers.get_list("cache-control") == ["no-cache"]


@pytest.mark.parametrize(
    "path",
    [
        "/viewer/static/",
        "/viewer/static/../documents.py",
        "/viewer/static/..%2fdocuments.py",
        "/viewer/static/%2e%2e/%2e%2e/documents.py",
        "/viewer/static/js/../../documents.py",
        "/viewer/static//etc/passwd",
        "/viewer/static/%00",
        "/viewer/static/index.html",
        "/viewer/static/js",
        "/viewer/static/js/",
        "/viewer/static/JS/main.js",
        "/viewer/static/" + "a" * 5000,
        "/viewer/static/..\\documents.py",
    ],
)
def test_no_path_leads_to_another_file(server: Viewed, path: str) -> None:
    with server.client() as client:
        # As it is: a client would take the dots out.
        answer = client.send(client.build_request("GET", httpx.URL(server.url).copy_with(raw_path=path.encode())))

    assert answer.status_code in {401, 404}
    assert answer.json()["code"]


@pytest.mark.parametrize("path", ["/viewer/visit", "/viewer/api/lines", "/viewer/nothing", "/operator/link"])
def test_refusals_have_the_headers_too_and_are_kept_by_nobody(server: Viewed, path: str) -> None:
    with server.client() as client:
        answer = client.get(path)

    assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert answer.headers["cache-control"] == "no-store"


# -------------------------------------------------------------------------------------------------------------- reading
def test_episodes_are_listed_and_read(fresh: Viewed) -> None:
    fresh.episode(steps=3)

    with fresh.entered() as browser:
        (line,) = until(lambda: browser.get("/viewer/api/lines").json()["lines"])
        chain = line["chain"]
        head = browser.get("/viewer/api/head", chain=chain).json()
        found = browser.get("/viewer/api/slice", chain=chain).json()
        first = found["steps"]["number"][0]
        raw = browser.get("/viewer/api/raw", chain=chain, number=first).json()
        rest = browser.get("/viewer/api/slice", chain=chain, after=found["last"]).json()
        page = browser.get("/viewer/api/page", chain=chain)

    assert head["line"]["chain"] == chain
    assert found["steps"]["step"] == [1, 2, 3]
    assert raw["number"] == first
    assert rest["steps"]["step"] == []
    assert page.text.startswith("<!doctype html>")


def test_a_live_episode_is_told_as_it_goes_on(fresh: Viewed) -> None:
    with fresh.entered() as browser, browser.http.stream("GET", "/viewer/events") as stream:
        told = (json.loads(each.removeprefix("data: ")) for each in stream.iter_lines() if each.startswith("data: "))
        assert next(told) == []
        fresh.episode(steps=3)
        steps = 0
        while steps < 3:
            steps = max(line["steps"] for line in next(told))

    assert steps == 3


def test_the_machine_is_told(browser: Browser) -> None:
    assert len(browser.get("/viewer/api/machine").json()["states"]) == 10


@pytest.mark.parametrize(
    "path",
    [
        "/viewer/api/head?chain=nothing",
        "/viewer/api/slice?chain=nothing",
        "/viewer/api/raw?chain=nothing&number=1",
        "/viewer/api/pixels?chain=nothing&number=1",
        "/viewer/api/explanation?chain=nothing&number=1",
        "/viewer/api/difference?one=nothing&other=nothing",
        "/viewer/api/page?chain=nothing",
    ],
)
def test_what_is_not_there_is_said_with_a_code(browser: Browser, path: str) -> None:
    answer = browser.http.get(path)

    assert answer.status_code == 404
    assert answer.json()["code"] == "VALIDATION_ERROR"


@pytest.mark.parametrize(
    "path",
    [
        "/viewer/api/lines?x=1",
        "/viewer/api/machine?x=1",
        "/viewer/visit?x=1",
        "/viewer/events?x=1",
        "/viewer/api/head",
        "/viewer/api/head?chain=",
        "/viewer/api/head?chain=" + "a" * 301,
        "/viewer/api/head?chain=a&chain=a",
        "/viewer/api/head?chain=a&other=b",
        "/viewer/api/slice?chain=a&most=0",
        "/viewer/api/slice?chain=a&most=20001",
        "/viewer/api/slice?chain=a&most=x",
        "/viewer/api/slice?chain=a&most=1.5",
        "/viewer/api/slice?chain=a&after=-1",
        "/viewer/api/slice?chain=a&after=99999999999999999999",
        "/viewer/api/slice?chain=a&thin=maybe",
        "/viewer/api/raw?chain=a",
        "/viewer/api/difference?one=a",
    ],
)
def test_a_query_that_is_not_acceptable_reaches_nobody(browser: Browser, path: str) -> None:
    answer = browser.http.get(path)

    assert answer.status_code == 400
    assert answer.json()["code"] == "VALIDATION_ERROR"


@pytest.mark.usefixtures("here")
def test_no_text_of_an_exception_reaches_a_peer(
    server: Viewed, browser: Browser, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: EpisodeCatalog, chain: str) -> None:
        raise RuntimeError("a secret of the inside")

    monkeypatch.setattr(EpisodeCatalog, "head", fail)
    with caplog.at_level("ERROR"):
        answer = browser.get("/viewer/api/head", chain="a")

    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert answer.json()["incident"] in caplog.text


@pytest.mark.usefixtures("here")
def test_large_answers_are_packed_where_the_browser_can_read_that(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = json.dumps({"text": "x" * 50_000}).encode()
    monkeypatch.setattr(EpisodeCatalog, "raw", lambda self, chain, number: body)
    path = "/viewer/api/raw?chain=a&number=1"

    with browser.http.stream("GET", path, headers={"Accept-Encoding": "gzip"}) as packed:
        raw = b"".join(packed.iter_raw())
    plain = browser.http.get(path, headers={"Accept-Encoding": "identity"})
    refused = browser.http.get(path, headers={"Accept-Encoding": "gzip;q=0"})

    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(raw) == body
    assert len(raw) < len(zlib.compress(body)) * 4
    assert plain.content == refused.content == body
    assert "content-encoding" not in refused.headers
    assert plain.headers["vary"] == "accept-encoding"


def test_small_answers_are_not_packed(browser: Browser) -> None:
    assert "content-encoding" not in browser.get("/viewer/visit").headers


def test_there_are_no_forks_where_environments_may_be_in_a_sandbox(browser: Browser) -> None:
    assert browser.post("/viewer/api/fork", {"chain": "a", "step": 0, "actions": []}).status_code == 404


@pytest.mark.usefixtures("here")
def test_pictures_and_single_files_come_as_what_they_are(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EpisodeCatalog, "pixels", lambda self, chain, number: b"\x89PNG")
    monkeypatch.setattr("proctor.viewer.single_file.build_page", lambda ledger, chains: f"<!doctype html>{chains}")

    picture = browser.get("/viewer/api/pixels", chain="a", number=1)
    page = browser.get("/viewer/api/page", chain="a")

    assert (picture.headers["content-type"], picture.content) == ("image/png", b"\x89PNG")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-disposition"].startswith("attachment")
    assert page.text == "<!doctype html>['a']"


@pytest.mark.usefixtures("here")
def test_a_refusal_of_the_shelf_says_what_it_says(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: EpisodeCatalog, chain: str) -> None:
        raise ValidationError("there is no such episode", found=chain, expected="a chain")

    monkeypatch.setattr(EpisodeCatalog, "head", refuse)
    told: dict[str, Any] = browser.get("/viewer/api/head", chain="<script>").json()

    assert told == {"message": "there is no such episode", "code": "VALIDATION_ERROR", "expected": "a chain"}
