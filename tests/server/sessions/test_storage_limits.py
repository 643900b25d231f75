"""What is too much for the record ends one episode with a code; below the floor no session is opened, and all ends are sealed."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from bench.attacks.disk_floods import (
    DiskFloodReport,
    FloodSession,
    flood_as_agent,
    flood_with_noise,
    folder_bytes,
    main,
    open_session,
)
from proctor.errors import RecordLimitError
from proctor.ledger.reader import Ledger
from proctor.ledger.storage_limits import StorageLimits
from proctor.ledger.verify import verify
from proctor.models.events import EpisodeClosed, EpisodeStepped, Event, Failed, PacketJudged, SessionOpened
from proctor.server.agents.mcp_messages import ERROR_KEY
from proctor.server.sessions.recorders import JsonlRecorder, Torn, read_events
from tests.ledger.session_events import closed, failure, left, opened, reset, small_disk, step
from tests.server.live_server import Served, Session, Talk, serving
from tests.server.restarts import ADDING

NOISE = "bench.attacks.disk_floods:Noise"
BREAKS = -99
"""What nobody can add in ADDING."""
SMALL = {"action": 1000}
SECONDS = 120.0
"""Every flood ends by itself long before."""
KIB = 2**10
MIB = 2**20
TOO_LARGE = {"max_step_bytes": 64 * KIB}


@pytest.fixture(params=["ledger", "record"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Return the setting of a server that keeps a ledger, or a file."""
    return {request.param: tmp_path / "kept"}


def events_in(kept: dict[str, Any]) -> list[Event]:
    """Return all events of the first session's episodes in the order of the record."""
    if "record" in kept:
        return [event for event in read_events(kept["record"]) if not isinstance(event, Torn)]
    assert verify(kept["ledger"]).ok
    with Ledger.open(kept["ledger"]) as ledger:
        return [row.event for episode in ledger.episodes() for row in ledger.rows(episode.chain)]  # type: ignore[misc]


def codes(events: list[Event]) -> list[str]:
    return [event.code for event in events if isinstance(event, Failed) and event.lost]


def step_codes(session: Session, action: dict[str, Any], count: int) -> list[str]:
    replies = [session.ask("step", action) for _ in range(count)]
    return [reply["data"].get("code", "") if reply["type"] == "error" else "" for reply in replies]


def test_an_observation_that_is_too_large_ends_its_episode_and_no_other(kept: dict[str, Any]) -> None:
    with serving(NOISE, storage=TOO_LARGE, **kept) as served, Talk(served, greet=True) as talk:
        one, other = Session(talk), Session(talk)
        for session in (one, other):
            session.ask("reset", {"seed": 1})
        fine = step_codes(one, {"action": 60_000}, 1)
        large = one.ask("step", {"action": 70_000})["data"]
        after = one.ask("step", SMALL)["data"]
        others = step_codes(other, SMALL, 2)
        again = one.ask("reset", {"seed": 1})["type"]
        last = step_codes(one, SMALL, 1)
        for session in (one, other):
            session.ask("close")

    assert (fine, others, again, last) == ([""], ["", ""], "observation", [""])
    assert (large["code"], large["lost"]) == ("RECORD_TOO_LARGE", True)
    assert "max_step_bytes" in large["expected"]
    assert (after["code"], after["lost"]) == ("EPISODE_LOST", True)
    events = events_in(kept)
    assert codes(events) == ["RECORD_TOO_LARGE", "EPISODE_LOST"]
    assert [event.step for event in events if isinstance(event, EpisodeStepped) and event.session == one.name] == [1, 1]
    ends = [event.reason for event in events if isinstance(event, EpisodeClosed) and event.session == one.name]
    assert ends == ["lost", "closed"]


def test_an_action_that_is_too_large_is_not_repeated_on_record(tmp_path: Path) -> None:
    with serving(NOISE, storage=TOO_LARGE, ledger=tmp_path) as served, Talk(served, greet=True) as talk:
        session = Session(talk)
        session.ask("reset", {"seed": 1})
        blanks = " " * 70_000
        talk.socket.send(f'{{"type":"step","id":2,"session":"{session.name}","epoch":1,"data":{{"action":{blanks}8}}}}')
        reply = talk.receive()["data"]
        session.last_id += 1
        session.ask("close")

    assert reply["code"] == "RECORD_TOO_LARGE"
    (lost,) = [event for event in events_in({"ledger": tmp_path}) if isinstance(event, Failed)]
    assert bytes(lost.action) == b"null"


