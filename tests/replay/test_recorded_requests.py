"""What a record asks of its environment, and that a replay and a server that recovers ask the same."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import Raw

from proctor.errors import ValidationError
from proctor.ledger.reader import Ledger, Row
from proctor.ledger.writer import LedgerWriter, UnfinishedSession
from proctor.models.arrays import pack_array
from proctor.models.events import NULL, BatchReset, EpisodeReset
from proctor.replay.comparison import MOST_SEED_BYTES, RecordReader, find_each_seed, read_reset
from proctor.replay.replayer import replay_episode
from proctor.server.sessions.session import Loss
from proctor.server.sessions.session_factory import rebuild_session
from tests.memory import measured_memory
from tests.replay import environments
from tests.replay.recorded_ledgers import Play, Sitting, chains, make_session, record_unfinished


def single(**more: Any) -> EpisodeReset:
    return EpisodeReset(session="s", at=1.0, epoch=1, episode_id="e", observation=NULL, **more)


def batch(**more: Any) -> BatchReset:
    return BatchReset(session="s", at=1.0, epoch=1, episode_id="e", observations=NULL, **more)


def raw(value: Any) -> Raw:
    return Raw(json.dumps(value).encode())


@pytest.mark.parametrize(
    ("event", "seed"),
    [
        (single(seed=4, metadata=raw({"seed": 9})), 4),
        (single(metadata=raw({"seed": 9})), 9),
        (single(metadata=raw({"seed": True})), None),
        (single(metadata=raw({"seed": -1})), None),
        (single(metadata=raw({"seed": "9"})), None),
        (single(metadata=raw([9])), None),
        (single(), None),
        (batch(seed=[4, 5]), [4, 5]),
        (batch(seed=[None, 5], infos=raw({"seed": [7, 8], "_seed": [True, True]})), [7, 5]),
        (batch(infos=raw({"seed": [7, 8], "_seed": [True, False]})), [7, None]),
        (batch(infos=raw({"seed": [7, -8, True], "_seed": [True] * 3})), [7, None]),
        (batch(infos=raw({"seed": [7, 8]})), None),
        (batch(seed=4), 4),
        (batch(infos=raw({"seed": [7, 8], "_seed": [True, True]})), [7, 8]),
        (batch(infos=raw({"seed": pack_array(np.array([7, 8])), "_seed": [True, True]})), [7, 8]),
        (batch(infos=raw({"seed": ["a"]})), None),
        (batch(infos=raw({"seed": {"dtype": "no"}})), None),
        (batch(infos=raw({"seed": [[7], [8]]})), None),
        (batch(infos=raw({"seed": pack_array(np.zeros((2, 2), np.int64)), "_seed": [True, True]})), None),
        (
            batch(infos=raw({"seed": pack_array(np.zeros(MOST_SEED_BYTES, np.int64), compress=True), "_seed": [True]})),
            None,
        ),
        (batch(infos=raw({})), None),
        (batch(), None),
    ],
)
def test_the_seed_is_the_one_that_was_asked_for_or_the_one_that_was_drawn(event: Any, seed: Any) -> None:
    assert read_reset(event, None if isinstance(event, EpisodeReset) else 2).seed == seed


def test_whom_a_mask_leaves_out_needs_no_seed() -> None:
    some = read_reset(batch(mask=raw([True, False]), infos=raw({"seed": [7, 0], "_seed": [True, False]})), 2)

    assert (some.mask, some.seed, some.is_seeded) == ([True, False], [7, None], True)
    assert not read_reset(batch(infos=raw({"seed": [7, 0], "_seed": [True, False]})), 2).is_seeded
    assert read_reset(batch(seed=3), 2).is_seeded
    assert find_each_seed(batch(seed=3), 2) == {0: 3, 1: 4}


def test_resets_that_an_environment_has_not_had_are_counted() -> None:
    assert [read_reset(single(seed=1, nth=4), None).count_missing(resets) for resets in (0, 2, 3, 9)] == [3, 1, 0, 0]
    assert read_reset(batch(mask=raw([True]), nth=4), 1).count_missing(0) == 0


def test_options_of_very_many_values_are_not_read() -> None:
    many = Raw(b'{"x":[%b1]}' % (b"[]," * 3_000_000))

    with measured_memory() as peak, pytest.raises(ValidationError, match="too many values"):
        RecordReader(None).read(Row(1, "s.1", 1, single(seed=1, options=many), None, True, b""))
    assert read_reset(single(metadata=Raw(b'{"x":%b,"seed":3}' % bytes(many))), None).seed == 3

    assert peak() < 2 * len(bytes(many))


KINDS = {
    "seeded": Sitting(plays=[Play(seed=5), Play(seed=6)]),
    "unseeded": Sitting(plays=[Play(seed=None), Play(seed=None)]),
    "options": Sitting(plays=[Play(seed=None, options={"seed": 17})]),
    "batch": Sitting(num_envs=3, mode="next_step", plays=[Play(seed=5)]),
    "batch with a seed each": Sitting(num_envs=3, mode="next_step", plays=[Play(seed=[4, 2, 9])]),
    "autoresets of an unseeded batch": Sitting(num_envs=3, mode="same_step", plays=[Play(seed=None)]),
    "masks": Sitting(num_envs=3, mode="disabled", plays=[Play(seed=5)]),
    "masks of an unseeded batch": Sitting(num_envs=3, mode="disabled", plays=[Play(seed=None)]),
}


@pytest.mark.parametrize("sitting", KINDS.values(), ids=KINDS)
def test_a_replay_and_a_recovery_ask_for_the_same_seeds(tmp_path: Path, sitting: Sitting) -> None:
    sitting = replace(sitting, target="tests.replay.environments:Seeded")
    asked = environments.Seeded.asked
    folder = record_unfinished(tmp_path / "ledger", sitting)
    writer = LedgerWriter(folder, boot="next", server="1", signer=None, durability="off")
    asked.clear()
    loss = asyncio.run(_rebuild(writer, sitting))
    recovered = list(asked)
    writer.close()
    asked.clear()

    with Ledger.open(folder) as ledger:
        result = replay_episode(ledger, chains(folder)[-1])

    assert (loss, result.identical) == (None, True)
    assert recovered == asked
    assert recovered


async def _rebuild(writer: LedgerWriter, sitting: Sitting) -> Loss | None:
    """Return why a server could not go on with the session that was left."""
    found: UnfinishedSession
    (found,) = writer.unfinished()
    session, _ = await asyncio.to_thread(make_session, found.opened.session, sitting, writer)
    await rebuild_session(found, session, most=10, seconds=300.0)
    loss = session.loss
    await session.close("done")
    return loss
