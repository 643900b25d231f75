"""Bars: seen by who looks, gone afterwards, and never in the way of what is printed."""

import io

import pytest
from rich.console import Console

from proctor.cli import terminal as module
from proctor.cli.terminal import progress_bar, progress_bars


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


def test_each_of_several_has_its_own(screen: Screen) -> None:
    with progress_bars(["one", "two"], 5) as shown:
        shown["one"].advance(5)
        shown["two"].advance()

    assert "5/5" in screen.getvalue()
    assert "1/5" in screen.getvalue()


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
