"""Keys: whole whatever the pieces they come in."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.cli.play.terminal import LONGEST, Keyboard

PIECES = st.lists(
    st.sampled_from(
        [b"a", b"Q", b" ", b"\r", b"\x1b[A", b"\x1bOB", b"\x1b[1;5C", b"\x1b[D", b"\x1b[15~", b"\xc3\xa9", b"?"]
    )
)


@pytest.mark.parametrize(
    ("read", "keys"),
    [
        (b"asd", ["a", "s", "d"]),
        (b"ASD?1", ["a", "s", "d", "?", "1"]),
        (b" \r\n", ["space", "enter", "enter"]),
        (b"\x1b[A\x1b[B\x1b[C\x1b[D", ["up", "down", "right", "left"]),
        (b"\x1bOA\x1bOD", ["up", "left"]),
        (b"\x1b[1;2A", ["up"]),
        (b"\x1b[3~x\x1bOP", ["x"]),
        (b"\x1bq", ["q"]),
        (b"\x1b\x1b[A", ["up"]),
        ("é→a".encode(), ["a"]),
        (b"\x00\x07\x7f", []),
        (b"", []),
    ],
)
def test_bytes_are_the_keys_they_stand_for(read: bytes, keys: list[str]) -> None:
    assert Keyboard().keys(read) == keys


@given(pieces=PIECES, cuts=st.sets(st.integers(0, 60)))
def test_the_keys_are_the_same_wherever_the_bytes_are_cut(pieces: list[bytes], cuts: set[int]) -> None:
    text = b"".join(pieces)
    edges = [0, *sorted(cut for cut in cuts if 0 < cut < len(text)), len(text)]
    keyboard = Keyboard()

    in_pieces = [key for start, end in pairwise(edges) for key in keyboard.keys(text[start:end])]

    assert in_pieces == Keyboard().keys(text)


@given(st.lists(st.binary(max_size=8)))
def test_no_bytes_are_kept_for_ever(reads: list[bytes]) -> None:
    keyboard = Keyboard()
    for read in reads:
        keyboard.keys(read)

    keyboard.keys(b"\x18")
    assert keyboard.keys(b"q") == ["q"]


def test_a_sequence_without_an_end_is_given_up() -> None:
    keyboard = Keyboard()

    assert keyboard.keys(b"\x1b[" + b"1" * LONGEST) == []
    assert keyboard.keys(b"q") == ["q"]
