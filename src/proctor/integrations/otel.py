"""Episodes of a ledger as OpenTelemetry spans: one trace an episode, a span for every row and every tool call.

Rule 1: ids are made from the record (the chain's name, the rows' hashes): the same ledger gives the same trace twice.
Rule 2: a ledger knows when something was put on record, not how long it took. So a row's span has no length; a tool call's
    goes from its first row to its last, the episode's from its reset to its end.
Rule 3: observations, settings and the text of packets stay in the ledger: attributes are for searching and counting.
Rule 4: `otlp_lines` needs no package. `export_spans` hands the spans to any exporter of the SDK, which the extra `otel`
    brings.

    episode proctor/PlumeSearch-v0          the root: environment, seed, steps, reward, outcome, head
    ├── reset                               a row
    ├── tool move                           a call of an agent: its grant, its tool, how many rows
    │   ├── TaskDirectivePacket             a row: verdict, rules
    │   └── step                            a row: step, reward, flags
    └── closed                              a row
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import groupby
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from proctor.errors import ComponentError
from proctor.ledger.export import Progress, ignore_progress, import_extra, report_progress
from proctor.ledger.reader import EpisodeSummary, Ledger, Row
from proctor.models import events
from proctor.narration.events import describe_failure, name_event

EXPORT_NAME: Final = "an export of spans"
SCOPE: Final = "proctor.ledger"
SERVICE: Final = "proctor"
SPANS_PER_BATCH: Final = 512
"""Spans in one call of an exporter, or on one line of OTLP."""
INTERNAL: Final = 1
FAILED: Final = 2
"""OTLP's numbers of a span's kind and of a status that is an error."""

Attribute: TypeAlias = str | bool | int | float | Sequence[str]
Attributes: TypeAlias = Mapping[str, Attribute]


@dataclass(frozen=True, slots=True)
class Span:
    """A span before any library knows of it; times are in nanoseconds since 1970, `error` is empty where none was."""

    name: str
    trace_id: bytes
    span_id: bytes
    parent_id: bytes | None
    start: int
    end: int
    attributes: dict[str, Attribute] = field(default_factory=dict)
    error: str = ""


class Exporter(Protocol):
    """What `opentelemetry.sdk.trace.export.SpanExporter` is."""

    def export(self, spans: Sequence[Any], /) -> Any:
        """Take some spans and say whether that went well."""


def spans_of(episode: EpisodeSummary, rows: Iterable[Row]) -> Iterator[Span]:
    """Yield the spans of one episode; the root comes last, when it is known how the episode ended."""
    trace = sha256(b"trace\0" + episode.chain.encode()).digest()[:16]
    root = sha256(b"episode\0" + episode.chain.encode()).digest()[:8]
    opened: events.SessionOpened | None = None
    start = end = None
    for call, group in groupby(rows, key=_call_key):
        told = list(group)
        if isinstance(told[0].event, events.SessionOpened):
            opened = told[0].event
            continue
        start = _row_time(told[0]) if start is None else start
        end = _row_time(told[-1])
        yield from _tool_call_spans(trace, root, call, told)
    began = _nanoseconds(episode.opened_at) if start is None else start
    attributes = _episode_attributes(episode, opened)
    loss = "the episode is lost" if episode.reason == "lost" else ""
    yield Span(f"episode {episode.environment}", trace, root, None, began, end or began, attributes, loss)


def _tool_call_spans(trace: bytes, root: bytes, call: "_Call | int", rows: Sequence[Row]) -> Iterator[Span]:
    """Yield the spans of the rows of one call, and then the call's; a row that no call made stands alone."""
    if isinstance(call, int):
        yield _row_span(trace, root, rows[0])
        return
    own = sha256(b"call\0" + rows[0].hash).digest()[:8]
    children = [_row_span(trace, own, row) for row in rows]
    yield from children
    refused = next((child.error for child in children if child.error), "")
    attributes: dict[str, Attribute] = {"proctor.grant": call[0], "proctor.tool": call[1], "proctor.rows": len(rows)}
    yield Span(f"tool {call[1]}", trace, own, root, _row_time(rows[0]), _row_time(rows[-1]), attributes, refused)


_Call: TypeAlias = tuple[str, str, int | None]


def _call_key(row: Row) -> _Call | int:
    """Return whose call a row belongs to; its own number, which no other row has, if it is no agent's."""
    event = row.event
    if (
        isinstance(event, events.EpisodeStepped | events.PacketJudged)
        and event.grant is not None
        and event.tool is not None
    ):
        return event.grant, event.tool, event.request_id
    return row.seq


def _row_span(trace: bytes, parent: bytes, row: Row) -> Span:
    event, at = row.event, _row_time(row)
    place: dict[str, Any] = {"proctor.row": row.number, "proctor.seq": row.seq, "proctor.hash": row.hash.hex()}
    said = place | _event_attributes(event)
    kept = {key: value for key, value in said.items() if value is not None}
    return Span(name_event(event), trace, row.hash[:8], parent, at, at, kept, describe_failure(event))


def _row_time(row: Row) -> int:
    return _nanoseconds(row.event.at)


def _nanoseconds(seconds: float) -> int:
    # In two parts: a float has no room for the nanoseconds of this century.
    return int(seconds) * 10**9 + round(seconds % 1 * 10**6) * 1000


def _event_attributes(event: Any) -> dict[str, Any]:
    names = ("principal", "request_id", *_ATTRIBUTES.get(type(event), ()))
    said = {f"proctor.{name}": getattr(event, name) for name in names}
    if isinstance(event, events.PacketJudged):
        said["proctor.verdict"] = "accepted" if event.accepted else "refused"
    return said


