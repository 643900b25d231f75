"""`proctor judge` answers every line, as it comes, and its exit code says whether all were legal."""

import io
import json
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.cli import judge as reading
from proctor.cli import output as writing
from proctor.cli.judge import NUMBER, PATH, VERDICT, InputLine, TextPrinter
from proctor.cli.output import Output
from proctor.cli.terminal import OutputFormat
from proctor.episode import Author
from proctor.episode.rules import RuleFinding
from proctor.episode.rules.catalogue import SENTENCES
from proctor.episode.transition_table import Event, ProtocolState
from proctor.episode.verdicts import Verdict
from tests.cli.said import Run, Said
from tests.cli.streams import NOON, conforming, text_of, violated, written

KEYS = [
    "line",
    "packet_id",
    "correlation_id",
    "verdict",
    "path",
    "rules",
    "pointers",
    "reason",
    "warnings",
    "legal_next",
    "obligations",
]
COMMAND = [sys.executable, "-m", "proctor", "judge"]


@pytest.fixture
def run(run_command: Run) -> Run:
    return partial(run_command, "judge")


@pytest.fixture
def good(tmp_path: Path) -> str:
    return written(tmp_path / "good.jsonl", conforming())


@pytest.fixture
def bad(tmp_path: Path) -> str:
    return written(tmp_path / "bad.jsonl", violated())


# -------------------------------------------------------------------------------------------------------------- the JSON
def test_a_legal_stream_is_accepted_line_by_line(run: Run, good: str) -> None:
    said = run(good, "--json")

    assert said.code == 0
    assert [list(each) for each in said.objects[:-1]] == [KEYS] * 13
    assert [each["line"] for each in said.objects] == list(range(1, 15))
    assert {each["verdict"] for each in said.objects} == {"accepted"}
    assert said.objects[2]["path"] == ["S2_MODEL", "S3_DECIDE", "S4_VERIFY"]
    assert said.objects[0]["packet_id"] == "pkt_good_1"


def test_a_record_has_no_packet_id_and_says_which_it_is(run: Run, good: str) -> None:
    last = run(good, "--json").objects[-1]

    assert (last["packet_id"], last["record"], last["path"]) == (None, "close", ["S7_REVIEW", "S0_IDLE"])


def test_a_refusal_names_rules_pointers_reason_and_what_is_legal(run: Run, bad: str) -> None:
    said = run(bad, "--json")

    assert said.code == 1
    refused = said.objects[2]
    assert refused["verdict"] == "refused"
    assert refused["rules"] == ["FSM", "E1"]
    assert refused["pointers"] == ["/header/packet_type"]
    assert "DecisionPacket(ACT) is not legal in S1_SENSE" in refused["reason"]
    assert refused["path"] == ["S1_SENSE"]
    assert "BeliefUpdatePacket" in refused["legal_next"]


def test_open_obligations_are_told(run: Run, bad: str) -> None:
    (owed,) = run(bad, "--json").objects[-1]["obligations"]

    assert (owed["kind"], owed["id"]) == ("task", "task_bad_5")
    assert owed["due"].endswith("Z")


def test_a_warning_is_told_and_refuses_nothing(run: Run) -> None:
    author = Author("corr_w", at=NOON)

    said = run("-", "--json", stdin=author.observation({"a": 1}, previous="pkt_nobody").line())

    assert said.code == 0
    (warning,) = said.objects[0]["warnings"]
    assert (warning["rule"], warning["pointer"]) == ("ID-2", "/header/previous_packet_id")


@pytest.mark.parametrize("broken", [b"{broken", b"\xff\xfe", b"nothing", b"[" * 100_000, b'"\\ud800"x'])
def test_a_broken_line_is_a_finding_with_its_number_and_not_the_end(run: Run, broken: bytes) -> None:
    author = Author("corr_a", at=NOON)
    first, second = author.observation({"a": 1}), author.belief()

    said = run("-", "--json", stdin=b"\n".join([first.line(), b"", b"  \t", broken, second.line()]))

    assert said.code == 1
    assert [(each["line"], each["verdict"]) for each in said.objects] == [
        (1, "accepted"),
        (4, "refused"),
        (5, "accepted"),
    ]
    assert said.objects[1]["rules"] == ["JSON"]
    assert said.objects[1]["path"] == []
    assert said.objects[1]["reason"]