def test_noise_is_not_stored_beyond_the_budgets(tmp_path: Path) -> None:
    limits = {"max_step_bytes": MIB, "max_episode_bytes": MIB}
    with serving(NOISE, storage=limits, ledger=tmp_path) as served:
        with open_session(served.ws_url) as session:
            flood = flood_with_noise(session, SECONDS, 100_000)
        with open_session(served.ws_url) as session:
            large = flood_with_noise(session, SECONDS, 29 * MIB)

    assert (flood.code, large.code, large.calls) == ("EPISODE_FULL", "RECORD_TOO_LARGE", 1)
    assert folder_bytes(tmp_path) < 4 * MIB
    assert verify(tmp_path).ok


def test_an_episode_that_is_full_ends_and_the_next_goes_on(kept: dict[str, Any]) -> None:
    with serving(NOISE, storage={"max_episode_bytes": 100_000}, **kept) as served, Talk(served, greet=True) as talk:
        one, other = Session(talk), Session(talk)
        for session in (one, other):
            session.ask("reset", {"seed": 1})
        first = step_codes(one, {"action": 10_000}, 40)
        full = one.ask("step", SMALL)["data"]
        others = step_codes(other, {"action": 10_000}, 2)
        one.ask("reset", {"seed": 1})
        again = step_codes(one, {"action": 10_000}, 2)
        for session in (one, other):
            session.ask("close")

    stored = first.index("EPISODE_FULL")
    assert 5 < stored < 30
    assert set(first[stored + 1 :]) == {"EPISODE_LOST"}
    assert "as much on record as it may" in full["message"]
    assert (others, again) == (["", ""], ["", ""])
    events = events_in(kept)
    assert codes(events) == ["EPISODE_FULL"]
    kept_steps = [event for event in events if isinstance(event, EpisodeStepped) and event.session == one.name]
    assert [event.step for event in kept_steps] == [*range(1, stored + 1), 1, 2]


def test_requests_that_are_refused_fill_no_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with serving(storage={"max_episode_bytes": 20_000}, ledger=tmp_path) as served, Talk(served, greet=True) as talk:
        session = Session(talk)
        refused = step_codes(session, {"action": 7}, 300)

    with Ledger.open(tmp_path) as ledger:
        stored = sum(isinstance(row.event, Failed) for row in ledger.all_rows())
    assert set(refused) <= {"STATE_ERROR", "VALIDATION_ERROR"}
    assert 0 < stored < 100
    assert sum("is not put on record" in line for line in caplog.messages) == 1


@contextmanager
def low_disk(served: Served) -> Iterator[None]:
    """Leave no space on the disk, as far as a server can tell, until the block ends."""
    space = served.server.space
    assert space is not None
    usage, space._usage = space._usage, lambda _: (2**40, 2**40, 0)
    served.on_loop(space.look)
    try:
        yield
    finally:
        space._usage = usage
        served.on_loop(space.look)


def test_below_the_floor_no_session_is_opened_and_those_that_run_end_on_record(kept: dict[str, Any]) -> None:
    with serving(storage={"min_free_bytes": 1}, **kept) as served, Talk(served, greet=True) as talk:
        session, idle = Session(talk), Session(talk)
        session.ask("reset", {"seed": 1})
        idle.ask("reset", {"seed": 1})
        with low_disk(served):
            health = httpx.get(f"{served.url}/health", timeout=60.0)
            metrics = httpx.get(f"{served.url}/metrics", timeout=60.0).text
            refused = talk.ask("open", {}, id=9)["data"]
            lost = session.ask("step", {"action": 1})["data"]
            begun = [session.ask("reset", {"seed": 1})["data"]["code"] for _ in range(5)]
            session.ask("close")
            idle.ask("close")
        healthy = httpx.get(f"{served.url}/health", timeout=60.0)
        after = Session(talk)
        again = after.ask("reset", {"seed": 1})["type"]
        after.ask("close")

    assert (health.status_code, health.json()) == (503, {"status": "disk_low"})
    assert "proctor_disk_low 1.0" in metrics
    assert (refused["code"], "lost" in refused) == ("DISK_LOW", False)
    assert (lost["code"], lost["lost"]) == ("DISK_LOW", True)
    assert begun == ["DISK_LOW"] * 5
    assert (healthy.status_code, again) == (200, "observation")
    events = events_in(kept)
    assert codes(events) == ["DISK_LOW"]
    reasons = [event.reason for event in events if isinstance(event, EpisodeClosed)]
    assert sorted(reasons) == ["closed", "closed", "lost"]


