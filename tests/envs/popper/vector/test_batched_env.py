"""The batched Column Popper equals the single one, value for value, compiled or not; its info is like any dict."""

import copy
import json
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.contracts.chance import SEED_LIMIT
from proctor.envs.popper.env import ColumnPopperEnv
from proctor.envs.popper.vector import kernels
from proctor.envs.popper.vector.batched_env import (
    EAGER_METHODS,
    PENDING,
    BatchedColumnPopper,
    BatchedContractColumnPopper,
    LazyDict,
)
from proctor.envs.vector import kernels as shared_kernels
from proctor.errors import ValidationError
from tests.envs.interpreted import without_compiler
from tests.envs.mirror import Mirror, plain
from tests.envs.popper.games import settings_of_a_game

MODES = list(AutoresetMode)
BOARD = np.array([[1, 2, 3], [1, 2, 1], [0, 2, 0], *[[0, 0, 0]] * 9])


def mirror_of(keywords: dict[str, Any], num_envs: int, mode: AutoresetMode) -> Mirror:
    return Mirror(BatchedColumnPopper, ColumnPopperEnv, keywords, num_envs, mode)


def moves(rng: np.random.Generator, n_actions: int, num_envs: int) -> np.ndarray[Any, Any]:
    """Return actions of which few are falls, so that games last."""
    falls = rng.random(num_envs) < 0.05
    return np.where(falls, n_actions - 1, rng.integers(0, n_actions - 1, num_envs))


@given(
    keywords=settings_of_a_game(),
    num_envs=st.integers(1, 4),
    seed=st.integers(0, SEED_LIMIT - 5),
    mode=st.sampled_from(MODES),
    chance=st.integers(0, 2**32 - 1),
)
@settings(max_examples=80)
def test_every_sub_environment_is_the_single_environment(
    keywords: dict[str, Any], num_envs: int, seed: int, mode: AutoresetMode, chance: int
) -> None:
    mirror = mirror_of(keywords, num_envs, mode)
    mirror.reset(seed)
    rng = np.random.default_rng(chance)

    for _ in range(40):
        mirror.step(moves(rng, keywords["columns"] + 1, num_envs))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("preset", ["contract", "dense"])
@pytest.mark.parametrize("games", [30, pytest.param(200, marks=pytest.mark.slow)])
def test_games_of_each_mode_agree(games: int, preset: str, mode: AutoresetMode) -> None:
    mirror = mirror_of({"reward_preset": preset, "duration_ms": 20_000, "strict_invalid": True}, 16, mode)
    mirror.reset(seed=11)
    rng = np.random.default_rng(5)

    while mirror.episodes < games:
        mirror.step(moves(rng, 4, 16))


@pytest.mark.parametrize(
    "options", [{"board": BOARD}, {"board": BOARD, "selection": 1}, {"selection": 2}, {"board": None}]
)
def test_options_hold_for_every_sub_environment(options: dict[str, Any]) -> None:
    mirror = mirror_of({}, 3, AutoresetMode.NEXT_STEP)
    mirror.reset(5, options)
    rng = np.random.default_rng(0)

    for _ in range(60):
        mirror.step(moves(rng, 4, 3))


def test_bad_options_change_nothing() -> None:
    batch, twin = (BatchedContractColumnPopper(2) for _ in range(2))
    batch.reset(seed=1)
    twin.reset(seed=1)
    with pytest.raises(ValidationError, match="POP-RESET-P1"):
        batch.reset(seed=2, options={"board": [[1]]})

    assert plain(batch.step(np.zeros(2, np.int64))) == plain(twin.step(np.zeros(2, np.int64)))


@pytest.mark.parametrize("seed", [100, None])
def test_a_selection_that_one_board_cannot_have_changes_nothing(seed: int | None) -> None:
    batch, twin = (BatchedContractColumnPopper(8) for _ in range(2))
    for each in (batch, twin):
        each.reset(seed=5)
    with pytest.raises(ValidationError, match="POP-RESET-P2"):
        batch.reset(seed=seed, options={"selection": [1, 1]})

    assert plain(batch.step(np.zeros(8, np.int64))) == plain(twin.step(np.zeros(8, np.int64)))
    assert plain(batch.reset()) == plain(twin.reset())


