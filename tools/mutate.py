"""Mutation testing of the episode judge: of many small mistakes made on purpose, how many do the tests notice?

cosmic-ray makes most mutants; what its operators lack for a machine that is a table stands here: an element, an
argument or a statement left out, and one member of an enumeration in the place of another.

Rule 1: the tree is never touched: mutants live in copies under `build/mutate`.
Rule 2: the sample is drawn by the seed and by what each mutant changes, so that an edit moves few others in or out.
Rule 3: every result is kept in `results.jsonl` at once, and a second call goes on. What was killed stays killed while
    its module is the same; a survivor is tried again when a test or a source has changed.
Rule 4: no mutant that cannot differ: none in annotations, imports and hints that only spare time, no `is` in the place of
    `==`; nor one that does not compile.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
PLACE: Final = ROOT / "build" / "mutate"
PACKAGE: Final = Path("src/proctor/episode")
MODULES: Final = (
    "transition_table",
    "legal_moves",
    "episode_state",
    "rules/catalogue",
    "rules/contract",
    "machine",
)
# The cheapest and most killing first: the run ends with the first failure.
SUITE: Final = (
    "tests/episode/test_findings.py",
    "tests/episode/test_transition_table.py",
    "tests/episode/test_episode_state.py",
    "tests/episode/rules/test_catalogue.py",
    "tests/episode/test_machine.py",
    "tests/episode/rules/test_invariants.py",
    "tests/episode/test_goldens.py",
    "tests/episode/test_walk.py",
    "tests/episode/test_model.py::test_judge_and_model_agree_under_every_setting",
)
# Only the plugins that the tests need: loading all of them would take longer than the tests that notice.
PLUGINS: Final = ("pytest_timeout", "_hypothesis_pytestplugin", "no:cacheprovider")
PYTEST: Final = ("-x", "-q", "--hypothesis-seed=0", *(f"-p{name}" for name in PLUGINS))
COPIED: Final = ("pyproject.toml", "tests/conftest.py", "tests/episode", "src/proctor")
GOAL: Final = 0.95
PATIENCE: Final = 600.0

# What nobody writes by mistake or what means the same: `is` for an order or for `==`, and the other way round.
UNLIKELY: Final = re.compile(r"ReplaceComparisonOperator_(?:Is(?:Not)?_(?!Is)|(?!Is)[A-Za-z]+_Is)")
# Only in annotations is a bar of use here, and there are no shifts, matrices or powers.
BITS: Final = re.compile(r"_(BitOr|BitAnd|BitXor|LShift|RShift|MatMult|Pow)(_|$)")

# Arguments that spare time and change nothing: a rule that the table implies may as well be asked, and a rare one always.
HINTS: Final = ("gc", "implied", "maxsize", "rare")

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Spot:
    """A place where a mutant can be made, and how."""

    module: str
    operator: str
    line: int
    column: int
    make: Callable[[], str | None]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A module's text with one mistake in it."""

    id: str
    module: str
    operator: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a mutant; `by` is the test that noticed, or `import` or `timeout`."""

    id: str
    module: str
    operator: str
    line: int
    killed: bool
    by: str
    seconds: float
    tree: str


def digest(*parts: str) -> str:
    """Return a short name for what `parts` say."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def path_of(module: str) -> Path:
    """Return where a module lies below a root."""
    return PACKAGE / f"{module}.py"


