"""A line of an export says what its row says, and packets come out as they were judged."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from proctor.episode.judge import Judge
from proctor.ledger.export.jsonl import encode_packets, encode_row, encode_rows, read_rows, remove_line_breaks
from proctor.ledger.export.output import select_episodes
from proctor.ledger.reader import Ledger, Row
from proctor.models.events import EpisodeStepped, PacketJudged, SessionOpened, decode_event
from tests.cli.recordings import free, governed, seeing, stepped, written

LONG = seeing(*(index / 7 for index in range(200)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("jsonl") / "ledger", free(), governed())


def test_a_line_has_number_chain_seq_hash_and_event(folder: Path) -> None:
    with Ledger.open(folder) as ledger:
        row = list(ledger.rows("free.1"))[2]

        said = json.loads(encode_row(row))

    assert list(said) == ["number", "chain", "seq", "hash", "event", "digest"]
    assert (said["chain"], said["seq"], said["hash"]) == ("free.1", 2, row.hash.hex())
    assert said["event"]["observation"] == {"observation": [0.125]}
    assert said["event"]["event"] == "episode_stepped"


def test_an_event_can_be_read_back_from_its_line(folder: Path) -> None:
    with Ledger.open(folder) as ledger:
        rows = [row for row in ledger.rows("governed.1") if row.seq]

        again = [
            decode_event(bytes(msgspec.json.decode(encode_row(row), type=dict[str, Raw])["event"])) for row in rows
        ]

    assert again == [row.event for row in rows]


def test_long_observations_are_written_with_their_values(tmp_path: Path) -> None:
    story = list(free())
    story[3] = stepped("free", 2, observation=LONG)
    with Ledger.open(written(tmp_path / "ledger", story)) as ledger:
        said = [json.loads(line) for line in encode_rows(ledger.rows("free.1"))]

    assert said[3]["event"]["observation"] == json.loads(bytes(LONG))


def test_an_observation_that_was_not_kept_is_null_and_says_so(tmp_path: Path) -> None:
    with Ledger.open(written(tmp_path / "ledger", free(), observations="digest")) as ledger:
        said = [json.loads(line) for line in encode_rows(ledger.rows("free.1"))]

    assert said[2]["event"]["observation"] is None
    assert said[2]["values"] is False
    assert len(said[2]["digest"]) == 64
    assert "values" not in said[0]


def test_without_names_the_servers_own_rows_are_there_too(folder: Path) -> None:
    with Ledger.open(folder) as ledger:
        every = [json.loads(line) for line in encode_rows(read_rows(ledger, None))]
        named = [json.loads(line) for line in encode_rows(read_rows(ledger, select_episodes(ledger, ["free.1"])))]

    assert {each["chain"] for each in every} == {"free.1", "governed.1", "governed.2", "server.boot1"}
    assert [each["number"] for each in every] == sorted(each["number"] for each in every)
    assert {each["chain"] for each in named} == {"free.1"}


def test_packets_get_the_same_verdicts_again(folder: Path) -> None:
    with Ledger.open(folder) as ledger:
        rows = list(read_rows(ledger, select_episodes(ledger, ["governed.1", "governed.2"])))
    recorded = [row.event for row in rows if isinstance(row.event, PacketJudged) and row.event.judged]

    judge = Judge()
    again = [judge.apply(line) for line in encode_packets(rows)]

    assert [(each.accepted, list(each.rules), each.reason) for each in again] == [
        (each.accepted, each.rules, each.reason) for each in recorded
    ]
    assert {each.accepted for each in again} == {True, False}


def test_what_the_judge_never_saw_is_not_among_the_packets(folder: Path) -> None:
    with Ledger.open(folder) as ledger:
        assert not [line for line in encode_packets(read_rows(ledger, None)) if b"forged" in line]


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=8,
    ),
    st.sampled_from([None, 2]),
)
def test_whatever_was_done_a_row_is_one_line_that_says_it(value: object, indent: int | None) -> None:
    text = Raw(json.dumps(value, indent=indent).encode())
    row = Row(1, "a.1", 2, stepped("a", 1, observation=text), "00", True, b"\1" * 32)

    line = encode_row(row)

    assert line.count(b"\n") == 1
    assert json.loads(line)["event"]["observation"] == value


def test_breaks_inside_a_text_stay() -> None:
    assert remove_line_breaks(b'{"a":\n "b\\n"}') == b'{"a":"b\\n"}'


def test_the_first_row_of_a_chain_is_its_session(folder: Path) -> None:
    with Ledger.open(folder) as ledger:
        first, *_, step = [row.event for row in ledger.rows("free.1") if row.seq < 3]

    assert isinstance(first, SessionOpened)
    assert isinstance(step, EpisodeStepped)
