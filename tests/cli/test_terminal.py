"""Text in columns keeps its width; bars are seen by who looks, gone afterwards, and never in the way of what is printed."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from proctor.cli import terminal as module
from proctor.cli.output import printable
from proctor.cli.terminal import clip, format_duration, pad, progress_bar, shorten_middle, wrap_words


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    made = Screen()
    monkeypatch.setattr(
        module,
        "Console",
        lambda **_: Console(file=made, force_terminal=True, color_system=None, width=100, _environ={}),
    )
    return made


def test_a_bar_says_what_is_done_and_how_much_of_it(screen: Screen) -> None:
    with progress_bar("verifying", unit="rows") as shown:
        shown.update(3, 7)
        shown.advance()

    assert "verifying" in screen.getvalue()
    assert "4/7 rows" in screen.getvalue()


def test_bytes_are_counted_as_bytes(screen: Screen) -> None:
    with progress_bar("judging", 4_000_000, in_bytes=True) as shown:
        shown.update(1_000_000)

    assert "1.0/4.0 MB" in screen.getvalue()


def test_a_name_is_no_markup(screen: Screen) -> None:
    with progress_bar("[red]x[/red]", 1) as shown:
        shown.advance()

    assert "[red]x[/red]" in screen.getvalue()


def test_who_asked_for_quiet_sees_none(screen: Screen) -> None:
    with progress_bar("verifying", 2, quiet=True) as shown:
        shown.advance()

    assert screen.getvalue() == ""


def test_there_is_none_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("verifying", 2) as shown:
        shown.advance()

    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0.000 s"), (59.9, "59.900 s"), (60, "1m00.0s"), (119.97, "2m00.0s"), (3600, "1h00m"), (7384, "2h03m")],
)
def test_a_length_of_time_is_short(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.text(max_size=40), st.integers(0, 30))
def test_a_cell_has_its_width(text: str, width: int) -> None:
    assert cell_len(pad(text, width)) == width
    assert cell_len(clip(text, width)) <= width


@given(st.text(alphabet=st.characters(categories=["L", "N", "Zs"]), max_size=80), st.integers(4, 30))
def test_wrapping_loses_no_sign(text: str, width: int) -> None:
    lines = wrap_words(text, width)

    assert all(cell_len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(clip(text, 1 << 20).split())


@given(text=st.text(), width=st.integers(2, 60))
def test_a_name_loses_its_middle(text: str, width: int) -> None:
    shown, whole = shorten_middle(text, width), printable(text)

    assert shown == whole or (len(shown) == width and shown[-1] == whole[-1])
    assert shorten_middle("abcdefghij", 5) == "ab…ij"
    assert shorten_middle("abc", 5) == "abc"
