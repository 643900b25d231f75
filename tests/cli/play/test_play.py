"""`proctor play`: both games in a real pseudo-terminal, which is always left as it was."""

import os
import shlex
import signal
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Thread
from typing import Any

import pexpect
import pyte
import pytest

from proctor.cli import play as module
from proctor.cli.main import main
from proctor.cli.play import PLAYERS, command_to_repeat, make_console, make_player
from proctor.cli.play.terminal import Terminal
from proctor.envs.settings import make_env
from proctor.errors import ValidationError

POPPER = "SpecKitAI/ColumnPopper-v1"
PLUME = "proctor/PlumeSearch-v0"
SOON = 120.0
"""Seconds that a test waits at most; it goes on as soon as it sees what it waits for."""
COLOURS = {"TERM": "xterm-256color"}
PLAIN = {"TERM": "xterm", "NO_COLOR": "1"}
ALTERNATE, NORMAL = b"\x1b[?1049h", b"\x1b[?1049l"
HIDDEN, SHOWN = b"\x1b[?25l", b"\x1b[?25h"


class Seat:
    """A person in front of a terminal in which `proctor play` runs."""

    def __init__(self, arguments: str, settings: dict[str, str], size: tuple[int, int]) -> None:
        inherited = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLORTERM", "TERM")}
        # The shell waits for a line, so that the attributes are read before the game can change them.
        command = f"echo ready; read go; exec {shlex.quote(sys.executable)} -m proctor play {arguments}"
        self.child = pexpect.spawn(
            "/bin/sh", ["-c", command], dimensions=size, timeout=SOON, env={**inherited, **settings}
        )
        self.rows, self.columns = size
        self.emulator = pyte.Screen(self.columns, self.rows)
        self._stream = pyte.ByteStream(self.emulator)
        self.bytes = b""
        self.until(lambda text: "ready" in text)
        self.attributes = termios.tcgetattr(self.child.child_fd)
        self.child.sendline("")

    @property
    def text(self) -> str:
        return "\n".join(self.emulator.display)

    def until(self, seen: Callable[[str], Any]) -> str:
        """Read until the screen shows it; fail when it does not soon."""
        deadline = time.monotonic() + SOON
        while not seen(self.text):
            if time.monotonic() > deadline:
                raise AssertionError(f"not seen in {SOON} s:\n{self.text}")
            self._read()
        return self.text

    def sees(self, *words: str) -> str:
        return self.until(lambda text: all(word in text for word in words))

    def _read(self) -> None:
        try:
            read = self.child.read_nonblocking(65536, timeout=0.2)
        except pexpect.TIMEOUT:
            return
        self.bytes += read
        self._stream.feed(read)

    def number(self, name: str) -> float:
        """Return the number that stands behind `name` on the screen."""
        return float(self.text.split(f"{name} ")[1].split()[0].split("/")[0])

    def ends(self) -> int:
        """Return the exit code, having seen that the terminal is as it was."""
        deadline = time.monotonic() + SOON
        try:
            while time.monotonic() < deadline:
                self._read()
        except pexpect.EOF:
            pass
        after = termios.tcgetattr(self.child.child_fd)
        self.child.close()
        assert after == self.attributes
        assert self.bytes.count(ALTERNATE) == self.bytes.count(NORMAL) >= 1
        assert self.bytes.rindex(ALTERNATE) < self.bytes.rindex(NORMAL)
        assert self.bytes.rindex(HIDDEN) < self.bytes.rindex(SHOWN)
        code: int = self.child.exitstatus
        return code


Take = Callable[..., Seat]


@pytest.fixture
def take() -> Iterator[Take]:
    """Take a seat; whoever still sits there at the end is asked to leave."""
    taken: list[Seat] = []

    def sit_down(arguments: str, settings: dict[str, str] | None = None, size: tuple[int, int] = (24, 80)) -> Seat:
        taken.append(Seat(arguments, COLOURS if settings is None else settings, size))
        return taken[-1]

    yield sit_down
    for seat in taken:
        seat.child.close(force=True)


def quits(seat: Seat) -> None:
    seat.child.send("q")


def interrupts(seat: Seat) -> None:
    seat.child.sendintr()


def is_terminated(seat: Seat) -> None:
    seat.child.kill(signal.SIGTERM)


Leave = Callable[[Seat], None]


