"""Rows have the same columns everywhere, fit the page, and hold no sign that a terminal would obey."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.cli.lines import Line
from proctor.cli.output import plain
from proctor.cli.verdict_json import Told, encoded
from proctor.cli.verdict_table import NUMBER, PATH, VERDICT, heading, layout, remark, row, short
from proctor.episode.rulebook import Finding
from proctor.episode.states import Event, State
from proctor.episode.verdicts import Verdict

NAMES = st.from_regex(r"pkt_[A-Za-z0-9_-]{1,80}", fullmatch=True)


@given(text=st.text())
def test_plain_text_is_printable_and_printable_text_is_plain(text: str) -> None:
    shown = plain(text)

    assert shown.isprintable()
    assert not text.isprintable() or shown == text


@given(text=st.text())
@pytest.mark.parametrize("signs", ["", "\u180e\ufff9\ufffb\U000e0001\U000e007f\x7f\u2028\u00a0"])
def test_json_hides_the_same_signs_and_still_says_the_same(signs: str, text: str) -> None:
    told = Told("E1", "", text + signs)

    line = encoded(told)

    assert all(sign.isprintable() for sign in line.decode().removesuffix("\n"))
    assert json.loads(line) == msgspec.to_builtins(told)


@given(text=st.text(), width=st.integers(2, 60))
def test_a_shortened_text_keeps_its_ends(text: str, width: int) -> None:
    shown = short(text, width)

    assert len(shown) <= width
    assert shown == text or (len(shown) == width and shown[-1] == text[-1])


@given(
    width=st.integers(60, 300),
    number=st.integers(1, 10**6 - 1),
    event=st.sampled_from(Event),
    path=st.lists(st.sampled_from(State), min_size=1, max_size=3),
    packet=NAMES,
    reason=st.text(max_size=200),
)
def test_every_row_fits_the_terminal(
    width: int, number: int, event: Event, path: list[State], packet: str, reason: str
) -> None:
    form = layout(width, terminal=True, coloured=False)
    verdict = Verdict(False, "corr_a", packet, event, tuple(path), (Finding("FSM", "", reason),), (), None, None)

    text = row(form, Line(number, b"", 0), verdict)

    assert all(len(line) <= width for line in text.splitlines())
    start = NUMBER + 1 + VERDICT + 1
    assert text[start : start + PATH].strip() == ">".join(state.partition("_")[0] for state in path)
    assert heading(form).index("path") == start


def test_a_number_of_many_digits_moves_its_own_row_only() -> None:
    form = layout(100, terminal=True, coloured=True)
    verdict = Verdict(True, "corr_a", "pkt_a", Event.BELIEF, (State.MODEL, State.MODEL), (), (), None, None)

    text = row(form, Line(123_456_789, b"", 0), verdict)

    assert text.startswith("123456789 \x1b[32maccepted\x1b[0m S2>S2")


def test_a_remark_is_wrapped_on_a_terminal_and_whole_elsewhere() -> None:
    words = "word " * 60

    wrapped = remark(layout(80, terminal=True, coloured=False), "why", words)
    whole = remark(layout(80, terminal=False, coloured=False), "why", words)

    assert wrapped.count("\n") > 1
    assert whole.count("\n") == 1
