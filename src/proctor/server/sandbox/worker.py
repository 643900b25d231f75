"""The environment's process: one desk, which reads calls from one socket and answers them one by one until it closes.

Rule 1: before the first message it gives up what its tier takes away, and says so; a step that fails ends it.
Rule 2: it keeps one descriptor, its own socket, and takes nothing of its zygote's with it: what a module opened while it
    was imported is closed.
Rule 3: what the environment raises is logged here as anywhere else; the log travels with the answer, bounded, because
    standard error leads nowhere.
"""

import asyncio
import inspect
import logging
import os
import signal
import socket
from contextlib import closing
from functools import partial
from typing import Any, Final, NoReturn

import msgspec
import numpy as np

from proctor.envs.targets import Target
from proctor.models.control import Code
from proctor.models.wire import Encoding
from proctor.server.answers import (
    LONGEST_TEXT,
    MOST_CONTAINERS,
    MOST_CONTENT_BYTES,
    RAISED,
    BatchOutcome,
    Failed,
    NotDone,
    Outcome,
    ToolAnswer,
    failed,
    refused,
)
from proctor.server.cards import card_of
from proctor.server.incidents import new_incident
from proctor.server.making import made_desk
from proctor.server.places import AnyDesk
from proctor.server.sandbox import confine
from proctor.server.sandbox.pipe import (
    LENGTH,
    LONGEST_TRACE,
    MOST_BYTES,
    Answer,
    Call,
    Describe,
    FirstMessage,
    WorkerProblem,
    as_arrays,
    containers_in,
    framed,
    keys_in,
    read,
    spoken,
    worker_problem,
)
from proctor.server.sandbox.tiers import Tier
from proctor.server.sandbox.words import GO, HERE, NO_NAMESPACES, READY, UNFIT, UNMAPPED, Start, heard, say

LOG: Final = logging.getLogger("proctor.environment")
_call: Final = msgspec.msgpack.Decoder(Call).decode


class Collected(logging.Handler):
    """Keeps the end of what is logged until it is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.text: str | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record, with its traceback."""
        text = self.format(record)
        self.text = (text if self.text is None else f"{self.text}\n{text}")[-LONGEST_TRACE:]

    def taken(self) -> str | None:
        """Return what there is, which is then gone."""
        text, self.text = self.text, None
        return text


# ------------------------------------------------------------------------------------------------- from fork to work
def begin(descriptor: int, start: Start) -> NoReturn:
    """Be a worker for the socket with this descriptor: what is left of a zygote after its fork. Never returns."""
    code = 1
    try:
        with socket.socket(fileno=_only(descriptor)) as channel:
            if _confined(channel, start):
                serve(channel, start.limits.answer_bytes)
        code = 0
    finally:
        # Nothing that the zygote would do at its end is done here.
        os._exit(code)


def _only(descriptor: int) -> int:
    """Close every other descriptor but the three that lead nowhere, and return this one."""
    os.closerange(3, descriptor)
    os.closerange(descriptor + 1, os.sysconf("SC_OPEN_MAX"))
    return descriptor


def _confined(channel: socket.socket, start: Start) -> bool:
    """Give up what the tier takes away, in step with the server; return whether the work may begin."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # A group of processes of its own, so that what the environment starts can be ended with it.
    os.setsid()
    if start.tier is Tier.PROCESS:
        confine.die_with_parent()
    say(channel, HERE)
    if heard(channel).kind != GO:
        return False
    step = UNFIT
    try:
        if start.tier is Tier.STRICT and not start.alone:
            step = NO_NAMESPACES
            confine.own_namespaces(start.limits, partial(_ask_for_user, channel) if start.own_users else None)
            step = UNFIT
        _own_chance()
        confine.settle(start.tier, start.limits, network=start.network)
    except OSError as problem:
        say(channel, step, str(problem))
        return False
    say(channel, READY)
    return True


def _ask_for_user(channel: socket.socket) -> None:
    """Have the server map this worker's user to one that no other worker is."""
    say(channel, UNMAPPED)
    if heard(channel).kind != GO:
        raise ConnectionResetError("the server gave no user")


def _own_chance() -> None:
    """Begin NumPy's global generator anew; Python's own does so after a fork, and else all workers would draw the same."""
    np.random.seed()  # noqa: NPY002  # the legacy generator is what has to be seeded


# -------------------------------------------------------------------------------------------------------------- work
def serve(channel: socket.socket, most: int = MOST_BYTES) -> None:
    """Answer what comes over the socket until the other side closes it, with at most so many bytes each time."""
    log = Collected()
    LOG.addHandler(log)
    try:
        with closing(asyncio.Runner()) as runner:
            _converse(channel, runner, log, most)
    except ConnectionError:
        return
    finally:
        LOG.removeHandler(log)


