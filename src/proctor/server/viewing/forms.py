"""What a page asks for and is told, besides the viewer's own documents.

Rule: a request has exactly the fields that are described here, each within its bounds; anything else is refused.
"""

from typing import Annotated, Any, Final, TypeAlias

from msgspec import Meta, Struct

from proctor.viewer.documents import MOST_ACTIONS, Line

MOST_STEPS: Final = 20_000
Chain: TypeAlias = Annotated[str, Meta(min_length=1, max_length=300)]
Number: TypeAlias = Annotated[int, Meta(ge=0, le=2**53 - 1)]


class Code(Struct, forbid_unknown_fields=True):
    """The one-time code that an address held."""

    code: Annotated[str, Meta(min_length=1, max_length=256)]


class Visit(Struct):
    """What a browser that was let in may know of where it is."""

    csrf: str | None
    """Goes with every post, in the header X-Proctor-CSRF. Told once, when the code is traded: a cookie, which other
    programs on this host may come to see, does not bring it back."""
    server: str
    """The version."""
    environment: str | None
    can_act: bool
    """Whether there is an operator's side."""
    can_fork: bool
    live: bool
    """Whether there may be more to come."""


class Left(Struct):
    """A visit has ended."""

    left: bool = True


class Lines(Struct):
    """All episodes, the newest first."""

    lines: list[Line]
    remarks: list[str] = []
    """What the list leaves out, in sentences."""


class NoQuery(Struct, forbid_unknown_fields=True):
    """Nothing is asked for."""


class ChainQuery(Struct, forbid_unknown_fields=True):
    """An episode."""

    chain: Chain


class RowQuery(Struct, forbid_unknown_fields=True):
    """A row of an episode."""

    chain: Chain
    number: Number


class SliceQuery(Struct, forbid_unknown_fields=True):
    """What comes after a row; `thin` covers everything up to the end with at most `most` steps."""

    chain: Chain
    after: Number = 0
    most: Annotated[int, Meta(ge=1, le=MOST_STEPS)] = 5000
    thin: bool = False


class PairQuery(Struct, forbid_unknown_fields=True):
    """Two episodes."""

    one: Chain
    other: Chain


class ForkOrder(Struct, forbid_unknown_fields=True):
    """Drive an episode again up to a step, and from there with other actions."""

    chain: Chain
    step: Number
    actions: Annotated[list[Any], Meta(max_length=MOST_ACTIONS)]
    """Each as the environment takes it."""
