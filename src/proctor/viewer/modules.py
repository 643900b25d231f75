"""ES modules as one script: for a page that is a single file and can import nothing.

Rule 1: every module is a function's scope, so that names never meet; what it exports is what the function returns. It runs
    once, after those that it imports from. As in a module, `this` and sloppy code have no place in it.
Rule 2: these forms, and no others: `import { a, b as c } from "./x.js";` before all other code, and `export` in front of a
    function, a class or one `const` with a name. Anything else is a ComponentError that names the file and the line: a default
    export, a list of exports, a dynamic import, a top-level await, a cycle, a name that nobody exports.
Rule 3: what is said in strings and comments is no code (`masking.py`).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proctor.errors import ComponentError
from proctor.viewer.masking import masked

ENTRY: Final = "main.js"

_NAME: Final = r"[A-Za-z_$][\w$]*"
_BLANKS: Final = re.compile(r"\s*")
_IMPORT: Final = re.compile(r"import\s*\{([^{}]*)\}\s*from\s*(\"[^\n\"]*\")\s*;")
_IMPORTED: Final = re.compile(rf"({_NAME})(?:\s+as\s+({_NAME}))?")
_EXPORT: Final = re.compile(
    rf"export\s+(?=(?:async\s+function|function|class|const)\b[\s*]*({_NAME}))(async|function|class|const)"
)
_ADDRESS: Final = re.compile(r"\./([A-Za-z_]\w*)\.js")
_WORDS: Final = re.compile(r"(?<![\w$.])(import|export|await)(?![\w$])(?!\s*:)")


@dataclass(frozen=True, slots=True)
class Import:
    """One name that a module takes from another."""

    module: str
    name: str
    local: str
    line: int


@dataclass(frozen=True, slots=True)
class Module:
    """A module as its file has it."""

    name: str
    """The file's name without `.js`."""
    imports: tuple[Import, ...]
    exports: tuple[str, ...]
    body: str
    """What follows the imports, without the word `export`."""


def bundled(folder: Path | str, entry: str = ENTRY) -> str:
    """Return one script that does what the module `entry` does, with all that it imports from the same folder."""
    return "".join(map(_wrapped, modules(folder, entry)))


def modules(folder: Path | str, entry: str = ENTRY) -> list[Module]:
    """Return the modules that `entry` needs, itself the last, each after those that it imports from."""
    return _Order(Path(folder)).of(entry.removesuffix(".js"))


def parsed(name: str, text: str) -> Module:
    """Return what is said in the file `name`.js; a ComponentError where it uses a form that is not allowed."""
    reading = _Reading(name, text)
    imports = tuple(reading.imports())
    exports = tuple(reading.exports())
    return Module(name, imports, tuple(found for found, _ in exports), reading.body([at for _, at in exports]))