def test_nothing_that_is_returned_is_alive() -> None:
    batch, twin = (BatchedContractColumnPopper(3, include_time_left_norm=True) for _ in range(2))
    batch.reset(seed=1)
    twin.reset(seed=1)
    rng = np.random.default_rng(1)
    for _ in range(50):
        actions = moves(rng, 4, 3)
        result = batch.step(actions.copy())
        assert plain(result) == plain(twin.step(actions))
        for value in (*result[0].values(), *result[1:4], *result[4].values(), *result[4]["reward_parts"].values()):
            if isinstance(value, np.ndarray) and value.flags.writeable:
                value.fill(0)


def test_a_batch_goes_through_a_pickle_in_mid_game() -> None:
    batch = BatchedContractColumnPopper(4)
    batch.reset(seed=3)
    rng = np.random.default_rng(1)
    for _ in range(40):
        batch.step(moves(rng, 4, 4))
    twin = pickle.loads(pickle.dumps(batch))

    for _ in range(40):
        actions = moves(rng, 4, 4)
        assert plain(batch.step(actions)) == plain(twin.step(actions))


def test_the_contracts_id_keeps_its_board_in_a_batch() -> None:
    with pytest.raises(ValidationError, match="POP-INIT-P7"):
        gym.make_vec("SpecKitAI/ColumnPopper-v1", num_envs=2, vectorization_mode="vector_entry_point", height=5)


def test_masks_come_with_every_step_and_lead_to_valid_actions_only() -> None:
    batch = BatchedContractColumnPopper(8)
    _, info = batch.reset(seed=2)
    rng = np.random.default_rng(4)
    for _ in range(300):
        drawn = rng.random((8, 4)) * info["action_mask"]
        _, _, _, _, info = batch.step(drawn.argmax(axis=1))

        assert not info["reward_parts"]["invalid_action"].any()
        assert not info["reward_parts"]["full_drop"].any()


def test_the_longest_game_on_the_largest_board_fits_the_kernels() -> None:
    keywords = {"height": 64, "columns": 16, "number_pool": range(1, 10), "action_ms": 1_000_000_000}
    mirror = mirror_of({**keywords, "duration_ms": 1_000_000_000}, 2, AutoresetMode.NEXT_STEP)
    mirror.reset(seed=SEED_LIMIT - 2)
    rng = np.random.default_rng(3)

    for _ in range(6):
        mirror.step(rng.integers(0, 17, 2))


MODULES = (shared_kernels, kernels)
CASES: list[dict[str, Any]] = [
    {"number_pool": (1, 2)},
    {"reward_preset": "dense", "strict_invalid": True, "columns": 4},
    {"manual_fall": "fast_forward", "number_pool": (5,), "include_time_left_norm": True},
]


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("case", CASES)
def test_interpreted_kernels_mirror_the_single_environment(case: dict[str, Any], mode: AutoresetMode) -> None:
    rng = np.random.default_rng(2)
    with without_compiler(MODULES):
        mirror = Mirror(
            BatchedColumnPopper,
            ColumnPopperEnv,
            {"height": 4, "duration_ms": 4_000, "fall_curve": ((0, 700), (2_000, 300)), **case},
            3,
            mode,
        )
        mirror.reset(seed=9)
        n_actions = int(mirror.batch.single_action_space.n)
        for _ in range(70):
            mirror.step(np.where(rng.random(3) < 0.05, n_actions - 1, rng.integers(0, n_actions - 1, 3)))

    assert mirror.episodes > 3


def test_an_illegal_action_stops_an_interpreted_step() -> None:
    with without_compiler(MODULES):
        mirror = Mirror(BatchedColumnPopper, ColumnPopperEnv, {}, 2, AutoresetMode.NEXT_STEP)
        mirror.reset(seed=1)

        with pytest.raises(ValueError, match="sub-environment 1"):
            mirror.batch.step(np.array([0, 4]))