def _converse(channel: socket.socket, runner: asyncio.Runner, log: Collected, most: int) -> None:
    desk: AnyDesk | None = None
    first = True
    while (body := read(channel)) is not None:
        try:
            if desk is not None:
                answer = answered(desk, _call(body), runner)
            else:
                desk, answer = begun(spoken(body, FirstMessage))  # type: ignore[arg-type]  # a union is no type
        except NotDone as problem:
            answer = _not_done(problem)
        if log.text is not None:
            answer = msgspec.structs.replace(answer, trace=log.taken())
        channel.sendall(_bounded(answer, MOST_BYTES if first else most))
        first = False


def _bounded(answer: Answer, most: int) -> bytearray:
    """Return the frame of an answer; of one that is too large, what the server is told instead."""
    frame = framed(answer)
    size = len(frame) - LENGTH.size
    if size <= most:
        return frame
    moved = answer.outcome is not None or answer.batch is not None
    moved = moved or (answer.tool is not None and answer.tool.outcome is not None)
    return framed(_not_done(_too_large(f"the environment's answer has {size} bytes", f"at most {most}", moved=moved)))


def _too_large(message: str, expected: str, *, moved: bool) -> NotDone:
    """Return that an answer is too large: nothing is lost if the environment has not moved for it."""
    return (failed if moved else refused)(Code.TOO_LARGE, message, expected=expected)


def begun(first: FirstMessage) -> tuple[AnyDesk | None, Answer]:
    """Return the desk that the server asked for, or refuse; asked to describe it, the card and no desk."""
    if isinstance(first, Describe):
        return None, _described(first)
    desk = made_desk(
        Target(first.target, first.settings),
        Encoding(first.packed, first.compress),
        new_incident,
        num_envs=first.num_envs,
        autoreset_mode=first.autoreset_mode,
        infos=first.infos,
        scenes=first.scenes,
    )
    return desk, Answer()


def _described(first: Describe) -> Answer:
    """Return the card, or for the operator's eyes why there is none."""
    try:
        card = card_of(Target(first.target, first.settings))
        return Answer(card=msgspec.msgpack.encode(card))
    except RAISED as problem:
        LOG.error("an environment could not be described", exc_info=problem)
        return Answer(refused=WorkerProblem(str(problem)[:LONGEST_TRACE], Code.FACTORY_ERROR))


def answered(desk: AnyDesk, call: Call, runner: asyncio.Runner) -> Answer:
    """Return the desk's answer to a call."""
    try:
        found = _asked(desk, call)
        if type(found) is Outcome:
            return Answer(outcome=found)
        if inspect.isawaitable(found):
            found = runner.run(_awaited(found))
    except NotDone:
        raise
    except RAISED as problem:
        # A desk wraps what its environment raises in all methods but this one.
        number = new_incident()
        LOG.error("environment failed in %s, incident %s", call.method, number, exc_info=problem)
        raise failed(Code.EXECUTION_ERROR, f"the environment failed in {call.method}()", incident=number) from None
    return _as_answer(found)


def _asked(desk: AnyDesk, call: Call) -> Any:
    method = call.method
    if method == "step":
        return desk.step(call.data)
    if method == "call":
        return desk.call(call.tool, call.data)
    if method == "act":
        return desk.act(call.data)
    if method == "reset":
        return desk.reset(call.order)  # type: ignore[arg-type]  # the server always sends one
    return getattr(desk, method)()


async def _awaited(found: Any) -> Any:
    return await found


def _as_answer(found: Any) -> Answer:
    if isinstance(found, Outcome):
        return Answer(outcome=found)
    if isinstance(found, ToolAnswer):
        return Answer(tool=_short_enough(found))
    if isinstance(found, BatchOutcome):
        return Answer(batch=as_arrays(found))
    return Answer(state=found)


def _short_enough(found: ToolAnswer) -> ToolAnswer:
    """Return what a tool answered, or raise that it is more than an agent is told."""
    metadata = b"{}" if found.outcome is None else found.outcome.metadata
    for part, size, most in (
        ("text has {} characters", len(found.text), LONGEST_TEXT),
        ("content has {} bytes", len(found.content), MOST_CONTENT_BYTES),
        ("content has {} arrays and objects", containers_in(found.content), MOST_CONTAINERS),
        ("metadata have {} keys", keys_in(metadata), MOST_CONTAINERS),
    ):
        if size > most:
            message = f"a tool's answer is too large: its {part.format(size)}"
            raise _too_large(message, f"at most {most}", moved=found.outcome is not None)
    return found


def _not_done(problem: NotDone) -> Answer:
    said = worker_problem(problem.problem)
    return Answer(failed=said) if isinstance(problem, Failed) else Answer(refused=said)
