"""What the server and an environment's process say to each other: msgpack, each message with its length in front.

Rule 1: nothing here is pickled. A process that runs somebody's environment is not trusted to build objects in ours.
Rule 2: a message is bounded, and one that does not decode ends the conversation.
"""

import struct
from math import isfinite
from typing import Any, Final, Literal, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from proctor.models.control import Problem
from proctor.server.answers import BatchOutcome, Outcome
from proctor.server.desk import ResetOrder

LENGTH: Final = struct.Struct("!I")
MOST_BYTES: Final = 256 * 2**20
Spoken = TypeVar("Spoken")


class Work(msgspec.Struct, frozen=True):
    """Which environment to make: the first message to a new process."""

    target: str
    settings: dict[str, Any]
    packed: bool
    compress: bool
    num_envs: int | None
    autoreset_mode: str | None
    infos: bool
    paths: list[str]


class Call(msgspec.Struct, frozen=True):
    """One call of the desk."""

    method: Literal["reset", "step", "state", "close"]
    order: ResetOrder | None = None
    data: bytes = b""


class BatchArrays(msgspec.Struct, frozen=True):
    """A batch's outcome with its arrays as bytes."""

    observations: bytes
    infos: bytes
    rewards: bytes | None
    terminations: bytes | None
    truncations: bytes | None
    begins: bytes | None


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the desk answered: one of the fields is there, or none for an answer without a value."""

    outcome: Outcome | None = None
    batch: BatchArrays | None = None
    state: bytes | None = None
    refused: Problem | None = None
    failed: Problem | None = None


def framed(message: Any) -> bytes:
    """Return a message as it travels."""
    body = msgspec.msgpack.encode(message)
    return LENGTH.pack(len(body)) + body


def spoken(body: bytes, kind: type[Spoken]) -> Spoken:
    """Return the message in `body`; a DecodeError if it is none of this kind."""
    return msgspec.msgpack.decode(body, type=kind)


def checked_json(text: bytes) -> bytes:
    """Return a text that becomes part of a reply as it is; a DecodeError if it is not exactly one JSON value."""
    msgspec.json.decode(text)
    return text


def checked(outcome: Outcome) -> Outcome:
    """Return an outcome that can be believed in its form, or raise a DecodeError."""
    checked_json(outcome.observation)
    checked_json(outcome.metadata)
    if outcome.reward is not None and not isfinite(outcome.reward):
        raise msgspec.DecodeError("a reward that is not finite")
    return outcome


def as_arrays(outcome: BatchOutcome) -> BatchArrays:
    """Return the outcome in the form that travels."""
    return BatchArrays(
        outcome.observations,
        outcome.infos,
        *(_bytes(each) for each in (outcome.rewards, outcome.terminations, outcome.truncations, outcome.begins)),
    )


def from_arrays(arrays: BatchArrays) -> BatchOutcome:
    """Return the outcome that travelled, or raise a DecodeError."""
    try:
        found = BatchOutcome(
            checked_json(arrays.observations),
            checked_json(arrays.infos),
            _array(arrays.rewards, np.float64),
            _array(arrays.terminations, np.bool_),
            _array(arrays.truncations, np.bool_),
            _array(arrays.begins, np.bool_),
        )
    except ValueError as problem:
        raise msgspec.DecodeError("bytes that are no array") from problem
    lengths = {
        len(each) for each in (found.rewards, found.terminations, found.truncations, found.begins) if each is not None
    }
    if len(lengths) > 1 or (found.rewards is not None and not np.isfinite(found.rewards).all()):
        raise msgspec.DecodeError("arrays that do not belong together, or a reward that is not finite")
    return found


def _bytes(array: NDArray[Any] | None) -> bytes | None:
    return None if array is None else array.tobytes()


def _array(body: bytes | None, dtype: Any) -> Any:
    return None if body is None else np.frombuffer(body, dtype)
