"""The terminal: taken, read, and put back whatever happens."""

import os
import select
import signal
import termios
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.cli.play.terminal import ENTER, LEAVE, LONGEST, WATCHED_SIGNALS, Keyboard, TerminalEvent, open_terminal

SOON = 5.0
"""Seconds that a test waits at most."""


@pytest.fixture
def line() -> Iterator[tuple[int, int]]:
    """The two ends of a pseudo-terminal of 80 by 24: the keyboard and screen, and the program's side."""
    person, program = os.openpty()
    termios.tcsetwinsize(program, (24, 80))
    yield person, program
    for end in (person, program):
        os.close(end)


def written(person: int) -> str:
    """Return what the screen has got, up to now."""
    text = b""
    while select.select([person], [], [], 0)[0]:
        text += os.read(person, 65536)
    return text.decode()


def test_a_terminal_is_taken_and_put_back(line: tuple[int, int]) -> None:
    person, program = line
    before = termios.tcgetattr(program)

    with open_terminal(program, program) as terminal:
        taken = termios.tcgetattr(program)
        assert terminal.size() == (80, 24)
        terminal.write("hello")

    assert not taken[3] & (termios.ICANON | termios.ECHO)
    assert taken[3] & termios.ISIG
    assert termios.tcgetattr(program) == before
    assert written(person) == f"{ENTER}hello{LEAVE}"


