"""A client is told the transformed reward and nothing of how it came about; the record has everything."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from proctor.models.arrays import unpack_array
from proctor.models.control import Reset
from proctor.models.events import (
    NULL,
    BatchReset,
    BatchStepped,
    EpisodeReset,
    EpisodeStepped,
    Event,
    decode_event,
    encode_event,
)
from proctor.models.wire import Encoding
from proctor.server.rewards.pipeline import Plan, plan_of
from proctor.server.runtime.env_adapter import ResetRequest
from proctor.server.runtime.results import BatchOutcome, EnvOutcome, RequestRefused
from proctor.server.sessions.response_builder import (
    BatchResponseBuilder,
    SingleResponseBuilder,
    StepContext,
    parse_reset,
    reset_from_event,
)

EMPTY = Plan()
SHAPED = plan_of([{"type": "step_cost", "cost": 0.5}, {"type": "scale", "factor": 2.0, "name": "twice"}])
MOVING = plan_of([{"type": "normalise"}])
STAND = StepContext("s", 2, 7, "e", 12.5, 41)
ORDER = ResetRequest(5, "e", {"from": 1})
OUTCOME = EnvOutcome(b'{"observation":[1.0,2.0]}', b'{"note":"n"}', 3.0, False, True)
ACTION = b'{"action": 1}'
FINITE = st.floats(-1e6, 1e6)
OBJECTS = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3)


def single(plan: Any = EMPTY, *, extended: bool = True) -> SingleResponseBuilder:
    return SingleResponseBuilder(plan.pipeline(), extended=extended)


def batch(plan: Any = EMPTY, *, size: int = 2, packed: bool = False) -> BatchResponseBuilder:
    encoding = Encoding(packed=packed)
    return BatchResponseBuilder(plan.pipeline(size, packed=packed), encoding)


def raw(value: Any) -> Any:
    return json.loads(bytes(value))


def mask(*values: bool) -> Any:
    return np.array(values, np.bool_)


RESET = BatchOutcome(b"[[1.0],[2.0]]", b"{}", begins=mask(True, True))
STEP = BatchOutcome(
    b"[[3.0],[4.0]]", b'{"seed":[1,2]}', np.array([1.0, 2.0]), mask(True, False), mask(False, False), mask(False, False)
)


def test_without_hello_a_reply_has_what_openenv_knows_and_no_more() -> None:
    data, _ = single(extended=False).build_step(OUTCOME, ACTION, STAND)

    assert json.loads(data) == {
        "observation": {"observation": [1.0, 2.0]},
        "reward": 3.0,
        "done": True,
        "metadata": {"note": "n"},
    }


def test_after_hello_a_reply_also_says_how_it_ended_and_where_it_stands() -> None:
    data, _ = single().build_step(OUTCOME, ACTION, STAND)

    assert json.loads(data) == {
        "observation": {"observation": [1.0, 2.0]},
        "reward": 3.0,
        "done": True,
        "metadata": {"note": "n"},
        "terminated": False,
        "truncated": True,
        "step": 7,
        "episode_id": "e",
    }


def test_a_reset_is_answered_and_recorded_as_it_was_asked() -> None:
    outcome = EnvOutcome(b'{"observation":0}', b"{}")

    data, event = single().build_reset(outcome, ORDER, StepContext("s", 1, 0, "e", 12.5, None))

    assert json.loads(data) == {
        "observation": {"observation": 0},
        "reward": None,
        "done": False,
        "terminated": False,
        "truncated": False,
        "step": 0,
        "episode_id": "e",
    }
    assert isinstance(event, EpisodeReset)
    assert (event.session, event.epoch, event.episode_id, event.seed, event.at) == ("s", 1, "e", 5, 12.5)
    assert (raw(event.options), raw(event.observation), raw(event.pipeline)) == ({"from": 1}, {"observation": 0}, None)
    assert event.request_id is None


def test_a_step_is_recorded_as_it_was_asked_and_answered() -> None:
    _, event = single().build_step(OUTCOME, ACTION, STAND)

    assert isinstance(event, EpisodeStepped)
    assert (event.session, event.epoch, event.step, event.at, event.request_id) == ("s", 2, 7, 12.5, 41)
    assert bytes(event.action) == ACTION
    assert (raw(event.observation), raw(event.metadata)) == ({"observation": [1.0, 2.0]}, {"note": "n"})
    assert (event.raw_reward, event.reward, event.parts) == (3.0, 3.0, {})
    assert (event.terminated, event.truncated) == (False, True)


def test_a_client_sees_the_transformed_reward_only() -> None:
    account = single(SHAPED)
    account.build_reset(EnvOutcome(b"{}", b"{}"), ORDER, STAND)

    data, event = account.build_step(OUTCOME, ACTION, STAND)

    assert json.loads(data)["reward"] == 5.0
    assert isinstance(event, EpisodeStepped)
    assert (event.raw_reward, event.reward) == (3.0, 5.0)
    assert event.parts == {"step_cost": -0.5, "twice": 2.5}
    assert b"twice" not in data
    assert b"3.0" not in data.replace(b"[1.0,2.0]", b"")


def test_no_reward_is_not_transformed() -> None:
    account = single(SHAPED)
    account.build_reset(EnvOutcome(b"{}", b"{}"), ORDER, STAND)

    data, event = account.build_step(EnvOutcome(b"{}", b"{}"), ACTION, STAND)

    assert json.loads(data)["reward"] is None
    assert isinstance(event, EpisodeStepped)
    assert (event.raw_reward, event.reward, event.parts) == (None, None, {})


def test_what_a_transform_carries_over_is_recorded_with_the_reset() -> None:
    account = single(MOVING)
    _, first = account.build_reset(EnvOutcome(b"{}", b"{}"), ORDER, STAND)
    account.build_step(OUTCOME, ACTION, STAND)
    _, second = account.build_reset(EnvOutcome(b"{}", b"{}"), ORDER, STAND)

    assert isinstance(first, EpisodeReset)
    assert isinstance(second, EpisodeReset)
    again = MOVING.pipeline()
    again.restore(raw(second.pipeline))
    assert raw(first.pipeline) != raw(second.pipeline)
    assert again.snapshot() == raw(second.pipeline)


@given(
    st.builds(
        EnvOutcome,
        OBJECTS.map(msgspec.json.encode),
        OBJECTS.map(msgspec.json.encode),
        st.none() | FINITE,
        st.booleans(),
        st.booleans(),
    ),
    st.booleans(),
    st.booleans(),
)
def test_reply_and_record_say_the_same_of_any_outcome(outcome: EnvOutcome, extended: bool, shaped: bool) -> None:
    account = single(SHAPED if shaped else EMPTY, extended=extended)
    account.build_reset(EnvOutcome(b"{}", b"{}"), ORDER, STAND)

    data, event = account.build_step(outcome, ACTION, STAND)

    said = json.loads(data)
    assert isinstance(event, EpisodeStepped)
    assert said["observation"] == raw(event.observation) == json.loads(outcome.observation)
    assert said.get("metadata", {}) == raw(event.metadata) == json.loads(outcome.metadata)
    assert said["reward"] == event.reward
    assert said["done"] == (outcome.terminated or outcome.truncated)
    assert event.raw_reward == outcome.reward
    assert ("terminated" in said) == extended
    assert event.reward is None or event.reward == pytest.approx((event.raw_reward or 0) + sum(event.parts.values()))
    assert decode_event(encode_event(event)) == event


def test_a_batchs_reset_has_no_rewards_and_no_flags() -> None:
    data, event = batch().build_reset(RESET, ResetRequest([5, 6], "e", None, [True, False]), STAND)

    assert json.loads(data) == {"observations": [[1.0], [2.0]], "step": 7, "episode_id": "e"}
    assert isinstance(event, BatchReset)
    assert (event.seed, raw(event.mask), raw(event.options)) == ([5, 6], [True, False], None)
    assert (raw(event.infos), raw(event.pipeline)) == ({}, None)


@pytest.mark.parametrize("seed", [None, 5])
def test_a_batchs_seed_is_recorded_as_it_was_asked(seed: int | None) -> None:
    _, event = batch().build_reset(RESET, ResetRequest(seed, "e", {"a": 1}), STAND)

    assert isinstance(event, BatchReset)
    assert (event.seed, raw(event.mask), raw(event.options)) == (seed, None, {"a": 1})


def test_a_batchs_step_says_everything_over_all_of_it() -> None:
    data, event = batch().build_step(STEP, b'{"actions": [0, 1]}', STAND)

    assert json.loads(data) == {
        "observations": [[3.0], [4.0]],
        "step": 7,
        "rewards": [1.0, 2.0],
        "terminations": [True, False],
        "truncations": [False, False],
        "infos": {"seed": [1, 2]},
        "episode_id": "e",
    }
    assert isinstance(event, BatchStepped)
    assert bytes(event.actions) == b'{"actions": [0, 1]}'
    assert raw(event.raw_rewards) == raw(event.rewards) == [1.0, 2.0]
    assert event.parts == {}


def test_a_batchs_arrays_are_packed_where_that_was_agreed_on() -> None:
    data, event = batch(packed=True).build_step(STEP, b"{}", STAND)

    said = json.loads(data)
    assert unpack_array(said["rewards"]).tolist() == [1.0, 2.0]
    assert unpack_array(said["terminations"]).tolist() == [True, False]
    assert isinstance(event, BatchStepped)
    assert unpack_array(raw(event.raw_rewards)).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("packed", [False, True])
def test_a_batchs_rewards_are_transformed_and_the_record_has_every_part(packed: bool) -> None:
    account = batch(SHAPED, packed=packed)
    _, begun = account.build_reset(RESET, ORDER, STAND)

    data, event = account.build_step(STEP, b"{}", STAND)

    def numbers(value: Any) -> list[float]:
        found: list[float] = unpack_array(value).tolist() if packed else value
        return found

    assert isinstance(begun, BatchReset)
    assert raw(begun.pipeline)["begun"] == [False, False]
    assert numbers(json.loads(data)["rewards"]) == [1.0, 3.0]
    assert isinstance(event, BatchStepped)
    assert numbers(raw(event.raw_rewards)) == [1.0, 2.0]
    assert {name: numbers(raw(part)) for name, part in event.parts.items()} == {
        "step_cost": [-0.5, -0.5],
        "twice": [0.5, 1.5],
    }
    assert b"twice" not in data


@st.composite
def steps(draw: st.DrawFn) -> BatchOutcome:
    size = draw(st.integers(1, 4))

    def flags() -> Any:
        return mask(*draw(st.lists(st.booleans(), min_size=size, max_size=size)))

    rewards = np.array(draw(st.lists(FINITE, min_size=size, max_size=size)))
    return BatchOutcome(b"[]", draw(OBJECTS.map(msgspec.json.encode)), rewards, flags(), flags(), mask(*[False] * size))


@given(steps(), st.booleans())
def test_reply_and_record_say_the_same_of_any_batch(outcome: BatchOutcome, shaped: bool) -> None:
    assert outcome.rewards is not None
    size = len(outcome.rewards)
    account = batch(SHAPED if shaped else EMPTY, size=size)
    account.build_reset(BatchOutcome(b"[]", b"{}", begins=mask(*[True] * size)), ORDER, STAND)

    data, event = account.build_step(outcome, b"{}", STAND)

    said, checked = json.loads(data), as_batch(event)
    assert said["rewards"] == raw(checked.rewards)
    assert raw(checked.raw_rewards) == outcome.rewards.tolist()
    total = outcome.rewards + sum(np.array(raw(part)) for part in checked.parts.values())
    assert said["rewards"] == pytest.approx(total.tolist())
    assert said.get("infos", {}) == raw(checked.infos)
    assert decode_event(encode_event(event)) == event


def as_batch(event: Event) -> BatchStepped:
    assert isinstance(event, BatchStepped)
    return event


def reset_event(**more: Any) -> EpisodeReset:
    return EpisodeReset(session="s", at=1.0, epoch=1, episode_id=more.pop("episode_id", "e"), observation=NULL, **more)


def as_raw(value: Any) -> Raw:
    return Raw(json.dumps(value).encode())


@given(
    seed=st.none() | st.integers(0, 2**31),
    name=st.none() | st.text(max_size=5),
    options=st.none() | st.dictionaries(st.text(max_size=3), st.integers(), min_size=1, max_size=3),
)
@settings(max_examples=50)
def test_what_was_asked_for_is_read_back_from_the_record(seed: Any, name: Any, options: Any) -> None:
    asked = parse_reset(Reset(seed=seed, episode_id=name, options=as_raw(options)), "s.1")
    event = reset_event(seed=asked.seed, episode_id=asked.episode_id, options=as_raw(asked.options))

    assert reset_from_event(event) == asked
    assert asked.episode_id == ("s.1" if name is None else name)


def test_no_options_and_empty_ones_are_the_same() -> None:
    assert parse_reset(Reset(options=Raw(b"{}")), "e") == parse_reset(Reset(), "e") == ResetRequest(None, "e", None)


@pytest.mark.parametrize("reset", [Reset(options=Raw(b"[1]")), Reset(mask=Raw(b"{}")), Reset(options=Raw(b"{"))])
def test_what_is_no_order_is_refused(reset: Reset) -> None:
    with pytest.raises(RequestRefused):
        parse_reset(reset, "e")
