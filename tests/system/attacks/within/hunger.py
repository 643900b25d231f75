"""Taking all there is: processes, threads, memory, disk, processors, descriptors, time."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

from tests.system.attacks.within.tries import Tries, called, inside

PIECE = 2**20
FOR_EVER = 3600.0
MOST = 4096
SECONDS = 2.0


@contextmanager
def _children() -> Iterator[list[int]]:
    pids: list[int] = []
    try:
        yield pids
    finally:
        for pid in pids:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for pid in pids:
            os.waitpid(pid, 0)


@inside
def fork_bomb(tries: Tries) -> None:
    """Fork until there are no processes left."""
    with _children() as pids:
        try:
            for _ in range(MOST):
                pids.append(_waiting())
        except OSError as problem:
            tries.held("processes", len(pids) < MOST, f"{len(pids)} and then {problem.strerror}")
        else:
            tries.reached.append(f"{MOST} processes")


def _waiting() -> int:
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    return child


@inside
def fork_bomb_that_spreads(tries: Tries) -> None:
    """Have every child fork on without end, and leave orphans behind when the step is over."""
    for _ in range(4):
        with suppress(OSError):
            if os.fork() == 0:
                _spread(time.monotonic() + FOR_EVER)
    threading.Event().wait(SECONDS)
    tries.held("processes that spread", True, "have a limit, and end with the session")


def _spread(until: float) -> None:
    while time.monotonic() < until:
        try:
            os.fork()
        except OSError:
            threading.Event().wait(0.001)
    os._exit(0)


@inside
def thread_bomb(tries: Tries) -> None:
    """Start threads until there are none left."""
    over = threading.Event()
    threads: list[threading.Thread] = []
    try:
        for _ in range(MOST):
            thread = threading.Thread(target=over.wait, args=(FOR_EVER,), daemon=True)
            thread.start()
            threads.append(thread)
    except RuntimeError as problem:
        tries.held("threads", True, f"{len(threads)} and then {problem}")
    else:
        tries.reached.append(f"{MOST} threads")
    finally:
        over.set()
        for thread in threads:
            thread.join(300)


@inside
def memory_bomb(tries: Tries) -> None:
    """Take memory and write to it, until there is none left."""
    taken = [bytearray(os.urandom(64)) * (PIECE // 64) for _ in range(64 * 1024)]
    tries.reached.append(f"{len(taken)} MB")


@inside
def memory_in_files(tries: Tries) -> None:
    """Take memory that is no process's own: files without a name, pages in pipes, messages in sockets."""
    pieces = 0
    for _ in range(MOST):
        file = os.memfd_create("x")
        for _ in range(7):
            os.write(file, b"x" * PIECE)
            pieces += 1
        if pieces > 4096:
            break
    tries.reached.append(f"{pieces} MB in files without a name")


@inside
def full_disks(tries: Tries) -> None:
    """Write to the folders that are writable until they are full, in one file and in many."""
    for folder in ("/tmp", "/dev/shm"):
        written, problem = _filled(folder)
        tries.held(f"bytes in {folder}", written <= 64 * PIECE, f"{written >> 20} MB and then {problem}")
        made, problem = _littered(folder)
        tries.held(f"files in {folder}", made <= 20_000, f"{made} and then {problem}")


def _filled(folder: str) -> tuple[int, str]:
    # A file that grows beyond its limit would end the process.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    written = 0
    problem = ""
    for number in range(1000):
        with ExitStack() as stack:
            file = os.open(f"{folder}/large-{number}", os.O_CREAT | os.O_WRONLY)
            stack.callback(os.close, file)
            try:
                while True:
                    written += os.write(file, b"x" * PIECE)
            except OSError as full:
                problem = full.strerror or ""
                if problem == "No space left on device":
                    break
    for number in range(1000):
        with suppress(FileNotFoundError):
            Path(f"{folder}/large-{number}").unlink()
    return written, problem


def _littered(folder: str) -> tuple[int, str]:
    made = 0
    try:
        for made in range(100_000):  # how far it came is the answer
            os.close(os.open(f"{folder}/small-{made}", os.O_CREAT | os.O_WRONLY))
    except OSError as full:
        return made, full.strerror or ""
    return made, ""


