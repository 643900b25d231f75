"""The page's colours: the same dark ones whoever wished for them, and all of them readable."""

import re
from pathlib import Path

import pytest

from proctor import viewer

STYLE = (Path(viewer.__file__).parent / "static" / "style.css").read_text("utf-8")
LIGHT, WISHED, CHOSEN = ":root {", ':root:not([data-theme="light"]) {', ':root[data-theme="dark"] {'
READABLE, SEEN = 4.5, 3.0
GROUNDS = ("--ground", "--surface", "--raised")
TEXTS = ("--text", "--quiet", "--accent", "--good", "--bad", "--warn")
DRAWN = ("--focus", "--line-strong", *(f"--series-{number}" for number in range(1, 7)))
PAIRS = [
    *((text, ground, READABLE) for text in TEXTS for ground in GROUNDS),
    *((f"--{tone}", f"--{tone}-soft", READABLE) for tone in ("good", "bad", "warn", "accent")),
    *(("--text", f"--{tone}-soft", READABLE) for tone in ("good", "bad", "warn", "accent")),
    ("--accent-text", "--accent", READABLE),
    ("--surface", "--bad", READABLE),
    ("--surface", "--warn", READABLE),
    *((drawn, "--surface", SEEN) for drawn in DRAWN),
]


def tokens(selector: str) -> dict[str, str]:
    block = STYLE.split(selector, 1)[1].split("}", 1)[0]
    return dict(re.findall(r"(--[\w-]+):\s*([^;]+);", block))


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, bright = sorted((luminance(one), luminance(other)))
    return (bright + 0.05) / (dark + 0.05)


def test_dark_is_the_same_whether_the_system_wished_for_it_or_the_reader_chose_it() -> None:
    assert tokens(WISHED) == tokens(CHOSEN)


def test_dark_says_every_colour_that_light_says() -> None:
    light = {name for name, value in tokens(LIGHT).items() if value.startswith(("#", "0 "))}

    assert light == set(tokens(CHOSEN))


@pytest.mark.parametrize("theme", [LIGHT, CHOSEN], ids=["light", "dark"])
def test_every_text_can_be_read_and_every_line_be_seen(theme: str) -> None:
    found = tokens(theme)
    poor = [(one, other) for one, other, least in PAIRS if contrast(found[one], found[other]) < least]

    assert poor == []
