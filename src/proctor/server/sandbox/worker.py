"""The environment's process: reads calls from one socket, and answers them one by one until the socket closes."""

import asyncio
import inspect
import logging
import socket
import sys
from contextlib import closing
from typing import Any, Final

from proctor.envs.targets import Target
from proctor.models.wire import Encoding
from proctor.server.answers import BatchOutcome, Failed, NotDone, Outcome
from proctor.server.incidents import new_incident
from proctor.server.making import made_desk
from proctor.server.places import AnyDesk
from proctor.server.sandbox.pipe import LENGTH, Answer, Call, Work, as_arrays, framed, spoken

LOG: Final = logging.getLogger("proctor.environment")


def main(descriptor: int) -> None:
    """Serve the socket with this descriptor until the other side closes it."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    with socket.socket(fileno=descriptor) as channel, closing(asyncio.Runner()) as runner:
        desk: AnyDesk | None = None
        while (body := _read(channel)) is not None:
            try:
                if desk is None:
                    desk = made(spoken(body, Work))
                    answer = Answer()
                else:
                    answer = answered(desk, spoken(body, Call), runner)
            except NotDone as problem:
                answer = _not_done(problem)
            channel.sendall(framed(answer))


def made(work: Work) -> AnyDesk:
    """Return the desk that the server asked for, or refuse."""
    sys.path[:0] = [path for path in work.paths if path not in sys.path]
    return made_desk(
        Target(work.target, work.settings),
        Encoding(work.packed, work.compress),
        new_incident,
        num_envs=work.num_envs,
        autoreset_mode=work.autoreset_mode,
        infos=work.infos,
    )


def answered(desk: AnyDesk, call: Call, runner: asyncio.Runner) -> Answer:
    """Return the desk's answer to a call."""
    found: Any
    if call.method == "reset":
        found = desk.reset(call.order)  # type: ignore[arg-type]  # the server always sends one
    elif call.method == "step":
        found = desk.step(call.data)
    else:
        found = getattr(desk, call.method)()
    if inspect.isawaitable(found):
        found = runner.run(_awaited(found))
    return _as_answer(found)


async def _awaited(found: Any) -> Any:
    return await found


def _as_answer(found: Any) -> Answer:
    if isinstance(found, Outcome):
        return Answer(outcome=found)
    if isinstance(found, BatchOutcome):
        return Answer(batch=as_arrays(found))
    return Answer(state=found)


def _not_done(problem: NotDone) -> Answer:
    return Answer(failed=problem.problem) if isinstance(problem, Failed) else Answer(refused=problem.problem)


def _read(channel: socket.socket) -> bytes | None:
    head = _exactly(channel, LENGTH.size)
    return None if head is None else _exactly(channel, LENGTH.unpack(head)[0])


def _exactly(channel: socket.socket, count: int) -> bytes | None:
    body = bytearray()
    while len(body) < count:
        piece = channel.recv(min(count - len(body), 2**20))
        if not piece:
            return None
        body += piece
    return bytes(body)


if __name__ == "__main__":
    main(int(sys.argv[1]))
