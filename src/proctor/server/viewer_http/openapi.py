"""What the OpenAPI document says of the viewer's routes.

Rule: what is described is answered, with the statuses and types that stand here; tests compare the two.
"""

from typing import Any, Final

import msgspec
from msgspec import Struct

from proctor.access.browser_visits import CSRF_HEADER, ENTER_PATH, FRONT_PATHS, PAGE_PATH, STATIC_PATH
from proctor.models.control import Problem
from proctor.server.net.http_requests import JSON
from proctor.server.viewer_http.endpoints import (
    READ_ENDPOINTS,
    EntryCode,
    EpisodeLines,
    ForkOrder,
    ReadEndpoint,
    ViewerVisit,
    VisitLeft,
)
from proctor.server.viewer_http.routes import EVENTS, EVENTS_PATH, FORK_PATH, LEAVE_PATH, LINES_PATH, VISIT_PATH
from proctor.viewer.documents import Fork

Item = dict[str, Any]
REFERENCE: Final = "#/components/schemas/{name}"
TEXT: Final[Item] = {"type": "string"}
OPERATOR: Final[Item] = {"security": [{"operator": []}]}
OPEN: Final[Item] = {"security": []}
REASONS: Final = {
    400: "the request is not acceptable",
    401: "a valid credential is needed",
    403: "this may not come from there",
    404: "there is no such thing",
    409: "it cannot be done",
    413: "the body is too large",
    415: "the body is not of this type",
    429: "too many wait already",
    500: "the server failed; the incident is in its log",
    503: "the server is stopping",
}
READ: Final = (400, 401, 403, 404, 429, 500)


def describe_paths(*, can_fork: bool) -> Item:
    """Return what the document says of the paths."""
    forks: Item = {FORK_PATH: {"post": _fork()}} if can_fork else {}
    return {
        **{path: {"get": {**_front(), **OPEN}} for path in FRONT_PATHS},
        PAGE_PATH: {"get": {**_answer("The page.", TEXT, "text/html", (404,)), **OPEN}},
        f"{STATIC_PATH}{{path}}": {"get": {**_static(), **OPEN}},
        ENTER_PATH: {"post": {**_enter(), **OPEN}},
        VISIT_PATH: {
            "get": {**_answer("The visit that the cookie tells of.", _refer_to(ViewerVisit), JSON, READ), **OPERATOR}
        },
        LEAVE_PATH: {"post": {**_answer("End the visit.", _refer_to(VisitLeft), JSON, (401, 403, 413)), **OPERATOR}},
        LINES_PATH: {"get": {**_answer("All episodes.", _refer_to(EpisodeLines), JSON, READ), **OPERATOR}},
        **{each.path: {"get": _reading(each)} for each in READ_ENDPOINTS},
        **forks,
        EVENTS_PATH: {"get": {**_answer("News, as they come.", TEXT, EVENTS, (400, 401, 403, 429, 503)), **OPERATOR}},
    }


def describe_schemas() -> Item:
    """Return the schemas to which those refer."""
    says = [each.says for each in READ_ENDPOINTS if each.says is not None]
    _, schemas = msgspec.json.schema_components(
        [Problem, EntryCode, ViewerVisit, VisitLeft, EpisodeLines, ForkOrder, Fork, *says], ref_template=REFERENCE
    )
    return schemas


def _front() -> Item:
    location = {"schema": TEXT, "description": PAGE_PATH}
    return {
        "summary": "The way to the page.",
        "responses": {"307": {"description": "it is there", "headers": {"location": location}}},
    }


def _static() -> Item:
    path = {"name": "path", "in": "path", "required": True, "schema": TEXT}
    told = _answer("The page's scripts and styles.", TEXT, "text/javascript", (404,))
    told["responses"]["200"]["content"]["text/css"] = {"schema": TEXT}
    return {**told, "parameters": [path]}


def _enter() -> Item:
    about = "Trade a one-time code for a visit, which is a cookie."
    return {**_answer(about, _refer_to(ViewerVisit), JSON, (400, 401, 413, 415, 500)), "requestBody": _body(EntryCode)}


def _fork() -> Item:
    about = f"Another ending of an episode. With a cookie it needs the header {CSRF_HEADER}."
    refusals = (400, 401, 403, 409, 413, 415, 429, 500)
    return {**_answer(about, _refer_to(Fork), JSON, refusals), "requestBody": _body(ForkOrder), **OPERATOR}


def _reading(row: ReadEndpoint) -> Item:
    (query,), parts = msgspec.json.schema_components([row.asks])
    described = parts[query["$ref"].rpartition("/")[2]]
    parameters = [
        {"name": name, "in": "query", "required": name in described["required"], "schema": schema}
        for name, schema in described["properties"].items()
    ]
    schema = _refer_to(row.says) if row.says is not None else ({} if row.media == JSON else TEXT)
    told = _answer(row.about, schema, row.media.partition(";")[0], READ)
    return {**told, "parameters": parameters, **OPERATOR}


def _answer(summary: str, schema: Item, media: str, refusals: tuple[int, ...]) -> Item:
    refused = {str(status): _content(REASONS[status], _refer_to(Problem), JSON) for status in refusals}
    return {"summary": summary, "responses": {"200": _content("the answer", schema, media), **refused}}


def _content(words: str, schema: Item, media: str) -> Item:
    return {"description": words, "content": {media: {"schema": schema}}}


def _body(kind: type[Struct]) -> Item:
    return {"required": True, "content": {JSON: {"schema": _refer_to(kind)}}}


def _refer_to(kind: type[Struct]) -> Item:
    return {"$ref": REFERENCE.format(name=kind.__name__)}