# ------------------------------------------------------------------------------------------------------- mutants
class Source:
    """A module's text, and where its parts lie in it."""

    def __init__(self, module: str, text: str) -> None:
        self.module = module
        self.text = text
        self.tree = ast.parse(text)
        self._starts = [0]
        for line in text.encode().splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def at(self, line: int, column: int) -> int:
        """Return the offset in bytes of a place as `ast` names it."""
        return self._starts[line - 1] + column

    def place(self, offset: int) -> tuple[int, int]:
        """Return the line, from 1, and the column of an offset in bytes."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1]

    def start(self, node: Any) -> int:
        """Return where a node begins."""
        return self.at(node.lineno, node.col_offset)

    def end(self, node: Any) -> int:
        """Return where a node ends."""
        return self.at(node.end_lineno, node.end_col_offset)

    def span(self, node: Any) -> Span:
        """Return where a node begins and ends."""
        return self.start(node), self.end(node)

    def replaced(self, span: Span, by: str) -> str:
        """Return the text with something else in the place of `span`."""
        whole = self.text.encode()
        return (whole[: span[0]] + by.encode() + whole[span[1] :]).decode()

    def untouchable(self) -> list[Span]:
        """Return the spans in which nothing can differ, or all of it would only break the import."""
        found = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                found.append(self.span(node))
            for name in ("annotation", "returns"):
                note = getattr(node, name, None)
                if isinstance(note, ast.expr):
                    found.append(self.span(note))
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias":
                found.append(self.span(node))
            if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
                found.append(self.span(node))
            if isinstance(node, ast.ClassDef | ast.Call):
                found.extend(self.span(each) for each in node.keywords if each.arg in HINTS)
        return found

    def signatures(self) -> list[Span]:
        """Return the spans of parameters, in which an asterisk multiplies nothing."""
        made = [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef)]
        return [(self.start(node), self.start(node.body[0])) for node in made]


def spots_in(source: Source, enums: dict[str, list[str]]) -> Iterator[Spot]:
    """Yield every place of a module where a mutant can be made."""
    forbidden, signatures = source.untouchable(), source.signatures()
    for spot in (*borrowed(source), *own(source, enums)):
        offset = source.at(spot.line, spot.column)
        calculates = spot.operator.startswith("ReplaceBinaryOperator")
        if not any(begin <= offset < end for begin, end in (*forbidden, *(signatures if calculates else ()))):
            yield spot


def borrowed(source: Source) -> Iterator[Spot]:
    """Yield what cosmic-ray's operators would do."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator, operator_names

    tree = get_ast(source.text)
    for name in sorted(operator_names()):
        kind = get_operator(name)
        if kind.arguments() or UNLIKELY.search(name) or BITS.search(name):
            continue
        places = [start for node in ast_nodes(tree) for start, _ in kind().mutation_positions(node)]
        for occurrence, (line, column) in enumerate(places):
            # parso counts characters and `ast` bytes: the sources are ASCII wherever something can be mutated.
            yield Spot(
                source.module,
                name.removeprefix("core/"),
                line,
                column,
                partial(mutate_code, source.text, kind(), occurrence),
            )


def own(source: Source, enums: dict[str, list[str]]) -> Iterator[Spot]:
    """Yield what leaves something out, or puts one member of an enumeration in the place of another."""
    for node in ast.walk(source.tree):
        for operator, span, by in _changes(source, node, enums):
            yield Spot(source.module, operator, *source.place(span[0]), partial(source.replaced, span, by))


def _changes(source: Source, node: ast.AST, enums: dict[str, list[str]]) -> Iterator[tuple[str, Span, str]]:
    match node:
        case ast.Tuple(elts=parts, ctx=ast.Load()) | ast.List(elts=parts, ctx=ast.Load()) | ast.Set(elts=parts):
            empty = {"Tuple": "()", "List": "[]", "Set": "set()"}[type(node).__name__]
            spans = [source.span(part) for part in parts]
            if isinstance(node, ast.Tuple) and len(parts) == 2:
                # What is left of a pair needs a comma to be a tuple.
                yield "DropElement", source.span(node), f"({ast.unparse(parts[1])},)"
                yield "DropElement", source.span(node), f"({ast.unparse(parts[0])},)"
            else:
                yield from _left_out(source, node, spans, empty)
        case ast.Dict(keys=keys, values=values):
            spans = [
                (source.start(value) - 2 if key is None else source.start(key), source.end(value))
                for key, value in zip(keys, values, strict=True)
            ]
            yield from _left_out(source, node, spans, "{}")
        case ast.Call(args=args, keywords=keywords):
            spans = [source.span(each) for each in (*args, *keywords)]
            for index, each in enumerate(keywords, start=len(args)):
                if each.arg is not None and each.arg not in HINTS and index:
                    yield "DropArgument", (spans[index - 1][1], spans[index][1]), ""
        case ast.Attribute(value=ast.Name(id=enum), attr=member) if member in enums.get(enum, ()):
            members = enums[enum]
            other = members[(members.index(member) + 1) % len(members)]
            yield "SwapMember", source.span(node), f"{enum}.{other}"
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield "ReturnNone", source.span(node), "return None"
        case ast.Expr(value=ast.Call() | ast.Yield() | ast.YieldFrom()) | ast.AugAssign() | ast.Raise():
            yield "DropStatement", source.span(node), "pass"
        case _:
            pass


