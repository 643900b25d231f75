"""What a transform sees is plain JSON of one environment, whatever the client asked for and however many there are."""

from typing import Any

import msgspec
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.errors import ComponentError
from proctor.models.arrays import pack_array, unpack_array
from proctor.models.spaces import codec_of
from proctor.models.wire import Encoding
from proctor.server.rewards import views
from proctor.server.rewards.views import (
    MOST_CONTAINERS,
    MOST_NUMBERS,
    ArrayFormat,
    Mask,
    Moment,
    StepOutputs,
    pick_value,
    unpack_arrays,
)
from tests.models.space_strategies import members, spaces
from tests.server.rewards.potential_env import SPACE, Batch, Single

ENCODINGS = [Encoding(), Encoding(packed=True), Encoding(packed=True, compress=True)]
COUNT = 3


def scene_of(moment: Moment, form: ArrayFormat) -> StepOutputs:
    return form.read_outputs(moment)[0]


def everyone(count: int = 1) -> Mask:
    return np.ones(count, np.bool_)


def single_json(metadata: bytes) -> StepOutputs:
    return scene_of(Moment(np.zeros(1), ~everyone(), ~everyone(), b"{}", metadata), ArrayFormat())


def batch_json(infos: object, begins: Mask | None = None, ended: Mask | None = None) -> StepOutputs:
    ends = ~everyone(2) if ended is None else ended
    moment = Moment(np.zeros(2), ends, ~everyone(2), b"[0,1]", msgspec.json.encode(infos), begins)
    return scene_of(moment, ArrayFormat(num_envs=2))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_one_environment_shows_the_same_in_every_form(encoding: Encoding) -> None:
    session = Single.made(encoding)
    session.reset(seed=3)

    scene = scene_of(session.step(2), ArrayFormat(packed=encoding.packed))

    x = scene.observation(0)["observation"]["x"][0]
    assert scene.observation(0) == {"observation": {"x": [x], "pair": [1, "ab"]}}
    assert scene.metadata(0) == {"phi": 0.5 * x, "deep": {"steps": 1}, "grid": [x, 1.5]}


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_batch_shows_each_of_its_environments_like_a_session_of_one(encoding: Encoding, mode: AutoresetMode) -> None:
    batch = Batch.made(COUNT, mode, encoding)
    form = ArrayFormat(COUNT, encoding.packed, SPACE)
    singles = [Single.made(Encoding()) for _ in range(COUNT)]

    for moment, alone in [
        (batch.reset(seed=5), [one.reset(seed=5 + index) for index, one in enumerate(singles)]),
        (batch.step([0, 1, 2]), [one.step(index) for index, one in enumerate(singles)]),
    ]:
        scene = scene_of(moment, form)
        for index, one in enumerate(alone):
            expected = scene_of(one, ArrayFormat())
            assert scene.observation(index) == expected.observation(0)
            assert scene.metadata(index) == expected.metadata(0)
            assert scene.numbers("phi", np.arange(COUNT) == index).tolist() == [expected.metadata(0)["phi"]]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_an_episode_that_ends_and_begins_in_one_step_shows_both(encoding: Encoding) -> None:
    batch = Batch.made(COUNT, AutoresetMode.SAME_STEP, encoding)
    batch.reset(seed=5)
    stepped = (batch.step([1] * COUNT) for _ in range(4))
    moment = next(moment for moment in stepped if moment.truncations.all())

    reached, opening = ArrayFormat(COUNT, encoding.packed, SPACE).read_outputs(moment)

    for index in range(COUNT):
        assert reached.metadata(index)["deep"] == {"steps": 4}
        assert reached.observation(index)["observation"]["pair"] == [4, "ab"]
        assert opening.metadata(index)["deep"] == {"steps": 0}
        assert opening.observation(index)["observation"]["pair"] == [0, "a"]
    xs = [reached.observation(index)["observation"]["x"][0] for index in range(COUNT)]
    assert reached.numbers("phi", everyone(COUNT)).tolist() == [0.5 * x for x in xs]


