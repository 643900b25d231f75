"""The judge's rows: both sides get the same bytes, and all of them are accepted."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from typing import Any

import pytest

from bench.judge_anchor import Assembled, event_of, written_out
from bench.judge_memory import judged
from bench.judge_stream import ROUND, authored, conforming, interleaved, mean_size, packets_in, renamed
from bench.measure import Gap
from bench.row import Better, Opener
from bench.rows import judge as rows
from bench.rows.judge import applied, assembled, resident_after, streamed, through, told, untyped
from proctor.episode.judge import Judge
from proctor.episode.transition_table import Event

pytestmark = pytest.mark.slow


def test_packets_have_the_size_that_the_rows_name() -> None:
    assert 1250 <= mean_size(authored()) < 1350
    assert "1.3 kB" in rows.NOTE


def test_an_episode_is_whole_and_conforming() -> None:
    lines = authored()
    judge = conforming(lines)
    (summary,) = judge.summaries()

    assert len(packets_in(lines)) == len(lines) - 1 == ROUND
    assert (summary.outcome, summary.packets, summary.warnings) == ("conforming", ROUND, 0)


def test_an_episode_goes_through_a_verification_and_through_writes() -> None:
    judge = Judge()
    events = [verdict.event for verdict in judge.stream(authored())]

    assert {Event.VERIFY_FIRST, Event.PLAN, Event.READ, Event.ACT, Event.TOKEN, Event.WRITE} <= set(events)
    assert events[-1] is Event.CLOSE


def test_episodes_are_interleaved_line_by_line() -> None:
    lines = interleaved(authored(), 3, first=7)
    names = [json.loads(line)["header"]["correlation_id"] for line in lines[:6]]

    assert names == ["corr_bench-00000007", "corr_bench-00000008", "corr_bench-00000009"] * 2
    assert len(list(conforming(lines).summaries())) == 3


def test_another_name_changes_nothing_else() -> None:
    lines = authored()

    assert [len(line) for line in renamed(lines, 12345678)] == [len(line) for line in lines]
    assert renamed(lines, 0) == lines


def test_a_line_that_is_not_accepted_is_never_measured() -> None:
    with pytest.raises(ValueError, match="FSM"):
        conforming(authored()[3:])


@pytest.mark.parametrize("made", [applied, streamed, told, untyped, assembled])
def test_every_way_to_judge_gives_a_rate(made: Any) -> None:
    with ExitStack() as stack:
        assert through(made, 2)(stack)(0.001) > 0.0


@pytest.mark.parametrize("inlined", [False, True])
def test_the_packages_put_together_accept_what_the_judge_accepts(inlined: bool) -> None:
    judge = Assembled(inlined=inlined)

    assert all(judge.apply(line) for line in interleaved(authored(2), 3))


@pytest.mark.parametrize("inlined", [False, True])
def test_the_packages_put_together_refuse_what_the_table_and_the_schemas_refuse(inlined: bool) -> None:
    from transitions import MachineError

    lines = authored()
    broken = json.loads(lines[0])
    del broken["mcp"]["stakes"]

    assert not Assembled(inlined=inlined).apply(json.dumps(broken).encode())
    with pytest.raises(MachineError):
        Assembled(inlined=inlined).apply(lines[3])


def test_references_are_written_out_in_their_place() -> None:
    schema: dict[str, Any] = {
        "$defs": {"a": {"type": "string"}, "b": {"items": {"$ref": "#/$defs/a"}}},
        "anyOf": [{"$ref": "#/$defs/b"}],
    }

    assert written_out(schema, schema["$defs"]) == {"anyOf": [{"items": {"type": "string"}}]}


@pytest.mark.parametrize(
    ("kind", "payload", "event"),
    [
        ("IntegrityAlertPacket", {"severity": "CRITICAL"}, Event.CRITICAL),
        ("IntegrityAlertPacket", {"severity": "INFO"}, Event.ALERT),
        ("ToolAuthorizationToken", {"revoked": True}, Event.REVOCATION),
        ("QueueUpdatePacket", {}, Event.QUEUE),
    ],
)
def test_the_packages_see_the_same_events(kind: str, payload: dict[str, Any], event: Event) -> None:
    assert event_of(kind, payload) is event


def test_packages_that_are_not_installed_are_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transitions", None)

    with pytest.raises(Gap, match="transitions is not installed"):
        Assembled()


def test_memory_is_read_in_a_fresh_process() -> None:
    opener: Opener = resident_after(2)

    with ExitStack() as stack:
        assert opener(stack)(0.001) > 2**20


def test_what_memory_is_measured_with_is_closed() -> None:
    assert [(summary.outcome, summary.packets) for summary in judged(3).summaries()] == [("conforming", 100)] * 3


def test_every_row_says_how_it_was_isolated_and_recorded() -> None:
    assert {(row.tier, row.durability) for row in rows.ROWS} == {("none", "none")}
    assert all(row.better is Better.LOWER for row in rows.ROWS if "memory" in row.name)
