"""Spans of an episode: one trace, the same every time, in OTLP and through the SDK's exporters."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from proctor.errors import ComponentError, MissingExtraError
from proctor.integrations.otel import Span, export_spans, otlp_lines, spans_of
from proctor.ledger.reader import Ledger
from tests.cli.recordings import NOON, batch, free, governed, played, written


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    folder = written(tmp_path_factory.mktemp("otel") / "ledger", free(), played(), governed(), batch())
    with Ledger.open(folder) as ledger:
        yield ledger


def spans(ledger: Ledger, chain: str) -> list[Span]:
    return list(spans_of(ledger.find(chain), ledger.rows(chain)))


def test_an_episode_is_one_trace_with_one_root(ledger: Ledger) -> None:
    *rows, root = spans(ledger, "free.1")

    assert {each.trace_id for each in rows} == {root.trace_id}
    assert root.parent_id is None
    assert {each.parent_id for each in rows} == {root.span_id}
    assert (root.start, root.end) == (int(NOON) * 10**9, int(NOON + 10) * 10**9)
    assert root.attributes["proctor.head"] == ledger.find("free.1").head
    assert len({each.span_id for each in (*rows, root)}) == len(rows) + 1


def test_a_step_tells_its_reward_and_flags(ledger: Ledger) -> None:
    step = [each for each in spans(ledger, "free.1") if each.name == "step"][-1]

    assert step.start == step.end == int(NOON) * 10**9 + 750_000_000
    assert {key.removeprefix("proctor."): value for key, value in step.attributes.items()} | {"hash": ""} == {
        "row": step.attributes["proctor.row"],
        "seq": 4,
        "hash": "",
        "principal": "control",
        "step": 3,
        "reward": 1.0,
        "raw_reward": 0.5,
        "terminated": True,
        "truncated": False,
    }


def test_rows_of_one_call_stand_beneath_the_call(ledger: Ledger) -> None:
    found = spans(ledger, "played.1")
    calls = [each for each in found if each.name == "tool move"]

    below = [[each.attributes["proctor.step"] for each in found if each.parent_id == call.span_id] for call in calls]
    assert below == [[1, 2, 3], [4]]
    assert calls[0].attributes == {"proctor.grant": "g1", "proctor.tool": "move", "proctor.rows": 3}
    assert calls[0].end - calls[0].start == 500_000_000


def test_a_refusal_is_an_error_with_its_rules(ledger: Ledger) -> None:
    found = [each for each in spans(ledger, "governed.2") if each.attributes.get("proctor.verdict") == "refused"]

    assert [each.attributes["proctor.rules"] for each in found] == [["GOV-1"], ["FSM", "E1"]]
    assert found[1].error.startswith("refused by FSM, E1: ")
    assert found[1].name == "DecisionPacket"


def test_what_failed_is_an_error(ledger: Ledger) -> None:
    assert [each.error for each in spans(ledger, "played.1") if each.name == "failed"] == ["VALIDATION_ERROR"]


def test_the_same_ledger_gives_the_same_spans(ledger: Ledger) -> None:
    assert spans(ledger, "governed.1") == spans(ledger, "governed.1")


def test_a_line_of_otlp_is_what_a_collector_reads(ledger: Ledger) -> None:
    (line,) = otlp_lines(ledger, [ledger.find("governed.2")])

    said = json.loads(line)
    (resource,) = said["resourceSpans"]
    assert resource["resource"]["attributes"] == [{"key": "service.name", "value": {"stringValue": "proctor"}}]
    found = resource["scopeSpans"][0]["spans"]
    root = found[-1]
    assert (len(root["traceId"]), len(root["spanId"]), root["parentSpanId"]) == (32, 16, "")
    assert isinstance(root["startTimeUnixNano"], str)
    assert {"key": "proctor.governed", "value": {"boolValue": True}} in root["attributes"]
    assert {"key": "proctor.steps", "value": {"intValue": "0"}} in root["attributes"]
    refused = next(each for each in found if each["status"])
    assert refused["status"]["code"] == 2
    assert {"key": "proctor.rules", "value": {"arrayValue": {"values": [{"stringValue": "GOV-1"}]}}} in refused[
        "attributes"
    ]


def test_many_spans_are_many_lines(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.integrations.otel.SPANS_PER_BATCH", 4)
    every = ledger.episodes()

    lines = list(otlp_lines(ledger, every))

    counts = [len(json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"]) for line in lines]
    assert set(counts[:-1]) == {4}
    assert sum(counts) == sum(len(spans(ledger, each.chain)) for each in every)


def test_without_the_extra_otlp_is_there_and_the_sdk_is_named(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)

    assert list(otlp_lines(ledger, [ledger.find("free.1")]))
    with pytest.raises(MissingExtraError, match=r"proctor-rl\[otel\]"):
        export_spans(ledger, ["free.1"], Deaf())


class Deaf:
    """Takes nothing."""

    def export(self, spans: Any) -> Any:
        return import_module("opentelemetry.sdk.trace.export").SpanExportResult.FAILURE


def test_an_exporter_of_the_sdk_takes_the_spans(ledger: Ledger) -> None:
    memory = import_module("opentelemetry.sdk.trace.export.in_memory_span_exporter").InMemorySpanExporter()

    count = export_spans(ledger, ["governed.2", ledger.find("free.1")], memory)

    taken = memory.get_finished_spans()
    assert count == len(taken) == len(spans(ledger, "governed.2")) + len(spans(ledger, "free.1"))
    root = taken[-1]
    assert root.attributes["proctor.chain"] == "free.1"
    assert json.loads(root.to_json())["resource"]["attributes"]["service.name"] == "proctor"
    assert {each.parent.span_id for each in taken if each.parent and each.name == "reset"} <= {
        each.context.span_id for each in taken
    }
    assert [each.status.is_ok for each in taken if each.name == "DecisionPacket"] == [False, True]


def test_an_exporter_that_takes_nothing_is_told(ledger: Ledger) -> None:
    with pytest.raises(ComponentError, match="did not take the spans"):
        export_spans(ledger, ["free.1"], Deaf())