@settings(max_examples=50)
@given(data=st.data(), packed=st.booleans())
def test_any_batched_value_is_taken_apart_into_what_it_was_made_of(data: st.DataObject, packed: bool) -> None:
    space = data.draw(spaces(depth=2))
    batched = batch_space(space, 2)
    empty: Any = create_empty_array(space, 2)
    values = [data.draw(members(space)) for _ in range(2)]
    value = concatenate(space, values, empty)
    said = msgspec.json.decode(msgspec.json.encode(codec_of(batched).encode(value, Encoding(packed=packed))))

    taken = [pick_value(space, unpack_arrays(said) if packed else said, index) for index in range(2)]

    one = codec_of(space)
    expected = [msgspec.json.decode(msgspec.json.encode(one.encode(each))) for each in values]
    assert taken == expected


def test_what_nobody_looks_at_is_not_read() -> None:
    moment = Moment(np.zeros(1), ~everyone(), ~everyone(), b"no json", b"{}")

    scene = scene_of(moment, ArrayFormat())

    assert scene.metadata(0) == {}
    with pytest.raises(ComponentError, match="cannot be read"):
        scene.observation(0)


def packed_scene(observation: object, infos: object = None) -> StepOutputs:
    moment = Moment(
        np.zeros(2), ~everyone(2), ~everyone(2), msgspec.json.encode(observation), msgspec.json.encode(infos)
    )
    return scene_of(moment, ArrayFormat(2, True, SPACE))


def zeros(*shape: int) -> dict[str, object]:
    """Return a packed array that takes little space, whatever it claims to be."""
    data = pack_array(np.zeros(10_000, np.uint8), compress=True)
    return {**data, "shape": list(shape)}


def test_what_is_too_much_to_build_is_not_built() -> None:
    lists = b"[" + b"[]," * MOST_CONTAINERS + b"[]]"
    keys = b"{" + b'"a":1,' * MOST_CONTAINERS + b'"b":1}'
    numbers = b"[" + b"1," * MOST_CONTAINERS + b"1]"
    too_many = b"[" + b"1," * MOST_NUMBERS + b"1,1]"

    def one(observation: bytes, metadata: bytes, *, packed: bool = False) -> StepOutputs:
        return scene_of(
            Moment(np.zeros(1), ~everyone(), ~everyone(), observation, metadata), ArrayFormat(packed=packed)
        )

    assert len(one(numbers, b"{}").observation(0)) == MOST_CONTAINERS + 1
    for look in (
        lambda: one(lists, b"{}").observation(0),
        lambda: one(b"{}", keys).metadata(0),
        lambda: one(b"{}", keys).numbers("b", everyone()),
        lambda: one(numbers, b"{}", packed=True).observation(0),
        lambda: one(too_many, b"{}").observation(0),
        lambda: one(b"{}", b'{"x":%b}' % too_many).metadata(0),
        lambda: batch_json({"phi": [1.0, 2.0], "x": [1] * (MOST_NUMBERS + 2)}).numbers("phi", everyone(2)),
    ):
        with pytest.raises(ComponentError, match="more than a transform can look at"):
            look()


@pytest.mark.parametrize(
    "array",
    [
        zeros(MOST_NUMBERS + 1),
        zeros(2**40, 0),
        zeros(1, 2**40, 0),
        zeros(MOST_CONTAINERS + 1, 1),
        zeros(1, 2**20, 2**10),
    ],
)
def test_a_packed_array_that_claims_too_much_is_not_unpacked(array: object) -> None:
    for look in (
        lambda: packed_scene({"x": array, "pair": [[1], ["a"]]}).observation(0),
        lambda: packed_scene({}, {"phi": array}).metadata(0),
        lambda: packed_scene({}, {"phi": array}).numbers("phi", everyone(2)),
    ):
        with pytest.raises(ComponentError, match="more than a transform can look at"):
            look()


