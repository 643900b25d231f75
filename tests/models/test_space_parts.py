"""Spaces made of spaces: what is wrong in a part is said with its place."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Graph, GraphInstance, OneOf, Sequence, Text, Tuple
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import ComponentError, ValidationError
from proctor.models.spaces import codec_of, error_beneath

UNIT = Box(0, 1, (2,), np.float32)
GRAPH = Graph(Box(0, 1, (1,)), Discrete(3))
NODES = [[0.0], [1.0]]


@given(path=st.lists(st.integers(0, 9) | st.text(max_size=3), min_size=1, max_size=5))
def test_the_place_of_an_error_reads_from_the_outside_in(path: list[int | str]) -> None:
    problem = ValidationError("out of bounds", found=1, expected="2")
    for part in reversed(path):
        problem = error_beneath(problem, part)

    assert problem.message == "at " + "".join(f"[{part!r}]" for part in path) + ": out of bounds"
    assert (problem.found, problem.expected) == (1, "2")


@pytest.mark.parametrize(
    ("space", "value", "where"),
    [
        (Dict(a=Dict(b=UNIT)), {"a": {"b": [0, 2]}}, "at ['a']['b']: out of bounds"),
        (Dict(a=Tuple((UNIT, Discrete(2)))), {"a": [[0, 0], 2]}, "at ['a'][1]: not a member"),
        (Sequence(Text(3)), ["a", "b", "-"], "at [2]: not a member"),
        (OneOf((Discrete(2), Text(3))), [1, 5], "at [1]: not text"),
        (GRAPH, {"nodes": [[2]], "edges": None, "edge_links": None}, "at ['nodes']: out of bounds"),
        (GRAPH, {"nodes": NODES, "edges": [3], "edge_links": [[0, 1]]}, "at ['edges']: out of bounds"),
        (GRAPH, {"nodes": NODES, "edges": [0], "edge_links": [[0, -1]]}, "at ['edge_links']: out of bounds"),
        (GRAPH, {"nodes": NODES, "edges": [0], "edge_links": [[0, 2]]}, "at ['edge_links']: links do not fit"),
        (GRAPH, {"nodes": NODES, "edges": [0], "edge_links": []}, "at ['edge_links']: links do not fit"),
        (GRAPH, {"nodes": NODES, "edges": None, "edge_links": []}, "at ['edges']: edges do not fit"),
        (GRAPH, {"nodes": NODES, "edges": [], "edge_links": None}, "at ['edge_links']: not a list"),
        (Graph(UNIT, None), {"nodes": [], "edges": [], "edge_links": []}, "at ['edges']: edges do not fit"),
    ],
)
def test_an_error_says_where_it_is(space: gym.Space[Any], value: Any, where: str) -> None:
    with pytest.raises(ValidationError) as caught:
        codec_of(space).decode(value)

    assert caught.value.message.startswith(where)


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (Dict(a=Discrete(2)), {}),
        (Dict(a=Discrete(2)), {"a": 0, "b": 0}),
        (Dict(a=Discrete(2)), [0]),
        (Tuple((Discrete(2),)), [0, 0]),
        (Tuple((Discrete(2),)), {"0": 0}),
        (Sequence(Discrete(2)), 0),
        (Sequence(Discrete(2), stack=True), 0),
        (OneOf((Discrete(2),)), [1, 0]),
        (OneOf((Discrete(2),)), [-1, 0]),
        (OneOf((Discrete(2),)), [False, 0]),
        (OneOf((Discrete(2),)), [0]),
        (OneOf((Discrete(2),)), 0),
        (GRAPH, {"nodes": NODES}),
        (GRAPH, NODES),
    ],
)
def test_what_has_not_the_form_of_its_space_is_refused(space: gym.Space[Any], value: Any) -> None:
    with pytest.raises(ValidationError):
        codec_of(space).decode(value)


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (Dict(a=Discrete(2)), {"b": 0}),
        (Dict(a=Discrete(2)), [0]),
        (Tuple((Discrete(2),)), (0, 0)),
        (Tuple((Discrete(2),)), 0),
        (Sequence(Discrete(2)), 0),
        (OneOf((Discrete(2),)), (1, 0)),
        (OneOf((Discrete(2),)), (0.0, 0)),
        (OneOf((Discrete(2),)), (0,)),
        (OneOf((Discrete(2),)), 0),
        (GRAPH, (np.zeros((1, 1)), None, None)),
        (GRAPH, GraphInstance(np.zeros((1, 1)), np.zeros(0, int), None)),
        (Graph(UNIT, None), GraphInstance(np.zeros((1, 2)), np.zeros(1), np.zeros((1, 2), int))),
    ],
)
def test_an_environment_that_gives_another_form_is_at_fault(space: gym.Space[Any], value: Any) -> None:
    with pytest.raises(ComponentError):
        codec_of(space).encode(value)


def test_a_key_that_is_no_string_cannot_cross_the_wire() -> None:
    numbered: Any = {1: Discrete(2)}

    with pytest.raises(ComponentError, match="key"):
        codec_of(Dict(numbered))


def test_stacked_parts_have_one_length() -> None:
    codec = codec_of(Sequence(Dict(a=Discrete(2), b=Tuple((UNIT, Text(2)))), stack=True))

    assert codec.decode({"a": [1], "b": [[[0, 0]], ["x"]]})["b"][1] == ("x",)
    with pytest.raises(ValidationError, match="differ in length"):
        codec.decode({"a": [1, 1], "b": [[[0, 0]], ["x"]]})


def test_an_environment_may_give_links_of_another_integer_dtype() -> None:
    graph = GraphInstance(np.zeros((2, 1), np.float32), np.array([1]), np.array([[0, 1]]))

    read = codec_of(GRAPH).decode(codec_of(GRAPH).encode(graph))

    assert read.edge_links.dtype == np.int32
    assert read.edge_links.tolist() == [[0, 1]]


def test_the_keys_of_a_dict_come_in_the_order_of_the_space() -> None:
    codec = codec_of(Dict({"b": Discrete(2), "a": Discrete(2)}, sort_keys=False))

    assert list(codec.decode({"a": 0, "b": 1})) == ["b", "a"]
    assert list(codec.encode({"a": 0, "b": 1})) == ["b", "a"]


def test_a_tuple_without_places_is_an_empty_array() -> None:
    codec = codec_of(Tuple(()))

    assert codec.decode([]) == ()
    assert "prefixItems" not in codec.schema()
