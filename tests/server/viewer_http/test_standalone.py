"""The pages on a socket of their own: looked at, forked, and nothing else."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from proctor.access.request_policy import CODE_SECONDS
from proctor.models.events import Event, SessionOpened
from proctor.server.viewer_http import endpoints, standalone
from proctor.server.viewer_http.routes import CONTENT_SECURITY_POLICY
from proctor.server.viewer_http.standalone import ViewerServer, ViewerSocket, find_reachable_address
from tests.cli.recordings import real, written
from tests.server.live_server import PATIENCE, until
from tests.server.viewer_http.served_viewer import Browser, Clock, get, post

TARGET = "proctor/PlumeSearch-v0"
SMALL = {"grid_size": [16, 16]}


class Shown:
    """A running server of pages, and the addresses that it has told."""

    def __init__(self, server: ViewerServer, told: list[str], loop: asyncio.AbstractEventLoop) -> None:
        self.server = server
        self.loop = loop
        self.told = told

    @property
    def url(self) -> str:
        return until(lambda: self.told)[0].partition("/viewer/")[0]  # type: ignore[no-any-return]

    def entered(self, number: int = -1) -> Browser:
        return Browser(self.url, self.told[number].partition("#code=")[2])


@contextmanager
def shown(ledger: Path, host: str = "127.0.0.1", *, trusts: bool = False) -> Iterator[Shown]:
    told: list[str] = []
    loop = asyncio.new_event_loop()
    place = ViewerSocket.bind(host, 0)
    server = ViewerServer(ledger, place, told.append, trusts=trusts, clock=Clock())
    thread = threading.Thread(target=loop.run_until_complete, args=(server.serve(),), daemon=True)
    thread.start()
    until(lambda: told or not thread.is_alive())
    try:
        yield Shown(server, told, loop)
    finally:
        loop.call_soon_threadsafe(server.stop)
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the server did not stop"
        loop.close()
        place.listener.close()


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    ledger = written(tmp_path_factory.mktemp("ledger"), real("walk", TARGET, steps=5, settings=SMALL))
    with shown(ledger) as server:
        yield server


@pytest.fixture
def browser(there: Shown) -> Iterator[Browser]:
    count = len(there.told)
    with there.entered() as entered:
        # The next address is there before anybody else asks for it.
        until(lambda: len(there.told) > count)
        yield entered


def test_a_visit_may_look_and_fork_and_not_act(browser: Browser) -> None:
    visit = browser.get("/viewer/visit").json()

    assert (visit["can_act"], visit["can_fork"], visit["environment"]) == (False, True, None)
    assert {**browser.visit, "csrf": None} == visit


def test_when_a_code_was_used_the_next_one_is_told(there: Shown) -> None:
    before = len(there.told)
    with there.entered(), there.entered(until(lambda: len(there.told) - 1 if len(there.told) > before else None)):
        until(lambda: len(there.told) == before + 2)

    assert len(set(there.told)) == len(there.told)
    used = there.told[before - 1].partition("#code=")[2]
    assert post(f"{there.url}/viewer/enter", {"code": used}).status_code == 401


def test_before_a_code_expires_the_next_one_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standalone, "BEFORE_SECONDS", CODE_SECONDS - 0.05)
    with shown(written(tmp_path / "ledger", real("walk", TARGET, steps=1, settings=SMALL))) as server:
        until(lambda: len(server.told) >= 3)

    assert len(set(server.told)) == len(server.told)


def test_episodes_are_read(browser: Browser) -> None:
    lines = browser.get("/viewer/api/lines").json()["lines"]
    found = browser.get("/viewer/api/slice", chain=lines[0]["chain"]).json()
    compared = browser.get("/viewer/api/difference", one=lines[0]["chain"], other=lines[1]["chain"]).json()

    assert len(lines) == 2
    assert found["steps"]["step"] == [1, 2, 3, 4, 5]
    assert compared["same"] is False


def test_an_episode_is_forked(browser: Browser) -> None:
    chain = browser.get("/viewer/api/lines").json()["lines"][0]["chain"]

    fork = browser.post("/viewer/api/fork", {"chain": chain, "step": 2, "actions": [0, 1, 0]}).json()

    assert fork["slice"]["steps"]["step"] == [1, 2, 3, 4, 5]
    assert fork["head"]["line"]["chain"] == f"{chain}~fork@2"


def named(target: str, **settings: object) -> Iterator[Event]:
    """Yield a story whose record names something else than what was driven."""
    for event in real("walk", TARGET, steps=3, settings=SMALL):
        if isinstance(event, SessionOpened):
            yield replace(event, target=target, settings=settings or event.settings)
        else:
            yield event


def test_a_fork_runs_no_command_that_a_record_names(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    story = named("subprocess:Popen", args=["touch", str(mark)])

    with shown(written(tmp_path / "ledger", story)) as server, server.entered() as browser:
        answer = browser.post("/viewer/api/fork", {"chain": "walk.1", "step": 1, "actions": [0]})

    assert (answer.status_code, answer.json()["code"]) == (409, "VALIDATION_ERROR")
    assert "proctor view --trust" in answer.json()["message"]
    assert "Popen" not in answer.text
    assert not mark.exists()


@pytest.mark.parametrize(("trusts", "status"), [(False, 409), (True, 200)])
def test_a_module_before_an_id_is_imported_only_with_trust(tmp_path: Path, trusts: bool, status: int) -> None:
    ledger = written(tmp_path / "ledger", named(f"proctor.envs.registration:{TARGET}"))

    with shown(ledger, trusts=trusts) as server, server.entered() as browser:
        answer = browser.post("/viewer/api/fork", {"chain": "walk.1", "step": 1, "actions": [0]})

    assert answer.status_code == status


@pytest.mark.parametrize(
    "settings",
    [
        {"config": "setup.toml"},
        {"plume": {"type": "movie", "path": "/elsewhere/movie.zarr"}},
        {"parts": [{"path": "setup.toml"}]},
    ],
)
def test_a_fork_opens_no_file_that_a_record_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, object]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "setup.toml").write_text("max_steps = 3\n", "utf-8")
    ledger = written(tmp_path / "ledger", named(TARGET, **settings))

    with shown(ledger) as server, server.entered() as browser:
        answer = browser.post("/viewer/api/fork", {"chain": "walk.1", "step": 1, "actions": [0]})

    assert (answer.status_code, answer.json()["code"]) == (409, "VALIDATION_ERROR")
    assert "would open a file that its record names" in answer.json()["message"]


@pytest.mark.parametrize(
    ("order", "status"),
    [
        ({"chain": "nothing", "step": 0, "actions": []}, 409),
        ({"chain": None, "step": 99, "actions": []}, 409),
        ({"chain": None, "step": 0, "actions": ["nonsense"]}, 409),
        ({"chain": None, "step": -1, "actions": []}, 400),
        ({"chain": None, "step": 0, "actions": [0] * 10_001}, 400),
        ({"chain": None, "step": 0, "actions": [], "more": 1}, 400),
        ({"chain": None, "step": 0}, 400),
        ([], 400),
    ],
)
def test_a_fork_that_cannot_be_is_refused(browser: Browser, order: object, status: int) -> None:
    if isinstance(order, dict) and order["chain"] is None:
        order = {**order, "chain": browser.get("/viewer/api/lines").json()["lines"][0]["chain"]}

    answer = browser.post("/viewer/api/fork", order)

    assert (answer.status_code, answer.json()["code"]) == (status, "VALIDATION_ERROR")


def test_forks_that_never_end_keep_nobody_from_reading_and_more_of_them_are_refused(
    there: Shown, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()

    def endless(shelf: object, order: object, *, trusts: bool) -> bytes:
        assert go.wait(PATIENCE)
        return b"{}"

    monkeypatch.setattr(endpoints, "run_fork", endless)
    order = {"chain": "a", "step": 0, "actions": []}
    with ThreadPoolExecutor(10) as pool:
        try:
            begun = [pool.submit(browser.post, "/viewer/api/fork", order) for _ in range(10)]
            until(lambda: there.server.viewing._forks.waiting == 8)
            refused = browser.post("/viewer/api/fork", order)
            read = browser.get("/viewer/api/lines")
        finally:
            go.set()
        answers = [each.result(PATIENCE).status_code for each in begun]

    assert (refused.status_code, refused.json()["code"]) == (429, "BUSY")
    assert read.status_code == 200
    assert answers == [200] * 10


def test_a_fork_needs_the_visits_token_and_our_own_origin(browser: Browser) -> None:
    order = {"chain": "a", "step": 0, "actions": []}

    assert browser.post("/viewer/api/fork", order, **{"X-Proctor-CSRF": "x"}).json()["code"] == "NO_TOKEN"
    assert browser.post("/viewer/api/fork", order, Origin="http://evil.example").json()["code"] == "FOREIGN_ORIGIN"
    assert browser.post("/viewer/api/fork", order, **{"Content-Type": "text/plain"}).status_code == 415


@pytest.mark.parametrize("path", ["/health", "/metrics", "/ws", "/openapi.json", "/viewer/api/lines", "/viewer/x"])
def test_without_a_code_there_is_the_page_and_nothing_else(there: Shown, path: str) -> None:
    for headers in ({}, {"Authorization": "Bearer whatever-it-may-be-0123"}, {"Cookie": "proctor_visit_0=x"}):
        answer = get(f"{there.url}{path}", headers=headers)

        assert (answer.status_code, answer.json()["code"]) == (401, "NO_CREDENTIAL")
    assert get(f"{there.url}/viewer/").headers["content-security-policy"] == CONTENT_SECURITY_POLICY


@pytest.mark.parametrize("path", ["/operator/pending", "/operator/alert", "/metrics", "/viewer/x"])
def test_with_a_code_there_is_no_operators_side_either(browser: Browser, path: str) -> None:
    assert browser.get(path).status_code == 404
    assert browser.post(path, {}).status_code == 404


@pytest.mark.parametrize("path", ["/", "/viewer"])
def test_who_types_less_than_the_pages_address_is_led_there(there: Shown, path: str) -> None:
    answer = get(f"{there.url}{path}")

    assert (answer.status_code, answer.headers["location"]) == (307, "/viewer/")
    assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert get(f"{there.url}{path}", headers={"Host": "evil.example"}).status_code == 403
    assert post(f"{there.url}{path}").status_code == 401


@pytest.mark.parametrize(("host", "number"), [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("[::1]", "::1")])
def test_an_address_that_others_can_reach_is_told(host: str, number: str) -> None:
    assert find_reachable_address(host) == number
    for everywhere in ("0.0.0.0", "::", "[::]"):
        assert find_reachable_address(everywhere) not in ("0.0.0.0", "::", "[::]", "")


def test_an_address_that_cannot_be_told_ends_neither_the_server_nor_the_telling(
    there: Shown, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def deaf(address: str) -> None:
        raise BrokenPipeError

    count, heard = len(there.told), there.told.append
    monkeypatch.setattr(there.server, "_tell", deaf)
    with there.entered() as browser:
        until(lambda: "an address could not be told" in caplog.text)
        monkeypatch.setattr(there.server, "_tell", heard)
        code = browser.http.get("/viewer/visit").status_code
    entered = there.server.viewing._entered
    assert entered is not None
    there.loop.call_soon_threadsafe(entered)

    assert code == 200
    assert until(lambda: len(there.told) > count)


def test_a_name_that_was_made_to_point_here_opens_nothing(there: Shown) -> None:
    answer = get(f"{there.url}/viewer/", headers={"Host": "evil.example"})

    assert (answer.status_code, answer.json()["code"]) == (403, "FOREIGN_HOST")


def test_who_listens_does_not_keep_it_from_ending(tmp_path: Path) -> None:
    with shown(written(tmp_path / "ledger", real("walk", TARGET, steps=1, settings=SMALL))) as server:
        browser = server.entered()
        stream = browser.http.stream("GET", "/viewer/events")
        lines = stream.__enter__().iter_lines()
        assert next(lines) == "event: lines"

    assert all(not each.startswith("event: pending") for each in lines)
    stream.__exit__(None, None, None)
    browser.http.close()
