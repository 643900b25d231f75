"""Who listens learns from the kernel who spoke."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.server.sandbox import words
from proctor.server.sandbox.hold import pid_of
from proctor.server.sandbox.words import (
    HERE,
    LONGEST,
    READY,
    UNFIT,
    Word,
    heard,
    listen_for_messages,
    listen_for_words,
    one_line,
    say,
)
from tests.server.sandbox.processes import files
from tests.server.served import PATIENCE


def test_a_word_comes_with_the_very_process_that_spoke() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(PATIENCE)
        listen_for_words(ours)
        speaking = f"import socket; socket.socket(fileno={theirs.fileno()}).send(b'h')"
        child = subprocess.Popen([sys.executable, "-c", speaking], pass_fds=[theirs.fileno()])
        with heard(ours) as word:
            speaker = pid_of(word.speaker)
            child.wait(PATIENCE)
            after = pid_of(word.speaker)

    assert (word.kind, word.reason) == (HERE, "")
    assert speaker == child.pid
    assert after == 0


def test_an_older_kernel_names_the_process_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "SO_PASSPIDFD", 9999)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        listen_for_words(ours)
        say(theirs, HERE)
        with heard(ours) as word:
            assert pid_of(word.speaker) == os.getpid()


def test_a_process_that_is_gone_has_no_descriptor_on_an_older_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: int) -> int:
        raise ProcessLookupError

    monkeypatch.setattr(words, "SO_PASSPIDFD", 9999)
    monkeypatch.setattr(os, "pidfd_open", gone)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        listen_for_words(ours)
        say(theirs, HERE)

        assert heard(ours) == Word(HERE)


@pytest.mark.parametrize("listens", [True, False])
def test_descriptors_that_come_with_a_word_are_closed_and_the_word_counts_for_nothing(listens: bool) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        if listens:
            listen_for_words(ours)
        before = files()
        for _ in range(3):
            socket.send_fds(theirs, [HERE], [0, 1, 2, theirs.fileno()])

        said = [heard(ours) for _ in range(3)]

        assert said == [Word(b"")] * 3
        assert files() == before


def test_nobody_is_named_once_the_words_are_over() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        listen_for_words(ours)
        listen_for_messages(ours)
        say(theirs, READY)

        assert heard(ours) == Word(READY)


@given(st.text(max_size=2 * LONGEST))
def test_a_reason_is_read_as_it_was_said_and_cut_off_if_it_is_long(reason: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        say(theirs, UNFIT, reason)
        word = heard(ours)

    assert word.kind == UNFIT
    assert len(word.reason) <= LONGEST
    if len(reason.encode("utf-8", "replace")) < LONGEST:
        assert word.reason == one_line(reason.encode("utf-8", "replace").decode())
    assert word.reason.isprintable()


def test_a_socket_that_was_closed_says_no_word() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        theirs.sendall(b"")
        ours.sendall(b"unread")  # so that closing resets the connection
        theirs.close()

        assert heard(ours).kind == b""
