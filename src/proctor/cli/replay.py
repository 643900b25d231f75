"""`proctor replay`: drive the environment again from the record, and compare every step.

Rule 1: exit code 0 if every episode is identical, 1 if one differs or cannot be replayed, 2 if the command line is wrong.
Rule 2: a difference is told with its step and both values. Changed code or versions are notes, never a difference.
Rule 3: what comes from a record is printed without anything that could steer a terminal.
Rule 4: without --trust nothing is replayed if one of the episodes needs trust (`replay/replayer.py`).
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from proctor.cli.options import TrustOption, command_with_trust, parse_actions
from proctor.cli.output import Output, encode_line, printable, standard_output
from proctor.cli.terminal import WIDTH, progress_bar
from proctor.errors import ValidationError
from proctor.ledger.reader import EpisodeSummary, Ledger
from proctor.replay.batches import SubEpisodeReplay, replay_sub_episodes
from proctor.replay.comparison import format_value
from proctor.replay.driver import DriverCache
from proctor.replay.fork import EpisodeSnapshot, ForkResult, StepOutcome, fork_episode, state_at
from proctor.replay.replayer import ReplayResult, UntrustedRecord, check_episode, open_rows, replay_episode

MOST_LINES: Final = 10
"""How many different sub-episodes of a batch are told one by one."""
LINE_WIDTH: Final = 100
"""How much of a value is shown on a line."""
NUMBERS: Final = ("steps", "steps/s", "x real time")
PICTURES: Final = {"plume": "proctor.envs.plume.drawing.terminal", "popper": "proctor.envs.popper.drawing.terminal"}
"""Who draws the scene of which environment in a terminal."""
PICTURE_SIZE: Final = (72, 24)


def replay(
    context: typer.Context,
    ledger: Annotated[Path, typer.Argument(metavar="LEDGER", help="A ledger's folder, or a file *.ledger.")],
    episode: Annotated[
        str | None, typer.Argument(metavar="[EPISODE]", help="Its chain or id, or how one of them begins; else all.")
    ] = None,
    at: Annotated[int | None, typer.Option("--at", metavar="N", min=0, help="Show the state after step N.")] = None,
    fork: Annotated[
        int | None, typer.Option("--fork", metavar="N", min=0, help="Branch off after step N with --actions.")
    ] = None,
    actions: Annotated[
        str | None, typer.Option(metavar="JSON|FILE", help="A JSON list of actions, or a file with one.")
    ] = None,
    alone: Annotated[
        bool, typer.Option("--alone", help="Of a batch, replay every sub-episode in an environment of its own, too.")
    ] = False,
    trust: TrustOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, an object for each episode.")] = False,
) -> None:
    """Drive the environment again from the record and compare every step; or look at a step, or branch off there.

    This runs the environment's code; without --trust only that of environments that are registered here.
    """
    if at is not None and fork is not None:
        raise ValidationError("--at and --fork are two questions", expected="one of them")
    if (fork is None) != (actions is None):
        raise ValidationError("--fork and --actions go together", expected="--fork N --actions '[...]'")
    trusting = None if trust else command_with_trust(context)
    with Ledger.open(ledger) as opened, standard_output() as output:
        if at is not None:
            _print_result(output, as_json, state_at(opened, _find_chain(opened, episode, trusting), at), _state_lines)
        elif fork is not None:
            branch = fork_episode(opened, _find_chain(opened, episode, trusting), fork, parse_actions(actions or ""))
            _print_result(output, as_json, branch, _fork_lines)
        else:
            episodes = opened.episodes() if episode is None else [opened.find(episode)]
            unread = {} if trusting is None else _check_all(opened, episodes, trusting)
            raise typer.Exit(0 if _replay_all(opened, episodes, unread, output, as_json, alone) else 1)


def _find_chain(ledger: Ledger, text: str | None, trusting: str | None) -> str:
    """Return the chain of the episode that is meant; an UntrustedRecord names the command that replays it, if it is not this one."""
    episodes = ledger.episodes() if text is None else [ledger.find(text)]
    if len(episodes) != 1:
        raise ValidationError("which episode?", found=f"{len(episodes)} episodes", expected="the name of one")
    chain = episodes[0].chain
    if trusting is not None:
        check_episode(ledger, chain, trusting=trusting)
    return chain


def _check_all(ledger: Ledger, episodes: Sequence[EpisodeSummary], trusting: str) -> dict[str, str]:
    """Raise an UntrustedRecord if one of the episodes needs trust; return why others cannot be looked at."""
    unread: dict[str, str] = {}
    for each in episodes:
        try:
            check_episode(ledger, each.chain, trusting=trusting)
        except UntrustedRecord:
            raise
        except ValidationError as problem:
            unread[each.chain] = str(problem)
    return unread


def _print_result(output: Output, as_json: bool, found: Any, lines: Callable[[Any], Iterator[str]]) -> None:
    if as_json:
        output.write(encode_line(found))
    else:
        output.print("".join(f"{line}\n" for line in lines(found)))


class Replayed(NamedTuple):
    """What came of an episode, and of the sub-episodes of a batch that were replayed alone."""

    episode: EpisodeSummary
    result: ReplayResult
    alone: Sequence[SubEpisodeReplay] = ()

    @property
    def identical(self) -> bool:
        """Whether everything is as it was."""
        return self.result.identical and all(sub.identical for sub in self.alone)

    def as_json(self) -> dict[str, Any]:
        """Return the object that is printed."""
        about = {name: getattr(self.episode, name) for name in ("episode_id", "environment", "num_envs")}
        alone = {"alone": [asdict(sub) for sub in self.alone]} if self.alone else {}
        return about | asdict(self.result) | alone

    def in_words(self) -> str:
        """Return what came of it, in a few words."""
        if self.result.why_not:
            return "cannot be replayed"
        if not self.result.identical:
            return f"differs at step {self.result.at_step}"
        by_digest = " (by digest)" if self.result.by_digest else ""
        return f"identical{by_digest}" + (f"; alone: {_describe_counts(self.alone)}" if self.alone else "")


def _replay_all(
    ledger: Ledger,
    episodes: Sequence[EpisodeSummary],
    unread: Mapping[str, str],
    output: Output,
    as_json: bool,
    alone: bool,
) -> bool:
    """Replay the episodes but those that are `unread`, and print the results; return whether all are identical."""
    results: list[Replayed] = []
    with progress_bar("replaying", sum(each.steps for each in episodes), unit="steps") as shown:
        for each in _replay_each(ledger, episodes, unread, alone, shown.update):
            results.append(each)
            if as_json:
                output.write(encode_line(each.as_json()))
    if not as_json:
        output.print(_format_table(results))
        output.print("".join(f"{printable(line)}\n" for line in _finding_lines(results)))
    return all(each.identical for each in results)


def _replay_each(
    ledger: Ledger,
    episodes: Sequence[EpisodeSummary],
    unread: Mapping[str, str],
    alone: bool,
    tick: Callable[[int], None],
) -> Iterator[Replayed]:
    """Yield the results, the episodes of a session one after the other, so that its environment goes on from one to the next."""
    first: dict[tuple[str, str], int] = {}
    for place, each in enumerate(episodes):
        first.setdefault((str(each.file), each.session), place)
    driver_cache = DriverCache()
    done = 0
    try:
        for each in sorted(episodes, key=lambda each: (first[str(each.file), each.session], each.epoch)):
            if each.chain in unread:
                yield Replayed(each, ReplayResult(each.chain, 0, identical=False, why_not=unread[each.chain]))
                continue
            result = replay_episode(
                ledger,
                each.chain,
                progress=lambda steps, before=done: tick(before + steps),  # type: ignore[misc]  # bound now
                driver_cache=driver_cache,
            )
            subs: list[SubEpisodeReplay] = []
            if alone and each.num_envs is not None and not result.why_not:
                with open_rows(ledger, each.chain) as rows:
                    subs = list(replay_sub_episodes(rows))
            yield Replayed(each, result, subs)
            done += each.steps
            tick(done)
    finally:
        driver_cache.drop()


def _format_table(results: Sequence[Replayed]) -> str:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in ("episode", "environment", "steps", "steps/s", "x real time", "result"):
        table.add_column(heading, justify="right" if heading in NUMBERS else "left", no_wrap=True)
    for each in results:
        pace = each.result.steps / max(each.result.seconds, 1e-9)
        speed = f"{each.result.speed:,.0f}" if each.result.recorded_seconds > 0 else "-"
        numbers = (f"{each.result.steps:,}", f"{pace:,.0f}", speed)
        cells = (each.episode.chain, each.episode.environment, *numbers, each.in_words())
        table.add_row(*(Text(printable(cell)) for cell in cells))
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    with console.capture() as text:
        console.print(table)
    return text.get()


def _describe_counts(results: Sequence[ReplayResult | SubEpisodeReplay]) -> str:
    identical = sum(result.identical for result in results)
    unplayed = sum(bool(result.why_not) for result in results)
    counts = {"identical": identical, "different": len(results) - identical - unplayed, "cannot be replayed": unplayed}
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count) or "none"


def _finding_lines(results: Sequence[Replayed]) -> Iterator[str]:
    for each, result, subs in results:
        if result.why_not:
            yield f"{each.chain}: {result.why_not}"
        if result.first is not None:
            yield f"{each.chain}: step {result.at_step}, row {result.seq}: {result.first}"
        yield from (f"{each.chain}: {line}" for line in _alone_lines(subs))
    notes = Counter(note for each in results for note in each.result.notes)
    yield from (f"note ({count} of {len(results)} episodes): {note}" for note, count in notes.items())
    yield f"{len(results)} episodes: {_describe_counts([each.result for each in results])}"


def _alone_lines(subs: Sequence[SubEpisodeReplay]) -> Iterator[str]:
    for why_not, count in Counter(sub.why_not for sub in subs if sub.why_not).items():
        yield f"{count} sub-episodes cannot be replayed alone: {why_not}"
    if any(sub.by_digest for sub in subs):
        yield "the observations were not stored: alone, only rewards, flags and infos were compared"
    different = [sub for sub in subs if sub.first is not None]
    for sub in different[:MOST_LINES]:
        yield f"sub-environment {sub.sub.index} from step {sub.sub.first}, step {sub.at_step}: {sub.first}"
    if len(different) > MOST_LINES:
        yield f"and {len(different) - MOST_LINES} more sub-episodes"


def _state_lines(found: EpisodeSnapshot) -> Iterator[str]:
    yield f"after step {found.step}"
    fields = ["observation", "state", "metadata", "total_reward", "raw_total", "terminated", "truncated"]
    if found.raw_total == found.total_reward:
        fields.remove("raw_total")
    for name in fields:
        value, name = getattr(found, name), name.replace("_", " ")
        if isinstance(value, dict):
            yield f"  {name}"
            yield from (printable(f"    {key:20} {format_value(each, LINE_WIDTH)}") for key, each in value.items())
        else:
            yield printable(f"  {name:22} {format_value(value, LINE_WIDTH)}")
    yield from _draw_scene(found.scene)
    if found.first is not None:
        yield printable(f"note: the replay differs from the record at step {found.at_step}: {found.first}")


def _draw_scene(scene: Any) -> Iterator[str]:
    """Yield a drawing, where somebody knows how to draw the scene."""
    module = PICTURES.get(str(scene.get("environment"))) if isinstance(scene, dict) else None
    if module is None:
        return
    console = Console(width=PICTURE_SIZE[0], color_system=None)
    with console.capture() as text:
        console.print(import_module(module).picture(scene, *PICTURE_SIZE))
    yield from (printable(line.rstrip()) for line in text.get().split("\n"))


def _fork_lines(found: ForkResult) -> Iterator[str]:
    yield from _state_lines(found.standing)
    yield ""
    for row in found.rows:
        yield f"step {row.step}"
        yield printable(f"  branch    {_describe_answer(row.branch)}")
        yield printable(f"  recorded  {'-' if row.recorded is None else _describe_answer(row.recorded)}")
    if found.left:
        yield f"the episode had ended: {found.left} actions were not carried out"


def _describe_answer(answer: StepOutcome) -> str:
    ended = " terminated" * (answer.terminated is True) + " truncated" * (answer.truncated is True)
    action, reward = format_value(answer.action, 40), format_value(answer.reward, 40)
    return f"action {action}  reward {reward}{ended}  observation {format_value(answer.observation, LINE_WIDTH)}"
