"""What is asked for is read as what it must be, or refused with a code; nothing else comes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta, Struct

from proctor.server.net.http_requests import parse_body, parse_query
from proctor.server.runtime.results import RequestRefused


class Wish(Struct, forbid_unknown_fields=True):
    """Something to ask for."""

    name: Annotated[str, Meta(min_length=1, max_length=10)]
    often: Annotated[int, Meta(ge=1, le=5)] = 1
    hurry: bool = False


def code_of(problem: pytest.ExceptionInfo[RequestRefused]) -> str:
    return str(problem.value.problem.code)


def test_a_query_is_text_and_is_read_as_what_it_means() -> None:
    assert parse_query(Wish, [("name", "a"), ("often", "3"), ("hurry", "1")]) == Wish("a", 3, True)


@pytest.mark.parametrize(
    "items",
    [[], [("name", "")], [("name", "a"), ("name", "a")], [("name", "a"), ("x", "1")], [("name", "a"), ("often", "9")]],
)
def test_a_query_that_is_not_acceptable_is_refused(items: list[tuple[str, str]]) -> None:
    with pytest.raises(RequestRefused) as problem:
        parse_query(Wish, items)

    assert code_of(problem) == "VALIDATION_ERROR"


def test_a_whole_number_is_one_however_it_is_written() -> None:
    assert parse_body(Wish, b'{"name":"a","often":3.0}', 8) == Wish("a", 3)


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        *((b"", "INVALID_JSON"), (b"{", "INVALID_JSON"), (b'{"name":"a","name":"b"}', "INVALID_JSON")),
        *((b'{"name":"\xff"}', "INVALID_JSON"), (b"[" * 9 + b"]" * 9, "TOO_DEEP"), (b"[]", "VALIDATION_ERROR")),
        *((b'{"name":1}', "VALIDATION_ERROR"), (b'{"name":"a","x":1}', "VALIDATION_ERROR")),
    ],
)
def test_a_body_that_is_not_acceptable_is_refused(raw: bytes, code: str) -> None:
    with pytest.raises(RequestRefused) as problem:
        parse_body(Wish, raw, 8)

    assert code_of(problem) == code


@settings(max_examples=50, deadline=None)
@given(raw=st.binary(max_size=60), items=st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9)), max_size=4))
def test_whatever_is_sent_is_a_wish_or_a_refusal(raw: bytes, items: list[tuple[str, str]]) -> None:
    ways: list[Callable[[], Wish]] = [lambda: parse_body(Wish, raw, 8), lambda: parse_query(Wish, items)]
    for asked in ways:
        try:
            assert isinstance(asked(), Wish)
        except RequestRefused as refusal:
            assert refusal.problem.code  # noqa: PT017  # either outcome is right