_ATTRIBUTES: Final[Mapping[type, tuple[str, ...]]] = {
    events.EpisodeReset: ("epoch", "seed", "episode_id"),
    events.BatchReset: ("epoch", "episode_id"),
    events.EpisodeStepped: ("step", "reward", "raw_reward", "terminated", "truncated", "grant", "tool"),
    events.BatchStepped: ("step",),
    events.PacketJudged: ("step", "kind", "packet_id", "rules", "warnings", "path", "state", "grant", "tool"),
    events.AgentGranted: ("grant", "agent", "tools"),
    events.Failed: ("step", "code", "request", "clause", "incident", "lost"),
    events.EpisodeClosed: ("steps", "reason", "outcome", "state", "obligations"),
}
"""Which fields of an event are attributes of its span, besides who caused it."""
_EPISODE_ATTRIBUTES: Final = (
    "chain",
    "session",
    "epoch",
    "environment",
    "target",
    "episode_id",
    "steps",
    "terminated",
    "truncated",
    "governed",
    "outcome",
    "num_envs",
    "rows",
    "head",
)


def _episode_attributes(episode: EpisodeSummary, opened: events.SessionOpened | None) -> dict[str, Attribute]:
    said: dict[str, Any] = {name: getattr(episode, name) for name in _EPISODE_ATTRIBUTES} | {
        "seed": episode.seed if isinstance(episode.seed, int) else None,
        "reward": episode.total_reward,
        "reason": episode.reason or None,
        "tier": None if opened is None else opened.tier,
        "version": None if opened is None else opened.server,
    }
    return {f"proctor.{name}": value for name, value in said.items() if value is not None}


def otlp_lines(ledger: Ledger, episodes: Iterable[EpisodeSummary], more: Progress = ignore_progress) -> Iterator[bytes]:
    """Yield OTLP JSON, one `TracesData` a line with its end, as collectors' file receivers read it."""
    for spans in _span_batches(ledger, episodes, more):
        scope = {"scope": {"name": SCOPE}, "spans": [_encode_span(span) for span in spans]}
        resource = {"attributes": _encode_attributes({"service.name": SERVICE})}
        yield msgspec.json.encode({"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}) + b"\n"


def _span_batches(ledger: Ledger, episodes: Iterable[EpisodeSummary], more: Progress) -> Iterator[list[Span]]:
    part: list[Span] = []
    for each in episodes:
        for span in spans_of(each, report_progress(ledger.rows(each.chain), more)):
            part.append(span)
            if len(part) == SPANS_PER_BATCH:
                yield part
                part = []
    if part:
        yield part


def _encode_span(span: Span) -> dict[str, Any]:
    return {
        "traceId": span.trace_id.hex(),
        "spanId": span.span_id.hex(),
        "parentSpanId": "" if span.parent_id is None else span.parent_id.hex(),
        "name": span.name,
        "kind": INTERNAL,
        "startTimeUnixNano": str(span.start),
        "endTimeUnixNano": str(span.end),
        "attributes": _encode_attributes(span.attributes),
        "status": {"code": FAILED, "message": span.error} if span.error else {},
    }


def _encode_attributes(attributes: Attributes) -> list[dict[str, Any]]:
    return [{"key": key, "value": _encode_value(value)} for key, value in attributes.items()]


def _encode_value(value: Attribute) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case str():
            return {"stringValue": value}
    return {"arrayValue": {"values": [_encode_value(each) for each in value]}}


def export_spans(ledger: Ledger, chains: Iterable[str | EpisodeSummary], exporter: Exporter) -> int:
    """Hand the spans of these episodes to `exporter`, and return how many there were.

    A chain may be named by any beginning that is unique. An exporter that does not take them is a ComponentError.
    """
    episodes = (ledger.find(each) if isinstance(each, str) else each for each in chains)
    sdk, export, resources, scopes = (
        import_extra(f"opentelemetry.sdk.{name}", EXPORT_NAME, extra="otel")
        for name in ("trace", "trace.export", "resources", "util.instrumentation")
    )
    resource = resources.Resource.create({"service.name": SERVICE})
    scope = scopes.InstrumentationScope(SCOPE)
    taken = export.SpanExportResult.SUCCESS
    written = 0
    for spans in _span_batches(ledger, episodes, ignore_progress):
        said = exporter.export([_make_sdk_span(sdk, span, resource, scope) for span in spans])
        if said is not taken:
            raise ComponentError("the exporter did not take the spans", found=str(said), expected=str(taken))
        written += len(spans)
    return written


def _make_sdk_span(sdk: Any, span: Span, resource: Any, scope: Any) -> Any:
    trace = import_extra("opentelemetry.trace", EXPORT_NAME, extra="otel")
    parent = None if span.parent_id is None else _make_sdk_context(trace, span.trace_id, span.parent_id)
    status = trace.Status(trace.StatusCode.ERROR, span.error) if span.error else trace.Status()
    return sdk.ReadableSpan(
        name=span.name,
        context=_make_sdk_context(trace, span.trace_id, span.span_id),
        parent=parent,
        resource=resource,
        attributes=span.attributes,
        kind=trace.SpanKind.INTERNAL,
        status=status,
        start_time=span.start,
        end_time=span.end,
        instrumentation_scope=scope,
    )


def _make_sdk_context(trace: Any, trace_id: bytes, span_id: bytes) -> Any:
    sampled = trace.TraceFlags(trace.TraceFlags.SAMPLED)
    return trace.SpanContext(int.from_bytes(trace_id), int.from_bytes(span_id), is_remote=False, trace_flags=sampled)