def test_packed_arrays_count_together() -> None:
    with pytest.raises(ComponentError, match="more than a transform can look at"):
        packed_scene([zeros(MOST_NUMBERS // 2), {"a": [zeros(MOST_NUMBERS // 2 + 1)]}]).observation(0)


def test_arrays_of_infos_count_together_and_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    def count(array: Any) -> Any:
        made.append(array)
        return unpack_array(array)

    monkeypatch.setattr(views, "unpack_array", count)
    half = pack_array(np.zeros((2, MOST_NUMBERS // 4), np.uint8), compress=True)
    scene = packed_scene({}, {"a": half, "b": half})

    assert [scene.metadata(index)["a"][0] for index in (0, 1, 0)] == [0, 0, 0]
    assert len(made) == 2
    with pytest.raises(ComponentError, match="more than a transform can look at"):
        packed_scene({}, {"a": half, "b": half, "c": half}).metadata(0)


@pytest.mark.parametrize("mask", [[True], True, {}, [[1], 2]])
def test_a_mask_of_another_form_cannot_be_read(mask: object) -> None:
    scene = batch_json({"phi": [1.0, 2.0], "_phi": mask})

    with pytest.raises(ComponentError, match="cannot be read"):
        scene.numbers("phi", everyone(2))
    with pytest.raises(ComponentError, match="cannot be read"):
        scene.metadata(1)


@pytest.mark.parametrize("array", [zeros(3), {**zeros(2), "dtype": 1}, {**zeros(2), "data": "?"}])
def test_a_packed_array_that_is_none_cannot_be_read(array: object) -> None:
    with pytest.raises(ComponentError, match="cannot be read"):
        packed_scene({"x": array}).observation(0)
    with pytest.raises(ComponentError, match="cannot be read"):
        packed_scene({}, {"phi": array}).metadata(0)


def test_metadata_that_were_never_given_are_empty() -> None:
    assert single_json(b"null").metadata(0) == {}
    assert batch_json(None).metadata(0) == {}


@pytest.mark.parametrize(
    "said", [b"{}", b"null", b'{"phi": true}', b'{"phi": "NaN"}', b'{"phi": 1' + b"0" * 400 + b"}"]
)
def test_a_number_that_is_none_is_refused(said: bytes) -> None:
    with pytest.raises(ComponentError, match="no number under 'phi'"):
        single_json(said).numbers("phi", everyone())


@pytest.mark.parametrize(
    "infos",
    [
        None,
        {"phi": [1.0, 2.0], "_phi": [True, False]},
        {"phi": [1.0]},
        {"phi": [1.0, "NaN"]},
        {"phi": [True, False]},
        {"phi": [1.0, [2.0]]},
        {"phi": {"deep": [1.0, 2.0]}},
    ],
)
def test_numbers_that_a_batch_does_not_have_are_refused(infos: object) -> None:
    with pytest.raises(ComponentError, match="no number under 'phi'"):
        batch_json(infos).numbers("phi", everyone(2))


def test_a_number_is_asked_only_of_those_that_are_marked() -> None:
    scene = batch_json({"phi": [1.0, 0.0], "_phi": [True, False]})

    assert scene.numbers("phi", np.array([True, False])).tolist() == [1.0]


def test_an_info_is_what_the_masks_say_it_is() -> None:
    scene = batch_json(
        {
            "a": [1, 2],
            "_a": [True, False],
            "deep": {"b": [3, 4], "_b": [False, True]},
            "_deep": [False, True],
            "_own": [5, 6],
            "final_info": {"c": [7, 8]},
        }
    )

    assert scene.metadata(0) == {"a": 1, "_own": 5}
    assert scene.metadata(1) == {"deep": {"b": 4}, "_own": 6}


def test_numbers_of_an_ending_come_from_the_episode_that_ended() -> None:
    infos = {"phi": [1.0, 2.0], "final_info": {"phi": [9.0, 0.0], "_phi": [True, False]}}
    scene = batch_json(infos, begins=np.array([True, False]), ended=np.array([True, False]))

    assert scene.numbers("phi", everyone(2)).tolist() == [9.0, 2.0]
    assert scene.numbers("phi", np.array([False, True])).tolist() == [2.0]
    assert scene.numbers("phi", np.array([True, False])).tolist() == [9.0]
    assert [scene.metadata(index) for index in range(2)] == [{"phi": 9.0}, {"phi": 2.0}]


def test_an_ending_that_left_nothing_is_refused() -> None:
    scene = batch_json({"phi": [1.0, 2.0]}, begins=np.array([True, False]), ended=np.array([True, False]))

    with pytest.raises(ComponentError, match="final_info"):
        scene.metadata(0)


def test_observations_of_a_batch_without_a_known_space_are_refused() -> None:
    with pytest.raises(ComponentError, match="without a known space"):
        batch_json({}).observation(0)
