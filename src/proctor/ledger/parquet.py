"""Steps as a Parquet file: one row a step, typed columns, for pandas, polars, DuckDB and the like.

Rule 1: a reset is step 0, without an action and a reward: the first observation belongs to what a learner needs.
Rule 2: actions and observations are JSON texts, as they crossed the wire; everything else has a type.
Rule 3: a step of a batch is one row, too. Its rewards and flags are lists over the sub-environments, in the columns whose
    names are plural; the other columns of its kind are null.
Rule 4: what is missing is null: an observation of which only the digest was kept, a reward that was never given.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import NODEFAULT, Raw, Struct

from proctor.ledger.export import Progress, ignore_progress, import_extra, new_file, report_progress
from proctor.ledger.reader import EpisodeSummary, Ledger, Row
from proctor.ledger.rows import decode_value
from proctor.models.control import MOST_ENVS
from proctor.models.events import BatchReset, BatchStepped, EpisodeReset, EpisodeStepped

ROWS_PER_GROUP: Final = 4096
"""Rows of one group in the file."""
MOST_GROUP_BYTES: Final = 2**26
"""Bytes of observations and actions after which a group ends, too."""
MOST_ARRAY_BYTES: Final = 8 * MOST_ENVS


class ParquetRow(Struct, frozen=True, kw_only=True, gc=False):
    """A row of the file; `at` is in microseconds since 1970."""

    chain: str
    session: str
    epoch: int
    step: int
    at: int
    principal: str
    action: str | None = None
    observation: str | None
    digest: str | None
    reward: float | None = None
    raw_reward: float | None = None
    terminated: bool | None = None
    truncated: bool | None = None
    tool: str | None = None
    grant: str | None = None
    rewards: list[float] | None = None
    raw_rewards: list[float] | None = None
    terminations: list[bool] | None = None
    truncations: list[bool] | None = None


def write_parquet(
    ledger: Ledger, episodes: Iterable[EpisodeSummary], path: Path, more: Progress = ignore_progress
) -> int:
    """Write the steps of these episodes to a new file and return how many rows that was."""
    arrow = import_extra("pyarrow", "an export to Parquet")
    parquet = import_extra("pyarrow.parquet", "an export to Parquet")
    schema = _schema(arrow)
    written = 0
    steps = chain.from_iterable(
        map(convert_steps, (report_progress(ledger.rows(each.chain), more) for each in episodes))
    )
    with new_file(path) as file, parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        while group := _read_group(steps):
            rows = [msgspec.structs.asdict(step) for step in group]
            writer.write_table(arrow.Table.from_pylist(rows, schema=schema))
            written += len(group)
    return written


def _read_group(steps: Iterator[ParquetRow]) -> list[ParquetRow]:
    """Return the next rows of the file, so many that they fit into memory; none if there is no more."""
    group: list[ParquetRow] = []
    size = 0
    for row in steps:
        group.append(row)
        size += len(row.observation or "") + len(row.action or "")
        if len(group) == ROWS_PER_GROUP or size > MOST_GROUP_BYTES:
            break
    return group


def convert_steps(rows: Iterable[Row]) -> Iterator[ParquetRow]:
    """Yield the resets and steps among these rows."""
    for row in rows:
        match row.event:
            case EpisodeReset() as event:
                yield _make_row(row, event, 0, event.observation)
            case EpisodeStepped() as event:
                yield _convert_step(row, event)
            case BatchReset() as event:
                yield _make_row(row, event, 0, event.observations)
            case BatchStepped() as event:
                yield _convert_batch_step(row, event)


def _convert_step(row: Row, event: EpisodeStepped) -> ParquetRow:
    return _make_row(
        row,
        event,
        event.step,
        event.observation,
        action=_text(event.action),
        reward=event.reward,
        raw_reward=event.raw_reward,
        terminated=event.terminated,
        truncated=event.truncated,
        tool=event.tool,
        grant=event.grant,
    )


def _convert_batch_step(row: Row, event: BatchStepped) -> ParquetRow:
    return _make_row(
        row,
        event,
        event.step,
        event.observations,
        action=_text(event.actions),
        rewards=_parse_array(event.rewards),
        raw_rewards=_parse_array(event.raw_rewards),
        terminations=_parse_array(event.terminations),
        truncations=_parse_array(event.truncations),
    )


def _make_row(
    row: Row,
    event: EpisodeReset | EpisodeStepped | BatchReset | BatchStepped,
    step: int,
    observation: Raw,
    **rest: Any,
) -> ParquetRow:
    return ParquetRow(
        chain=row.chain,
        session=event.session,
        epoch=event.epoch,
        step=step,
        at=round(event.at * 1e6),
        principal=event.principal,
        observation=_text(observation) if row.values else None,
        digest=row.digest,
        **rest,
    )


def _text(value: Raw) -> str:
    return bytes(value).decode()


def _parse_array(value: Raw) -> list[Any]:
    """Return an array over the sub-environments as a list, whichever way it was written."""
    said = decode_value(value)
    if isinstance(said, dict):
        # Only a packed array needs numpy.
        from proctor.models.arrays import unpack_array

        said = unpack_array(said, most=MOST_ARRAY_BYTES).tolist()
    return list(said)


def _schema(arrow: Any) -> Any:
    """Return the columns, by the types of `ParquetRow`."""
    kinds = {
        str: arrow.string(),
        int: arrow.int64(),
        float: arrow.float64(),
        bool: arrow.bool_(),
        list[float]: arrow.list_(arrow.float64()),
        list[bool]: arrow.list_(arrow.bool_()),
    }
    columns = []
    for field in msgspec.structs.fields(ParquetRow):
        kind = arrow.timestamp("us", tz="UTC") if field.name == "at" else kinds[_without_none(field.type)]
        columns.append(
            arrow.field(field.name, kind, nullable=field.default is not NODEFAULT or _may_be_none(field.type))
        )
    return arrow.schema(columns)


def _without_none(kind: Any) -> Any:
    return next((part for part in getattr(kind, "__args__", ()) if _may_be_none(kind) and part is not type(None)), kind)


def _may_be_none(kind: Any) -> bool:
    return type(None) in getattr(kind, "__args__", ())
