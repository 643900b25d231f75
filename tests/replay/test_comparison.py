"""Two JSON texts are the same, or it is said where they part; a replay and a server that recovers ask the same of an environment."""

import asyncio
import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from proctor.errors import ValidationError
from proctor.ledger.reader import Ledger, Row
from proctor.ledger.writer import LedgerWriter, UnfinishedSession
from proctor.models.arrays import array_to_lists, pack_array
from proctor.models.events import NULL, BatchReset, EpisodeReset
from proctor.replay import comparison
from proctor.replay.replayer import replay_episode
from proctor.server.sessions.session import Loss
from proctor.server.sessions.session_factory import rebuild_session
from tests.memory import measured_memory
from tests.replay import environments
from tests.replay.recorded_ledgers import Play, Sitting, chains, make_session, record_unfinished

NUMBERS = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False, allow_infinity=False)
LEAVES = NUMBERS | st.text(max_size=5)
KEYS = st.text(max_size=4)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


def encoded(value: Any) -> bytes:
    return msgspec.json.encode(value)


@given(VALUES)
def test_the_same_value_never_parts_however_it_is_written(value: Any) -> None:
    other = msgspec.json.format(comparison.canonical_json(encoded(value)), indent=2)

    assert comparison.find_difference("x", encoded(value), other) is None
    assert comparison.find_difference("x", other, encoded(value)) is None


@given(VALUES, VALUES)
def test_different_values_part_at_a_place_that_leads_to_both(recorded: Any, found: Any) -> None:
    difference = comparison.find_difference("x", encoded(recorded), encoded(found))

    same = comparison.canonical_json(encoded(recorded)) == comparison.canonical_json(encoded(found))
    assert (difference is None) == same
    if difference is not None:
        assert encoded(at(recorded, difference.where)) == encoded(difference.recorded)
        assert encoded(at(found, difference.where)) == encoded(difference.found)


def at(value: Any, pointer: str) -> Any:
    """Return what stands at a JSON pointer."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list):
            value = value[int(name)]
        elif name not in value:
            return comparison.ABSENT
        else:
            value = value[name]
    return value


@pytest.mark.parametrize(
    ("recorded", "found"), [(1, 1.0), (0.0, -0.0), (True, 1), (None, 0), ("1", 1), ([1], [1, 1]), ({}, [])]
)
def test_what_python_or_people_take_for_the_same_is_not(recorded: Any, found: Any) -> None:
    assert comparison.find_value_difference("x", recorded, found) == comparison.Difference("x", recorded, found)


def test_a_key_that_one_of_the_two_lacks_is_named() -> None:
    difference = comparison.find_value_difference("metadata", {"a/b": 1}, {})

    assert difference == comparison.Difference("metadata", 1, comparison.ABSENT, "/a~1b")
    assert str(difference) == 'metadata/a~1b: recorded 1, found "(nothing)"'


def test_a_text_that_says_nothing_is_not_nothing() -> None:
    assert comparison.find_value_difference("x", {"a": copy.copy("(noth") + "ing)"}, {}) is not None


def test_arrays_are_the_same_however_they_are_packed() -> None:
    array = np.arange(4096, dtype=np.int32)
    zipped, plain = pack_array(array, True), pack_array(array, False)
    other = array.copy()
    other[77] = -1

    assert comparison.find_difference("x", encoded({"o": zipped}), encoded({"o": plain})) is None
    assert comparison.find_difference(
        "x", encoded({"o": zipped}), encoded({"o": pack_array(other)})
    ) == comparison.Difference("x", 77, -1, "/o/77")
    assert comparison.unpack_arrays({"o": [plain]}) == {"o": [array_to_lists(array)]}


def test_an_object_that_only_looks_like_an_array_stays_an_object() -> None:
    looks = {"dtype": "<f8", "shape": [3], "data": "no base64"}

    assert comparison.unpack_arrays(looks) == looks


def test_digests_say_that_and_not_where() -> None:
    recorded = "0" * 64

    difference = comparison.find_digest_difference("observation", recorded, b"{}")

    assert difference is not None
    assert difference.recorded == f"sha256:{recorded}"
    assert difference.found.startswith("sha256:44136fa3")
    assert comparison.find_digest_difference("observation", difference.found[7:], b"{}") is None


def test_a_long_value_is_shown_by_its_ends() -> None:
    text = str(comparison.Difference("observation", list(range(1000)), 0))

    assert len(text) < 200
    assert "999]" in text


def test_a_recorded_text_that_is_much_longer_is_not_parsed() -> None:
    recorded = b"[" + b"[]," * comparison.ALWAYS_PARSED_BYTES + b"[]]"

    with measured_memory() as peak:
        found = comparison.find_difference("observation", recorded, b"[1]")

    assert found == comparison.Difference("observation", f"{len(recorded)} bytes", "3 bytes")
    assert peak() < comparison.ALWAYS_PARSED_BYTES


def test_a_long_text_that_is_about_as_long_is_parsed() -> None:
    recorded, found = (b"[" + b"1," * comparison.ALWAYS_PARSED_BYTES + last + b"]" for last in (b"1", b"2"))

    assert comparison.find_difference("observation", recorded, found) == comparison.Difference(
        "observation", 1, 2, f"/{comparison.ALWAYS_PARSED_BYTES}"
    )


# ------------------------------------------------------------------------------------------------- what a row asks for
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
            batch(
                infos=raw(
                    {"seed": pack_array(np.zeros(comparison.MOST_SEED_BYTES, np.int64), compress=True), "_seed": [True]}
                )
            ),
            None,
        ),
        (batch(infos=raw({})), None),
        (batch(), None),
    ],
)
def test_the_seed_is_the_one_that_was_asked_for_or_the_one_that_was_drawn(event: Any, seed: Any) -> None:
    assert comparison.read_reset(event, None if isinstance(event, EpisodeReset) else 2).seed == seed


def test_whom_a_mask_leaves_out_needs_no_seed() -> None:
    some = comparison.read_reset(batch(mask=raw([True, False]), infos=raw({"seed": [7, 0], "_seed": [True, False]})), 2)

    assert (some.mask, some.seed, some.is_seeded) == ([True, False], [7, None], True)
    assert not comparison.read_reset(batch(infos=raw({"seed": [7, 0], "_seed": [True, False]})), 2).is_seeded
    assert comparison.read_reset(batch(seed=3), 2).is_seeded
    assert comparison.find_each_seed(batch(seed=3), 2) == {0: 3, 1: 4}


def test_resets_that_an_environment_has_not_had_are_counted() -> None:
    assert [comparison.read_reset(single(seed=1, nth=4), None).count_missing(resets) for resets in (0, 2, 3, 9)] == [
        3,
        1,
        0,
        0,
    ]
    assert comparison.read_reset(batch(mask=raw([True]), nth=4), 1).count_missing(0) == 0


def test_options_of_very_many_values_are_not_read() -> None:
    many = Raw(b'{"x":[%b1]}' % (b"[]," * 3_000_000))

    with measured_memory() as peak, pytest.raises(ValidationError, match="too many values"):
        comparison.RecordReader(None).read(Row(1, "s.1", 1, single(seed=1, options=many), None, True, b""))
    assert comparison.read_reset(single(metadata=Raw(b'{"x":%b,"seed":3}' % bytes(many))), None).seed == 3

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