def test_a_malformed_record_says_which_it_tries_to_be(run: Run) -> None:
    (said,) = run("-", "--json", stdin=b'{"record": "close"}').objects

    assert (said["record"], said["packet_id"], said["rules"][0]) == ("close", None, "SCHEMA")


def test_a_file_with_a_byte_order_mark_and_other_line_ends_is_read(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "marked.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + text_of(conforming()).replace(b"\n", b"\r\n"))

    said = run(str(path), "--json")

    assert said.code == 0
    assert len(said.objects) == 14


def test_a_file_that_is_only_a_byte_order_mark_is_empty(run: Run) -> None:
    assert run("-", "--json", stdin=b"\xef\xbb\xbf") == Said(0, "", "")


def test_a_line_that_is_too_long_is_a_finding_and_is_never_held(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_LINE_BYTES", 4000)
    author = Author("corr_a", at=NOON)
    first, second = author.observation({"a": 1}).line(), author.belief().line()
    longest = b" " * (4000 - len(second)) + second

    said = run("-", "--json", stdin=b"\n".join([first, b"x" * 4001, b"y" * 20_000, longest, b"z" * 9000]))

    assert [(each["line"], each["verdict"]) for each in said.objects] == [
        (1, "accepted"),
        (2, "refused"),
        (3, "refused"),
        (4, "accepted"),
        (5, "refused"),
    ]
    assert {tuple(each["rules"]) for each in said.objects if each["verdict"] == "refused"} == {("JSON",)}
    assert "longer than 8 MiB" in said.objects[1]["reason"]


def test_a_longer_file_is_judged_to_its_end(run: Run, tmp_path: Path) -> None:
    path = written(tmp_path / "long.jsonl", *(violated(f"corr_{number}") for number in range(40)))

    said = run(path, "--json")

    assert [each["line"] for each in said.objects] == list(range(1, 241))


def test_several_files_are_one_stream_and_every_line_names_its_own(run: Run, tmp_path: Path) -> None:
    packets = list(conforming())
    first = written(tmp_path / "first.jsonl", iter(packets[:5]))
    second = written(tmp_path / "second.jsonl", iter(packets[5:]))

    said = run(first, second, "--json")

    assert said.code == 0
    assert [(each["file"], each["line"]) for each in said.objects] == [
        *((first, number) for number in range(1, 6)),
        *((second, number) for number in range(1, 10)),
    ]


def test_a_file_and_standard_input_go_together(run: Run, bad: str) -> None:
    said = run(bad, "-", "--json", stdin=text_of(conforming()))

    assert [each["file"] for each in said.objects] == [bad] * 6 + ["-"] * 14


def test_a_name_that_is_no_text_is_shown_all_the_same(run: Run, good: str, tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff.jsonl"
    Path(os.fsdecode(path)).write_bytes(b"")
    odd = os.fsdecode(path)

    said = run(good, odd, "--json")
    table = run(odd, good)

    assert (said.code, table.code) == (0, 0)


def test_only_refused_lines_are_printed_if_asked(run: Run, bad: str) -> None:
    said = run(bad, "--json", "--refused-only")
    table = run(bad, "--refused-only")

    assert [each["line"] for each in said.objects] == [3]
    assert "pkt_bad_2" in table.out
    assert "pkt_bad_1" not in table.out


def test_an_explanation_in_json_has_findings_places_and_a_way(run: Run, bad: str) -> None:
    taken, refused = run(bad, "--json", "--explain").objects[1:3]

    assert "findings" not in taken
    assert [each["rule"] for each in refused["findings"]] == ["FSM", "E1"]
    assert refused["findings"][1]["sentence"] == SENTENCES["E1"]
    assert refused["legal_in"] == ["S2_MODEL", "S3_DECIDE"]
    assert refused["way"] == ["BeliefUpdatePacket", "DecisionPacket(ACT)"]


def test_an_overrun_shows_the_machines_own_transition(run: Run) -> None:
    stream = overrun()

    halted = run("-", "--json", stdin=stream).objects[-1]
    escalated = run("-", "--json", "--on-overrun", "escalate", stdin=stream).objects[-1]

    assert halted["path"] == ["S6_EXECUTE", "S6_EXECUTE", "S9_SAFEMODE"]
    assert escalated["path"] == ["S6_EXECUTE", "S6_EXECUTE", "S8_ESCALATED"]
    assert halted["synthetic"][0]["rule"] == "INV-005"


def overrun() -> bytes:
    """Return an episode whose only result costs more than was allowed."""
    from proctor.episode.packets.fields import ExecutionMetadata

    author = Author("corr_o", at=NOON)
    seen, known, acted = author.observation({"a": 1}), author.belief(), author.decision("ACT")
    asked = author.directive("tool")
    told = author.result(asked, cost=ExecutionMetadata(tokens_used=10**9))
    return text_of(iter([seen, known, acted, asked, told]))


# ------------------------------------------------------------------------------------------------------------ the table
def test_the_table_has_a_row_for_each_line_and_the_totals(run: Run, good: str) -> None:
    said = run(good)

    rows = said.out.splitlines()
    assert rows[0].split() == ["line", "verdict", "path", "what", "packet", "episode"]
    assert rows[3].split() == ["3", "accepted", "S2>S3>S4", "Decision(VERIFY_FIRST)", "pkt_good_3", "corr_good"]
    assert rows[-2:] == ["14 lines: 14 accepted, 0 refused, 0 warnings", "1 episode: 1 conforming, 0 violated, 0 open"]


def test_a_refused_row_says_why_beneath_it(run: Run, bad: str) -> None:
    rows = run(bad).out.splitlines()

    at = next(number for number, row in enumerate(rows) if "refused  S1" in row)
    assert rows[at + 1].strip().startswith("FSM, E1: DecisionPacket(ACT) is not legal in S1_SENSE")
    assert rows[-1] == "rules broken: E1, FSM"


def test_an_explanation_says_which_rule_where_it_is_legal_and_how_to_get_there(run: Run, bad: str) -> None:
    out = run(bad, "--explain").out

    for words in (
        f"so there is nothing to decide on (at /header/packet_type). {SENTENCES['E1']}",
        "legal now: ObservationPacket, BeliefUpdatePacket",
        "legal in: S2_MODEL, S3_DECIDE",
        "shortest way: BeliefUpdatePacket, then DecisionPacket(ACT)",
        "moved: S0_IDLE to S1_SENSE",
        "stayed: in S0_IDLE",
        "now open: task task_bad_5: a TaskResultPacket for pkt_bad_5, until 20",
        "settled: decision: the ACT",
    ):
        assert words in out


def test_an_explanation_names_what_is_still_open(run: Run) -> None:
    author = Author("corr_o", at=NOON)
    packets = [author.observation({"a": 1}), author.belief(), author.decision("ACT"), author.directive("tool")]
    packets.append(author.belief())

    out = run("-", "--explain", "--refused-only", stdin=text_of(iter(packets))).out

    assert "E6:" in out
    assert "open: task task_o_4: a TaskResultPacket for pkt_o_4" in out


def test_an_explanation_of_an_overrun_tells_where_it_leads(run: Run) -> None:
    out = run("-", "--explain", stdin=overrun()).out
    table = run("-", stdin=overrun()).out

    assert "moved: S6_EXECUTE to S9_SAFEMODE" in out
    assert all("INV-005: budget overrun: safe mode: the budget is overrun" in each for each in (out, table))


def test_a_line_after_the_close_is_explained(run: Run) -> None:
    late = Author("corr_good", at=NOON).observation({"a": 1}, packet_id="pkt_late")

    out = run("-", "--explain", stdin=text_of(conforming(), iter([late]))).out

    assert "EPISODE_CLOSED: the episode is closed" in out
    assert "legal in: the episode is closed" in out


def test_what_a_line_is_can_be_told_from_the_table(run: Run) -> None:
    out = run("-", stdin=b'{"record": "open"}\n{}\nx\n' + text_of(violated())).out

    kinds = [re.split(r"\s{2,}", row.strip())[2] for row in out.splitlines()[1:] if re.match(r" +\d", row)]
    assert kinds[:3] == ["open record", "malformed", "not JSON"]
    assert "3 lines of no known episode" in out


@pytest.mark.parametrize("option", [[], ["--explain"], ["--summary"]])
def test_several_files_have_their_names_above_their_rows(run: Run, good: str, bad: str, option: list[str]) -> None:
    out = run(good, bad, *option).out

    assert (f"{bad}\n" in out) == (option != ["--summary"])


def test_no_control_sign_of_a_packet_reaches_the_terminal(run: Run) -> None:
    hostile = "\x1b[31mred\x9b2J\u202e[bold]\x7f"
    packet = json.loads(next(conforming()).line())
    packet["header"]["packet_id"] = f"pkt_{hostile}"
    packet["payload"][hostile] = hostile
    packet["mcp"][f"[link=x]{hostile}"] = 1
    stream = json.dumps(packet).encode() + b"\n" + json.dumps(packet, ensure_ascii=False).encode() + b"\n"
    stream += b'{"\x7f": 1}\n'

    for arguments in ([], ["--explain"], ["--json"], ["--json", "--explain"], ["--summary"]):
        out = run("-", *arguments, stdin=stream).out

        assert all(sign == "\n" or sign.isprintable() for sign in out)


# ---------------------------------------------------------------------------------------------------------- the summary
def test_a_summary_has_a_row_for_each_episode_by_campaign(run: Run, tmp_path: Path) -> None:
    path = written(
        tmp_path / "all.jsonl",
        conforming("corr_b", "camp_two"),
        violated("corr_a"),
        conforming("corr_c", "camp_one"),
        violated("corr_d", "camp_one"),
    )

    said = run(path, "--summary")

    rows = said.out.splitlines()
    assert said.code == 1
    assert rows[1].split() == ["corr_a", "violated", "S6_EXECUTE", "4", "1", "0"]
    assert rows[2].strip() == "rules broken: E1, FSM"
    assert rows[3].strip().startswith("open: task task_a_5")
    assert rows[4] == "camp_one: 1 conforming, 1 violated, 0 open"
    assert "camp_two: 1 conforming, 0 violated, 0 open" in rows
    assert rows[-2] == "4 episodes: 2 conforming, 2 violated, 0 open"
    assert rows[-1] == "rules broken: E1 (2 times), FSM (2 times)"


def test_a_summary_in_json_is_one_object_an_episode_and_the_totals(run: Run, good: str, bad: str) -> None:
    *episodes, last = run(good, bad, "--summary", "--json").objects

    assert {each["correlation_id"]: each["outcome"] for each in episodes} == {
        "corr_good": "conforming",
        "corr_bad": "violated",
    }
    assert last["totals"]["lines"] == 20
    assert last["episodes"] == {"conforming": 1, "violated": 1, "open": 0}


def test_a_summary_can_be_explained_too(run: Run, bad: str) -> None:
    out = run(bad, "--summary", "--explain", "--refused-only").out

    assert out.index("shortest way") < out.index("violated")
    assert "pkt_bad_1" not in out


def test_a_summary_stands_alone_unless_something_was_asked_of_the_lines(run: Run, bad: str) -> None:
    alone = run(bad, "--summary", "--json").objects
    refused = run(bad, "--summary", "--refused-only", "--json").objects
    explained = run(bad, "--summary", "--explain", "--json").objects

    assert len(alone) == 2
    assert refused[1:] == explained[6:] == alone
    assert [each["line"] for each in refused[:1]] == [3]
    assert [each["line"] for each in explained[:6]] == [1, 2, 3, 4, 5, 6]


# ------------------------------------------------------------------------------------------------------ the switches
@pytest.mark.parametrize(
    ("moves", "option", "code"),
    [
        ("observation belief VERIFY_FIRST directive", (), 1),
        ("observation belief VERIFY_FIRST directive", ("--profile", "lenient"), 0),
        ("observation belief ACT token", (), 0),
        ("observation belief ACT token", ("--layer-rules", "error"), 1),
        ("observation ACT", (), 1),
        ("observation ACT", ("--initial-beliefs",), 0),
    ],
)
def test_an_option_changes_the_verdict(run: Run, moves: str, option: tuple[str, ...], code: int) -> None:
    author = Author("corr_l", at=NOON)
    packets: dict[str, Callable[[], Any]] = {
        "observation": lambda: author.observation({"a": 1}),
        "belief": author.belief,
        "directive": lambda: author.directive("t"),
        "token": lambda: author.token("t", issuer=3),
    }
    stream = text_of(packets[move]() if move in packets else author.decision(move) for move in moves.split())

    assert run("-", *option, stdin=stream).code == code


def test_the_clock_can_be_that_of_the_wall(run: Run) -> None:
    author = Author("corr_l", at=NOON)
    packets = [author.observation({"a": 1}), author.belief(), author.decision("ACT"), author.token("t")]
    stream = text_of(iter(packets))

    assert run("-", stdin=stream).code == 0
    assert run("-", "--clock", "wall", "--json", stdin=stream).objects[-1]["rules"] == ["S5"]


def test_rules_of_ones_own_are_judged_and_explained(run: Run, good: str, tmp_path: Path) -> None:
    rules = tmp_path / "house.rules"
    # As some editors write it: with a mark before the first line.
    rules.write_text("ASK: approval record before TaskDirectivePacket(WRITE)\n", "utf-8-sig")

    said = run(good, "--rules", str(rules), "--explain")

    assert said.code == 1
    assert "ASK: TaskDirectivePacket(WRITE) comes before any approval record" in said.out
    assert "ASK: approval record before TaskDirectivePacket(WRITE)" in said.out


def test_no_more_episodes_are_open_than_allowed(run: Run) -> None:
    stream = text_of(violated("corr_a"), violated("corr_b"))

    said = run("-", "--json", "--max-open", "1", stdin=stream)

    assert {rule for each in said.objects[6:] for rule in each["rules"]} == {"LIMIT-1"}


# ------------------------------------------------------------------------------------------------------------- mistakes
def test_a_file_without_permission_is_told(run: Run, good: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)

    said = run(good)

    assert said.code == 2
    assert "permission denied" in said.err


def test_a_file_that_goes_away_is_a_message(run: Run, good: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(path: Path, mode: str) -> io.BytesIO:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "open", gone)

    said = run(good, "--json")

    assert (said.code, said.out) == (2, "")
    assert "Input/output error" in said.err


@pytest.mark.parametrize("content", [b"NONSENSE\n", b"\xff\xff"])
def test_rules_that_cannot_be_read_are_a_message(run: Run, good: str, tmp_path: Path, content: bytes) -> None:
    rules = tmp_path / "house.rules"
    rules.write_bytes(content)

    said = run(good, "--rules", str(rules))

    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)


def test_an_empty_file_is_no_violation(run: Run, tmp_path: Path) -> None:
    said = run(written(tmp_path / "empty.jsonl"))

    assert said.code == 0
    assert "0 lines: 0 accepted, 0 refused, 0 warnings" in said.out


# ------------------------------------------------------------------------------------------------------- real processes
@contextmanager
def process(*arguments: str, **how: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command with pipes, unless `how` says otherwise, and end it whatever happens."""
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([*COMMAND, *arguments], **{**pipes, **how}) as started:
        try:
            yield started
        finally:
            started.kill()


@pytest.mark.parametrize("arguments", [["--json"], []], ids=["json", "table"])
def test_a_stream_is_answered_line_by_line(arguments: list[str]) -> None:
    with process("-", *arguments) as judging:
        assert judging.stdin is not None
        assert judging.stdout is not None
        if not arguments:
            assert judging.stdout.readline().split()[0] == b"line"
        for packet in conforming():
            judging.stdin.write(packet.line() + b"\n")
            judging.stdin.flush()
            # This would wait for ever if the answer were held back.
            assert b"accepted" in judging.stdout.readline()
        judging.stdin.close()

        assert judging.wait(300) == 0


def test_a_named_pipe_is_read_as_it_comes(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    with process(str(pipe), "--json") as judging, pipe.open("wb") as sink:
        assert judging.stdout is not None
        for packet in conforming():
            sink.write(packet.line() + b"\n")
            sink.flush()
            assert b"accepted" in judging.stdout.readline()


@pytest.mark.parametrize("arguments", [["--json"], []], ids=["json", "table"])
def test_a_reader_who_goes_away_is_no_error(tmp_path: Path, arguments: list[str]) -> None:
    many = (conforming(f"corr_{number}") for number in range(400))
    path = written(tmp_path / "many.jsonl", *many)

    with process(path, *arguments) as judging:
        assert judging.stdout is not None
        assert judging.stderr is not None
        judging.stdout.readline()
        judging.stdout.close()

        assert judging.wait(300) == writing.BROKEN_PIPE_EXIT
        assert judging.stderr.read() == b""


# ------------------------------------------------------------------------------------------------------------- terminals
def seen_on_terminal(arguments: list[str], which: tuple[str, ...], width: str = "100") -> tuple[int, str]:
    """Return the exit code, and what a terminal showed that is the process's `which`."""
    ours, theirs = pty.openpty()
    shown: list[bytes] = []

    def watch() -> None:
        try:
            while text := os.read(ours, 65536):
                shown.append(text)
        except OSError:
            # A terminal without a process at its other end.
            return

    others: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": width}
    env.pop("NO_COLOR", None)
    with subprocess.Popen([*COMMAND, *arguments], env=env, **{**others, **dict.fromkeys(which, theirs)}) as started:
        os.close(theirs)
        watcher = threading.Thread(target=watch)
        watcher.start()
        code = started.wait(300)
        watcher.join(300)
    os.close(ours)
    return code, b"".join(shown).decode()


def test_a_progress_bar_is_shown_where_somebody_looks_and_no_rows_come(good: str) -> None:
    code, shown = seen_on_terminal([good, "--json"], ("stderr",))

    assert code == 0
    assert "judging" in shown


@pytest.mark.parametrize("arguments", [["--json"], []])
def test_rows_on_a_terminal_are_not_mixed_with_a_bar(good: str, arguments: list[str]) -> None:
    code, shown = seen_on_terminal([good, *arguments], ("stdout", "stderr"))

    assert code == 0
    assert "judging" not in shown


def test_a_stream_has_no_bar(tmp_path: Path) -> None:
    code, shown = seen_on_terminal(["/dev/null", "--json"], ("stderr",))

    assert (code, shown) == (0, "")


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_the_table_fits_the_terminal(bad: str, width: int) -> None:
    code, shown = seen_on_terminal([bad, "--explain"], ("stdout",), str(width))

    rows = [re.sub(r"\x1b\[[0-9;]*m", "", row) for row in shown.splitlines()]
    assert code == 1
    assert "\x1b[31mrefused" in shown
    assert max(map(len, rows)) <= width


# ----------------------------------------------------------------------------------------------------- rows and remarks
NAMES = st.from_regex(r"pkt_[A-Za-z0-9_-]{1,80}", fullmatch=True)


def printed(form: OutputFormat, line: InputLine, verdict: Verdict) -> str:
    """Return the row of a verdict."""
    file = io.BytesIO()
    output = Output(file)
    TextPrinter(output, explain=False, several=False, silent=False, form=form).add(line, verdict)
    output.flush()
    return file.getvalue().decode()


@given(
    width=st.integers(60, 300),
    number=st.integers(1, 10**6 - 1),
    event=st.sampled_from(Event),
    path=st.lists(st.sampled_from(ProtocolState), min_size=1, max_size=3),
    packet=NAMES,
    reason=st.text(max_size=200),
)
def test_every_row_fits_the_terminal(
    width: int, number: int, event: Event, path: list[ProtocolState], packet: str, reason: str
) -> None:
    form = OutputFormat(width, terminal=True, coloured=False)
    verdict = Verdict(False, "corr_a", packet, event, tuple(path), (RuleFinding("FSM", "", reason),), (), None, None)

    heading, row, *remarks = printed(form, InputLine(number, b"", 0), verdict).splitlines()

    assert all(len(line) <= width for line in (heading, row, *remarks))
    start = NUMBER + 1 + VERDICT + 1
    assert row[start : start + PATH].strip() == ">".join(state.partition("_")[0] for state in path)
    assert heading.index("path") == start


def test_a_number_of_many_digits_moves_its_own_row_only() -> None:
    form = OutputFormat(100, terminal=True, coloured=True)
    verdict = Verdict(
        True, "corr_a", "pkt_a", Event.BELIEF, (ProtocolState.MODEL, ProtocolState.MODEL), (), (), None, None
    )

    _, row = printed(form, InputLine(123_456_789, b"", 0), verdict).splitlines()

    assert row.startswith("123456789 \x1b[32maccepted\x1b[0m S2>S2")


@pytest.mark.parametrize(("terminal", "lines"), [(True, range(4, 20)), (False, range(3, 4))])
def test_a_remark_is_wrapped_on_a_terminal_and_whole_elsewhere(terminal: bool, lines: range) -> None:
    verdict = Verdict(False, None, None, None, (), (RuleFinding("WHY", "", "word " * 60),), (), None, None)

    text = printed(OutputFormat(80, terminal, coloured=False), InputLine(1, b"", 0), verdict)

    assert text.count("\n") in lines
