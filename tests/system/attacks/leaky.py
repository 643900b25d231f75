"""An environment that was told secrets, and that says them whenever something goes wrong.

Each way in `WAYS` is another manner in which the text of an exception comes to hold what its environment knows.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

from proctor.contracts.environment import Environment
from proctor.contracts.tools import ToolSafety, tool
from proctor.models.wire import Action, Observation, State

LONG: Final = 16 * 2**10
"""As much of a traceback as leaves a worker."""
Secrets = list[str]


class Nudge(Action):
    """In which way to go wrong; an empty one: not at all."""

    way: str


class Calm(Observation):
    """That nothing went wrong."""

    count: int = 0


def _plainly(known: Secrets) -> None:
    local = list(known)
    raise RuntimeError(f"cannot log in with {', '.join(local)}")


def _in_an_address(known: Secrets) -> None:
    raise ConnectionError(f"no answer from https://user:{known[1]}@db.example/{known[0]}?token={known[2]}")


def _as_a_key(known: Secrets) -> None:
    raise KeyError(known[0], {"password": known[1], known[2]: known})


def _one_after_the_other(known: Secrets) -> None:
    try:
        raise ValueError(known[0])
    except ValueError as problem:
        raise OSError(5, known[1], known[2]) from problem


def _with_notes(known: Secrets) -> None:
    problem = RuntimeError("with notes")
    for each in known:
        problem.add_note(f"tried {each!r}")
    raise problem


def _several_at_once(known: Secrets) -> None:
    raise ExceptionGroup("several", [RuntimeError(each) for each in known])


def _in_other_letters(known: Secrets) -> None:
    forms = [base64.b64encode(each.encode()).decode() for each in known]
    forms += [each.encode().hex() for each in known] + [quote(each, safe="") for each in known]
    raise RuntimeError(f"{forms} {base64.b64encode(f'user:{known[0]}'.encode()).decode()}")


def _as_json(known: Secrets) -> None:
    raise RuntimeError(json.dumps({"settings": known, "deep": [{"x": each} for each in known]}))


def _as_python(known: Secrets) -> None:
    raise RuntimeError(repr(known), repr([each.encode() for each in known]), ascii(known))


def _in_its_name(known: Secrets) -> None:
    raise type(f"Problem{known[0]}", (Exception,), {"__module__": known[2]})(known[1])


def _beside(known: Secrets) -> None:
    """Say it everywhere else: streams, the log of everybody, warnings, and a thread that dies of it."""
    print(*known, flush=True)
    print(*known, file=sys.stderr, flush=True)
    for name in ("", "proctor.server", "proctor.environment", "uvicorn"):
        logging.getLogger(name).error("known: %s", known, extra={"known": known})
    warnings.warn(" ".join(known), stacklevel=1)
    thread = threading.Thread(target=_plainly, args=(known,))
    thread.start()
    thread.join()
    raise RuntimeError("beside")


def _cut_in_half(known: Secrets) -> None:
    raise RuntimeError("x" * 1000 + known[0] + "y" * (LONG - len(known[0]) // 2))


def _cut_in_half_again(known: Secrets) -> None:
    raise RuntimeError("x" * 1000 + known[0] + "y" * (LONG // 2 - len(known[0]) // 2))


def _at_the_edge(known: Secrets) -> None:
    raise RuntimeError(("-".join(known) + "-") * 300)


def _by_dying(known: Secrets) -> None:
    os.write(2, " ".join(known).encode())
    os._exit(3)


WAYS: Final[dict[str, Callable[[Secrets], None]]] = {
    each.__name__.strip("_"): each
    for each in (
        _plainly, _in_an_address, _as_a_key, _one_after_the_other, _with_notes, _several_at_once, _in_other_letters, _as_json,
        _as_python, _in_its_name, _beside, _cut_in_half, _cut_in_half_again, _at_the_edge, _by_dying,
    )
}  # fmt: skip


class Leaky(Environment[Nudge, Calm, State]):
    """Was told an API key, a password and tokens."""

    def __init__(self, api_key: str, database: dict[str, Any], accounts: list[dict[str, Any]], level: int = 1) -> None:
        self._known = [api_key, database["password"], accounts[0]["token"], accounts[0]["deep"]["credential"]]
        self._count = 0
        self._broken = ""
        self._level = level

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Calm:
        self._count = 0
        return Calm()

    def step(self, action: Nudge) -> Calm:
        if action.way.startswith("state "):
            self._broken = action.way.removeprefix("state ")
        elif action.way:
            WAYS[action.way](self._known)
        self._count += 1
        return Calm(count=self._count)

    @property
    def state(self) -> State:
        if self._broken:
            WAYS[self._broken](self._known)
        return State(step_count=self._count)

    @tool(ToolSafety.WRITE)
    def nudge(self, way: str) -> Nudge:
        """Go wrong in some way."""
        return Nudge(way=way)

    @tool(ToolSafety.READ)
    def look(self, way: str = "") -> int:
        """Go wrong while nothing is done."""
        if way:
            WAYS[way](self._known)
        return self._count
