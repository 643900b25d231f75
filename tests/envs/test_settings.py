"""Environments as text asks for them: ids, settings, and modules that lie where the user is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.cli.main import main
from proctor.envs.plume.env import PlumeSearchEnv
from proctor.envs.settings import find_spec, import_member, import_user_module, list_keywords, make_env, parse_settings
from proctor.errors import ComponentError, RenderingError, ValidationError

PLUME = "proctor/PlumeSearch-v0"


class Toy(gym.Env[Any, Any]):
    """Takes any keyword, refuses some values, draws nothing."""

    metadata = {"render_modes": []}
    observation_space = gym.spaces.Discrete(2)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, size: int = 1, render_mode: str | None = None, **others: Any) -> None:
        if size == 0:
            raise KeyError("size")
        self.size = size
        self.others = others


class Plain(Toy):
    """Has never heard of pictures."""

    def __init__(self, size: int = 1) -> None:
        super().__init__(size)
        if size < 0:
            sys.exit("no such size")


def one_toy(size: int) -> Toy:
    return Toy(size)


@pytest.fixture(autouse=True)
def toys() -> Iterator[None]:
    gym.register("toys/Any-v0", entry_point=Toy)
    gym.register("toys/Plain-v0", entry_point=Plain)  # type: ignore[arg-type]  # takes no `**kwargs`
    gym.register("toys/Lost-v0", entry_point="no_such_module:Env")
    gym.register("toys/Batch-v0", vector_entry_point=Toy)  # type: ignore[arg-type]  # never called
    yield
    for name in ("Any", "Plain", "Lost", "Batch"):
        del gym.registry[f"toys/{name}-v0"]


def plume(*settings: str) -> PlumeSearchEnv:
    env = make_env(PLUME, parse_settings(settings)).unwrapped
    assert isinstance(env, PlumeSearchEnv)
    return env


@pytest.mark.parametrize(
    ("settings", "tree"),
    [
        ([], {}),
        (["max_steps=200", "flag=true", "none=null"], {"max_steps": 200, "flag": True, "none": None}),
        (["a = text with = in it"], {"a": "text with = in it"}),
        (["a=[1, 2]", "a=null"], {"a": None}),
        (["plume.wind=[1,0]", "plume.type=puffs"], {"plume": {"wind": [1, 0], "type": "puffs"}}),
        (["plume=puffs", "plume.wind=[1,0]"], {"plume": {"type": "puffs", "wind": [1, 0]}}),
        (["plume.wind=[1,0]", "plume=puffs"], {"plume": {"wind": [1, 0], "type": "puffs"}}),
        (['plume={"type": "puffs"}', "plume.noise=0.5"], {"plume": {"type": "puffs", "noise": 0.5}}),
        (["a.b.c=1", "a.b.d=2"], {"a": {"b": {"c": 1, "d": 2}}}),
    ],
)
def test_settings_make_a_tree(settings: list[str], tree: dict[str, Any]) -> None:
    assert parse_settings(settings) == tree


@pytest.mark.parametrize("text", ["max_steps", "=3", "plume.=3", ".type=puffs", ""])
def test_what_is_no_key_and_value_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="not a setting"):
        parse_settings([text])


def test_settings_reach_the_configuration_of_a_plume_search() -> None:
    env = plume("max_steps=7", "grid_size=[30,20]", "plume.type=puffs", "plume.wind=[1,0]", "action=oriented_grid")

    assert plume("plume.sigma=3").config.plume.model_dump() == {"type": "gaussian", "sigma": 3}
    assert (env.max_steps, env.config.grid_size) == (7, (30, 20))
    assert env.config.plume.model_dump() == {"type": "puffs", "wind": [1, 0]}
    assert env.config.action.type == "oriented_grid"


def test_settings_come_on_top_of_a_configuration_file(tmp_path: Path) -> None:
    path = tmp_path / "search.toml"
    path.write_text('max_steps = 5\ngoal_radius = 2.0\n[plume]\ntype = "advected"\nspread = 3.0\n', encoding="utf-8")

    same = plume(f"config={path}", "max_steps=6", "plume.growth=0.5").config
    other = plume(f"config={path}", "plume.type=puffs").config

    assert (same.max_steps, same.goal_radius) == (6, 2.0)
    assert same.plume.model_dump() == {"type": "advected", "spread": 3.0, "growth": 0.5}
    assert other.plume.model_dump() == {"type": "puffs"}


@pytest.mark.parametrize(
    ("setting", "error", "says"),
    [
        ("max_step=3", ValidationError, "max_steps"),
        ("plume=smoke", ComponentError, "advected, gaussian"),
        ("plume.sigmas=3", ComponentError, "sigma"),
        ("max_steps=none", ValidationError, "max_steps"),
        ("config=nowhere.toml", ValidationError, "nowhere.toml"),
        ("plume=3", ValidationError, "plume"),
    ],
)
def test_a_bad_setting_of_a_plume_search_is_refused_with_what_is_known(
    setting: str, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        plume(setting)


def test_other_environments_take_their_keywords_and_gymnasiums() -> None:
    env = make_env("CartPole-v1", {"sutton_barto_reward": True, "max_episode_steps": 3})

    assert env.spec is not None
    assert env.spec.max_episode_steps == 3
    assert env.spec.kwargs["sutton_barto_reward"] is True


POPPER = "SpecKitAI/ColumnPopper-v1"


def test_column_popper_takes_its_settings_as_keywords() -> None:
    assert make_env("proctor/ColumnPopper-v0", {"height": 6, "columns": 5}).get_wrapper_attr("rules").columns == 5
    settings = [
        "number_pool=[1,2]",
        "reward_preset.popped_cell=7",
        "strict_invalid=true",
        "fall_curve=[[0,500],[2000,300]]",
    ]

    rules = make_env(POPPER, parse_settings(settings)).get_wrapper_attr("rules")

    assert (rules.number_pool, rules.strict_invalid) == ((1, 2), True)
    assert (rules.rewards.valid_action, rules.rewards.popped_cell) == (0.0, 7.0)
    assert rules.fall_curve == ((0, 500), (2000, 300))


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("colums=3", "columns"),
        ("number_pool=[0]", "POP-INIT-P1"),
        ("reward_preset=best", "pops"),
        ("height=tall", "height"),
        ("columns=5", "proctor/ColumnPopper-v0"),
    ],
)
def test_a_bad_setting_of_column_popper_is_refused_with_what_is_known(setting: str, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        make_env(POPPER, parse_settings([setting]))


def test_an_unknown_keyword_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ValidationError, match="one of sutton_barto_reward, max_episode_steps"):
        make_env("CartPole-v1", {"gravity": 3})


def test_an_environment_that_takes_anything_gets_anything() -> None:
    env = make_env("toys/Any-v0", {"colour": "red"}).unwrapped

    assert isinstance(env, Toy)
    assert env.others == {"colour": "red"}


def test_a_value_that_the_environment_does_not_like_is_a_message() -> None:
    with pytest.raises(ValidationError, match=r"toys/Any-v0 could not be made: KeyError: 'size'"):
        make_env("toys/Any-v0", {"size": 0})


def test_an_environment_that_knows_no_pictures_is_made() -> None:
    env = make_env("toys/Plain-v0", {"size": 3}).unwrapped

    assert isinstance(env, Plain)
    assert env.size == 3
    with pytest.raises(RenderingError, match="draws no pictures"):
        make_env("toys/Plain-v0", {}, render_mode="rgb_array")


def test_an_environment_that_ends_the_process_is_a_message() -> None:
    with pytest.raises(ValidationError, match="could not be made: SystemExit: no such size"):
        make_env("toys/Plain-v0", {"size": -1})


def test_an_id_whose_code_is_not_there_is_a_message() -> None:
    with pytest.raises(ValidationError, match="cannot import 'no_such_module'"):
        make_env("toys/Lost-v0", {})


def test_a_function_that_makes_environments_shows_what_it_requires() -> None:
    assert list_keywords(one_toy) == {"size": ...}


def test_an_id_without_a_single_environment_is_refused() -> None:
    with pytest.raises(ValidationError, match="no single environment"):
        make_env("toys/Batch-v0", {})


def test_a_module_before_the_id_is_imported_first() -> None:
    assert find_spec("proctor.envs.registration:CartPole-v1").id == "CartPole-v1"
    with pytest.raises(ValidationError, match="cannot import 'no_such_module'"):
        find_spec("no_such_module:CartPole-v1")


def test_pictures_are_asked_only_of_environments_that_draw() -> None:
    assert make_env("CartPole-v1", {}, render_mode="rgb_array").render_mode == "rgb_array"
    with pytest.raises(RenderingError, match="draws no pictures"):
        make_env("toys/Any-v0", {}, render_mode="rgb_array")


def test_a_render_mode_is_a_setting_of_every_environment_that_draws() -> None:
    drawn = [make_env(env_id, {"render_mode": "rgb_array"}) for env_id in ("CartPole-v1", "proctor/PlumeSearch-v0")]

    assert [env.render_mode for env in drawn] == ["rgb_array", "rgb_array"]
    assert make_env("CartPole-v1", {"render_mode": "human"}, render_mode="rgb_array").render_mode == "rgb_array"
    with pytest.raises(RenderingError, match="found 'oils'; expected one of human, rgb_array"):
        make_env("CartPole-v1", {"render_mode": "oils"})


REGISTERS = """
import gymnasium as gym


