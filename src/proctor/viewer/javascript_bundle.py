"""ES modules as one script: for a page that is a single file and can import nothing.

Rule 1: every module is a function's scope, so that names never meet; what it exports is what the function returns. It runs
    once, after those that it imports from. As in a module, `this` and sloppy code have no place in it.
Rule 2: these forms, and no others: `import { a, b as c } from "./x.js";` before all other code, and `export` in front of a
    function, a class or one `const` with a name. Anything else is a ComponentError that names the file and the line: a default
    export, a list of exports, a dynamic import, a top-level await, a cycle, a name that nobody exports.
Rule 3: what is said in strings, comments and patterns is no code: `blank_strings` blanks it. Its result is as long as the text and
    has its lines, so that a place in one is a place in the other; code inside `${...}` stays.
Rule 4: whether a slash divides or begins a pattern is told by what stands before it, as people who write `a / b` and
    `= /pattern/` mean it; a string without an end is an error.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proctor.errors import ComponentError

_TOKEN: Final = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?\*/)"
    r"|(?P<string>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"
    r"|(?P<quote>[\"'])"
    r"|(?P<tick>`)"
    r"|(?P<open>\{)|(?P<shut>\})"
    r"|(?P<slash>/)"
    r"|(?P<other>[^\"'`{}/]+)",
    re.DOTALL,
)
_TEMPLATE: Final = re.compile(r"(?:[^`\\$]|\\.|\$(?!\{))*(`|\$\{)", re.DOTALL)
_PATTERN: Final = re.compile(r"/(?:[^/\\\n\[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/[a-z]*")
_LAST_WORD: Final = re.compile(r"[\w$]+\Z")
_SEEN: Final = re.compile(r"[^\n]")
# Words after which a value begins; after any other word a slash divides.
_BEFORE_VALUES: Final = frozenset(
    ("return", "typeof", "case", "in", "of", "delete", "void", "throw", "new", "else", "do", "yield", "await")
)


def blank_strings(text: str) -> str:
    """Return the code in `text`, everything else blanked; a ComponentError where a string has no end."""
    return _StringBlanker(text).code()


class _StringBlanker:
    """A text being read from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._parts: list[str] = []
        self._at = 0
        self._last = ""  # the latest code, without blanks at its end
        self._braces: list[bool] = []  # of each that is open: does it stand in a template?

    def code(self) -> str:
        while (token := _TOKEN.match(self._text, self._at)) is not None:
            kind, said = token.lastgroup, token[0]
            if kind == "comment":
                self._blank(token.end())
            elif kind == "string":
                self._blank_string(token.end())
            elif kind == "quote":
                raise ComponentError("a string has no end", found=self._line())
            elif kind == "slash":
                self._slash()
            elif kind == "tick" or (kind == "shut" and self._braces and self._braces.pop()):
                self._template()
            else:
                self._keep(said, kind == "open")
        return "".join(self._parts)

    def _keep(self, said: str, opens: bool) -> None:
        self._parts.append(said)
        self._at += len(said)
        self._last = said.rstrip() or self._last
        if opens:
            self._braces.append(False)

    def _blank(self, end: int) -> None:
        self._parts.append(_SEEN.sub(" ", self._text[self._at : end]))
        self._at = end

    def _blank_string(self, end: int) -> None:
        inside = _SEEN.sub(" ", self._text[self._at + 1 : end - 1])
        self._parts.append(f'"{inside}"')
        self._at, self._last = end, '"'

    def _slash(self) -> None:
        pattern = _PATTERN.match(self._text, self._at)
        if pattern is None or self._follows_value():
            self._keep("/", opens=False)
        else:
            self._blank(pattern.end())
            self._last = '"'

    def _follows_value(self) -> bool:
        word = _LAST_WORD.search(self._last)
        return self._last[-1:] in {")", "]", "}", '"'} if word is None else word[0] not in _BEFORE_VALUES

    def _template(self) -> None:
        """Blank a piece of a template, up to its end or to the next code in it; a brace or a tick stands before it."""
        piece = _TEMPLATE.match(self._text, self._at + 1)
        if piece is None:
            raise ComponentError("a template has no end", found=self._line())
        self._blank(piece.end())
        self._last = '"'
        if piece[1] == "${":
            self._braces.append(True)
            self._last = "("

    def _line(self) -> str:
        return f"line {self._text.count(chr(10), 0, self._at) + 1}"


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
class ModuleImport:
    """One name that a module takes from another."""

    module: str
    name: str
    local: str
    line: int


@dataclass(frozen=True, slots=True)
class JavaScriptModule:
    """A module as its file has it."""

    name: str
    """The file's name without `.js`."""
    imports: tuple[ModuleImport, ...]
    exports: tuple[str, ...]
    body: str
    """What follows the imports, without the word `export`."""


def bundle_modules(folder: Path | str, entry: str = ENTRY) -> str:
    """Return one script that does what the module `entry` does, with all that it imports from the same folder."""
    return "".join(map(_wrap_module, order_modules(folder, entry)))


def order_modules(folder: Path | str, entry: str = ENTRY) -> list[JavaScriptModule]:
    """Return the modules that `entry` needs, itself the last, each after those that it imports from."""
    return _ModuleOrder(Path(folder)).order(entry.removesuffix(".js"))


