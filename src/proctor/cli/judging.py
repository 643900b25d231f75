"""How a stream is judged: the options that `proctor judge` and `proctor diagram` share, and the judge that they ask for.

Rule 1: an option stands here once, with its words, so that the same options mean the same verdicts in every command.
Rule 2: a file of rules that cannot be read is told before anything is judged.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from proctor.episode.house_rules import load_rules
from proctor.episode.judge import Judge
from proctor.episode.settings import LayerRules, Limits, OnOverrun, Profile, Settings
from proctor.small_files import read_small_text

ProfileOption: TypeAlias = Annotated[Profile, typer.Option("--profile", help="Whether a verification needs its plan.")]
LayerRulesOption: TypeAlias = Annotated[LayerRules, typer.Option("--layer-rules", help="What a wrong layer gets.")]
OnOverrunOption: TypeAlias = Annotated[OnOverrun, typer.Option("--on-overrun", help="Where an overrun leads.")]
InitialBeliefsOption: TypeAlias = Annotated[
    bool, typer.Option("--initial-beliefs", help="Episodes begin with beliefs.")
]
RulesOption: TypeAlias = Annotated[
    Path | None, typer.Option("--rules", metavar="FILE", help="Rules of your own, one a line.")
]


def judge_under(settings: Settings, *, rules: Path | None = None, max_open: int | None = None) -> Judge:
    """Return a new judge with these settings, the rules in a file, and this machine's clock where one is asked for."""
    return Judge(
        settings,
        limits=Limits() if max_open is None else Limits(open_episodes=max_open),
        rules=() if rules is None else load_rules(read_small_text(rules, expected="a file of rules for --rules")),
        now=lambda: datetime.now(UTC),
    )
