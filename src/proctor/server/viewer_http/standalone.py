"""The pages on a socket of their own, over a ledger that lies on a disk: what `proctor view` serves.

Rule 1: it is only looked at: there is no operator's side here, and nothing writes. What can be done are forks, which run the
    environment's code and are kept nowhere.
Rule 2: the only way in is a code. A code is good once, so whoever started this is told a new one when one was used, or is
    about to expire.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Send

from proctor.access import request_policy
from proctor.access.limits import RequestLimits
from proctor.models.control import Code, Problem
from proctor.server.net.connections import RefusalLog, authenticate, note_refusal, raise_open_files_limit
from proctor.server.net.http_requests import JSON
from proctor.server.net.metrics import Metrics
from proctor.server.net.uvicorn_http import SecondaryHttpProtocol
from proctor.server.net.uvicorn_server import DrainingServer, bind_tcp, make_uvicorn_config, new_event_loop, port_of
from proctor.server.viewer_http.readers import ReaderPool
from proctor.server.viewer_http.routes import ViewerOffer, ViewerRoutes, add_headers

LOG: Final = logging.getLogger("proctor.viewer")
WILDCARDS: Final = {
    "0.0.0.0": (socket.AF_INET, "192.0.2.1"),  # noqa: S104  # what was asked for, not what is bound
    "::": (socket.AF_INET6, "2001:db8::1"),
}
"""All addresses of a machine, and one elsewhere, in a network that is for examples only."""
BEFORE_SECONDS: Final = 60.0
"""How long before a code expires the next one is told."""


@dataclass(frozen=True, slots=True)
class ViewerSocket:
    """Where the pages are served, and by which other names."""

    host: str
    port: int
    listener: socket.socket
    allow_hosts: tuple[str, ...] = ()

    @classmethod
    def bind(cls, host: str, port: int, allow_hosts: Iterable[str] = ()) -> "ViewerSocket":
        """Return a place that is listened on, or raise a ValidationError; port 0 is any that is free."""
        listener = bind_tcp(host, port)
        return cls(host, port_of(listener) or 0, listener, tuple(allow_hosts))

    @property
    def is_private(self) -> bool:
        """Whether only this machine can come here."""
        return request_policy.is_loopback(self.host)

    def policy(self) -> request_policy.AccessPolicy:
        """Return who is answered: anybody who knows the way here, since visits are looked up by their cookies."""
        return request_policy.policy_for(
            self.host, self.port, None, allow_hosts=self.allow_hosts, pages=True, many_tokens=True
        )

    def address(self, code: str, way: str = "") -> str:
        """Return where a browser comes in with this code; `way` is which page it then opens."""
        known = find_reachable_address(self.host)
        host = f"[{known}]" if ":" in known else known
        return f"http://{host}:{self.port}{request_policy.PAGE_PATH}#code={code}{way}"


class ViewerServer:
    """A server of pages and of nothing else; `tell` is called with an address whenever there is a new one."""

    def __init__(
        self,
        ledger: Path,
        place: ViewerSocket,
        tell: Callable[[str], object],
        *,
        way: str = "",
        trusts: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.visits: Final = request_policy.Visits(clock=clock)
        self._place = place
        self._policy = place.policy()
        self._tell = tell
        self._way = way
        self._metrics = Metrics()
        self._used = asyncio.Event()
        self._refusals = RefusalLog(LOG)
        self.viewing: Final = ViewerRoutes(
            _open_pool(ledger),
            self.visits,
            self._metrics,
            RequestLimits(),
            offer=ViewerOffer(can_fork=True, trusts=trusts, live=ledger.is_dir()),
            entered=self._used.set,
        )
        self._pages = Starlette(routes=self.viewing.routes(), exception_handlers={HTTPException: _answer_http_error})
        self._pages.router.redirect_slashes = False
        config = make_uvicorn_config(add_headers(self._serve_request), http=SecondaryHttpProtocol, ws="none")
        self._uvicorn = DrainingServer(config, self._stop_viewing)

    async def serve(self) -> None:
        """Serve until told to stop."""
        ready = asyncio.Event()
        self._uvicorn.ready = ready.set
        telling = asyncio.create_task(self._announce_addresses(ready))
        try:
            await self._uvicorn.serve(sockets=[self._place.listener])
        finally:
            telling.cancel()
            with suppress(asyncio.CancelledError):
                await telling
            self.viewing.close()

    def stop(self) -> None:
        """Begin to stop; `serve` returns when it is done."""
        self._uvicorn.should_exit = True

    async def _announce_addresses(self, ready: asyncio.Event) -> None:
        """Tell an address as soon as somebody listens there, and the next one when it is good no more."""
        await ready.wait()
        while True:
            self._used.clear()
            try:
                self._tell(self._place.address(self.visits.code(), self._way))
            # What it is written to was closed, or cannot hold it. The next one may be heard, and those who are in stay.
            except (OSError, ValueError) as problem:
                LOG.error("an address could not be told: %s", problem)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._used.wait(), request_policy.CODE_SECONDS - BEFORE_SECONDS)

    async def _stop_viewing(self) -> None:
        self.viewing.stop()

    async def _serve_request(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        verdict = request_policy.judge_visitor(
            self._policy, self.visits, self._place.port, scope["method"], scope["path"], scope["headers"]
        )
        if verdict.allowed:
            if not request_policy.is_open_page(scope["method"], scope["path"]):
                authenticate(scope)
            await self._pages(dict(scope), receive, send)
            return
        self._metrics.count_refusal(verdict.status)
        note_refusal(scope)
        self._refusals.write(
            "a request was refused by the access checks: %s", verdict.text, extra={"status": verdict.status}
        )
        body = msgspec.json.encode(Problem(verdict.text, verdict.name))
        await Response(body, verdict.status, media_type=JSON)(dict(scope), receive, send)


def find_reachable_address(host: str) -> str:
    """Return a number by which others reach what listens on `host`: all addresses of a machine are none of them."""
    if host.strip("[]") not in WILDCARDS:
        return host.strip("[]")
    family, elsewhere = WILDCARDS[host.strip("[]")]
    # Nothing is sent: the system only says from which of its addresses it would be.
    with socket.socket(family, socket.SOCK_DGRAM) as asking, suppress(OSError):
        asking.connect((elsewhere, 9))
        found: str = asking.getsockname()[0]
        return found
    return "127.0.0.1" if family == socket.AF_INET else "::1"


def run_viewer(server_of: Callable[[], ViewerServer]) -> None:
    """Make a server and serve, on an event loop of its own, until told to stop."""
    raise_open_files_limit()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(server_of().serve())


def _open_pool(ledger: Path) -> ReaderPool:
    """Return who reads the ledger, or raise a ValidationError: there is none."""
    pool = ReaderPool(ledger)
    try:
        pool.open()
    except BaseException:
        pool.close()
        raise
    return pool


async def _answer_http_error(request: Request, problem: Exception) -> Response:
    status = problem.status_code if isinstance(problem, HTTPException) else 500
    message = {404: "there is no such page", 405: "not with this method"}.get(status, "the request is not acceptable")
    return Response(msgspec.json.encode(Problem(message, Code.VALIDATION_ERROR)), status, media_type=JSON)
