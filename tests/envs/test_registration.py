"""Gymnasium knows our environments by id, with nothing of ours imported; its tools and wrappers work on them."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec, registry
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import RecordEpisodeStatistics, RecordVideo
from gymnasium.wrappers.vector import RecordEpisodeStatistics as VectorStatistics

from proctor.envs import registration
from proctor.envs.plume.env import PlumeSearchEnv
from proctor.envs.plume.vector.batched_env import BatchedPlumeSearch
from proctor.envs.registration import register
from tests.envs.plume.catalogue import ACTIONS, SENSORS

ID = "proctor/PlumeSearch-v0"
PLUMES: dict[str, Any] = {
    "gaussian": "gaussian",
    "advected": "advected",
    "puffs": {"type": "puffs", "warm_up": 5, "lifetime": 30},
    "movie": {"type": "movie", "steps_per_frame": 2, "at_end": "loop"},
}
WINDLESS = ("gaussian", "movie")

register()


def python(code: str, **variables: str) -> str:
    """Run `code` in a fresh Python where every warning is an error, outside the repository; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=Path(__file__).anchor,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def made(**keywords: Any) -> gym.Env[Any, Any]:
    """Return an environment by its id, small."""
    return gym.make(ID, **{"grid_size": (9, 7), **keywords})


def test_gymnasium_alone_makes_the_environment_and_steps_it() -> None:
    printed = python(
        "import gymnasium\n"
        f"env = gymnasium.make({ID!r}, max_steps=3)\n"
        "env.reset(seed=1)\n"
        "print([env.step(0)[3] for _ in range(3)], type(env.unwrapped).__name__)"
    )

    assert printed == "[False, False, True] PlumeSearchEnv\n"


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_gymnasium_alone_makes_many(mode: str) -> None:
    printed = python(
        "import gymnasium\n"
        "if __name__ == '__main__':\n"
        f"    envs = gymnasium.make_vec({ID!r}, num_envs=3, vectorization_mode={mode!r}, max_steps=5)\n"
        "    envs.reset(seed=1)\n"
        "    print(envs.step(envs.action_space.sample())[0].shape)\n"
        "    envs.close()"
    )

    assert printed == "(3, 1)\n"


def test_importing_proctor_imports_nothing_heavy() -> None:
    printed = python(
        "import sys, proctor\n"
        "print([name for name in ('gymnasium', 'numpy', 'pydantic', 'msgspec', 'numba') if name in sys.modules])"
    )

    assert printed == "[]\n"


def test_every_public_name_of_proctor_is_found_and_an_unknown_one_is_not() -> None:
    import proctor

    found = {name: getattr(proctor, name) for name in proctor.__all__}

    assert found["PlumeSearchEnv"] is PlumeSearchEnv
    assert dir(proctor) == sorted(proctor.__all__)
    with pytest.raises(AttributeError, match="Nonsense"):
        _ = proctor.Nonsense


@pytest.mark.parametrize("order", ["import proctor, gymnasium", "import gymnasium, proctor"])
def test_the_order_of_imports_does_not_matter(order: str) -> None:
    printed = python(f"{order}\nprint({ID!r} in gymnasium.registry)")

    assert printed == "True\n"


def test_a_python_that_never_meets_gymnasium_imports_none_of_it() -> None:
    printed = python("import sys, json\nprint('gymnasium' in sys.modules)")

    assert printed == "False\n"


def test_a_variable_switches_the_hook_off_and_a_module_in_the_id_does_without() -> None:
    printed = python(
        "import sys\n"
        "print('proctor' in sys.modules)\n"
        "import gymnasium\n"
        f"print({ID!r} in gymnasium.registry)\n"
        f"print(type(gymnasium.make('proctor:{ID}').unwrapped).__name__)",
        PROCTOR_NO_AUTO_REGISTRATION="1",
    )

    assert printed == "False\nFalse\nPlumeSearchEnv\n"


def test_the_line_that_python_runs_at_its_start_imports_proctor_and_nothing_heavy() -> None:
    line = (Path(__file__).parents[2] / "src" / "proctor.pth").read_text("utf-8").strip()
    said = "import sys\nprint([name for name in ('proctor', 'gymnasium', 'numpy', 'pydantic') if name in sys.modules])"

    assert "\n" not in line
    assert python(f"{line}\n{said}") == "['proctor']\n"


def test_registering_twice_is_harmless() -> None:
    before = registry[ID]

    register()
    registration.register_on_import()

    assert registry[ID] is before


def test_the_ids_are_announced_when_gymnasium_s_registry_has_been_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "TRIGGER", "colorsys")  # a module that nobody needs stands for Gymnasium's
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    monkeypatch.delitem(registry, ID)
    finders = len(sys.meta_path)

    registration.register_on_import()
    registration.register_on_import()
    waiting = len(sys.meta_path)
    before = ID in registry
    importlib.import_module("colorsys")

    assert waiting == finders + 1
    assert not before
    assert ID in registry
    assert len(sys.meta_path) == finders


def test_a_missing_gymnasium_is_missing_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "TRIGGER", "no_such_module")
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    finders = len(sys.meta_path)
    registration.register_on_import()

    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        importlib.import_module("no_such_module")

    assert len(sys.meta_path) == finders


@pytest.mark.parametrize("module", ["proctor", "proctor.envs.registration"])
def test_what_python_runs_at_its_start_can_be_run_again(module: str) -> None:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.loader is not None
    again = importlib.util.module_from_spec(spec)
    before = len(sys.meta_path)

    spec.loader.exec_module(again)
    again.register_on_import()

    assert ID in registry
    assert len(sys.meta_path) == before


