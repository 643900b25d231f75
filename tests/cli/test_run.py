"""`proctor run`: a table, a document or a film, and mistakes found before the first episode."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from proctor.cli import terminal as module
from proctor.cli.main import main
from proctor.cli.run import PolicyOutcome, outcomes_as_table, policy_names, run_policies, write_gif
from proctor.envs.evaluation import EpisodeResult, make_policy, play_episode
from proctor.envs.plume.policies import POLICIES
from proctor.envs.popper.policies import POLICIES as POPPER_POLICIES
from proctor.envs.settings import make_env
from proctor.errors import RenderingError, ValidationError

PLUME = "proctor/PlumeSearch-v0"
POPPER = "SpecKitAI/ColumnPopper-v1"
SMALL = ["--set", "grid_size=[12,12]", "--set", "max_steps=20"]


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["run", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_run_prints_a_row_for_each_policy(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["run", PLUME, "--policy", "all", "--episodes", "3", "--seed", "5", *SMALL])

    out, err = capsys.readouterr()
    assert code == 0
    assert err == ""
    assert f"{PLUME}, 3 episodes from seed 5" in out
    assert all(name in out for name in POLICIES)
    assert all(len(line) <= 80 for line in out.splitlines())


def test_the_document_holds_every_episode_and_what_they_amount_to(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, PLUME, "--policy", "run_tumble", "--episodes", "4", "--seed", "9", *SMALL)

    (policy,) = found["policies"]
    env = make_env(PLUME, {"grid_size": [12, 12], "max_steps": 20})
    expected = [play_episode(env, make_policy("run_tumble", env), seed) for seed in (9, 10, 11, 12)]
    assert [result["steps"] for result in policy["results"]] == [result.steps for result in expected]
    assert policy["steps"] == sum(result.steps for result in expected)
    assert policy["success_rate"]["value"] == sum(bool(result.success) for result in expected) / 4
    assert policy["steps_per_second"] > 0
    assert (found["env"], found["seed"], found["film"]) == (PLUME, 9, None)
    assert found["settings"] == {"grid_size": [12, 12], "max_steps": 20}


def test_the_same_command_gives_the_same_episodes(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [PLUME, "--policy", "random,surge_cast", "--episodes", "2", *SMALL]

    one, other = (document(capsys, *arguments)["policies"] for _ in range(2))

    assert [policy["results"] for policy in one] == [policy["results"] for policy in other]


def test_any_gymnasium_environment_runs_at_random(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "CartPole-v1", "--policy", "all", "--episodes", "2"]) == 0

    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()[4:]] == ["random"]


def test_column_popper_has_policies_of_its_own_and_a_score(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--policy", "random,greedy", "--episodes", "2", "--set", "duration_ms=3000"]
    assert main(["run", POPPER, *arguments]) == 0
    heading = capsys.readouterr().out.splitlines()[1].split()

    found = document(capsys, POPPER, *arguments)

    assert heading == ["score", "return"]
    for policy in found["policies"]:
        assert policy["success_rate"] is None
        assert policy["mean_score"]["value"] == sum(result["score"] for result in policy["results"]) / 2


def test_all_policies_are_those_of_the_environment(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, POPPER, "--policy", "all", "--episodes", "1", "--set", "duration_ms=500")

    assert [policy["policy"] for policy in found["policies"]] == list(POPPER_POLICIES)
    assert main(["run", POPPER, "--policy", "surge_cast"]) == 2
    assert ", ".join(POPPER_POLICIES) in capsys.readouterr().err


@pytest.mark.parametrize("suffix", [".gif", ".mp4"])
def test_a_film_of_the_first_episode_is_written(
    suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"search{suffix}"

    code = main(["run", PLUME, "--episodes", "1", "--gif", str(path), "--set", "max_steps=3"])

    assert code == 0
    assert "first episode of random" in capsys.readouterr().out
    assert path.stat().st_size > 500


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (["random"], ["random"]),
        (["run_tumble, random", "random"], ["run_tumble", "random"]),
        (["surge_cast", "all"], ["surge_cast", "random", "gradient_greedy", "run_tumble"]),
    ],
)
def test_policies_can_be_named_in_several_ways(given: list[str], names: list[str]) -> None:
    assert policy_names(given, make_env(PLUME, {})) == names


def test_an_empty_name_is_no_policy() -> None:
    with pytest.raises(ValidationError, match="unknown policy"):
        policy_names(["random,"], make_env(PLUME, {}))


def test_a_film_that_cannot_be_put_in_its_place_is_a_message(tmp_path: Path) -> None:
    (tmp_path / "taken.gif").mkdir()

    with pytest.raises(RenderingError, match="could not be written"):
        write_gif(tmp_path / "taken.gif", PLUME, {"max_steps": 2}, "random", 0)


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("quiet", "shown"), [(False, True), (True, False)])
def test_a_progress_bar_is_shown_on_a_terminal_only_and_not_with_json(
    quiet: bool, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Tty()
    monkeypatch.setattr(module, "Console", lambda **_: Console(file=screen, force_terminal=True, width=80, _environ={}))
    env = make_env(PLUME, {"max_steps": 3})

    run_policies(env, ["random"], 2, 0, quiet=quiet)

    assert ("random" in screen.getvalue()) is shown


def printed(*results: EpisodeResult) -> list[str]:
    screen = io.StringIO()
    Console(file=screen, width=100).print(outcomes_as_table("title", [PolicyOutcome("random", results, 0.5)]))
    return screen.getvalue().splitlines()


def a_result(success: bool | None, score: float | None) -> EpisodeResult:
    return EpisodeResult(0, 30, 12.5, terminated=True, truncated=False, success=success, score=score)


@pytest.mark.parametrize(
    ("success", "score", "headings", "row"),
    [
        (None, None, "return steps/s", "random 12.5 60"),
        (True, None, "success steps to goal return steps/s", "random 100% [20.7, 100] 30 / 30 12.5 60"),
        (False, None, "success steps to goal return steps/s", "random 0% [0, 79.3] - / - 12.5 60"),
        (None, 27.0, "score return steps/s", "random 27 12.5 60"),
        (True, 9.0, "success steps to goal score return steps/s", "random 100% [20.7, 100] 30 / 30 9 12.5 60"),
    ],
)
def test_the_table_has_the_columns_that_the_environment_can_fill(
    success: bool | None, score: float | None, headings: str, row: str
) -> None:
    lines = printed(a_result(success, score))

    words = " ".join(" ".join(lines[1:3]).split()).replace("policy ", "")
    assert words.startswith(headings.replace(" steps/s", ""))
    assert words.endswith("steps/s")
    assert lines[-1].split() == row.split()


def test_a_policy_without_what_others_have_shows_a_dash() -> None:
    screen = io.StringIO()
    outcomes = [PolicyOutcome("one", (a_result(None, 9.0),), 0.5), PolicyOutcome("two", (a_result(None, None),), 0.5)]

    Console(file=screen, width=100).print(outcomes_as_table("title", outcomes))

    assert screen.getvalue().splitlines()[-1].split() == ["two", "-", "12.5", "60"]


def test_a_score_has_an_interval_as_a_return_has() -> None:
    assert printed(a_result(None, 0.0), a_result(None, 27.0))[-1].split()[1:4] == ["13.5", "[-12.96,", "39.96]"]


def test_a_bound_that_rounds_to_nothing_has_no_sign() -> None:
    screen = io.StringIO()
    results = tuple(EpisodeResult(0, 1, -0.001 * k, terminated=True, truncated=False, success=None) for k in range(2))

    Console(file=screen, width=80).print(outcomes_as_table("two", [PolicyOutcome("random", results, 0.5)]))

    assert "0 [0, 0]" in screen.getvalue()
    assert "-0" not in screen.getvalue()
