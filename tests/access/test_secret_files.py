"""Secrets in files: private, whole, and one for all who start at once."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.access import credentials
from proctor.access.credentials import MOST_FILE_BYTES, read_or_make_private, read_private
from proctor.errors import ValidationError

TEXT = "a-secret-for-the-tests"


def private(path: Path, content: bytes = TEXT.encode(), mode: int = 0o600) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def never() -> str:
    raise AssertionError("nothing is to be made")


@pytest.mark.parametrize("umask", [0, 0o022, 0o277])
def test_a_new_file_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "token"
    tmp_path.chmod(0o700)
    before = os.umask(umask)
    try:
        made = read_or_make_private(path, lambda: TEXT)
    finally:
        os.umask(before)

    assert made == (TEXT, True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert names(path.parent) == ["token"]


def test_every_folder_that_is_made_is_for_its_owner_alone(tmp_path: Path) -> None:
    read_or_make_private(tmp_path / "a" / "b" / "token", lambda: TEXT)

    assert [stat.S_IMODE((tmp_path / each).stat().st_mode) for each in ("a", "a/b")] == [0o700, 0o700]


def test_a_file_that_is_there_is_used_again(tmp_path: Path) -> None:
    path = private(tmp_path / "token", TEXT.encode() + b"\r\n")

    assert read_or_make_private(path, never) == (TEXT, False)


@given(mode=st.integers(0, 0o777))
def test_a_file_is_read_only_if_nobody_else_can(tmp_path_factory: pytest.TempPathFactory, mode: int) -> None:
    path = private(tmp_path_factory.mktemp("modes") / "token", mode=mode | 0o400)

    if mode & 0o077 == 0:
        assert read_private(path, follow_links=False) == TEXT
        return
    with pytest.raises(ValidationError, match=f"chmod 600 {path}") as caught:
        read_private(path, follow_links=False)
    assert TEXT not in str(caught.value)


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = private(tmp_path / "token")
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)

    with pytest.raises(ValidationError, match="another user"):
        read_private(path, follow_links=False)


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_a_folder_in_which_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(mode)

    with pytest.raises(ValidationError, match=f"chmod 700 {folder}"):
        read_or_make_private(folder / "token", never)


def test_a_state_file_that_is_a_link_is_refused(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(private(tmp_path / "token"))
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "nowhere")

    for path in (link, dangling):
        with pytest.raises(ValidationError, match="symbolic link"):
            read_or_make_private(path, never)

    assert not (tmp_path / "nowhere").exists()


def test_a_named_file_may_be_a_link_and_its_target_is_judged(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(private(tmp_path / "token"))

    assert read_private(link, follow_links=True) == TEXT

    (tmp_path / "token").chmod(0o644)
    with pytest.raises(ValidationError, match="others can read"):
        read_private(link, follow_links=True)


def test_what_is_not_a_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    folder, pipe = tmp_path / "folder", tmp_path / "pipe"
    folder.mkdir(mode=0o700)
    os.mkfifo(pipe, 0o600)

    for path in (folder, pipe):
        with pytest.raises(ValidationError, match="not a regular file"):
            read_private(path, follow_links=True)


@pytest.mark.parametrize("content", [b"a" * (MOST_FILE_BYTES + 1), "schlüssel-des-hauses".encode(), b"\xff" * 40])
def test_a_file_that_cannot_hold_a_secret_is_refused(tmp_path: Path, content: bytes) -> None:
    path = private(tmp_path / "token", content)

    with pytest.raises(ValidationError, match="does not hold a secret"):
        read_private(path, follow_links=False)


def test_a_path_that_leads_through_a_file_is_refused(tmp_path: Path) -> None:
    private(tmp_path / "file")

    with pytest.raises(ValidationError, match="cannot be made"):
        read_or_make_private(tmp_path / "file" / "folder" / "token", never)
    with pytest.raises(ValidationError, match="cannot be read"):
        read_private(tmp_path / "file" / "token", follow_links=True)


def test_a_file_that_cannot_be_written_is_a_clear_refusal_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(Path, "hardlink_to", refuse)

    with pytest.raises(ValidationError, match="could not be written"):
        read_or_make_private(tmp_path / "token", lambda: TEXT)

    assert names(tmp_path) == []


def test_whoever_comes_second_takes_the_secret_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "token"

    def overtaken() -> str:
        private(path, b"the-secret-of-the-first")
        return TEXT

    assert read_or_make_private(path, overtaken) == ("the-secret-of-the-first", False)
    assert names(tmp_path) == ["token"]


def test_a_file_that_vanishes_in_between_is_a_clear_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "token"
    monkeypatch.setattr(credentials, "_place_file", lambda *_: False)

    with pytest.raises(ValidationError, match="was removed"):
        read_or_make_private(path, lambda: TEXT)


def test_threads_that_start_at_once_end_with_one_secret(tmp_path: Path) -> None:
    barrier = Barrier(8, timeout=300)

    def start(number: int, attempt: int) -> tuple[str, bool]:
        barrier.wait()
        return read_or_make_private(tmp_path / str(attempt) / "token", lambda: f"secret-of-thread-{number}")

    with ThreadPoolExecutor(8) as pool:
        for attempt in range(20):
            (tmp_path / str(attempt)).mkdir(mode=0o700)
            results = list(pool.map(start, range(8), [attempt] * 8))

            assert len({text for text, _ in results}) == 1
            assert sorted(made for _, made in results) == [False] * 7 + [True]


PROCESS = """
import sys
from pathlib import Path
from proctor.access.credentials import read_or_make_private
print("ready", flush=True)
sys.stdin.readline()
print(read_or_make_private(Path(sys.argv[1]), lambda: "secret-of-process-" + sys.argv[2])[0], flush=True)
"""


def test_processes_that_start_at_once_end_with_one_secret(tmp_path: Path) -> None:
    path = tmp_path / "proctor" / "token"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(path), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()

    secrets = [process.communicate(timeout=300)[0] for process in processes]

    assert len(set(secrets)) == 1
    assert secrets[0].startswith("secret-of-process-")
