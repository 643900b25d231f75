"""What the server and an environment's process say to each other: a few words, then msgpack, each message with its length in front.

Rule 1: nothing here is pickled. A process that runs somebody's environment is not trusted to build objects in ours.
Rule 2: a message is bounded, and one that does not decode ends the conversation. Whatever a peer says, reading it raises
    a DecodeError and nothing else.
Rule 3: the server speaks first and a worker answers, one message for one.
Rule 4: before the first message stand words: a process says that it is there, and learns that it may go on. A word is one
    byte, and where something is wrong a short reason after it. A process says one word and waits.
Rule 5: whoever listens for words learns from the kernel, never from the speaker, which process spoke: by a descriptor of that very
    process (`SCM_PIDFD`), where the kernel has them. An older one gives a number (`SCM_CREDENTIALS`), which may be another
    process's by the time it is opened. So who listens has to check where the process comes from.
Rule 6: descriptors that come with a word unasked are closed, and the word counts for nothing.
"""

import json
import os
import re
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import islice
from math import inf, isfinite
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

import msgspec
import numpy as np
from msgspec import UNSET, Meta, Raw, UnsetType

from proctor.access.limits import DEEPEST, is_too_deep
from proctor.models.control import Problem
from proctor.server.runtime.env_adapter import NO_SCENE, ResetRequest
from proctor.server.runtime.results import MOST_CONTAINERS, MOST_ERRORS, BatchOutcome, EnvOutcome, ToolOutcome
from proctor.server.sandbox.tiers import NOBODY, SandboxLimits, Tier

LENGTH: Final = struct.Struct("!I")
MOST_BYTES: Final = 32 * 2**20
"""Of one message to a worker, and of what an environment says of itself."""
MOST_FIRST_BYTES: Final = 2**20
"""Of a worker's answer that its environment is made, or why not."""
LONGEST_TRACE: Final = 16 * 2**10
"""Characters of what an environment raised; its end is kept."""
LONGEST_MESSAGE: Final = 2000
"""Characters of one sentence of a worker's that a peer reads."""
LONGEST_NAME: Final = 100
MOST_PLACES: Final = 64
"""Parts of the place where an error was found."""
PIECE: Final = 2**16
MessageType = TypeVar("MessageType")


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


class WorkerCall(msgspec.Struct, frozen=True):
    """One call of the adapter; `data` is an action, a batch's actions, or a tool's arguments."""

    method: Literal["reset", "step", "call", "act", "state", "close"]
    order: ResetRequest | None = None
    data: bytes = b""
    tool: str = ""


