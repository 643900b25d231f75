"""A user's own modules, imported by name.

Rule 1: the current directory can be imported from, as with `python -m`, where a user names a module; never for what is installed:
    a file that lies there by chance, or beside a record of somebody else, is nothing that was asked for.
Rule 2: whatever a module raises while it is imported, an exit too, becomes a ValidationError that names the module.
"""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from proctor.errors import ValidationError


def search_here() -> None:
    """Let modules be found in the current directory."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def imported(module: str, *, installed: bool = False) -> ModuleType:
    """Return the module, one that is `installed` or also one that lies here; a ValidationError says why it cannot be imported."""
    if not installed:
        search_here()
    try:
        return import_module(module)
    # A user's module may raise anything, and a script may end with an exit; here it becomes a message.
    except (Exception, SystemExit) as problem:
        reason = f"{type(problem).__name__}: {problem}"
        raise ValidationError(f"cannot import {module!r}: {reason}", expected="a module that imports") from problem


def member_of(module: str, member: str, *, installed: bool = False) -> Any:
    """Return what `module:member` names, a class or a function; dots in `member` go down."""
    found: Any = imported(module, installed=installed)
    for part in member.split("."):
        if not hasattr(found, part):
            raise ValidationError(f"{module!r} has no such member", found=member, expected="a class or a function")
        found = getattr(found, part)
    if not callable(found):
        raise ValidationError(f"{module}:{member} cannot be called", found=found, expected="a class or a function")
    return found
