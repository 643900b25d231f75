"""The viewer's routes: the page and its files, how a browser comes in, what it reads, and forks.

Rule 1: `access` has judged every request before anything here runs (`access/request_policy.py`).
Rule 2: what reads the ledger runs beside the server (`readers.py`); only forks are on threads of it (`ThreadQueue`).
Rule 3: a request that cannot be read is 400 and reaches nobody, what is not there is 404, what cannot be done is 409; each has
    a code. What goes wrong inside is a number in the log.
Rule 4: the security headers are put on by the outermost layer, so that no answer, a refusal neither, leaves without them.
Rule 5: the page's files are read once, from the package. A path is looked up among those; no path of a peer reaches a file system.
Rule 6: the page names its files below a folder that is called after all their bytes. What has that address never changes, so
    that a browser keeps it and asks no more: a page of many modules opens without a request for each.
"""

import gzip
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final

import msgspec
from msgspec import Struct
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Send

from proctor import __version__
from proctor.access import request_policy
from proctor.access.limits import RequestLimits
from proctor.errors import ValidationError
from proctor.models.control import Code as Codes
from proctor.models.control import Problem
from proctor.models.operator import Waiting
from proctor.server.net.connections import RefusalLog, note_refusal
from proctor.server.net.http_requests import JSON, parse_body, parse_query, read_body
from proctor.server.net.metrics import Metrics
from proctor.server.runtime.results import RequestError, log_internal_error, make_refusal, refusal_from_error
from proctor.server.viewer_http import endpoints
from proctor.server.viewer_http.feed import Feed, FeedListener
from proctor.server.viewer_http.readers import ReaderAnswer, ReaderPool, ThreadQueue, gzip_if_large

LOG: Final = logging.getLogger("proctor.viewer")
MOST_CODE_BYTES: Final = 1024
MOST_PATH: Final = 200
FORKS_AT_ONCE, MOST_FORKS_WAITING = 2, 8
"""Apart from what reads: an environment may take its time, or never come back."""
WRONG_CODE: Final = Problem("this is no code, or it was used already, or it is too old", "WRONG_CODE")
NO_VISIT: Final = Problem("there is no visit", "NO_CREDENTIAL")
NO_FILE: Final = Problem("there is no such file", Codes.VALIDATION_ERROR)
UNREADABLE, UNKNOWN, MISSING, IMPOSSIBLE, FAILED = 400, 401, 404, 409, 500
STATUSES: Final[dict[str, int]] = {
    Codes.TOO_LARGE: 413,
    Codes.UNKNOWN_TYPE: 415,
    Codes.BUSY: 429,
    Codes.SESSION_ERROR: FAILED,
    Codes.SHUTTING_DOWN: 503,
}
Endpoint = Callable[[Request], Awaitable[Response]]
Application = Callable[[Any, Receive, Send], Awaitable[None]]

# ---------------------------------------------------------------------------------------------------------- the headers
CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
EVERYWHERE: Final = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


