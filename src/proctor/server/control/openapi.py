"""The OpenAPI document: the routes of `http_routes.py`, those of `operator_routes.py` where there is an operator, and those of the pages.

Rule: what is described is answered, with the statuses and types that stand here, and nothing else is; tests compare the two.
"""

from typing import Any, Final

import msgspec

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
    WatchQuery,
)
from proctor.server.net.http_requests import JSON
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
