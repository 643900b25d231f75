"""`proctor ledger`: lists, tells, verifies, exports, hands over and removes what is on record."""

import io
import json
import os
import pty
import re
import sqlite3
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from proctor.cli import terminal as progress
from proctor.cli.options import load_signing_key, parse_public_key
from proctor.errors import ValidationError
from proctor.ledger.reader import Ledger
from tests.cli.recordings import NOON, SEED, SIGNER, batch, closed, free, governed, opened, played, reset, written
from tests.cli.said import Run, assert_mistake
from tests.ledger import session_events

PUBLIC = SIGNER.public.hex()
ANSI = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def run(run_command: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run `proctor ledger` in this process, with a state folder of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PROCTOR_TRACEBACK", "")
    monkeypatch.delenv("PROCTOR_LEDGER_KEY", raising=False)
    return partial(run_command, "ledger")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of two workers; nobody changes it."""
    path = tmp_path_factory.mktemp("ledger") / "ledger"
    written(path, free(), played(), governed())
    return written(path, batch(), worker=1, boot="boot1")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A ledger that may be changed."""
    return written(tmp_path / "own", free(), governed(), played())


# ----------------------------------------------------------------------------------------------------------------- list
def test_episodes_of_all_workers_are_listed(run: Run, folder: Path) -> None:
    said = run("list", folder)

    lines = said.out.splitlines()
    assert said.code == 0
    assert lines[0].split() == ["episode", "environment", "began", "took", "steps", "reward", "end", "judged"]
    assert {line.split()[0] for line in lines[1:-1]} == {"free.1", "played.1", "governed.1", "governed.2", "batch.1"}
    assert "terminated" in next(line for line in lines if line.startswith("free.1"))
    assert "proctor/PlumeSearch-v0 x2" in next(line for line in lines if line.startswith("batch.1"))
    assert lines[-1] == "5 episodes, 1 open, 8 steps"


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (["--open"], {"played.1"}),
        (["--governed"], {"governed.1", "governed.2"}),
        (["--environment", "PLUME", "--open", "--governed"], set()),
        (["--environment", "popper"], set()),
    ],
)
def test_episodes_can_be_filtered(run: Run, folder: Path, filters: list[str], found: set[str]) -> None:
    assert {each["chain"] for each in run("list", folder, "--json", *filters).objects} == found


def test_an_episode_as_json_has_all_of_its_facts(run: Run, folder: Path) -> None:
    first = next(each for each in run("list", folder, "--json").objects if each["chain"] == "free.1")

    assert (first["steps"], first["total_reward"], first["end"], first["seed"]) == (3, 2.0, "terminated", 7)
    assert (first["opened_at"], first["closed_at"]) == (NOON, NOON + 10)
    assert re.fullmatch(r"free\.1@6:[0-9a-f]{64}", first["head"])
    assert first["file"].endswith("worker-0.ledger")


@pytest.mark.parametrize("command", ["list", "verify", "export"])
def test_a_ledger_that_is_not_there_is_one_line(run: Run, tmp_path: Path, command: str) -> None:
    assert_mistake(run(command, tmp_path / "nowhere"), "there is no ledger")


def test_a_file_that_is_no_ledger_is_one_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "letter.ledger").write_text("Dear Sir or Madam")

    assert run("list", tmp_path / "letter.ledger").code == 2


def test_a_damaged_file_hides_no_other_and_is_named(run: Run, own: Path) -> None:
    (own / "worker-1.ledger").write_text("Dear Sir or Madam")
    (own / "worker-2.ledger").touch()

    listed, shown = run("list", own, "--json"), run("show", own, "free.1")

    assert len(listed.objects) == 4
    assert (listed.code, shown.code) == (0, 0)
    for said in (listed, shown):
        assert said.err.count("\n") == 1
        assert "worker-1.ledger cannot be used" in said.err


