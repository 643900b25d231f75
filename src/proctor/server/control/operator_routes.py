"""The operator's side over HTTP: what waits, how episodes stand, what was judged, the operator's acts, and the way to the pages.

Rule 1: the access checks have let an operator in before anything here runs (`plane.py`); there is no reset and no step among these routes.
Rule 2: a request that cannot be read is 400 (413 if it is too large) and reaches nobody; what cannot be done as things are is
    409, also if the episode or the question that an act names is another one by now. Either has a code and changes nothing. What the judge refuses is an answer like any other.
Rule 3: a wait is bounded, ends when the peer leaves, and ends when the server stops. So many can wait and no more.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from proctor.access.browser_visits import OPERATOR_LINK_PATH, PAGE_PATH
from proctor.access.limits import RequestLimits
from proctor.models.control import Code, Problem
from proctor.models.operator import (
    Answer,
    Approve,
    ApproveBudget,
    Clear,
    Deny,
    Done,
    Governed,
    JudgedPage,
    Link,
    Pending,
    RaiseAlert,
    Withdraw,
)
from proctor.server.net import http_requests
from proctor.server.net.http_requests import JSON, parse_body, read_body
from proctor.server.net.metrics import Metrics
from proctor.server.runtime.results import RequestFailed, RequestRefused, log_internal_error, make_refusal

if TYPE_CHECKING:
    # Not at run time: a server that governs nothing need not know the machine.
    from proctor.server.governed.governance import Operator

WATCH_PATH: Final = "/operator/watch"
MOST_WAITING: Final = 64
"""Operators who may wait for news at once."""
UNREADABLE, IMPOSSIBLE, FAILED = 400, 409, 500
STATUSES: Final[dict[str, int]] = {Code.TOO_LARGE: 413, Code.BUSY: 429, Code.SHUTTING_DOWN: 503}
"""Of refusals that are neither unreadable nor impossible."""


class WatchQuery(Struct, forbid_unknown_fields=True):
    """What was judged after row `after`; if there is nothing yet, the answer waits for it, up to `wait` seconds."""

    after: Annotated[int, Meta(ge=0, le=2**53)] = 0
    wait: Annotated[float, Meta(ge=0, le=60)] = 20.0


@dataclass(frozen=True, slots=True)
class OperatorQuery:
    """A page that an operator reads."""

    path: str
    about: str
    says: type[Struct]
    read: Callable[["Operator"], Struct]


@dataclass(frozen=True, slots=True)
class OperatorAction:
    """Something that an operator does: what it is asked with, and who does it."""

    path: str
    about: str
    asks: type[Struct]
    do: Callable[["Operator", Any], Awaitable[Done]]


OPERATOR_QUERIES: Final = (
    OperatorQuery("/operator/pending", "What waits for an operator.", Pending, lambda to: Pending(to.pending())),
    OperatorQuery(
        "/operator/sessions",
        "How governed episodes stand.",
        Governed,
        lambda to: Governed(to.sessions()),
    ),
)
OPERATOR_ACTIONS: Final = (
    OperatorAction(
        "/operator/answer",
        "Answer an agent's question.",
        Answer,
        lambda to, asked: to.answer(asked, choice=asked.choice, text=asked.text),
    ),
    OperatorAction(
        "/operator/approve",
        "Issue the token that an agent asked for.",
        Approve,
        lambda to, asked: to.approve(asked, uses=asked.uses, life_seconds=asked.life_seconds, text=asked.text),
    ),
    OperatorAction(
        "/operator/deny",
        "Refuse the token that an agent asked for.",
        Deny,
        lambda to, asked: to.deny(asked, text=asked.text),
    ),
    OperatorAction(
        "/operator/alert",
        "State that something is wrong; CRITICAL stops the episode's agents.",
        RaiseAlert,
        lambda to, asked: to.alert(asked, asked.severity, asked.summary),
    ),
    OperatorAction(
        "/operator/clear",
        "Lift safe mode.",
        Clear,
        lambda to, asked: to.clear(asked, asked.summary),
    ),
    OperatorAction(
        "/operator/revoke",
        "Take back a token or a grant.",
        Withdraw,
        lambda to, asked: to.revoke(asked, token_id=asked.token_id, grant=asked.grant),
    ),
    OperatorAction(
        "/operator/budget",
        "Add to what may be spent in an episode.",
        ApproveBudget,
        lambda to, asked: to.approve_budget(
            asked,
            token_budget=asked.token_budget,
            tool_call_budget=asked.tool_call_budget,
            time_budget_seconds=asked.time_budget_seconds,
            note=asked.note,
        ),
    ),
)


class OperatorRoutes:
    """The routes of one server's operator.

    `operator` is None where nothing is governed; `code` makes a one-time code for the pages, None where there are none.
    """

    def __init__(
        self,
        operator: "Operator | None",
        metrics: Metrics,
        limits: RequestLimits,
        *,
        code: Callable[[], str] | None = None,
    ) -> None:
        self._operator = operator
        self._code = code
        self._metrics = metrics
        self._limits = limits
        self._stopped = asyncio.Event()
        self._waiting = 0

    def routes(self) -> list[Route]:
        """Return the routes, as `http_routes.py` describes them."""
        operator, code = self._operator, self._code
        found = []
        if operator is not None:
            found += [Route(each.path, partial(self._read, each, operator)) for each in OPERATOR_QUERIES]
            found += [
                Route(each.path, partial(self._act, each, operator), methods=["POST"]) for each in OPERATOR_ACTIONS
            ]
            found.append(Route(WATCH_PATH, partial(self._watch, operator)))
        if code is not None:
            found.append(Route(OPERATOR_LINK_PATH, partial(self._link, code), methods=["POST"]))
        return found

    @property
    def governed(self) -> bool:
        """Whether there is something to operate."""
        return self._operator is not None

    @property
    def links(self) -> bool:
        """Whether there are pages to which a link leads."""
        return self._code is not None

    def stop(self) -> None:
        """Let everybody who waits go; from now on nobody waits."""
        self._stopped.set()

    async def _link(self, code: Callable[[], str], request: Request) -> Response:
        try:
            await read_body(request, self._limits.max_body_bytes)
        except ClientDisconnect:
            return Response(status_code=UNREADABLE)
        except RequestRefused as refusal:
            return self._refusal(refusal.problem, UNREADABLE)
        # The access checks know this Host: it is the name by which the operator reaches us.
        return _json(Link(f"{request.url.scheme}://{request.headers['host']}{PAGE_PATH}#code={code()}"))

    async def _read(self, row: OperatorQuery, operator: "Operator", request: Request) -> Response:
        async def read() -> Struct:
            return row.read(operator)

        return await self._respond(read())

    async def _act(self, row: OperatorAction, operator: "Operator", request: Request) -> Response:
        try:
            body = await read_body(request, self._limits.max_body_bytes)
            asked = parse_body(row.asks, body, self._limits.max_depth)
        except ClientDisconnect:
            return Response(status_code=UNREADABLE)
        except RequestRefused as refusal:
            return self._refusal(refusal.problem, UNREADABLE)
        return await self._respond(row.do(operator, asked))

    async def _watch(self, operator: "Operator", request: Request) -> Response:
        try:
            query = parse_watch_query(request.query_params.multi_items())
        except RequestRefused as refusal:
            return self._refusal(refusal.problem, UNREADABLE)
        return await self._respond(self._news(operator, request, query))

    async def _news(self, operator: "Operator", request: Request, query: WatchQuery) -> JudgedPage:
        """Return the rows that there are, or those that come first; a stop is told when all rows have been.

        Who has seen more rows than there are has seen another run of the server, and is told so at once by `last`.
        """
        page = await operator.watch(query.after, 0)
        if query.wait and query.after <= page.last and not (_has_news(page) or self._stopped.is_set()):
            page = await self._wait_for_news(operator, request, query) or await operator.watch(query.after, 0)
        if self._stopped.is_set() and not _has_news(page):
            raise make_refusal(Code.SHUTTING_DOWN, "the server is stopping")
        return page

    async def _wait_for_news(self, operator: "Operator", request: Request, query: WatchQuery) -> JudgedPage | None:
        """Return what came while a peer waited; None if it left, or the server stops."""
        if self._waiting >= MOST_WAITING:
            raise make_refusal(Code.BUSY, f"no more than {MOST_WAITING} can wait at once")
        self._waiting += 1
        watch = asyncio.ensure_future(operator.watch(query.after, query.wait))
        others = [asyncio.ensure_future(_wait_for_disconnect(request)), asyncio.ensure_future(self._stopped.wait())]
        try:
            await asyncio.wait([watch, *others], return_when=asyncio.FIRST_COMPLETED)
            return await watch if watch.done() else None
        finally:
            self._waiting -= 1
            await _cancel_all([watch, *others])

    async def _respond(self, work: Awaitable[Struct]) -> Response:
        """Return the answer that comes of it, or what a peer may know of why there is none."""
        try:
            return _json(await work)
        except RequestRefused as refusal:
            return self._refusal(refusal.problem, IMPOSSIBLE)
        except RequestFailed as failure:
            return self._refusal(failure.problem, FAILED)
        except Exception as problem:  # noqa: BLE001  # an entry: what is wrong inside is logged, and told as a number
            return self._refusal(log_internal_error(problem), FAILED)

    def _refusal(self, problem: Problem, otherwise: int) -> Response:
        self._metrics.count_error(problem.code)
        return _json(problem, STATUSES.get(problem.code, otherwise))


def parse_watch_query(items: Iterable[tuple[str, str]]) -> WatchQuery:
    """Return what a query asks for, or refuse it."""
    return http_requests.parse_query(WatchQuery, items)


def _has_news(page: JudgedPage) -> bool:
    return bool(page.rows or page.missed)


async def _wait_for_disconnect(request: Request) -> None:
    """Return when the peer has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _cancel_all(tasks: Iterable["asyncio.Future[Any]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _json(value: Struct, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type=JSON)
