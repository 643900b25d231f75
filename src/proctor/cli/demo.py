"""`proctor demo`: an agent finds the source of a puff plume, live in the terminal, as a GIF, and beside other policies.

Rule 1: the show keeps time: step k is due k / `STEPS_PER_SECOND` seconds after the first, and a step that comes too
    late is not drawn, so that a slow machine shows fewer pictures and not a longer film.
Rule 2: where standard output is no terminal, a few still pictures take the place of the show.
"""

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from proctor.cli.run import as_table, compared, film
from proctor.contracts.guarded import checked_seed
from proctor.envs.episodes import Env, EpisodeResult, play
from proctor.envs.plume.terminal import picture
from proctor.envs.policies import make_policy, policies_of
from proctor.envs.settings import Tree, made
from proctor.envs.video import check_place
from proctor.errors import MissingExtraError

ENV_ID: Final = "proctor/PlumeSearch-v0"
SEARCHER: Final = "surge_cast"
SHOW: Final[Tree] = {
    "grid_size": [96, 48],
    "source_location": [14, 24],
    "plume": "puffs",
    "action": "run_tumble",
    "observation": {"type": "dict", "sensors": {"odor": "concentration", "wind": "wind"}},
}
STEPS_PER_SECOND: Final = 40.0
STILLS: Final = 3
COLUMNS: Final = 96
LINES_BESIDE: Final = 4  # what is printed above and below a picture, and the cursor's line


@dataclass(slots=True)
class Pace:
    """When pictures are due; the clock and the sleep are parts, so that a test needs no time."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    start: float | None = None
    steps: int = 0

    def waits(self) -> bool:
        """Count a step, wait until it is due, and return whether there is time to draw it."""
        now = self.clock()
        if self.start is None:
            self.start = now
        early = self.start + self.steps / STEPS_PER_SECOND - now
        self.steps += 1
        if early > 0:
            self.sleep(early)
        return early > -1.0 / STEPS_PER_SECOND


def demo(
    gif: Annotated[Path, typer.Option(metavar="FILE", help="Where the film goes.")] = Path("demo.gif"),
    live: Annotated[bool, typer.Option("--live/--no-live", help="Show the search as it happens.")] = True,
    seed: Annotated[int, typer.Option(metavar="S", help="The seed of the search that is shown.")] = 8,
    episodes: Annotated[int, typer.Option(metavar="N", min=1, help="Seeds to compare the policies on.")] = 50,
) -> None:
    """Watch an agent search a plume in the terminal, compare the policies, and write a GIF."""
    checked_seed(seed)
    check_place(gif)
    console = Console()
    console.print(f"[bold]{SEARCHER}[/] smells the puffs, feels the wind and looks for the source.", highlight=False)
    with closing(made(ENV_ID, SHOW)) as env:
        watch = watch_live if live and console.is_terminal else watch_stills
        result = watch(console, env, seed)
    console.print(_verdict(result), highlight=False)
    _film(console, gif, seed)
    with closing(made(ENV_ID, {})) as env:
        outcomes = compared(env, list(policies_of(env)), episodes, 0)
    console.print(as_table(f"\n{ENV_ID} with a Gaussian plume, {episodes} seeds", outcomes))


def watch_live(console: Console, env: Env, seed: int, pace: Pace | None = None) -> EpisodeResult:
    """Play one episode before the user's eyes; the last picture stays."""
    pace = Pace() if pace is None else pace
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as screen:

        def look() -> None:
            if pace.waits() or _has_ended(env):
                screen.update(_view(console, env.get_wrapper_attr("scene")()), refresh=True)

        return play(env, make_policy(SEARCHER, env), seed, look)


def watch_stills(console: Console, env: Env, seed: int) -> EpisodeResult:
    """Play one episode and print its first moment, its last, and some between."""
    scenes: list[Any] = []
    scene = env.get_wrapper_attr("scene")
    result = play(env, make_policy(SEARCHER, env), seed, lambda: scenes.append(scene()))
    for k in range(STILLS):
        console.print(_view(console, scenes[k * (len(scenes) - 1) // (STILLS - 1)]))
    return result


def _has_ended(env: Env) -> bool:
    return str(env.get_wrapper_attr("state")) in ("terminated", "truncated")


def _view(console: Console, scene: Tree) -> Group:
    frame = scene["frame"]
    rows = max(console.height - LINES_BESIDE, 1)
    u, v = frame["wind"]
    status = f"step {frame['step']:>4}   wind {u:+.2f} {v:+.2f}"
    return Group(picture(scene, min(console.width, COLUMNS), rows), Text(status, style="dim", no_wrap=True))


def _verdict(result: EpisodeResult) -> str:
    if result.success:
        return f"[green]It found the source in {result.steps} steps.[/]"
    return f"[yellow]It did not find the source in {result.steps} steps; try another --seed.[/]"


def _film(console: Console, gif: Path, seed: int) -> None:
    """Write the same search as a film; without the extra that writes films say so and go on."""
    try:
        with console.status(f"drawing {gif}"):
            film(gif, ENV_ID, SHOW, SEARCHER, seed, every=2)
    except MissingExtraError as problem:
        console.print(f"No film: {problem}", style="yellow", markup=False, highlight=False)
    else:
        console.print(f"The search is in {gif}", markup=False, highlight=False)
