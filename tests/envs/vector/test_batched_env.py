"""Every batch seeds, refuses and hands out in the same way; one row of `KINDS` each."""

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.contracts.chance import SEED_LIMIT, next_seed
from proctor.envs.plume.vector.batched_env import BatchedPlumeSearch
from proctor.envs.popper.vector.batched_env import BatchedContractColumnPopper
from proctor.envs.vector.batched_env import BatchedEnv, batch_error, no_batch_form_error, pack_record
from proctor.errors import StateError, ValidationError
from tests.envs.mirror import entry, same


@dataclass(frozen=True, slots=True)
class Kind:
    """A batched environment with four actions, settings of small episodes, and of episodes of one step."""

    batch: type[BatchedEnv]
    small: dict[str, Any]
    one_step: dict[str, Any]


GRID: dict[str, Any] = {"grid_size": (9, 7)}
PUFFS: dict[str, Any] = {**GRID, "config": {"plume": "puffs", "observation": "antennae"}}
KINDS = [
    pytest.param(Kind(BatchedPlumeSearch, {**GRID, "max_steps": 6}, {**GRID, "max_steps": 1}), id="plume"),
    pytest.param(Kind(BatchedPlumeSearch, {**PUFFS, "max_steps": 6}, {**PUFFS, "max_steps": 1}), id="puffs"),
    pytest.param(Kind(BatchedContractColumnPopper, {"duration_ms": 600}, {"duration_ms": 100}), id="popper"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_later_episodes_have_the_seeds_that_the_root_predicts(kind: Kind) -> None:
    batch = kind.batch(2, **kind.one_step)
    batch.reset(seed=40)
    batch.step(np.zeros(2, np.int64))

    info = batch.step(np.zeros(2, np.int64))[4]

    assert info["seed"].tolist() == [next_seed(40, 1), next_seed(41, 1)]
    assert info["_seed"].all()


@pytest.mark.parametrize("kind", KINDS)
def test_an_unseeded_reset_goes_on_with_the_generator(kind: Kind) -> None:
    one, other = (kind.batch(3, **kind.small) for _ in range(2))
    one.reset(seed=3)
    other.reset(seed=3)

    assert one.reset()[1]["seed"].tolist() == other.reset()[1]["seed"].tolist()
    assert one.reset()[1]["seed"].tolist() != other.reset(seed=3)[1]["seed"].tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "seed",
    [np.array(5), np.array(5, np.uint8), [5, 6, 7], (5, 6, 7), np.array([5, 6, 7]), [np.array(5), np.int64(6), 7]],
)
def test_a_seed_is_an_integer_in_any_form_or_one_each(kind: Kind, seed: Any) -> None:
    batch = kind.batch(3, **kind.small)

    _, info = batch.reset(seed=seed)

    assert info["seed"].tolist() == [5, 6, 7]


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_that_a_list_leaves_open_is_drawn_from_the_generator(kind: Kind) -> None:
    one, other = (kind.batch(3, **kind.small) for _ in range(2))
    one.reset(seed=1)
    other.reset(seed=1)

    drawn = [one.reset(seed=[None, 8, None])[1]["seed"].tolist() for _ in range(2)]
    again = [other.reset(seed=[None, 8, None])[1]["seed"].tolist() for _ in range(2)]

    assert drawn == again
    assert [seeds[1] for seeds in drawn] == [8, 8]
    assert len({seed for seeds in drawn for seed in seeds}) == 5


@pytest.mark.parametrize("kind", KINDS)
@given(seeds=st.lists(st.none() | st.integers(0, SEED_LIMIT - 1), min_size=2, max_size=2))
@settings(max_examples=25)
def test_every_episode_that_a_list_begins_is_replayed_by_the_seed_it_reports(
    kind: Kind, seeds: list[int | None]
) -> None:
    batch, single = kind.batch(2, **kind.small), kind.batch.single_class(**kind.small)

    observation, info = batch.reset(seed=seeds)

    for i, seed in enumerate(seeds):
        assert seed in (None, info["seed"][i])
        assert same(entry(observation, i), single.reset(seed=int(info["seed"][i]))[0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "seed",
    [
        -1,
        1.0,
        True,
        SEED_LIMIT,
        SEED_LIMIT - 1,
        [1, 2],
        [1, 2, -3],
        "123",
        b"123",
        bytearray(3),
        memoryview(b"123"),
        {1, 2, 3},
        [1, 2, True],
        [None, None, "3"],
        [None, None],
        [1, 2, [3]],
        np.array(5.0),
        np.array(True),
        np.array(None),
        np.array(-5),
        np.array([1.0, 2.0, 3.0]),
        np.ones((3, 1), np.int64),
        np.array([1, 2]),
    ],
)
def test_a_bad_seed_changes_nothing(kind: Kind, seed: Any) -> None:
    batch = kind.batch(3, **kind.small)
    batch.reset(seed=1)
    before = pickle.dumps(batch)

    with pytest.raises(ValidationError) as caught:
        batch.reset(seed=seed)

    assert caught.value.clause == "ENV-RESET-P2"
    assert pickle.dumps(batch) == before


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "options",
    [
        5,
        [("reset_mask", None)],
        {"unknown": 1},
        {"reset_mask": [True, False, True]},
        {"reset_mask": np.zeros(3, np.bool_)},
        {"reset_mask": np.ones(2, np.bool_)},
        {"reset_mask": np.ones(3, np.int64)},
    ],
)
def test_bad_options_change_nothing(kind: Kind, options: Any) -> None:
    batch = kind.batch(3, **kind.small)
    batch.reset(seed=1)
    before = pickle.dumps(batch)

    with pytest.raises(ValidationError) as caught:
        batch.reset(seed=2, options=options)

    assert caught.value.clause == "ENV-RESET-P3"
    assert pickle.dumps(batch) == before


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "actions",
    [
        np.array([0, 1, 4]),
        np.array([0, -1, 3]),
        np.array([0.0, 1.0, 2.0]),
        np.array([True, False, True]),
        np.array([0, 1]),
        np.zeros((3, 1), np.int64),
        [0, 1, 9],
        None,
        [[1], [1, 2]],
        [[1], [1, 2], 3],
        [2**70, 0, 1],
        np.array([0, 1, 2**64 - 1], np.uint64),
    ],
)
def test_a_batch_with_an_illegal_action_changes_nothing(kind: Kind, actions: Any) -> None:
    batch = kind.batch(3, **kind.small)
    batch.reset(seed=1)
    batch.step(np.array([0, 1, 2]))
    before = pickle.dumps(batch)

    with pytest.raises(ValidationError) as caught:
        batch.step(actions)

    assert caught.value.clause == "ENV-STEP-P2"
    assert pickle.dumps(batch) == before


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("actions", [np.array([0, 2**64 - 1, 9], np.uint64), np.array([0, 255, 9], np.uint8)])
def test_the_first_illegal_action_is_reported_as_it_was(kind: Kind, actions: Any) -> None:
    batch = kind.batch(3, **kind.small)
    batch.reset(seed=1)

    with pytest.raises(ValidationError, match="sub-environment 1") as caught:
        batch.step(actions)

    assert caught.value.found == int(actions[1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "actions",
    [[0, 1, 2], np.array([0, 1, 2], np.uint8), np.array([0, 9, 1, 9, 2, 9])[::2], np.broadcast_to(np.array([1]), (3,))],
)
def test_any_integers_of_the_right_shape_are_actions(kind: Kind, actions: Any) -> None:
    one, other = (kind.batch(3, **kind.small) for _ in range(2))
    one.reset(seed=1)
    other.reset(seed=1)

    assert same(one.step(actions), other.step(np.array(actions, np.int64)))


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_step_returns_is_never_changed_by_a_later_one(kind: Kind) -> None:
    batch = kind.batch(4, **kind.small)
    returned = [*batch.reset(seed=1)]
    for t in range(20):
        returned += batch.step(np.full(4, t % 4))
    before = pickle.dumps(returned)

    for t in range(20):
        batch.step(np.full(4, t % 4))

    assert pickle.dumps(returned) == before


def _arrays(value: Any) -> Iterator[Any]:
    """Yield the arrays in a value, however deep in dicts."""
    for each in value.values() if isinstance(value, dict) else (value,):
        yield from _arrays(each) if isinstance(each, dict) else (each,)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_writing_to_what_a_step_returned_never_reaches_the_batch(kind: Kind, mode: str) -> None:
    one, other = (kind.batch(4, autoreset_mode=mode, **kind.small) for _ in range(2))
    one.reset(seed=1)
    other.reset(seed=1)

    for t in range(30):
        spoiled, kept = one.step(np.full(4, t % 4)), other.step(np.full(4, t % 4))
        assert same(spoiled, kept)
        for array in (array for part in spoiled[:4] for array in _arrays(part)):
            array[...] = 1
        for array in _arrays(spoiled[4]):
            if array.flags.writeable:
                array[...] = 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_is_refused_before_a_reset_and_after_close(kind: Kind) -> None:
    batch = kind.batch(2, **kind.small)
    with pytest.raises(StateError) as early:
        batch.step(np.zeros(2, np.int64))
    batch.close()
    batch.close()
    with pytest.raises(StateError) as late:
        batch.step(np.zeros(2, np.int64))
    with pytest.raises(StateError) as reset:
        batch.reset()

    assert (early.value.clause, late.value.clause) == ("NO-STEP-BEFORE-RESET", "NO-STEP-AFTER-CLOSE")
    assert reset.value.clause == "NO-RESET-AFTER-CLOSE"


@pytest.mark.parametrize("kind", KINDS)
def test_without_autoreset_an_ended_episode_must_be_reset_first(kind: Kind) -> None:
    batch = kind.batch(2, autoreset_mode="Disabled", **kind.one_step)
    batch.reset(seed=1)
    batch.step(np.zeros(2, np.int64))

    with pytest.raises(StateError) as caught:
        batch.step(np.zeros(2, np.int64))

    assert caught.value.clause == "NO-STEP-AFTER-END"
    assert caught.value.found == [0, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_reset_cannot_be_partial(kind: Kind) -> None:
    batch = kind.batch(2, **kind.small)

    with pytest.raises(StateError):
        batch.reset(options={"reset_mask": np.array([True, False])})


@pytest.mark.parametrize("kind", KINDS)
@given(
    masks=st.lists(st.lists(st.booleans(), min_size=3, max_size=3).filter(any), min_size=1, max_size=4),
    seed=st.integers(0, SEED_LIMIT - 3),
)
@settings(max_examples=25)
def test_a_partial_reset_begins_and_counts_the_marked_episodes_alone(
    kind: Kind, masks: list[list[bool]], seed: int
) -> None:
    batch = kind.batch(3, **kind.small)
    observation, info = batch.reset(seed=7)
    seeds, episodes = info["seed"], info["episode"]

    for mask in map(np.array, masks):
        before, seeds = observation, np.where(mask, range(seed, seed + 3), seeds)
        observation, info = batch.reset(seed=seed, options={"reset_mask": mask})
        episodes = episodes + mask

        assert info["seed"].tolist() == seeds.tolist()
        assert info["episode"].tolist() == episodes.tolist()
        assert same((info["_seed"], info["_episode"]), (mask, mask))
        assert all(same(entry(observation, i), entry(before, i)) for i in range(3) if not mask[i])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_envs", [0, -1, 2.0, True, 2**31, 2**70])
def test_a_bad_number_of_environments_is_refused(kind: Kind, num_envs: Any) -> None:
    with pytest.raises(ValidationError):
        kind.batch(num_envs)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_neither_renders_nor_knows_other_modes(kind: Kind) -> None:
    with pytest.raises(ValidationError) as rendering:
        kind.batch(2, render_mode="rgb_array")
    with pytest.raises(ValidationError):
        kind.batch(2, autoreset_mode="sometimes")

    assert rendering.value.clause == "ENV-INIT-P6"


PAIR = np.dtype([("whole", np.int64), ("real", np.float64), ("unset", np.int32)])


def test_a_refusal_names_the_part_what_is_known_and_what_to_do_instead() -> None:
    error = no_batch_form_error(3.5, (int, str))

    assert (error.found, error.expected) == ("float", "one of int, str")
    assert "vectorization_mode='sync'" in str(error)
    assert "because" in str(batch_error("because", found=1, expected="2"))


@given(whole=st.integers(-(2**63), 2**63 - 1), real=st.floats(allow_nan=False))
def test_a_record_holds_the_values_by_name_and_zero_elsewhere(whole: int, real: float) -> None:
    record = pack_record(PAIR, {"real": real, "whole": whole})

    assert record.shape == (1,)
    assert record[0].item() == (whole, real, 0)