def _left_out(source: Source, node: ast.AST, spans: list[Span], empty: str) -> Iterator[tuple[str, Span, str]]:
    """Yield each part of a literal left out, with the comma that goes with it."""
    if len(spans) == 1:
        yield "DropElement", source.span(node), empty
        return
    for index, (begin, end) in enumerate(spans):
        last = index + 1 == len(spans)
        yield "DropElement", (spans[index - 1][1], end) if last else (begin, spans[index + 1][0]), ""


def enumerations(sources: Iterable[str]) -> dict[str, list[str]]:
    """Return the members of every enumeration in the sources of the package, by its name."""
    found = {}
    for text in sources:
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith("Enum") for base in node.bases):
                names = [each.targets[0] for each in node.body if isinstance(each, ast.Assign)]
                found[node.name] = [name.id for name in names if isinstance(name, ast.Name)]
    return {name: members for name, members in found.items() if len(members) > 1}


def ranked(spots: Iterable[Spot], lines: dict[str, list[str]], seed: int) -> list[Spot]:
    """Return the spots in the order of the draw: by the seed, the operator and the line that it changes."""
    seen: Counter[str] = Counter()
    order = []
    for spot in spots:
        line = lines[spot.module][spot.line - 1].strip()
        key = f"{spot.module}\0{spot.operator}\0{line}"
        seen[key] += 1
        order.append((digest(str(seed), key, str(seen[key])), spot))
    return [spot for _, spot in sorted(order, key=lambda pair: pair[0])]


def sampled(spots: Iterable[Spot], originals: dict[str, str], count: int) -> list[Mutant]:
    """Return the first `count` spots as mutants that compile and differ from the original and from each other."""
    found: dict[str, Mutant] = {}
    known = {(module, ast.dump(ast.parse(text))) for module, text in originals.items()}
    for spot in spots:
        if len(found) == count:
            break
        text = spot.make()
        try:
            meaning = (spot.module, ast.dump(ast.parse(text or "")))
        except (SyntaxError, ValueError):
            continue
        if text is None or meaning in known:
            continue
        known.add(meaning)
        mutant = Mutant(digest(spot.module, text), spot.module, spot.operator, spot.line, text)
        found[mutant.id] = mutant
    return list(found.values())


