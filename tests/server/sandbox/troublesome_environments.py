"""Environments that do to their worker, or to the server, what one must not; an action of 9 (`TROUBLE`) asks for it."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from proctor.contracts.environment import Environment
from proctor.contracts.tools import ToolSafety, tool
from proctor.models.wire import State
from proctor.server.sandbox.messages import LENGTH, MOST_BYTES, WorkerReply, encode_frame
from tests.server.environments import HIDDEN_TEXT, PATIENCE, TROUBLE, Count, Counting, Move


def own_socket() -> socket.socket:
    """Return the worker's socket, which it holds by the first descriptor that is one."""
    for number in range(3, 256):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                return socket.socket(fileno=os.dup(number))
    raise RuntimeError("there is no socket")


def say(*frames: bytes | bytearray) -> None:
    with own_socket() as channel:
        for frame in frames:
            channel.sendall(frame)


def flood() -> None:
    end = time.monotonic() + PATIENCE
    with own_socket() as channel:
        while time.monotonic() < end:
            channel.sendall(bytes(2**16))


def spin() -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        pass


def hang() -> None:
    threading.Event().wait(PATIENCE)


def speak_later() -> None:
    threading.Timer(0.05, say, (encode_frame(WorkerReply()),)).start()


def fail() -> None:
    raise RuntimeError(HIDDEN_TEXT)


def interrupt() -> None:
    raise KeyboardInterrupt


TROUBLES: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "raise": fail,
    "exit": lambda: sys.exit(0),
    "interrupt": interrupt,
    "os_exit": lambda: os._exit(0),
    "segfault": lambda: ctypes.string_at(0),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "hang": hang,
    "spin": spin,
    "flood": flood,
    "nonsense": lambda: say(LENGTH.pack(4) + b"\xc1\xc1\xc1\xc1"),
    "huge": lambda: say(LENGTH.pack(MOST_BYTES + 1)),
    "twice": lambda: say(encode_frame(WorkerReply()), encode_frame(WorkerReply())),
    "later": speak_later,
}


class Troubled(Counting):
    """Counts; does `how` in the method `where`, in a step only if told to."""

    def __init__(self, how: str = "none", where: str = "step") -> None:
        super().__init__()
        self.how, self.where = how, where
        self.trouble("make")

    def trouble(self, method: str) -> None:
        if method == self.where:
            TROUBLES[self.how]()

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Count:
        self.trouble("reset")
        return super().reset(seed, episode_id)

    def stepped(self, action: Move) -> Count:
        if action.action == TROUBLE:
            self.trouble("step")
        return super().stepped(action)

    def close(self) -> None:
        self.trouble("close")


class Hungry(Counting):
    """Takes `mebibytes` of memory in a step, if told to."""

    def __init__(self, mebibytes: int) -> None:
        super().__init__()
        self.mebibytes = mebibytes

    def stepped(self, action: Move) -> Count:
        if action.action == TROUBLE:
            self.held = np.ones(self.mebibytes * 2**17)
        return super().stepped(action)


class Parent(Counting):
    """Starts a process that goes on for a long time, and says its number."""

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Count:
        started = subprocess.Popen(["sleep", "300"])
        return Count(observation=started.pid)


class Drawing(Counting):
    """Says numbers that it draws from NumPy's global generator."""

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Count:
        return Count(observation=int(np.random.randint(2**31)))  # noqa: NPY002  # that is the one it is about


class Tooled(Environment[Move, Count, State]):
    """Counts, and has tools that read, act and fail."""

    def __init__(self) -> None:
        self.steps = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Count:
        self.steps = 0
        return Count(observation=0)

    def step(self, action: Move) -> Count:
        self.steps += 1
        return Count(observation=self.steps, reward=float(action.action))

    @property
    def state(self) -> State:
        return State(step_count=self.steps)

    @tool(ToolSafety.READ)
    def look(self) -> int:
        """Return how many steps there were."""
        return self.steps

    @tool(ToolSafety.WRITE)
    def go(self, times: int) -> list[Move]:
        """Go some steps."""
        return [Move(action=1)] * times

    @tool(ToolSafety.READ)
    def fall(self) -> int:
        """Fail."""
        raise RuntimeError(HIDDEN_TEXT)


class Wordy(Tooled):
    """Says `size` characters in whatever it says, and has tools that say a lot of one kind."""

    agent_info = ("word",)

    def __init__(self, size: int = 1) -> None:
        super().__init__()
        self.word = "x" * size

    def step(self, action: Move) -> Count:
        return super().step(action).model_copy(update={"metadata": {"word": self.word}})

    @property
    def state(self) -> State:
        return State(step_count=self.steps, episode_id=self.word)

    @tool(ToolSafety.READ)
    def speak(self) -> str:
        """Return a long word."""
        return self.word

    @tool(ToolSafety.READ)
    def enumerate(self, count: int) -> list[list[int]]:
        """Return so many lists."""
        return [[]] * count


OPENED = os.open(os.devnull, os.O_RDONLY)
"""What a module opens while it is imported; no worker has it."""
NOTES: list[str] = []
"""What was noted while this module was imported, or by the workers of one zygote; each worker has its own."""


class Noting(Counting):
    """Says how many notes there are, and makes one."""

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Count:
        NOTES.append("reset")
        return Count(observation=len(NOTES))
