"""A page that is one file: everything is inside, nothing gets out, and every string stays text."""

import gzip
import json
import re
import sqlite3
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Sequence
from graphlib import CycleError
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from proctor.errors import ComponentError, ValidationError
from proctor.ledger.reader import Ledger
from proctor.ledger.storage.ledger_file import LedgerFile, Row
from proctor.viewer import single_file as carrying
from proctor.viewer.catalog import EpisodeCatalog
from proctor.viewer.comparison import fork_episode
from proctor.viewer.documents import EpisodeHead
from proctor.viewer.machine import build_machine
from proctor.viewer.single_file import PageContents, assemble_page, build_page, bundle_modules, embed_json
from tests.ledger import session_events
from tests.ledger.session_events import batch_reset, batch_step, reset, step, written
from tests.system import programs
from tests.viewer import ledgers
from tests.viewer.pages import Page

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "]]>",
    "\u2028\u2029",
    "</SCRIPT\n>",
    "&lt;&#60;",
    "\\<",
]
NOTHING = PageContents(lines=[], episodes={}, differences={}, machine=build_machine(), remarks=[])
SKELETON = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Page</title>
<link rel="stylesheet" href="static/a.css"><link rel="stylesheet" href="static/b.css">
<script type="module" src="static/js/main.js"></script></head>
<body><div id="app"></div></body></html>
"""


def text_of(folder: Path, *chains: str, **more: Any) -> str:
    with Ledger.open(folder) as ledger:
        return build_page(ledger, chains, **more)


def opened(folder: Path, *chains: str, **more: Any) -> Page:
    return Page(text_of(folder, *chains, **more))


def rows_in(packed: str) -> list[Any]:
    return [json.loads(line) for line in gzip.decompress(b64decode(packed)).splitlines()]


def hash_of(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


# ------------------------------------------------------------------------------------------------------------ the page
def test_an_episode_is_in_the_page_whole(tmp_path: Path) -> None:
    chain = ledgers.plume_episode(tmp_path, 30)

    found = opened(tmp_path, chain).contents

    episode = found["episodes"][chain]
    with Ledger.open(tmp_path) as ledger:
        rows = list(ledger.rows(chain))
    assert [line["chain"] for line in found["lines"]] == [chain]
    assert episode["head"]["line"] == found["lines"][0]
    assert episode["slice"]["steps"]["step"] == list(range(1, 31))
    assert (episode["slice"]["more"], episode["slice"]["thinned"]) == (False, 1)
    assert [row["number"] for row in rows_in(episode["raw"])] == [row.number for row in rows]
    assert [row["hash"] for row in rows_in(episode["raw"])] == [row.hash.hex() for row in rows]
    assert (episode["pixels"], episode["explanations"], found["remarks"]) == ({}, {}, [])
    assert len(found["machine"]["states"]) == 10


@pytest.mark.parametrize(
    "made", [ledgers.popper_episode, ledgers.unknown_episode, ledgers.batch_episode], ids=["game", "unknown", "batch"]
)
def test_every_kind_of_episode_becomes_a_page(tmp_path: Path, made: Any) -> None:
    chain = made(tmp_path, 5)

    episode = opened(tmp_path, chain).contents["episodes"][chain]

    assert episode["slice"]["steps"]["step"] == [1, 2, 3, 4, 5]
    assert len(rows_in(episode["raw"])) == episode["head"]["line"]["rows"]


def test_a_row_that_cannot_be_read_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = ledgers.plume_episode(tmp_path, 5)
    read = LedgerFile.row

    def reading(file: LedgerFile, name: str, stored: Any) -> Row:
        if stored[2] == 3:
            raise ValidationError("this row is damaged")
        return read(file, name, stored)

    monkeypatch.setattr(LedgerFile, "row", reading)

    episode = opened(tmp_path, chain).contents["episodes"][chain]

    kept = [row["seq"] for row in rows_in(episode["raw"])]
    assert kept == [seq for seq in range(episode["head"]["line"]["rows"]) if seq != 3]


def spoiled(folder: Path, seq: int, what: str) -> None:
    connection = sqlite3.connect(folder / "worker-0.ledger")
    connection.execute(what, (seq,))
    connection.commit()
    connection.close()


@pytest.mark.parametrize("seq", [0, 4])
def test_an_episode_with_a_damaged_row_becomes_a_page_with_a_remark(tmp_path: Path, seq: int) -> None:
    chain, other = ledgers.plume_episode(tmp_path, 5), ledgers.plume_episode(tmp_path, 5, session="other")
    first = "(SELECT first FROM chains WHERE name = 'plume.1')"
    spoiled(tmp_path, seq, f"UPDATE rows SET body = x'6e6fff' WHERE chain = {first} AND seq = ?")

    found = opened(tmp_path, chain, other).contents

    assert set(found["episodes"]) == {chain, other}
    assert found["remarks"] == [f"Rows of {chain} that cannot be read, and are not in this file: 1."]


def test_pictures_that_cannot_be_read_are_left_out_with_a_remark(tmp_path: Path) -> None:
    chain = ledgers.pixels_episode(tmp_path, 5)
    whole = opened(tmp_path, chain).contents["episodes"][chain]["pixels"]
    scene = "json_extract(CAST(body AS TEXT), '$.scene')"
    row = f"SELECT {scene} FROM rows WHERE seq = ? AND {scene} NOTNULL"
    spoiled(tmp_path, 4, f"DELETE FROM blobs WHERE lower(hex(digest)) = ({row})")

    found = opened(tmp_path, chain).contents

    missing = len(whole) - len(found["episodes"][chain]["pixels"])
    assert missing in (1, 2)  # a picture that is the same twice is stored once
    assert f"{missing} of the pictures of {chain} cannot be read." in found["remarks"]


def test_the_policy_lets_exactly_its_script_and_its_style_run(tmp_path: Path) -> None:
    found = opened(tmp_path, ledgers.plume_episode(tmp_path, 3))

    ((_, style),) = found.all("style")
    rules = dict(rule.split(" ", 1) for rule in found.policy.split("; "))
    assert rules == {
        "default-src": "'none'",
        "script-src": hash_of(found.script),
        "style-src": hash_of(style),
        "img-src": "data: blob:",
        "connect-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    assert [tag for tag, _ in found.elements].index("meta") < [tag for tag, _ in found.elements].index("style")


def test_the_page_asks_for_no_other_file(tmp_path: Path) -> None:
    found = opened(tmp_path, ledgers.plume_episode(tmp_path, 3))

    addresses = [attrs.get(name) for _, attrs in found.elements for name in ("src", "href") if name in attrs]
    ((_, style),) = found.all("style")
    assert [address for address in addresses if not str(address).startswith("data:")] == []
    assert not re.search(r"@import|url\(\s*[\"']?(?!data:)", style)


def test_the_same_ledger_gives_the_same_bytes(tmp_path: Path) -> None:
    chain = ledgers.governed_episode(tmp_path)

    text = text_of(tmp_path, chain)

    packed = b64decode(Page(text).contents["episodes"][chain]["raw"])
    assert text == text_of(tmp_path, chain)
    assert packed[4:8] == bytes(4), "gzip wrote down what time it was"


def test_the_title_is_the_one_given_or_says_what_it_is_about(tmp_path: Path) -> None:
    chain = ledgers.plume_episode(tmp_path, 3)

    assert opened(tmp_path, chain).all("title")[0][1] == f"{ledgers.PLUME}: {chain}"
    assert opened(tmp_path, chain).contents["title"] is None
    assert opened(tmp_path, chain, title="<b>\udcff").all("title")[0][1] == "<b>?"
    assert opened(tmp_path, chain, title="<b>\udcff").contents["title"] == "<b>?"


def test_no_sign_of_a_title_is_taken_for_a_place_in_the_page(tmp_path: Path) -> None:
    chain = ledgers.plume_episode(tmp_path)

    found = opened(tmp_path, chain, title="a\0b\0c")

    assert len(found.all("style")) == 1


def test_refusals_are_explained_in_the_page(tmp_path: Path) -> None:
    chain = ledgers.governed_episode(tmp_path)

    episode = opened(tmp_path, chain).contents["episodes"][chain]

    refused = [packet["number"] for packet in episode["slice"]["packets"] if not packet["accepted"]]
    assert len(refused) >= 2
    assert sorted(map(int, episode["explanations"])) == refused


def test_a_chain_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    ledgers.plume_episode(tmp_path, 3)

    with pytest.raises(ValidationError):
        text_of(tmp_path, "nobody.1")


class Live(EpisodeCatalog):
    """A shelf whose episodes somebody is writing."""

    def head(self, chain: str) -> EpisodeHead:
        found = super().head(chain)
        return replace(found, line=replace(found.line, live=True))


def test_a_live_episode_is_still_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = ledgers.plume_episode(tmp_path, 5, closes=False)
    monkeypatch.setattr(carrying, "EpisodeCatalog", Live)

    found = opened(tmp_path, chain).contents

    assert [line["live"] for line in found["lines"]] == [False]
    assert found["episodes"][chain]["head"]["line"]["live"] is False


# ------------------------------------------------------------------------------------------------------------ side by side
def test_two_episodes_come_with_their_difference_both_ways(tmp_path: Path) -> None:
    one = ledgers.plume_episode(tmp_path, 20)
    other = ledgers.plume_episode(tmp_path, 20, session="other", turns_at=7)

    found = opened(tmp_path, one, other).contents

    assert [line["chain"] for line in found["lines"]] == [one, other]
    assert set(found["differences"]) == {f"{one}|{other}", f"{other}|{one}"}
    assert {each["step"] for each in found["differences"].values()} == {7}


def test_a_fork_comes_as_an_episode_of_its_own(tmp_path: Path) -> None:
    chain = ledgers.plume_episode(tmp_path, 12)
    with Ledger.open(tmp_path) as ledger:
        branch = fork_episode(ledger, chain, 5, [0, 0, 0])

    found = opened(tmp_path, chain, forks=[branch]).contents

    name = f"{chain}~fork@5"
    assert list(found["episodes"]) == [chain, name]
    assert found["episodes"][name]["slice"]["steps"]["step"] == list(range(1, 9))
    assert rows_in(found["episodes"][name]["raw"]) == []
    assert list(found["differences"]) == [f"{chain}|{name}"]
    assert [(line["chain"], line["fork"]) for line in found["lines"]] == [(chain, False), (name, True)]


# ------------------------------------------------------------------------------------------------------------ too much
def test_of_a_long_episode_every_nth_step_is_there_and_the_page_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = ledgers.long_episode(tmp_path, 200)
    monkeypatch.setattr(carrying, "MOST_STEPS", 50)

    found = opened(tmp_path, chain)

    episode = found.contents["episodes"][chain]["slice"]
    assert len(episode["steps"]["step"]) <= 50
    assert episode["thinned"] >= 4
    assert not episode["more"]
    (remark,) = found.contents["remarks"]
    assert re.fullmatch(rf"{chain} is too long for one file: of its steps, every \d+th is here\.", remark)
    assert ({"class": "remark", "role": "note"}, remark) in [(attrs, text.strip()) for attrs, text in found.all("p")]


def test_steps_that_are_large_are_thinned_until_they_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = ledgers.long_episode(tmp_path, 200)
    monkeypatch.setattr(carrying, "MOST_STEPS", 400)
    monkeypatch.setattr(carrying, "LEAST_STEPS", 10)
    monkeypatch.setattr(carrying, "STEPS_SIZE", 10_000)

    episode = opened(tmp_path, chain).contents["episodes"][chain]["slice"]

    assert 10 <= len(episode["steps"]["step"]) <= 50


def test_of_too_many_rows_every_nth_step_is_kept_and_everything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = ledgers.long_episode(tmp_path, 200)
    monkeypatch.setattr(carrying, "ROWS_SIZE", 30_000)

    found = opened(tmp_path, chain).contents

    rows = rows_in(found["episodes"][chain]["raw"])
    steps = [row["event"]["step"] for row in rows if "raw_reward" in row["event"]]
    every = steps[0]
    assert every > 1
    assert steps == list(range(every, 201, every))
    assert len(rows) - len(steps) == 3
    assert f"of its raw rows of steps, every {every}" in found["remarks"][0]


def test_of_other_rows_those_are_kept_that_fit_and_the_page_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Raw(b'{"observation":"%b"}' % (b"a" * 10_000))
    resets = [replace(batch_reset(), observations=seen, mask=Raw(b"[true,false]")) for _ in range(9)]
    written(
        tmp_path, [session_events.opened(num_envs=2), replace(batch_reset(), observations=seen), *resets, batch_step()]
    )
    monkeypatch.setattr(carrying, "OTHERS_SIZE", 35_000)

    found = opened(tmp_path, "s.1").contents

    rows = rows_in(found["episodes"]["s.1"]["raw"])
    assert [row["event"]["event"] for row in rows] == ["session_opened", *["batch_reset"] * 3, "batch_stepped"]
    assert found["remarks"] == ["Raw rows of s.1 that are too large for this file: 7."]


def test_a_row_that_is_very_large_is_not_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = Raw(b'{"observation":"%b"}' % (b"a" * 10_000))
    written(tmp_path, [session_events.opened(), reset(), step(number=1, observation=large), step(number=2)])
    monkeypatch.setattr(carrying, "MOST_ROW", 9_000)

    found = opened(tmp_path, "s.1").contents

    steps = [row["event"]["step"] for row in rows_in(found["episodes"]["s.1"]["raw"]) if "raw_reward" in row["event"]]
    assert steps == [2]
    assert found["remarks"] == ["Raw rows of s.1 that are too large for this file: 1."]


def test_pictures_come_by_themselves_and_not_in_the_rows(tmp_path: Path) -> None:
    chain = ledgers.pixels_episode(tmp_path, 6)

    episode = opened(tmp_path, chain).contents["episodes"][chain]

    rows = rows_in(episode["raw"])
    drawn = [row["number"] for row in rows if row["event"].get("scene") is not None]
    assert len(drawn) == 7
    assert sorted(map(int, episode["pixels"])) == drawn
    assert all(row["event"]["scene"] == {"pixels": True} for row in rows if row["number"] in drawn)
    assert all(picture(each).startswith(b"\x89PNG") for each in episode["pixels"].values())


def picture(address: str) -> bytes:
    kind, _, said = address.partition(",")
    assert kind == "data:image/png;base64"
    return b64decode(said)


@pytest.mark.parametrize(("limit", "most"), [("MOST_FRAMES", 4), ("FRAMES_SIZE", 9_000)])
def test_pictures_are_thinned_evenly_and_the_page_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    chain = ledgers.pixels_episode(tmp_path, 11)
    monkeypatch.setattr(carrying, limit, most)

    found = opened(tmp_path, chain).contents

    episode = found["episodes"][chain]
    drawn = [row["number"] for row in rows_in(episode["raw"]) if row["event"].get("scene") is not None]
    numbers = sorted(map(int, episode["pixels"]))
    assert 1 < len(numbers) < 12
    assert numbers == drawn[:: drawn.index(numbers[1])]
    assert found["remarks"] == [f"Of the 12 pictures of {chain}, {len(numbers)} are in this file."]


def test_progress_is_told_row_by_row(tmp_path: Path) -> None:
    chain = ledgers.plume_episode(tmp_path, 10)
    told: list[tuple[int, int]] = []

    text_of(tmp_path, chain, progress=lambda done, total: told.append((done, total)))

    assert told == [(done, len(told)) for done in range(1, len(told) + 1)]


# ------------------------------------------------------------------------------------------------------------ hostile
@settings(max_examples=60)
@given(st.lists(st.one_of(st.sampled_from(HOSTILE), st.text(max_size=4)), max_size=6).map("".join))
def test_no_string_can_end_its_element(text: str) -> None:
    said = embed_json({text: [text]})
    found = Page(f'<script type="application/json" id="proctor-episodes">{said}</script><p>after</p>')

    assert found.contents == json.loads(said) == {text: [text]}
    assert [tag for tag, _ in found.elements] == ["script", "p"]
    assert not set("<\u2028\u2029") & set(said)


def test_what_is_spliced_in_stays_what_it_was() -> None:
    line = Raw(b'{"lone": "\\ud800<", "escaped": "\\u003c\\\\<", "bytes": "\xff"}')

    assert json.loads(embed_json([line])) == [{"lone": "\ud800<", "escaped": "<\\<", "bytes": "\ufffd"}]


@pytest.mark.parametrize("made", [ledgers.hostile_episode, ledgers.forged_episode], ids=["said", "forged"])
def test_hostile_words_of_an_episode_stay_inside_the_data(tmp_path: Path, made: Any) -> None:
    chain = made(tmp_path)

    text = text_of(tmp_path, chain)

    found = Page(text)
    assert ledgers.IMG in json.dumps(found.contents, ensure_ascii=False).replace('\\"', '"')
    assert "img" not in {tag for tag, _ in found.elements}
    assert len(found.all("script")) == 2
    assert text.count("<!--") == 0
    assert text.lower().count("</script") == 2


# ------------------------------------------------------------------------------------------------------------ the files
def static(folder: Path, skeleton: str = SKELETON, style: str = "a { color: red; }", script: str = "f();\n") -> Path:
    (folder / "js").mkdir()
    (folder / "index.html").write_text(skeleton, "utf-8")
    (folder / "a.css").write_text(style, "utf-8")
    (folder / "b.css").write_bytes(b"b {\r\n}\r\n")
    (folder / "js" / "main.js").write_text(script, "utf-8")
    return folder


def test_the_files_take_the_places_of_their_links(tmp_path: Path) -> None:
    text = assemble_page(NOTHING, "Some & any", static(tmp_path))

    found = Page(text)
    assert [each for _, each in found.all("style")] == ["a { color: red; }\nb {\n}\n"]
    assert found.script == "const __main = (() => {\nf();\nreturn {  };\n})();\n"
    assert "link" not in {tag for tag, _ in found.elements}
    assert "<title>Some &amp; any</title>" in text
    assert text.index('<div id="app">') < text.index("proctor-episodes") < text.index(found.script)


BROKEN: Sequence[tuple[dict[str, str], str]] = [
    ({"skeleton": SKELETON.replace("<title>Page</title>", "")}, "index.html is not as expected"),
    ({"skeleton": SKELETON.replace('<meta charset="utf-8">', "")}, "index.html is not as expected"),
    ({"skeleton": SKELETON.replace("</body>", "")}, "index.html is not as expected"),
    ({"skeleton": SKELETON.replace('src="static/js/main.js"', "")}, "index.html is not as expected"),
    ({"skeleton": SKELETON.replace("b.css", "c.css")}, "cannot be read"),
    ({"style": "/* </style> */"}, "a.css may not say </style"),
    ({"script": 'const a = "</script>";\n'}, "main.js may not say </script"),
    ({"script": 'const a = "<!--";\n'}, "main.js may not say <!--"),
]


@pytest.mark.parametrize(("files", "why"), BROKEN, ids=[f"{at} {why}" for at, (_, why) in enumerate(BROKEN)])
def test_files_that_make_no_page_are_an_error(tmp_path: Path, files: dict[str, str], why: str) -> None:
    with pytest.raises(ComponentError, match=re.escape(why)):
        assemble_page(NOTHING, "Page", static(tmp_path, **files))


# ---------------------------------------------------------------------------------------------------------- the script
MODULES = {
    "letters": """// Letters.
