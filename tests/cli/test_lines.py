"""Lines are numbered as an editor numbers them, and none is lost, doubled or held whole if it is too long."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proctor.cli import lines as reading
from proctor.cli.lines import LONGEST, Line, Source, lines, sources
from proctor.errors import ValidationError

PARTS = st.lists(st.sampled_from([b"a", b"bc", b" ", b"\t", b"\n", b"\r\n", b"\xff", b"{}", b"x" * 9]), max_size=40)


@given(parts=PARTS, longest=st.integers(1, 12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_line_that_is_not_blank_comes_once_with_its_number(
    parts: list[bytes], longest: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "LONGEST", longest)
    text = b"".join(parts)
    path = tmp_path / "lines"
    path.write_bytes(text)

    found = list(lines(Source(str(path), len(text))))

    whole = text.split(b"\n")
    expected = {
        number: None if len(line) > longest else line
        for number, line in enumerate(whole, 1)
        if line.strip() or len(line) > longest
    }
    assert {
        line.number: line.text if line.text is None else line.text.removesuffix(b"\n") for line in found
    } == expected
    assert all(line.end <= len(text) for line in found)


def test_the_longest_line_that_is_held_is_eight_mebibytes(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_bytes(b"x" * LONGEST + b"\n" + b"y" * (LONGEST + 1) + b"\nz")

    first, second, third = lines(Source(str(path), None))

    assert first.text == b"x" * LONGEST + b"\n"
    assert second == Line(2, None, 2 * LONGEST + 3)
    assert third == Line(3, b"z", 2 * LONGEST + 4)


def test_a_source_knows_its_size_only_if_it_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "some"
    path.write_bytes(b"12345")

    assert sources([str(path), "-", "/dev/null"]) == (
        Source(str(path), 5),
        Source("-", None),
        Source("/dev/null", None),
    )


def test_a_standard_input_that_is_closed_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)

    with pytest.raises(ValidationError, match="standard input is closed"):
        sources(["-"])
    assert sources(["/dev/null"])


@pytest.mark.parametrize("names", [["-", "-"], ["nowhere"], ["."], ["a\0b"]])
def test_what_cannot_be_read_is_refused(names: list[str]) -> None:
    with pytest.raises(ValidationError):
        sources(names)