def add_headers(application: Application) -> Application:
    """Return the application with our headers on every answer below the viewer's and the operator's paths."""

    async def serve(scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not request_policy.is_page_path(scope["path"]):
            await application(scope, receive, send)
            return
        # A browser keeps the page's own files, and asks each time whether they are still the same.
        is_public = request_policy.is_open_page(scope["method"], scope["path"]) and scope["method"] != "POST"
        keeping = (b"cache-control", b"no-cache" if is_public else b"no-store")

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = message.get("headers", ())
                # Some answers know by themselves how long they may be kept.
                is_known = any(name == b"cache-control" for name, _ in own)
                message = {**message, "headers": [*own, *EVERYWHERE, *(() if is_known else (keeping,))]}
            await send(message)

        await application(scope, receive, send_with_headers)

    return serve


# -------------------------------------------------------------------------------------------------- the page's own files
INDEX: Final = "index.html"
NAMED: Final = '"static/'
"""How the page names its files."""
FOR_EVER: Final = "max-age=31536000, immutable"
WORTH_PACKING: Final = 1024
MEDIA: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
"""Files of other kinds are not served."""


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file, as it is sent."""

    body: bytes
    packed: bytes
    media: str
    tag: str
    fixed: bool = False
    """Whether its address stands for these bytes."""

    def answer(self, request: Request) -> Response:
        """Return it, unless the browser has it already."""
        headers = {"etag": self.tag, "vary": "accept-encoding", **({"cache-control": FOR_EVER} if self.fixed else {})}
        if request.headers.get("if-none-match") == self.tag:
            return Response(None, 304, headers)
        if len(self.body) >= WORTH_PACKING and accepts_gzip(request.headers.get("accept-encoding", "")):
            return Response(self.packed, 200, {**headers, "content-encoding": "gzip"}, self.media)
        return Response(self.body, 200, headers, self.media)


def accepts_gzip(header: str) -> bool:
    """Return whether an Accept-Encoding header takes gzip."""
    for each in header.lower().split(","):
        name, _, weight = each.partition(";")
        if name.strip() in {"gzip", "*"}:
            return weight.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False


def read_static_files(folder: Traversable | None = None) -> dict[str, StaticFile]:
    """Return all files by their paths below the folder, which is the package's own by default; the page as it is sent."""
    read = dict(_walk_files(files("proctor.viewer").joinpath("static") if folder is None else folder, ""))
    version = sha256("".join(f"{path} {file.tag}\n" for path, file in read.items()).encode()).hexdigest()[:16]
    fixed = {f"{version}/{path}": replace(file, fixed=True) for path, file in read.items() if path != INDEX}
    if INDEX not in read:
        return read | fixed
    # The page names the fixed addresses, and all modules at once: else they are found one behind the other.
    modules = [path for path, file in fixed.items() if file.media == MEDIA[".js"]]
    links = "".join(f'    <link rel="modulepreload" href={NAMED}{path}">\n' for path in modules)
    text = read[INDEX].body.decode().replace(NAMED, f"{NAMED}{version}/")
    page = text.replace("</head>", f"{links.lstrip()}  </head>", 1)
    return {**read, **fixed, INDEX: _build_file(page.encode(), read[INDEX].media)}


def _walk_files(folder: Traversable, above: str) -> Iterator[tuple[str, StaticFile]]:
    for each in sorted(folder.iterdir(), key=lambda entry: entry.name):
        media = MEDIA.get(f".{each.name.rpartition('.')[2]}")
        if each.is_dir():
            yield from _walk_files(each, f"{above}{each.name}/")
        elif media is not None:
            yield f"{above}{each.name}", _build_file(each.read_bytes(), media)


def _build_file(body: bytes, media: str) -> StaticFile:
    # `mtime`: the same bytes each time.
    return StaticFile(body, gzip.compress(body, 6, mtime=0), media, f'"{sha256(body).hexdigest()[:32]}"')


# ------------------------------------------------------------------------------------------------------------ the routes
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
        pool: ReaderPool,
        visits: request_policy.Visits,
        metrics: Metrics,
        limits: RequestLimits,
        *,
        offer: ViewerOffer,
        pending: Callable[[], list[Waiting]] | None = None,
        entered: Callable[[], object] = lambda: None,
    ) -> None:
        self._forks = ThreadQueue(FORKS_AT_ONCE, MOST_FORKS_WAITING)
        self.feed: Final = Feed(pool.whole, pool.news, pending)
        self.pool: Final = pool
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
        forks = [Route(endpoints.FORK_PATH, self._guard(self._fork), methods=["POST"])] if self._offer.can_fork else []
        return [
            *(Route(path, self._front) for path in request_policy.FRONT_PATHS),
            Route(request_policy.PAGE_PATH, self._shell),
            Route(f"{request_policy.STATIC_PATH}{{path:path}}", self._static),
            Route(request_policy.ENTER_PATH, self._guard(self._enter), methods=["POST"]),
            Route(endpoints.VISIT_PATH, self._guard(self._visit)),
            Route(endpoints.LEAVE_PATH, self._guard(self._leave), methods=["POST"]),
            Route(endpoints.LINES_PATH, self._guard(self._lines)),
            *(Route(each.path, self._guard(self._read_route(each))) for each in endpoints.READ_ENDPOINTS),
            *forks,
            Route(endpoints.EVENTS_PATH, self._guard(self._events)),
        ]

    def stop(self) -> None:
        """Let everybody who listens go."""
        self.feed.stop()

    def close(self) -> None:
        """Close what was opened, when nobody asks any more."""
        self.pool.close()

    async def _front(self, request: Request) -> Response:
        return RedirectResponse(request_policy.PAGE_PATH)

    async def _shell(self, request: Request) -> Response:
        return self._statics[INDEX].answer(request)

    async def _static(self, request: Request) -> Response:
        path: str = request.path_params["path"]
        found = self._statics.get(path) if path != INDEX and len(path) <= MOST_PATH else None
        return self._refusal(NO_FILE, MISSING) if found is None else found.answer(request)

    # -------------------------------------------------------------------------------------------------------- a visit
    async def _enter(self, request: Request) -> Response:
        order = parse_body(endpoints.EntryCode, await self._body(request, MOST_CODE_BYTES), self._limits.max_depth)
        cookie = self._visits.enter(order.code)
        peer = "unknown" if request.client is None else request.client.host
        if cookie is None:
            note_refusal(request.scope)
            self._refusals.write("a code was refused", extra={"status": UNKNOWN, "peer": peer})
            self._metrics.count_refusal(UNKNOWN)
            return _json(WRONG_CODE, UNKNOWN)
        LOG.info("a browser came in", extra={"peer": peer})
        # Who comes in is about to read.
        self.pool.begin()
        self._entered()
        answer = _json(self._describe_visit(self._visits.csrf(cookie)))
        answer.headers["set-cookie"] = (
            f"{request_policy.cookie_name(_port(request))}={cookie}; Path=/; HttpOnly; SameSite=Strict"
        )
        return answer

    async def _visit(self, request: Request) -> Response:
        parse_query(endpoints.NoQuery, request.query_params.multi_items())
        # Whoever came with a credential instead has no visit that could be described, and needs none.
        if self._cookie(request) is None:
            return self._refusal(NO_VISIT, UNKNOWN)
        return _json(self._describe_visit(None))

    async def _leave(self, request: Request) -> Response:
        await read_body(request, MOST_CODE_BYTES)
        cookie = self._cookie(request)
        left = cookie is not None and self._visits.leave(cookie)
        self.feed.wake()
        answer = _json(endpoints.VisitLeft(left))
        name = request_policy.cookie_name(_port(request))
        answer.headers["set-cookie"] = f"{name}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0"
        return answer

    def _describe_visit(self, csrf: str | None) -> endpoints.ViewerVisit:
        offer = self._offer
        return endpoints.ViewerVisit(csrf, __version__, offer.environment, self._can_act, offer.can_fork, offer.live)

    def _cookie(self, request: Request) -> str | None:
        cookie = request_policy.find_cookie(_port(request), request.headers.raw)
        return cookie if self._visits.has(cookie) else None

    # -------------------------------------------------------------------------------------------------------- reading
    async def _lines(self, request: Request) -> Response:
        parse_query(endpoints.NoQuery, request.query_params.multi_items())
        return _build_answer(await self.pool.lines(packs=_packs(request)), JSON)

    def _read_route(self, row: endpoints.ReadEndpoint) -> Endpoint:
        async def read(request: Request) -> Response:
            query = parse_query(row.asks, request.query_params.multi_items())
            answer = _build_answer(await self.pool.read(row, query, packs=_packs(request)), row.media)
            answer.headers.update(row.headers)
            return answer

        return read

    async def _fork(self, request: Request) -> Response:
        order = parse_body(
            endpoints.ForkOrder, await self._body(request, self._limits.max_body_bytes), self._limits.max_depth
        )
        packs = _packs(request)

        def run() -> ReaderAnswer:
            return ReaderAnswer(
                *gzip_if_large(endpoints.run_fork(self.pool.source, order, trusts=self._offer.trusts), packs)
            )

        return _build_answer(await self._forks.run(run), JSON)

    async def _events(self, request: Request) -> Response:
        parse_query(endpoints.NoQuery, request.query_params.multi_items())
        if request.method == "HEAD":
            return Response(media_type=endpoints.EVENTS)
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


def _port(request: Request) -> int | None:
    server = request.scope.get("server")
    return None if server is None else server[1]


def _json(value: Struct, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type=JSON)
