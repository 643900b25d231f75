"""Rewards are transformed as declared, every part is told, and nothing else can change them."""

import json
import math
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import msgspec
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from proctor.errors import ComponentError, StateError, ValidationError
from proctor.models.arrays import pack_array
from proctor.models.wire import Encoding
from proctor.server.rewards.pipeline import Moment, Pipeline, Plan, TransformedRewards, plan_of
from tests.server.rewards import reward_functions
from tests.server.rewards.potential_env import SPACE, Batch, Script, Single, scripts

END = {"": (False, False), "terminated": (True, False), "truncated": (False, True), "both": (True, True)}
ends = st.sampled_from(list(END))
modest = st.floats(-100, 100)


def moment(reward: float, end: str = "", **metadata: Any) -> Moment:
    terminated, truncated = (np.array([flag]) for flag in END[end])
    return Moment(np.array([reward]), terminated, truncated, b'{"observation":0}', msgspec.json.encode(metadata))


def pipeline_of(*tables: dict[str, Any], **metadata: Any) -> Pipeline:
    """Return a pipeline whose episode has begun."""
    pipeline = plan_of(tables).pipeline()
    pipeline.begin(moment(0.0, **metadata))
    return pipeline


def one(rewarded: TransformedRewards) -> float:
    assert rewarded.rewards.shape == (1,)
    return float(rewarded.rewards[0])


def own(name: str) -> dict[str, Any]:
    return {"type": "own", "function": f"tests.server.rewards.reward_functions:{name}"}


# ---------------------------------------------------------------------------------------------------- one by one
@pytest.mark.parametrize(
    ("table", "reward", "expected"),
    [
        ({"type": "clip", "low": -1, "high": 1}, 5.0, 1.0),
        ({"type": "clip", "low": -1, "high": 1}, -5.0, -1.0),
        ({"type": "clip", "low": -1}, 5.0, 5.0),
        ({"type": "clip", "high": 1}, -5.0, -5.0),
        ({"type": "scale", "factor": -0.5}, 5.0, -2.5),
        ({"type": "step_cost", "cost": 0.25}, 5.0, 4.75),
        (own("doubled"), 5.0, 10.0),
    ],
)
def test_a_transform_does_what_its_name_says(table: dict[str, Any], reward: float, expected: float) -> None:
    rewarded = pipeline_of(table).apply(moment(reward))

    assert one(rewarded) == expected
    assert [part.tolist() for part in rewarded.parts.values()] == [[expected - reward]]


def test_the_order_is_the_order_of_the_declaration() -> None:
    clip, scale = {"type": "clip", "high": 1}, {"type": "scale", "factor": 10}

    assert one(pipeline_of(clip, scale).apply(moment(5.0))) == 10.0
    assert one(pipeline_of(scale, clip).apply(moment(5.0))) == 1.0


@given(rewards=st.lists(modest, min_size=1, max_size=6), factor=modest, cost=st.floats(0, 10), bound=st.floats(0, 50))
def test_the_parts_add_up_to_the_whole_change(rewards: list[float], factor: float, cost: float, bound: float) -> None:
    pipeline = pipeline_of(
        {"type": "scale", "factor": factor},
        {"type": "step_cost", "cost": cost},
        {"type": "potential", "key": "phi"},
        {"type": "normalise"},
        {"type": "clip", "low": -bound, "high": bound},
        phi=1.0,
    )

    for reward in rewards:
        rewarded = pipeline.apply(moment(reward, phi=reward))
        parts = [part.item() for part in rewarded.parts.values()]
        assert list(rewarded.parts) == ["scale", "step_cost", "potential", "normalise", "clip"]
        assert one(rewarded) == pytest.approx(reward + sum(parts), abs=1e-9 * (1 + sum(map(abs, parts))))


# ------------------------------------------------------------------------------------------------------ potential
def shaped(phis: Sequence[float], rewards: Sequence[float], end: str, gamma: float, weight: float = 1.0) -> list[float]:
    """Return the shaped rewards of one episode; `phis` has one more, of the first observation."""
    pipeline = pipeline_of({"type": "potential", "key": "phi", "gamma": gamma, "weight": weight}, phi=phis[0])
    steps = list(zip(rewards, phis[1:], strict=True))
    last = len(steps) - 1
    return [
        one(pipeline.apply(moment(reward, end if index == last else "", phi=phi)))
        for index, (reward, phi) in enumerate(steps)
    ]


