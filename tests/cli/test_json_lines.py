"""Lines are numbered as an editor numbers them, and none is lost, doubled or held whole if it is too long."""

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proctor.cli import judge as reading
from proctor.cli.judge import MOST_LINE_BYTES, InputLine, LineSource, check_sources, read_lines
from proctor.errors import ValidationError

PARTS = st.lists(st.sampled_from([b"a", b"bc", b" ", b"\t", b"\n", b"\r\n", b"\xff", b"{}", b"x" * 9]), max_size=40)


@given(parts=PARTS, longest=st.integers(1, 12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_line_that_is_not_blank_comes_once_with_its_number(
    parts: list[bytes], longest: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_LINE_BYTES", longest)
    text = b"".join(parts)
    path = tmp_path / "lines"
    path.write_bytes(text)

    found = list(read_lines(LineSource(str(path), len(text))))

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
    path.write_bytes(b"x" * MOST_LINE_BYTES + b"\n" + b"y" * (MOST_LINE_BYTES + 1) + b"\nz")

    first, second, third = read_lines(LineSource(str(path), None))

    assert first.text == b"x" * MOST_LINE_BYTES + b"\n"
    assert second == InputLine(2, None, 2 * MOST_LINE_BYTES + 3)
    assert third == InputLine(3, b"z", 2 * MOST_LINE_BYTES + 4)


def test_a_source_knows_its_size_only_if_it_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "some"
    path.write_bytes(b"12345")

    assert check_sources([str(path), "-", "/dev/null"]) == (
        LineSource(str(path), 5),
        LineSource("-", None),
        LineSource("/dev/null", None),
    )


def test_a_standard_input_that_is_closed_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)

    with pytest.raises(ValidationError, match="standard input is closed"):
        check_sources(["-"])
    assert check_sources(["/dev/null"])


@pytest.mark.parametrize("names", [["-", "-"], ["nowhere"], ["."], ["a\0b"]])
def test_what_cannot_be_read_is_refused(names: list[str]) -> None:
    with pytest.raises(ValidationError):
        check_sources(names)
