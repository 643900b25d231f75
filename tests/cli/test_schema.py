"""`proctor schema` lists, prints and writes the schemas, the same bytes every time."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from proctor.cli.schema import schema
from proctor.episode.packets.enums import PacketKind
from proctor.episode.packets.schemas import schemas
from proctor.errors import ValidationError

NAMES = [*(kind.value for kind in PacketKind), "Record", "Line"]


def said(*arguments: str) -> str:
    """Return what the command prints; what it raises is raised."""
    app = typer.Typer()
    app.command()(schema)
    return CliRunner().invoke(app, arguments, catch_exceptions=False).stdout


def test_without_arguments_every_schema_is_listed_with_what_it_is() -> None:
    lines = said().splitlines()

    assert [line.split()[0] for line in lines] == NAMES
    assert all(len(line.split()) > 2 for line in lines)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_prints_that_schema_alone(name: str) -> None:
    assert json.loads(said(name)) == json.loads(json.dumps(schemas()[name]))


def test_a_directory_gets_a_file_for_each_and_their_paths_are_printed(tmp_path: Path) -> None:
    out = tmp_path / "new" / "schemas"

    paths = said("--out", str(out)).splitlines()

    assert paths == [str(out / f"{name}.schema.json") for name in NAMES]
    assert [json.loads(Path(path).read_text("utf-8"))["title"] for path in paths] == NAMES


def test_the_same_bytes_are_written_every_time(tmp_path: Path) -> None:
    said("--out", str(tmp_path))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    said("--out", str(tmp_path))

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert all(text.endswith(b"}\n") for text in before.values())


def test_a_name_and_a_directory_write_one_file(tmp_path: Path) -> None:
    said("Line", "--out", str(tmp_path))

    assert [path.name for path in tmp_path.iterdir()] == ["Line.schema.json"]


@pytest.mark.parametrize("place", ["taken", "taken/below"])
def test_a_file_in_the_place_of_the_directory_is_a_message(tmp_path: Path, place: str) -> None:
    (tmp_path / "taken").write_text("something else")

    with pytest.raises(ValidationError, match=r"cannot write schemas to .*expected a directory"):
        said("--out", str(tmp_path / place))


def test_a_file_that_cannot_be_written_is_a_message(tmp_path: Path) -> None:
    (tmp_path / "Line.schema.json").mkdir()

    with pytest.raises(ValidationError, match=r"cannot write schemas to .*expected a directory"):
        said("--out", str(tmp_path))