@given(
    steps=st.lists(st.tuples(modest, modest), min_size=1, max_size=12),
    first=modest,
    end=ends,
    gamma=st.just(1.0) | st.floats(0, 1),
    weight=st.floats(-3, 3),
)
def test_shaping_changes_a_discounted_return_by_its_two_ends_only(
    steps: list[tuple[float, float]], first: float, end: str, gamma: float, weight: float
) -> None:
    rewards, phis = [reward for reward, _ in steps], [first, *(phi for _, phi in steps)]

    after = shaped(phis, rewards, end, gamma, weight)

    change = math.fsum(gamma**t * (new - old) for t, (new, old) in enumerate(zip(after, rewards, strict=True)))
    last = 0.0 if END[end][0] else phis[-1]
    assert change == pytest.approx(weight * (gamma ** len(steps) * last - first), abs=1e-9)


def test_the_potential_of_a_terminal_state_is_not_even_asked_for() -> None:
    pipeline = pipeline_of({"type": "potential", "key": "phi", "gamma": 1.0}, phi=3.0)

    assert one(pipeline.apply(moment(1.0, "terminated"))) == -2.0


def test_an_episode_begins_with_its_own_potential() -> None:
    pipeline = pipeline_of({"type": "potential", "key": "phi", "gamma": 1.0}, phi=3.0)
    pipeline.apply(moment(0.0, "truncated", phi=100.0))

    pipeline.begin(moment(0.0, phi=7.0))

    assert one(pipeline.apply(moment(0.0, phi=8.0))) == 1.0


# ------------------------------------------------------------------------------------------------------ normalise
NORMALISE = {"type": "normalise", "gamma": 0.9, "epsilon": 1e-6}


def script(seed: int, length: int, count: int) -> tuple[NDArray[np.float64], list[list[str]]]:
    rng = np.random.default_rng(seed)
    kinds = ["", "", "", "terminated", "truncated"]
    return rng.normal(size=(count, length)) * 5, rng.choice(kinds, size=(count, length)).tolist()


@pytest.mark.parametrize("seed", range(3))
def test_normalising_differs_from_gymnasiums_only_in_that_a_return_begins_at_zero(seed: int) -> None:
    (rewards,), (kinds,) = script(seed, 60, 1)
    wrapped = gym.wrappers.NormalizeReward(Script(rewards.tolist(), kinds), gamma=0.9, epsilon=1e-6)
    pipeline = pipeline_of(NORMALISE)
    wrapped.reset()

    for reward, end in zip(rewards.tolist(), kinds, strict=True):
        theirs = float(wrapped.step(0)[1])
        assert one(pipeline.apply(moment(reward, end))) == pytest.approx(theirs, abs=1e-12, rel=1e-12)
        if end:
            wrapped.reset()
            wrapped.discounted_reward[:] = 0.0  # what ours does, and Gymnasium's does not
            pipeline.begin(moment(0.0))


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
@pytest.mark.parametrize("seed", range(2))
def test_a_batch_is_normalised_like_gymnasiums_in_double_precision(mode: AutoresetMode, seed: int) -> None:
    count, length = 4, 60
    rewards, kinds = script(seed, length, count)
    raw, wrapped_raw = (SyncVectorEnv(list(scripts(rewards, kinds)), autoreset_mode=mode) for _ in range(2))
    wrapped = gym.wrappers.vector.NormalizeReward(wrapped_raw, gamma=0.9, epsilon=1e-6)
    for vector in (raw, wrapped):
        vector.reset()
    doubles: Any = np.zeros(count)
    wrapped.accumulated_reward = doubles  # theirs are in single precision
    pipeline = plan_of([NORMALISE]).pipeline(count)
    ended = np.zeros(count, np.bool_)
    pipeline.begin(Moment(np.zeros(count), ended, ended, b"[]"))

    for _ in range(length):
        actions = np.zeros(count, np.int64)
        _, plain, terminations, truncations, _ = raw.step(actions)
        theirs = wrapped.step(actions)[1]
        before, ended = ended, terminations | truncations
        begins = ended if mode is AutoresetMode.SAME_STEP else before
        ours = pipeline.apply(Moment(plain, terminations, truncations, b"[]", b"{}", begins))
        wrapped.accumulated_reward[begins] = 0.0  # what ours does, and Gymnasium's does in the same-step mode only
        np.testing.assert_allclose(ours.rewards, theirs, rtol=1e-12, atol=1e-12)