# ----------------------------------------------------------------------------------------------------------------- show
def test_an_episode_is_told_with_its_facts_and_its_head(run: Run, folder: Path) -> None:
    said = run("show", folder, "played")

    lines = said.out.splitlines()
    assert lines[0] == "Episode played.1  proctor/PlumeSearch-v0"
    assert any(re.search(r"\+0\.250 s\s+1-3\s+agent walker\s+move north x3\s+reward 1\.5", line) for line in lines)
    assert any(line.startswith("seed       99 (drawn)") for line in lines)
    assert any(line.startswith("open: 4 steps, reward 2, 9 rows") for line in lines)
    assert any(re.fullmatch(r"head       played\.1@9:[0-9a-f]{64}", line) for line in lines)


def test_a_refusal_is_told_with_its_rule_and_reason(run: Run, folder: Path) -> None:
    out = run("show", folder, "governed.2").out

    assert re.search(r"agent walker\s+DecisionPacket ACT .*refused by FSM, E1: DecisionPacket\(ACT\) is not legal", out)
    assert "7 packets (2 refused, 0 warnings), judged violated" in out
    assert "refused by E1, FSM, GOV-1" in out


def test_rows_can_be_chosen(run: Run, folder: Path) -> None:
    said = run("show", folder, "free.1", "--json", "--rows", "2:4")

    assert [each["seq"] for each in said.objects] == [2, 3]
    assert [each["seq"] for each in run("show", folder, "free.1", "--json", "--rows", "4:").objects] == [4, 5]


@pytest.mark.parametrize("rows", ["3", "a:b", "-1:2", "1:2:3"])
def test_rows_that_are_none_are_refused(run: Run, folder: Path, rows: str) -> None:
    said = run("show", folder, "free.1", f"--rows={rows}")

    assert (said.code, said.out) == (2, "")


def test_every_step_gets_its_line(run: Run, folder: Path) -> None:
    out = run("show", folder, "free.1", "--each").out

    assert len(re.findall(r"^ +\+\S+ s +\d +control +(?:up|right) ", out, re.MULTILINE)) == 3


def test_an_unknown_episode_is_told_with_what_there_is(run: Run, folder: Path) -> None:
    said = run("show", folder, "nobody")

    assert said.code == 2
    assert "free.1" in said.err


def test_an_episode_whose_name_begins_like_an_option_goes_behind_two_dashes(run: Run, tmp_path: Path) -> None:
    folder = written(tmp_path / "ledger", free("-odd"))

    assert run("show", folder, "--", "-odd.1").out.startswith("Episode -odd.1")
    assert len(run("export", folder, "--packets", "--", "-odd.1").out) == 0


def test_on_a_terminal_it_has_colours_and_its_width(folder: Path) -> None:
    said = on_a_terminal("show", str(folder), "governed.2", columns=90)

    plain = ANSI.sub("", said)
    facts = plain.partition("head  ")[0]
    assert "\x1b[31m" in said
    assert max(map(len, facts.splitlines())) <= 90
    assert "an agent issues no tokens: ask for one with request_token, which the policy answers" in " ".join(
        plain.split()
    )


def on_a_terminal(*arguments: str, columns: int) -> str:
    """Run the command in a terminal and return what it wrote there."""
    above, below = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "proctor", "ledger", *arguments],
        stdout=below,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": str(columns), "LINES": "30", "TERM": "xterm", "NO_COLOR": ""},
    )
    os.close(below)
    found = b""
    try:
        while part := os.read(above, 1 << 16):
            found += part
    except OSError:  # how a terminal on Linux says that nobody writes to it any more
        pass
    finally:
        os.close(above)
        process.wait(300)
    return found.decode().replace("\r\n", "\n")


# --------------------------------------------------------------------------------------------------------------- verify
def test_without_key_or_head_it_says_what_that_does_not_prove(run: Run, folder: Path) -> None:
    said = run("verify", folder)

    assert said.code == 0
    assert "nothing is wrong" in said.out
    assert "accident" in said.out