class Own(gym.Env):
    observation_space = gym.spaces.Discrete(2)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return 0, 1.0, True, False, {}


gym.register("own/Made-v0", entry_point=Own)
"""

# What a module's text is, and what is said of it.
BROKEN = {
    "import no_such_module": "ModuleNotFoundError: No module named 'no_such_module'",
    "raise ValueError('not\\n today')": "ValueError: not today",
    "def (": "SyntaxError: ",
    "raise SystemExit('usage: nothing')": "SystemExit: usage: nothing",
}

Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write a module into the current directory and return its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def put(text: str) -> str:
        name = f"own_{tmp_path.name.replace('-', '_')}"
        (tmp_path / f"{name}.py").write_text(text, "utf-8")
        return name

    yield put
    gym.registry.pop("own/Made-v0", None)


@pytest.mark.parametrize("command", [["run", "{}:Own-v0"], ["check", "{}:Own-v0"], ["check", "{}:Own"]])
@pytest.mark.parametrize(("text", "says"), BROKEN.items())
def test_a_module_that_does_not_import_is_one_line_in_every_command(
    command: list[str], text: str, says: str, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    module = write(text)

    code = main([word.format(module) for word in command])

    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert f"proctor: cannot import '{module}': {says}" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "code"), [(["run", "{}:own/Made-v0", "--episodes", "1"], 0), (["check", "{}:own/Made-v0"], 1)]
)
def test_a_module_in_the_current_directory_registers_its_environment(
    command: list[str], code: int, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    module = write(REGISTERS)

    assert main([word.format(module) for word in command]) == code
    assert "own/Made-v0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("member", "says"), [("Nothing", "no such member"), ("Path.nothing", "no such"), ("__name__", "cannot be called")]
)
def test_a_member_is_found_by_its_dots_and_refused_if_it_cannot_be_called(member: str, says: str) -> None:
    assert import_member("pathlib", "Path.cwd") == Path.cwd
    with pytest.raises(ValidationError, match=says):
        import_member("pathlib", member)


@given(st.text(alphabet="abc.:-é \x00", max_size=8))
def test_any_name_is_a_module_or_a_message(name: str) -> None:
    with nullcontext() if name == "abc" else pytest.raises(ValidationError, match="cannot import"):
        assert import_user_module(name).__name__ == name


def test_what_is_registered_is_made_without_a_look_into_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each not in ("", str(tmp_path))])
    (tmp_path / "pygame.py").write_text("raise SystemExit('a file that lies beside a record')", "utf-8")

    make_env("CartPole-v1", {}).close()

    assert str(tmp_path) not in sys.path
