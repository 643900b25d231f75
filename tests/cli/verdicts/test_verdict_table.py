"""Rows have the same columns everywhere, fit the page, and hold no sign that a terminal would obey."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.cli.output import printable
from proctor.cli.verdicts.json_lines import InputLine
from proctor.cli.verdicts.verdict_json import FindingJson, encode_line
from proctor.cli.verdicts.verdict_table import (
    NUMBER,
    PATH,
    VERDICT,
    fit_layout,
    format_heading,
    format_remark,
    format_verdict,
    shorten,
)
from proctor.episode.rules.rule import RuleFinding
from proctor.episode.transition_table import Event, ProtocolState
from proctor.episode.verdicts import Verdict

NAMES = st.from_regex(r"pkt_[A-Za-z0-9_-]{1,80}", fullmatch=True)


@given(text=st.text())
def test_plain_text_is_printable_and_printable_text_is_plain(text: str) -> None:
    shown = printable(text)

    assert shown.isprintable()
    assert not text.isprintable() or shown == text


@given(text=st.text())
@pytest.mark.parametrize("signs", ["", "\u180e\ufff9\ufffb\U000e0001\U000e007f\x7f\u2028\u00a0"])
def test_json_hides_the_same_signs_and_still_says_the_same(signs: str, text: str) -> None:
    told = FindingJson("E1", "", text + signs)

    line = encode_line(told)

    assert all(sign.isprintable() for sign in line.decode().removesuffix("\n"))
    assert json.loads(line) == msgspec.to_builtins(told)


@given(text=st.text(), width=st.integers(2, 60))
def test_a_shortened_text_keeps_its_ends(text: str, width: int) -> None:
    shown = shorten(text, width)

    assert len(shown) <= width
    assert shown == text or (len(shown) == width and shown[-1] == text[-1])


@given(
    width=st.integers(60, 300),
    number=st.integers(1, 10**6 - 1),
    event=st.sampled_from(Event),
    path=st.lists(st.sampled_from(ProtocolState), min_size=1, max_size=3),
    packet=NAMES,
    reason=st.text(max_size=200),
)
def test_every_row_fits_the_terminal(
    width: int, number: int, event: Event, path: list[ProtocolState], packet: str, reason: str
) -> None:
    form = fit_layout(width, terminal=True, coloured=False)
    verdict = Verdict(False, "corr_a", packet, event, tuple(path), (RuleFinding("FSM", "", reason),), (), None, None)

    text = format_verdict(form, InputLine(number, b"", 0), verdict)

    assert all(len(line) <= width for line in text.splitlines())
    start = NUMBER + 1 + VERDICT + 1
    assert text[start : start + PATH].strip() == ">".join(state.partition("_")[0] for state in path)
    assert format_heading(form).index("path") == start


def test_a_number_of_many_digits_moves_its_own_row_only() -> None:
    form = fit_layout(100, terminal=True, coloured=True)
    verdict = Verdict(
        True, "corr_a", "pkt_a", Event.BELIEF, (ProtocolState.MODEL, ProtocolState.MODEL), (), (), None, None
    )

    text = format_verdict(form, InputLine(123_456_789, b"", 0), verdict)

    assert text.startswith("123456789 \x1b[32maccepted\x1b[0m S2>S2")


def test_a_remark_is_wrapped_on_a_terminal_and_whole_elsewhere() -> None:
    words = "word " * 60

    wrapped = format_remark(fit_layout(80, terminal=True, coloured=False), "why", words)
    whole = format_remark(fit_layout(80, terminal=False, coloured=False), "why", words)

    assert wrapped.count("\n") > 1
    assert whole.count("\n") == 1
