"""Two streams part where the first thing differs, and nowhere else."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.server.governed.packet_stream import MARK_DIGITS
from proctor.viewer import first_difference


def digest(value: bytes) -> str:
    return sha256(value).hexdigest()


OUTCOME = [b'{"action":1}', b"0.5", b"{}", b"0.5", b"false", b"false"]


def moment(
    step: int, seen: Any = 0.5, picture: Any = None, number: int | None = None
) -> first_difference.EpisodeMoment:
    observation, scene = msgspec.json.encode(seen), msgspec.json.encode(picture)
    shown = "" if picture is None else digest(scene)
    return first_difference.EpisodeMoment(
        step + 10 if number is None else number,
        step,
        dict(zip(first_difference.OUTCOME_FIELDS, OUTCOME if step else [b"null"] * 6, strict=True)),
        digest(observation),
        shown,
        lambda: (observation, None if picture is None else scene),
    )


def stream(length: int) -> list[first_difference.EpisodeMoment]:
    return [moment(step, step / 8, {"at": step}) for step in range(length)]


def seen_else(each: first_difference.EpisodeMoment) -> first_difference.EpisodeMoment:
    return replace(each, observation=digest(b"[1]"), values=lambda: (b"[1]", b"null"))


def done_else(name: str) -> Callable[[first_difference.EpisodeMoment], first_difference.EpisodeMoment]:
    return lambda each: replace(each, outcome=each.outcome | {name: b"1.5"})


def pictured_else(each: first_difference.EpisodeMoment) -> first_difference.EpisodeMoment:
    return replace(each, scene=digest(b"[1]"), values=lambda: (b"null", b"[1]"))


CHANGES = {
    "observation": seen_else,
    "picture": pictured_else,
    **{name: done_else(name) for name in first_difference.OUTCOME_FIELDS},
}


@given(length=st.integers(0, 20))
def test_a_stream_never_parts_from_itself(length: int) -> None:
    assert first_difference.find_moment_difference(stream(length), stream(length)) is None


@given(length=st.integers(1, 20), data=st.data(), what=st.sampled_from(sorted(CHANGES)))
def test_one_changed_step_is_found_at_that_step(length: int, data: st.DataObject, what: str) -> None:
    at = data.draw(st.integers(0, length - 1))
    later = data.draw(st.sampled_from(sorted(CHANGES)))
    other = stream(length)
    other[at:] = [CHANGES[later](each) for each in other[at:]]
    other[at] = CHANGES[what](stream(length)[at])

    found = first_difference.find_moment_difference(stream(length), other)

    assert found is not None
    assert (found.what, found.step, found.number_one, found.number_other) == (what, at, at + 10, at + 10)
    assert found.left != found.right


@given(one=st.integers(0, 9), other=st.integers(0, 9))
def test_the_shorter_one_ends(one: int, other: int) -> None:
    found = first_difference.find_moment_difference(stream(one), stream(other))

    if one == other:
        assert found is None
        return
    shorter = min(one, other)
    assert found == first_difference.FirstDifference(
        first_difference.END,
        "",
        first_difference.ENDS if one < other else first_difference.GOES_ON,
        first_difference.GOES_ON if one < other else first_difference.ENDS,
        max(shorter - 1, 0),
        None if one < other else shorter + 10,
        shorter + 10 if one < other else None,
    )


def test_values_that_say_the_same_in_other_words_do_not_part() -> None:
    left = replace(moment(1), observation="a", values=lambda: (b'{"x":1,"y":2}', None))
    right = replace(moment(1), observation="b", values=lambda: (b'{"y":2, "x":1}', None))

    assert first_difference.find_moment_difference([left], [right]) is None


def test_what_was_not_stored_parts_by_its_digest() -> None:
    left = replace(moment(1), observation="aa", values=lambda: (None, None))
    right = replace(moment(1), observation="bb", values=lambda: (b"1", None))

    found = first_difference.find_moment_difference([left], [right])

    assert found is not None
    assert (found.left, found.right) == ("sha256:aa", "sha256:bb")


def test_a_picture_that_only_one_has_is_no_difference() -> None:
    assert first_difference.find_moment_difference([moment(1, picture={"at": 1})], [moment(1)]) is None


def test_rewards_that_nobody_knows_are_not_compared() -> None:
    whole = moment(1)
    unpaid = replace(
        whole, outcome={name: said for name, said in whole.outcome.items() if name not in first_difference.AS_PAID}
    )

    assert first_difference.find_moment_difference([unpaid], [done_else("reward")(moment(1))]) is None


MARKS = [boot[:MARK_DIGITS] for boot in ("5e884898da280471", "098da2804715e884")]


def said(payload: Any, run: str = "a", **more: Any) -> first_difference.StatedLine:
    line = {
        "header": {"packet_id": f"pkt_{run}_1_4", "correlation_id": f"corr_{run}_1", "created_at": f"2030-01-01 {run}"},
        "payload": payload,
    }
    fields: dict[str, Any] = {"number": 4, "step": 2, "kind": "DecisionPacket", "accepted": True, "rules": ()}
    fields |= {"state": "S3_DECIDE", "line": msgspec.json.encode(line), "own": f"_{run}_1_"} | more
    return first_difference.StatedLine(**fields)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"task_id": "task_a_1_2"}, {"task_id": "task_b_1_2"}),
        ({"expiry": "2030-01-01T00:00:00Z"}, {"expiry": "2030-01-02T00:00:00Z"}),
        ({"note": "since 2030-01-01T00:00:00.5+00:00"}, {"note": "since 2031-01-01T00:00:00+00:00"}),
        ({"note": "as pkt_a_1_3 says"}, {"note": "as pkt_b_1_3 says"}),
        ({"note": f"as pkt_a_1_3-{MARKS[0]} says"}, {"note": f"as pkt_b_1_3-{MARKS[1]} says"}),
        ({"note": f"pkt_a_1_3-{MARKS[0]}, pkt_a_1_4-{MARKS[1]}."}, {"note": "pkt_b_1_3, pkt_b_1_4."}),
        ({"deep": [{"latency_ms": 1.0}]}, {"deep": [{"latency_ms": 2.0}]}),
    ],
)
def test_ids_and_times_do_not_part_two_lines(left: Any, right: Any) -> None:
    assert first_difference.find_line_difference([said(left, "a")], [said(right, "b")]) is None


@pytest.mark.parametrize(
    ("change", "what", "values"),
    [
        ({"kind": "EscalationPacket"}, "kind", ("DecisionPacket", "EscalationPacket")),
        ({"accepted": False}, "verdict", ("accepted", "refused")),
        ({"rules": ("E4",)}, "rules", ([], ["E4"])),
        ({"state": "S4_VERIFY"}, "state", ("S3_DECIDE", "S4_VERIFY")),
    ],
    ids=["kind", "verdict", "rules", "state"],
)
def test_lines_part_by_their_verdict(change: dict[str, Any], what: str, values: tuple[Any, Any]) -> None:
    found = first_difference.find_line_difference([said({})], [said({}, "b", **change)])

    assert found is not None
    assert (found.what, (found.left, found.right), found.kind) == (what, values, "DecisionPacket")


def test_lines_part_by_what_they_say_and_where() -> None:
    found = first_difference.find_line_difference([said({"a/b": [1, 2]})], [said({"a/b": [1, 3]}, "b")])

    assert found is not None
    assert (found.what, found.where, found.left, found.right) == ("payload", "/a~1b/1", 2, 3)


@pytest.mark.parametrize("other", ["pkt_b_1_4-098da2", "pkt_b_1_3-098da2-4", "pkt_b_1_3-098da21"])
def test_ids_of_other_packets_part_two_texts(other: str) -> None:
    assert (
        first_difference.find_line_difference([said({"note": "pkt_a_1_3-5e8848"})], [said({"note": other}, "b")])
        is not None
    )


def test_one_who_says_more_parts_there() -> None:
    found = first_difference.find_line_difference([said({})], [said({}), said({}, number=9, step=7)])

    assert found == first_difference.FirstDifference(
        first_difference.SILENCE, "", first_difference.ENDS, first_difference.GOES_ON, 7, None, 9, "DecisionPacket"
    )


texts = st.text(max_size=8)
lines_of = st.builds(
    first_difference.StatedLine,
    number=st.integers(0, 9),
    step=st.integers(0, 9),
    kind=st.sampled_from(["token_request", ""]) | texts,
    accepted=st.booleans(),
    rules=st.tuples(texts),
    state=texts,
    line=st.binary(max_size=8) | st.dictionaries(texts, texts).map(msgspec.json.encode),
    own=texts,
)


@given(st.lists(lines_of, max_size=6))
def test_whatever_was_said_is_the_same_as_itself(spoken: Sequence[first_difference.StatedLine]) -> None:
    assert first_difference.find_line_difference(spoken, list(spoken)) is None


def parting(what: str, step: int, one: int | None, other: int | None) -> first_difference.FirstDifference:
    return first_difference.FirstDifference(what, "", 1, 2, step, one, other)


@pytest.mark.parametrize(
    ("moment", "line", "first"),
    [
        (None, None, None),
        (parting("m", 1, 5, 5), None, "m"),
        (None, parting("l", 1, 5, 5), "l"),
        (parting("m", 1, 5, 9), parting("l", 1, 6, 2), "m"),
        (parting("m", 1, 7, 1), parting("l", 1, 6, 2), "l"),
        (parting("m", 1, None, 4), parting("l", 1, 6, 3), "l"),
        (parting("m", 3, 7, None), parting("l", 2, None, 2), "l"),
        (parting("m", 2, 7, None), parting("l", 2, None, 2), "m"),
    ],
    ids=["neither", "only a step", "only a line", "step first", "line first", "by the right one", "by step", "a tie"],
)
def test_the_difference_that_was_recorded_first_counts(
    moment: first_difference.FirstDifference | None, line: first_difference.FirstDifference | None, first: str | None
) -> None:
    found = first_difference.choose_first(moment, line)

    assert (None if found is None else found.what) == first
