"""An error says what was found, what was expected and which clause is broken, and survives a pickle."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor import errors
from proctor.errors import (
    MISSING,
    ComponentError,
    ConnectionFailed,
    EpisodeLost,
    Missed,
    MissingExtraError,
    ProctorError,
    RemoteError,
    RenderingError,
    RequestTimeout,
    StateError,
    ValidationError,
)

KINDS = [
    ProctorError,
    ValidationError,
    StateError,
    ComponentError,
    RenderingError,
    ConnectionFailed,
    RequestTimeout,
]
CODED = [RemoteError, EpisodeLost]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_says_found_expected_and_clause(kind: type[ProctorError]) -> None:
    problem = kind("not a seed", found=-1, expected="an integer >= 0", clause="ENV-RESET-P2")

    assert str(problem) == "not a seed; found -1; expected an integer >= 0 [ENV-RESET-P2]"
    assert (problem.found, problem.expected, problem.clause) == (-1, "an integer >= 0", "ENV-RESET-P2")


@pytest.mark.parametrize(
    ("keywords", "text"),
    [
        ({}, "bad"),
        ({"found": None}, "bad; found None"),
        ({"expected": "good"}, "bad; expected good"),
        ({"clause": "ENV-I1"}, "bad [ENV-I1]"),
    ],
)
def test_what_is_not_known_is_not_said(keywords: dict[str, Any], text: str) -> None:
    problem = ProctorError("bad", **keywords)

    assert str(problem) == text
    assert (problem.found is MISSING) == ("found" not in keywords)


@given(st.text(min_size=1), st.one_of(st.integers(), st.text(), st.lists(st.integers())), st.text(min_size=1))
def test_an_error_survives_a_pickle(message: str, found: Any, clause: str) -> None:
    problem = ValidationError(message, found=found, clause=clause)
    loaded = pickle.loads(pickle.dumps(problem))

    assert type(loaded) is ValidationError
    assert (loaded.message, loaded.found, loaded.clause) == (message, found, clause)
    assert str(loaded) == str(problem)


@given(st.integers(1_000, 10_000))
def test_a_huge_value_is_shown_in_short(size: int) -> None:
    problem = ValidationError("too long", found="x" * size)

    assert len(str(problem)) < 200
    assert len(str(problem.found)) == size


def test_the_missing_value_stays_the_one_it_is() -> None:
    assert copy.deepcopy(MISSING) is MISSING
    assert pickle.loads(pickle.dumps(MISSING)) is MISSING
    assert repr(MISSING) == "<missing>"


def test_an_error_without_a_found_value_survives_a_pickle_without_one() -> None:
    loaded = pickle.loads(pickle.dumps(StateError("not now")))

    assert loaded.found is MISSING
    assert str(loaded) == "not now"


def test_each_error_is_also_what_python_would_raise() -> None:
    assert issubclass(ValidationError, ValueError)
    assert issubclass(MissingExtraError, ImportError)
    assert issubclass(ConnectionFailed, ConnectionError)
    assert issubclass(RequestTimeout, TimeoutError)
    assert all(issubclass(kind, ProctorError) for kind in [*KINDS, *CODED, Missed, MissingExtraError])


@pytest.mark.parametrize("kind", CODED)
def test_an_error_of_a_server_says_its_code_and_keeps_it_in_a_pickle(kind: Any) -> None:
    problem = kind("not now", code="STATE_ERROR")
    loaded = pickle.loads(pickle.dumps(problem))

    assert str(problem).startswith("not now")
    assert str(problem).endswith("(code: STATE_ERROR)")
    assert (loaded.code, str(loaded)) == ("STATE_ERROR", str(problem))


def test_missed_rows_say_how_many_and_where_to_go_on() -> None:
    problem = Missed("4 rows are no longer kept", missed=4, next_row=9)
    loaded = pickle.loads(pickle.dumps(problem))

    assert str(problem) == "4 rows are no longer kept; expected watch(after=8), or on_missed='skip'"
    assert (loaded.missed, loaded.next_row, str(loaded)) == (4, 9, str(problem))


def test_a_missing_extra_names_package_extra_and_remedy() -> None:
    problem = MissingExtraError("a window", package="pygame", extra="human")
    loaded = pickle.loads(pickle.dumps(problem))

    assert "pip install 'proctor-rl[human]'" in str(problem)
    assert (loaded.package, loaded.extra, str(loaded)) == ("pygame", "human", str(problem))


def test_the_tree_at_the_head_names_every_error() -> None:
    kinds = [name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)]

    assert errors.__doc__ is not None
    assert all(name in errors.__doc__ for name in kinds)
