"""A deferred dict makes each value once, when somebody looks, and is otherwise like any other."""

import copy
import json
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.envs.popper.vector.batched_env import EAGER_METHODS, PENDING, LazyDict

CONTENT = {"a": 1, "b": 2}


def deferred(content: Mapping[str, Any]) -> LazyDict:
    return LazyDict(dict.fromkeys(content, PENDING), dict(content).__getitem__)


GLANCES: dict[str, Callable[[Any], Any]] = {
    "a key": lambda it: it["a"],
    "get": lambda it: it.get("b"),
    "in": lambda it: "a" in it,
    "length": len,
    "truth": bool,
    "loop": list,
    "reversed": lambda it: list(reversed(it)),
    "items": lambda it: list(it.items()),
    "values": lambda it: list(it.values()),
    "keys": lambda it: list(it.keys()),
    "equality": lambda it: it == CONTENT,
    "equality from the left": lambda it: {"a": 1, "b": 2} == it,  # noqa: SIM300  # the order is the point
    "inequality": lambda it: it != {},
    "text": repr,
    "a dict of it": dict,
    "unpacking": lambda it: {**it},
    "keywords": lambda it: dict(**it),
    "or": lambda it: it | {"c": 3},
    "or from the left": lambda it: {"c": 3} | it,
    "copy": lambda it: it.copy(),
    "copy.copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda it: pickle.loads(pickle.dumps(it)),
    "json": json.dumps,
    "update of another": lambda it: (other := {}, other.update(it))[0],
    "pop": lambda it: (it.pop("a"), dict(it)),
    "popitem": lambda it: (it.popitem(), dict(it)),
    "setdefault": lambda it: (it.setdefault("a", 7), dict(it)),
    "set": lambda it: (it.__setitem__("a", 5), dict(it))[1],
    "delete": lambda it: (it.__delitem__("a"), dict(it))[1],
    "update": lambda it: (it.update(a=9), dict(it))[1],
    "clear": lambda it: (it.clear(), dict(it))[1],
    "or in place": lambda it: dict(it.__ior__({"d": 1})),
}


@pytest.mark.parametrize("glance", GLANCES.values(), ids=GLANCES)
def test_every_look_sees_what_a_plain_dict_shows(glance: Callable[[Any], Any]) -> None:
    assert glance(deferred(CONTENT)) == glance(dict(CONTENT))


def test_a_value_is_made_once_and_only_if_it_is_asked_for() -> None:
    asked: list[str] = []

    def make(key: str) -> int:
        asked.append(key)
        return CONTENT[key]

    info = LazyDict(dict.fromkeys(CONTENT, PENDING), make)
    seen = ["a" in info, len(info), bool(info), info["a"], info["a"], info.get("a"), info.get("z", 5)]

    assert seen == [True, 2, True, 1, 1, 1, 5]
    assert asked == ["a"]


def test_what_is_set_is_never_made() -> None:
    info = deferred({"a": 1})
    info["a"], info["c"] = 8, 9

    assert info == {"a": 8, "c": 9}


def test_a_missing_key_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        deferred(CONTENT)["z"]


def test_a_copy_is_a_plain_dict() -> None:
    info = deferred(CONTENT)

    assert {type(copy.deepcopy(info)), type(pickle.loads(pickle.dumps(info))), type(info.copy())} == {dict}
    assert isinstance(info, dict)


def test_no_method_of_a_dict_is_forgotten() -> None:
    shows_no_value = {
        "__contains__",
        "__delitem__",
        "__len__",
        "__reversed__",
        "__setitem__",
        "clear",
        "keys",
        "update",
    }
    own = {"__getitem__", "get", "__init__", "__hash__"}
    of_every_class = {"__class_getitem__", "__getattribute__", "__new__", "__sizeof__", "fromkeys"}
    refused_for_dicts = {"__ge__", "__gt__", "__le__", "__lt__"}
    all_there_are = {name for name in vars(dict) if callable(getattr(dict, name))}

    assert all_there_are - shows_no_value - own - of_every_class - refused_for_dicts == set(EAGER_METHODS)


@given(st.dictionaries(st.text(), st.integers()))
def test_any_content_comes_through(content: dict[str, int]) -> None:
    assert deferred(content) == content
    assert dict(deferred(content)) == content