@pytest.mark.parametrize("problem", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_a_terminal_is_put_back_when_the_game_fails(problem: type[BaseException], line: tuple[int, int]) -> None:
    person, program = line
    before = termios.tcgetattr(program)
    handlers = {number: signal.getsignal(number) for number in WATCHED_SIGNALS}

    with pytest.raises(problem), open_terminal(program, program):
        raise problem

    assert termios.tcgetattr(program) == before
    assert written(person).endswith(LEAVE)
    assert {number: signal.getsignal(number) for number in WATCHED_SIGNALS} == handlers


def test_a_place_that_is_no_terminal_is_left_as_it_is(tmp_path: Any) -> None:
    path = tmp_path / "file"
    with path.open("w+b") as file, pytest.raises(termios.error), open_terminal(file.fileno(), file.fileno()):
        pass

    assert path.read_bytes() == b""


def test_keys_come_without_an_enter_and_unseen(line: tuple[int, int]) -> None:
    person, program = line

    with open_terminal(program, program) as terminal:
        os.write(person, b"as\x1b[A")
        event = terminal.wait(SOON)

    assert event == TerminalEvent(read=b"as\x1b[A")
    assert "as" not in written(person)


def test_a_wait_without_anything_ends_in_time(line: tuple[int, int]) -> None:
    with open_terminal(line[1], line[1]) as terminal:
        assert terminal.wait(0.01) == TerminalEvent()


@pytest.mark.parametrize("number", WATCHED_SIGNALS)
def test_a_signal_ends_the_wait_and_is_told(number: signal.Signals, line: tuple[int, int]) -> None:
    with open_terminal(line[1], line[1]) as terminal:
        os.kill(os.getpid(), number)

        assert terminal.wait(SOON) == TerminalEvent(signals=frozenset({number}))


def test_ctrl_c_is_a_signal_of_the_terminal(line: tuple[int, int]) -> None:
    person, program = line

    with open_terminal(program, program) as terminal:
        os.write(person, b"\x03")
        event = terminal.wait(0.05)

    # The pseudo-terminal is not the one that controls this process, so no signal follows; but it is no key either.
    assert event == TerminalEvent()


def test_a_keyboard_that_is_gone_is_told_and_putting_back_does_not_fail() -> None:
    person, program = os.openpty()
    with open_terminal(program, program) as terminal:
        os.close(person)

        assert terminal.wait(SOON).closed
        assert terminal.size() == (80, 24)
    os.close(program)


def test_a_keyboard_that_fails_is_gone_too(line: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    person, program = line

    def fail(source: int, size: int) -> bytes:
        raise OSError(5, "Input/output error")

    with open_terminal(program, program) as terminal, monkeypatch.context() as patched:
        os.write(person, b"a")
        patched.setattr(os, "read", fail)

        assert terminal.wait(SOON) == TerminalEvent(closed=True)


def test_a_stopped_game_leaves_the_terminal_to_the_shell_and_takes_it_again(
    line: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    person, program = line
    before = termios.tcgetattr(program)
    seen: list[Any] = []

    def stop(process: int, number: int) -> None:
        seen.extend([process, number, termios.tcgetattr(program), written(person)])

    with open_terminal(program, program) as terminal:
        taken = termios.tcgetattr(program)
        monkeypatch.setattr(os, "kill", stop)
        terminal.suspend()

        assert seen == [os.getpid(), signal.SIGSTOP, before, ENTER + LEAVE]
        assert termios.tcgetattr(program) == taken
        assert written(person) == ENTER
    assert termios.tcgetattr(program) == before


def test_a_long_text_is_written_whole(line: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    _, program = line
    pieces: list[bytes] = []

    def slowly(sink: int, text: bytes) -> int:
        pieces.append(text[:3])
        return len(text[:3])

    with open_terminal(program, program) as terminal, monkeypatch.context() as patched:
        patched.setattr(os, "write", slowly)
        terminal.write("0123456789")

    assert b"".join(pieces) == b"0123456789"


def test_a_terminal_that_does_not_know_its_size_has_80_by_24(line: tuple[int, int]) -> None:
    _, program = line
    termios.tcsetwinsize(program, (0, 0))

    with open_terminal(program, program) as terminal:
        assert terminal.size() == (80, 24)


PIECES = st.lists(
    st.sampled_from(
        [b"a", b"Q", b" ", b"\r", b"\x1b[A", b"\x1bOB", b"\x1b[1;5C", b"\x1b[D", b"\x1b[15~", b"\xc3\xa9", b"?"]
    )
)


@pytest.mark.parametrize(
    ("read", "keys"),
    [
        (b"asd", ["a", "s", "d"]),
        (b"ASD?1", ["a", "s", "d", "?", "1"]),
        (b" \r\n", ["space", "enter", "enter"]),
        (b"\x1b[A\x1b[B\x1b[C\x1b[D", ["up", "down", "right", "left"]),
        (b"\x1bOA\x1bOD", ["up", "left"]),
        (b"\x1b[1;2A", ["up"]),
        (b"\x1b[3~x\x1bOP", ["x"]),
        (b"\x1bq", ["q"]),
        (b"\x1b\x1b[A", ["up"]),
        ("é→a".encode(), ["a"]),
        (b"\x00\x07\x7f", []),
        (b"", []),
    ],
)
def test_bytes_are_the_keys_they_stand_for(read: bytes, keys: list[str]) -> None:
    assert Keyboard().keys(read) == keys


@given(pieces=PIECES, cuts=st.sets(st.integers(0, 60)))
def test_the_keys_are_the_same_wherever_the_bytes_are_cut(pieces: list[bytes], cuts: set[int]) -> None:
    text = b"".join(pieces)
    edges = [0, *sorted(cut for cut in cuts if 0 < cut < len(text)), len(text)]
    keyboard = Keyboard()

    in_pieces = [key for start, end in pairwise(edges) for key in keyboard.keys(text[start:end])]

    assert in_pieces == Keyboard().keys(text)


@given(st.lists(st.binary(max_size=8)))
def test_no_bytes_are_kept_for_ever(reads: list[bytes]) -> None:
    keyboard = Keyboard()
    for read in reads:
        keyboard.keys(read)

    keyboard.keys(b"\x18")
    assert keyboard.keys(b"q") == ["q"]


def test_a_sequence_without_an_end_is_given_up() -> None:
    keyboard = Keyboard()

    assert keyboard.keys(b"\x1b[" + b"1" * LONGEST) == []
    assert keyboard.keys(b"q") == ["q"]