def test_with_key_and_head_all_is_well(run: Run, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "key.pub").write_text(f"{PUBLIC}\n")
    with Ledger.open(folder) as ledger:
        heads = [word for each in ledger.episodes() for word in ("--head", each.head)]

    said = run("verify", folder, "--key", tmp_path / "key.pub", *heads, "--json")

    (report,) = said.objects
    assert (said.code, report["ok"], report["signed"], report["headed"]) == (0, True, True, True)
    assert report["rows"] == len(run("export", folder).out.splitlines())


def test_rows_that_nothing_proves_are_named_and_can_be_accepted(run: Run, tmp_path: Path) -> None:
    into = session_events.writer(tmp_path)
    for event in (session_events.opened(), session_events.reset(), session_events.step()):
        into.record(event)
    key = session_events.SIGNER.public.hex()
    alive = run("verify", tmp_path, "--key", key)
    into._resources.close()

    found = run("verify", tmp_path, "--key", key)
    accepted = run("verify", tmp_path, "--key", key, "--allow-unsealed", "--json")

    assert alive.code == 0
    assert "A server seems to be writing" in alive.out
    assert "no finding, but 5 rows without proof" in alive.out
    assert "nothing is wrong" not in alive.out
    assert found.code == 1
    assert "worker-0.ledger, s.1: no row of the chain is sealed" in found.out
    assert "can prove" in found.out
    assert accepted.code == 0
    assert (accepted.objects[0]["unsealed"], accepted.objects[0]["signed"]) == (5, False)


def test_a_row_that_was_changed_is_named(run: Run, own: Path) -> None:
    (row,) = [each for each in run("show", own, "free.1", "--json").objects if each["seq"] == 3]
    change(own, row["number"], b"0.25", b"0.26")

    said = run("verify", own)

    assert said.code == 1
    assert said.out.startswith(f"worker-0.ledger, row {row['number']}, free.1 at 3: ")
    (report,) = run("verify", own, "--json").objects
    first = report["findings"][0]
    assert (first["chain"], first["seq"], first["number"]) == ("free.1", 3, row["number"])


def change(folder: Path, number: int, said: bytes, says: bytes) -> None:
    """Change what a row says, as somebody would who can write the file."""
    connection = sqlite3.connect(folder / "worker-0.ledger", isolation_level=None)
    (body,) = connection.execute("SELECT body FROM rows WHERE number = ?", (number,)).fetchone()
    assert said in body
    connection.execute("UPDATE rows SET body = ? WHERE number = ?", (body.replace(said, says), number))
    connection.close()


def test_a_head_that_is_not_there_is_a_finding(run: Run, folder: Path) -> None:
    said = run("verify", folder, "--head", f"free.1@99:{'0' * 64}")

    assert said.code == 1
    assert "free.1" in said.out


def test_another_key_is_a_finding(run: Run, folder: Path) -> None:
    assert run("verify", folder, "--key", "00" * 32).code == 1


@pytest.mark.parametrize("key", ["abc", "nowhere.pub"])
def test_what_is_no_key_is_refused(run: Run, folder: Path, key: str) -> None:
    said = run("verify", folder, "--key", key)

    assert said.code == 2
    assert "public key" in said.err


# --------------------------------------------------------------------------------------------------------------- export
def test_the_packets_of_governed_episodes_can_be_judged_again(run: Run, run_command: Run, folder: Path) -> None:
    packets = run("export", folder, "--packets").out
    recorded = [
        each["event"]["accepted"]
        for each in run("export", folder, "governed.1", "governed.2").objects
        if each["event"].get("judged") and each["event"]["event"] == "packet_judged"
    ]

    judged = run_command("judge", "-", "--json", stdin=packets.encode())

    assert [each["verdict"] == "accepted" for each in judged.objects] == recorded
    assert len(recorded) == 20


def test_rows_are_written_as_lines(run: Run, folder: Path, tmp_path: Path) -> None:
    said = run("export", folder, "free.1", "--out", tmp_path / "free.jsonl")

    lines = (tmp_path / "free.jsonl").read_text().splitlines()
    assert (said.code, said.out, len(lines)) == (0, "", 6)
    assert "6 lines in" in said.err
    assert lines == run("show", folder, "free.1", "--json").out.splitlines()


