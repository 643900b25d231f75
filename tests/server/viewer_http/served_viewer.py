"""A real server with a viewer on loopback, and a browser that behaves as browsers do."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from proctor.access.request_policy import Visits
from tests.server.live_server import PATIENCE, Served, Session, Talk, serving

CONTROL = "the-control-secret-0123456789"
OPERATOR = "the-operator-secret-0123456789"
TARGET = "proctor/PlumeSearch-v0"
# Nothing here is encrypted, and to read all certificates takes longer than most of these tests.
PLAIN: dict[str, Any] = {"timeout": PATIENCE, "trust_env": False, "verify": False}
SMALL = {"grid_size": [16, 16], "max_steps": 50}


def get(url: str, headers: dict[str, str] | None = None) -> httpx.Response:
    """Return what somebody is answered who keeps no cookies."""
    return httpx.get(url, headers=headers, **PLAIN)


def post(url: str, body: Any = None, headers: dict[str, str] | None = None) -> httpx.Response:
    """Return what somebody is answered who keeps no cookies."""
    return httpx.post(url, json=body, headers=headers, **PLAIN)


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Viewed:
    """A running server with a viewer."""

    served: Served
    visits: Visits
    clock: Clock

    @property
    def url(self) -> str:
        return self.served.url

    @property
    def as_operator(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {OPERATOR}"}

    @property
    def as_control(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {CONTROL}"}

    def code(self) -> str:
        code: str = self.served.on_loop(self.visits.code)
        return code

    def client(self, **headers: str) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers=headers, **PLAIN)

    def entered(self) -> "Browser":
        return Browser(self.url, self.code())

    def episode(self, steps: int = 3) -> str:
        """Drive an episode of some steps; return its chain."""
        with Talk(self.served, client="test") as talk:
            session = Session(talk)
            session.ask("reset", {"seed": 1})
            for _ in range(steps):
                session.ask("step", {"action": 0})
            return f"{session.name}/{session.epoch}"


class Browser:
    """A browser that was let in: it keeps the cookie, and says where its requests come from."""

    def __init__(self, url: str, code: str) -> None:
        self.http = httpx.Client(base_url=url, **PLAIN)
        answer = self.http.post("/viewer/enter", json={"code": code}, headers={"Origin": url})
        assert answer.status_code == 200, answer.text
        self.url = url
        self.visit: dict[str, Any] = answer.json()
        self.set_cookie = answer.headers["set-cookie"]

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    @property
    def cookie(self) -> dict[str, str]:
        return {"Cookie": self.set_cookie.partition(";")[0]}

    def get(self, path: str, **query: Any) -> httpx.Response:
        return self.http.get(path, params=query or None, headers={"Sec-Fetch-Site": "same-origin"})

    def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        return self.http.post(path, json=body, headers={**self.own, **headers})

    @property
    def own(self) -> dict[str, str]:
        """What the page's own posts carry."""
        return {"Origin": self.url, "X-Proctor-CSRF": self.visit["csrf"], "Sec-Fetch-Site": "same-origin"}


@contextmanager
def viewed(folder: Path, target: str = TARGET, **settings: Any) -> Iterator[Viewed]:
    """Serve `target` with a ledger in `folder` and pages over it."""
    clock = Clock()
    visits = Visits(clock=clock)
    told = {"settings": SMALL} if target == TARGET else {}
    with serving(
        target, secret=CONTROL, operator=OPERATOR, visits=visits, ledger=folder, **{**told, **settings}
    ) as there:
        yield Viewed(there, visits, clock)
