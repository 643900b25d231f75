"""Which installed distributions an environment needs, and which files they are made of.

Rule 1: nothing is imported: what needs what is read from metadata and from source, so that an image can be made of code
    that nobody trusts.
Rule 2: a requirement goes along if it is installed and no extra guards it; other markers need no judging, because what
    they exclude is not installed.
"""

import ast
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution, packages_distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from proctor.errors import ValidationError

NAME: Final = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?([^;]*)(?:;(.*))?")
EXTRA: Final = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
LEFT_OUT: Final = frozenset({"__pycache__"})
ONLY_SERVERS: Final = frozenset(
    ["httptools", "mcp", "prometheus-client", "rich", "starlette", "typer", "uvicorn", "uvloop", "websockets"]
)
"""What Proctor requires for servers, clients and commands; a worker imports none of it."""
BLOCKS: Final = (ast.If, ast.Try, ast.TryStar, ast.With, ast.ClassDef)
"""Statements whose bodies run when a module is imported."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement as metadata writes it: `guards` are the extras that its marker names."""

    name: str
    extras: frozenset[str] = frozenset()
    guards: frozenset[str] = frozenset()
    marked: bool = False

    @classmethod
    def parse(cls, text: str) -> "Requirement":
        """Return what a line of metadata, or a user, asks for."""
        found = NAME.fullmatch(text)
        if found is None:
            raise ValidationError("this names no distribution", found=text, expected="a name, such as scipy")
        name, extras, _, marker = found.groups()
        wanted = frozenset(normalize_name(extra) for extra in (extras or "").split(",") if extra.strip())
        return cls(
            normalize_name(name), wanted, frozenset(map(normalize_name, EXTRA.findall(marker or ""))), bool(marker)
        )

    def applies(self, extras: frozenset[str]) -> bool:
        """Return whether a distribution that is wanted with these extras asks for it."""
        return not self.guards or bool(self.guards & extras)


@dataclass(slots=True)
class Dependencies:
    """Everything that is needed: distributions by name, and modules that belong to none."""

    distributions: dict[str, Distribution] = field(default_factory=dict)
    loose: dict[str, Path] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    """What is required without condition and not installed."""


def normalize_name(name: str) -> str:
    """Return a distribution's name as all spellings of it compare."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def resolve_requirements(
    wanted: Iterable[Requirement], find: Callable[[str], Distribution] = distribution
) -> tuple[dict[str, Distribution], list[str]]:
    """Return the distributions that are wanted with all that they require, and the names that are missing."""
    found: dict[str, Distribution] = {}
    missing: set[str] = set()
    seen: set[tuple[str, frozenset[str]]] = set()
    ahead = list(wanted)
    while ahead:
        each = ahead.pop()
        if (each.name, each.extras) in seen:
            continue
        seen.add((each.name, each.extras))
        try:
            found[each.name] = here = find(each.name)
        except PackageNotFoundError:
            missing |= set() if each.marked else {each.name}
            continue
        ahead += [further for further in _find_requirements(here) if further.applies(each.extras)]
    return found, sorted(missing)


def _find_requirements(by: Distribution) -> list[Requirement]:
    required = [Requirement.parse(text) for text in by.requires or ()]
    ours = normalize_name(by.metadata["Name"]) == "proctor"
    return [each for each in required if each.name not in ONLY_SERVERS] if ours else required


def find_dependencies(module: str, beside: Iterable[str] = ()) -> Dependencies:
    """Return what a module and Proctor need; `beside` names distributions that no metadata tells of."""
    if not _find_owners(module.partition(".")[0]) and find_module_path(module.partition(".")[0]) is None:
        raise ValidationError("cannot find the target's module", found=module, expected="one that can be imported")
    needs = Dependencies()
    asked = [Requirement.parse(text) for text in beside]
    wanted = [Requirement("proctor"), *asked]
    ahead, seen = [module], set[str]()
    while ahead:
        name = ahead.pop()
        top = name.partition(".")[0]
        if name in seen or top in sys.stdlib_module_names:
            continue
        seen.add(name)
        owners = _find_owners(top)
        wanted += [Requirement(normalize_name(owner)) for owner in owners]
        if owners:
            # What a distribution needs it says itself, but for what one of its modules asks for beyond that.
            ahead += _find_imports(name, deep=False) if name == module else []
        elif (place := find_module_path(top)) is not None:
            needs.loose[top] = place
            ahead += _find_imports(name, deep=True)
    needs.distributions, needs.missing = resolve_requirements(wanted)
    absent = [each.name for each in asked if each.name not in needs.distributions]
    if absent:
        raise ValidationError("this distribution is not installed", found=absent[0], expected="the name of one that is")
    return needs


def find_module_path(top: str) -> Path | None:
    """Return the file or the folder of a top-level module, without importing it; None if it has none."""
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    folders = list(spec.submodule_search_locations or ())
    if folders:
        return Path(folders[0])
    return Path(spec.origin) if spec.has_location and spec.origin else None


def find_source(module: str) -> Path | None:
    """Return the file with a module's source, found by its path alone; None if there is none."""
    top, *below = module.split(".")
    place = find_module_path(top)
    if place is None or place.is_file():
        return place
    path = place.joinpath(*below)
    candidates = (path / "__init__.py", path.with_name(f"{path.name}.py"))
    return next((each for each in candidates if each.is_file()), None)


