"""A peer answers over its pipe, and one that cannot is a named gap."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench import peers
from bench.measure import Gap
from bench.peers import Peer, peer, peers_python, version_of

PEER = ("bench.peer_plume_nav_sim", "plume-nav-sim")


def script(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a child script that the next Peer can run; return its module's name."""
    (folder / "child_of_a_test.py").write_text(text, "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return "child_of_a_test"


def test_a_peer_that_is_not_installed_is_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_PEERS", str(tmp_path / "nowhere"))

    with ExitStack() as stack, pytest.raises(Gap, match="not installed"):
        peer(*PEER)(stack)
    assert version_of("plume-nav-sim") is None


def test_a_peer_whose_package_is_missing_is_a_gap_with_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_PEERS", sys.executable)

    with ExitStack() as stack, pytest.raises(Gap, match=r"plume-nav-sim cannot be run: .*plume_nav_sim"):
        peer(*PEER)(stack)
    assert version_of("no-such-package") is None


def test_the_peers_may_be_named_by_folder_or_by_interpreter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.touch()
    for named in (tmp_path, python):
        monkeypatch.setenv("PROCTOR_PEERS", str(named))
        assert peers_python() == python


def test_a_peer_answers_each_time_it_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = script(
        tmp_path,
        "import sys\nprint('{}', flush=True)\n"
        "for line in sys.stdin: print('{\"rate\": ' + line.split()[1] + '}', flush=True)\n",
        monkeypatch,
    )

    with Peer(Path(sys.executable), module, "a peer") as child:
        assert [child.measure(seconds) for seconds in (0.5, 2.0)] == [0.5, 2.0]


def test_a_peer_that_dies_later_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = script(tmp_path, "print('{}', flush=True)\ninput()\nraise SystemExit('enough')\n", monkeypatch)

    with Peer(Path(sys.executable), module, "a peer") as child, pytest.raises(ChildProcessError, match="enough"):
        child.measure(0.1)


def test_a_peer_that_says_nothing_is_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = script(tmp_path, "import sys\nsys.stdin.read()\n", monkeypatch)
    monkeypatch.setattr(peers, "PATIENCE", 0.2)

    with pytest.raises(Gap, match="does not answer"):
        Peer(Path(sys.executable), module, "a peer")


@pytest.mark.system
def test_plume_nav_sim_is_measured_in_its_own_environment() -> None:
    with ExitStack() as stack:
        measure = peer(*PEER)(stack)
        found = measure(0.05)

    assert found > 0.0
    assert version_of("plume-nav-sim") == "0.1.0"
