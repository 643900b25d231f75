"""The page of an episode fits its terminal, and is whole where there is none."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from proctor.cli.ledger.pages import EpisodePage
from proctor.cli.terminal import OutputFormat
from proctor.narration.events import ResultTone, TimelineEntry

ANSI = re.compile(r"\x1b\[[0-9;]*m")


@settings(max_examples=60, deadline=None)
@given(
    st.integers(60, 200),
    st.text(max_size=60),
    st.text(max_size=90),
    st.text(max_size=120),
    st.text(max_size=60),
    st.booleans(),
)
def test_no_line_is_wider_than_the_terminal(
    width: int, who: str, what: str, result: str, remark: str, whole: bool
) -> None:
    page = EpisodePage(OutputFormat(width, terminal=True, coloured=True), 12)

    text = page.entry(TimelineEntry(1e6, "1000000-2000000", who, what, result, ResultTone.BAD, remark, whole))

    assert text.endswith("\n")
    assert max(cell_len(ANSI.sub("", line)) for line in text.split("\n")) <= width


def test_the_reason_of_a_refusal_is_never_cut() -> None:
    reason = "refused by RULE: " + " ".join(f"word{number}" for number in range(40))
    page = EpisodePage(OutputFormat(80, terminal=True, coloured=False), 7)

    text = page.entry(TimelineEntry(0.0, "1", "agent", "DecisionPacket", reason, ResultTone.BAD, whole=True))

    assert text.split()[5:] == reason.split()


def test_without_a_terminal_nothing_is_cut() -> None:
    page = EpisodePage(OutputFormat(60, terminal=False, coloured=False), 7)

    text = page.entry(TimelineEntry(0.0, "1", "agent", "a" * 100, "b" * 100, remark="c" * 100))

    assert text.count("\n") == 1
    assert all(letter * 100 in text for letter in "abc")


def test_nothing_unprintable_reaches_the_page() -> None:
    page = EpisodePage(OutputFormat(200, terminal=True, coloured=False), 7)

    text = page.entry(TimelineEntry(0.0, "1", "agent \x1b[2J", "\x07", "\x9b", ResultTone.BAD, "\u202e"))

    assert text.removesuffix("\n").isprintable()
