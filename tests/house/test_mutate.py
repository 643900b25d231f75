"""Mutation testing: what mutants are made, which are drawn, what becomes of them, and that the tree stays as it is."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools import mutate
from tools.mutate import (
    Copy,
    Mutant,
    Result,
    Results,
    Source,
    Spot,
    enumerations,
    own,
    ranked,
    report,
    sampled,
    tree_of,
)

pytestmark = pytest.mark.slow

ENUMS = {"Colour": ["RED", "GREEN", "BLUE"]}
TOY = '''"""A toy."""

from os import path as place

LIMITS: dict[str, int] = {"a": 1, "b": 2}


def larger(first: int, second: tuple[int, int] | None = None) -> int:
    """Return the larger."""
    return first if second is None else max(first, *second)
'''


def texts_of(source: str) -> dict[str, list[str]]:
    """Return what each of our own operators makes of a line."""
    found: dict[str, list[str]] = {}
    for spot in own(Source("toy", source), ENUMS):
        found.setdefault(spot.operator.partition(":")[0], []).append(spot.make() or "")
    return found


@pytest.mark.parametrize(
    ("source", "operator", "expected"),
    [
        ("x = (a, b, c)", "DropElement", ["x = (b, c)", "x = (a, c)", "x = (a, b)"]),
        ("x = (a,)", "DropElement", ["x = ()"]),
        ("x = (a, b)", "DropElement", ["x = (b,)", "x = (a,)"]),
        ("x = {a}", "DropElement", ["x = set()"]),
        ("x = [*a, b]", "DropElement", ["x = [b]", "x = [*a]"]),
        ("x = {'a': 1, **b}", "DropElement", ["x = {**b}", "x = {'a': 1}"]),
        ("f(a, b=1, c=2)", "DropArgument", ["f(a, c=2)", "f(a, b=1)"]),
        ("x = Colour.RED, y", "SwapMember", ["x = Colour.GREEN, y"]),
        ("x = Colour.BLUE", "SwapMember", ["x = Colour.RED"]),
        ("def f(): return 1", "ReturnNone", ["def f(): return None"]),
        ("def f(): return None", "ReturnNone", []),
        ("f()", "DropStatement", ["pass"]),
        ("x += 1", "DropStatement", ["pass"]),
        ("x = 'ä', Colour.RED", "SwapMember", ["x = 'ä', Colour.GREEN"]),
        ("x = Shape.ROUND", "SwapMember", []),
    ],
)
def test_an_operator_makes_one_small_mistake(source: str, operator: str, expected: list[str]) -> None:
    assert texts_of(source).get(operator, []) == expected


def test_enumerations_are_read_from_the_sources() -> None:
    source = (
        "class Colour(StrEnum):\n    RED = 'r'\n    BLUE = 'b'\nclass Other:\n    X = 1\nclass One(Enum):\n    X = 1\n"
    )

    assert enumerations([source]) == {"Colour": ["RED", "BLUE"]}


def test_annotations_and_imports_are_left_alone() -> None:
    source = Source("toy", TOY)
    hidden = [TOY.encode()[begin:end].decode() for begin, end in source.untouchable()]

    assert set(hidden) == {
        *("from os import path as place", "dict[str, int]", "int"),
        *("tuple[int, int] | None", "tuple[int, int]"),
    }


def drawn(text: str, count: int, seed: int = 0) -> list[Mutant]:
    spots = list(own(Source("toy", text), ENUMS))
    return sampled(ranked(spots, {"toy": text.splitlines()}, seed), {"toy": text}, count)


@given(seed=st.integers(0, 1000), count=st.integers(0, 20))
def test_a_draw_is_the_same_every_time_and_holds_each_mutant_once(seed: int, count: int) -> None:
    text = "x = (Colour.RED, Colour.GREEN, Colour.RED, 4)\ny = f(x, k=Colour.BLUE)\n"
    mutants = drawn(text, count, seed)

    assert mutants == drawn(text, count, seed)
    assert len({mutant.text for mutant in mutants} - {text}) == len(mutants) <= count


def test_a_new_line_elsewhere_moves_nothing_out_of_the_draw() -> None:
    text = "x = (Colour.RED, Colour.GREEN, 4)\ny = f(x, k=Colour.BLUE)\n"
    before = [(mutant.operator, mutant.line) for mutant in drawn(text, 4)]
    after = [(mutant.operator, mutant.line - 2) for mutant in drawn("# a new line\n\n" + text, 4)]

    assert before == after


def test_what_does_not_compile_or_means_the_same_is_not_drawn() -> None:
    made = ["x = (1", "x  =  1", "x = 2", "x = 2  # again"]
    spots = [Spot("toy", "any", 1, 0, partial(str, text)) for text in made]

    assert [mutant.text for mutant in sampled(spots, {"toy": "x = 1"}, 9)] == ["x = 2"]


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """A tree with one module and one test of it."""
    root = tmp_path / "root"
    for name in mutate.MODULES:
        path = root / mutate.path_of(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(TOY, "utf-8")
    (root / "src/proctor/__init__.py").touch()
    (root / "tests/episode").mkdir(parents=True)
    (root / "tests/conftest.py").touch()
    (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\npythonpath = ['.']\n", "utf-8")
    (root / "tests/episode/test_toy.py").write_text(
        "from proctor.episode.transition_table import larger\ndef test_larger():\n    assert larger(1, (2, 3)) == 3\n",
        "utf-8",
    )
    return root


def mutant_of(old: str, new: str) -> Mutant:
    return Mutant(f"{old}>{new}", "transition_table", "by hand", 1, TOY.replace(old, new))


@pytest.mark.parametrize(
    ("mutant", "fate"),
    [
        (mutant_of("max(", "min("), (True, "tests/episode/test_toy.py::test_larger")),
        (mutant_of('"a": 1', '"a": 7'), (False, "")),
        (mutant_of("def larger", "def smaller"), (True, "import")),
    ],
)
def test_a_mutant_is_killed_by_the_test_that_notices(toy: Path, tmp_path: Path, mutant: Mutant, fate: object) -> None:
    before = tree_of(toy)
    copy = Copy(tmp_path / "copy", toy)

    assert copy.with_mutant(mutant, ("tests/episode",), 60.0) == fate
    assert tree_of(toy) == before
    assert tree_of(copy.place) == before


def test_a_mutant_that_never_ends_is_killed_in_time(toy: Path, tmp_path: Path) -> None:
    endless = mutant_of("    return first", "    while True: pass\n    return first")

    assert Copy(tmp_path / "copy", toy).with_mutant(endless, ("tests/episode",), 3.0) == (True, "timeout")


def test_a_copy_is_warmed_without_bytecode_of_what_will_be_mutated(toy: Path, tmp_path: Path) -> None:
    copy = Copy(tmp_path / "copy", toy)

    assert copy.warmed(("tests/episode",)) > 0.0
    assert not list(copy.place.glob("src/**/transition_table.*.pyc"))
    assert copy.with_mutant(mutant_of("max(", "min("), ("tests/episode",), 60.0)[0]


def test_tests_that_fail_anyway_end_it(toy: Path, tmp_path: Path) -> None:
    (toy / "tests/episode/test_toy.py").write_text("def test_nothing():\n    assert False\n", "utf-8")

    with pytest.raises(SystemExit, match="without any mutant"):
        Copy(tmp_path / "copy", toy).warmed(("tests/episode",))


def result(name: str, *, killed: bool, tree: str = "now") -> Result:
    return Result(name, "table", "by hand", 1, killed, "t.py::test" if killed else "", 0.1, tree)


def test_results_are_kept_and_go_on_in_a_second_call(tmp_path: Path) -> None:
    path = tmp_path / "build" / "results.jsonl"
    dead, alive = (Mutant(name, "table", "by hand", 1, "x") for name in ("dead", "alive"))
    first = Results(path, "now")
    first.add(result("dead", killed=True))
    first.add(result("alive", killed=False))
    with path.open("a", encoding="utf-8") as file:
        file.write('{"id": "cut o')

    same, later = Results(path, "now"), Results(path, "another")

    assert (same.of(dead), same.of(alive)) == (result("dead", killed=True), result("alive", killed=False))
    assert later.of(dead) is not None
    assert later.of(alive) is None


@pytest.mark.parametrize(("killed", "good"), [(19, True), (18, False)])
def test_the_report_lists_survivors_and_holds_the_share_against_the_goal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], killed: int, good: bool
) -> None:
    mutants = [Mutant(str(number), "table", "by hand", 1, TOY.replace("max", "min")) for number in range(20)]
    results = Results(tmp_path / "results.jsonl", "now")
    for number in range(20):
        results.add(result(str(number), killed=number < killed))

    assert report(mutants, results, {"table": TOY}, Counter(table=20)) is good
    assert capsys.readouterr().out.count("+    return first if second is None else min(first, *second)") == 20 - killed


def test_a_sample_that_is_not_finished_is_not_good(tmp_path: Path) -> None:
    mutants = [Mutant(str(number), "table", "by hand", 1, TOY) for number in range(2)]
    results = Results(tmp_path / "results.jsonl", "now")
    results.add(result("0", killed=True))

    assert not report(mutants, results, {"table": TOY}, Counter())


def test_the_modules_and_the_suite_are_there() -> None:
    assert all((mutate.ROOT / mutate.path_of(module)).is_file() for module in mutate.MODULES)
    assert all((mutate.ROOT / name).exists() for name in mutate.COPIED)
    for name in mutate.SUITE:
        file, _, test = name.partition("::")
        assert f"def {test}" in (mutate.ROOT / file).read_text("utf-8")


def test_without_cosmic_ray_the_tool_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutate, "find_spec", lambda name: None)

    with pytest.raises(SystemExit, match="make mutate"):
        mutate.main([])
