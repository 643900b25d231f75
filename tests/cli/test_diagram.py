"""`proctor diagram` draws the machine, or the walk of one episode in a file."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer

from proctor.cli.judge import diagram, judge
from proctor.episode import Author
from proctor.episode.diagram import Notation, draw_machine
from proctor.episode.packets.fields import ExecutionMetadata
from tests.cli.said import Run, Said
from tests.cli.streams import NOON, conforming, text_of, violated, written


@pytest.fixture
def run(run_command: Run) -> Run:
    return partial(run_command, "diagram")


@pytest.fixture
def both(tmp_path: Path) -> str:
    """A file with two episodes."""
    return written(tmp_path / "both.jsonl", conforming(), violated())


@pytest.mark.parametrize("notation", Notation)
def test_without_a_file_the_machine_is_drawn(run: Run, notation: Notation) -> None:
    said = run("--format", notation)

    assert said == Said(0, draw_machine(notation), "")


def test_mermaid_is_the_default(run: Run) -> None:
    assert run().out == draw_machine(Notation.MERMAID)


def test_the_only_episode_of_a_file_is_drawn(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_bytes(b"\n{broken\n" + text_of(conforming()))

    said = run(str(path))

    assert said.code == 0
    assert "S2_MODEL --> S3_DECIDE: 3 DecisionPacket(VERIFY_FIRST)<br/>9 DecisionPacket(ACT)\n" in said.out
    assert "S7_REVIEW --> S0_IDLE: 14 close\n" in said.out


def test_one_of_several_episodes_is_drawn_by_its_name(run: Run, both: str) -> None:
    said = run(both, "--episode", "corr_bad", "--format", "dot")

    assert said.code == 0
    assert "3 refused DecisionPacket(ACT), FSM, E1" in said.out


def test_a_walk_is_judged_under_the_options_of_the_judge(run: Run, tmp_path: Path) -> None:
    author = Author("corr_l", at=NOON)
    seen, decided = author.observation({"a": 1}), author.decision("VERIFY_FIRST")
    packets = [seen, decided, author.directive("thermometer")]
    path = written(tmp_path / "lenient.jsonl", iter(packets))
    rules = tmp_path / "house.rules"
    rules.write_text("ASK: approval record before DecisionPacket\n", "utf-8-sig")

    strict = run(path).out
    lenient = run(path, "--profile", "lenient", "--initial-beliefs").out
    ours = run(path, "--initial-beliefs", "--rules", str(rules)).out

    assert "2 refused DecisionPacket(VERIFY_FIRST), FSM, E1" in strict
    assert "refused" not in lenient
    assert "2 refused DecisionPacket(VERIFY_FIRST), ASK" in ours


def test_an_overrun_and_a_wrong_layer_are_drawn_as_the_options_say(run: Run, tmp_path: Path) -> None:
    author = Author("corr_o", at=NOON)
    begun = [author.observation({"a": 1}), author.belief(), author.decision("ACT"), author.token("t", issuer=3)]
    stray = written(tmp_path / "stray.jsonl", iter(begun))
    asked = author.directive("tool")
    dear = author.result(asked, cost=ExecutionMetadata(tokens_used=10**9))
    overrun = written(tmp_path / "overrun.jsonl", iter([*begun[:3], asked, dear]))

    assert "LAYER-1" in run(stray, "--layer-rules", "error").out
    assert "S6_EXECUTE --> S8_ESCALATED" in run(overrun, "--on-overrun", "escalate").out


def test_a_name_that_is_empty_names_no_episode(run: Run, both: str) -> None:
    said = run(both, "--episode", "")

    assert (said.code, said.out) == (2, "")
    assert "there is no episode ''" in said.err


def test_a_walk_is_drawn_from_standard_input_too(run: Run) -> None:
    assert "14 close" in run("-", stdin=text_of(conforming())).out


def test_a_picture_can_be_written_to_a_file(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "machine.dot"

    said = run("--format", "dot", "--out", str(target))

    assert said == Said(0, "", "")
    assert target.read_text("utf-8") == draw_machine(Notation.DOT)


def test_several_episodes_are_listed_if_none_was_named(run: Run, both: str) -> None:
    said = run(both)

    assert (said.code, said.out) == (2, "")
    assert "there are 2 episodes" in said.err
    assert "corr_good or corr_bad" in said.err


def test_of_very_many_episodes_the_first_are_listed(run: Run, tmp_path: Path) -> None:
    begun = (iter([next(conforming(f"corr_{number}"))]) for number in range(30))

    said = run(written(tmp_path / "many.jsonl", *begun))

    assert "corr_19 or one of 10 more" in said.err
    assert "corr_20" not in said.err


def test_an_episode_that_is_not_there_is_told_with_those_that_are(run: Run, both: str) -> None:
    said = run(both, "--episode", "corr_nobody")

    assert said.code == 2
    assert "no episode 'corr_nobody'" in said.err
    assert "corr_good or corr_bad" in said.err


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
