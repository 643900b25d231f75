"""`proctor schema`: the JSON Schemas of packets and records, for other people's validators and editors.

Rule: the same version writes the same bytes, so that the files can be kept under version control.
"""

import json
from pathlib import Path
from typing import Annotated

import typer

from proctor.cli.output import standard_output
from proctor.episode.packets.schemas import Schema, schemas
from proctor.errors import ValidationError


def schema(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One schema: a packet_type, Record or Line.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write a file for each to this directory.")] = None,
) -> None:
    """List the JSON Schemas of packets and records, print the one named NAME, or write them to a directory."""
    wanted = schemas()
    if name is not None:
        if name not in wanted:
            raise ValidationError("there is no such schema", found=name, expected=f"one of {', '.join(wanted)}")
        wanted = {name: wanted[name]}
    with standard_output() as output:
        if out is not None:
            lines = _write_schemas(wanted, out)
        elif name is not None:
            lines = [_encode_schema(wanted[name])]
        else:
            width = max(map(len, wanted))
            lines = [f"{each:{width}}  {found['description']}\n" for each, found in wanted.items()]
        output.write("".join(lines).encode())


def _encode_schema(one: Schema) -> str:
    return json.dumps(one, indent=2, ensure_ascii=False) + "\n"


def _write_schemas(wanted: dict[str, Schema], directory: Path) -> list[str]:
    paths = {directory / f"{name}.schema.json": _encode_schema(one) for name, one in wanted.items()}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path, text in paths.items():
            path.write_text(text, "utf-8")
    except OSError as problem:
        raise ValidationError(
            f"cannot write schemas to {str(directory)!r}: {problem.strerror}",
            expected="a directory that can be written to, or a path where one can be made",
        ) from problem
    return [f"{path}\n" for path in paths]
