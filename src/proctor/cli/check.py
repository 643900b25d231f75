"""`proctor check`: every clause of the contract as kept, broken (with a counterexample) or not checkable (and why).

Rule 1: exit code 0 if nothing is broken, 1 if something is, 2 if the target cannot be checked at all.
Rule 2: whatever a user's own code raises here, an exit too, becomes a ValidationError, which `main` turns into a
    message.
"""

import inspect
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Annotated, Any, Final

import gymnasium as gym
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from proctor.contracts.clauses import Subject
from proctor.contracts.conformance import Report, check_subject
from proctor.contracts.spatial import Coordinates, GridSize
from proctor.envs.plume.config import Site
from proctor.envs.popper.conformance import check_column_popper
from proctor.envs.settings import import_member, resolve_id
from proctor.errors import ProctorError, ValidationError

# A small grid that is wider than high, so that swapped axes show; the source is off the centre.
SITE: Final = Site(GridSize(7, 5), Coordinates(2, 3), 1.0)

# What a subject is, by the members that only it has; the first row that fits wins.
MEMBERS: Final = (
    (Subject.ENVIRONMENT, ("reset", "step", "action_space", "observation_space")),
    (Subject.ACTION_PROCESSOR, ("process_action",)),
    (Subject.SENSOR, ("get_observation",)),
    (Subject.REWARD, ("compute_reward",)),
    (Subject.FIELD, ("begin", "advance")),
    (Subject.FIELD, ("sample", "grid_size")),
)
STYLES: Final = {"kept": "green", "broken": "bold red", "not checkable": "yellow"}


def check(
    target: Annotated[str, typer.Argument(metavar="ID|MODULE:CLASS", help="A Gymnasium id, a class or a factory.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Check an environment or a part of one against every clause of its contract."""
    module, _, member = target.partition(":")
    make: Callable[..., Any]
    # A class is named by identifiers; "package:Some-v0" is Gymnasium's way to import before it looks up an id.
    if member and all(part.isidentifier() for part in member.split(".")):
        make = _bind_site_arguments(target, import_member(module, member))
    else:
        make = partial(gym.make, resolve_id(target), disable_env_checker=True)
    subject = _find_subject(target, make)
    with _refuse_exit(target):
        report = check_column_popper(make) if subject is Subject.COLUMN_POPPER else check_subject(subject, make)
    if as_json:
        typer.echo(json.dumps(_as_json(target, subject, report), indent=2))
    else:
        _print_report(f"{target} ({subject})", report)
    raise typer.Exit(1 if report.broken else 0)


def _bind_site_arguments(name: str, maker: Callable[..., Any]) -> Callable[..., Any]:
    """Return a factory without arguments: what `maker` requires is taken from the site of a plume."""
    site = {"site": SITE, **{part: getattr(SITE, part) for part in ("grid_size", "source_location", "goal_radius")}}
    required: list[str] = []
    # A type written in C may keep its signature to itself; then making one will tell.
    with suppress(ValueError):
        required = [
            each.name
            for each in inspect.signature(maker).parameters.values()
            if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        ]
    unknown = [parameter for parameter in required if parameter not in site]
    if unknown:
        raise ValidationError(
            f"{name} needs the argument {unknown[0]!r}, which only you know; "
            "write a function without arguments that returns a new one, and check module:function",
            expected=f"only {', '.join(site)} as required arguments",
        )
    return partial(maker, **{parameter: site[parameter] for parameter in required}) if required else maker


def _find_subject(name: str, make: Callable[..., Any]) -> Subject:
    try:
        with _refuse_exit(name), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            one = make()
    except (ProctorError, gym.error.Error):
        raise
    # Foreign code may raise anything; this is the entry, so it becomes a message here.
    except Exception as problem:
        raise ValidationError(
            f"{name} cannot be made: {type(problem).__name__}: {problem}",
            expected="something that can be made without arguments; wrap it in a function if it needs some",
        ) from problem
    for subject, members in MEMBERS:
        if all(hasattr(one, member) for member in members):
            # A game has a contract of its own, and is known by what it shows.
            space = getattr(one, "observation_space", None) if subject is Subject.ENVIRONMENT else None
            popper = isinstance(space, gym.spaces.Dict) and set(space) >= {"board", "selection"}
            return Subject.COLUMN_POPPER if popper else subject
    raise ValidationError(
        f"{name} is nothing that has a contract",
        found=type(one).__name__,
        expected="an environment, or a part with " + ", ".join(" and ".join(members) for _, members in MEMBERS[1:]),
    )


@contextmanager
def _refuse_exit(name: str) -> Iterator[None]:
    """Refuse an exit from inside the checked code, which would end the command without a word."""
    try:
        yield
    except SystemExit as problem:
        raise ValidationError(
            f"{name} ends the process: SystemExit: {problem}", expected="code that raises no SystemExit"
        ) from problem


def _as_json(target: str, subject: Subject, report: Report) -> dict[str, Any]:
    return {
        "target": target,
        "subject": subject,
        **{verdict.replace(" ", "_"): report.count(verdict) for verdict in STYLES},
        "clauses": [
            {
                "id": finding.clause.id,
                "sentence": finding.clause.sentence,
                "verdict": finding.verdict,
                "reason": finding.reason or None,
            }
            for finding in report.findings
        ],
    }


def _print_report(title: str, report: Report) -> None:
    table = Table(title=title, title_justify="left")
    table.add_column("clause", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("what it says", overflow="fold")
    for finding in report.findings:
        style = STYLES[finding.verdict]
        words = Text.assemble(finding.clause.sentence, (f"\n{finding.reason}" if finding.reason else "", style))
        table.add_row(Text(finding.clause.id), Text(finding.verdict, style=style), words)
    console = Console()
    console.print(table)
    console.print(Text(", ".join(f"{report.count(verdict)} {verdict}" for verdict in STYLES)))
