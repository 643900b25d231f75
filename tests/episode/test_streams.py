"""One stream, three ways to judge it: streaming, line by line, and with stops and starts; and nothing ever raises."""

import json
from itertools import islice
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proctor.episode import Judge
from proctor.episode.verdicts import Verdict
from proctor.errors import ValidationError
from tests.episode.scripts import everything
from tests.episode.stream_strategies import SNIPPETS, Said, mutate, mutated_stream, stream

STOP_EVERY = 1_000


def differences(lines: list[bytes]) -> tuple[list[int], int]:
    """Judge `lines` in three ways; return the numbers of the lines where they differ, and how many were accepted."""
    streaming = Judge().stream(lines)
    one_by_one = Judge()
    stopped = Judge()
    differ: list[int] = []
    accepted = 0
    for number, (line, verdict) in enumerate(zip(lines, streaming, strict=True), 1):
        said = everything(verdict)
        if said != everything(one_by_one.apply(line)) or said != everything(stopped.apply(line)):
            differ.append(number)
        accepted += verdict.accepted
        if number % STOP_EVERY == 0:
            stopped = Judge.restore(stopped.snapshot())
    assert stopped.snapshot() == one_by_one.snapshot()
    return differ, accepted


def test_streaming_one_by_one_and_restored_judges_say_the_same() -> None:
    lines = list(mutated_stream(21, 5_000))

    differ, accepted = differences(lines)

    assert differ == []
    assert 0.3 < accepted / len(lines) < 0.9


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_streaming_one_by_one_and_restored_judges_say_the_same_about_two_hundred_thousand_lines() -> None:
    lines = list(mutated_stream(22, 200_000))

    differ, accepted = differences(lines)

    print(f"{len(lines)} lines, {accepted} accepted")
    assert differ == []


@pytest.mark.slow
def test_a_judge_stopped_after_every_line_says_the_same() -> None:
    judge, stopped = Judge(), Judge()
    for line in mutated_stream(23, 1_500, at_once=2):
        verdict = everything(judge.apply(line))

        assert everything(stopped.apply(line)) == verdict
        stopped = Judge.restore(stopped.snapshot())


def test_a_verdict_says_the_same_however_late_it_is_read() -> None:
    lines = list(mutated_stream(24, 2_000))
    judge = Judge()
    at_once = [everything(judge.apply(line)) for line in lines]

    kept = list(Judge().stream(lines))

    assert [everything(verdict) for verdict in kept] == at_once


def test_what_if_foretells_the_verdict_and_changes_nothing_until_it_is_committed() -> None:
    judge, committing = Judge(), Judge()
    for number, line in enumerate(mutated_stream(25, 2_000)):
        before = judge.snapshot() if number % 10 == 0 else None
        foretold = everything(judge.check(line))
        unchanged = before is None or judge.snapshot() == before

        assert unchanged
        assert everything(judge.apply(line)) == foretold
        assert everything(committing.commit(line, committing.check(line))) == foretold
    assert committing.snapshot() == judge.snapshot()


def test_a_verdict_from_before_the_episode_moved_on_is_not_committed() -> None:
    judge, lines = Judge(), [said.line for said in stream(25, 40, at_once=1) if said.broken is None]
    accepted = [line for line in lines if judge.apply(line).accepted]
    judge = Judge()
    early = judge.check(accepted[0])
    judge.apply(accepted[0])

    with pytest.raises(ValidationError, match="moved on"):
        judge.commit(accepted[0], early)


def test_text_bytes_and_blank_lines_are_read_alike() -> None:
    lines = [said.line for said in islice(stream(26, 500), 500) if said.broken is None]
    spaced = [part for line in lines for part in (b"", b"  \n", b" " + line + b"\r\n")]

    plain = [everything(verdict) for verdict in Judge().stream(lines)]

    assert [everything(verdict) for verdict in Judge().stream(spaced)] == plain
    assert [everything(verdict) for verdict in Judge().stream(line.decode() for line in lines)] == plain


def test_episodes_are_judged_alike_interleaved_and_one_after_the_other() -> None:
    said = [one for one in stream(27, 3_000) if one.broken is None]
    names = [_correlation(one) for one in said]
    interleaved = [everything(verdict) for verdict in Judge().stream(one.line for one in said)]
    order = sorted(range(len(said)), key=names.__getitem__)  # stable: each episode keeps its order

    apart = Judge().stream(said[index].line for index in order)

    assert [everything(verdict) for verdict in apart] == [interleaved[index] for index in order]


def _correlation(said: Said) -> str:
    wire = json.loads(said.line)
    return str(wire.get("header", wire)["correlation_id"])


KEYS = st.sampled_from(
    ("header", "mcp", "payload", "record", "correlation_id", "at", "by", "data", "packet_type", "_n")
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8) | KEYS, inner, max_size=5),
    max_leaves=20,
)


def judged(line: bytes | str) -> Verdict:
    """Judge one line twice and read all that is said of it."""
    judge = Judge()
    foretold = everything(judge.check(line))
    verdict = judge.apply(line)
    assert everything(verdict) == foretold
    assert msgspec.json.encode(verdict.reason)
    Judge.restore(judge.snapshot())
    return verdict


@given(st.binary())
@example(b"")
@example(b"\xff")
@example(b"\xef\xbb\xbf{}")
def test_no_bytes_raise(line: bytes) -> None:
    verdict = judged(line)

    assert not verdict.accepted
    assert verdict.rules


@given(st.text(st.characters(codec=None)))
@example("\ud800")
def test_no_text_raises(line: str) -> None:
    verdict = judged(line)

    assert not verdict.accepted


@pytest.mark.parametrize("line", SNIPPETS, ids=lambda line: repr(line[:30]))
def test_no_odd_line_raises(line: bytes) -> None:
    verdict = judged(line)

    assert not verdict.accepted


@given(JSON_VALUES)
def test_no_json_value_raises(value: Any) -> None:
    verdict = judged(msgspec.json.encode(value))

    assert not verdict.accepted
    assert set(verdict.rules) & {"SCHEMA", "JSON"}


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 3))
def test_no_damaged_stream_raises(seed: int, count: int, damage: int) -> None:
    rng = Random(seed)
    judge = Judge()
    for said in stream(seed, count, at_once=1):
        line = said.line
        for _ in range(damage if rng.random() < 0.5 else 0):
            line = mutate(rng, line)
        foretold = everything(judge.check(line))

        assert everything(judge.apply(line)) == foretold
