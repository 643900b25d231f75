"""What can be read of an episode, as a table (path, query, answer, the function that reads it), and what OpenAPI says of the paths.

Rule 1: each runs in a process beside the server (`readers.py`), and returns the bytes that are sent. What takes long is
    apart from what does not. Forks, which run an environment's code, are on a thread of the server.
Rule 2: what brings the judge, the environments or the page's scripts is imported when it is first asked for.
Rule 3: what is described is answered, with the statuses and types that stand here; tests compare the two.
Rule 4: a request has exactly the fields that are described here, each within its bounds; anything else is refused.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta, Struct

from proctor.access.request_policy import CSRF_HEADER, ENTER_PATH, FRONT_PATHS, PAGE_PATH, STATIC_PATH
from proctor.models.control import Problem
from proctor.server.net.http_requests import JSON
from proctor.viewer import documents

if TYPE_CHECKING:
    from proctor.ledger.reader import Ledger
    from proctor.viewer.catalog import EpisodeCatalog

VISIT_PATH: Final = "/viewer/visit"
LEAVE_PATH: Final = "/viewer/leave"
LINES_PATH: Final = "/viewer/api/lines"
FORK_PATH: Final = "/viewer/api/fork"
EVENTS_PATH: Final = "/viewer/events"
EVENTS: Final = "text/event-stream"
MOST_STEPS: Final = 20_000
ChainName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=300)]
RowNumber: TypeAlias = Annotated[int, Meta(ge=0, le=2**53 - 1)]


class EntryCode(Struct, forbid_unknown_fields=True):
    """The one-time code that an address held."""

    code: Annotated[str, Meta(min_length=1, max_length=256)]


class ViewerVisit(Struct):
    """What a browser that was let in may know of where it is."""

    csrf: str | None
    """Goes with every post, in the header X-Proctor-CSRF. Told once, when the code is traded: a cookie, which other
    programs on this host may come to see, does not bring it back."""
    server: str
    """The version."""
    environment: str | None
    can_act: bool
    """Whether there is an operator's side."""
    can_fork: bool
    live: bool
    """Whether there may be more to come."""


class VisitLeft(Struct):
    """A visit has ended."""

    left: bool = True


class EpisodeLines(Struct):
    """All episodes, the newest first."""

    lines: list[documents.EpisodeLine]
    remarks: list[str] = []
    """What the list leaves out, in sentences."""


class NoQuery(Struct, forbid_unknown_fields=True):
    """Nothing is asked for."""


class ChainQuery(Struct, forbid_unknown_fields=True):
    """An episode."""

    chain: ChainName


class RowQuery(Struct, forbid_unknown_fields=True):
    """A row of an episode."""

    chain: ChainName
    number: RowNumber


class SliceQuery(Struct, forbid_unknown_fields=True):
    """What comes after a row; `thin` covers everything up to the end with at most `most` steps."""

    chain: ChainName
    after: RowNumber = 0
    most: Annotated[int, Meta(ge=1, le=MOST_STEPS)] = 5000
    thin: bool = False


class PairQuery(Struct, forbid_unknown_fields=True):
    """Two episodes."""

    one: ChainName
    other: ChainName


class ForkOrder(Struct, forbid_unknown_fields=True):
    """Drive an episode again up to a step, and from there with other actions."""

    chain: ChainName
    step: RowNumber
    actions: Annotated[list[Any], Meta(max_length=documents.MOST_ACTIONS)]
    """Each as the environment takes it."""


HTML: Final = "text/html; charset=utf-8"
encode: Final = msgspec.json.encode


class LedgerSource:
    """The ledger at a path, opened as what is needed of it."""

    def __init__(self, path: Path, *, live: bool = False) -> None:
        self.path: Final = path
        self._live = live

    @cached_property
    def catalog(self) -> "EpisodeCatalog":
        """Its episodes, of which no row is read twice."""
        from proctor.viewer.catalog import EpisodeCatalog

        return EpisodeCatalog(self.path, live=self._live)

    def ledger(self) -> "AbstractContextManager[Ledger]":
        """Its rows, opened for a block."""
        from proctor.ledger.reader import Ledger

        return Ledger.open(self.path)

    def close(self) -> None:
        """Let go of the files."""
        if "catalog" in self.__dict__:
            self.catalog.close()


