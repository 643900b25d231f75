"""ES modules become one script: the same names, the same order, and nothing that was not understood."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.errors import ComponentError
from proctor.viewer.javascript_bundle import blank_strings, bundle_modules, order_modules, parse_module
from tests.system import programs

LETTERS = """// Letters. import { nothing } from "./nowhere.js";
/* export default 1;
import { nothing } from "./nowhere.js"; */
export const A = "a";
export const QUOTE = '"';
export function both(x, y = [1, 2]) {
  return `${x}export const z = 1;${`in ${y.length}`}`;
}
"""
WORDS = """import {
  A, both as pair,
} from "./letters.js";
import { QUOTE } from "./letters.js";

const sign = /["'`]/g;
export class Word {
  constructor(text) { this.text = text; }
  plain() { return this.text.replace(sign, A) + 6 / 2 / 1; }
}
export async function later() {
  return await Promise.resolve(pair(QUOTE, [1, 2, 3]));
}
export const soon = async () => await later();
"""
MAIN = """// Runs.
import { Word, later, soon } from "./words.js";
import { A } from "./letters.js";

const both = "import { x } from './y.js'";
const text = `
import { nothing } from "./nowhere.js";
export default 3;
`;
Promise.all([later(), soon()]).then((found) => {
  console.log(JSON.stringify([new Word("'x'").plain(), A, both, text.length, found]));
});
"""


def folder(where: Path, **files: str) -> Path:
    for name, text in files.items():
        (where / f"{name}.js").write_text(text, "utf-8")
    return where


def example(where: Path) -> Path:
    return folder(where, letters=LETTERS, words=WORDS, main=MAIN)


def test_each_module_comes_once_after_those_that_it_imports_from(tmp_path: Path) -> None:
    found = order_modules(example(tmp_path))

    assert [module.name for module in found] == ["letters", "words", "main"]
    assert [module.exports for module in found] == [("A", "QUOTE", "both"), ("Word", "later", "soon"), ()]


def test_the_script_has_a_scope_for_every_module_and_no_import_left(tmp_path: Path) -> None:
    script = bundle_modules(example(tmp_path))
    code = blank_strings(script)

    assert script.count("const __words = (() => {\nconst { A, both: pair, QUOTE } = __letters;\n") == 1
    assert "return { Word, later, soon };\n})();\n" in script
    assert "import" not in code
    assert "export" not in code


def test_strings_and_comments_are_left_as_they_are(tmp_path: Path) -> None:
    script = bundle_modules(example(tmp_path))

    assert "\"import { x } from './y.js'\"" in script
    assert '`\nimport { nothing } from "./nowhere.js";\nexport default 3;\n`' in script


@pytest.mark.system
def test_the_script_does_what_the_modules_do(tmp_path: Path) -> None:
    where = example(tmp_path)
    (where / "package.json").write_text('{"type": "module"}', "utf-8")
    (where / "script.mjs").write_text(bundle_modules(where), "utf-8")

    apart = run(where / "main.js")
    assert run(where / "script.mjs") == apart
    assert "export const z = 1;in 3" in apart


def run(script: Path) -> str:
    return subprocess.run(
        [*programs.node(), str(script)], capture_output=True, text=True, check=True, timeout=60
    ).stdout


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("\nexport default 1;\n", 2, "only `export function f`"),
        ("const a = 1;\nexport { a };\n", 2, "only `export function f`"),
        ('export * from "./b.js";\n', 1, "only `export function f`"),
        ("export let a = 1;\n", 1, "only `export function f`"),
        ("export const { a } = b;\n", 1, "only `export function f`"),
        ("if (x) {\n  export const a = 1;\n}\n", 2, "only `export function f`"),
        ("export const a = [1, 2], b = 3;\n", 1, "one name"),
        ("export const a = 1\n", 1, "semicolon"),
        ('import b from "./b.js";\n', 1, "imports stand at the head"),
        ('import "./b.js";\n', 1, "imports stand at the head"),
        ('import * as b from "./b.js";\n', 1, "imports stand at the head"),
        ('import { b } from "./b.js"\n', 1, "imports stand at the head"),
        ('const a = 1;\nimport { b } from "./b.js";\n', 2, "imports stand at the head"),
        ('const a = () => {\n  return import("./b.js");\n};\n', 2, "imports stand at the head"),
        ("const a = `${import.meta.url}`;\n", 1, "imports stand at the head"),
        ('import { b } from "../b.js";\n', 1, 'from "./name.js"'),
        ('import { b } from "https://b.example/b.js";\n', 1, 'from "./name.js"'),
        ('\nimport { "b" as c } from "./b.js";\n', 2, "not a name"),
        ("const a = 1;\nconst b = await a;\n", 2, "may not wait"),
        ('const a = "open;\n', 1, "a string has no end"),
        ("const a = `open ${1};\n", 1, "a template has no end"),
    ],
)
def test_any_other_form_is_refused_with_its_file_and_line(text: str, line: int, why: str) -> None:
    with pytest.raises(ComponentError) as refused:
        parse_module("page", text)

    assert str(refused.value).startswith(f"page.js, line {line}: ")
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"main": 'import { b } from "./b.js";'}, "main.js, line 1: there is no module b.js"),
        ({"main": 'import { b } from "./b.js";', "b": ""}, "main.js, line 1: b.js does not export b"),
        (
            {
                "main": 'import { b } from "./b.js";',
                "b": 'import { c } from "./c.js";\nexport const b = 1;',
                "c": '\nimport { b } from "./b.js";\nexport const c = 1;',
            },
            "c.js, line 2: these modules import each other: b -> c -> b",
        ),
        ({"main": 'import { b } from "./main.js";'}, "main.js, line 1: these modules import each other: main -> main"),
        ({}, "the module main.js cannot be read"),
    ],
)
def test_modules_that_do_not_fit_together_are_refused(tmp_path: Path, files: dict[str, str], why: str) -> None:
    with pytest.raises(ComponentError) as refused:
        bundle_modules(folder(tmp_path, **files))

    assert str(refused.value).startswith(why)


PIECES = st.sampled_from(
    ['"', "'", "`", "${", "{", "}", "/", "*", "//", "/*", "*/", "\\", "\n", "a", " ", "=", "(", ")", "return", "[", "]"]
)


@settings(max_examples=80)
@given(st.lists(PIECES, max_size=30).map("".join))
def test_code_without_its_strings_has_the_same_lines_and_places(text: str) -> None:
    try:
        code = blank_strings(text)
    except ComponentError:
        return

    assert list(map(len, code.split("\n"))) == list(map(len, text.split("\n")))
    assert all(left == right or left in ' "' for left, right in zip(code, text, strict=True))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a = b / c / d;", "a = b / c / d;"),
        ('a = /[/"]/.test(b);', "a =       .test(b);"),
        ("return /'/;", "return    ;"),
        ("f(1) / 2 / 3", "f(1) / 2 / 3"),
        ("x = `a${ {b: `c`} }d`;", "x =      {b:    }    ;"),
    ],
)
def test_a_slash_divides_after_a_value_and_begins_a_pattern_elsewhere(text: str, code: str) -> None:
    assert blank_strings(text) == code
