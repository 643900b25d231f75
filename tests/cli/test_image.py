"""`proctor image`: what it says, what it asks of an engine, and what it refuses. The engine is a stand-in."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest

from proctor.cli import image as command
from proctor.cli.main import main
from proctor.server.sandbox.container.image import ImageContents, ImageRequest
from proctor.server.sandbox.container.image_archive import TextEntry
from proctor.server.sandbox.handshake import LoadReport
from proctor.server.sandbox.messages import WorkerReply
from tests.server.sandbox.fake_engine import StandIn, canned, stand_in

SMALL = ImageContents({"/opt/proctor/a": TextEntry(b"a" * 3_000)}, ("/opt/proctor/python",), ())


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """A docker on the PATH that makes any environment, and contents that are quickly packed."""
    (tmp_path / "bin").mkdir()
    made = stand_in(tmp_path / "bin")
    made.runs(canned(LoadReport(), WorkerReply(card=b"a card")))
    monkeypatch.setenv("PATH", f"{made.folder}:{os.environ['PATH']}")
    monkeypatch.setattr(command, "collect_contents", lambda wish: SMALL)
    return made


def test_an_image_is_built_tried_and_told_with_its_size(engine: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["image", "CartPole-v1", "--tag", "mine:1"])

    out = capsys.readouterr().out.splitlines()
    assert code == 0
    assert out == [
        "mine:1  10.2 kB in 1 files",
        "proctor serve CartPole-v1 --sandbox docker --image mine:1",
    ]
    assert [verb for verb in engine.verbs() if verb in ("load", "run")] == ["load", "run"]


def test_as_json_everything_is_told(engine: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["image", "CartPole-v1", "--json", "--no-try"])

    captured = capsys.readouterr()
    told = json.loads(captured.out)
    assert code == 0
    assert captured.err == ""
    assert told == {
        "target": "CartPole-v1",
        "image": f"proctor-env:cartpole-v1-{told['id'][:12]}",
        "id": told["id"],
        "bytes": 10240,
        "files": 1,
        "base": None,
        "file": None,
        "missing": [],
    }
    assert "run" not in engine.verbs()


def test_a_file_is_written_without_any_engine(
    engine: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    out = tmp_path / "image.tar"

    code = main(["image", "CartPole-v1", "--out", str(out), "--tag", "mine:1"])

    assert code == 0
    assert f"docker load --input {out}" in capsys.readouterr().out
    assert engine.asked() == []
    with tarfile.open(out) as tar:
        assert "manifest.json" in tar.getnames()


def test_what_the_user_says_is_what_is_wished_for(
    engine: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wishes: list[ImageRequest] = []

    def noted(wish: ImageRequest) -> ImageContents:
        wishes.append(wish)
        return SMALL

    monkeypatch.setattr(command, "collect_contents", noted)

    code = main(
        [
            "image",
            "a:B",
            "--base",
            "debian:12",
            "--mount",
            str(tmp_path),
            "--with",
            "scipy",
            "--with",
            "x[y]",
            "--no-try",
        ]
    )

    assert code == 0
    assert [(wish.target, wish.base, wish.beside) for wish in wishes] == [("a:B", "debian:12", ("scipy", "x[y]"))]
    assert [mount.path for mount in wishes[0].mounts] == [tmp_path]


def test_what_is_required_and_missing_is_a_warning(
    engine: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lacking = ImageContents(SMALL.tree, SMALL.entrypoint, ("scipy", "libodd.so.1"))
    monkeypatch.setattr(command, "collect_contents", lambda wish: lacking)

    code = main(["image", "CartPole-v1", "--no-try"])

    assert code == 0
    assert "not found on this machine: scipy, libodd.so.1" in capsys.readouterr().err


def test_an_environment_that_cannot_be_made_in_the_image_is_told_with_what_helps(
    engine: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.runs(canned(LoadReport("No module named 'scipy'")))

    code = main(["image", "CartPole-v1", "--tag", "mine:1"])

    said = capsys.readouterr().err
    assert code == 2
    assert "the image mine:1 is there, but CartPole-v1 could not be made in it: No module named 'scipy'" in said
    assert "--with NAME" in said


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--engine", "lxc"], "unknown container engine"),
        (["--mount", "relative"], "no path to mount"),
        (["--set", "nonsense"], "not a setting"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_built(
    engine: StandIn, capsys: pytest.CaptureFixture[str], arguments: list[str], reason: str
) -> None:
    code = main(["image", "CartPole-v1", *arguments])

    assert code == 2
    assert reason in capsys.readouterr().err
    assert "load" not in engine.verbs()


def test_without_an_engine_it_is_said_what_to_install(
    engine: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    code = main(["image", "CartPole-v1"])

    assert code == 2
    assert "docker or podman installed" in capsys.readouterr().err


def test_a_daemon_that_does_not_run_is_told(engine: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    engine.answers("refuses", "Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?")

    code = main(["image", "CartPole-v1", "--engine", "docker"])

    assert code == 2
    assert "the docker daemon does not answer" in capsys.readouterr().err
