"""How much a peer may ask for: exact on JSON, careful with the rest."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.access import limits
from proctor.access.limits import (
    LogBudget,
    RequestLimits,
    Throttle,
    TokenBucket,
    has_duplicate_keys,
    has_infinite_number,
    has_more_values,
    is_too_deep,
)
from proctor.errors import ValidationError

TEXTS = st.text(st.sampled_from('[]{}":\\ab, é\n😀') | st.characters(), max_size=8)
KEYS = st.sampled_from(["a", "b", ":a", "", '"', "\\", "é", "\n"])
PRETTY = st.sampled_from([(",", ":"), (" , ", "\n :\t")])


class Pairs(list[tuple[str, Any]]):
    """An object that may have a key twice."""


def values(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.lists(st.tuples(KEYS | TEXTS, inner), max_size=4).map(Pairs),
        max_leaves=12,
    )


VALUES = values(st.none() | st.booleans() | st.integers() | st.floats() | TEXTS)


def written(value: Any, separators: tuple[str, str], ascii_only: bool) -> str:
    """Return the value as JSON; objects may have a key twice."""
    comma, colon = separators
    if isinstance(value, Pairs):
        pairs = [
            f"{json.dumps(k, ensure_ascii=ascii_only)}{colon}{written(v, separators, ascii_only)}" for k, v in value
        ]
        return "{" + comma.join(pairs) + "}"
    if isinstance(value, list):
        return "[" + comma.join(written(each, separators, ascii_only) for each in value) + "]"
    return json.dumps(value, ensure_ascii=ascii_only)


def naive_depth(value: Any) -> int:
    if isinstance(value, Pairs):
        return 1 + max((naive_depth(each) for _, each in value), default=0)
    return 1 + max(map(naive_depth, value), default=0) if isinstance(value, list) else 0


def naive_duplicates(value: Any) -> bool:
    if isinstance(value, Pairs):
        keys = [key for key, _ in value]
        return len(set(keys)) < len(keys) or any(naive_duplicates(each) for _, each in value)
    return isinstance(value, list) and any(map(naive_duplicates, value))


def encoded(value: Any, separators: tuple[str, str], ascii_only: bool) -> bytes:
    return written(value, separators, ascii_only).encode("utf-8", "surrogatepass")


@given(VALUES, PRETTY, st.booleans(), st.integers(0, 5))
def test_a_text_is_too_deep_exactly_if_its_depth_is_beyond_the_limit(
    value: Any, separators: tuple[str, str], ascii_only: bool, limit: int
) -> None:
    assert is_too_deep(encoded(value, separators, ascii_only), limit) == (naive_depth(value) > limit)


@given(VALUES, PRETTY, st.booleans(), st.integers(1, 7))
def test_the_depth_does_not_depend_on_where_a_block_ends(
    value: Any, separators: tuple[str, str], ascii_only: bool, block: int
) -> None:
    raw = encoded(value, separators, ascii_only)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "_BLOCK", block)
        depth = next(limit for limit in range(len(raw)) if not is_too_deep(raw, limit))

    assert depth == naive_depth(value)


def naive_marks(value: Any) -> int:
    if isinstance(value, Pairs):
        return 1 + sum(2 + naive_marks(each) for _, each in value) - bool(value)
    return 1 + sum(1 + naive_marks(each) for each in value) - bool(value) if isinstance(value, list) else 0


@given(VALUES, PRETTY, st.booleans(), st.integers(0, 12), st.integers(1, 7))
def test_the_commas_colons_lists_and_objects_of_a_text_are_counted_outside_of_strings(
    value: Any, separators: tuple[str, str], ascii_only: bool, limit: int, block: int
) -> None:
    raw = encoded(value, separators, ascii_only)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "_BLOCK", block)
        more = has_more_values(raw, limit)

    assert more == (naive_marks(value) > limit)
    assert has_more_values(raw, limit) == more


def test_a_text_in_a_string_is_one_value() -> None:
    inside = json.dumps({"text": json.dumps([[{"a": 1}]] * 5000)}).encode()

    assert not has_more_values(inside, 10)
    assert has_more_values(inside[:-2] + b"," * 11, 5) is False  # the string is still open


@given(st.lists(st.sampled_from([b"[", b"]", b"{", b"}", b'"', b"\\", b'"a":', b"1,", b" ", b"\xff"]), max_size=60))
def test_no_decoder_gets_deeper_into_broken_text_than_the_depth_says(pieces: list[bytes]) -> None:
    raw = b"".join(pieces)

    assert reached(raw) == 0 or is_too_deep(raw, reached(raw) - 1)


def reached(raw: bytes) -> int:
    """Return how deep a strict reader gets before it stops: at the end, or where the text is no JSON any more."""
    depth = deepest = 0
    inside = escaped = False
    for byte in raw:
        sign = chr(byte)
        if inside:
            inside, escaped = escaped or sign != '"', not escaped and sign == "\\"
        elif sign in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif sign in "]}":
            depth -= 1
        elif sign == '"':
            inside = True
        if depth < 0 or (not inside and sign == "\\"):
            break
    return deepest


def test_ten_thousand_levels_are_counted_and_refused_without_recursion() -> None:
    raw = b"[" * 10_000 + b"]" * 10_000

    assert is_too_deep(raw, 9_999)
    assert not is_too_deep(raw, 10_000)


def test_a_large_flat_array_is_not_deep() -> None:
    raw = json.dumps([[0.5, 1.5]] * 200_000).encode()

    assert not is_too_deep(raw, 2)
    assert is_too_deep(raw, 1)


@given(VALUES, PRETTY, st.booleans())
def test_duplicate_keys_are_found_wherever_they_are(value: Any, separators: tuple[str, str], ascii_only: bool) -> None:
    assert has_duplicate_keys(encoded(value, separators, ascii_only)) == naive_duplicates(value)


@pytest.mark.parametrize(
    ("raw", "twice"),
    [
        *((b'{"a":1,"a":2}', True), (b'{"a":1,"\\u0061":2}', True), ('{"é":1,"\\u00e9":2}'.encode(), True)),
        *(('{"😀":1,"\\ud83d\\ude00":2}'.encode(), True), (b'{"x":"v",":a":1,"y":"w"  ,":a":2}', True)),
        *((b'[{"a":1},{"a":2}]', False), (b'{"data":{"data":{"data":1}}}', False), (b'{"a":"a"}', False)),
        *((b'{"a":"\\"a\\":1,\\"a\\":2"}', False), (b'{"a":' + b"9" * 10_000 + b',"a":1e400}', True)),
        *((b'{"a":NaN,"a":-Infinity}', True), (b'{"":1,"":2}', True), (b'{"a":1,"a":2', False), (b"", False)),
        *((b"\xff\xfe", False), (b"null", False)),
        (b"{" + b",".join(b'"%d":"%d"' % (i, i) for i in range(3000)) + b"}", False),
        (b"{" + b",".join(b'"%d":"%d"' % (i, i) for i in range(3000)) + b',"0":0}', True),
    ],
)
def test_duplicate_keys_in_hand_made_texts(raw: bytes, twice: bool) -> None:
    assert has_duplicate_keys(raw) is twice


@given(st.lists(st.sampled_from([b'{"a":', b'"a"', b'"b":', b",", b"}", b"1", b"[", b"]", b"\\", b"\x00", b" "])))
def test_whatever_a_decoder_takes_has_been_searched(pieces: list[bytes]) -> None:
    raw = b"".join(pieces)
    try:
        msgspec.json.decode(raw)
    except msgspec.DecodeError:
        has_duplicate_keys(raw)  # any answer, but an answer
        return

    assert has_duplicate_keys(raw) == naive_duplicates(json.loads(raw, object_pairs_hook=Pairs))


def test_a_text_that_is_too_deep_to_be_searched_gets_the_careful_answer() -> None:
    assert has_duplicate_keys(b'{"a":' * 10_000)


LONG = b" " * 70_000
"""What makes any text a long one, which is searched in another way."""


@given(values(st.integers() | TEXTS), PRETTY, st.booleans())
def test_duplicate_keys_are_found_in_long_texts(value: Any, separators: tuple[str, str], ascii_only: bool) -> None:
    assert has_duplicate_keys(encoded(value, separators, ascii_only) + LONG) == naive_duplicates(value)


@pytest.mark.parametrize(
    ("raw", "twice"),
    [
        *((b'{"a":1,"\\u0061":2}', True), (b'{"a":[{},{ },{"a":1}],"b":{},"a":2}', True)),
        *((b'[{"a":1},{"a":2},{},{"b":{"a":3}}]', False), (b'{"a":"\\"a\\":1,\\"a\\":2"}', False)),
        *((b'{"a":{"b":{"c":1}},"b":2,"c":3}', False), (b'{"\\x":1,"\\x":2}', True), (b'}}}"a":1', False)),
    ],
)
def test_duplicate_keys_in_long_hand_made_texts(raw: bytes, twice: bool) -> None:
    assert has_duplicate_keys(raw + LONG) is twice


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


ARRIVALS = st.lists(st.tuples(st.floats(0, 2), st.integers(1, 5)), max_size=60)


@given(st.floats(0.01, 1000), st.integers(1, 20), ARRIVALS)
def test_a_bucket_never_gives_more_than_its_rate_and_its_burst(
    rate: float, burst: int, arrivals: list[tuple[float, int]]
) -> None:
    clock = Clock()
    bucket = TokenBucket(rate, burst, clock)
    start, given_out = clock.now, 0

    for pause, n in arrivals:
        clock.now += pause
        given_out += n * (bucket.take(n) == 0.0)

        assert given_out <= burst + rate * (clock.now - start) + 1e-6


@given(st.floats(0.01, 1000), st.integers(1, 20), ARRIVALS)
def test_whoever_waits_as_long_as_was_said_is_served(
    rate: float, burst: int, arrivals: list[tuple[float, int]]
) -> None:
    clock = Clock()
    bucket = TokenBucket(rate, burst, clock)

    for pause, n in arrivals:
        clock.now += pause
        wait = bucket.take(n)
        if n > burst:
            assert wait == math.inf
            continue
        clock.now += wait
        assert wait == 0.0 or bucket.take(n) <= 1e-9


def test_a_refusal_takes_nothing_and_a_clock_that_is_set_back_gives_nothing() -> None:
    clock = Clock()
    bucket = TokenBucket(1.0, 2, clock)

    assert [bucket.take(), bucket.take(), bucket.take(), bucket.take()] == [0.0, 0.0, 1.0, 1.0]
    clock.now -= 50
    assert bucket.take() == 1.0
    clock.now += 51
    assert bucket.take() == 0.0
    assert bucket.take() == 1.0


@pytest.mark.parametrize(("rate", "burst"), [(0, 1), (-1, 1), (math.nan, 1), (math.inf, 1), (1, 0)])
def test_a_bucket_needs_a_rate(rate: float, burst: int) -> None:
    with pytest.raises(ValidationError, match="not a rate"):
        TokenBucket(rate, burst)


@given(
    per_second=st.floats(0.1, 1000.0),
    at_once=st.integers(0, 20),
    gaps=st.lists(st.floats(0.0, 3.0), min_size=1, max_size=60),
)
def test_who_waits_as_a_pace_says_is_never_faster_than_it(per_second: float, at_once: int, gaps: list[float]) -> None:
    now = [0.0]
    pace = Throttle(per_second, at_once, 1e9, lambda: now[0])
    waited = [pace.note() for _ in range(at_once)]
    began = now[0]
    for count, gap in enumerate(gaps, start=1):
        now[0] += gap + pace.note()

        assert count <= (now[0] - began) * per_second + 1e-6

    assert waited == pytest.approx([0.0] * at_once)


def test_a_pace_forgets_and_nobody_waits_longer_than_said() -> None:
    now = [100.0]
    pace = Throttle(2.0, 3, 1.0, lambda: now[0])
    waits = [pace.note() for _ in range(1000)]
    now[0] += 1.0
    soon = pace.wait_seconds()
    now[0] += 9.0

    assert waits == [0.0, 0.0, 0.0, 0.5] + [1.0] * 996
    assert soon == 0.0
    assert (pace.wait_seconds(), pace.note()) == (0.0, 0.0)


def test_limits_have_safe_defaults_and_no_rate() -> None:
    default = RequestLimits()

    assert (default.max_message_bytes, default.max_depth) == (16 * 1024 * 1024, 64)
    assert default.bucket() is None


def test_limits_with_a_rate_make_a_bucket_for_each_peer() -> None:
    own = RequestLimits(requests_per_second=2.0, burst=1)
    first, second = own.bucket(Clock()), own.bucket(Clock())

    assert first is not None
    assert second is not None
    assert [first.take(), first.take(), second.take()] == [0.0, 0.5, 0.0]


@pytest.mark.parametrize(
    "settings",
    [
        *({"max_message_bytes": 0}, {"max_message_bytes": 2**40}, {"max_body_bytes": -1}, {"max_depth": 1.5}),
        *({"max_depth": 513}, {"max_depth": True}, {"burst": 0}, {"requests_per_second": 0}),
        *({"requests_per_second": math.nan}, {"requests_per_second": math.inf}),
    ],
)
def test_limits_out_of_range_are_refused_by_name(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(settings))):
        RequestLimits(**settings)


@pytest.mark.parametrize(
    ("raw", "infinite"),
    [
        *((b"[1e999]", True), (b"[-1.5E+400]", True), (b"[" + b"9" * 400 + b".0]", True)),
        *((b"[" + b"9" * 400 + b"]", False), (b"[1e308, 1e-999, 1e007, 0.0e999]", False), (b'["1e999"]', False)),
        *((b'["a\\"1e999", 1e300]', False), (b'["a\\\\", 1e999]', True)),
    ],
)
def test_a_number_that_some_decoders_read_as_infinity_is_found(raw: bytes, infinite: bool) -> None:
    assert has_infinite_number(raw) is infinite


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.integers() | TEXTS))
def test_what_json_writes_has_no_infinite_number(values: list[Any]) -> None:
    assert not has_infinite_number(json.dumps(values).encode())


def test_lines_beyond_a_peers_budget_are_left_out_and_counted() -> None:
    now = 0.0
    budget = LogBudget(1.0, 2, lambda: now)

    assert [budget.take() for _ in range(5)] == [{}, {}, None, None, None]
    assert budget.left_out == 3
    now = 1.0

    assert [budget.take(), budget.take()] == [{"left_out": 3}, None]
