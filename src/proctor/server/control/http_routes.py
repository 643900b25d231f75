"""What the control plane says over HTTP: health, description and counts. No reset, no step, no state.

Rule: `/openapi.json` describes exactly these routes, those of `operator_routes.py` where there is an operator, and those of the
pages: what is described is answered, with the statuses and types that stand there. A test compares the two.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from proctor import __version__
from proctor.access.browser_visits import OPERATOR_LINK_PATH
from proctor.models.control import Problem
from proctor.models.operator import Done, JudgedPage, JudgedRow, Link
from proctor.server.control.operator_routes import (
    OPERATOR_ACTIONS,
    OPERATOR_QUERIES,
    WATCH_PATH,
    OperatorAction,
    OperatorQuery,
    OperatorRoutes,
    WatchQuery,
)
from proctor.server.control.session_registry import SessionRegistry
from proctor.server.net.http_requests import JSON
from proctor.server.net.metrics import Metrics
from proctor.server.runtime.env_description import ServerDescription

Item = dict[str, Any]
OBJECT: Final[Item] = {"type": "object"}
SECURED: Final[Item] = {"401": {"description": "a valid credential is needed"}}
STATUS: Final[Item] = {"type": "object", "properties": {"status": {"type": "string"}}, "required": ["status"]}
STOPPING: Final = "the server is stopping"
REFERENCE: Final = "#/components/schemas/{name}"
ABOUT: Final = "Sessions are driven over the WebSocket /ws; HTTP carries no reset, step or state."
BEARER: Final[Item] = {"type": "http", "scheme": "bearer"}
OPERATOR: Final[Item] = {"security": [{"operator": []}]}
METHOD_NOT_FOUND: Final = -32601


@dataclass(frozen=True, slots=True)
class ExtraRoutes:
    """Routes of somebody else, with what the description says of them."""

    routes: Sequence[Route]
    paths: Item
    schemas: Item


def make_no_agents_error(agents: str | None) -> dict[str, Any]:
    """Return what an agent is told that has lost its way: where agents are served, and nothing else."""
    where = "this server listens for none" if agents is None else f"they are served at {agents}, with a grant"
    message = f"this is the control plane, which offers agents nothing: {where}"
    return {"jsonrpc": "2.0", "id": None, "error": {"code": METHOD_NOT_FOUND, "message": message}}


def make_http_routes(
    description: ServerDescription,
    sessions: SessionRegistry,
    metrics: Metrics,
    max_body: int,
    agents: str | None = None,
    operating: OperatorRoutes | None = None,
    viewing: ExtraRoutes | None = None,
) -> Starlette:
    """Return the application behind the access checks; `agents` is the address of the agent plane.

    `operating` brings the operator's routes, `viewing` those of the pages, where there are such.
    """
    document = make_openapi_document(
        description,
        governed=operating is not None and operating.governed,
        links=operating is not None and operating.links,
        paths={} if viewing is None else viewing.paths,
        schemas={} if viewing is None else viewing.schemas,
    )

    async def health(request: Request) -> Response:
        if sessions.stopping:
            return _json({"status": "stopping"}, 503)
        return _json({"status": "disk_low"}, 503) if sessions.is_disk_low() else _json({"status": "healthy"})

    async def metadata(request: Request) -> Response:
        return _json(description.metadata)

    async def schema(request: Request) -> Response:
        return _json(description.schemas)

    async def openapi(request: Request) -> Response:
        return _json(document)

    async def counts(request: Request) -> Response:
        sessions.note()
        return Response(metrics.page(), media_type=CONTENT_TYPE_LATEST)

    async def no_agents(request: Request) -> Response:
        try:
            await _discard_body(request, max_body)
        except ClientDisconnect:
            return Response(status_code=400)
        return _json(make_no_agents_error(agents))

    pages = Starlette(
        routes=[
            Route("/health", health),
            Route("/metadata", metadata),
            Route("/schema", schema),
            Route("/openapi.json", openapi),
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


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type=JSON)


async def _answer_http_error(request: Request, problem: Exception) -> Response:
    status = problem.status_code if isinstance(problem, HTTPException) else 500
    headers = problem.headers if isinstance(problem, HTTPException) else None
    texts = {404: "there is no such page", 405: "not with this method", 413: "the body is too large"}
    body = {"error": texts.get(status, "the request is not acceptable")}
    return Response(msgspec.json.encode(body), status, headers, JSON)


async def _discard_body(request: Request, most: int) -> None:
    """Read the body and forget it; more than `most` bytes are refused."""
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > most:
            raise HTTPException(413)


# ------------------------------------------------------------------------------------------------------ its description
def make_openapi_document(
    description: ServerDescription,
    *,
    governed: bool = False,
    links: bool = False,
    paths: Item | None = None,
    schemas: Item | None = None,
) -> Item:
    """Return the document.

    The operator's routes are in it where episodes are governed, the one that leads to the pages where there are some, and
    `paths` and `schemas` of those pages.
    """
    document: Item = {
        "openapi": "3.1.0",
        "info": {"title": f"proctor: {description.metadata.name}", "version": __version__, "description": ABOUT},
        "components": {"securitySchemes": {"control": BEARER}},
        "security": [{"control": []}],
        "paths": _pages(),
    }
    document = _add_operator_paths(document) if governed else document
    return _add_viewer_paths(document, paths or {}, schemas or {}) if links else document


def _pages() -> dict[str, Item]:
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


def _add_operator_paths(document: Item) -> Item:
    """Return the document with what an operator finds, who may also read what the server is."""
    metadata = {**document["paths"]["/metadata"]["get"], "security": [{"control": []}, {"operator": []}]}
    paths = {each.path: {"get": _reading(each)} for each in OPERATOR_QUERIES} | {WATCH_PATH: {"get": _watching()}}
    paths |= {each.path: {"post": _act(each)} for each in OPERATOR_ACTIONS}
    return {
        **document,
        "components": {"securitySchemes": {"control": BEARER, "operator": BEARER}, "schemas": _schemas()},
        "paths": {**document["paths"], "/metadata": {"get": metadata}, **paths},
    }


def _add_viewer_paths(document: Item, paths: Item, schemas: Item) -> Item:
    """Return the document with the way to the pages, and the pages."""
    _, own = msgspec.json.schema_components([Link, Problem], ref_template=REFERENCE)
    known = document["components"].get("schemas", {})
    metadata = {**document["paths"]["/metadata"]["get"], "security": [{"control": []}, {"operator": []}]}
    components = {
        "securitySchemes": {"control": BEARER, "operator": BEARER},
        "schemas": {**known, **own, **schemas},
    }
    found = {**document["paths"], "/metadata": {"get": metadata}, OPERATOR_LINK_PATH: {"post": _link()}, **paths}
    return {**document, "components": components, "paths": found}


def _link() -> Item:
    refusals = {"413": _refusal("the body is too large")}
    return {
        **_answer("A new address of the pages, good once.", _refer_to_schema(Link), {**SECURED, **refusals}),
        **OPERATOR,
    }


def _reading(row: OperatorQuery) -> Item:
    return {**_answer(row.about, _refer_to_schema(row.says)), **OPERATOR}


def _watching() -> Item:
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


def _act(row: OperatorAction) -> Item:
    refusals = {
        "400": _refusal("the body is not acceptable; nothing has changed"),
        "409": _refusal("it cannot be done as things are; nothing has changed"),
        "413": _refusal("the body is too large"),
    }
    body = {"required": True, "content": {JSON: {"schema": _refer_to_schema(row.asks)}}}
    return {**_answer(row.about, _refer_to_schema(Done), {**SECURED, **refusals}), "requestBody": body, **OPERATOR}


def _schemas() -> dict[str, Item]:
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