class WorkerError(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that is wrong with an action: where, what, and which kind of error it is."""

    loc: Annotated[list[int | Annotated[str, Meta(max_length=LONGEST_NAME)]], Meta(max_length=MOST_PLACES)]
    msg: Annotated[str, Meta(max_length=LONGEST_MESSAGE)]
    type: Annotated[str, Meta(max_length=LONGEST_NAME)]


class WorkerProblem(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """As much of a `Problem` as a worker can say, every part of it bounded."""

    message: Annotated[str, Meta(max_length=LONGEST_TRACE)]
    code: Annotated[str, Meta(max_length=LONGEST_NAME)]
    errors: Annotated[list[WorkerError], Meta(max_length=MOST_ERRORS)] = []
    clause: Annotated[str, Meta(max_length=LONGEST_NAME)] | UnsetType = UNSET
    expected: Annotated[str, Meta(max_length=LONGEST_MESSAGE)] | UnsetType = UNSET
    incident: Annotated[str, Meta(max_length=LONGEST_NAME)] | UnsetType = UNSET


class BatchArrays(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A batch's outcome with its arrays as bytes."""

    observations: bytes
    infos: bytes
    rewards: bytes | None
    terminations: bytes | None
    truncations: bytes | None
    begins: bytes | None


class WorkerReply(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the adapter answered: one of the fields is there, or none for an answer without a value.

    `trace` may come with any of them: what was logged meanwhile, for the server's log and for nobody else.
    """

    outcome: EnvOutcome | None = None
    batch: BatchArrays | None = None
    tool: ToolOutcome | None = None
    state: bytes | None = None
    card: bytes | None = None
    refused: WorkerProblem | None = None
    failed: WorkerProblem | None = None
    trace: Annotated[str, Meta(max_length=LONGEST_TRACE)] | None = None


_encode_into: Final = msgspec.msgpack.Encoder().encode_into
_decode_json: Final = msgspec.json.Decoder().decode
_skip_json: Final = msgspec.json.Decoder(Raw).decode
_find_decoder: Final[Callable[[Any], msgspec.msgpack.Decoder[Any]]] = cache(msgspec.msgpack.Decoder)


def encode_frame(message: Any) -> bytearray:
    """Return a message as it travels; an OverflowError for an integer that is too large."""
    frame = bytearray(LENGTH.size)
    _encode_into(message, frame, LENGTH.size)
    LENGTH.pack_into(frame, 0, len(frame) - LENGTH.size)
    return frame


def decode_message(body: bytes | memoryview, kind: type[MessageType]) -> MessageType:
    """Return the message in `body`; a DecodeError if it is none of this kind."""
    try:
        message: MessageType = _find_decoder(kind).decode(body)
    except (UnicodeDecodeError, RecursionError) as problem:
        raise msgspec.DecodeError("text that is none, or too deep") from problem
    return message


def to_worker_problem(problem: Problem) -> WorkerProblem:
    """Return a problem as a worker says it: what is too long is cut off."""

    def cut(text: str | UnsetType, most: int) -> str | UnsetType:
        return text if text is UNSET else text[:most]

    errors = [
        WorkerError(
            [part if isinstance(part, int) else str(part)[:LONGEST_NAME] for part in error["loc"][:MOST_PLACES]],
            str(error["msg"])[:LONGEST_MESSAGE],
            str(error["type"])[:LONGEST_NAME],
        )
        for error in (problem.errors or [])[:MOST_ERRORS]
    ]
    return WorkerProblem(
        problem.message[:LONGEST_TRACE],
        problem.code,
        errors,
        cut(problem.clause, LONGEST_NAME),
        cut(problem.expected, LONGEST_MESSAGE),
        cut(problem.incident, LONGEST_NAME),
    )


SHORT: Final = 256
"""Bytes of a text whose values are quickly built, whatever they are; it cannot be too deep."""
FEW: Final = 500
"""Values, or strings, in a text that is checked quickly, however long it is."""
SOME: Final = 10_000
LONGEST_INTEGER: Final = 4300
"""Bytes of an integer that a client can read."""
_INFINITE: Final = frozenset({inf, -inf})
_DIGITS: Final = bytes(
    ord("0") if each in b"0123456789" else ord("e") if each in b"eE" else each if each == ord("+") else ord(" ")
    for each in range(256)
)
_LARGE_MARKS: Final = (b"e000", b"e+000", b"0" * 200)
"""What a number that is out of range has in it, once its digits are zeros: one of 200 digits by 10**99 is not."""
_LARGE_NUMBER: Final = re.compile(rb"(?<![-+.0-9eE])-?(?:[0-9.]{200,}[-+0-9.eE]*|[0-9.]+[eE]\+?[0-9]{3,})")
_QUOTE: Final = b'"'
_ASCII: Final = bytes(range(128))


def has_few_values(text: bytes | bytearray) -> bool:
    """Return whether there are few values in a JSON text, or in several."""
    return text.count(b",") + text.count(b":") + count_containers(text) <= FEW


def has_few_headers(frame: bytes | bytearray) -> bool:
    """Return whether there can be few keys in a msgpack message: each begins with a byte that is not ASCII."""
    return len(frame.translate(None, _ASCII)) <= FEW


def count_containers(text: bytes | bytearray) -> int:
    """Return how many arrays and objects there can be in a JSON text: brackets in strings count, too."""
    return text.count(b"[") + text.count(b"{")


def count_keys(text: bytes) -> int:
    """Return how many keys there can be in a JSON text: colons in strings count, too."""
    return text.count(b":")


def check_json(text: bytes) -> bytes:
    """Return a text that becomes part of a reply as it is; a DecodeError if it is not exactly one JSON value.

    It is in UTF-8 and at most DEEPEST levels deep, its integers are at most LONGEST_INTEGER bytes long, and its other numbers are finite.
    A text that is not short is checked without building its values.
    """
    try:
        if len(text) <= SHORT:
            _decode_json(text)
        else:
            _check_long_json(text)
    except (UnicodeDecodeError, RecursionError) as problem:
        raise msgspec.DecodeError("text that is none, or too deep") from problem
    return text


def _check_long_json(text: bytes) -> None:
    _skip_json(text)
    if not text.isascii():
        text.decode()
    if is_too_deep(text, DEEPEST):
        raise msgspec.DecodeError("a text that is too deep")
    # What stands in a string is no number. To take few strings out is quicker than to look into them.
    has_few_strings = text.count(_QUOTE) <= FEW
    if has_few_strings or has_large_marks(text):
        outside = _remove_strings(text, few=has_few_strings)
        if has_large_marks(outside):
            _check_numbers(outside)


def has_large_marks(text: bytes | bytearray) -> bool:
    """Return whether something in a text looks like a number that is out of range."""
    marks = text.translate(_DIGITS)
    return any(mark in marks for mark in _LARGE_MARKS)


def _remove_strings(text: bytes, *, few: bool) -> bytes:
    """Return a JSON text without what stands in its strings."""
    if b"\\" in text:
        # Pairs first, so that the quote after an escaped backslash still ends its string.
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    if few:
        return _QUOTE.join(text.split(_QUOTE)[::2])
    signs = np.frombuffer(text, np.uint8)
    return signs[~np.logical_xor.accumulate(signs == ord(_QUOTE))].tobytes()


def _check_numbers(text: bytes) -> None:
    """Raise a DecodeError if a number is out of range; they are built some at a time."""
    found = _LARGE_NUMBER.finditer(text)
    while some := [each[0] for each in islice(found, SOME)]:
        for each in some:
            if len(each) > LONGEST_INTEGER:
                _decode_json(each)
        try:
            # Quicker than msgspec for numbers of this kind, but it takes infinities.
            numbers = json.loads(b"[%b]" % b",".join(some))
        except ValueError as problem:
            raise msgspec.DecodeError("a number that is out of range") from problem
        if any(each in _INFINITE for each in numbers):
            raise msgspec.DecodeError("a number that is out of range")


def check_json_object(text: bytes) -> bytes:
    """Return a text that is exactly one JSON object, or raise a DecodeError."""
    if not text.startswith(b"{"):
        raise msgspec.DecodeError("this is no object")
    return check_json(text)


def check_outcome(outcome: EnvOutcome) -> EnvOutcome:
    """Return an outcome that can be believed in its form, or raise a DecodeError."""
    check_json_object(outcome.observation)
    check_json_object(outcome.metadata)
    if outcome.scene != NO_SCENE:
        check_json(outcome.scene)
    if outcome.reward is not None and not isfinite(outcome.reward):
        raise msgspec.DecodeError("a reward that is not finite")
    return outcome


def check_tool_result(answer: ToolOutcome) -> ToolOutcome:
    """Return a tool's answer that can be believed in its form, or raise a DecodeError."""
    check_json_object(answer.content)
    if count_containers(answer.content) > MOST_CONTAINERS:
        raise msgspec.DecodeError("more arrays and objects than an agent is told")
    if answer.outcome is None or answer.action is None:
        if answer.outcome is not None or answer.action is not None or answer.left:
            raise msgspec.DecodeError("an action without an outcome, or the other way round")
        return answer
    if count_keys(answer.outcome.metadata) > MOST_CONTAINERS:
        raise msgspec.DecodeError("more keys than an agent can be told of")
    check_outcome(answer.outcome)
    for action in (answer.action, *answer.left):
        check_json(action)
    return answer


def check_reply(answer: WorkerReply) -> WorkerReply:
    """Return an answer whose texts can be believed in their form, or raise a DecodeError."""
    if answer.outcome is not None:
        check_outcome(answer.outcome)
    if answer.tool is not None:
        check_tool_result(answer.tool)
    if answer.batch is not None:
        check_json(answer.batch.observations)
        check_json_object(answer.batch.infos)
    if answer.state is not None:
        check_json_object(answer.state)
    return answer


def encode_batch(outcome: BatchOutcome) -> BatchArrays:
    """Return the outcome in the form that travels."""
    arrays = (outcome.rewards, outcome.terminations, outcome.truncations, outcome.begins)
    sent = (None if each is None else each.tobytes() for each in arrays)
    return BatchArrays(outcome.observations, outcome.infos, *sent)


def decode_batch(arrays: BatchArrays, num_envs: int, *, stepped: bool) -> BatchOutcome:
    """Return the outcome of a step or a reset that travelled, or raise a DecodeError; its texts are sound."""
    given = (arrays.rewards, arrays.terminations, arrays.truncations)
    if arrays.begins is None or any((each is not None) != stepped for each in given):
        raise msgspec.DecodeError("arrays that are missing, or too many of them")
    found = BatchOutcome(
        arrays.observations,
        arrays.infos,
        _decode_array(arrays.rewards, np.float64, num_envs),
        _decode_array(arrays.terminations, np.bool_, num_envs),
        _decode_array(arrays.truncations, np.bool_, num_envs),
        _decode_array(arrays.begins, np.bool_, num_envs),
    )
    if found.rewards is not None and not np.isfinite(found.rewards).all():
        raise msgspec.DecodeError("a reward that is not finite")
    return found


def _decode_array(body: bytes | None, dtype: Any, length: int) -> Any:
    if body is None:
        return None
    if len(body) != length * np.dtype(dtype).itemsize:
        raise msgspec.DecodeError("not one value for each sub-environment")
    # Of two bytes that are both true only one is what NumPy takes for true.
    return np.frombuffer(body, np.uint8).astype(np.bool_) if dtype is np.bool_ else np.frombuffer(body, dtype)


def is_whole_frame(piece: bytes) -> bool:
    """Whether these bytes are exactly one message."""
    return len(piece) >= LENGTH.size and LENGTH.unpack_from(piece)[0] == len(piece) - LENGTH.size


def read_message(channel: socket.socket, most: int = MOST_BYTES, deadline: float | None = None) -> memoryview | None:
    """Return the next message's body from a socket that blocks; None when the other side has closed it.

    A message that says it is longer than `most` is a DecodeError, one that is not whole at the `deadline`, which is a time of
    the monotonic clock, a TimeoutError: the socket's own time-out begins anew with every byte.
    """
    frame = bytearray()
    wanted = LENGTH.size
    while len(frame) < wanted:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            channel.settimeout(left)
        piece = channel.recv(max(PIECE, min(wanted - len(frame), 2**20)))
        if not piece:
            return None
        if not frame and is_whole_frame(piece):
            return memoryview(piece)[LENGTH.size :]
        frame += piece
        if len(frame) >= LENGTH.size:
            wanted = LENGTH.size + LENGTH.unpack_from(frame)[0]
        if wanted > LENGTH.size + most:
            raise msgspec.DecodeError("a message that is too long")
    return memoryview(frame)[LENGTH.size : wanted]


HERE: Final = b"h"
"""I was started, and have not begun yet."""
GO: Final = b"g"
"""Go on: the answer to HERE and to UNMAPPED."""
UNMAPPED: Final = b"u"
"""I have a user namespace of my own, in which no user is known yet."""
READY: Final = b"r"
"""I have taken from myself what had to be taken; what comes now are messages."""
NO_NAMESPACES: Final = b"n"
"""The kernel gives me no namespaces of my own; the reason follows."""
UNFIT: Final = b"x"
"""I could not take from myself what had to be taken; the reason follows."""
FORK: Final = b"f"
"""To a zygote, with a descriptor: a worker for this socket."""
COMPILE: Final = b"c"
"""To a zygote, with a descriptor and a mode: a process that compiles what steps batches, and says READY or ends."""
LOAD: Final = b"l"
"""To a zygote, with a mode: load what was compiled, so that workers to come share it."""

LONGEST_WORD: Final = 1024
_CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid
_DESCRIPTOR: Final = struct.Struct("i")
SO_PASSPIDFD: Final = 76
SCM_PIDFD: Final = 4
"""Since Linux 6.5; Python does not know them yet."""


class StartMessage(msgspec.Struct, frozen=True):
    """What a zygote is told; `alone`: its worker gets no namespaces of its own, it has the sandbox for itself."""

    target: str
    settings: dict[str, Any]
    tier: Tier
    limits: SandboxLimits
    network: bool = False
    alone: bool = False
    user: int = NOBODY
    """Who the zygote becomes, if it can choose."""
    own_users: bool = False
    """Whether the server gives each worker a user of its own; only root can."""


class LoadReport(msgspec.Struct, frozen=True):
    """What a zygote answers: the target's module is imported, or why it is not; `threads` run beside the import."""

    problem: str | None = None
    threads: int = 0
    version: str = ""
    """Of Proctor, where the worker may have another one than the server: in a container."""


@dataclass(frozen=True, slots=True)
class HandshakeMessage:
    """What was said, by whom; an empty `kind`: the other side has gone. A `with` block closes the descriptor."""

    kind: bytes
    speaker: int = -1
    """A descriptor of the process that spoke; -1: it is not known."""
    reason: str = ""

    def __enter__(self) -> "HandshakeMessage":
        return self

    def __exit__(self, *_: object) -> None:
        if self.speaker >= 0:
            os.close(self.speaker)


def set_peer_identity(channel: socket.socket, *, wanted: bool) -> None:
    """Have the kernel say who speaks on the other end, or say it no more: the words are over."""
    channel.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, wanted)
    with suppress(OSError):  # an older kernel
        channel.setsockopt(socket.SOL_SOCKET, SO_PASSPIDFD, wanted)


def receive_handshake(channel: socket.socket) -> HandshakeMessage:
    """Return the next word; on a socket that does not block only if there is one."""
    room = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(_DESCRIPTOR.size)
    try:
        said, ancillary, _, _ = channel.recvmsg(LONGEST_WORD, room, socket.MSG_CMSG_CLOEXEC)
    except ConnectionError:
        return HandshakeMessage(b"")
    found = [(kind, value) for level, kind, value in ancillary if level == socket.SOL_SOCKET]
    speaker = _find_speaker(dict(found))
    gifts = [value for kind, value in found if kind == socket.SCM_RIGHTS]
    for value in gifts:
        for (descriptor,) in _DESCRIPTOR.iter_unpack(value[: len(value) // _DESCRIPTOR.size * _DESCRIPTOR.size]):
            os.close(descriptor)
    if gifts:
        with HandshakeMessage(b"", speaker):
            return HandshakeMessage(b"")
    return HandshakeMessage(said[:1], speaker, printable_line(said[1:].decode("utf-8", "replace")))


def _find_speaker(values: dict[int, bytes]) -> int:
    """Return a descriptor of who spoke, -1 if the kernel does not say or if it has ended."""
    if SCM_PIDFD in values:
        return max(-1, int(_DESCRIPTOR.unpack(values[SCM_PIDFD])[0]))
    pid = _CREDENTIALS.unpack(values[socket.SCM_CREDENTIALS])[0] if socket.SCM_CREDENTIALS in values else 0
    with suppress(OSError):
        return os.pidfd_open(pid) if pid > 0 else -1
    return -1


def send_handshake(channel: socket.socket, word: bytes, reason: str = "") -> None:
    """Say a word, with a reason that is cut off if it is long."""
    channel.sendall((word + reason.encode("utf-8", "replace"))[:LONGEST_WORD])


def python_command(entry: str, descriptor: int) -> list[str]:
    """Return the command line of a Python that runs `entry`, and is told a descriptor and where this one finds its modules."""
    # Isolated: no variable and no file of the working directory has a say in what is imported. "" is the working directory.
    return [
        sys.executable,
        "-I",
        "-B",
        "-c",
        entry,
        str(descriptor),
        *(str(Path(each).absolute()) for each in sys.path),
    ]


def silence_output() -> None:
    """Let nothing that this process writes go anywhere: it cannot fill a log."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    if nowhere > 2:
        os.close(nowhere)


def printable_text(text: str) -> str:
    """Return a text that steers no terminal; it keeps its lines."""
    return text if text.isprintable() else "".join(sign if sign.isprintable() or sign == "\n" else "?" for sign in text)


def printable_line(text: str) -> str:
    """Return what somebody said as it may stand in a log: in one line, and without what steers a terminal."""
    return printable_text(text).replace("\n", "?")
