"""A desk in a process of its own, seen from the server.

Rule 1: the process inherits one socket and no secret; what it needs to know it is told over that socket.
Rule 2: a process that ends, or says what cannot be read, has lost its episode; one that is abandoned is killed.
"""

import asyncio
import os
import socket
import sys
from typing import Any, Final

import msgspec

from proctor.models.control import Code, Problem
from proctor.server.answers import Failed, Refused, failed, refused
from proctor.server.desk import ResetOrder
from proctor.server.places import AnyOutcome
from proctor.server.sandbox.pipe import (
    LENGTH,
    MOST_BYTES,
    Answer,
    Call,
    Work,
    checked,
    checked_json,
    framed,
    from_arrays,
    spoken,
)

CODES: Final = frozenset(Code)
START_SECONDS: Final = 60.0
SECRETS: Final = ("PROCTOR_CONTROL_TOKEN",)
"""Environment variables that no environment's process gets to see."""


class InProcess:
    """A desk in another process."""

    kind = "process"
    immediate = False

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    @classmethod
    async def started(cls, work: Work) -> "InProcess":
        """Start a process with a new environment at work in it, or raise a refusal."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        place: InProcess | None = None
        try:
            place = cls(await _spawned(theirs), *await asyncio.open_unix_connection(sock=ours, limit=2**20))
            async with asyncio.timeout(START_SECONDS):
                await place._asked(work)
        except BaseException as problem:
            ours.close() if place is None else place.abandon()
            if isinstance(problem, TimeoutError):
                raise refused(Code.FACTORY_ERROR, "the environment's process did not start in time") from None
            raise
        finally:
            theirs.close()
        return place

    async def reset(self, order: ResetOrder) -> AnyOutcome:
        """Begin an episode."""
        return _outcome(await self._asked(Call("reset", order=order)))

    async def step(self, data: bytes) -> AnyOutcome:
        """Carry out an action."""
        return _outcome(await self._asked(Call("step", data=data)))

    async def state(self) -> bytes:
        """Return the state as JSON."""
        answer = await self._asked(Call("state"))
        try:
            return checked_json(answer.state or b"")
        except msgspec.DecodeError:
            raise failed(Code.EXECUTION_ERROR, "the environment's process gave no state") from None

    async def close(self) -> None:
        """Close the environment and end the process."""
        try:
            await self._asked(Call("close"))
        except Failed:
            return
        finally:
            self.abandon()
            await self._process.wait()

    def abandon(self) -> None:
        """Kill the process, whatever it does."""
        self._writer.close()
        if self._process.returncode is None:
            self._process.kill()

    async def _asked(self, message: Any) -> Answer:
        try:
            body = framed(message)
        except OverflowError:
            raise refused(Code.VALIDATION_ERROR, "a number is too large", expected="integers of 64 bits") from None
        try:
            self._writer.write(body)
            await self._writer.drain()
            (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
            if length > MOST_BYTES:
                raise failed(Code.EXECUTION_ERROR, "the environment's process said too much at once")
            answer = spoken(await self._reader.readexactly(length), Answer)
        # RuntimeError: uvloop's word for a transport that is closed.
        except (OSError, EOFError, RuntimeError, msgspec.DecodeError):
            raise failed(Code.EXECUTION_ERROR, "the environment's process ended") from None
        if answer.refused is not None:
            raise Refused(_known(answer.refused))
        if answer.failed is not None:
            raise Failed(_known(answer.failed))
        return answer


def _known(problem: Problem) -> Problem:
    """Return the problem if its code is one of ours; a process does not invent codes."""
    if problem.code not in CODES:
        raise failed(Code.EXECUTION_ERROR, "the environment's process gave no sound answer")
    return problem


async def _spawned(theirs: socket.socket) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "proctor.server.sandbox.worker",
        str(theirs.fileno()),
        pass_fds=[theirs.fileno()],
        stdin=asyncio.subprocess.DEVNULL,
        env={name: value for name, value in os.environ.items() if name not in SECRETS},
    )


def _outcome(answer: Answer) -> AnyOutcome:
    try:
        if answer.outcome is not None:
            return checked(answer.outcome)
        if answer.batch is not None:
            return from_arrays(answer.batch)
    except msgspec.DecodeError:
        raise failed(Code.EXECUTION_ERROR, "the environment's process gave no sound outcome") from None
    raise failed(Code.EXECUTION_ERROR, "the environment's process gave no outcome")
