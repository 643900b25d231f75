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

from proctor.server.control.description import Description
from proctor.server.control.openapi import Item, openapi_document
from proctor.server.control.operating import Operating
from proctor.server.control.sessions import Sessions
from proctor.server.metrics import Metrics

JSON: Final = "application/json"
METHOD_NOT_FOUND: Final = -32601


@dataclass(frozen=True, slots=True)
class Described:
    """Routes of somebody else, with what the description says of them."""

    routes: Sequence[Route]
    paths: Item
    schemas: Item


def no_agents_here(agents: str | None) -> dict[str, Any]:
    """Return what an agent is told that has lost its way: where agents are served, and nothing else."""
    where = "this server listens for none" if agents is None else f"they are served at {agents}, with a grant"
    message = f"this is the control plane, which offers agents nothing: {where}"
    return {"jsonrpc": "2.0", "id": None, "error": {"code": METHOD_NOT_FOUND, "message": message}}


def http_routes(
    description: Description,
    sessions: Sessions,
    metrics: Metrics,
    max_body: int,
    agents: str | None = None,
    operating: Operating | None = None,
    viewing: Described | None = None,
) -> Starlette:
    """Return the application behind the door's checks; `agents` is the address of the agent plane.

    `operating` brings the operator's routes, `viewing` those of the pages, where there are such.
    """
    document = openapi_document(
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
            await _bounded_body(request, max_body)
        except ClientDisconnect:
            return Response(status_code=400)
        return _json(no_agents_here(agents))

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
        exception_handlers={HTTPException: _refused},
    )
    # A redirect would be a route that the description does not know.
    pages.router.redirect_slashes = False
    return pages


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type=JSON)


async def _refused(request: Request, problem: Exception) -> Response:
    status = problem.status_code if isinstance(problem, HTTPException) else 500
    headers = problem.headers if isinstance(problem, HTTPException) else None
    texts = {404: "there is no such page", 405: "not with this method", 413: "the body is too large"}
    body = {"error": texts.get(status, "the request is not acceptable")}
    return Response(msgspec.json.encode(body), status, headers, JSON)


async def _bounded_body(request: Request, most: int) -> None:
    """Read the body and forget it; more than `most` bytes are refused."""
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > most:
            raise HTTPException(413)
