"""What the control plane says over HTTP: health, description, counts, and the operator's side. No reset, no step, no state.

Rule 1: `/openapi.json` describes exactly these routes, those of the operator where there is one, and those of the pages: what is
    described is answered, with the statuses and types that stand there. A test compares the two.
Rule 2: the access checks have let an operator in before anything of the operator's runs (`plane.py`).
Rule 3: a request that cannot be read is 400 (413 if it is too large) and reaches nobody; what cannot be done as things are is
    409, also if the episode or the question that an act names is another one by now. Either has a code and changes nothing. What the judge refuses is an answer like any other.
Rule 4: a wait is bounded, ends when the peer leaves, and ends when the server stops. So many can wait and no more.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from proctor import __version__
from proctor.access.limits import RequestLimits
from proctor.access.request_policy import OPERATOR_LINK_PATH, PAGE_PATH
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
    JudgedRow,
    Link,
    Pending,
    RaiseAlert,
    Withdraw,
)
from proctor.server.control.session_registry import SessionRegistry
from proctor.server.net.http_requests import JSON, parse_body, parse_query, read_body
from proctor.server.net.metrics import Metrics
from proctor.server.runtime.env_adapter import EnvDescription
from proctor.server.runtime.results import RequestFailed, RequestRefused, log_internal_error, make_refusal

if TYPE_CHECKING:
    # Not at run time: a server that governs nothing need not know the machine.
    from proctor.server.governed.governance import Operator

Item = dict[str, Any]
OBJECT: Final[Item] = {"type": "object"}
SECURED: Final[Item] = {"401": {"description": "a valid credential is needed"}}
STATUS: Final[Item] = {"type": "object", "properties": {"status": {"type": "string"}}, "required": ["status"]}
STOPPING: Final = "the server is stopping"
REFERENCE: Final = "#/components/schemas/{name}"
ABOUT: Final = "Sessions are driven over the WebSocket /ws; HTTP carries no reset, step or state."
BEARER: Final[Item] = {"type": "http", "scheme": "bearer"}
OPERATOR: Final[Item] = {"security": [{"operator": []}]}
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
    OperatorQuery("/operator/sessions", "How governed episodes stand.", Governed, lambda to: Governed(to.sessions())),
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
    OperatorAction("/operator/clear", "Lift safe mode.", Clear, lambda to, asked: to.clear(asked, asked.summary)),
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


def make_json_response(value: Any, status: int = 200) -> Response:
    """Return a response whose body is `value` as JSON."""
    return Response(msgspec.json.encode(value), status, media_type=JSON)


class OperatorRoutes:
    """The routes of one server's operator, None where nothing is governed; `code` makes a one-time code for its pages."""

    def __init__(
        self,
        operator: "Operator | None",
        metrics: Metrics,
        limits: RequestLimits,
        *,
        code: Callable[[], str] | None = None,
    ) -> None:
        self.governed: Final = operator is not None
        """Whether there is something to operate."""
        self.links: Final = code is not None
        """Whether there are pages to which a link leads."""
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

    def stop(self) -> None:
        """Let everybody who waits go; from now on nobody waits."""
        self._stopped.set()

    async def _link(self, code: Callable[[], str], request: Request) -> Response:
        async def link(body: bytes) -> Link:
            # The access checks know this Host: it is the name by which the operator reaches us.
            return Link(f"{request.url.scheme}://{request.headers['host']}{PAGE_PATH}#code={code()}")

        return await self._respond(read_body(request, self._limits.max_body_bytes), bytes, link)

    async def _read(self, row: OperatorQuery, operator: "Operator", request: Request) -> Response:
        async def read(nothing: bytes) -> Struct:
            return row.read(operator)

        return await self._respond(None, bytes, read)

    async def _act(self, row: OperatorAction, operator: "Operator", request: Request) -> Response:
        body = read_body(request, self._limits.max_body_bytes)
        return await self._respond(
            body, lambda raw: parse_body(row.asks, raw, self._limits.max_depth), partial(row.do, operator)
        )

    async def _watch(self, operator: "Operator", request: Request) -> Response:
        items = request.query_params.multi_items()
        return await self._respond(
            None, lambda _: parse_query(WatchQuery, items), partial(self._news, operator, request)
        )

    async def _news(self, operator: "Operator", request: Request, query: WatchQuery) -> JudgedPage:
        """Return the rows that there are, or those that come first; a stop is told when all rows have been.

        Who has seen more rows than there are has seen another run of the server, and is told so at once by `last`.
        """
        page = await operator.watch(query.after, 0)
        if query.wait and query.after <= page.last and not (_has_news(page) or self._stopped.is_set()):
            page = await self._wait_for_news(operator, request, query) or await operator.watch(query.after, 0)
        if self._stopped.is_set() and not _has_news(page):
            raise make_refusal(Code.SHUTTING_DOWN, STOPPING)
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
            for task in (watch, *others):
                task.cancel()
            await asyncio.gather(watch, *others, return_exceptions=True)

    async def _respond(
        self, body: Awaitable[bytes] | None, parse: Callable[[bytes], Any], do: Callable[[Any], Awaitable[Struct]]
    ) -> Response:
        """Return what comes of doing what was asked, or what a peer may know of why nothing does."""
        refused = UNREADABLE
        try:
            asked = parse(b"" if body is None else await body)
            refused = IMPOSSIBLE
            return make_json_response(await do(asked))
        except ClientDisconnect:
            return Response(status_code=UNREADABLE)
        except RequestRefused as refusal:
            return self._refusal(refusal.problem, refused)
        except RequestFailed as failure:
            return self._refusal(failure.problem, FAILED)
        except Exception as problem:  # noqa: BLE001  # an entry: what is wrong inside is logged, and told as a number
            return self._refusal(log_internal_error(problem), FAILED)

    def _refusal(self, problem: Problem, otherwise: int) -> Response:
        self._metrics.count_error(problem.code)
        return make_json_response(problem, STATUSES.get(problem.code, otherwise))


