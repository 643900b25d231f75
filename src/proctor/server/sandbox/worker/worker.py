"""The environment's process: one adapter, which reads calls from one socket and answers them one by one until it closes.

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
from pathlib import Path
from typing import Any, Final, NoReturn, cast

import msgspec
import numpy as np

from proctor import __version__
from proctor.envs.targets import Target
from proctor.errors import ProctorError
from proctor.models.control import Code
from proctor.models.wire import Encoding
from proctor.server.runtime import results
from proctor.server.runtime.env_adapter import describe_target
from proctor.server.runtime.executors import AnyAdapter, make_adapter
from proctor.server.sandbox import messages
from proctor.server.sandbox.tiers import HOME, Tier
from proctor.server.sandbox.worker import confine

MODULE: Final = "proctor.server.sandbox.worker.worker"
LONGEST_PROBLEM: Final = 4096
LOG: Final = logging.getLogger("proctor.environment")
_decode_call: Final = msgspec.msgpack.Decoder(messages.WorkerCall).decode


class LogCollector(logging.Handler):
    """Keeps the end of what is logged until it is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.text: str | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record, with its traceback."""
        text = self.format(record)
        self.text = (text if self.text is None else f"{self.text}\n{text}")[-messages.LONGEST_TRACE :]

    def take_text(self) -> str | None:
        """Return what there is, which is then gone."""
        text, self.text = self.text, None
        return text


def run_worker(descriptor: int, start: messages.StartMessage) -> NoReturn:
    """Be a worker for the socket with this descriptor: what is left of a zygote after its fork. Never returns."""
    code = 1
    try:
        # What a module of the zygote's has open is none of ours; the first three lead nowhere.
        os.closerange(3, descriptor)
        os.closerange(descriptor + 1, os.sysconf("SC_OPEN_MAX"))
        with socket.socket(fileno=descriptor) as channel:
            if _confine(channel, start):
                serve(channel, start.limits.answer_bytes)
        code = 0
    finally:
        # Nothing that the zygote would do at its end is done here.
        os._exit(code)


def _confine(channel: socket.socket, start: messages.StartMessage) -> bool:
    """Give up what the tier takes away, in step with the server; return whether the work may begin."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # A group of processes of its own, so that what the environment starts can be ended with it.
    os.setsid()
    if start.tier is Tier.PROCESS:
        confine.die_with_parent()
    messages.send_handshake(channel, messages.HERE)
    if messages.receive_handshake(channel).kind != messages.GO:
        return False
    step = messages.UNFIT
    try:
        if start.tier is Tier.STRICT and not start.alone:
            step = messages.NO_NAMESPACES
            confine.own_namespaces(start.limits, partial(_ask_for_user, channel) if start.own_users else None)
            step = messages.UNFIT
        # Python's own generator begins anew after a fork; of NumPy's all workers would draw the same.
        np.random.seed()  # noqa: NPY002  # the legacy generator is what has to be seeded
        confine.settle(start.tier, start.limits, network=start.network)
    except OSError as problem:
        messages.send_handshake(channel, step, str(problem))
        return False
    messages.send_handshake(channel, messages.READY)
    return True


def _ask_for_user(channel: socket.socket) -> None:
    """Have the server map this worker's user to one that no other worker is."""
    messages.send_handshake(channel, messages.UNMAPPED)
    if messages.receive_handshake(channel).kind != messages.GO:
        raise ConnectionResetError("the server gave no user")


def serve(channel: socket.socket, most: int = messages.MOST_BYTES) -> None:
    """Answer what comes over the socket until the other side closes it, with at most so many bytes each time."""
    log = LogCollector()
    LOG.addHandler(log)
    try:
        with closing(asyncio.Runner()) as runner:
            _answer_calls(channel, runner, log, most)
    except ConnectionError:
        return
    finally:
        LOG.removeHandler(log)


def _answer_calls(channel: socket.socket, runner: asyncio.Runner, log: LogCollector, most: int) -> None:
    adapter: AnyAdapter | None = None
    first = True
    while (body := messages.read_message(channel)) is not None:
        try:
            if adapter is not None:
                answer = answer_call(adapter, _decode_call(body), runner)
            else:
                adapter, answer = handle_first_message(messages.decode_message(body, messages.FirstMessage))  # type: ignore[arg-type]  # a union is no type
        except results.RequestError as problem:
            answer = _to_problem_reply(problem)
        if log.text is not None:
            answer = msgspec.structs.replace(answer, trace=log.take_text())
        channel.sendall(_encode_within(answer, messages.MOST_BYTES if first else most))
        first = False


def _encode_within(answer: messages.WorkerReply, most: int) -> bytearray:
    """Return the frame of an answer; of one that is too large, what the server is told instead."""
    frame = messages.encode_frame(answer)
    size = len(frame) - messages.LENGTH.size
    if size <= most:
        return frame
    moved = answer.outcome is not None or answer.batch is not None
    moved = moved or (answer.tool is not None and answer.tool.outcome is not None)
    problem = _too_large_error(f"the environment's answer has {size} bytes", f"at most {most}", moved=moved)
    return messages.encode_frame(_to_problem_reply(problem))


def _too_large_error(message: str, expected: str, *, moved: bool) -> results.RequestError:
    return (results.make_failure if moved else results.make_refusal)(Code.TOO_LARGE, message, expected=expected)


