"""A scene's parts as typed values, for every environment that draws.

Rule 1: a scene comes from outside (a file, a socket): whatever does not fit is a RenderingError, never a strange picture.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from proctor.errors import RenderingError

_Part = TypeVar("_Part")


def read_part(scene: Mapping[str, Any], part: str, kind: type[_Part], *, owner: str) -> _Part:
    """Return `scene[part]` as a `kind`; `owner` says in the RenderingError whose scene was expected."""
    try:
        return msgspec.convert(scene[part], kind)
    except (KeyError, TypeError, msgspec.ValidationError) as problem:
        raise RenderingError(f"no {owner} scene: {problem}", found=scene, expected=f"a scene with {part!r}") from None