@pytest.mark.parametrize(
    ("settings", "leave", "code"), [(COLOURS, quits, 0), (PLAIN, interrupts, 130)], ids=["colours", "no colours"]
)
def test_column_popper_is_played_with_keys(settings: dict[str, str], leave: Leave, code: int, take: Take) -> None:
    seat = take(f"{POPPER} --seed 3", settings)
    text = seat.sees("Column Popper   seed 3", "score 0", "next fall [", "a [s] d", "? keys")
    assert sum(line.strip()[:1] in ("|", "│", "!", "┃") for line in text.splitlines()) == 12
    assert (b"\x1b[38;5;" in seat.bytes) == (settings is COLOURS)

    seat.until(lambda text: seat.number("time") < 60)
    seat.child.send("a")
    seat.sees("[1]", "holding 1: place it")
    seat.child.send("\x1b[C\x1b")
    seat.sees("a  s [d]")
    seat.child.send("[D?")
    seat.sees("a [s] d", "a/s/d pick or place")
    leave(seat)

    assert seat.ends() == code


@pytest.mark.parametrize(
    ("settings", "leave", "code"),
    [(COLOURS, interrupts, 130), (PLAIN, is_terminated, 143)],
    ids=["colours", "no colours"],
)
def test_a_plume_is_searched_with_the_arrows(settings: dict[str, str], leave: Leave, code: int, take: Take) -> None:
    seat = take(f"{PLUME} --seed 3 --set grid_size=[20,15] --set max_steps=3", settings)
    seat.sees("Plume search   seed 3", "step 0/3", "return 0.00")

    seat.child.send("\x1b[A")
    seat.sees("step 1/3")
    seat.child.send("\x1bOC")
    seat.sees("step 2/3")
    seat.child.send("\x1b[B")
    seat.sees("out of steps", "steps  3")
    assert (b"\x1b[38;5;" in seat.bytes) == (settings is COLOURS)
    leave(seat)

    assert seat.ends() == code


def test_a_pause_hides_the_board_and_stops_the_clock_and_so_does_ctrl_z(take: Take) -> None:
    # A game that lasts, so that nothing ends it on a machine that has no time.
    seat = take(f"{POPPER} --seed 3 --speed 4 --set duration_ms=6000000 --set fall_curve=[[0,6000000]]")
    seat.sees("a [s] d")

    seat.child.send("p")
    seat.until(lambda text: "paused" in text and "a [s] d" not in text)
    time_left = seat.number("time")
    seat.child.send("?")
    seat.sees("a/s/d pick or place")
    assert seat.number("time") == time_left
    seat.child.send("p")
    seat.until(lambda text: "a [s] d" in text and seat.number("time") < time_left)
    seat.child.send("\x1a")
    seat.until(lambda text: NORMAL in seat.bytes)
    assert os.waitid(os.P_PID, seat.child.pid, os.WSTOPPED) is not None
    assert termios.tcgetattr(seat.child.child_fd) == seat.attributes
    seat.child.kill(signal.SIGCONT)
    seat.until(lambda text: seat.bytes.count(ALTERNATE) == 2 and "paused" in text)
    is_terminated(seat)

    assert seat.ends() == 143


def test_a_game_ends_with_its_result_and_can_be_played_again(take: Take) -> None:
    seat = take(f"{POPPER} --seed 3 --speed 4 --set duration_ms=1500 --set number_pool=[1,2]")

    seat.sees("game over  time is up", "score  0", "return  -0.65", "first game of this sitting")
    again = f"proctor play {POPPER} --seed 3 --set duration_ms=1500 --set 'number_pool=[1,2]'"
    assert again in " ".join(seat.text.split())
    seat.child.send("r")
    seat.until(lambda text: "seed 3" not in text)
    seat.sees("time is up", "of 2 games")
    seat.child.send("q")

    assert seat.ends() == 0
    assert b"best of 2: score 0; again: proctor play" in seat.bytes[seat.bytes.rindex(NORMAL) :]


def test_a_terminal_may_change_its_size_and_be_too_small(take: Take) -> None:
    seat = take(f"{POPPER} --seed 3", size=(10, 40))
    seat.sees("the terminal is too small", "it has 40 x 10", "needed: 44 x 17")

    seat.emulator.resize(40, 120)
    seat.child.setwinsize(40, 120)
    seat.sees("paused", "time 60.0 s")
    seat.child.send("p")
    seat.sees("a [s] d")
    seat.child.send("q")

    assert seat.ends() == 0


