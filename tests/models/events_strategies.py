"""Random events of every kind, for the tests of whoever keeps or reads them."""

import json
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from msgspec import Meta, Raw

from proctor.models.events import Event

KINDS: tuple[type[Event], ...] = get_args(Event)
"""Every event, as the union has them."""

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
finite = st.floats(allow_nan=False, allow_infinity=False)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | finite | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
raws = st.builds(
    lambda value, indent, ascii_only: Raw(json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()),
    values,
    st.none() | st.just(1),
    st.booleans(),
)
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: texts,
    int: st.integers(0, 2**31),
    float: finite,
    bool: st.booleans(),
    Raw: raws,
    Any: values,
    type(None): st.none(),
}


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Return what a field of this type may hold."""
    kind, parts = get_origin(hint), get_args(hint)
    if kind is Annotated:
        bounds = next(each for each in parts[1:] if isinstance(each, Meta))
        return st.integers(int(bounds.ge or 0), 2**40)
    if kind is Literal:
        return st.sampled_from(parts)
    if kind in (Union, UnionType):
        return st.one_of([values_of(part) for part in parts])
    if kind is list:
        return st.lists(values_of(parts[0]), max_size=2)
    if kind is dict:
        return st.dictionaries(texts, values_of(parts[1]), max_size=2)
    return PLAIN[hint]


def events_of(kind: type[Event]) -> st.SearchStrategy[Event]:
    """Return events of one kind, with every field drawn."""
    return st.builds(
        kind, **{name: values_of(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}
    )


events: st.SearchStrategy[Event] = st.one_of([events_of(kind) for kind in KINDS])