# A function's docstring is what OpenAPI says of its endpoint.
def _read_head(source: LedgerSource, query: ChainQuery) -> bytes:
    """What an episode's page needs before its steps."""
    return encode(source.catalog.head(query.chain))


def _read_slice(source: LedgerSource, query: SliceQuery) -> bytes:
    """Steps, packets and notes after a row."""
    return encode(source.catalog.slice(query.chain, after=query.after, most=query.most, thin=query.thin))


def _read_raw(source: LedgerSource, query: RowQuery) -> bytes:
    """A row as it is on record."""
    return source.catalog.raw(query.chain, query.number)


def _read_pixels(source: LedgerSource, query: RowQuery) -> bytes:
    """The picture of a step, where there is one."""
    return source.catalog.pixels(query.chain, query.number)


def _explain(source: LedgerSource, query: RowQuery) -> bytes:
    """A verdict in words."""
    from proctor.viewer.explanations import explain_line

    with source.ledger() as ledger:
        return encode(explain_line(ledger, query.chain, query.number))


def _compare(source: LedgerSource, query: PairQuery) -> bytes:
    """Where two episodes differ first."""
    from proctor.viewer.comparison import compare_episodes

    with source.ledger() as ledger:
        return encode(compare_episodes(ledger, query.one, query.other))


def _read_machine(source: LedgerSource, query: NoQuery) -> bytes:
    """The machine of packets."""
    from proctor.viewer.machine import build_machine

    return encode(build_machine())


def _build_page(source: LedgerSource, query: ChainQuery) -> bytes:
    """An episode as one file that needs no server."""
    from proctor.viewer.single_file import build_page

    with source.ledger() as ledger:
        return build_page(ledger, [query.chain]).encode()


@dataclass(frozen=True, slots=True)
class ReadEndpoint:
    """One thing to read; `says` is the document, None where the answer is no document of ours."""

    path: str
    read: Callable[[LedgerSource, Any], bytes]
    asks: type[Struct]
    says: type[Struct] | None
    media: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    is_long: bool = False
    """Whether it may take seconds, so that nothing quick should wait for it."""


ATTACHED: Final = {"content-disposition": "attachment"}
READ_ENDPOINTS: Final = (
    ReadEndpoint("/viewer/api/head", _read_head, ChainQuery, documents.EpisodeHead),
    ReadEndpoint("/viewer/api/slice", _read_slice, SliceQuery, documents.EpisodeSlice),
    ReadEndpoint("/viewer/api/raw", _read_raw, RowQuery, None),
    ReadEndpoint("/viewer/api/pixels", _read_pixels, RowQuery, None, "image/png"),
    ReadEndpoint("/viewer/api/explanation", _explain, RowQuery, documents.Explanation, is_long=True),
    ReadEndpoint("/viewer/api/difference", _compare, PairQuery, documents.EpisodeDifference, is_long=True),
    ReadEndpoint("/viewer/api/machine", _read_machine, NoQuery, documents.MachineDiagram),
    ReadEndpoint("/viewer/api/page", _build_page, ChainQuery, None, HTML, ATTACHED, is_long=True),
)


def run_fork(source: LedgerSource, order: ForkOrder, *, trusts: bool) -> bytes:
    """Return the fork that was ordered; without trust, only of an environment that is installed and registered here."""
    from proctor.replay.replayer import check_episode
    from proctor.viewer.comparison import fork_episode

    with source.ledger() as ledger:
        if not trusts:
            check_episode(ledger, order.chain, trusting="proctor view --trust")
        return encode(fork_episode(ledger, order.chain, order.step, order.actions))


