"""A dict whose values are made when somebody first looks at them, for what most callers of a step never read.

Rule 1: to whoever looks, it is a dict like any other: its keys are there from the start, a value is made when it is
    asked for, and whatever shows all values (a loop over items, a copy, a comparison) makes all of them. Only code in C
    that reads a dict's storage directly, such as msgspec's encoders, needs `dict(info)`.
Rule 2: what values are made from must not change meanwhile: hand over fresh arrays or copies.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final


class _Pending:
    """Stands where a value has not been made yet."""


PENDING: Final = _Pending()

LOOKS: Final = (
    "__eq__",
    "__ior__",
    "__iter__",
    "__ne__",
    "__or__",
    "__repr__",
    "__ror__",
    "copy",
    "items",
    "pop",
    "popitem",
    "setdefault",
    "values",
)
"""The methods of a dict that show more than one value, or hand one out in another way than by its key.

A loop over the keys is one of them, because code in C copies the values of a dict that loops in the usual way.
"""


class Deferred(dict[str, Any]):
    """The keys of `template`, whose values are `PENDING`, each made by `make(key)` at the first look."""

    __slots__ = ("_make",)
    __hash__ = None  # like any dict

    def __init__(self, template: Mapping[str, Any], make: Callable[[str], Any]) -> None:
        super().__init__(template)
        self._make = make

    def __getitem__(self, key: str) -> Any:
        value = dict.__getitem__(self, key)
        if value is PENDING:
            value = self._make(key)
            dict.__setitem__(self, key, value)
        return value

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of `key`, or the default if there is no such key."""
        return self[key] if key in self else default  # noqa: SIM401  # this is what get() is

    def _made(self) -> None:
        for key in dict.keys(self):
            self[key]

    def __reduce__(self) -> tuple[Any, ...]:
        return (dict, (dict(self),))


def _looking(name: str) -> Callable[..., Any]:
    plain = getattr(dict, name)

    def look(self: Deferred, *arguments: Any, **named: Any) -> Any:
        self._made()
        return plain(self, *arguments, **named)

    look.__name__ = name
    return look


for _name in LOOKS:
    setattr(Deferred, _name, _looking(_name))
