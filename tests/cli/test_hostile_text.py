"""What a stranger wrote into a ledger or a stream of packets, and what of it reaches a terminal."""

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from rich.console import Console

from proctor.cli import replay
from proctor.cli.main import main
from proctor.cli.output import printable, printable_json
from proctor.models.events import AgentGranted, Event, Failed, PacketJudged, SessionResumed
from tests.cli.recordings import NOON, closed, ended, opened, reset, stepped, written
from tests.cli.streams import violated
from tests.server.commands import harmless

EVIL = "\x1b]0;owned\x07\x1b[8m\x9b31m\x7f\x00\r\n\u202e\u2028\u2029\u200b\\[bold]x[/bold][link=http://evil]y[/link]"
CONTROLS = {chr(code) for code in (*range(32), *range(127, 160), 0x2028, 0x2029, 0x200B, 0x202E)} - {"\n"}


def evil(name: str) -> str:
    return f"{name}{EVIL}"


def said(value: Any) -> Raw:
    return Raw(msgspec.json.encode(value))


def hostile_session(session: str) -> Iterator[Event]:
    """Yield a session that says the worst in every field of text."""
    words = ("environment", "environment_version", "target", "server", "boot", "python", "gymnasium", "numpy")
    fields: dict[str, Any] = {word: evil(word) for word in words}
    yield opened(session, settings={evil("k"): evil("v")}, policy={"name": evil("p")}, **fields)
    yield reset(session, episode_id=evil("id"), metadata=said({"seed": evil("s")}), observation=said(evil("o")))
    yield AgentGranted(session=session, at=NOON, epoch=1, grant=evil("g"), agent=evil("a"), tools=[evil("t")])
    agent: dict[str, Any] = {"principal": "agent", "grant": evil("g"), "tool": evil("t")}
    yield stepped(session, 1, action=evil("action"), observation=said({evil("o"): evil("o")}), **agent)
    yield stepped(session, 2, action={evil("k"): [evil("v")]}, metadata=said({evil("m"): evil("m")}), **agent)
    yield Failed(
        session=session, at=NOON + 2, epoch=1, step=2, code=evil("CODE"), request=evil("request"), principal="agent",
        grant=evil("g"),
    )  # fmt: skip
    yield SessionResumed(
        session=session,
        at=NOON + 3,
        epoch=1,
        step=2,
        boot=evil("b"),
        server=evil("v"),
        principal="system",
        lost=evil("l"),
    )
    yield PacketJudged(
        session=session, at=NOON + 4, epoch=1, step=2, principal="agent", line=said({evil("k"): evil("v")}),
        kind=evil("kind"), packet_id=evil("p"), accepted=False, path=[], rules=[evil("R-1")], pointers=[evil("/x")],
        reason=evil("why"), warnings=[], state=evil("S1"), grant=evil("g"),
    )  # fmt: skip
    yield closed(session, 2, reason=evil("reason"), outcome=evil("outcome"), state=evil("state"))
    yield ended(session)


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("hostile") / "ledger", hostile_session(evil("s")))


@pytest.fixture(scope="module")
def packets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / evil("packets").replace("/", "").replace("\0", "")
    lines = [packet.line() for packet in violated("corr_hostile")]
    worse = [msgspec.json.encode(spoilt(msgspec.json.decode(line), field)) for line in lines for field in (False, True)]
    path.write_bytes(b"\n".join([*lines, *worse, b"\x1b[31m"]))
    return path


def spoilt(value: Any, keys: bool) -> Any:
    """Return a packet in which every text, and perhaps every key, says the worst."""
    if isinstance(value, dict):
        return {evil(key) if keys else key: spoilt(each, keys) for key, each in value.items()}
    if isinstance(value, list):
        return [spoilt(each, keys) for each in value]
    return evil(value) if isinstance(value, str) else value