def test_a_batch_in_which_everyone_begins_anew_teaches_the_statistics_nothing() -> None:
    pipeline = plan_of([NORMALISE]).pipeline(2)
    nobody, everyone = np.zeros(2, np.bool_), np.ones(2, np.bool_)
    pipeline.begin(Moment(np.zeros(2), nobody, nobody, b"[]"))
    pipeline.apply(Moment(np.ones(2), everyone, nobody, b"[]"))
    before = pipeline.snapshot()["states"]["normalise"]

    rewarded = pipeline.apply(Moment(np.zeros(2), nobody, nobody, b"[]", b"{}", everyone))

    assert rewarded.rewards.tolist() == [0.0, 0.0]
    assert pipeline.snapshot()["states"]["normalise"] == {**before, "returns": [0.0, 0.0]}


def test_statistics_outlive_an_episode_and_a_return_does_not() -> None:
    pipeline = pipeline_of(NORMALISE)
    pipeline.apply(moment(5.0, "truncated"))
    before = pipeline.snapshot()["states"]["normalise"]

    pipeline.begin(moment(0.0))

    assert pipeline.snapshot()["states"]["normalise"] == {**before, "returns": [0.0]}
    assert before["returns"] == [5.0]


# -------------------------------------------------------------------------------------------------- own functions
def test_a_users_function_sees_the_environments_answer_and_nothing_of_the_client() -> None:
    reward_functions.seen.clear()
    pipeline = pipeline_of(own("watch"))

    pipeline.apply(moment(1.5, "truncated", depth=3))

    ((reward, view),) = reward_functions.seen
    assert (reward, view.step, view.terminated, view.truncated) == (1.5, 1, False, True)
    assert view.observation == {"observation": 0}
    assert view.metadata == {"depth": 3}
    assert {name for name in dir(view) if not name.startswith("_")} == {
        *("outputs", "index", "observation", "metadata", "terminated", "truncated", "step")
    }
    with pytest.raises(AttributeError):
        view.step = 5  # type: ignore[misc]


def test_steps_are_counted_from_the_reset() -> None:
    reward_functions.seen.clear()
    pipeline = pipeline_of(own("watch"))
    for end in ("", "", "truncated"):
        pipeline.apply(moment(0.0, end))
    pipeline.begin(moment(0.0))
    pipeline.apply(moment(0.0))

    assert [view.step for _, view in reward_functions.seen] == [1, 2, 3, 1]


def test_a_users_function_is_not_asked_about_an_environment_that_took_no_step() -> None:
    reward_functions.seen.clear()
    pipeline = plan_of([own("watch")]).pipeline(2)
    nobody = np.zeros(2, np.bool_)
    pipeline.begin(Moment(np.zeros(2), nobody, nobody, b"[]"))

    pipeline.apply(Moment(np.ones(2), nobody, nobody, b"[]", b"{}", np.array([True, False])))

    assert [(view.index, view.step) for _, view in reward_functions.seen] == [(1, 1)]


@pytest.mark.parametrize("answer", [None, True, "1.0", [1.0], "NaN", 10**400])
def test_an_answer_that_is_no_finite_number_is_a_component_error(answer: object) -> None:
    pipeline = pipeline_of(own("from_metadata"))

    with pytest.raises(ComponentError, match="'own' gave no"):
        pipeline.apply(moment(1.0, answer=answer))


@pytest.mark.parametrize(("name", "raised"), [("raises", "LookupError"), ("leaves", "SystemExit")])
def test_a_function_that_raises_is_a_component_error_without_its_text(name: str, raised: str) -> None:
    with pytest.raises(ComponentError, match=f"'own' raised {raised}") as failed:
        pipeline_of(own(name)).apply(moment(1.0))

    assert "secret" not in str(failed.value)


def test_a_potential_that_is_no_number_is_a_component_error() -> None:
    table = {"type": "potential", "function": "tests.server.rewards.reward_functions:metadata_phi"}

    with pytest.raises(ComponentError, match="'potential' gave no"):
        pipeline_of(table, phi="high")
    with pytest.raises(ComponentError, match="no number under 'phi'"):
        pipeline_of({"type": "potential", "key": "phi"})


def test_a_potential_that_is_not_finite_is_a_component_error() -> None:
    pipeline = plan_of([{"type": "potential", "key": "phi"}]).pipeline(2, packed=True)
    nobody = np.zeros(2, np.bool_)
    infos = msgspec.json.encode({"phi": pack_array(np.array([1.0, math.nan]))})

    with pytest.raises(ComponentError, match="'potential' gave no finite number"):
        pipeline.begin(Moment(np.zeros(2), nobody, nobody, b"[]", infos))


