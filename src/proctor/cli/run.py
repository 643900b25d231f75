"""`proctor run`: policies in an environment, as a table, as JSON or as a film.

Rule 1: what a user asks for is checked before the first episode: settings, policies, the film.
Rule 2: the film shows the first episode of the first policy in an environment of its own, so that drawing does not
    count as running.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from proctor.cli.output import printable
from proctor.cli.terminal import progress_bar
from proctor.contracts.guarded_env import parse_seed
from proctor.envs import evaluation
from proctor.envs.evaluation import Env, EpisodeResult, EvaluationSummary, Interval, find_policies, make_policy
from proctor.envs.settings import Tree, make_env, parse_settings


@dataclass(frozen=True, slots=True)
class PolicyOutcome:
    """What one policy achieved, and in how many seconds."""

    policy: str
    results: tuple[EpisodeResult, ...]
    seconds: float

    @property
    def summary(self) -> EvaluationSummary:
        """What the results amount to."""
        return evaluation.summarize(self.results)

    @property
    def steps_per_second(self) -> float:
        """How fast the policy and the environment went together."""
        return sum(result.steps for result in self.results) / max(self.seconds, 1e-9)

    def as_json(self) -> Tree:
        """Return the object that is printed."""
        speed = {"seconds": self.seconds, "steps_per_second": self.steps_per_second}
        results = [asdict(result) for result in self.results]
        return {"policy": self.policy, **asdict(self.summary), **speed, "results": results}


def run(
    env_id: Annotated[str, typer.Argument(metavar="ID", help="A Gymnasium id, such as proctor/PlumeSearch-v0.")],
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="One policy, several with commas or repeated, or all.  [default: random]"),
    ] = None,
    episodes: Annotated[int, typer.Option(metavar="N", min=1, help="Episodes for each policy.")] = 10,
    seed: Annotated[int, typer.Option(metavar="S", help="Episode k has the seed S + k.")] = 0,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A setting: max_steps=200, plume.type=puffs, plume.wind=[1,0]."
        ),
    ] = None,
    gif: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Film the first episode: a .gif or .mp4 file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Run policies for some episodes and print success rate, steps to the goal, score, return and speed."""
    tree = parse_settings(settings or [])
    parse_seed(seed)
    with closing(make_env(env_id, tree)) as env:
        names = policy_names(policy or ["random"], env)
        for name in names:
            make_policy(name, env)
        if gif is not None:
            write_gif(gif, env_id, tree, names[0], seed)
        outcomes = run_policies(env, names, episodes, seed, quiet=as_json)
    if as_json:
        film = None if gif is None else str(gif)
        policies = [outcome.as_json() for outcome in outcomes]
        document = {"env": env_id, "settings": tree, "seed": seed, "film": film, "policies": policies}
        typer.echo(json.dumps(document, indent=2))
        return
    console = Console()
    console.print(outcomes_as_table(f"{env_id}, {episodes} episodes from seed {seed}", outcomes))
    if gif is not None:
        console.print(printable(f"The first episode of {names[0]} is in {gif}"), highlight=False, markup=False)


def policy_names(given: Iterable[str], env: Env) -> list[str]:
    """Return the policies of `env` that are meant, each once, in the order given; an unknown one is refused."""
    known = find_policies(env)
    names = [name.strip() for text in given for name in text.split(",")]
    meant = [each for name in names for each in (known if name == "all" else [name])]
    unknown = [name for name in meant if name not in known]
    if unknown:
        raise evaluation.unknown_policy_error(unknown[0], env)
    return list(dict.fromkeys(meant))


def run_policies(
    env: Env, names: Sequence[str], episodes: int, seed: int, *, quiet: bool = False
) -> list[PolicyOutcome]:
    """Return what each policy achieves, with a progress bar on standard error if that is a terminal."""
    outcomes = []
    for name in names:
        results, seconds = [], 0.0
        pending = evaluation.run_episodes(env, make_policy(name, env), episodes, seed)
        with progress_bar(name, episodes, quiet=quiet) as shown:
            for _ in range(episodes):
                start = time.perf_counter()
                results.append(next(pending))
                seconds += time.perf_counter() - start
                shown.advance()
        outcomes.append(PolicyOutcome(name, tuple(results), seconds))
    return outcomes


def write_gif(path: Path, env_id: str, tree: Tree, name: str, seed: int) -> None:
    """Write one episode as a film, in its own time."""
    from proctor.envs.drawing.frames import check_place, write_video

    check_place(path)
    with closing(make_env(env_id, tree, render_mode="rgb_array")) as env:
        frames: Iterator[Any] = (env.render() for _ in evaluation.play_stepwise(env, make_policy(name, env), seed))
        write_video(path, frames, env.metadata.get("render_fps", 30))


def outcomes_as_table(title: str, outcomes: Sequence[PolicyOutcome]) -> Table:
    """Return one row per policy, with the columns that say something of these outcomes."""
    table = Table(
        title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True, show_edge=False
    )
    cells = {heading: [cell(outcome.summary) for outcome in outcomes] for heading, cell in COLUMNS.items()}
    columns = {heading: column for heading, column in cells.items() if set(column) != {"-"}}
    columns["steps/s"] = [f"{outcome.steps_per_second:,.0f}" for outcome in outcomes]
    table.add_column("policy", no_wrap=True)
    for heading in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    for outcome, *row in zip(outcomes, *columns.values(), strict=True):
        table.add_row(outcome.policy, *row)
    return table


def _format_interval(interval: Interval | None, form: Callable[[float], str], unit: str = "") -> str:
    if interval is None:
        return "-"
    value = form(interval.value) + unit
    if interval.low is None or interval.high is None:
        return value
    return f"{value} [{form(interval.low)}, {form(interval.high)}]"


def _format_hundredths(value: float) -> str:
    return f"{round(value, 2) + 0.0:g}"


def _format_steps(total: EvaluationSummary) -> str:
    if total.success_rate is None:
        return "-"
    steps = (total.median_steps_to_goal, total.mean_steps_to_goal)
    return " / ".join("-" if value is None else f"{value:.0f}" for value in steps)


COLUMNS: Final[Mapping[str, Callable[[EvaluationSummary], str]]] = {
    "success\n95 % interval": lambda total: _format_interval(
        total.success_rate, lambda share: f"{round(100 * share, 1):g}", "%"
    ),
    "steps to goal\nmedian / mean": _format_steps,
    "score\n95 % interval": lambda total: _format_interval(total.mean_score, _format_hundredths),
    "return\n95 % interval": lambda total: _format_interval(total.mean_return, _format_hundredths),
}
"""What is told of each policy; a column that says `-` of all of them is left out."""
