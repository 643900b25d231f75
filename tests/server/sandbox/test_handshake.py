"""Who listens learns from the kernel who spoke."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.server.sandbox import messages
from proctor.server.sandbox.pool.worker_process import find_pid
from tests.server.live_server import PATIENCE
from tests.server.sandbox.processes import files


def test_a_word_comes_with_the_very_process_that_spoke() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(PATIENCE)
        messages.set_peer_identity(ours, wanted=True)
        speaking = f"import socket; socket.socket(fileno={theirs.fileno()}).send(b'h')"
        child = subprocess.Popen([sys.executable, "-c", speaking], pass_fds=[theirs.fileno()])
        with messages.receive_handshake(ours) as word:
            speaker = find_pid(word.speaker)
            child.wait(PATIENCE)
            after = find_pid(word.speaker)

    assert (word.kind, word.reason) == (messages.HERE, "")
    assert speaker == child.pid
    assert after == 0


def test_an_older_kernel_names_the_process_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "SO_PASSPIDFD", 9999)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        messages.set_peer_identity(ours, wanted=True)
        messages.send_handshake(theirs, messages.HERE)
        with messages.receive_handshake(ours) as word:
            assert find_pid(word.speaker) == os.getpid()


def test_a_process_that_is_gone_has_no_descriptor_on_an_older_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: int) -> int:
        raise ProcessLookupError

    monkeypatch.setattr(messages, "SO_PASSPIDFD", 9999)
    monkeypatch.setattr(os, "pidfd_open", gone)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        messages.set_peer_identity(ours, wanted=True)
        messages.send_handshake(theirs, messages.HERE)

        assert messages.receive_handshake(ours) == messages.HandshakeMessage(messages.HERE)


@pytest.mark.parametrize("listens", [True, False])
def test_descriptors_that_come_with_a_word_are_closed_and_the_word_counts_for_nothing(listens: bool) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        if listens:
            messages.set_peer_identity(ours, wanted=True)
        before = files()
        for _ in range(3):
            socket.send_fds(theirs, [messages.HERE], [0, 1, 2, theirs.fileno()])

        said = [messages.receive_handshake(ours) for _ in range(3)]

        assert said == [messages.HandshakeMessage(b"")] * 3
        assert files() == before


def test_nobody_is_named_once_the_words_are_over() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        messages.set_peer_identity(ours, wanted=True)
        messages.set_peer_identity(ours, wanted=False)
        messages.send_handshake(theirs, messages.READY)

        assert messages.receive_handshake(ours) == messages.HandshakeMessage(messages.READY)


@given(st.text(max_size=2 * messages.LONGEST_WORD))
def test_a_reason_is_read_as_it_was_said_and_cut_off_if_it_is_long(reason: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        messages.send_handshake(theirs, messages.UNFIT, reason)
        word = messages.receive_handshake(ours)

    assert word.kind == messages.UNFIT
    assert len(word.reason) <= messages.LONGEST_WORD
    if len(reason.encode("utf-8", "replace")) < messages.LONGEST_WORD:
        assert word.reason == messages.printable_line(reason.encode("utf-8", "replace").decode())
    assert word.reason.isprintable()


def test_a_socket_that_was_closed_says_no_word() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        theirs.sendall(b"")
        ours.sendall(b"unread")  # so that closing resets the connection
        theirs.close()

        assert messages.receive_handshake(ours).kind == b""
