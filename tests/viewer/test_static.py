"""The viewer's files keep the rules that its policy, its single file and its readers rely on; all colours can be read."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from proctor import viewer

STATIC = Path(viewer.__file__).parent / "static"
SCRIPTS = sorted((STATIC / "js").glob("*.js"))
STYLES = sorted(STATIC.glob("*.css"))
FORBIDDEN = {
    "markup from text": r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|\.srcdoc|srcdoc:",
    "code from text": r"\beval\b|\bnew Function\b|\bFunction\(|set(?:Timeout|Interval)\(\s*[\"'`]|javascript:",
    "styles in markup": r"style=\"|setAttribute\([^)]*\"style\"|\bstyle:\s*[\"'`]|cssText",
    "another address": r"(?:https?|wss?):(?://|\\/\\/)(?!www\.w3\.org/2000/svg\")|@import|url\(\s*[\"']?(?!data:|#)",
}
COMMENT = re.compile(r"\s*(?://|\*|/\*)")


class Skeleton(HTMLParser):
    """What index.html is made of."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        last = self.elements[-1][0] if self.elements else ""
        self.inside[last] = self.inside.get(last, "") + data.strip()


def skeleton() -> Skeleton:
    found = Skeleton()
    found.feed((STATIC / "index.html").read_text("utf-8"))
    return found


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_does_what_the_policy_forbids(what: str) -> None:
    found = [f"{place}: {line}" for place, line in lines_of(*SCRIPTS, *STYLES) if breaks(what, line)]

    assert found == []


def lines_of(*paths: Path) -> Iterator[tuple[str, str]]:
    for path in paths:
        for at, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
            yield f"{path.name}:{at}", line


def breaks(what: str, line: str) -> bool:
    return re.search(FORBIDDEN[what], line) is not None and not COMMENT.match(line)


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("markup from text", 'node["innerHTML"] = text;'),
        ("code from text", 'setTimeout("go()", 1);'),
        ("code from text", "const f = new Function(text);"),
        ("styles in markup", 'el("p", { style: "color: red" });'),
        ("another address", 'const address = "https://example.org/";'),
        ("another address", "@import url(fonts.css);"),
    ],
)
def test_the_search_finds_what_is_forbidden(what: str, line: str) -> None:
    assert breaks(what, line)
    assert not breaks(what, f"// {line}")


def test_the_namespace_of_drawings_is_no_address() -> None:
    assert not breaks("another address", 'const SVG = "http://www.w3.org/2000/svg";')


IMPORT = re.compile(r"^import \{([^{}]+)\} from \"\./(\w+)\.js\";$", re.MULTILINE)
EXPORT = re.compile(r"^export (?:async )?(?:function|class|const) (\w+)", re.MULTILINE)
MODULES = {path.stem: path.read_text("utf-8") for path in SCRIPTS}
IMPORTS = [
    (name, module, wanted.strip())
    for name, text in MODULES.items()
    for names, module in IMPORT.findall(text)
    for wanted in names.split(",")
    if wanted.strip()
]
"""Who imports, from which module, and what."""


def test_every_import_is_of_a_name_that_is_exported() -> None:
    assert [each for each in IMPORTS if each[2] not in EXPORT.findall(MODULES[each[1]])] == []


def test_every_module_uses_every_name_that_it_imports() -> None:
    assert [(by, name) for by, _, name in IMPORTS if len(re.findall(rf"\b{name}\b", MODULES[by])) < 2] == []


def test_every_module_is_reached_from_the_first() -> None:
    assert set(MODULES) == {"main"} | {module for _, module, _ in IMPORTS}


def test_every_file_is_used() -> None:
    links = [attrs.get("href") for tag, attrs in skeleton().elements if tag == "link" and attrs["rel"] == "stylesheet"]
    files = {path.relative_to(STATIC) for path in STATIC.rglob("*") if path.is_file()}

    assert links == [f"static/{name}" for name in ("style.css", "player.css", "verdicts.css")]
    assert {path for path in files if path.suffix != ".js"} == {
        Path("index.html"),
        *(Path(str(link)[7:]) for link in links),
    }
    assert {path.parent for path in files if path.suffix == ".js"} == {Path("js")}


def test_the_skeleton_has_no_script_and_no_style_of_its_own() -> None:
    found = skeleton()
    attributes = {name for _, attrs in found.elements for name in attrs}

    assert [attrs for tag, attrs in found.elements if tag == "script"] == [
        {"type": "module", "src": "static/js/main.js"}
    ]
    assert not found.inside.get("script")
    assert "style" not in {tag for tag, _ in found.elements}
    assert not [name for name in attributes if name == "style" or name.startswith("on")]


def test_no_file_could_end_the_element_it_is_put_into() -> None:
    texts = [path.read_text("utf-8").lower() for path in (*SCRIPTS, *STYLES)]

    assert not [text for text in texts if re.search(r"</(?:script|style)|<!--", text)]


def test_lines_end_as_they_end_everywhere_here() -> None:
    files = [path for path in STATIC.rglob("*") if path.is_file()]

    texts = {path.name: path.read_bytes().decode("utf-8") for path in files}
    assert [name for name, text in texts.items() if "\r" in text or "\t" in text or not text.endswith("\n")] == []


# ----------------------------------------------------------------------------------------------------------- the colours
STYLE = (STATIC / "style.css").read_text("utf-8")
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
