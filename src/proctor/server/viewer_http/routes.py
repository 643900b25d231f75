"""The viewer's routes: the page, how a browser comes in, what it reads, and forks.

Rule 1: `access` has judged every request before anything here runs (`access/request_policy.py`).
Rule 2: what reads the ledger runs beside the server (`readers.py`); only forks are on threads of it (`ThreadQueue`).
Rule 3: a request that cannot be read is 400 and reaches nobody, what is not there is 404, what cannot be done is 409; each has
    a code. What goes wrong inside is a number in the log.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import Struct
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from proctor import __version__
from proctor.access.limits import RequestLimits
from proctor.access.request_policy import (
    ENTER_PATH,
    FRONT_PATHS,
    PAGE_PATH,
    STATIC_PATH,
    Visits,
    cookie_name,
    find_cookie,
)
from proctor.errors import ValidationError
from proctor.models.control import Code as Codes
from proctor.models.control import Problem
from proctor.models.operator import Waiting
from proctor.server.net.connections import RefusalLog, note_refusal
from proctor.server.net.http_requests import JSON, parse_body, parse_query, read_body
from proctor.server.net.metrics import Metrics
from proctor.server.runtime.results import RequestError, log_internal_error, make_refusal, refusal_from_error
from proctor.server.viewer_http.endpoints import (
    EVENTS,
    EVENTS_PATH,
    FORK_PATH,
    LEAVE_PATH,
    LINES_PATH,
    READ_ENDPOINTS,
    VISIT_PATH,
    EntryCode,
    ForkOrder,
    NoQuery,
    ReadEndpoint,
    ViewerVisit,
    VisitLeft,
    run_fork,
)
from proctor.server.viewer_http.feed import Feed, FeedListener, Receive, Send
from proctor.server.viewer_http.readers import ReaderAnswer, ReaderPool, ThreadQueue
from proctor.server.viewer_http.responses import INDEX, accepts_gzip, gzip_if_large, read_static_files

LOG: Final = logging.getLogger("proctor.viewer")
MOST_CODE_BYTES: Final = 1024
MOST_PATH: Final = 200
FORKS_AT_ONCE, MOST_FORKS_WAITING = 2, 8
"""Apart from what reads: an environment may take its time, or never come back."""
WRONG_CODE: Final = Problem("this is no code, or it was used already, or it is too old", "WRONG_CODE")
UNREADABLE, UNKNOWN, MISSING, IMPOSSIBLE, FAILED = 400, 401, 404, 409, 500
STATUSES: Final[dict[str, int]] = {
    Codes.TOO_LARGE: 413,
    Codes.UNKNOWN_TYPE: 415,
    Codes.BUSY: 429,
    Codes.SESSION_ERROR: FAILED,
    Codes.SHUTTING_DOWN: 503,
}
Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class ViewerOffer:
    """What the pages of a server are about, and what can be done there."""

    environment: str | None = None
    can_fork: bool = False
    trusts: bool = False
    """Whether a fork may import and run whatever the record names."""
    live: bool = True


class ViewerRoutes:
    """The routes of one server's viewer; `entered` is called when a code was used."""

    def __init__(
        self,
        room: ReaderPool,
        visits: Visits,
        metrics: Metrics,
        limits: RequestLimits,
        *,
        offer: ViewerOffer,
        pending: Callable[[], list[Waiting]] | None = None,
        entered: Callable[[], object] | None = None,
    ) -> None:
        self._forks = ThreadQueue(FORKS_AT_ONCE, MOST_FORKS_WAITING)
        self.feed: Final = Feed(room.whole, room.news, pending)
        self.pool: Final = room
        self._visits = visits
        self._metrics = metrics
        self._limits = limits
        self._offer = offer
        self._can_act = pending is not None
        self._entered = entered
        self._statics = read_static_files()
        self._refusals = RefusalLog(LOG)

    def routes(self) -> list[Route]:
        """Return the routes, as `endpoints.py` describes them."""
        forks = [Route(FORK_PATH, self._guard(self._fork), methods=["POST"])] if self._offer.can_fork else []
        return [
            *(Route(path, self._front) for path in FRONT_PATHS),
            Route(PAGE_PATH, self._shell),
            Route(f"{STATIC_PATH}{{path:path}}", self._static),
            Route(ENTER_PATH, self._guard(self._enter), methods=["POST"]),
            Route(VISIT_PATH, self._guard(self._visit)),
            Route(LEAVE_PATH, self._guard(self._leave), methods=["POST"]),
            Route(LINES_PATH, self._guard(self._lines)),
            *(Route(each.path, self._guard(self._read_route(each))) for each in READ_ENDPOINTS),
            *forks,
            Route(EVENTS_PATH, self._guard(self._events)),
        ]

    def stop(self) -> None:
        """Let everybody who listens go."""
        self.feed.stop()

    def close(self) -> None:
        """Close what was opened, when nobody asks any more."""
        self.pool.close()

    # ------------------------------------------------------------------------------------------------------- the page
    async def _front(self, request: Request) -> Response:
        return RedirectResponse(PAGE_PATH)

    async def _shell(self, request: Request) -> Response:
        return self._file(request, INDEX)

    async def _static(self, request: Request) -> Response:
        path: str = request.path_params["path"]
        return self._refusal(_no_file(), MISSING) if path == INDEX else self._file(request, path)

    def _file(self, request: Request, path: str) -> Response:
        found = self._statics.get(path) if len(path) <= MOST_PATH else None
        return self._refusal(_no_file(), MISSING) if found is None else found.answer(request)

    # -------------------------------------------------------------------------------------------------------- a visit
    async def _enter(self, request: Request) -> Response:
        order = parse_body(EntryCode, await self._body(request, MOST_CODE_BYTES), self._limits.max_depth)
        cookie = self._visits.enter(order.code)
        if cookie is None:
            note_refusal(request.scope)
            self._refusals.write("a code was refused", extra={"status": UNKNOWN, "peer": _peer(request)})
            self._metrics.count_refusal(UNKNOWN)
            return _json(WRONG_CODE, UNKNOWN)
        LOG.info("a browser came in", extra={"peer": _peer(request)})
        # Who comes in is about to read.
        self.pool.begin()
        if self._entered is not None:
            self._entered()
        answer = _json(self._describe_visit(self._visits.csrf(cookie)))
        answer.headers["set-cookie"] = f"{_cookie_name(request)}={cookie}; Path=/; HttpOnly; SameSite=Strict"
        return answer

    async def _visit(self, request: Request) -> Response:
        parse_query(NoQuery, request.query_params.multi_items())
        cookie = self._cookie(request)
        # Whoever came with a credential instead has no visit that could be described, and needs none.
        return self._refusal(_no_visit(), UNKNOWN) if cookie is None else _json(self._describe_visit(None))

    async def _leave(self, request: Request) -> Response:
        await read_body(request, MOST_CODE_BYTES)
        cookie = self._cookie(request)
        left = cookie is not None and self._visits.leave(cookie)
        self.feed.wake()
        answer = _json(VisitLeft(left))
        answer.headers["set-cookie"] = f"{_cookie_name(request)}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0"
        return answer

    def _describe_visit(self, csrf: str | None) -> ViewerVisit:
        offer = self._offer
        return ViewerVisit(csrf, __version__, offer.environment, self._can_act, offer.can_fork, offer.live)

    def _cookie(self, request: Request) -> str | None:
        cookie = find_cookie(_port(request), request.headers.raw)
        return cookie if self._visits.has(cookie) else None

    # -------------------------------------------------------------------------------------------------------- reading
    async def _lines(self, request: Request) -> Response:
        parse_query(NoQuery, request.query_params.multi_items())
        return _build_answer(await self.pool.lines(packs=_packs(request)), JSON)

    def _read_route(self, row: ReadEndpoint) -> Endpoint:
        async def read(request: Request) -> Response:
            query = parse_query(row.asks, request.query_params.multi_items())
            answer = _build_answer(await self.pool.read(row, query, packs=_packs(request)), row.media)
            answer.headers.update(row.headers)
            return answer

        return read

    async def _fork(self, request: Request) -> Response:
        order = parse_body(ForkOrder, await self._body(request, self._limits.max_body_bytes), self._limits.max_depth)
        packs = _packs(request)
        return _build_answer(await self._forks.run(lambda: self._run_fork(order, packs)), JSON)

    def _run_fork(self, order: ForkOrder, packs: bool) -> ReaderAnswer:
        fork = run_fork(self.pool.source, order, trusts=self._offer.trusts)
        return ReaderAnswer(*gzip_if_large(fork, packs))

    async def _events(self, request: Request) -> Response:
        parse_query(NoQuery, request.query_params.multi_items())
        if request.method == "HEAD":
            return Response(media_type=EVENTS)
        cookie = self._cookie(request)
        return _EventStream(self.feed, await self.feed.join(), lambda: cookie is None or self._visits.has(cookie))

    # -------------------------------------------------------------------------------------------------------- inside
    def _guard(self, endpoint: Endpoint) -> Endpoint:
        """Return the endpoint with every reason why there is no answer told as one."""

        async def answer(request: Request) -> Response:
            try:
                return await endpoint(request)
            except ClientDisconnect:
                return Response(status_code=UNREADABLE)
            except RequestError as refusal:
                return self._refusal(refusal.problem, UNREADABLE)
            except ValidationError as problem:
                status = MISSING if request.method != "POST" else IMPOSSIBLE
                return self._refusal(refusal_from_error(problem).problem, status)
            except Exception as problem:  # noqa: BLE001  # an entry: what is wrong inside is logged, and told as a number
                return self._refusal(log_internal_error(problem), FAILED)

        return answer

    def _refusal(self, problem: Problem, otherwise: int) -> Response:
        self._metrics.count_error(problem.code)
        return _json(problem, STATUSES.get(problem.code, otherwise))

    async def _body(self, request: Request, most: int) -> bytes:
        """Return a body that says that it is JSON: what a form can send is none."""
        media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media != JSON:
            raise make_refusal(Codes.UNKNOWN_TYPE, "a body is JSON, and says so", expected=JSON)
        return await read_body(request, most)


class _EventStream(Response):
    """Events for as long as somebody listens."""

    def __init__(self, feed: Feed, listener: FeedListener, still: Callable[[], bool]) -> None:
        super().__init__()
        self._feed = feed
        self._listener = listener
        self._still = still

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        await self._feed.stream(self._listener, receive, send, self._still)


def _packs(request: Request) -> bool:
    return accepts_gzip(request.headers.get("accept-encoding", ""))


def _build_answer(answer: ReaderAnswer, media: str) -> Response:
    headers = {"vary": "accept-encoding"} | ({"content-encoding": "gzip"} if answer.is_packed else {})
    return Response(answer.body, 200, headers, media)


def _no_file() -> Problem:
    return Problem("there is no such file", Codes.VALIDATION_ERROR)


def _no_visit() -> Problem:
    return Problem("there is no visit", "NO_CREDENTIAL")


def _port(request: Request) -> int | None:
    server = request.scope.get("server")
    return None if server is None else server[1]


def _cookie_name(request: Request) -> str:
    return cookie_name(_port(request))


def _peer(request: Request) -> str:
    return "unknown" if request.client is None else request.client.host


def _json(value: Struct, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type=JSON)