def _has_news(page: JudgedPage) -> bool:
    return bool(page.rows or page.missed)


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


@dataclass(frozen=True, slots=True)
class ExtraRoutes:
    """Routes of somebody else, with what the description says of them."""

    routes: Sequence[Route]
    paths: Item
    schemas: Item


def make_no_agents_error(agents: str | None) -> Item:
    """Return what an agent is told that has lost its way: where agents are served, and nothing else."""
    where = "this server listens for none" if agents is None else f"they are served at {agents}, with a grant"
    message = f"this is the control plane, which offers agents nothing: {where}"
    return {"jsonrpc": "2.0", "id": None, "error": {"code": -32601, "message": message}}


def make_http_routes(
    description: EnvDescription,
    sessions: SessionRegistry,
    metrics: Metrics,
    max_body: int,
    agents: str | None = None,
    operating: OperatorRoutes | None = None,
    viewing: ExtraRoutes | None = None,
) -> Starlette:
    """Return the application behind the access checks; `agents` is the address of the agent plane, where there is one."""
    document = make_openapi_document(description, operating, viewing)

    async def health(request: Request) -> Response:
        if sessions.stopping:
            return make_json_response({"status": "stopping"}, 503)
        low = sessions.is_disk_low()
        return make_json_response({"status": "disk_low" if low else "healthy"}, 503 if low else 200)

    async def constant(value: object, request: Request) -> Response:
        return make_json_response(value)

    async def counts(request: Request) -> Response:
        sessions.note()
        return Response(metrics.page(), media_type=CONTENT_TYPE_LATEST)

    async def no_agents(request: Request) -> Response:
        try:
            await read_body(request, max_body)
        except ClientDisconnect:
            return Response(status_code=400)
        except RequestRefused:
            raise HTTPException(413) from None
        return make_json_response(make_no_agents_error(agents))

    pages = Starlette(
        routes=[
            Route("/health", health),
            Route("/metadata", partial(constant, description.metadata)),
            Route("/schema", partial(constant, description.schemas)),
            Route("/openapi.json", partial(constant, document)),
            Route("/metrics", counts),
            Route("/mcp", no_agents, methods=["POST"]),
            *([] if operating is None else operating.routes()),
            *([] if viewing is None else viewing.routes),
        ],
        exception_handlers={HTTPException: _answer_http_error},
    )
    # A redirect would be a route that the description does not know.
    pages.router.redirect_slashes = False
    return pages


async def _answer_http_error(request: Request, problem: Exception) -> Response:
    status = problem.status_code if isinstance(problem, HTTPException) else 500
    headers = problem.headers if isinstance(problem, HTTPException) else None
    texts = {404: "there is no such page", 405: "not with this method", 413: "the body is too large"}
    body = {"error": texts.get(status, "the request is not acceptable")}
    return Response(msgspec.json.encode(body), status, headers, JSON)