# ------------------------------------------------------------------------------------------------------------ order
class _Order:
    """The modules of a folder, in the order in which they can run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._done: dict[str, Module] = {}
        self._way: list[str] = []

    def of(self, name: str) -> list[Module]:
        self._visit(name)
        return list(self._done.values())

    def _visit(self, name: str) -> Module:
        if name in self._done:
            return self._done[name]
        module = parsed(name, self._read(name))
        self._way.append(name)
        for wanted in module.imports:
            self._check(name, wanted)
        self._way.pop()
        self._done[name] = module
        return module

    def _check(self, name: str, wanted: Import) -> None:
        if wanted.module in self._way:
            ring = " -> ".join([*self._way[self._way.index(wanted.module) :], wanted.module])
            raise _wrong(name, wanted.line, f"these modules import each other: {ring}")
        if wanted.module not in self._done and not self._path(wanted.module).is_file():
            raise _wrong(name, wanted.line, f"there is no module {wanted.module}.js")
        if wanted.name not in self._visit(wanted.module).exports:
            raise _wrong(name, wanted.line, f"{wanted.module}.js does not export {wanted.name}")

    def _read(self, name: str) -> str:
        try:
            return self._path(name).read_text("utf-8")
        except OSError as problem:
            raise ComponentError(f"the module {name}.js cannot be read: {problem}") from problem

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.js"


# ------------------------------------------------------------------------------------------------------------ one file
class _Reading:
    """One file being read: first its imports, then its exports."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._text = text
        try:
            self._code = masked(text)
        except ComponentError as problem:
            raise ComponentError(f"{name}.js, {problem.found}: {problem.message}") from problem
        self._head = 0  # where the imports end

    def imports(self) -> Iterator[Import]:
        """Yield the imports at the head."""
        while found := _IMPORT.match(self._code, self._blanks_end(self._head)):
            line = self._line(found.start())
            module = self._module(found.start(2), found.end(2), line)
            for each in filter(None, map(str.strip, found[1].split(","))):
                named = _IMPORTED.fullmatch(each)
                if named is None:
                    raise _wrong(self._name, line, f"this is not a name to import: {each}")
                yield Import(module, named[1], named[2] or named[1], line)
            self._head = found.end()

    def exports(self) -> Iterator[tuple[str, int]]:
        """Yield what is exported, each with the place of its word `export`; refuse every other form."""
        for found in _WORDS.finditer(self._code, self._head):
            if found[1] == "export":
                yield self._exported(found.start()), found.start()
            elif found[1] == "import":
                raise self._refused(found.start(), 'imports stand at the head: import { a, b as c } from "./x.js";')
            elif self._outermost(found.start()):
                raise self._refused(found.start(), "a module may not wait while it is loaded (await)")

    def body(self, exports: list[int]) -> str:
        """Return the text after the imports, with the word `export` blanked at these places."""
        text, width = self._text, len("export")
        for at in exports:
            text = f"{text[:at]}{' ' * width}{text[at + width :]}"
        return text[self._head :]

    def _exported(self, at: int) -> str:
        found = _EXPORT.match(self._code, at)
        if found is None or self._depth(at) > 0:
            raise self._refused(at, "only `export function f`, `export class C` and `export const x = ...;` are read")
        if found[2] == "const":
            self._check_constant(found.end())
        return found[1]

    def _check_constant(self, at: int) -> None:
        """Refuse a `const` that declares several names, of which the first only would be exported."""
        depth = 0
        for place in range(at, len(self._code)):
            sign = self._code[place]
            depth += (sign in "([{") - (sign in ")]}")
            if depth == 0 and sign == ",":
                raise self._refused(place, "one `export const` declares one name")
            if depth == 0 and sign == ";":
                return
        raise self._refused(at, "an `export const` ends with a semicolon")

    def _outermost(self, at: int) -> bool:
        """Return whether what stands here is done when the module is loaded, not inside a function."""
        start = max(self._code.rfind(sign, 0, at) for sign in ";}")
        return self._depth(at) == 0 and "=>" not in self._code[start + 1 : at]

    def _depth(self, at: int) -> int:
        before = self._code[:at]
        return sum(map(before.count, "([{")) - sum(map(before.count, ")]}"))

    def _module(self, start: int, end: int, line: int) -> str:
        address = self._text[start + 1 : end - 1]
        found = _ADDRESS.fullmatch(address)
        if found is None:
            raise _wrong(self._name, line, f'modules are imported from "./name.js", not from "{address}"')
        return found[1]

    def _blanks_end(self, at: int) -> int:
        found = _BLANKS.match(self._code, at)
        return at if found is None else found.end()

    def _refused(self, at: int, why: str) -> ComponentError:
        return _wrong(self._name, self._line(at), why)

    def _line(self, at: int) -> int:
        return self._code.count("\n", 0, at) + 1


def _wrong(name: str, line: int, why: str) -> ComponentError:
    return ComponentError(f"{name}.js, line {line}: {why}")


# ------------------------------------------------------------------------------------------------------------ the script
def _wrapped(module: Module) -> str:
    """Return a module as a function that is called at once."""
    taken = "".join(f"{line}\n" for line in _taken(module))
    given = ", ".join(module.exports)
    return f"const __{module.name} = (() => {{\n{taken}{module.body.strip()}\nreturn {{ {given} }};\n}})();\n"


def _taken(module: Module) -> Iterator[str]:
    """Yield the lines that give a module what it imports."""
    names: dict[str, list[str]] = {}
    for each in module.imports:
        own = each.name if each.name == each.local else f"{each.name}: {each.local}"
        names.setdefault(each.module, []).append(own)
    for module_name, own_names in names.items():
        yield f"const {{ {', '.join(own_names)} }} = __{module_name};"
