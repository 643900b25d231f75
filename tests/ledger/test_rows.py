from hashlib import sha256

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from proctor.errors import ComponentError, ValidationError
from proctor.ledger.rows import (
    INLINE_BYTES,
    ObservationStorage,
    RowBody,
    RunEnded,
    encode_event_row,
    encode_opening_row,
    encode_statement_row,
    find_observation_storage,
    find_value_hashes,
    parse_event_or_statement,
    read_body,
)
from proctor.models.events import Event, encode_event
from tests.ledger.session_events import batch_step, opened, reset, step
from tests.models.events_strategies import events

LONG = b'"' + b"x" * INLINE_BYTES + b'"'
keeping = st.sampled_from(["all", "digest"])


def restored(body: bytes, blobs: list[tuple[bytes, bytes]] | None) -> Event:
    """The event of a body, its values put back by their hashes, as a reader does it."""
    read, event = read_body(body), parse_event_or_statement(read_body(body))
    for field in ("observation", "observations", "scene"):
        for digest, value in blobs or ():
            if digest.hex() == (read.scene if field == "scene" else read.digest) and hasattr(event, field):
                event = replace(event, **{field: Raw(value)})
    return event  # type: ignore[return-value]


@given(events, st.booleans())
def test_an_event_comes_back_equal_from_its_body(event: Event, first: bool) -> None:
    body, blobs = encode_event_row(event, "all", first=first)

    assert encode_event(restored(body, blobs)) == encode_event(event)


@given(events, keeping, st.booleans())
def test_a_body_has_its_keys_in_order_and_is_what_msgspec_would_write_of_it(
    event: Event, keeps: ObservationStorage, first: bool
) -> None:
    body, _ = encode_event_row(event, keeps, first=first)
    read = msgspec.json.decode(body, type=dict[str, Raw])

    assert list(read) == sorted(read)
    assert msgspec.json.encode(read_body(body), order="sorted") == body


@pytest.mark.parametrize("event", [step(), reset(), batch_step()], ids=lambda event: type(event).__name__)
def test_the_hash_of_an_observation_is_of_its_exact_bytes(event: Event) -> None:
    field = "observations" if hasattr(event, "observations") else "observation"
    value = b'{ "observation" : [1.0] }'

    body, _ = encode_event_row(replace(event, **{field: Raw(value)}), "all")

    assert read_body(body).digest == sha256(value).hexdigest()


@pytest.mark.parametrize("length", [INLINE_BYTES - 1, INLINE_BYTES])
def test_a_value_is_in_the_body_or_a_blob_by_its_length(length: int) -> None:
    value = b'"' + b"x" * (length - 2) + b'"'

    body, blobs = encode_event_row(step(observation=Raw(value), scene=Raw(value)), "all")

    assert (value in body) == (length < INLINE_BYTES)
    assert blobs == (None if length < INLINE_BYTES else [(sha256(value).digest(), value)] * 2)
    assert set(find_value_hashes(body)) == {sha256(value).digest()}


def test_where_digests_are_kept_no_value_is() -> None:
    body, blobs = encode_event_row(step(observation=Raw(b'"secret"'), scene=Raw(b'"picture"')), "digest")

    assert blobs is None
    assert b"secret" not in body
    assert b"picture" not in body
    assert read_body(body).digest == sha256(b'"secret"').hexdigest()
    assert read_body(body).scene == sha256(b'"picture"').hexdigest()


@pytest.mark.parametrize("raw", [b"", b"{", b"nul", b"1 2"])
def test_what_is_no_json_is_not_written(raw: bytes) -> None:
    with pytest.raises(ComponentError, match="no JSON form"):
        encode_event_row(step(action=Raw(raw)), "all")


def test_what_has_no_json_form_is_not_written() -> None:
    with pytest.raises(ComponentError, match="no JSON form"):
        encode_event_row(opened(settings={"callback": print}), "all")


def test_an_opening_becomes_a_first_row_again() -> None:
    plain, _ = encode_event_row(opened(), "all")
    first, _ = encode_event_row(opened(), "digest", first=True)

    assert encode_opening_row(read_body(plain), "digest") == first


def test_a_statement_of_the_ledgers_own_comes_back() -> None:
    assert parse_event_or_statement(read_body(encode_statement_row(RunEnded(at=1.5), "all", first=True))) == RunEnded(
        at=1.5
    )


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b'{"event":{},"own":{}}', b'{"event":{}}', b'{"own":{"own":"no"}}', b'{"more":1}', b"[" * 9999],
)
def test_what_is_no_body_is_a_validation_error(body: bytes) -> None:
    with pytest.raises(ValidationError):
        parse_event_or_statement(read_body(body))
    assert find_value_hashes(body) == []


def test_a_body_knows_its_parts_by_name_only() -> None:
    assert [field.name for field in msgspec.structs.fields(RowBody)] == [
        "digest",
        "event",
        "observations",
        "own",
        "scene",
    ]


def test_a_body_that_is_nested_too_deeply_names_nothing_and_breaks_nobody() -> None:
    deep = b'{"event":' + b"[" * 100_000

    assert (find_value_hashes(deep), find_observation_storage(deep)) == ([], "all")