def parse_imports(text: bytes, package: str, *, deep: bool) -> set[str]:
    """Return the modules that a source in `package` may import; if not `deep`, only at once when it is imported itself.

    Of `from a import b` both `a` and `a.b` are named, since `b` can be a module.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return set()
    return {
        name
        for node in (ast.walk(tree) if deep else _walk_import_time(tree))
        for name in _find_imported_names(node, package)
    }


def find_distribution_files(found: Distribution) -> Iterator[tuple[str, Path]]:
    """Yield a distribution's files with their places below site-packages; what lies outside of it stays behind."""
    editable = _is_editable(found)
    for file in found.files or ():
        path = Path(str(file.locate()))
        outside = file.is_absolute() or ".." in file.parts or LEFT_OUT.intersection(file.parts)
        # The path file of an editable installation names a folder of this machine; its module comes next.
        if not (outside or (editable and path.suffix == ".pth")) and path.is_file():
            yield file.as_posix(), path
    if editable or not found.files:
        yield from _find_top_level_files(found)


def find_module_files(place: Path) -> Iterator[tuple[str, Path]]:
    """Yield a module's files with their places relative to the folder that it is in; hidden ones stay behind."""
    if place.is_file():
        yield place.name, place
        return
    for parts, path in walk_files(place, lambda name: name in LEFT_OUT or name.startswith(".")):
        if not path.name.startswith("."):
            yield "/".join((place.name, *parts)), path


def walk_files(
    folder: Path, leaves_out: Callable[[str], bool] = lambda name: False
) -> Iterator[tuple[tuple[str, ...], Path]]:
    """Yield the files in a folder and below, with the parts of their paths; `leaves_out` judges folders by name."""
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not leaves_out(name))
        for path in (Path(root, name) for name in sorted(names)):
            if path.is_file():
                yield path.relative_to(folder).parts, path


def _find_top_level_files(found: Distribution) -> Iterator[tuple[str, Path]]:
    for top in _find_top_level_names(found):
        place = find_module_path(top)
        if place is not None:
            yield from find_module_files(place)


def _find_top_level_names(found: Distribution) -> list[str]:
    told = (found.read_text("top_level.txt") or "").split()
    return told or [normalize_name(found.metadata["Name"]).replace("-", "_")]


def _is_editable(found: Distribution) -> bool:
    told = json.loads(found.read_text("direct_url.json") or "{}")
    return bool(told.get("dir_info", {}).get("editable"))


def _find_owners(top: str) -> list[str]:
    """Return the distributions that bring a module; an editable one is known by its name only."""
    owners = _find_all_owners().get(top)
    if owners is not None:
        return owners
    try:
        return [distribution(top).metadata["Name"]]
    except (PackageNotFoundError, ValueError):
        return []


@cache
def _find_all_owners() -> dict[str, list[str]]:
    return {name: sorted(set(owners)) for name, owners in packages_distributions().items()}


def _find_imports(module: str, *, deep: bool) -> list[str]:
    """Return what a module imports; the packages that it is in count too, because they are imported first."""
    path = find_source(module)
    names: set[str] = set()
    if path is not None and path.suffix == ".py":
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        names = parse_imports(path.read_bytes(), package, deep=deep)
    above = module.rpartition(".")[0]
    return sorted(names | {above} - {""})


def _find_imported_names(node: ast.AST, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        way = package.split(".")[: max(len(package.split(".")) - node.level + 1, 0)] if node.level else []
        origin = ".".join([*way, *([node.module] if node.module else [])])
        if origin:
            yield origin
            yield from (f"{origin}.{alias.name}" for alias in node.names if alias.name != "*")


def _walk_import_time(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        yield child
        if isinstance(child, (*BLOCKS, ast.ExceptHandler)):
            yield from _walk_import_time(child)