@pytest.mark.parametrize("why", ["room", "disk", "step"])
def test_a_failure_is_recorded_without_an_action_for_which_there_is_no_room(why: str, kept: dict[str, Any]) -> None:
    action = f'{{"by":{" " * 70_000}{BREAKS}}}'
    storage = {"min_free_bytes": 1, **(TOO_LARGE if why == "step" else {})}
    with serving(ADDING, storage=storage, **kept) as served, Talk(served, greet=True) as talk:
        session = Session(talk)
        session.ask("reset", {"seed": 1})
        with low_disk(served) if why == "disk" else nullcontext():
            talk.socket.send(f'{{"type":"step","id":2,"session":"{session.name}","epoch":1,"data":{action}}}')
            reply = talk.receive()["data"]
            session.last_id += 1
            session.ask("close")

    assert (reply["code"], reply["lost"]) == ("EXECUTION_ERROR", True)
    events = events_in(kept)
    (lost,) = [event for event in events if isinstance(event, Failed)]
    assert (lost.code, lost.request, lost.request_id, lost.lost) == ("EXECUTION_ERROR", "step", 2, True)
    assert bytes(lost.action).decode() == (action if why == "room" else "null")
    assert [event.reason for event in events if isinstance(event, EpisodeClosed)] == ["lost"]


def test_without_hello_a_session_is_refused_below_the_floor_as_well(tmp_path: Path) -> None:
    with serving(ledger=tmp_path) as served, low_disk(served), Talk(served) as talk:
        reply = talk.ask("reset", {"seed": 1})

    assert reply["data"]["code"] == "DISK_LOW"
    assert verify(tmp_path).ok
    with Ledger.open(tmp_path) as ledger:
        assert not [row for row in ledger.all_rows() if isinstance(row.event, SessionOpened | Failed)]


def test_a_server_that_keeps_nothing_looks_at_no_disk() -> None:
    with serving() as served:
        assert served.server.space is None
        assert httpx.get(f"{served.url}/health", timeout=60.0).status_code == 200
        assert "proctor_disk_low 0.0" in httpx.get(f"{served.url}/metrics", timeout=60.0).text


@pytest.mark.system
def test_a_real_disk_is_not_filled_by_noise_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    with small_disk(tmp_path) as disk:
        with serving(NOISE, ledger=disk, storage={"min_free_bytes": 6 * MIB}) as served:
            with open_session(served.ws_url) as session:
                report = flood_with_noise(session, SECONDS, 100_000)
            with Talk(served, greet=True) as talk:
                refused = talk.ask("open", {}, id=1)["data"]
        free = shutil.disk_usage(disk).free
        events = events_in({"ledger": disk})

    assert (report.code, refused["code"]) == ("DISK_LOW", "DISK_LOW")
    assert report.calls > 20
    assert free > 0
    assert [event.step for event in events if isinstance(event, EpisodeStepped)] == list(range(1, report.calls))
    assert codes(events) == ["DISK_LOW"]


def test_the_attack_tells_a_program_what_became_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(NOISE, ledger=tmp_path, storage=TOO_LARGE) as served:
        main(["noise", "--url", served.ws_url, "--ledger", str(tmp_path), "--bytes", "70000"])

    report = json.loads(capsys.readouterr().out)
    assert (report["calls"], report["code"], report["sent_bytes"]) == (1, "RECORD_TOO_LARGE", 70_000)
    assert 0 < report["ledger_bytes"] < MIB


AGENTS = {
    "beliefs": {"target": "proctor/PlumeSearch-v0", "governed": "open"},
    "calls": {"target": "bench.control_env:quick"},
}
"""What is served to agents that flood."""


