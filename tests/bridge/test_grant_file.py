"""Files that hold a grant, and files that do not."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.bridge import SavedGrant, read_grant
from proctor.errors import ValidationError

TOKEN = "a-token-that-is-long-enough"
ADDRESS = "http://127.0.0.1:8001/mcp"


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "grant.json"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_the_address_and_the_token_are_read_and_the_rest_is_ignored(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps({"address": ADDRESS, "token": TOKEN, "tools": ["look"], "grant": "g"}) + "\n")

    assert read_grant(path) == SavedGrant(ADDRESS, TOKEN)


def test_a_key_does_not_show_its_token() -> None:
    assert TOKEN not in repr(SavedGrant(ADDRESS, TOKEN))


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602, 0o666])
def test_a_file_that_others_can_read_is_refused_with_the_command_that_mends_it(tmp_path: Path, mode: int) -> None:
    path = written(tmp_path, json.dumps({"address": ADDRESS, "token": TOKEN}), mode)

    with pytest.raises(ValidationError, match="chmod 600") as refusal:
        read_grant(path)

    assert TOKEN not in str(refusal.value)


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="there is no file"):
        read_grant(tmp_path / "nothing")


@pytest.mark.parametrize(
    "text",
    [
        "",
        TOKEN,
        "[]",
        "{}",
        json.dumps({"token": TOKEN}),
        json.dumps({"address": ADDRESS}),
        json.dumps({"address": ADDRESS, "token": 1}),
        json.dumps({"address": ADDRESS, "token": "short"}),
        json.dumps({"address": ADDRESS, "token": f"{TOKEN} and more"}),
        *(
            json.dumps({"address": address, "token": TOKEN})
            for address in (
                "127.0.0.1:8001", "ws://127.0.0.1:8001/mcp", "file:///etc/passwd", "http://", "http://[x/mcp",
                "http://127.0.0.1:99999/mcp", "http://user:word@127.0.0.1/mcp", "",
            )
        ),
    ],
)  # fmt: skip
def test_what_is_no_grant_is_refused_without_showing_it(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        read_grant(written(tmp_path, text))

    assert TOKEN not in str(refusal.value)


@given(st.text(max_size=300))
def test_whatever_is_in_the_file_is_a_key_or_a_validation_error(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    folder = tmp_path_factory.mktemp("grants")
    path = folder / "grant.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    path.chmod(0o600)

    with pytest.raises(ValidationError):
        read_grant(path)