@pytest.mark.parametrize("last_fall", [0, 100, 18_000, 38_500, 60_000])
def test_the_compiled_schedule_is_the_schedule(last_fall: int) -> None:
    rules = ColumnPopperEnv(action_ms=130).rules
    curve = np.array(rules.fall_curve, np.int32)

    assert kernels.next_fall(curve, 130, last_fall) == rules.next_fall(last_fall)


CONTENT = {"a": 1, "b": 2}


def deferred(content: Mapping[str, Any]) -> LazyDict:
    return LazyDict(dict.fromkeys(content, PENDING), dict(content).__getitem__)


GLANCES: dict[str, Callable[[Any], Any]] = {
    "a key": lambda it: it["a"],
    "get": lambda it: it.get("b"),
    "in": lambda it: "a" in it,
    "length": len,
    "truth": bool,
    "loop": list,
    "reversed": lambda it: list(reversed(it)),
    "items": lambda it: list(it.items()),
    "values": lambda it: list(it.values()),
    "keys": lambda it: list(it.keys()),
    "equality": lambda it: it == CONTENT,
    "equality from the left": lambda it: {"a": 1, "b": 2} == it,  # noqa: SIM300  # the order is the point
    "inequality": lambda it: it != {},
    "text": repr,
    "a dict of it": dict,
    "unpacking": lambda it: {**it},
    "keywords": lambda it: dict(**it),
    "or": lambda it: it | {"c": 3},
    "or from the left": lambda it: {"c": 3} | it,
    "copy": lambda it: it.copy(),
    "copy.copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda it: pickle.loads(pickle.dumps(it)),
    "json": json.dumps,
    "update of another": lambda it: (other := {}, other.update(it))[0],
    "pop": lambda it: (it.pop("a"), dict(it)),
    "popitem": lambda it: (it.popitem(), dict(it)),
    "setdefault": lambda it: (it.setdefault("a", 7), dict(it)),
    "set": lambda it: (it.__setitem__("a", 5), dict(it))[1],
    "delete": lambda it: (it.__delitem__("a"), dict(it))[1],
    "update": lambda it: (it.update(a=9), dict(it))[1],
    "clear": lambda it: (it.clear(), dict(it))[1],
    "or in place": lambda it: dict(it.__ior__({"d": 1})),
}


@pytest.mark.parametrize("glance", GLANCES.values(), ids=GLANCES)
def test_every_look_sees_what_a_plain_dict_shows(glance: Callable[[Any], Any]) -> None:
    assert glance(deferred(CONTENT)) == glance(dict(CONTENT))


def test_a_value_is_made_once_and_only_if_it_is_asked_for() -> None:
    asked: list[str] = []

    def make(key: str) -> int:
        asked.append(key)
        return CONTENT[key]

    info = LazyDict(dict.fromkeys(CONTENT, PENDING), make)
    seen = ["a" in info, len(info), bool(info), info["a"], info["a"], info.get("a"), info.get("z", 5)]

    assert seen == [True, 2, True, 1, 1, 1, 5]
    assert asked == ["a"]


def test_a_missing_key_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        deferred(CONTENT)["z"]


def test_a_copy_is_a_plain_dict() -> None:
    info = deferred(CONTENT)

    assert {type(copy.deepcopy(info)), type(pickle.loads(pickle.dumps(info))), type(info.copy())} == {dict}
    assert isinstance(info, dict)


def test_no_method_of_a_dict_is_forgotten() -> None:
    shows_no_value = {
        "__contains__",
        "__delitem__",
        "__len__",
        "__reversed__",
        "__setitem__",
        "clear",
        "keys",
        "update",
    }
    own = {"__getitem__", "get", "__init__", "__hash__"}
    of_every_class = {"__class_getitem__", "__getattribute__", "__new__", "__sizeof__", "fromkeys"}
    refused_for_dicts = {"__ge__", "__gt__", "__le__", "__lt__"}
    all_there_are = {name for name in vars(dict) if callable(getattr(dict, name))}

    assert all_there_are - shows_no_value - own - of_every_class - refused_for_dicts == set(EAGER_METHODS)


@given(st.dictionaries(st.text(), st.integers()))
def test_any_content_comes_through(content: dict[str, int]) -> None:
    assert deferred(content) == content
    assert dict(deferred(content)) == content