def make_openapi_document(
    description: EnvDescription, operating: OperatorRoutes | None = None, viewing: ExtraRoutes | None = None
) -> Item:
    """Return the document; the routes of `operating` and `viewing` are in it, as far as there are any."""
    paths, schemas, security = _describe_pages(), Item(), Item(control=BEARER)
    if operating is not None and (operating.governed or operating.links):
        security["operator"] = BEARER
        paths["/metadata"]["get"]["security"] = [{"control": []}, {"operator": []}]
    if operating is not None and operating.governed:
        for each in OPERATOR_QUERIES:
            paths[each.path] = {"get": {**_answer(each.about, _refer_to_schema(each.says)), **OPERATOR}}
        paths[WATCH_PATH] = {"get": _describe_watch()}
        paths |= {action.path: {"post": _describe_action(action)} for action in OPERATOR_ACTIONS}
        schemas |= _make_schemas()
    if operating is not None and operating.links:
        responses = {**SECURED, "413": _refusal("the body is too large")}
        link = {**_answer("A new address of the pages, good once.", _refer_to_schema(Link), responses), **OPERATOR}
        paths[OPERATOR_LINK_PATH] = {"post": link}
        schemas |= msgspec.json.schema_components([Link, Problem], ref_template=REFERENCE)[1]
    if viewing is not None:
        paths |= viewing.paths
        schemas |= viewing.schemas
    return {
        "openapi": "3.1.0",
        "info": {"title": f"proctor: {description.name}", "version": __version__, "description": ABOUT},
        "components": {"securitySchemes": security, **({"schemas": schemas} if schemas else {})},
        "security": [{"control": []}],
        "paths": paths,
    }


def _describe_pages() -> dict[str, Item]:
    rpc = _answer("For agents there is another socket; this one says so.", OBJECT)
    rpc["requestBody"] = {"content": {JSON: {"schema": OBJECT}}}
    rpc["responses"]["413"] = {"description": "the body is too large"}
    stopping = {"503": _content(STOPPING, STATUS)}
    return {
        "/health": {"get": {**_answer("Whether the server takes sessions.", STATUS, stopping), "security": []}},
        "/metadata": {"get": _answer("Who serves what.", OBJECT)},
        "/schema": {"get": _answer("JSON Schemas of the wire types.", OBJECT)},
        "/openapi.json": {"get": _answer("This document.", OBJECT)},
        "/metrics": {"get": _answer("Counts for Prometheus.", {"type": "string"}, media="text/plain")},
        "/mcp": {"post": rpc},
    }


def _describe_watch() -> Item:
    (query,), parts = msgspec.json.schema_components([WatchQuery])
    parameters = [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in parts[query["$ref"].rpartition("/")[2]]["properties"].items()
    ]
    refusals = {
        "400": _refusal("the query is not acceptable"),
        "429": _refusal("too many wait already"),
        "503": _refusal(STOPPING),
    }
    told = _answer("What was judged after a row; waits for it.", _refer_to_schema(JudgedPage), {**SECURED, **refusals})
    return {**told, "parameters": parameters, **OPERATOR}


def _describe_action(row: OperatorAction) -> Item:
    refusals = {
        "400": _refusal("the body is not acceptable; nothing has changed"),
        "409": _refusal("it cannot be done as things are; nothing has changed"),
        "413": _refusal("the body is too large"),
    }
    body = {"required": True, "content": {JSON: {"schema": _refer_to_schema(row.asks)}}}
    return {**_answer(row.about, _refer_to_schema(Done), {**SECURED, **refusals}), "requestBody": body, **OPERATOR}


def _make_schemas() -> dict[str, Item]:
    kinds = [
        Problem,
        Done,
        JudgedPage,
        JudgedRow,
        *(each.says for each in OPERATOR_QUERIES),
        *(each.asks for each in OPERATOR_ACTIONS),
    ]
    _, schemas = msgspec.json.schema_components(kinds, ref_template=REFERENCE)
    schemas["JudgedPage"]["properties"]["rows"]["items"] = _refer_to_schema(JudgedRow)
    return schemas


def _refer_to_schema(kind: type[msgspec.Struct]) -> Item:
    return {"$ref": REFERENCE.format(name=kind.__name__)}


def _refusal(words: str) -> Item:
    return _content(words, _refer_to_schema(Problem))


def _content(words: str, schema: Item, media: str = JSON) -> Item:
    return {"description": words, "content": {media: {"schema": schema}}}


def _answer(summary: str, schema: Item, extra: Item | None = None, media: str = JSON) -> Item:
    responses = {"200": _content("the answer", schema, media), **(SECURED if extra is None else extra)}
    return {"summary": summary, "responses": responses}
