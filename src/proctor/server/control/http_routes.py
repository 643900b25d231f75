"""What the control plane says over HTTP: health, description and counts. No reset, no step, no state.

Rule: `/openapi.json` describes exactly these routes (`openapi.py`); a test compares the two.
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

from proctor.server.control.openapi import Item, make_openapi_document
from proctor.server.control.operator_routes import OperatorRoutes
from proctor.server.control.session_registry import SessionRegistry
from proctor.server.net.metrics import Metrics
from proctor.server.runtime.env_description import ServerDescription

JSON: Final = "application/json"
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