# --------------------------------------------------------------------------------------------------------- running
class Copy:
    """A copy of what the tests need, in which one mutant at a time stands in the place of its module."""

    def __init__(self, place: Path, root: Path = ROOT) -> None:
        self.place = place
        shutil.rmtree(place, ignore_errors=True)
        for name in COPIED:
            _copied(root / name, place / name)

    def warmed(self, suite: Sequence[str]) -> float:
        """Return how long the tests take without a mutant; bytecode is kept, but for what will be mutated."""
        if not self.imported().startswith(str(self.place)):
            raise SystemExit(f"mutate: the tests would see {self.imported()}, not the copy")
        failed, by = self.tested(suite, PATIENCE, keep=True)
        for module in MODULES:
            place = self.place / path_of(module)
            for path in (place.parent / "__pycache__").glob(f"{place.stem}.*"):
                path.unlink()
        begun = time.monotonic()
        failed, by = (failed, by) if failed else self.tested(suite, PATIENCE)
        if failed:
            raise SystemExit(f"mutate: the tests fail without any mutant: {by}")
        return time.monotonic() - begun

    def tested(self, suite: Sequence[str], limit: float, *, keep: bool = False) -> tuple[bool, str]:
        """Return whether the tests failed, and by what they noticed."""
        shutil.rmtree(self.place / ".hypothesis", ignore_errors=True)
        command = [sys.executable, "-m", "pytest", *PYTEST, "-m", "not slow and not system", *suite]
        process = subprocess.Popen(
            command,
            cwd=self.place,
            env=self.environment(keep=keep),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            _end(process)
            return True, "timeout"
        except BaseException:
            _end(process)
            raise
        return _noticed(process.returncode, output)

    def environment(self, *, keep: bool = False) -> dict[str, str]:
        """Return the environment in which the copy is imported; bytecode of a mutant must never be kept."""
        return {
            **os.environ,
            "PYTHONPATH": str(self.place / "src"),
            "PYTHONDONTWRITEBYTECODE": "" if keep else "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }

    def imported(self) -> str:
        """Return where Python finds the package."""
        code = "import proctor.episode.transition_table as table; print(table.__file__)"
        command = [sys.executable, "-c", code]
        return subprocess.run(
            command,
            cwd=self.place,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE,
        ).stdout.strip()

    def with_mutant(self, mutant: Mutant, suite: Sequence[str], limit: float) -> tuple[bool, str]:
        """Return what `tested` says while the mutant is in its place."""
        path = self.place / path_of(mutant.module)
        original = path.read_bytes()
        path.write_text(mutant.text, "utf-8")
        try:
            return self.tested(suite, limit)
        finally:
            path.write_bytes(original)


def _copied(source: Path, target: Path) -> None:
    """Copy a file or a folder, without bytecode."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", ".hypothesis"))
    else:
        shutil.copy2(source, target)


def _end(process: subprocess.Popen[str]) -> None:
    """Kill a run and all that it started."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _noticed(code: int, output: str) -> tuple[bool, str]:
    if code == 0:
        return False, ""
    if code == 1:
        failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
        return True, failed[0] if failed else "a test"
    if code in (2, 3, 4):
        return True, "import"
    raise ChildProcessError(f"pytest ended with code {code}: {output[-500:]}")


class Results:
    """What is known from this call and from earlier ones, in a file of one line each."""

    def __init__(self, path: Path, tree: str) -> None:
        self._path = path
        self._tree = tree
        self._known: dict[str, Result] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        for line in path.read_text("utf-8").splitlines() if path.exists() else ():
            result = _result(line)
            if result is not None:
                self._known[result.id] = result

    def of(self, mutant: Mutant) -> Result | None:
        """Return what is known of a mutant and still holds."""
        found = self._known.get(mutant.id)
        return found if found is not None and (found.killed or found.tree == self._tree) else None

    def add(self, result: Result) -> None:
        """Keep a result, on disk first."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(result)) + "\n")
        self._known[result.id] = result


def _result(line: str) -> Result | None:
    """Return the result of one line; a line that was cut off is none."""
    try:
        return Result(**json.loads(line))
    except (ValueError, TypeError):
        return None


def tree_of(root: Path) -> str:
    """Return a name for the sources and the tests as they are."""
    tops = [root / top for top in COPIED]
    files = [path for top in tops for path in (top.rglob("*") if top.is_dir() else (top,))]
    known = sorted(path for path in files if path.is_file() and not {"__pycache__", ".hypothesis"} & set(path.parts))
    return digest(*(f"{path.relative_to(root)}\0{path.read_bytes().hex()}" for path in known))


def run_all(mutants: Sequence[Mutant], results: Results, copies: Sequence[Copy], limit: float, tree: str) -> None:
    """Run what is not known yet, as many at a time as there are copies."""
    todo = [mutant for mutant in mutants if results.of(mutant) is None]
    print(f"mutate: {len(mutants)} mutants, {len(mutants) - len(todo)} known, {len(todo)} to run", flush=True)
    free: SimpleQueue[Copy] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def run(mutant: Mutant) -> Result:
        copy = free.get()
        begun = time.monotonic()
        try:
            killed, by = copy.with_mutant(mutant, SUITE, limit)
        finally:
            free.put(copy)
        spent = round(time.monotonic() - begun, 2)
        return Result(mutant.id, mutant.module, mutant.operator, mutant.line, killed, by, spent, tree)

    pool = ThreadPoolExecutor(len(copies))
    try:
        for number, future in enumerate(as_completed([pool.submit(run, mutant) for mutant in todo]), start=1):
            result = future.result()
            results.add(result)
            fate = result.by if result.killed else "SURVIVED"
            print(f"{number:>5}/{len(todo)} {result.module}:{result.line} {result.operator}: {fate}", flush=True)
    finally:
        pool.shutdown(cancel_futures=True)


# ------------------------------------------------------------------------------------------------------- reporting
def report(mutants: Sequence[Mutant], results: Results, originals: dict[str, str], made: Counter[str]) -> bool:
    """Print the counts and every survivor; return whether enough were killed."""
    found = [(mutant, results.of(mutant)) for mutant in mutants]
    done = [(mutant, result) for mutant, result in found if result is not None]
    survivors = [mutant for mutant, result in done if not result.killed]
    for mutant in survivors:
        print(f"\nsurvivor {mutant.id}: {mutant.operator}")
        print(*_diff(mutant, originals[mutant.module]), sep="\n")
    print(f"\n{'module':<18}{'spots':>8}{'sampled':>9}{'killed':>8}{'survived':>10}")
    for module in originals:
        fates = [result.killed for _, result in done if result.module == module]
        print(f"{module:<18}{made[module]:>8}{len(fates):>9}{sum(fates):>8}{len(fates) - sum(fates):>10}")
    by = Counter(result.by.partition("::")[0] for _, result in done if result.killed)
    print("killed by: " + ", ".join(f"{name} {count}" for name, count in by.most_common()))
    killed = len(done) - len(survivors)
    share = killed / len(done) if done else 0.0
    print(f"mutate: {killed} of {len(done)} killed, {100 * share:.1f} % (goal {100 * GOAL:.0f} %)")
    return len(done) == len(mutants) and share >= GOAL


def _diff(mutant: Mutant, original: str) -> list[str]:
    name = str(path_of(mutant.module))
    before, after = original.splitlines(), mutant.text.splitlines()
    return list(difflib.unified_diff(before, after, name, name, lineterm="", n=2))


def arguments_of(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(prog="tools/mutate.py", description="Mutation testing of the episode judge.")
    parser.add_argument("--count", type=int, default=640, help="mutants in the sample (default 640)")
    parser.add_argument("--seed", type=int, default=5, help="which sample (default 5)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time (default: the cores)")
    parser.add_argument("--modules", default=",".join(MODULES), help="only these, by commas")
    parser.add_argument("--fresh", action="store_true", help="forget what earlier calls found")
    parser.add_argument("--report", action="store_true", help="only say what is known")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Draw the sample, run what is not known yet and say what survived; return 1 if too many did."""
    arguments = arguments_of(argv)
    if find_spec("cosmic_ray") is None:
        raise SystemExit("mutate: cosmic-ray is not installed; `make mutate` installs it")
    folder = ROOT / PACKAGE
    texts = {
        path.relative_to(folder).with_suffix("").as_posix(): path.read_text("utf-8")
        for path in sorted(folder.rglob("*.py"))
    }
    originals = {module: texts[module] for module in arguments.modules.split(",")}
    enums = enumerations(texts.values())
    spots = [spot for module, text in originals.items() for spot in spots_in(Source(module, text), enums)]
    lines = {module: text.splitlines() for module, text in originals.items()}
    mutants = sampled(ranked(spots, lines, arguments.seed), originals, arguments.count)
    if arguments.fresh:
        (PLACE / "results.jsonl").unlink(missing_ok=True)
    tree = tree_of(ROOT)
    results = Results(PLACE / "results.jsonl", tree)
    if not arguments.report:
        copies = [Copy(PLACE / f"copy-{number}") for number in range(arguments.jobs)]
        run_all(mutants, results, copies, _limit(copies), tree)
    return 0 if report(mutants, results, originals, Counter(spot.module for spot in spots)) else 1


def _limit(copies: Sequence[Copy]) -> float:
    """Return how long a run may take, from how long it takes without a mutant."""
    spent = max(copy.warmed(SUITE) for copy in copies)
    print(f"mutate: the tests take {spent:.1f} s without a mutant", flush=True)
    return max(30.0, 6 * spent)


if __name__ == "__main__":
    sys.exit(main())