def test_spans_are_written_as_lines(run: Run, folder: Path, tmp_path: Path) -> None:
    run("export", folder, "--format", "otel", "--out", tmp_path / "spans.jsonl")

    (line,) = (tmp_path / "spans.jsonl").read_text().splitlines()
    spans = json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert len({each["traceId"] for each in spans}) == 5


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("jsonl", "rows"),
        ("otel", "spans"),
        pytest.param("parquet", "steps", marks=pytest.mark.system),
        pytest.param("minari", "made-v0", marks=pytest.mark.system),
    ],
)
def test_an_export_shows_how_far_it_is(
    form: str, name: str, run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    looked_at = Console(file=screen, force_terminal=True, color_system=None, width=100, _environ={})
    monkeypatch.setattr(progress, "Console", lambda **_: looked_at)
    rows = len(run("export", folder, "free.1").out.splitlines())

    said = run("export", folder, "free.1", "--format", form, "--out", tmp_path / name)

    assert said.code == 0
    assert f"{rows}/{rows} rows" in screen.getvalue()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--format", "parquet"], "--out PATH"),
        (["--format", "minari"], "--out PATH"),
        (["--format", "otel", "--packets"], "--format jsonl"),
        (["--format", "csv"], "csv"),
        (["nobody"], "no such episode"),
    ],
)
def test_an_export_that_cannot_be_is_one_line(run: Run, folder: Path, arguments: list[str], says: str) -> None:
    said = run("export", folder, *arguments)

    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert says in said.err


