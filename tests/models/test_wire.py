"""Wire models are frozen, closed and sayable in JSON; an observation's own fields travel apart from the rest."""

import copy
import json
import math
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, JsonValue
from pydantic_core import CoreSchema, core_schema

from proctor.errors import ComponentError
from proctor.models.arrays import pack_array
from proctor.models.wire import (
    MOST_TYPED_BYTES,
    OUTSIDE,
    Action,
    Encoding,
    Observation,
    Packable,
    State,
    WireModel,
    assemble_model,
    check_wire_type,
)

MODES: tuple[Literal["validation"], Literal["serialization"]] = ("validation", "serialization")


class Push(Action):
    force: float


class Seen(Observation):
    angle: float
    label: Literal["left", "right"] = "left"


json_objects = st.dictionaries(
    st.text(max_size=3),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**53), 2**53)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=5,
    ),
    max_size=3,
)


@given(
    angle=st.floats(allow_nan=False),
    reward=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    flags=st.tuples(st.booleans(), st.booleans()),
    metadata=json_objects,
)
def test_an_observation_is_the_same_after_a_journey(
    angle: float, reward: float | None, flags: tuple[bool, bool], metadata: dict[str, JsonValue]
) -> None:
    seen = Seen(angle=angle, reward=reward, terminated=flags[0], truncated=flags[1], metadata=metadata)

    inside = json.loads(seen.inside())
    outside = json.loads(seen.model_dump_json(include=set(OUTSIDE)))

    assert Seen.model_validate_json(seen.model_dump_json()) == seen
    assert inside.keys() == {"angle", "label"}
    assert outside.keys() == OUTSIDE
    assert seen.done == any(flags)


@pytest.mark.parametrize(
    ("number", "text"), [(math.inf, b'"Infinity"'), (-math.inf, b'"-Infinity"'), (math.nan, b'"NaN"')]
)
def test_a_float_that_json_lacks_is_a_string_and_is_read_back(number: float, text: bytes) -> None:
    written = Seen(angle=number).inside()

    assert text in written
    assert str(Seen.model_validate_json(written).angle) == str(number)


def test_an_encoding_changes_nothing_where_there_are_no_arrays() -> None:
    seen = Seen(angle=0.5)

    assert seen.inside(Encoding(packed=True, compress=True)) == seen.inside()


def test_a_wire_model_cannot_be_changed() -> None:
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        Push(force=1.0).force = 2.0  # type: ignore[misc]  # mypy knows it, too


@pytest.mark.parametrize("text", ['{"force": 1, "more": 2}', "{}", "[]", "null", '{"force": "x"}'])
def test_json_that_is_not_the_model_is_refused(text: str) -> None:
    with pytest.raises(pydantic.ValidationError):
        Push.model_validate_json(text)


def test_a_state_counts_from_zero() -> None:
    assert State() == State(episode_id=None, step_count=0)
    with pytest.raises(pydantic.ValidationError):
        State(step_count=-1)


class Opaque:
    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: pydantic.GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(str)


TAKES_ANYTHING = Annotated[int, pydantic.PlainValidator(str)]
UNSPEAKABLE = [Any, object, bytes, dict[str, bytes], int | bytes, list, dict, tuple, type, Callable[[], int], list[Any]]


@pytest.mark.parametrize("kind", [*UNSPEAKABLE, TAKES_ANYTHING, Opaque], ids=str)
def test_a_field_that_json_cannot_say_is_refused_with_its_class(kind: Any) -> None:
    with pytest.raises(ComponentError, match="cannot be said in JSON"):
        pydantic.create_model("Odd", __base__=Observation, value=(kind, ...))


def test_a_type_that_pydantic_does_not_know_is_refused_with_its_class() -> None:
    class Unknown:
        pass

    with pytest.raises(pydantic.errors.PydanticSchemaGenerationError):
        pydantic.create_model("Odd", __base__=Action, value=(Unknown, ...))


def test_an_arbitrary_type_is_refused_even_if_the_class_allows_it() -> None:
    class Unknown:
        pass

    class Loose(WireModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)

    with pytest.raises(ComponentError, match="cannot be said in JSON"):
        pydantic.create_model("Odd", __base__=Loose, value=(Unknown, ...))


@pytest.mark.parametrize("kind", [JsonValue, list[JsonValue], dict[str, float], Path, tuple[int, ...], Seen, set[int]])
def test_a_field_that_json_can_say_is_taken(kind: Any) -> None:
    model = pydantic.create_model("Fine", __base__=Observation, value=(kind, ...))

    check_wire_type(model)


def test_a_field_may_be_called_type() -> None:
    class Typed(Action):
        type: str | None = None

    assert Typed.model_validate_json('{"type": "any"}').type == "any"


@pytest.mark.parametrize("config", [ConfigDict(extra="ignore"), ConfigDict(extra="allow"), ConfigDict(frozen=False)])
def test_a_class_cannot_relax_the_rules(config: ConfigDict) -> None:
    with pytest.raises(ComponentError, match="rules"):
        type("Loose", (Action,), {"model_config": config})


def test_a_model_that_is_no_wire_model_is_judged_alike() -> None:
    class Plain(BaseModel):
        value: int

    with pytest.raises(ComponentError, match="rules"):
        check_wire_type(Plain)


def test_a_name_that_is_not_known_yet_is_judged_when_the_type_is_checked() -> None:
    later: Any = ("NotYet", ...)
    model = pydantic.create_model("Later", __base__=Observation, part=later)

    with pytest.raises(ComponentError, match="NotYet"):
        check_wire_type(model)


def test_an_assembled_model_is_like_one_that_was_validated() -> None:
    fields = {"reward": 1.0, "terminated": False, "truncated": True, "metadata": {}, "angle": 0.5, "label": "left"}

    made = assemble_model(Seen, dict(fields))

    assert made == Seen(**fields)
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == made.model_copy() == made
    assert made.inside() == Seen(**fields).inside()
    assert repr(made) == repr(Seen(**fields))


class Steer(Action):
    pair: Annotated[tuple[float, float], Packable()]


@given(pair=st.tuples(st.floats(allow_nan=False), st.floats(allow_nan=False)))
def test_a_packable_field_takes_lists_and_packed_arrays_and_writes_lists(pair: tuple[float, float]) -> None:
    steer = Steer(pair=pair)

    assert Steer.model_validate({"pair": pack_array(np.array(pair))}) == steer
    assert Steer.model_validate_json(steer.model_dump_json()) == steer


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"dtype": "<f8"},
        pack_array(np.zeros(3)),
        pack_array(np.zeros((2, 1))),
        pack_array(np.zeros(MOST_TYPED_BYTES + 1, np.int8), compress=True),
    ],
)
def test_a_packable_field_refuses_what_is_packed_wrongly(value: Any) -> None:
    with pytest.raises(pydantic.ValidationError):
        Steer.model_validate({"pair": value})


def test_a_packable_field_says_so_in_the_schema_of_what_it_takes() -> None:
    taken, given_back = (Steer.model_json_schema(mode=mode)["properties"]["pair"] for mode in MODES)

    assert taken["anyOf"][1]["required"] == ["dtype", "shape", "data"]
    assert given_back["type"] == "array"


def test_a_typed_client_imports_no_numpy_and_no_gymnasium() -> None:
    code = "import sys, proctor.models.wire, proctor.contracts.environment; print({'numpy', 'gymnasium'} & set(sys.modules))"

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)

    assert found.stdout.strip() == "set()"