# ------------------------------------------------------------------------------------------------ what must hold
@pytest.mark.parametrize(
    ("tables", "reward"),
    [
        ([{"type": "scale", "factor": 1e300}, {"type": "clip", "high": 1}], 1e300),
        ([{"type": "scale", "factor": -1.0}], 1.7e308),
        ([{"type": "potential", "key": "phi", "weight": 1e308}], 1.0),
        ([{"type": "normalise"}], 1e200),
    ],
)
def test_a_number_that_overflows_is_a_component_error_that_names_the_transform(
    tables: list[dict[str, Any]], reward: float
) -> None:
    pipeline = pipeline_of(*tables, phi=0.0)

    with pytest.raises(ComponentError, match=f"'{tables[0]['type']}' gave no finite number"):
        pipeline.apply(moment(reward, phi=1e308))


@pytest.mark.parametrize("reward", [math.nan, math.inf])
def test_a_reward_of_the_environment_that_is_not_finite_is_refused(reward: float) -> None:
    with pytest.raises(ComponentError, match="not finite"):
        pipeline_of({"type": "clip", "high": 1}).apply(moment(reward))


def test_a_step_that_fails_half_way_moves_no_transform() -> None:
    pipeline = pipeline_of(NORMALISE, {"type": "potential", "key": "phi"}, own("from_metadata"), phi=1.0)
    pipeline.apply(moment(3.0, phi=2.0, answer=1.0))
    before = pipeline.snapshot()

    with pytest.raises(ComponentError):
        pipeline.apply(moment(4.0, phi=5.0, answer="no number"))

    assert pipeline.snapshot() == before


def test_a_reset_that_fails_moves_no_transform() -> None:
    pipeline = pipeline_of(NORMALISE, {"type": "potential", "key": "phi"}, phi=1.0)
    pipeline.apply(moment(3.0, phi=2.0))
    before = pipeline.snapshot()

    with pytest.raises(ComponentError):
        pipeline.begin(moment(0.0))

    assert pipeline.snapshot() == before


def test_no_reward_is_transformed_before_every_environment_has_begun() -> None:
    pipeline = plan_of([{"type": "scale", "factor": 2}]).pipeline(2)
    nobody = np.zeros(2, np.bool_)
    step = Moment(np.ones(2), nobody, nobody, b"[]")

    with pytest.raises(StateError):
        pipeline.apply(step)
    pipeline.begin(Moment(np.zeros(2), nobody, nobody, b"[]", b"{}", np.array([True, False])))
    with pytest.raises(StateError):
        pipeline.apply(step)
    pipeline.begin(Moment(np.zeros(2), nobody, nobody, b"[]", b"{}", np.array([False, True])))

    assert pipeline.apply(step).rewards.tolist() == [2.0, 2.0]


def test_a_moment_of_another_size_is_refused() -> None:
    with pytest.raises(ComponentError, match="not one reward each"):
        plan_of([NORMALISE]).pipeline(2).begin(moment(0.0))


def test_an_empty_pipeline_is_false_and_changes_nothing() -> None:
    pipeline = Plan().pipeline()
    pipeline.begin(moment(0.0))

    rewarded = pipeline.apply(moment(1.5))

    assert not pipeline
    assert (one(rewarded), rewarded.parts) == (1.5, {})
    assert pipeline_of(NORMALISE)


def test_the_rewards_that_came_in_are_left_as_they_were() -> None:
    step = moment(5.0, phi=1.0)
    pipeline = pipeline_of({"type": "clip", "high": 1}, NORMALISE, {"type": "potential", "key": "phi"}, phi=0.0)

    pipeline.apply(step)

    assert step.rewards.tolist() == [5.0]


# ------------------------------------------------------------------------------------------------------- snapshots
EVERYTHING = (
    {"type": "clip", "low": -50, "high": 50},
    {"type": "potential", "key": "phi", "gamma": 0.9},
    NORMALISE,
    {"type": "normalise", "gamma": 1.0, "name": "again"},
    {"type": "step_cost", "cost": 0.1},
)
steps_of_sessions = st.lists(st.tuples(modest, modest, ends), min_size=1, max_size=15)


def driven(pipeline: Pipeline, steps: list[tuple[float, float, str]]) -> list[float]:
    """Return the rewards of a session whose episodes begin anew after every end."""
    found = []
    for reward, phi, end in steps:
        found.append(one(pipeline.apply(moment(reward, end, phi=phi))))
        if end:
            pipeline.begin(moment(0.0, phi=phi))
    return found


@given(steps=steps_of_sessions)
def test_the_same_inputs_give_the_same_rewards(steps: list[tuple[float, float, str]]) -> None:
    first, second = (driven(pipeline_of(*EVERYTHING, phi=1.0), steps) for _ in range(2))

    assert first == second


