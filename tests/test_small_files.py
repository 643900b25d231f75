import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.cli.options import parse_actions
from proctor.errors import ValidationError
from proctor.server.governed.policy import load_policy
from proctor.server.settings import read_settings_file
from proctor.small_files import read_small_text


@given(st.text(max_size=50))
def test_a_text_comes_back(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "text"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())

    assert read_small_text(path, expected="text") == text


def test_what_is_longer_than_the_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_bytes(b"x" * 11)

    assert read_small_text(path, expected="text", most=11) == "x" * 11
    with pytest.raises(ValidationError, match="longer than 10 bytes"):
        read_small_text(path, expected="text", most=10)


def test_a_file_that_says_terabytes_takes_none(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    path.touch()
    os.truncate(path, 2**40)

    with pytest.raises(ValidationError, match="longer than"):
        read_small_text(path, expected="text")


@pytest.mark.parametrize("name", ["pipe", "folder", "device", "nowhere", "bytes", "null\0byte"])
def test_what_is_no_text_file_is_named(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "bytes").write_bytes(b"\xff")

    with pytest.raises(ValidationError, match="cannot read") as caught:
        read_small_text(f"{tmp_path}/{name}", expected="a file of rules")

    assert caught.value.expected == "a file of rules"


@pytest.mark.parametrize("read", [load_policy, read_settings_file, lambda path: parse_actions(str(path))])
@pytest.mark.parametrize("kind", ["deep", "pipe"])
def test_readers_of_files_wait_for_nobody_and_dive_into_nothing(tmp_path: Path, read: object, kind: str) -> None:
    path = tmp_path / "said.toml"
    if kind == "deep":
        path.write_text("x = " + "[" * 100_000)
    else:
        os.mkfifo(path)

    with pytest.raises(ValidationError):
        read(path)  # type: ignore[operator]
