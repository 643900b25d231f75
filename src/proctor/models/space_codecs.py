"""How one value of a space is written in JSON and read back: the leaves, which are numbers, arrays and text.

Rule 1: `decode` gives the value that the space itself would sample: same type, dtype, shape and bits.
Rule 2: a value from an environment that is not of its space's form is a ComponentError; JSON from a peer that is not is a
    ValidationError that says where. `decode` may be told to leave the bounds aside, as an environment does that
    observes beyond its own: the form is checked all the same.
Rule 3: a codec keeps no state, so that all sessions share one for equal spaces.
"""

from abc import ABC, abstractmethod
from operator import index
from typing import Any, Final

import numpy as np
from gymnasium import spaces

from proctor.errors import ComponentError, ValidationError
from proctor.models.arrays import (
    MOST_BYTES,
    Array,
    array_from_lists,
    array_to_lists,
    pack_array,
    read_packed_form,
    unpack_array,
    wire_dtype,
)
from proctor.models.wire import PLAIN, Encoding

Schema = dict[str, Any]
FreeShape = tuple[int | None, ...]
"""A shape whose first length may be None: any number of values, stacked."""


class ReadOptions:
    """One value being read: whether bounds hold, and how many bytes may still be decompressed."""

    __slots__ = ("bounded", "left")

    def __init__(self, bounded: bool) -> None:
        self.bounded = bounded
        self.left = MOST_BYTES


class Codec(ABC):
    """Writes values of one space as JSON and reads them back."""

    @abstractmethod
    def encode(self, value: Any, encoding: Encoding = PLAIN) -> Any:
        """Return `value` as what JSON can say."""

    def decode(self, value: Any, *, bounded: bool = True) -> Any:
        """Return the value that JSON says, contained in the space, or raise a ValidationError.

        Without `bounded` only the form is checked: type, dtype and shape.
        """
        return self.read(value, ReadOptions(bounded))

    @abstractmethod
    def read(self, value: Any, reading: ReadOptions) -> Any:
        """Return the value that JSON says, as a part of what is being read."""

    @abstractmethod
    def schema(self) -> Schema:
        """Return the JSON Schema (draft 2020-12) of what `encode` writes and `decode` takes."""

    def lengths(self, value: Any) -> frozenset[int]:
        """Return how many values are stacked in `value`, part by part; one number if all parts agree."""
        raise NotImplementedError(type(self).__name__)


class DiscreteCodec(Codec):
    """An integer."""

    def __init__(self, space: spaces.Discrete[Any]) -> None:
        wire_dtype(space.dtype)
        self._type = space.dtype.type
        self._least = int(space.start)
        self._most = int(space.start) + int(space.n) - 1
        self._limits = np.iinfo(space.dtype)

    def encode(self, value: Any, encoding: Encoding = PLAIN) -> int:
        """Return the integer."""
        try:
            return index(value)
        except TypeError:
            raise ComponentError("not an integer", found=value, expected=self._describe_form()) from None

    def read(self, value: Any, reading: ReadOptions) -> Any:
        """Return the integer as a scalar of the space's dtype."""
        least, most = (self._least, self._most) if reading.bounded else (self._limits.min, self._limits.max)
        if type(value) is not int or not least <= value <= most:
            raise ValidationError("not a member of the space", found=value, expected=self._describe_form())
        return self._type(value)

    def schema(self) -> Schema:
        """Return an integer with its bounds."""
        return {"type": "integer", "minimum": self._least, "maximum": self._most}

    def _describe_form(self) -> str:
        return f"an integer from {self._least} to {self._most}"


