"""Malformed messages, frames and handshakes; PROCTOR_MALFORMED says how many, where 10 000 are too few."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from tests.server.attacks.judged import Misjudged, coded_error, without_leaks
from tests.server.attacks.malformed import SETTINGS, TARGET, attacked, jobs_for
from tests.server.attacks.vitals import victim

COUNT = int(os.environ.get("PROCTOR_MALFORMED", "10000"))


@pytest.mark.parametrize("count", [COUNT // 5, pytest.param(COUNT, marks=pytest.mark.slow)])
def test_malformed_input_changes_nothing_and_tells_nothing(count: int) -> None:
    with victim(TARGET, **SETTINGS) as there:
        attempts, complaints = asyncio.run(attacked(there, count, seed=0))

    assert complaints == []
    assert attempts >= count


def test_the_jobs_add_up_and_are_the_same_every_time() -> None:
    jobs = list(jobs_for(COUNT))

    assert sum(size for _, _, size in jobs) == COUNT
    assert jobs == list(jobs_for(COUNT))
    assert {kind for _, kind, _ in jobs} == {"base", "hello", "frame", "handshake"}


@pytest.mark.parametrize(
    "said",
    [
        *("Traceback (most recent call last):", 'File "x"', "JSONDecodeError: Expecting value", "at 0x7f3a00112233"),
        *("<class 'int'>", "proctor.server.sessions.session", "see https://errors.pydantic.dev/2/v/missing"),
        "a text from inside, 7f3a",
    ],
)
def test_words_from_inside_are_noticed(said: str) -> None:
    with pytest.raises(Misjudged):
        without_leaks("a case", said.encode())


@pytest.mark.parametrize(
    "reply", [{"type": "observation", "data": {}}, {"type": "error", "data": {"code": "NO_SUCH_CODE", "message": ""}}]
)
def test_a_reply_that_is_no_coded_error_is_noticed(reply: dict[str, object]) -> None:
    with pytest.raises(Misjudged):
        coded_error("a case", b"", json.dumps(reply).encode())


def test_a_coded_error_without_a_word_from_inside_is_fine() -> None:
    reply = {"type": "error", "data": {"code": "VALIDATION_ERROR", "message": "expected `int`, got `str` - at `$.id`"}}

    assert coded_error("a case", b"", json.dumps(reply).encode()) == "VALIDATION_ERROR"
