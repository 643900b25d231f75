"""What can be found in the process itself: objects, frames, closures, variables, descriptors."""

from __future__ import annotations

import ctypes
import gc
import os
import socket
import stat
import sys
import threading
from collections.abc import Iterator
from types import CellType, FunctionType
from typing import Any

from tests.system.attacks.within.tries import LIBC, Tries, inside

MOST_DESCRIPTORS = 1024
OWN = 3
"""How many descriptors lead nowhere: standard input, output and error."""
OWN_SOCKETS = 3
"""The one to the server, and the two ends of the event loop's own pair."""


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, bytes | bytearray | memoryview):
        yield bytes(value).decode("utf-8", "replace")
    elif isinstance(value, dict):
        for key, each in list(value.items()):
            yield from _texts(key)
            if isinstance(each, str | bytes | bytearray):
                yield from _texts(each)
    elif isinstance(value, list | tuple | set | frozenset):
        yield from (text for each in list(value) if isinstance(each, str | bytes | bytearray) for text in _texts(each))


def everything() -> list[Any]:
    """Return every object that the garbage collector knows, those that a zygote has laid aside among them."""
    gc.unfreeze()
    return gc.get_objects()


@inside
def closures(tries: Tries) -> None:
    """Look into the closures, defaults and globals of every function for secrets and for ways to the server."""
    functions = [each for each in everything() if isinstance(each, FunctionType)]
    cells = [cell for function in functions for cell in function.__closure__ or () if _is_filled(cell)]
    values = [cell.cell_contents for cell in cells]
    values += [default for function in functions for default in function.__defaults__ or ()]
    spaces = {id(function.__globals__): function.__globals__ for function in functions}
    values += [value for space in spaces.values() for value in list(space.values())]
    tries.found(f"{len(functions)} functions", (text for value in values for text in _texts(value)))
    servers = [
        type(value).__name__ for value in values if type(value).__name__ in {"Server", "Session", "Grants", "Sessions"}
    ]
    tries.held("objects of the server in closures", not servers, str(servers[:5]))


def _is_filled(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018  # an empty one raises
    except ValueError:
        return False
    return True


@inside
def garbage_collector(tries: Tries) -> None:
    """Ask the garbage collector for every object, and look for secrets, sockets, tokens and other sessions."""
    objects = everything()
    referents = (each for thing in objects for each in gc.get_referents(thing))
    texts = {each for each in referents if type(each) in (str, bytes)}
    tries.found(f"{len(objects)} objects", (text for each in texts for text in _texts(each)))
    names = {type(each).__name__ for each in objects}
    tries.held(
        "objects of the server", not names & {"Grants", "Sessions", "Redactor", "Credential", "Nest"}, str(len(names))
    )
    channels = {
        os.fstat(number).st_ino for number in range(MOST_DESCRIPTORS) if _is_open(number) and _is_socket(number)
    }
    tries.held("sockets besides its own", len(channels) <= OWN_SOCKETS, f"{len(channels)} sockets")


@inside
def frames(tries: Tries) -> None:
    """Climb up the frames of every thread and read what is in their locals and globals."""
    climbed: list[Any] = []
    for top in sys._current_frames().values():
        frame: Any = top
        while frame is not None:
            climbed += [*frame.f_locals.values(), *list(frame.f_globals.values())]
            frame = frame.f_back
    tries.found(f"{len(climbed)} values in frames", (text for value in climbed for text in _texts(value)))
    tries.held("threads of others", threading.active_count() == 1, f"{threading.active_count()} thread")


@inside
def environment_variables(tries: Tries) -> None:
    """Read the environment variables, as Python has them and as they lie in memory, and the command line."""
    block = ctypes.POINTER(ctypes.c_char_p).in_dll(LIBC, "environ")
    raw: list[str] = []
    while block[len(raw)] is not None:
        raw.append((block[len(raw)] or b"").decode("utf-8", "replace"))
    tries.found("variables", [*os.environ.values(), *raw, *sys.argv, *sys.orig_argv])
    tries.held(
        "variables named like the server's", not [name for name in os.environ if "PROCTOR" in name or "ANSWERS" in name]
    )


@inside
def descriptors(tries: Tries) -> None:
    """Look at every descriptor, and use those that are not its own: read, write, send, ask who is at the other end."""
    found = {number: os.fstat(number) for number in range(MOST_DESCRIPTORS) if _is_open(number)}
    files = [number for number, each in found.items() if stat.S_ISREG(each.st_mode) or stat.S_ISDIR(each.st_mode)]
    pipes = [number for number, each in found.items() if stat.S_ISFIFO(each.st_mode)]
    sockets = list(filter(_is_socket, found))
    tries.held("open files and folders", not files, str(files))
    tries.held("open pipes", not pipes, str(pipes))
    listening = [number for number in sockets if _peek(number).getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)]
    internet = [number for number in sockets if _peek(number).family != socket.AF_UNIX]
    tries.held("listening sockets", not listening, str(listening))
    tries.held("sockets of the network", not internet, str(internet))
    for number in range(OWN):
        tries.held(f"descriptor {number}", os.fstat(number).st_rdev == os.makedev(1, 3), "leads nowhere")


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _is_socket(number: int) -> bool:
    return stat.S_ISSOCK(os.fstat(number).st_mode)


def _peek(number: int) -> socket.socket:
    return socket.socket(fileno=os.dup(number))


@inside
def imported_modules(tries: Tries) -> None:
    """Import the server's own modules and look for what they hold: sessions, credentials, a running loop."""
    from proctor.access import credentials
    from proctor.server import agent_access, grants
    from proctor.server.control import plane

    values = [value for module in (credentials, agent_access, grants, plane) for value in vars(module).values()]
    tries.found("the server's modules", (text for value in values for text in _texts(value)))
    kinds = (agent_access.AgentAccess, grants.GrantRegistry, plane.ControlPlane)
    alive = [type(each).__name__ for each in everything() if isinstance(each, kinds)]
    tries.held("instances of the server's classes", not alive, str(alive))
    state = credentials.default_state_file(os.environ)
    tries.here("the server's credential", state.read_text)