def run_here(monkeypatch: pytest.MonkeyPatch, keys: bytes, *arguments: str) -> tuple[int, bytes]:
    """Play in this process on a pseudo-terminal with `keys` typed ahead; return the exit code and what was written."""
    person, program = os.openpty()
    termios.tcsetwinsize(program, (24, 80))
    monkeypatch.setenv("TERM", "xterm")
    pieces: list[bytes] = []
    reader = Thread(target=collect, args=(person, pieces), daemon=True)
    reader.start()
    enter = Terminal.enter

    def enter_and_type(terminal: Any) -> None:
        enter(terminal)
        os.write(person, keys)

    monkeypatch.setattr(Terminal, "enter", enter_and_type)
    with os.fdopen(program, closefd=False) as source, os.fdopen(program, "w", closefd=False) as sink:
        monkeypatch.setattr(sys, "stdin", source)
        monkeypatch.setattr(sys, "stdout", sink)
        try:
            code = main(["play", *arguments])
        except SystemExit as problem:
            code = int(str(problem.code))
    os.close(program)
    reader.join(SOON)
    os.close(person)
    return code, b"".join(pieces)


def collect(person: int, pieces: list[bytes]) -> None:
    """Read until the other end is closed, so that whoever writes there never has to wait."""
    with suppress(OSError):
        while piece := os.read(person, 65536):
            pieces.append(piece)


def test_a_sitting_in_this_process_ends_with_the_best_game(monkeypatch: pytest.MonkeyPatch) -> None:
    code, written = run_here(monkeypatch, b"\x1b[A\x1b[Aq", PLUME, "--seed", "3", "--set", "max_steps=2")

    assert code == 0
    assert written.endswith(f"again: proctor play {PLUME} --seed 3 --set max_steps=2\r\n".encode())


def test_who_leaves_in_the_first_game_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    code, written = run_here(monkeypatch, b"q", POPPER)

    assert code == 0
    assert written.endswith(NORMAL)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGQUIT, 131)]
)
def test_every_deadly_signal_has_its_exit_code(number: int, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    look = Terminal.size

    def size_and_signal(terminal: Any) -> tuple[int, int]:
        os.kill(os.getpid(), number)
        return look(terminal)

    monkeypatch.setattr(Terminal, "size", size_and_signal)
    ended, written = run_here(monkeypatch, b"", POPPER)

    assert ended == code
    assert written.endswith(NORMAL)


def test_a_stop_and_a_small_terminal_pause_the_game(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [(80, 24), (30, 10), (80, 24)]
    stops: list[Terminal] = []

    def stop_then_end(terminal: Terminal) -> tuple[int, int]:
        if not stops:
            os.kill(os.getpid(), signal.SIGTSTP)
        if not sizes:
            terminal.write("ended")
            os.kill(os.getpid(), signal.SIGTERM)
            return 80, 24
        return sizes.pop(0)

    def stopped(terminal: Terminal) -> None:
        stops.append(terminal)
        terminal.write("stopped")

    monkeypatch.setattr(Terminal, "size", stop_then_end)
    monkeypatch.setattr(Terminal, "suspend", stopped)
    code, written = run_here(monkeypatch, b"", POPPER)

    assert (code, len(stops)) == (143, 1)
    playing, small, back = (written.index(word) for word in (b"a [s] d", b"too small", b"paused"))
    assert playing < written.index(b"stopped") < small < back < written.index(b"ended")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["CartPole-v1"], "nobody can play this environment"),
        ([PLUME, "--set", "action=continuous"], "nobody can play these actions"),
        ([POPPER, "--set", "colums=3"], "columns"),
    ],
)
def test_what_nobody_can_play_is_refused_before_the_terminal_is_touched(
    arguments: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, written = run_here(monkeypatch, b"", *arguments)

    assert (code, written) == (2, b"")
    assert says in capsys.readouterr().err


def test_a_stream_that_is_closed_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)

    with pytest.raises(ValidationError, match="standard input"):
        module.check_terminal()


def test_a_person_can_play_every_environment_of_ours() -> None:
    assert {kind.__name__ for kind in PLAYERS} == {"PlumeSearchEnv", "ColumnPopperEnv"}
    for env_id in (PLUME, POPPER, "proctor/ColumnPopper-v0"):
        assert make_player(make_env(env_id, {})).title


@pytest.mark.parametrize(("term", "coloured"), [("vt100", False), ("dumb", False), ("xterm", True)])
def test_terminals_of_old_have_no_colours(term: str, coloured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("FORCE_COLOR", "1")

    assert (make_console(term).color_system is not None) is coloured


def test_the_way_back_to_a_game_has_its_settings() -> None:
    assert command_to_repeat(PLUME, 7, ["max_steps=3", "grid_size=[9, 9]"]) == (
        f"proctor play {PLUME} --seed 7 --set max_steps=3 --set 'grid_size=[9, 9]'"
    )