def parse_module(name: str, text: str) -> JavaScriptModule:
    """Return what is said in the file `name`.js; a ComponentError where it uses a form that is not allowed."""
    reading = _ModuleParser(name, text)
    imports = tuple(reading.imports())
    exports = tuple(reading.exports())
    return JavaScriptModule(
        name, imports, tuple(found for found, _ in exports), reading.body([at for _, at in exports])
    )


# ------------------------------------------------------------------------------------------------------------ order
class _ModuleOrder:
    """The modules of a folder, in the order in which they can run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._done: dict[str, JavaScriptModule] = {}
        self._way: list[str] = []

    def order(self, name: str) -> list[JavaScriptModule]:
        self._visit(name)
        return list(self._done.values())

    def _visit(self, name: str) -> JavaScriptModule:
        if name in self._done:
            return self._done[name]
        module = parse_module(name, self._read(name))
        self._way.append(name)
        for wanted in module.imports:
            self._check(name, wanted)
        self._way.pop()
        self._done[name] = module
        return module

    def _check(self, name: str, wanted: ModuleImport) -> None:
        if wanted.module in self._way:
            ring = " -> ".join([*self._way[self._way.index(wanted.module) :], wanted.module])
            raise _error_in(name, wanted.line, f"these modules import each other: {ring}")
        if wanted.module not in self._done and not self._path(wanted.module).is_file():
            raise _error_in(name, wanted.line, f"there is no module {wanted.module}.js")
        if wanted.name not in self._visit(wanted.module).exports:
            raise _error_in(name, wanted.line, f"{wanted.module}.js does not export {wanted.name}")

    def _read(self, name: str) -> str:
        try:
            return self._path(name).read_text("utf-8")
        except OSError as problem:
            raise ComponentError(f"the module {name}.js cannot be read: {problem}") from problem

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.js"


# ------------------------------------------------------------------------------------------------------------ one file
class _ModuleParser:
    """One file being read: first its imports, then its exports."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._text = text
        try:
            self._code = blank_strings(text)
        except ComponentError as problem:
            raise ComponentError(f"{name}.js, {problem.found}: {problem.message}") from problem
        self._head = 0  # where the imports end

    def imports(self) -> Iterator[ModuleImport]:
        """Yield the imports at the head."""
        while found := _IMPORT.match(self._code, self._blanks_end(self._head)):
            line = self._line(found.start())
            module = self._module(found.start(2), found.end(2), line)
            for each in filter(None, map(str.strip, found[1].split(","))):
                named = _IMPORTED.fullmatch(each)
                if named is None:
                    raise _error_in(self._name, line, f"this is not a name to import: {each}")
                yield ModuleImport(module, named[1], named[2] or named[1], line)
            self._head = found.end()

    def exports(self) -> Iterator[tuple[str, int]]:
        """Yield what is exported, each with the place of its word `export`; refuse every other form."""
        for found in _WORDS.finditer(self._code, self._head):
            if found[1] == "export":
                yield self._parse_export(found.start()), found.start()
            elif found[1] == "import":
                raise self._error_at(found.start(), 'imports stand at the head: import { a, b as c } from "./x.js";')
            elif self._is_outermost(found.start()):
                raise self._error_at(found.start(), "a module may not wait while it is loaded (await)")

    def body(self, exports: list[int]) -> str:
        """Return the text after the imports, with the word `export` blanked at these places."""
        text, width = self._text, len("export")
        for at in exports:
            text = f"{text[:at]}{' ' * width}{text[at + width :]}"
        return text[self._head :]

    def _parse_export(self, at: int) -> str:
        found = _EXPORT.match(self._code, at)
        if found is None or self._depth(at) > 0:
            raise self._error_at(at, "only `export function f`, `export class C` and `export const x = ...;` are read")
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
                raise self._error_at(place, "one `export const` declares one name")
            if depth == 0 and sign == ";":
                return
        raise self._error_at(at, "an `export const` ends with a semicolon")

    def _is_outermost(self, at: int) -> bool:
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
            raise _error_in(self._name, line, f'modules are imported from "./name.js", not from "{address}"')
        return found[1]

    def _blanks_end(self, at: int) -> int:
        found = _BLANKS.match(self._code, at)
        return at if found is None else found.end()

    def _error_at(self, at: int, why: str) -> ComponentError:
        return _error_in(self._name, self._line(at), why)

    def _line(self, at: int) -> int:
        return self._code.count("\n", 0, at) + 1


def _error_in(name: str, line: int, why: str) -> ComponentError:
    return ComponentError(f"{name}.js, line {line}: {why}")


# ------------------------------------------------------------------------------------------------------------ the script
def _wrap_module(module: JavaScriptModule) -> str:
    """Return a module as a function that is called at once."""
    taken = "".join(f"{line}\n" for line in _write_imports(module))
    given = ", ".join(module.exports)
    return f"const __{module.name} = (() => {{\n{taken}{module.body.strip()}\nreturn {{ {given} }};\n}})();\n"


def _write_imports(module: JavaScriptModule) -> Iterator[str]:
    """Yield the lines that give a module what it imports."""
    names: dict[str, list[str]] = {}
    for each in module.imports:
        own = each.name if each.name == each.local else f"{each.name}: {each.local}"
        names.setdefault(each.module, []).append(own)
    for module_name, own_names in names.items():
        yield f"const {{ {', '.join(own_names)} }} = __{module_name};"