def test_an_export_overwrites_nothing(run: Run, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("precious")

    assert run("export", folder, "--out", tmp_path / "out").code == 2
    assert (tmp_path / "out").read_text() == "precious"


def test_a_missing_extra_is_named(run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    said = run("export", folder, "--format", "parquet", "--out", tmp_path / "steps.parquet")

    assert said.code == 2
    assert "pip install 'proctor-rl[export]'" in said.err


@pytest.mark.system
def test_steps_and_datasets_are_written(run: Run, folder: Path, tmp_path: Path) -> None:
    steps = run("export", folder, "--format", "parquet", "--out", tmp_path / "steps.parquet")
    dataset = run("export", folder, "free.1", "--format", "minari", "--out", tmp_path / "plume-v0")

    assert (steps.code, dataset.code) == (0, 0)
    assert "13 rows" in steps.err
    assert "1 episode, 3 steps" in dataset.err
    assert "minari.load_dataset('plume-v0')" in dataset.err


# --------------------------------------------------------------------------------------------------------------- bundle
def test_a_bundle_stands_alone(run: Run, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "episode.ledger"
    said = run("bundle", folder, "governed.1", "--out", out)

    head = said.out.strip()
    assert head == next(each["head"] for each in run("list", folder, "--json").objects if each["chain"] == "governed.1")
    assert run("verify", out, "--head", head, "--key", PUBLIC).code == 0
    assert [each["chain"] for each in run("list", out, "--json").objects] == ["governed.1"]
    assert run("show", out, "governed.1", "--json").out.count("\n") == run(
        "show", folder, "governed.1", "--json"
    ).out.count("\n")


def test_a_bundle_overwrites_nothing(run: Run, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "episode.ledger").write_text("precious")

    assert run("bundle", folder, "free.1", "--out", tmp_path / "episode.ledger").code == 2
    assert (tmp_path / "episode.ledger").read_text() == "precious"


# ---------------------------------------------------------------------------------------------------------------- prune
def test_what_is_pruned_is_said_and_gone(run: Run, own: Path) -> None:
    said = run("prune", own, "free.1", "--yes")

    assert said.code == 0
    assert "To be removed: 1 episode with 6 rows" in said.err
    assert said.out.startswith("removed 1 episode, 6 rows, ")
    assert {each["chain"] for each in run("list", own, "--json").objects} == {"governed.1", "governed.2", "played.1"}
    assert run("verify", own).code == 0


def test_all_that_ended_before_a_date_can_be_pruned(run: Run, own: Path) -> None:
    assert "nothing to remove" in run("prune", own, "--before", "2025-01-01", "--yes").err

    run("prune", own, "--before", "2025-01-02", "--yes")

    assert {each["chain"] for each in run("list", own, "--json").objects} == {"played.1"}


def test_episodes_of_a_session_that_is_not_over_stay(run: Run, tmp_path: Path) -> None:
    folder = written(tmp_path / "own", free(), [opened("held"), reset("held"), closed("held", 0)])

    named = run("prune", folder, "held.1", "--yes")
    run("prune", folder, "--before", "2025-01-02", "--yes")

    assert named.code == 2
    assert "an episode of a session that is not over" in named.err
    assert [each["chain"] for each in run("list", folder, "--json").objects] == ["held.1"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "--before DATE"),
        (["free.1", "--before", "2025-01-02"], "--before DATE"),
        (["free.1"], "--yes"),
        (["played.1", "--yes"], "not over"),
        (["--before", "yesterday"], "not a date"),
    ],
)
def test_nothing_is_pruned_by_mistake(run: Run, own: Path, arguments: list[str], says: str) -> None:
    said = run("prune", own, *arguments)

    assert said.code == 2
    assert says in said.err
    assert len(run("list", own, "--json").objects) == 4


def test_a_dry_run_removes_nothing(run: Run, own: Path) -> None:
    said = run("prune", own, "--before", "2025-01-02", "--dry-run")

    assert (said.code, said.out) == (0, "")
    assert "To be removed: 3 episodes" in said.err
    assert len(run("list", own, "--json").objects) == 4


def test_one_who_says_no_is_heard(run: Run, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.cli.ledger._can_be_asked", lambda: True)

    assert run("prune", own, "free.1", stdin=b"n\n").code == 130
    assert len(run("list", own, "--json").objects) == 4
    assert run("prune", own, "free.1", stdin=b"y\n").code == 0
    assert len(run("list", own, "--json").objects) == 3


# ------------------------------------------------------------------------------------------------------------------ key
def test_the_public_key_is_printed_and_the_secret_half_is_not(run: Run, tmp_path: Path) -> None:
    first = run("key")
    again = run("key")

    path = tmp_path / "state" / "proctor" / "ledger-key"
    assert re.fullmatch(r"[0-9a-f]{64}\n", first.out)
    assert again.out == first.out
    assert "a new key was made" in first.err.replace("\n", " ")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text().strip() not in first.out + first.err
    assert load_signing_key({"XDG_STATE_HOME": str(tmp_path / "state")}).signer.public.hex() == first.out.strip()


def test_the_environment_goes_before_the_file() -> None:
    found = load_signing_key({"PROCTOR_LEDGER_KEY": SEED.hex()})

    assert (found.signer.public, found.path, found.made) == (SIGNER.public, None, False)


def test_a_key_that_is_none_is_not_shown() -> None:
    with pytest.raises(ValidationError, match="PROCTOR_LEDGER_KEY does not hold the key") as problem:
        load_signing_key({"PROCTOR_LEDGER_KEY": "hunter2"})

    assert "hunter2" not in str(problem.value)


def test_a_public_key_is_digits_or_a_file_with_them(tmp_path: Path) -> None:
    (tmp_path / "key.pub").write_text(PUBLIC.upper() + "\n")

    assert parse_public_key(PUBLIC) == parse_public_key(str(tmp_path / "key.pub")) == SIGNER.public


# ------------------------------------------------------------------------------------------------------------- the group
@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_without_a_command_there_is_help(run: Run, arguments: list[str]) -> None:
    said = run(*arguments)

    assert said.code == 0
    assert all(name in said.out for name in ("list", "show", "verify", "export", "bundle", "prune", "key"))