class ArrayCodec(Codec):
    """Numbers of one dtype in one shape, between bounds; the first length may be free."""

    def __init__(self, dtype: np.dtype[Any], shape: FreeShape, low: Array, high: Array) -> None:
        self._dtype = dtype
        self._wire = wire_dtype(dtype)
        self._shape = shape
        self._free = bool(shape) and shape[0] is None
        self._tail = shape[1:]
        self._low = low
        self._high = high
        self._is_float = dtype.kind == "f"

    def encode(self, value: Any, encoding: Encoding = PLAIN) -> Any:
        """Return the array as lists, or packed."""
        array = value
        if type(value) is not np.ndarray or value.dtype != self._dtype or not self._fits(value.shape):
            array = self._as_array(value)
        if encoding.packed:
            return pack_array(array, encoding.compress)
        return array_to_lists(array)

    def _fits(self, shape: tuple[int, ...]) -> bool:
        if self._free:
            return bool(shape) and shape[1:] == self._tail
        return shape == self._shape

    def _as_array(self, value: Any) -> Array:
        """Return what an environment gave, in the space's own dtype, or raise a ComponentError."""
        try:
            found: Array = np.asarray(value)
        except (ValueError, TypeError):
            raise self._no_value(value) from None
        if not self._fits(found.shape) or found.dtype.kind not in "biuf":
            raise self._no_value(f"{found.dtype} of shape {found.shape}")
        with np.errstate(over="ignore", invalid="ignore"):
            array: Array = found.astype(self._dtype)
        # A float is rounded; an integer that would become another one is not what the environment said.
        if not self._is_float and not np.array_equal(array, found):
            raise self._no_value(value)
        return array

    def _no_value(self, found: object) -> ComponentError:
        return ComponentError("not of its space's form", found=found, expected=self._describe_form())

    def read(self, value: Any, reading: ReadOptions) -> Array:
        """Return the array that lists or a packed value say."""
        array = self._unpack(value, reading) if type(value) is dict else self._from_lists(value)
        if reading.bounded and not self._within(array):
            raise ValidationError("out of bounds", found=value, expected=self._describe_form())
        return array

    def _from_lists(self, value: Any) -> Array:
        tail: Any = self._tail
        if not self._free:
            shape: Any = self._shape
        elif type(value) is list:
            shape = (len(value), *tail)
        else:
            raise ValidationError("not a list", found=value, expected=self._describe_form())
        return array_from_lists(value, self._dtype, shape)

    def _unpack(self, value: dict[str, Any], reading: ReadOptions) -> Array:
        dtype, shape = read_packed_form(value)
        if dtype != self._wire or not self._fits(shape):
            raise ValidationError(
                "not an array of this kind", found=f"{dtype} of shape {shape}", expected=self._describe_form()
            )
        array = unpack_array(value, most=reading.left)
        if "zip" in value:
            reading.left -= array.nbytes
        return array.astype(self._dtype, copy=False)

    def _within(self, array: Array) -> bool:
        return bool((array >= self._low).all() and (array <= self._high).all())

    def schema(self) -> Schema:
        """Return nested arrays of numbers, or the packed form."""
        leaf: Schema = self._leaf()
        for length in reversed(self._shape):
            sized = {} if length is None else {"minItems": length, "maxItems": length}
            leaf = {"type": "array", "items": leaf, **sized}
        return {"anyOf": [leaf, self._packing_schema()]}

    def _leaf(self) -> Schema:
        """Return one number; the bounds are those of the whole array."""
        if self._dtype.kind == "b":
            return {"type": "boolean"}
        kind = "number" if self._is_float else "integer"
        if not self._low.size:
            return {"type": kind}
        low, high = self._low.min().item(), self._high.max().item()
        number: Schema = {"type": kind}
        names = []
        if low > -np.inf:
            number["minimum"] = low
        else:
            names.append("-Infinity")
        if high < np.inf:
            number["maximum"] = high
        else:
            names.append("Infinity")
        return {"anyOf": [number, {"enum": names}]} if names else number

    def _packing_schema(self) -> Schema:
        lengths = [{"type": "integer", "minimum": 0} if n is None else {"const": n} for n in self._shape]
        shape: Schema = {"type": "array", "minItems": len(lengths), "maxItems": len(lengths)}
        if lengths:
            shape["prefixItems"] = lengths
        return {
            "type": "object",
            "properties": {
                "dtype": {"const": self._wire.str},
                "shape": shape,
                "data": {"type": "string", "contentEncoding": "base64"},
                "zip": {"const": "zlib"},
            },
            "required": ["dtype", "shape", "data"],
            "additionalProperties": False,
        }

    def lengths(self, value: Any) -> frozenset[int]:
        """Return the first length."""
        return frozenset({len(value)})

    def _describe_form(self) -> str:
        shape = str(self._shape).replace("None", "any")
        text = f"{self._dtype.name} of shape {shape}"
        if self._low.size and self._dtype.kind != "b":
            text += f" from {self._low.min()} to {self._high.max()}"
        return text


class TextCodec(Codec):
    """A string."""

    def __init__(self, space: spaces.Text) -> None:
        self._least = space.min_length
        self._most = space.max_length
        self._charset = space.character_set
        self._characters = space.characters

    def encode(self, value: Any, encoding: Encoding = PLAIN) -> str:
        """Return the string."""
        if not isinstance(value, str):
            raise ComponentError("not text", found=value, expected=self._describe_form())
        return str(value)

    def read(self, value: Any, reading: ReadOptions) -> str:
        """Return the string."""
        if type(value) is not str:
            raise ValidationError("not text", found=value, expected=self._describe_form())
        if reading.bounded and not (self._least <= len(value) <= self._most and self._charset.issuperset(value)):
            raise ValidationError("not a member of the space", found=value, expected=self._describe_form())
        return value

    def schema(self) -> Schema:
        """Return a string with its lengths and characters."""
        characters = "".join(f"\\{each}" if each in SPECIAL else each for each in self._characters)
        pattern = f"^[{characters}]*$" if characters else "^$"
        return {"type": "string", "minLength": self._least, "maxLength": self._most, "pattern": pattern}

    def _describe_form(self) -> str:
        return f"{self._least} to {self._most} characters of {self._characters!r}"


SPECIAL: Final = frozenset("\\]^-[")
"""What a character class of a pattern must escape."""