def handle_first_message(first: messages.FirstMessage) -> tuple[AnyAdapter | None, messages.WorkerReply]:
    """Return the adapter that the server asked for, or refuse; asked to describe it, the description and no adapter."""
    if isinstance(first, messages.Describe):
        try:
            card = describe_target(Target(first.target, first.settings))
            return None, messages.WorkerReply(card=msgspec.msgpack.encode(card))
        except results.USER_CODE_ERRORS as problem:
            # For the operator's eyes.
            LOG.error("an environment could not be described", exc_info=problem)
            refused = messages.WorkerProblem(str(problem)[: messages.LONGEST_TRACE], Code.FACTORY_ERROR)
            return None, messages.WorkerReply(refused=refused)
    adapter = make_adapter(
        Target(first.target, first.settings),
        Encoding(first.packed, first.compress),
        results.new_incident,
        num_envs=first.num_envs,
        autoreset_mode=first.autoreset_mode,
        infos=first.infos,
        scenes=first.scenes,
    )
    return adapter, messages.WorkerReply()


def answer_call(adapter: AnyAdapter, call: messages.WorkerCall, runner: asyncio.Runner) -> messages.WorkerReply:
    """Return the adapter's answer to a call."""
    try:
        found = _dispatch_call(adapter, call)
        if type(found) is results.EnvOutcome:
            return messages.WorkerReply(outcome=found)
        if inspect.isawaitable(found):
            found = runner.run(_await_value(found))
    except results.RequestError:
        raise
    except results.USER_CODE_ERRORS as problem:
        # An adapter wraps what its environment raises in all methods but this one.
        number = results.new_incident()
        LOG.error("environment failed in %s, incident %s", call.method, number, exc_info=problem)
        message = f"the environment failed in {call.method}()"
        raise results.make_failure(Code.EXECUTION_ERROR, message, incident=number) from None
    if isinstance(found, results.EnvOutcome):
        return messages.WorkerReply(outcome=found)
    if isinstance(found, results.ToolOutcome):
        return messages.WorkerReply(tool=_check_tool_size(found))
    if isinstance(found, results.BatchOutcome):
        return messages.WorkerReply(batch=messages.encode_batch(found))
    return messages.WorkerReply(state=found)


def _dispatch_call(adapter: AnyAdapter, call: messages.WorkerCall) -> Any:
    method = call.method
    if method == "step":
        return adapter.step(call.data)
    if method == "call":
        return adapter.call(call.tool, call.data)
    if method == "act":
        return adapter.act(call.data)
    if method == "reset":
        return adapter.reset(call.order)  # type: ignore[arg-type]  # the server always sends one
    return getattr(adapter, method)()


async def _await_value(found: Any) -> Any:
    return await found


def _check_tool_size(found: results.ToolOutcome) -> results.ToolOutcome:
    metadata = b"{}" if found.outcome is None else found.outcome.metadata
    for part, size, most in (
        ("text has {} characters", len(found.text), results.LONGEST_TEXT),
        ("content has {} bytes", len(found.content), results.MOST_CONTENT_BYTES),
        ("content has {} arrays and objects", messages.count_containers(found.content), results.MOST_CONTAINERS),
        ("metadata have {} keys", messages.count_keys(metadata), results.MOST_CONTAINERS),
    ):
        if size > most:
            message = f"a tool's answer is too large: its {part.format(size)}"
            raise _too_large_error(message, f"at most {most}", moved=found.outcome is not None)
    return found


def _to_problem_reply(problem: results.RequestError) -> messages.WorkerReply:
    said = messages.to_worker_problem(problem.problem)
    if isinstance(problem, results.RequestFailed):
        return messages.WorkerReply(failed=said)
    return messages.WorkerReply(refused=said)


class StreamSocket:
    """Two streams that are read and written like one socket: no socket reaches a worker in a container."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    def recv(self, most: int) -> bytes:
        """Return what has come, at least one byte; nothing when the other side has closed."""
        return os.read(self._incoming, most)

    def sendall(self, message: bytes | bytearray) -> None:
        """Send a whole message; a ConnectionError if nobody reads it any more."""
        rest = memoryview(message)
        while rest:
            rest = rest[os.write(self._outgoing, rest) :]


def main() -> None:
    """Serve standard input and output until the other side closes them.

    Before anything of the environment is imported, the two streams are moved where no `print` finds them. What is written to
    standard output and error then leads nowhere.
    """
    # Not inherited by what the environment starts, and read like a socket is: `recv` and `sendall` are all that is used.
    channel = cast("socket.socket", StreamSocket(os.dup(0), os.dup(1)))
    # Not by the engine: it would make a folder that is not in the image, with rights that nobody has there.
    os.chdir(HOME)
    messages.silence_output()
    body = messages.read_message(channel)
    if body is None:
        return
    start = messages.decode_message(body, messages.StartMessage)
    answer = confine_and_load(start)
    channel.sendall(messages.encode_frame(answer))
    if answer.problem is None:
        serve(channel, start.limits.answer_bytes)


def confine_and_load(start: messages.StartMessage) -> messages.LoadReport:
    """Take away what a strict worker gives up, import the target's module, and return how that went."""
    try:
        confine.settle(Tier.STRICT, start.limits, network=start.network)
    except OSError as problem:
        return messages.LoadReport(f"the worker could not be confined: {problem}", version=__version__)
    return load_target(Target(start.target, start.settings))


def load_target(target: Target) -> messages.LoadReport:
    """Import what makes the target, and say how that went; nothing is made."""
    try:
        target.load()
    except results.USER_CODE_ERRORS as problem:
        reason = str(problem) if isinstance(problem, ProctorError) else f"{type(problem).__name__}: {problem}"
        return messages.LoadReport(reason[:LONGEST_PROBLEM], version=__version__)
    return messages.LoadReport(threads=len(list(Path("/proc/self/task").iterdir())) - 1, version=__version__)


if __name__ == "__main__":
    main()
