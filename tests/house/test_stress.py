"""Tests under load: every run is counted, and nothing is left running."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import stress


@pytest.fixture(autouse=True)
def kept_signal() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_run_that_fails_is_told_and_the_others_go_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = iter([True, False, True])
    given: list[list[str]] = []

    def run_tests(arguments: list[str]) -> bool:
        given.append(arguments)
        return next(ends)

    monkeypatch.setattr(stress, "run_tests", run_tests)

    code = stress.main(["--loops", "1", "--repeat", "3", "--", "tests/house", "-x"])

    assert code == 1
    assert given == [["tests/house", "-x"]] * 3
    assert "2 of 3 runs passed" in capsys.readouterr().out


def test_tests_run_with_sigint_ignored(tmp_path: Path) -> None:
    seen = tmp_path / "test_it.py"
    seen.write_text("import signal\n\ndef test_it():\n    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN\n")

    assert stress.main(["--loops", "0", "--", str(seen), "-p", "no:cacheprovider", "-c", "/dev/null"]) == 0


def test_the_busy_loops_end_with_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def remember(*arguments: object, **options: object) -> subprocess.Popen[bytes]:
        started.append(start(*arguments, **options))  # type: ignore[call-overload]
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", remember)
    with stress.busy_loops(2):
        alive = [loop.poll() for loop in started]

    assert alive == [None, None]
    assert [loop.returncode for loop in started] == [-signal.SIGKILL] * 2
