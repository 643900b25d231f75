"""`proctor operator`: what a human sees, what it does, and how it ends."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pexpect
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from proctor.cli.main import main
from proctor.cli.operator import (
    COLUMNS_WIDTH,
    RETRY_SECONDS,
    ListDetail,
    ListEntry,
    format_row,
    format_wait,
    list_lines,
    operator,
    read_pages,
)
from proctor.cli.terminal import OutputFormat
from proctor.client.operator import JudgedRows
from proctor.errors import ConnectionFailed, ProctorError, RemoteError
from proctor.models.operator import Choice, Done
from proctor.server.sessions.episode_status import RowLog
from tests.server.commands import ROOT, variables
from tests.server.live_server import PATIENCE, until
from tests.server.operator_server import (
    CONTROL_SECRET,
    NOON,
    OPERATOR_SECRET,
    Operated,
    StandIn,
    operated,
    question,
    row,
    standing,
)

TOKEN = {"PROCTOR_OPERATOR_TOKEN": OPERATOR_SECRET}
QUESTION = "a-session.1.q1"


@pytest.fixture(scope="module")
def running() -> Iterator[Operated]:
    with operated() as there:
        yield there


@pytest.fixture
def there(running: Operated, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Operated:
    """A server that knows one session and one question, and an operator at home with the credential."""
    for name, value in {**variables(tmp_path), **TOKEN}.items():
        monkeypatch.setenv(name, value)
    operator = running.operator
    operator.waiting, operator.standings, operator.acts = {"q1": question()}, [standing()], []
    operator.rows, operator.judge = RowLog(), StandIn.judge
    return running


class Told:
    """What a command said."""

    def __init__(self, code: int, captured: Any) -> None:
        self.code, (self.out, self.err) = code, captured


@pytest.fixture
def ask(there: Operated, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: str) -> Told:
        code = main(["operator", *arguments, "--url", there.url])
        return Told(code, capsys.readouterr())

    return run


# --------------------------------------------------------------------------------------------------------- what is seen
def test_pending_shows_the_question_and_its_options(ask: Any) -> None:
    told = ask("pending")

    assert told.code == 0
    rows = [line.split() for line in told.out.splitlines()]
    assert rows[0] == ["question", "kind", "session", "epoch", "waits"]
    assert rows[1][:4] == [QUESTION, "escalation", "a-session", "1"]
    assert ["asks", ">", "May", "I", "go", "on?"] in rows
    assert ["option", "go", ">", "Go", "on", "as", "planned"] in rows
    assert ["option", "stop", ">", "Stop", "here"] in rows


def test_pending_shows_that_a_token_is_approved_or_denied(ask: Any, there: Operated) -> None:
    there.operator.waiting = {"t1": question("t1", kind="token", options=[], question="move, 3 uses")}

    assert "approve or deny" in ask("pending").out


def test_whose_question_waits_and_whose_episode_runs_is_said_where_the_agent_has_a_name(
    ask: Any, there: Operated
) -> None:
    nameless = ask("pending").out + ask("sessions").out
    there.operator.waiting = {"q1": question(agent="scout")}
    there.operator.standings = [standing(agent="scout, mapper")]

    assert "agent:" not in nameless
    assert ["agent:", "scout"] in [line.split() for line in ask("pending").out.splitlines()]
    assert ["agent:", "scout,", "mapper"] in [line.split() for line in ask("sessions").out.splitlines()]


def test_nothing_that_waits_is_said_in_words(ask: Any, there: Operated) -> None:
    there.operator.waiting, there.operator.standings = {}, []

    assert ask("pending").out == "nothing waits for an operator\n"
    assert ask("sessions").out == "no governed episode runs\n"
    assert json.loads(ask("pending", "--json").out) == {"waiting": []}


def test_sessions_show_state_and_what_is_open(ask: Any) -> None:
    told = ask("sessions")

    assert "S8_ESCALATED" in told.out
    assert "an answer" in told.out
    assert "ObservationPacket" in told.out


@pytest.mark.parametrize("command", ["pending", "sessions"])
def test_json_has_all_that_the_server_said(ask: Any, command: str) -> None:
    told = json.loads(ask(command, "--json").out)

    assert (
        told
        == {
            "pending": {"waiting": [_plain(question())]},
            "sessions": {"sessions": [_plain(standing())]},
        }[command]
    )


def _plain(value: Any) -> Any:
    return json.loads(msgspec.json.encode(value))


def test_what_an_agent_wrote_moves_no_cursor(ask: Any, there: Operated) -> None:
    evil = "look\x1b[2J\x1b]0;owned\x07\r\u202e here"
    there.operator.waiting = {"q1": question(question=evil, options=[])}
    there.operator.standings = [standing(legal_next=[evil])]
    there.say(kind=evil, reason=evil, accepted=False, session=evil)

    told = [
        ask("pending"),
        ask("sessions"),
        ask("watch", "--once"),
        ask("pending", "--json"),
        ask("watch", "--once", "--json"),
    ]

    assert all(page.code == 0 for page in told)
    for page in told:
        assert not {"\x1b", "\x07", "\r", "\u202e"} & set(page.out)


def test_no_line_that_an_agent_wrote_looks_like_a_line_of_the_command(ask: Any, there: Operated) -> None:
    fake = "May I?\n    approve or deny\ndone; the episode a-session.1 is in S3_DECIDE\nq9  token  a-session  1  3 s"
    options = [Choice("go", "x\n    option stop  > Stop here"), Choice("stop  > Stop\u00a0here", "y")]
    there.operator.waiting = {"q1": question(question=fake, options=options)}

    heading, entry, *beneath = ask("pending").out.splitlines()

    assert heading.split() == ["question", "kind", "session", "epoch", "waits"]
    assert entry.split()[0] == QUESTION
    marked = [line.partition("> ") for line in beneath]
    words = [(before.split(), after) for before, _, after in marked]
    assert [before for before, _ in words if before] == [["asks"], ["option", "go"], ["option", "'stop"]]
    assert [after for before, after in words if not before] == [
        "    approve or deny",
        "done; the episode a-session.1 is in S3_DECIDE",
        "q9  token  a-session  1  3 s",
        "    option stop  > Stop here",
    ]
    assert "\\xa0" in beneath[-1]


# --------------------------------------------------------------------------------------------------------- what is done
@pytest.mark.parametrize(
    ("arguments", "act"),
    [
        (("answer", QUESTION, "go"), ("answer", "a-session.1", "q1", "go", "")),
        (("answer", "q1", "go"), ("answer", "a-session.1", "q1", "go", "")),
        (("answer", QUESTION, "--text", "slowly"), ("answer", "a-session.1", "q1", None, "slowly")),
        (("answer", QUESTION, "go", "--text", "slowly"), ("answer", "a-session.1", "q1", "go", "slowly")),
        (("approve", QUESTION), ("approve", "a-session.1", "q1", None, None, "")),
        (("approve", QUESTION, "--uses", "2", "--life", "9"), ("approve", "a-session.1", "q1", 2, 9.0, "")),
        (("deny", QUESTION, "--text", "no"), ("deny", "a-session.1", "q1", "no")),
        (("alert", "a-session.1", "it circles"), ("alert", "a-session.1", "CRITICAL", "it circles")),
        (("alert", "a-session.1", "x", "--severity", "info"), ("alert", "a-session.1", "INFO", "x")),
        (("clear", "a-session.1"), ("clear", "a-session.1", "")),
        (("clear", "a-session.1", "seen"), ("clear", "a-session.1", "seen")),
        (("revoke", "a-session.1", "--token", "t1"), ("revoke", "a-session.1", "t1", None)),
        (("revoke", "a-session.1", "--grant", "g1"), ("revoke", "a-session.1", None, "g1")),
        (("budget", "a-session.1", "--tool-calls", "4"), ("budget", "a-session.1", 0, 4, 0, "")),
    ],
)
def test_an_act_is_done_and_said(ask: Any, there: Operated, arguments: tuple[str, ...], act: tuple[Any, ...]) -> None:
    told = ask(*arguments)

    assert (told.code, told.out.splitlines()[-1]) == (0, "done; the episode a-session.1 is in S3_DECIDE")
    assert there.operator.acts == [act]


@pytest.mark.parametrize("act", [("answer", QUESTION, "go"), ("approve", QUESTION), ("deny", QUESTION)])
def test_what_is_answered_is_printed_with_the_answer(ask: Any, there: Operated, act: tuple[str, ...]) -> None:
    there.operator.waiting = {"q1": question(agent="scout")}

    shown = [line.split() for line in ask(*act).out.splitlines()]

    assert shown[0] == ["question", "kind", "session", "epoch", "waits"]
    assert shown[1][:4] == [QUESTION, "escalation", "a-session", "1"]
    assert ["agent:", "scout"] in shown
    assert ["asks", ">", "May", "I", "go", "on?"] in shown


def test_the_json_of_an_answer_is_what_the_server_said_and_nothing_else(ask: Any, there: Operated) -> None:
    there.operator.judge = lambda: Done("a-session", 1, True, "S3_DECIDE", question="May I go on?")

    told = json.loads(ask("answer", QUESTION, "go", "--json").out)

    assert (told["session"], told["epoch"], told["question"]) == ("a-session", 1, "May I go on?")


def test_names_that_begin_with_a_dash_are_names(ask: Any, there: Operated) -> None:
    there.operator.waiting = {"-q": question("-q")}
    there.operator.standings = [standing(session="-Ab_9")]

    assert ask("answer", "-q", "go").code == 0
    assert ask("alert", "-Ab_9.1", "stop").code == 0


def test_what_the_judge_refuses_is_exit_code_1(ask: Any, there: Operated) -> None:
    there.operator.judge = lambda: Done("a-session", 1, False, "S2_MODEL", rules=["FSM"], reason="not in safe mode")

    told, as_json = ask("clear", "a-session.1"), ask("clear", "a-session.1", "--json")

    assert (told.code, told.out) == (1, "")
    assert "refused: FSM: not in safe mode" in told.err
    assert (as_json.code, json.loads(as_json.out)["accepted"]) == (1, False)


@pytest.mark.parametrize(
    "arguments",
    [
        ("answer", "q1"),
        ("answer", "nothing", "go"),
        ("alert", "elsewhere.1", "stop"),
        ("alert", "a-session", "stop"),
        ("alert", "a-session.2", "stop"),
        ("alert", "a-session.1", "x", "--severity", "huge"),
        ("revoke", "a-session.1"),
        ("revoke", "a-session.1", "--token", "t", "--grant", "g"),
        ("budget", "a-session.1"),
        ("budget", "a-session.1", "--seconds", "-1"),
        ("approve", "q1", "--uses", "0"),
        ("approve", "q1", "--life", "0"),
        ("fly",),
        ("pending", "--fly"),
        ("clear", "a-session.1", "--jsn"),
        ("alert", "a-session.1", "--severty=INFO"),
        ("answer", "q1", "--txt"),
    ],
)
def test_what_cannot_be_asked_for_is_one_line_and_changes_nothing(
    ask: Any, there: Operated, arguments: tuple[str, ...]
) -> None:
    told = ask(*arguments)

    assert told.code == 2
    assert "done" not in told.out
    assert told.err.startswith("proctor: ")
    assert told.err.count("\n") == 1
    assert there.operator.acts == []


def test_without_a_word_it_says_what_it_can_do(capsys: pytest.CaptureFixture[str]) -> None:
    names = [command.callback.__name__ for command in operator.registered_commands if command.callback]

    assert main(["operator"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in names)
    acts = {"answer", "approve", "deny", "alert", "clear", "revoke", "budget"}
    assert {"pending", "watch", "sessions", "link"} | acts == set(names)


# ------------------------------------------------------------------------------------------------------ how one gets in
def test_another_credential_is_refused_in_one_line(ask: Any, there: Operated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_OPERATOR_TOKEN", CONTROL_SECRET)

    told = ask("alert", "a-session.1", "stop")

    assert told.code == 2
    assert "refused the operator's credential" in told.err
    assert CONTROL_SECRET not in told.err
    assert there.operator.acts == []


def test_the_credential_is_found_in_the_state_file_or_the_one_that_is_named(
    ask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PROCTOR_OPERATOR_TOKEN")
    without = ask("pending")
    kept = tmp_path / "state" / "proctor" / "operator-token"
    made_by_asking = kept.exists()
    written(kept, OPERATOR_SECRET)
    from_state = ask("pending")
    written(kept, CONTROL_SECRET)
    from_file = ask("pending", "--token-file", str(written(tmp_path / "named", OPERATOR_SECRET)))

    assert (without.code, from_state.code, from_file.code) == (2, 0, 0)
    assert not made_by_asking


def test_a_file_that_is_named_beats_the_environment(ask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_OPERATOR_TOKEN", CONTROL_SECRET)

    assert ask("pending", "--token-file", str(written(tmp_path / "named", OPERATOR_SECRET))).code == 0
    assert "there is no file" in ask("pending", "--token-file", str(tmp_path / "nowhere")).err


def written(path: Path, secret: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.write_text(secret + "\n")
    path.chmod(0o600)
    return path


# ------------------------------------------------------------------------------------------------------------- watching
def test_watch_shows_time_session_state_who_packet_verdict_and_reason(ask: Any, there: Operated) -> None:
    there.say(principal="system", kind="ObservationPacket", state="S1_SENSE")
    there.say(accepted=False, kind="DecisionPacket", rules=["INV-005"], reason="the budget is spent")

    head, first, second = ask("watch", "--once").out.splitlines()

    assert head.split() == ["time", "episode", "state", "who", "packet", "verdict", "reason"]
    assert first.split()[1:] == ["a-session.1", "S1_SENSE", "system", "Observation", "accepted"]
    assert second.split(maxsplit=6)[1:] == [
        "a-session.1",
        "S2_MODEL",
        "agent",
        "Decision",
        "refused",
        "INV-005: the budget is spent",
    ]


def test_watch_can_be_narrowed(ask: Any, there: Operated) -> None:
    there.say(session="one")
    there.say(session="two", accepted=False, reason="no")
    there.say(session="two")

    def rows(*arguments: str) -> list[int]:
        return [json.loads(line)["row"] for line in ask("watch", "--once", "--json", *arguments).out.splitlines()]

    assert rows() == [1, 2, 3]
    assert rows("--after", "2") == [3]
    assert rows("--session", "two") == [2, 3]
    assert rows("--refused-only") == [2]
    assert rows("--new") == []


def test_rows_that_are_no_longer_kept_are_counted(ask: Any, there: Operated) -> None:
    there.operator.rows = RowLog(most=2)
    for _ in range(5):
        there.say()

    told = ask("watch", "--once", "--json")

    assert "3 rows are no longer kept" in told.err
    assert len(told.out.splitlines()) == 2


def test_watch_shows_rows_as_they_come_and_ends_by_ctrl_c(there: Operated, tmp_path: Path) -> None:
    there.say(kind="ObservationPacket")
    out = (tmp_path / "out").open("w+")
    command = [sys.executable, "-m", "proctor", "operator", "watch", "--url", there.url]
    with (
        out,
        subprocess.Popen(
            command, cwd=ROOT, env={**variables(tmp_path), **TOKEN}, stdout=out, stderr=subprocess.PIPE
        ) as process,
    ):
        until(lambda: "Observation" in (tmp_path / "out").read_text(), 60)
        there.say(kind="DecisionPacket")
        until(lambda: "Decision" in (tmp_path / "out").read_text())
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)

    assert process.returncode == 0
    assert err == b""
    until(lambda: there.on_loop(lambda: there.operator.watchers) == 0)


def test_watch_fits_its_terminal_and_ends_by_ctrl_c_there(there: Operated, tmp_path: Path) -> None:
    there.say(accepted=False, reason="word " * 100)
    environment = {**variables(tmp_path), **TOKEN, "TERM": "xterm-256color"}
    del environment["COLUMNS"]
    child: Any = pexpect.spawn(
        sys.executable,
        ["-m", "proctor", "operator", "watch", "--url", there.url],
        cwd=str(ROOT),
        env=environment,
        dimensions=(24, 110),
        timeout=300,
        encoding="utf-8",
    )
    try:
        child.expect("word[^\r\n]*\r\n")
        shown = Text.from_ansi(child.match.string.splitlines()[1]).plain
        child.sendintr()
        child.expect(pexpect.EOF)
        left = child.before
    finally:
        child.close()

    assert child.exitstatus == 0
    assert len(shown) <= 110
    assert shown.endswith("…")
    assert "Traceback" not in left


# -------------------------------------------------------------------------------------------------- a server that goes
class Script:
    """A client whose answers are written down; an exception is raised."""

    def __init__(self, answers: Sequence[JudgedRows | ProctorError]) -> None:
        self.answers = list(answers)
        self.asked: list[int] = []

    def page(self, after: int = 0, wait_seconds: float = 0.0) -> JudgedRows:
        self.asked.append(after)
        answer = self.answers.pop(0)
        if isinstance(answer, ProctorError):
            raise answer
        return answer


AWAY = ConnectionFailed("no connection")
STOPPING = RemoteError("the server is stopping", code="SHUTTING_DOWN")


class Followed:
    """What came of following a script, with time that passes only in pauses."""

    def __init__(self, *answers: JudgedRows | ProctorError) -> None:
        self.script, self.notes, self.rows, self.now = Script(answers), list[str](), list[int](), 0.0
        self.problem: Exception | None = None
        client: Any = self.script
        try:
            for page in read_pages(
                client, 0, follow=True, note=self.notes.append, clock=lambda: self.now, pause=self._pause
            ):
                self.rows += [each.row for each in page.rows]
        except (ProctorError, IndexError) as problem:
            self.problem = problem

    def _pause(self, seconds: float) -> None:
        self.now += seconds


def page(*numbers: int) -> JudgedRows:
    return JudgedRows(tuple(map(row, numbers)), numbers[-1] if numbers else 0, 0)


def test_a_server_that_comes_back_is_followed_from_its_first_row() -> None:
    followed = Followed(page(1, 2, 3), STOPPING, AWAY, AWAY, page(), page(1))

    assert followed.rows == [1, 2, 3, 1]
    assert followed.script.asked == [0, 3, 3, 3, 3, 0, 1]
    assert len(followed.notes) == 1


def test_a_server_that_stays_away_ends_the_feed() -> None:
    followed = Followed(page(1), *[AWAY] * 100)

    assert followed.problem is AWAY
    assert followed.now == pytest.approx(RETRY_SECONDS, abs=2)


@pytest.mark.parametrize("problem", [AWAY, ConnectionFailed("refused", found=401), RemoteError("busy", code="BUSY")])
def test_a_server_that_was_never_there_or_refuses_is_not_waited_for(problem: ProctorError) -> None:
    never = Followed(problem)
    later = Followed(page(1), ConnectionFailed("refused", found=401))

    assert (never.problem, never.now) == (problem, 0.0)
    assert later.now == 0.0


# ----------------------------------------------------------------------------------------------------- lines and widths
@given(
    width=st.integers(20, 300), reason=st.text(max_size=300), session=st.text(max_size=40), kind=st.text(max_size=40)
)
def test_a_row_is_one_printable_line_that_fits(width: int, reason: str, session: str, kind: str) -> None:
    form = OutputFormat(width, terminal=True, coloured=False)
    line = format_row(row(1, reason=reason, session=session, kind=kind, accepted=False), form)

    assert line.isprintable()
    assert len(line) <= max(width, COLUMNS_WIDTH + 10)


@given(st.lists(st.tuples(st.text(max_size=20), st.text(max_size=200)), max_size=3), st.none() | st.integers(20, 200))
def test_what_people_copy_is_never_shortened(entries: list[tuple[str, str]], width: int | None) -> None:
    given_ = [ListEntry((name, "x"), [ListDetail(text, word="go")]) for name, text in entries]

    shown = [line.plain for line in list_lines(("id", "b"), given_, width)]

    assert all(line.isprintable() for line in shown)
    heads = [line for line in shown[1:] if not line.startswith("    ") and line.endswith("x")]
    assert len(heads) >= sum(1 for name, _ in entries if name.strip())


def test_a_question_without_end_is_cut_and_says_so() -> None:
    entry = ListEntry(("q1",), [ListDetail("\n".join(str(number) for number in range(100)))])

    shown = [line.plain for line in list_lines(("id",), [entry], None)]

    assert shown[-1].strip() == "... 80 more lines: --json has all of it"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-5, "0 s"), (1.9, "1 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (NOON, "20089 d")],
)
def test_a_duration_is_told_in_one_unit(seconds: float, words: str) -> None:
    assert format_wait(seconds) == words
