"""`proctor diagram`: the machine that judges packets as a picture, or one episode's walk through it.

Rule 1: a picture is text: Mermaid, which web pages show, or DOT, which Graphviz draws.
Rule 2: a walk is judged anew from the lines, under the same options as `proctor judge` has, and under the settings that
    its own `open` record states.
"""

from pathlib import Path
from typing import Annotated, Final

import typer

from proctor.cli.judge import (
    InitialBeliefsOption,
    LayerRulesOption,
    OnOverrunOption,
    ProfileOption,
    RulesOption,
    check_sources,
    make_judge,
    read_lines,
)
from proctor.cli.output import standard_output
from proctor.episode.diagram import Notation, draw_machine, draw_walk
from proctor.episode.judge import Judge
from proctor.episode.settings import Clock, LayerRules, OnOverrun, Profile, Settings
from proctor.episode.verdicts import Verdict
from proctor.errors import ValidationError

# How many episodes a message names.
MOST_NAMED: Final = 20


def diagram(
    file: Annotated[str | None, typer.Argument(metavar="FILE|-", help="JSON lines with an episode.")] = None,
    notation: Annotated[Notation, typer.Option("--format", help="The language of the picture.")] = Notation.MERMAID,
    episode: Annotated[str | None, typer.Option(metavar="CORR", help="The episode, if there are several.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write to this file.")] = None,
    profile: ProfileOption = Profile.STRICT,
    layer_rules: LayerRulesOption = LayerRules.WARN,
    on_overrun: OnOverrunOption = OnOverrun.SAFEMODE,
    initial_beliefs: InitialBeliefsOption = False,
    rules: RulesOption = None,
) -> None:
    """Draw the machine that judges packets, or with a file the walk of one of its episodes.

    A walk is judged anew, under the options from --profile to --rules, which `proctor judge` has too.
    """
    if file is None and episode is not None:
        raise ValidationError("an episode is drawn from a file", found=episode, expected="the file that holds it")
    settings = Settings(profile, layer_rules, Clock.EVENT, on_overrun, initial_beliefs)
    judging = make_judge(settings, rules=rules)
    text = draw_machine(notation) if file is None else draw_walk(_find_walk(judging, file, episode), notation)
    if out is None:
        with standard_output() as output:
            output.write(text.encode())
        return
    try:
        out.write_text(text, "utf-8")
    except OSError as problem:
        raise ValidationError(f"cannot write {str(out)!r}: {problem.strerror}", expected="a file to write") from problem


def _find_walk(judging: Judge, file: str, wanted: str | None) -> list[Verdict]:
    """Return the verdicts of the episode that is wanted, or of the only one."""
    (source,) = check_sources([file])
    found: list[Verdict] = []
    names: dict[str, None] = {}
    for line in read_lines(source):
        verdict = None if line.text is None else judging.apply(line.text)
        if verdict is None or verdict.correlation_id is None:
            continue
        names[verdict.correlation_id] = None
        if verdict.correlation_id == (next(iter(names)) if wanted is None else wanted):
            found.append(verdict)
    if wanted is None and len(names) > 1:
        raise ValidationError(
            f"there are {len(names)} episodes in {file!r}", expected=f"--episode {_list_names(names)}"
        )
    if not found:
        which = "no episode" if wanted is None else f"no episode {wanted!r}"
        raise ValidationError(f"there is {which} in {file!r}", expected=_list_names(names) or "at least one packet")
    return found


def _list_names(names: dict[str, None]) -> str:
    shown = " or ".join(list(names)[:MOST_NAMED])
    return shown if len(names) <= MOST_NAMED else f"{shown} or one of {len(names) - MOST_NAMED} more"
