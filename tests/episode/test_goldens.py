"""The machine gives the verdicts that the specification's examples expect, and every rule has its examples."""

from collections.abc import Iterator
from typing import Final

import msgspec
import pytest

from proctor.episode import Judge, Settings
from proctor.episode.rules.catalogue import CATALOGUE
from tests.episode.golden_episodes import FOLDER, GOLDENS, LIMITS, TEMPLATES, files
from tests.episode.scripts import Expected

RULES: Final = [rule.id for rule in CATALOGUE]


def lines(name: str) -> list[bytes]:
    return (FOLDER / f"{name}.jsonl").read_bytes().splitlines()


def expectations(name: str) -> list[Expected]:
    return msgspec.json.decode((FOLDER / f"{name}.expected.json").read_bytes(), type=list[Expected])


def verdicts(name: str) -> Iterator[Expected]:
    """Yield what the machine says, in the words of the expectations."""
    judge = Judge(Settings(), limits=LIMITS)
    for number, line in enumerate(lines(name), 1):
        verdict = judge.apply(line)
        yield Expected(
            line=number,
            verdict="accepted" if verdict.accepted else "refused",
            rules=sorted(verdict.rules),
            warnings=sorted({finding.rule for finding in verdict.warnings}),
            path_end=verdict.path[-1].value if verdict.path else None,
        )


def in_order(expected: Expected) -> Expected:
    return msgspec.structs.replace(expected, rules=sorted(expected.rules), warnings=sorted(expected.warnings))


def test_files_and_functions_agree() -> None:
    found = {path.name: path.read_bytes() for path in FOLDER.iterdir()}

    assert found == files()


@pytest.mark.parametrize("name", GOLDENS)
def test_the_machine_says_what_the_specification_says(name: str) -> None:
    found = list(verdicts(name))

    assert found == [in_order(expected) for expected in expectations(name)]


@pytest.mark.parametrize("name", GOLDENS)
def test_a_verdict_names_rules_in_the_order_of_the_catalogue(name: str) -> None:
    judge = Judge(Settings(), limits=LIMITS)

    for line in lines(name):
        verdict = judge.apply(line)
        assert list(verdict.rules) == sorted(verdict.rules, key=RULES.index)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_an_episode_that_keeps_it(rule: str) -> None:
    rows = expectations(f"{rule}-keeps")

    assert rows
    assert all(rule not in (*row.rules, *row.warnings) for row in rows)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_an_episode_that_breaks_it(rule: str) -> None:
    rows = expectations(f"{rule}-breaks")

    assert any(rule in (*row.rules, *row.warnings) for row in rows)


def test_no_golden_is_about_a_rule_that_does_not_exist() -> None:
    about = {name.rsplit("-", 1)[0] for name in GOLDENS if name not in TEMPLATES}

    assert about == set(RULES)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_whole_episode_ends_with_its_close(name: str) -> None:
    judge = Judge(Settings(), limits=LIMITS)
    found = [judge.apply(line) for line in lines(name)]

    assert found[-1].accepted
    for summary in judge.summaries():
        assert judge.outcome(summary.correlation_id) in ("conforming", "violated")