export const A = "a";
export function both(x, y = [1, 2]) {
  return `${x} export in ${y.length}`;
}
""",
    "words": """import {
  A,
  both,
} from "./letters.js";

export class Word {
  plain() { return both(A); }
}
export async function later() {
  return new Word().plain();
}
""",
    "main": """import { later } from "./words.js";
import { A } from "./letters.js";

const both = 1;
later().then((found) => console.log(JSON.stringify([found, A, both])));
""",
}


def modules_in(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (folder / f"{name}.js").write_text(text, "utf-8")
    return folder


def test_each_module_comes_once_after_those_that_it_imports_from_in_a_scope_of_its_own(tmp_path: Path) -> None:
    script = bundle_modules(modules_in(tmp_path, **MODULES))

    assert re.findall(r"^const __(\w+)", script, re.MULTILINE) == ["letters", "words", "main"]
    assert "const {\n  A,\n  both,\n} = __letters;" in script
    assert "return { Word, later };\n})();" in script
    assert not re.search(r"^(?:import|export)", script, re.MULTILINE)


@pytest.mark.system
def test_the_script_does_what_the_modules_do(tmp_path: Path) -> None:
    script = tmp_path / "script.mjs"
    script.write_text(bundle_modules(modules_in(tmp_path, **MODULES)), "utf-8")
    (tmp_path / "package.json").write_text('{"type": "module"}', "utf-8")
    found = [
        subprocess.run([*programs.node(), str(each)], capture_output=True, text=True, check=True, timeout=60).stdout
        for each in (tmp_path / "main.js", script)
    ]

    assert found == ['["a export in 2","a",1]\n'] * 2


@pytest.mark.parametrize(
    "text",
    [
        "export default 1;",
        "export { a };",
        'export * from "./b.js";',
        "export let a = 1;",
        'import b from "./b.js";',
        'import { b } from "../b.js";',
        'import { b } from "https://b.example/b.js";',
        'import { b } from "./b.js"',
    ],
)
def test_any_other_form_is_refused_with_its_file(tmp_path: Path, text: str) -> None:
    with pytest.raises(ComponentError, match=r"main\.js") as refused:
        bundle_modules(modules_in(tmp_path, main=text))

    assert refused.value.found == text


def test_modules_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ComponentError, match=r"x\.js"):
        bundle_modules(modules_in(tmp_path, main='import { x } from "./x.js";'))
    with pytest.raises(CycleError):
        bundle_modules(modules_in(tmp_path, x='import { main } from "./main.js";'))