# ------------------------------------------------------------------------------------------------- the OpenAPI document
Item = dict[str, Any]
REFERENCE: Final = "#/components/schemas/{name}"
TEXT: Final[Item] = {"type": "string"}
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
FORKS: Final = f"Another ending of an episode. With a cookie it needs the header {CSRF_HEADER}."
ENTERS: Final = "Trade a one-time code for a visit, which is a cookie."


def describe_paths(*, can_fork: bool) -> Item:
    """Return what the document says of the paths."""
    place = {"headers": {"location": {"schema": TEXT, "description": PAGE_PATH}}, "description": "it is there"}
    front = {"summary": "The way to the page.", "responses": {"307": place}, "security": []}
    static = _describe("The page's scripts and styles.", TEXT, (404,), media="text/javascript", is_open=True)
    static["responses"]["200"]["content"]["text/css"] = {"schema": TEXT}
    static["parameters"] = [{"name": "path", "in": "path", "required": True, "schema": TEXT}]
    refusals = (400, 401, 403, 409, 413, 415, 429, 500)
    fork = (
        {FORK_PATH: {"post": _describe(FORKS, _refer_to(documents.Fork), refusals, body=ForkOrder)}} if can_fork else {}
    )
    enter = _describe(ENTERS, _refer_to(ViewerVisit), (400, 401, 413, 415, 500), body=EntryCode, is_open=True)
    return {
        **{path: {"get": front} for path in FRONT_PATHS},
        PAGE_PATH: {"get": _describe("The page.", TEXT, (404,), media="text/html", is_open=True)},
        f"{STATIC_PATH}{{path}}": {"get": static},
        ENTER_PATH: {"post": enter},
        VISIT_PATH: {"get": _describe("The visit that the cookie tells of.", _refer_to(ViewerVisit), READ)},
        LEAVE_PATH: {"post": _describe("End the visit.", _refer_to(VisitLeft), (401, 403, 413))},
        LINES_PATH: {"get": _describe("All episodes.", _refer_to(EpisodeLines), READ)},
        **{each.path: {"get": _describe_reading(each)} for each in READ_ENDPOINTS},
        **fork,
        EVENTS_PATH: {"get": _describe("News, as they come.", TEXT, (400, 401, 403, 429, 503), media=EVENTS)},
    }


def describe_schemas() -> Item:
    """Return the schemas to which those refer."""
    says = [each.says for each in READ_ENDPOINTS if each.says is not None]
    _, schemas = msgspec.json.schema_components(
        [Problem, EntryCode, ViewerVisit, VisitLeft, EpisodeLines, ForkOrder, documents.Fork, *says],
        ref_template=REFERENCE,
    )
    return schemas


def _describe_reading(row: ReadEndpoint) -> Item:
    (query,), parts = msgspec.json.schema_components([row.asks])
    described = parts[query["$ref"].rpartition("/")[2]]
    parameters = [
        {"name": name, "in": "query", "required": name in described["required"], "schema": schema}
        for name, schema in described["properties"].items()
    ]
    schema = _refer_to(row.says) if row.says is not None else ({} if row.media == JSON else TEXT)
    return {
        **_describe(row.read.__doc__ or "", schema, READ, media=row.media.partition(";")[0]),
        "parameters": parameters,
    }


def _describe(
    summary: str,
    schema: Item,
    refusals: tuple[int, ...],
    *,
    media: str = JSON,
    body: type[Struct] | None = None,
    is_open: bool = False,
) -> Item:
    responses = {"200": {"description": "the answer", "content": {media: {"schema": schema}}}}
    for status in refusals:
        problem = {JSON: {"schema": _refer_to(Problem)}}
        responses[str(status)] = {"description": REASONS[status], "content": problem}
    told: Item = {"summary": summary, "responses": responses, "security": [] if is_open else [{"operator": []}]}
    if body is not None:
        told["requestBody"] = {"required": True, "content": {JSON: {"schema": _refer_to(body)}}}
    return told


def _refer_to(kind: type[Struct]) -> Item:
    return {"$ref": REFERENCE.format(name=kind.__name__)}
