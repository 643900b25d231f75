"""`proctor demo`: a show in a terminal, still pictures elsewhere, a film and a table."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pexpect
import pytest
from rich.console import Console

from proctor.cli import demo as module
from proctor.cli.demo import ENV_ID, SHOW, STEPS_PER_SECOND, Pace, watch_live, watch_stills
from proctor.cli.main import main
from proctor.envs.plume.policies import POLICIES
from proctor.envs.settings import made
from proctor.errors import MissingExtraError

SHORT = 3
"""A seed whose search is over soon."""


class Time:
    """A clock that moves when somebody sleeps, and by `cost` whenever it is read."""

    def __init__(self, cost: float = 0.0) -> None:
        self.now = 100.0
        self.cost = cost
        self.slept: list[float] = []

    def clock(self) -> float:
        self.now += self.cost
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)

    def pace(self) -> Pace:
        return Pace(self.clock, self.sleep)


def test_a_fast_machine_waits_for_every_step() -> None:
    time = Time()
    pace = time.pace()

    assert [pace.waits() for _ in range(5)] == [True] * 5
    assert time.now == pytest.approx(100.0 + 4 / STEPS_PER_SECOND)


def test_a_slow_machine_leaves_pictures_out_and_never_sleeps() -> None:
    time = Time(cost=1.0)
    pace = time.pace()

    assert [pace.waits() for _ in range(3)] == [True, False, False]
    assert time.slept == []


def test_the_show_draws_and_its_last_picture_is_the_end() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=60, height=20, color_system="truecolor", _environ={})

    result = watch_live(console, made(ENV_ID, SHOW), SHORT, Time().pace())

    assert result.success
    assert "step    0" in screen.getvalue()
    assert f"step {result.steps:>4}" in screen.getvalue()


def test_the_end_is_drawn_even_when_it_comes_late() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=60, height=20, _environ={})

    result = watch_live(console, made(ENV_ID, SHOW), SHORT, Time(cost=1.0).pace())

    assert f"step {result.steps:>4}" in screen.getvalue()
    assert "step   20" not in screen.getvalue()


def test_stills_are_the_first_moment_the_last_and_one_between() -> None:
    screen = io.StringIO()
    console = Console(file=screen, width=60, height=20, _environ={})

    result = watch_stills(console, made(ENV_ID, SHOW), SHORT)

    shown = [line.split()[1] for line in screen.getvalue().splitlines() if line.startswith("step")]
    assert shown == ["0", str(result.steps // 2), str(result.steps)]


def test_the_demo_without_a_terminal_prints_pictures_a_table_and_writes_the_film(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "demo.gif"

    code = main(["demo", "--gif", str(path), "--seed", str(SHORT), "--episodes", "2"])

    out, err = capsys.readouterr()
    assert code == 0
    assert err == ""
    assert "It found the source" in out
    assert all(name in out for name in POLICIES)
    assert path.read_bytes().startswith(b"GIF8")


def test_the_demo_goes_on_without_the_extra_that_writes_films(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_film(*_: object, **__: object) -> None:
        raise MissingExtraError("writing a film", package="imageio-ffmpeg", extra="video")

    monkeypatch.setattr(module, "film", no_film)

    assert main(["demo", "--no-live", "--seed", str(SHORT), "--episodes", "1"]) == 0
    assert "proctor[video]" in capsys.readouterr().out.replace("\n", "")


def test_a_search_that_fails_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "SHOW", {**SHOW, "max_steps": 2})

    assert main(["demo", "--gif", str(tmp_path / "short.gif"), "--episodes", "1"]) == 0
    assert "did not find the source in 2 steps" in capsys.readouterr().out


def test_a_bad_seed_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--seed", "-3"]) == 2

    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("gif", "says"),
    [("bad.txt", ".gif, .mp4"), ("nowhere/demo.gif", "no such folder"), ("/proc/demo.gif", "could not be written")],
)
def test_a_place_without_a_film_is_refused_before_the_show(
    gif: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--gif", gif, "--seed", str(SHORT), "--episodes", "1"]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert err.count("\n") == 1


def test_a_real_terminal_sees_the_search_live(tmp_path: Path) -> None:
    arguments = ["-m", "proctor", "demo", "--seed", str(SHORT), "--episodes", "1", "--gif", str(tmp_path / "live.gif")]
    child = pexpect.spawn(sys.executable, arguments, dimensions=(30, 100), timeout=60, encoding="utf-8")

    child.expect("step    0")
    child.expect("found the source")
    child.expect("surge_cast")
    child.expect(pexpect.EOF)
    child.close()

    assert child.exitstatus == 0
