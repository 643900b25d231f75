"""Every clause has a subject that keeps it and one that breaks it, and the check tells them apart."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import proctor
from proctor.contracts import conformance
from proctor.contracts.clauses import CLAUSES, Clause, Subject, list_clauses
from proctor.contracts.conformance import ClauseVerdict, check_clause
from proctor.contracts.lifecycle import TABLE
from proctor.envs.popper import conformance as popper_conformance
from tests.contracts.mutants import MORE_MUTANTS, MUTANTS, SOUND, Make

CHECKS = {**conformance.CHECKS, **popper_conformance.CHECKS}
SOURCE_FOLDER = Path(proctor.__file__).parent


def numbered(stem: str, kind: str, count: int) -> set[str]:
    return {f"{stem}-{kind}{number}" for number in range(1, count + 1)}


# The ids of the contracts, by method: how many preconditions, postconditions and so on each has.
PROMISED = {
    *numbered("ENV", "I", 9),
    *numbered("ENV-INIT", "P", 6),
    *numbered("ENV-INIT", "C", 7),
    *numbered("ENV-RESET", "P", 3),
    *numbered("ENV-RESET", "C", 6),
    *numbered("ENV-STEP", "P", 2),
    *numbered("ENV-STEP", "C", 8),
    *numbered("ENV-CLOSE", "C", 3),
    *numbered("ENV-RENDER", "P", 2),
    *numbered("ENV-RENDER", "C", 2),
    "ENV-RESET-D1",
    "ENV-STEP-D1",
    "ENV-CLOSE-I1",
    "ENV-ATOMIC",
    *numbered("ACT-SPACE", "C", 3),
    *numbered("ACT-PROC", "P", 3),
    *numbered("ACT-PROC", "C", 4),
    *(f"ACT-{number}" for number in range(1, 5)),
    "ACT-VALID",
    "ACT-META",
    *(f"SENSOR-{number}" for number in range(1, 8)),
    *(f"REWARD-{number}" for number in range(1, 6)),
    *(f"FIELD-{number}" for number in range(1, 9)),
    "FIELD-SAMPLE-P1",
    *numbered("POP-INIT", "P", 7),
    *(f"POP-SPACE-{number}" for number in range(1, 5)),
    *numbered("POP-RESET", "P", 2),
    *numbered("POP-RESET", "C", 2),
    *numbered("POP", "I", 3),
    *(f"POP-FALL-{number}" for number in range(1, 7)),
    *(f"POP-{name}" for name in ("PICK", "PLACE", "PUTBACK", "POP", "CASCADE", "NOOP", "DROP", "SPAWN-1")),
    *(f"POP-{name}" for name in ("OVERFLOW", "TIME", "TIME-LEFT", "TIME-NORM", "END", "POPS", "SCORE")),
    *(f"POP-{name}" for name in ("REWARD", "REWARD-PARTS", "INFO", "SEED", "FAULT", "MASK", "FRESH")),
}


@pytest.mark.parametrize(
    ("clause", "make"), [pytest.param(id_, SOUND[id_], id=id_, marks=pytest.mark.keeps(id_)) for id_ in SOUND]
)
def test_a_sound_subject_keeps_the_clause(clause: str, make: Make) -> None:
    finding = check_clause(clause, make, CHECKS)

    assert finding.verdict is ClauseVerdict.KEPT, str(finding)


@pytest.mark.parametrize(
    ("clause", "make"),
    [
        pytest.param(id_, make, id=f"{id_}-{number}", marks=pytest.mark.breaks(id_))
        for number, (id_, make) in enumerate([*MUTANTS.items(), *MORE_MUTANTS])
    ],
)
def test_a_mutant_breaks_the_clause(clause: str, make: Make) -> None:
    finding = check_clause(clause, make, CHECKS)

    assert finding.verdict is ClauseVerdict.BROKEN, str(finding)
    assert finding.reason


def marked(item: Any, name: str) -> set[str]:
    return {
        mark.args[0]
        for parameters in (mark.args[1] for mark in item.pytestmark if mark.name == "parametrize")
        for parameter in parameters
        for mark in parameter.marks
        if mark.name == name
    }


def test_every_clause_has_a_test_that_keeps_it_and_one_that_breaks_it() -> None:
    assert marked(test_a_sound_subject_keeps_the_clause, "keeps") == set(CLAUSES)
    assert marked(test_a_mutant_breaks_the_clause, "breaks") == set(CLAUSES)


def test_the_clauses_are_those_of_the_contracts_and_the_rules_of_the_table() -> None:
    assert set(CLAUSES) == PROMISED | {row.rule for row in TABLE}


def test_every_clause_has_its_own_check() -> None:
    assert list(CHECKS) == list(CLAUSES)
    assert len(set(CHECKS.values())) == len(CLAUSES)


@pytest.mark.parametrize("subject", Subject)
def test_no_two_clauses_of_a_subject_say_the_same(subject: Subject) -> None:
    sentences = [clause.sentence for clause in list_clauses(subject)]

    assert len(set(sentences)) == len(sentences)
    assert all(sentence.endswith(".") for sentence in sentences)


@given(st.sampled_from(list(Subject)))
def test_the_clauses_of_a_subject_are_exactly_those_that_speak_of_it(subject: Subject) -> None:
    spoken = list_clauses(subject)

    assert spoken
    assert all(CLAUSES[clause.id] is clause and clause.subject is subject for clause in spoken)


def test_a_clause_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        CLAUSES["ENV-I1"] = Clause("ENV-I1", "Nothing holds.", Subject.ENVIRONMENT)  # type: ignore[index]


@pytest.mark.parametrize("path", sorted(SOURCE_FOLDER.rglob("*.py")), ids=lambda path: path.stem)
def test_every_clause_that_the_source_names_exists(path: Path) -> None:
    text = path.read_text("utf-8")
    quoted = re.findall(r'clause="([^"]*)"', text)
    named = re.findall(r"\b(?:ENV|ACT|SENSOR|REWARD|FIELD|POP)(?:-[A-Z]+)*-[A-Z]*\d+\b|\bENV-ATOMIC\b", text)

    assert set(quoted) | set(named) <= set(CLAUSES)
