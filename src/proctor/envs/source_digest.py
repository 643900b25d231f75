"""The digest of an environment's source, by which a replay knows that the code has changed since.

Rule 1: what counts is the package that defines the environment's class: every *.py file of its highest regular package and
    of the regular packages in it, by its path in there and its content. A module without a package is its own file.
Rule 2: a folder that is no regular package is never walked: it may be a home folder or the root, hold somebody else's
    code, or be put beside the modules by a wheel. So a wheel and the checkout that it was built from have the same digest.
Rule 3: a digest is a note, never a proof: what a package imports is not in it.
"""

import hashlib
import os
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from proctor.contracts.environment import Environment
from proctor.envs.gym_adapter import AdaptedEnvironment

NO_SOURCE: Final = ""
MOST_FILES: Final = 20_000
"""A package with more is no environment's: nobody waits for its digest."""
PACKAGE_FILE: Final = "__init__.py"


def digest_environment(environment: Environment[Any, Any, Any]) -> str:
    """Return the SHA-256 of the environment's source in hexadecimal digits; empty if there is none that can be read."""
    if isinstance(environment, AdaptedEnvironment):
        return digest_class(type(environment._env.unwrapped))
    return digest_class(type(environment))


def digest_class(kind: type) -> str:
    """Return the digest of the package, or the file, that defines the class."""
    file = _find_file(kind.__module__)
    if file is None:
        return NO_SOURCE
    package = _find_package(file, kind.__module__)
    return _digest(file) if package is None else _digest(package)


def _find_file(module: str) -> Path | None:
    """Return where a module's source lies."""
    found = getattr(sys.modules.get(module), "__file__", None)
    path = None if found is None else Path(found)
    return path if path is not None and path.suffix == ".py" and path.is_file() else None


def _find_package(file: Path, module: str) -> Path | None:
    """Return the folder of the highest package around a module's file that is a regular one; None if there is none."""
    depth = module.count(".") + (file.name == PACKAGE_FILE)
    above = [parent for parent, _ in zip(file.parents, range(depth), strict=False)]
    regular: Path | None = None
    for folder in above:
        if not (folder / PACKAGE_FILE).is_file():
            break
        regular = folder
    return regular


@lru_cache(maxsize=256)
def _digest(place: Path) -> str:
    """Return the digest of a file, or of all sources in a package's folder, as they were when first asked for."""
    digest = hashlib.sha256()
    try:
        named = {place.name: place} if place.is_file() else _files(place)
        for name in sorted(named):
            content = named[name].read_bytes()
            digest.update(f"{name}\0{len(content)}\0".encode())
            digest.update(content)
    # A name that is no UTF-8, or a file that has gone or may not be read.
    except (OSError, UnicodeEncodeError):
        return NO_SOURCE
    return digest.hexdigest() if named else NO_SOURCE


def _files(package: Path) -> dict[str, Path]:
    """Return the sources of a package by their paths in it; none if there are too many."""
    found: dict[str, Path] = {}
    for folder, folders, names in os.walk(package):
        folders[:] = [name for name in folders if name.isidentifier() and Path(folder, name, PACKAGE_FILE).is_file()]
        paths = (Path(folder, name) for name in names if name.endswith(".py"))
        found.update((path.relative_to(package).as_posix(), path) for path in paths)
        if len(found) > MOST_FILES:
            return {}
    return found