@inside
def a_file_that_is_too_large(tries: Tries) -> None:
    """Write one file beyond its limit, which the kernel answers with a signal."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    with open("/tmp/large", "wb", buffering=0) as file:  # noqa: PTH123
        file.writelines(b"x" * PIECE for _ in range(MOST))
    tries.reached.append("a file of 4 GB")


@inside
def all_processors(tries: Tries) -> None:
    """Keep every processor busy with several processes, at the highest priority that it can get."""
    with _children() as pids:
        for _ in range(4):
            child = os.fork()
            if child == 0:
                _busy(time.monotonic() + FOR_EVER)
            pids.append(child)
        before = time.process_time()
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            pass
        used = time.process_time() - before
    tries.held("processors", used < SECONDS, f"{used:.1f} of {SECONDS} seconds for each of five")


def _busy(until: float) -> None:
    while time.monotonic() < until:
        pass
    os._exit(0)


@inside
def all_descriptors(tries: Tries) -> None:
    """Open files until there are no descriptors left."""
    opened: list[int] = []
    try:
        while len(opened) < 10 * MOST:
            opened.append(os.open("/dev/null", os.O_RDONLY))
    except OSError as problem:
        tries.held("descriptors", True, f"{len(opened)} and then {problem.strerror}")
    else:
        tries.reached.append(f"{len(opened)} descriptors")
    finally:
        for each in opened:
            os.close(each)


@inside
def core_dumps(tries: Tries) -> None:
    """End with a core dump, which would carry the memory out into the host's folder."""
    tries.held("the size of a core", resource.getrlimit(resource.RLIMIT_CORE) == (0, 0))
    for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGQUIT):
        child = os.fork()
        if child == 0:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        tries.held(f"a core after {number.name}", not os.WCOREDUMP(status), f"status {status:#x}")


@inside
def never_returns(tries: Tries) -> None:
    """Never come back from a step, with every signal ignored."""
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        with suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    while True:
        threading.Event().wait(FOR_EVER)


@inside
def leaves_at_once(tries: Tries) -> None:
    """End the process in the middle of a step."""
    os._exit(0)


@inside
def exits_by_exception(tries: Tries) -> None:
    """Raise what is no Exception: an exit, in the hope that the server goes with it."""
    sys.exit("goodbye, and canary is what I say")


@inside
def too_deep(tries: Tries) -> None:
    """Run out of stack, in Python and in C."""
    sys.setrecursionlimit(10**9)

    def deeper(number: int) -> int:
        return deeper(number + 1) + 1

    tries.reached.append(str(deeper(0)))


KEPT: list[object] = []
"""What is used up stays so until the session ends."""
F_SETPIPE_SZ, F_GETPIPE_SZ = 1031, 1032
LARGE_PIPE, USUAL_PIPE = 2**20, 2**16


@inside
def uses_up_counters(tries: Tries) -> None:
    """Queue signals, send descriptors that nobody takes, and make large pipes in several processes, until there are no more."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN})
    tries.denied.append(f"{_until_refused(_queue, 10 * MOST)} signals")
    pair = socket.socketpair()
    KEPT.append(pair)
    tries.denied.append(f"{_until_refused(partial(_send, pair[0]), MOST)} messages with descriptors")
    for _ in range(4):
        if os.fork() == 0:
            _until_refused(_keep_large_pipe, MOST)
            signal.pause()
    threading.Event().wait(SECONDS)


@inside
def counters_are_left(tries: Tries) -> None:
    """Do what needs a little of each of them, as any environment may."""
    works = _until_refused(_queue, 1) == 1
    tries.held("a signal that waits", works)
    pair = socket.socketpair()
    tries.held("a descriptor that is sent", _until_refused(partial(_send, pair[0]), 1) == 1)
    reader, _ = os.pipe()
    tries.held("a pipe of the usual size", fcntl.fcntl(reader, F_GETPIPE_SZ) >= USUAL_PIPE)
    tries.held("a large pipe", _until_refused(_keep_large_pipe, 1) == 1)


def _until_refused(do: Callable[[], object], most: int) -> int:
    """Return how often something could be done before the kernel refused it."""
    for number in range(most):
        try:
            do()
        except OSError:
            return number
    return most


def _queue() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN})
    called("sigqueue", os.getpid(), int(signal.SIGRTMIN), None)


def _send(channel: socket.socket) -> None:
    channel.setblocking(False)
    socket.send_fds(channel, [b"x"], [0] * 32)


def _keep_large_pipe() -> None:
    KEPT.append(ends := os.pipe())
    fcntl.fcntl(ends[0], F_SETPIPE_SZ, LARGE_PIPE)
