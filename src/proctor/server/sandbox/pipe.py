"""What the server and an environment's process say to each other: msgpack, each message with its length in front.

Rule 1: nothing here is pickled. A process that runs somebody's environment is not trusted to build objects in ours.
Rule 2: a message is bounded, and one that does not decode ends the conversation. Whatever a peer says, reading it raises
    a DecodeError and nothing else.
Rule 3: the server speaks first and a worker answers, one message for one. Before the first message stand the words of
    `words`.
"""

import socket
import struct
from math import isfinite
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from proctor.models.control import Problem
from proctor.server.answers import BatchOutcome, Outcome, ToolAnswer
from proctor.server.desk import NO_SCENE, ResetOrder

LENGTH: Final = struct.Struct("!I")
MOST_BYTES: Final = 32 * 2**20
"""Of one message: reading more would hold up all other sessions for too long."""
LONGEST_TRACE: Final = 16 * 2**10
"""Characters of what an environment raised; its end is kept."""
PIECE: Final = 2**16
Spoken = TypeVar("Spoken")


class Work(msgspec.Struct, frozen=True, tag=True):
    """Which environment to make: the first message to a new process."""

    target: str
    settings: dict[str, Any]
    packed: bool
    compress: bool
    num_envs: int | None
    autoreset_mode: str | None
    infos: bool
    scenes: bool = False


class Describe(msgspec.Struct, frozen=True, tag=True):
    """The other first message: make the environment, say what it is, and close it."""

    target: str
    settings: dict[str, Any]


FirstMessage: TypeAlias = Work | Describe


class Call(msgspec.Struct, frozen=True):
    """One call of the desk; `data` is an action, a batch's actions, or a tool's arguments."""

    method: Literal["reset", "step", "call", "act", "state", "close"]
    order: ResetOrder | None = None
    data: bytes = b""
    tool: str = ""


class BatchArrays(msgspec.Struct, frozen=True):
    """A batch's outcome with its arrays as bytes."""

    observations: bytes
    infos: bytes
    rewards: bytes | None
    terminations: bytes | None
    truncations: bytes | None
    begins: bytes | None


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the desk answered: one of the fields is there, or none for an answer without a value.

    `trace` may come with any of them: what was logged meanwhile, for the server's log and for nobody else.
    """

    outcome: Outcome | None = None
    batch: BatchArrays | None = None
    tool: ToolAnswer | None = None
    state: bytes | None = None
    card: bytes | None = None
    refused: Problem | None = None
    failed: Problem | None = None
    trace: str | None = None


_encode_into: Final = msgspec.msgpack.Encoder().encode_into
_json: Final = msgspec.json.Decoder().decode
_answer: Final = msgspec.msgpack.Decoder(Answer).decode


def framed(message: Any) -> bytearray:
    """Return a message as it travels; an OverflowError for an integer that is too large."""
    frame = bytearray(LENGTH.size)
    _encode_into(message, frame, LENGTH.size)
    LENGTH.pack_into(frame, 0, len(frame) - LENGTH.size)
    return frame


def spoken(body: bytes | memoryview, kind: type[Spoken]) -> Spoken:
    """Return the message in `body`; a DecodeError if it is none of this kind."""
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (UnicodeDecodeError, RecursionError) as problem:
        raise msgspec.DecodeError("text that is none, or too deep") from problem


def answer_in(body: memoryview) -> Answer:
    """Return the answer in `body`, as `spoken` does, but quicker."""
    try:
        return _answer(body)
    except (UnicodeDecodeError, RecursionError) as problem:
        raise msgspec.DecodeError("text that is none, or too deep") from problem


def checked_json(text: bytes) -> bytes:
    """Return a text that becomes part of a reply as it is; a DecodeError if it is not exactly one JSON value."""
    try:
        _json(text)
    except (UnicodeDecodeError, RecursionError) as problem:
        raise msgspec.DecodeError("text that is none, or too deep") from problem
    return text


def checked_object(text: bytes) -> bytes:
    """Return a text that is exactly one JSON object, or raise a DecodeError."""
    if not text.startswith(b"{"):
        raise msgspec.DecodeError("this is no object")
    return checked_json(text)


def checked(outcome: Outcome) -> Outcome:
    """Return an outcome that can be believed in its form, or raise a DecodeError."""
    checked_object(outcome.observation)
    checked_object(outcome.metadata)
    if outcome.scene != NO_SCENE:
        checked_json(outcome.scene)
    if outcome.reward is not None and not isfinite(outcome.reward):
        raise msgspec.DecodeError("a reward that is not finite")
    return outcome


def checked_tool(answer: ToolAnswer) -> ToolAnswer:
    """Return a tool's answer that can be believed in its form, or raise a DecodeError."""
    checked_object(answer.content)
    if answer.outcome is None or answer.action is None:
        if answer.outcome is not None or answer.action is not None or answer.left:
            raise msgspec.DecodeError("an action without an outcome, or the other way round")
        return answer
    checked(answer.outcome)
    for action in (answer.action, *answer.left):
        checked_json(action)
    return answer


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


def read(channel: socket.socket, most: int = MOST_BYTES) -> memoryview | None:
    """Return the next message's body from a socket that blocks; None when the other side has closed it.

    A message that says it is longer than `most` is a DecodeError.
    """
    frame = bytearray()
    wanted = LENGTH.size
    while len(frame) < wanted:
        piece = channel.recv(max(PIECE, min(wanted - len(frame), 2**20)))
        if not piece:
            return None
        if not frame and is_whole(piece):
            return memoryview(piece)[LENGTH.size :]
        frame += piece
        if len(frame) >= LENGTH.size:
            wanted = LENGTH.size + LENGTH.unpack_from(frame)[0]
        if wanted > LENGTH.size + most:
            raise msgspec.DecodeError("a message that is too long")
    return memoryview(frame)[LENGTH.size : wanted]


def is_whole(piece: bytes) -> bool:
    """Whether these bytes are exactly one message."""
    return len(piece) >= LENGTH.size and LENGTH.unpack_from(piece)[0] == len(piece) - LENGTH.size