@contextmanager
def agent_flooding(kind: str, folder: Path, **storage: int) -> Iterator[tuple[Served, FloodSession, dict[str, Any]]]:
    """Serve what a flood of agents needs; yield the server, a session, and the grant of an agent in it."""
    settings: dict[str, Any] = {**AGENTS[kind], "agent_port": 0, "ledger": folder, "storage": storage}
    with serving(**settings) as served, open_session(served.ws_url) as session:
        yield served, session, session.ask("reset", {"seed": 1, "grant": {}})["data"]["grant"]


def flood_until_lost(kind: str, grant: dict[str, Any]) -> DiskFloodReport:
    return asyncio.run(flood_as_agent(kind, grant["address"], grant["token"], SECONDS, 60_000))


@pytest.mark.parametrize("kind", AGENTS)
def test_an_agent_that_states_as_much_as_it_can_fills_no_disk(kind: str, tmp_path: Path) -> None:
    with agent_flooding(kind, tmp_path, max_episode_bytes=2 * MIB) as (_, session, grant):
        report = flood_until_lost(kind, grant)
        end = session.ask("wait_end", {"wait_seconds": 0}, epoch=1)["data"]

    assert report.code in ("EPISODE_FULL", "EPISODE_LOST")
    assert (end["over"], end["lost"]) == (True, True)
    assert folder_bytes(tmp_path) < 8 * MIB
    events = events_in({"ledger": tmp_path})
    assert codes(events) == ["EPISODE_FULL"]
    assert sum(map(is_of_agent, events)) >= report.calls - report.refused


def is_of_agent(event: Event) -> bool:
    """Return whether an event says that an agent's call was carried out."""
    if isinstance(event, PacketJudged):
        return event.accepted and event.tool == "believe"
    return isinstance(event, EpisodeStepped) and event.grant is not None


@pytest.mark.parametrize("kind", AGENTS)
def test_below_the_floor_an_agent_is_told_so_and_its_episode_ends_on_record(kind: str, tmp_path: Path) -> None:
    with agent_flooding(kind, tmp_path, min_free_bytes=1) as (served, session, grant), low_disk(served):
        report = flood_until_lost(kind, grant)
        session.ask("close", {})

    assert (report.calls, report.code) == (1, "DISK_LOW")
    events = events_in({"ledger": tmp_path})
    assert codes(events) == ["DISK_LOW"]
    assert [event.reason for event in events if isinstance(event, EpisodeClosed)] == ["lost"]


def test_refused_calls_of_an_agent_fill_no_disk(tmp_path: Path) -> None:
    async def call_wrongly(grant: dict[str, Any]) -> list[str]:
        headers = {"Authorization": f"Bearer {grant['token']}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=SECONDS) as http,
            Client(streamable_http_client(grant["address"], http_client=http)) as client,
        ):
            answers = [await client.call_tool("act", {"wrong": number}) for number in range(300)]
        return [(answer.meta or {})[ERROR_KEY]["code"] for answer in answers]

    with agent_flooding("calls", tmp_path, max_episode_bytes=20_000) as (_, _session, grant):
        refused = asyncio.run(call_wrongly(grant))

    assert set(refused) == {"VALIDATION_ERROR"}
    assert sum(isinstance(event, Failed) for event in events_in({"ledger": tmp_path})) < 150


def test_a_file_counts_its_lines_and_says_how_sessions_end(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    recorder = JsonlRecorder(path, limits=StorageLimits(step_bytes=4000, episode_bytes=10_000))
    recorder.record(opened())
    recorder.record(reset())

    with pytest.raises(RecordLimitError, match="max_step_bytes"):
        recorder.record(step(tool="x" * 5000))
    for number in range(1, 4):
        recorder.record(step(number=number, tool="x" * 3000))
    with pytest.raises(RecordLimitError, match="max_episode_bytes"):
        recorder.record(step(number=5))
    last: list[Event] = [failure(epoch=1, lost=True), closed(reason="lost"), reset(epoch=2), step(epoch=2), left()]
    for event in last:
        recorder.record(event)
    recorder.close()

    assert list(read_events(path))[-5:] == last
    assert recorder._budget._stored == {}