def calls(ledger: Path, packets: Path, out: Path) -> Iterator[list[str]]:
    chain = f"{evil('s')}.1"
    yield from (["ledger", "list", str(ledger), *more] for more in ([], ["--json"], ["--governed"]))
    yield from (
        ["ledger", "show", str(ledger), chain, *more] for more in ([], ["--json"], ["--each"], ["--rows", EVIL])
    )
    yield ["ledger", "show", str(ledger), evil("none")]
    yield from (
        ["ledger", "verify", str(ledger), *more] for more in ([], ["--json"], ["--head", EVIL], ["--key", EVIL])
    )
    yield ["ledger", "verify", str(ledger), "--head", f"{chain}@2:{'0' * 64}"]
    yield ["ledger", "verify", str(ledger), "--head", f"{chain}@2:{'0' * 64}", "--json"]
    yield ["ledger", "export", str(ledger), "--format", evil("f")]
    yield ["ledger", "bundle", str(ledger), chain, "--out", str(out / "bundle.ledger")]
    yield ["ledger", "prune", str(ledger), chain, "--dry-run"]
    yield ["ledger", "prune", str(ledger), "--before", EVIL]
    for trust in ([], ["--trust"]):
        yield from (["replay", str(ledger), *trust, *more] for more in ([], ["--json"], [chain], [chain, "--at", "1"]))
    yield from (["judge", str(packets), *more] for more in ([], ["--json"], ["--explain"], ["--summary"]))
    yield ["judge", str(packets), "--json", "--explain"]
    yield ["judge", evil("nowhere")]
    yield ["judge", str(packets), "--rules", str(packets)]
    yield from (["diagram", str(packets), *more] for more in ([], ["--rules", str(packets)]))
    yield ["export", str(ledger), chain, "--html", str(out / "page.html")]
    yield ["export", str(ledger), chain, "--fork", "1", "--actions", EVIL, "--html", str(out / "fork.html")]
    yield ["view", evil("nowhere")]
    yield ["run", evil("env")]
    yield ["run", "proctor/PlumeSearch-v0", "--set", EVIL]
    yield ["check", evil("env")]
    yield ["envs", evil("env")]
    yield ["serve", evil("env"), "--ledger", evil("folder")]
    yield ["operator", "list", "--url", EVIL]
    yield [EVIL]


def shown(captured: Any) -> str:
    return str((captured.out + captured.err).decode())


def test_no_command_hands_a_strangers_controls_to_the_terminal(
    ledger: Path,
    packets: Path,
    tmp_path: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PROCTOR_TRACEBACK", "")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)
    leaks: dict[str, list[str]] = {}
    for arguments in calls(ledger, packets, tmp_path):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
        with harmless():
            main([each.replace("\0", "") for each in arguments])
        said_now = shown(capsysbinary.readouterr())
        leaked = sorted(CONTROLS.intersection(said_now))
        assert said_now, arguments
        if leaked:
            leaks[" ".join(map(printable, arguments))] = [
                printable(said_now[max(said_now.index(each) - 40, 0) :][:80]) for each in leaked[:2]
            ]
    assert not leaks


def test_markup_in_a_name_is_shown_as_it_is(
    ledger: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Console(force_terminal=True, width=300, _environ={})
    monkeypatch.setattr(replay, "Console", lambda **_: screen)

    main(["replay", str(ledger)])

    said_now = shown(capsysbinary.readouterr())
    assert "\x1b]8;" not in said_now
    assert "[bold]" in said_now


def test_an_export_to_a_terminal_is_escaped_and_one_to_a_file_is_exact(
    ledger: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["ledger", "export", str(ledger)])
    exact = capsysbinary.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    main(["ledger", "export", str(ledger)])
    escaped = capsysbinary.readouterr().out

    assert "\u202e" in exact.decode()
    assert not CONTROLS.intersection(escaped.decode())
    assert [msgspec.json.decode(line) for line in escaped.splitlines()] == [
        msgspec.json.decode(line) for line in exact.split(b"\n")[:-1]
    ]


def test_json_says_the_same_in_printable_signs() -> None:
    text = msgspec.json.encode({evil("k"): [evil("v"), "\U000e0001"]}) + b"\n"

    assert msgspec.json.decode(printable_json(text)) == msgspec.json.decode(text)
    assert printable_json(text).decode().removesuffix("\n").isprintable()
    assert printable_json(b"{}\n") == b"{}\n"
