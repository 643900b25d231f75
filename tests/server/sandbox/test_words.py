"""Who listens learns from the kernel who spoke."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from proctor.server.sandbox.words import (
    HERE,
    LONGEST,
    READY,
    UNFIT,
    Word,
    heard,
    listen_for_messages,
    listen_for_words,
    say,
)
from tests.server.served import PATIENCE


def test_a_word_comes_with_the_number_of_the_process_that_spoke() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(PATIENCE)
        listen_for_words(ours)
        speaking = f"import socket; socket.socket(fileno={theirs.fileno()}).send(b'h')"
        child = subprocess.Popen([sys.executable, "-c", speaking], pass_fds=[theirs.fileno()])
        word = heard(ours)
        child.wait(PATIENCE)

    assert word == Word(HERE, child.pid)
    assert child.pid != os.getpid()


def test_nobody_is_named_once_the_words_are_over() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        listen_for_words(ours)
        listen_for_messages(ours)
        say(theirs, READY)

        assert heard(ours) == Word(READY, 0)


@given(st.text(max_size=2 * LONGEST))
def test_a_reason_is_read_as_it_was_said_and_cut_off_if_it_is_long(reason: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        say(theirs, UNFIT, reason)
        word = heard(ours)

    assert word.kind == UNFIT
    assert len(word.reason) <= LONGEST
    if len(reason.encode("utf-8", "replace")) < LONGEST:
        assert word.reason == reason.encode("utf-8", "replace").decode()


def test_a_socket_that_was_closed_says_no_word() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        theirs.sendall(b"")
        ours.sendall(b"unread")  # so that closing resets the connection
        theirs.close()

        assert heard(ours).kind == b""
