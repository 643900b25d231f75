"""How `proctor ledger export` writes each format: a row of `WRITERS` for every one.

Rule 1: what is written to standard output can be piped on; a file or a folder appears whole or not at all.
Rule 2: a writer returns what is to be said beside it, empty for nothing.
Rule 3: what a format needs is imported when it is asked for.
Rule 4: how far it is goes to standard error, and never between lines on a screen.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from proctor.cli.columns import many
from proctor.cli.output import plain_json, standard_output
from proctor.cli.progress import Bar, bar
from proctor.errors import ValidationError
from proctor.ledger.export import chosen, counted, new_file
from proctor.ledger.export_jsonl import lines, packet_lines, rows_of
from proctor.ledger.reader import EpisodeSummary, Ledger


class Format(StrEnum):
    """What an export can be."""

    JSONL = "jsonl"
    PARQUET = "parquet"
    MINARI = "minari"
    OTEL = "otel"


class Asked(NamedTuple):
    """What is asked of some formats."""

    packets: bool = False
    """Of `jsonl`: nothing else."""
    trusting: str | None = None
    """Of `minari`: the command that makes whatever environment the record names; None: this one does."""


def _jsonl(record: Ledger, names: Sequence[str], out: Path | None, asked: Asked) -> str:
    found = chosen(record, names) if names or asked.packets else None
    with _bar(found, out) as shown:
        rows = counted(rows_of(record, found), shown.on)
        return _written(packet_lines(rows) if asked.packets else lines(rows), out)


def _otel(record: Ledger, names: Sequence[str], out: Path | None, asked: Asked) -> str:
    from proctor.integrations.otel import otlp_lines

    found = chosen(record, names)
    with _bar(found, out) as shown:
        return _written(otlp_lines(record, found, shown.on), out)


def _written(text: Iterable[bytes], out: Path | None) -> str:
    """Write lines to a new file, or to standard output."""
    if out is None:
        with standard_output() as output:
            shown = map(plain_json, text) if sys.stdout.isatty() else text
            for line in shown:
                output.write(line)
        return ""
    with new_file(out) as file:
        count = sum(map(bool, map(file.write, text)))
    return f"{many(count, 'line')} in {out}"


def _parquet(record: Ledger, names: Sequence[str], out: Path | None, asked: Asked) -> str:
    from proctor.ledger.export_parquet import write_parquet

    path = _named(out, "steps.parquet")
    found = chosen(record, names)
    with _bar(found, path) as shown:
        written = write_parquet(record, found, path, shown.on)
    return f"{many(written, 'row')} in {path}"


def _minari(record: Ledger, names: Sequence[str], out: Path | None, asked: Asked) -> str:
    from proctor.integrations.minari import export_minari
    from proctor.replay.trust import check_episode

    path = _named(out, "plume-v0")
    found = chosen(record, names)
    if asked.trusting is not None:
        for each in found:
            check_episode(record, each.chain, trusting=asked.trusting)
    with _bar(found, path) as shown:
        made = export_minari(record, found, path, shown.on)
    empty = f"; left out, because they have no step: {', '.join(made.left_out)}" if made.left_out else ""
    return (
        f"{many(made.episodes, 'episode')}, {many(made.steps, 'step')} in {path}{empty}\n"
        f"MINARI_DATASETS_PATH={path.absolute().parent} python -c "
        f"\"import minari; print(minari.load_dataset('{made.dataset_id}').spec)\""
    )


def _bar(episodes: Sequence[EpisodeSummary] | None, out: Path | None) -> AbstractContextManager[Bar]:
    total = None if episodes is None else sum(each.rows for each in episodes)
    return bar("reading", total, unit="rows", quiet=out is None and sys.stdout.isatty())


def _named(out: Path | None, example: str) -> Path:
    if out is None:
        raise ValidationError("this format is not for standard output", expected=f"--out PATH, such as {example}")
    return out


Writer: TypeAlias = Callable[[Ledger, Sequence[str], Path | None, Asked], str]
WRITERS: Final[Mapping[Format, Writer]] = {
    Format.JSONL: _jsonl,
    Format.PARQUET: _parquet,
    Format.MINARI: _minari,
    Format.OTEL: _otel,
}
