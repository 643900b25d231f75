"""The options of judging are the same in every command that judges, and lead to the same judge."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from proctor.cli.judge import diagram, judge, make_judge
from proctor.episode.settings import Clock, Settings
from proctor.errors import ValidationError
from tests.cli.streams import conforming, violated

SHARED = ["--profile", "--layer-rules", "--on-overrun", "--initial-beliefs", "--rules"]


def options(command: Callable[..., None]) -> dict[str, tuple[Any, ...]]:
    """Return what the help says of each option: its words, its default and what stands for its value."""
    alone = typer.Typer(add_completion=False)
    alone.command()(command)
    shown: list[Any] = typer.main.get_command(alone).params
    return {each.opts[0]: (each.help, each.default, each.metavar) for each in shown}


@pytest.mark.parametrize("name", SHARED)
def test_an_option_is_the_same_in_both_commands(name: str) -> None:
    assert options(diagram)[name] == options(judge)[name]


def test_the_judge_has_the_settings_the_rules_and_the_limit(tmp_path: Path) -> None:
    rules = tmp_path / "house.rules"
    rules.write_text("ASK: approval record before DecisionPacket\n", "utf-8-sig")
    judging = make_judge(Settings(initial_beliefs=True), rules=rules, max_open=1)

    verdicts = list(judging.stream(packet.line() for packet in violated()))
    other = judging.apply(next(conforming()))

    assert verdicts[2].rules == ("ASK",)
    assert other.rules == ("LIMIT-1",)


def test_the_judge_has_a_clock_where_one_is_asked_for() -> None:
    assert make_judge(Settings(clock=Clock.WALL)).apply(next(conforming())).accepted


@pytest.mark.parametrize("content", [b"NONSENSE\n", b"\xff\xff"])
def test_rules_that_cannot_be_read_are_a_mistake(tmp_path: Path, content: bytes) -> None:
    rules = tmp_path / "house.rules"
    rules.write_bytes(content)

    with pytest.raises(ValidationError):
        make_judge(Settings(), rules=rules)