CONFIG = {"plume": {"type": "puffs", "noise": 0.1}, "observation": {"type": "history", "length": 2}}


def test_a_spec_survives_json_and_makes_the_same_environment() -> None:
    env = gym.make(ID, config=CONFIG, max_steps=40, grid_size=(30, 20))
    assert env.spec is not None

    text = env.spec.to_json()
    again = gym.make(EnvSpec.from_json(text))

    assert json.loads(text)["kwargs"]["config"] == CONFIG
    assert again.spec == env.spec or again.spec.to_json() == text  # type: ignore[union-attr]  # made from a spec
    first, second = env.reset(seed=4), again.reset(seed=4)
    assert first[0].tolist() == second[0].tolist()
    assert first[1] == second[1]
    assert [env.step(1)[0].tolist() for _ in range(5)] == [again.step(1)[0].tolist() for _ in range(5)]


@pytest.fixture
def film(tmp_path: Path) -> str:
    """Return the path of a movie on a grid of 9 x 7 cells."""
    np.save(tmp_path / "film.npy", np.random.default_rng(0).random((4, 7, 9)))
    return str(tmp_path / "film.npy")


@pytest.mark.parametrize("sensor", SENSORS)
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("plume", PLUMES)
def test_gymnasium_s_checker_has_nothing_to_say(film: str, plume: str, action: str, sensor: str) -> None:
    if sensor == "wind" and plume in WINDLESS:
        plume = "advected"
    spec = {**PLUMES[plume], "path": film} if plume == "movie" else PLUMES[plume]
    env = made(config={"plume": spec, "action": action, "observation": SENSORS[sensor]})

    check_env(env.unwrapped, skip_render_check=True)

    env.close()


@pytest.mark.parametrize("plume", PLUMES)
def test_gymnasium_s_checker_has_nothing_to_say_about_the_pictures(film: str, plume: str) -> None:
    spec = {**PLUMES[plume], "path": film} if plume == "movie" else PLUMES[plume]
    env = made(config={"plume": spec}, render_mode="rgb_array")

    check_env(env.unwrapped)

    env.close()


def test_episode_statistics_are_the_environment_s_own() -> None:
    env = RecordEpisodeStatistics(made(max_steps=4, config={"reward": "step_penalty"}))
    env.reset(seed=0, options={"start": (0, 0)})

    info: dict[str, Any] = {}
    for _ in range(4):
        info = env.step(2)[4]

    assert info["episode"]["l"] == 4
    assert info["episode"]["r"] == pytest.approx(info["total_reward"])


def tally(envs: Any, key: str) -> tuple[list[int], list[int], int]:
    """Step at random; return all lengths under `key`, all counted here, and in how many steps some end, some begin."""
    envs.reset(seed=0)
    rng = np.random.default_rng(0)
    told: list[int] = []
    counted: list[int] = []
    staggered = 0
    steps, over = np.zeros(4, np.int64), np.zeros(4, np.bool_)
    for _ in range(200):
        _, _, terminated, truncated, info = envs.step(rng.integers(0, 4, 4))
        began, over = over, terminated | truncated
        steps = np.where(began, 0, steps + 1)
        counted += steps[over].tolist()
        staggered += bool(began.any() and over.any())
        if over.any():
            told += np.asarray(info[key]["l"])[info["_" + key]].tolist()
    return told, counted, staggered


def check_statistics(envs: Any, key: str) -> None:
    """Assert that all episodes are told with their lengths, also where some end while others begin."""
    try:
        told, counted, staggered = tally(envs, key)
    finally:
        envs.close()

    assert told == counted
    assert len(told) > 50
    assert staggered > 10


MANY: dict[str, Any] = {"num_envs": 4, "grid_size": (9, 7), "max_steps": 9}


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("within", [True, False])
def test_statistics_of_a_vector_need_a_key_of_their_own(mode: str, within: bool) -> None:
    wrappers = [partial(RecordEpisodeStatistics, stats_key="statistics")] if within else None
    envs = gym.make_vec(ID, vectorization_mode=mode, wrappers=wrappers, **MANY)

    check_statistics(envs if within else VectorStatistics(envs, stats_key="statistics"), "statistics")


@pytest.mark.parametrize("key", ["episode", "statistics"])
def test_statistics_around_a_batch_take_any_key(key: str) -> None:
    envs = VectorStatistics(gym.make_vec(ID, **MANY), stats_key=key)

    assert isinstance(envs.unwrapped, BatchedPlumeSearch)
    check_statistics(envs, key)


def test_without_a_key_of_their_own_statistics_meet_the_episode_s_number() -> None:
    envs = VectorStatistics(gym.make_vec(ID, vectorization_mode="sync", **MANY))

    with pytest.raises(ValueError, match="key 'episode'"):
        tally(envs, "episode")


def test_an_episode_is_recorded_as_a_video(tmp_path: Path) -> None:
    env = RecordVideo(made(max_steps=3, render_mode="rgb_array"), str(tmp_path / "films"), disable_logger=True)
    env.reset(seed=0, options={"start": (0, 0)})
    for _ in range(3):
        env.step(2)
    env.close()  # type: ignore[no-untyped-call]  # the wrapper's own

    films = [path.read_bytes() for path in (tmp_path / "films").glob("*.mp4")]

    assert len(films) == 1
    assert films[0][4:8] == b"ftyp"