@given(steps=steps_of_sessions, data=st.data())
def test_a_snapshot_goes_on_bit_for_bit(steps: list[tuple[float, float, str]], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(steps)))
    pipeline = pipeline_of(*EVERYTHING, phi=1.0)
    driven(pipeline, steps[:cut])
    saved = json.loads(json.dumps(pipeline.snapshot()))
    again = plan_of(EVERYTHING).pipeline()

    again.restore(saved)

    assert again.snapshot() == pipeline.snapshot()
    assert driven(again, steps[cut:]) == driven(pipeline, steps[cut:])
    assert again.snapshot() == pipeline.snapshot()


def broken(**changes: Any) -> Any:
    return {**pipeline_of(*EVERYTHING, phi=1.0).snapshot(), **changes}


@pytest.mark.parametrize(
    "snapshot",
    [
        None,
        {},
        broken(steps=None),
        broken(steps=[1, 2]),
        broken(begun=[True, False]),
        broken(states={}),
        broken(states=None),
        broken(states={**broken()["states"], "potential": [1.0, 2.0]}),
        broken(states={**broken()["states"], "potential": "high"}),
        broken(states={**broken()["states"], "normalise": {"mean": 0.0}}),
        broken(states={**broken()["states"], "normalise": 5}),
    ],
)
def test_a_snapshot_of_something_else_is_refused_and_changes_nothing(snapshot: Any) -> None:
    pipeline = pipeline_of(*EVERYTHING, phi=1.0)
    pipeline.apply(moment(2.0, phi=3.0))
    before = pipeline.snapshot()

    with pytest.raises(ValidationError, match="snapshot"):
        pipeline.restore(snapshot)

    assert pipeline.snapshot() == before


# -------------------------------------------------------------------------------------------------------- batches
COUNT = 3
LOOKING = (
    {"type": "step_cost", "cost": 0.125},
    {"type": "potential", "key": "phi", "gamma": 0.5},
    {"type": "potential", "function": "tests.server.rewards.reward_functions:height", "name": "height", "gamma": 0.25},
    own("bonus"),
    {"type": "clip", "low": -40, "high": 40},
)


@settings(max_examples=25)
@given(
    mode=st.sampled_from(list(AutoresetMode)),
    packed=st.booleans(),
    seed=st.integers(0, 10_000),
    actions=st.lists(st.lists(st.integers(0, 2), min_size=COUNT, max_size=COUNT), min_size=1, max_size=14),
)
def test_a_batch_is_rewarded_like_as_many_sessions_of_one(
    mode: AutoresetMode, packed: bool, seed: int, actions: list[list[int]]
) -> None:
    encoding = Encoding(packed=packed)
    batch, singles = Batch.made(COUNT, mode, encoding), [Single.made(Encoding()) for _ in range(COUNT)]
    together = plan_of(LOOKING).pipeline(COUNT, packed=packed, space=SPACE)
    alone = [plan_of(LOOKING).pipeline() for _ in range(COUNT)]
    together.begin(batch.reset(seed))
    for index, (single, pipeline) in enumerate(zip(singles, alone, strict=True)):
        pipeline.begin(single.reset(seed + index))

    for row in actions:
        moment = batch.step(row)
        rewarded = together.apply(moment)
        assert moment.begins is not None
        ended = moment.terminations | moment.truncations
        for index, (single, pipeline) in enumerate(zip(singles, alone, strict=True)):
            if moment.begins[index] and not ended[index]:
                pipeline.begin(single.reset(None))
                assert rewarded.rewards[index] == 0.0
                assert [part[index] for part in rewarded.parts.values()] == [0.0] * len(LOOKING)
                continue
            expected = pipeline.apply(single.step(row[index]))
            assert rewarded.rewards[index] == one(expected)
            assert [part[index] for part in rewarded.parts.values()] == [part[0] for part in expected.parts.values()]
            if moment.begins[index]:
                pipeline.begin(single.reset(None))
        if mode is AutoresetMode.DISABLED and ended.any():
            together.begin(batch.reset(None, ended))
            for index in np.flatnonzero(ended).tolist():
                alone[index].begin(singles[index].reset(None))
    snapshots = [pipeline.snapshot() for pipeline in alone]
    assert together.snapshot()["steps"] == [each["steps"][0] for each in snapshots]
    for name in ("potential", "height"):
        assert together.snapshot()["states"][name] == [each["states"][name][0] for each in snapshots]
