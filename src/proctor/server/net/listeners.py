"""Listening sockets, and the ports that a server had before: its clients and agents come back to the same address.

Rule 1: a port that was asked for is taken or refused, as ever; only one that anybody may choose is remembered.
Rule 2: where a remembered port is taken by somebody else, a free one does for this run; what is remembered stays, because
    the other may be the very server that it was remembered for.
"""

import json
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from proctor.access.request_policy import HIGHEST_PORT
from proctor.errors import ValidationError

BACKLOG: Final = 2048
FILE: Final = "ports.json"


def bind_tcp(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to the address, or raise a ValidationError that says why not."""
    if not host:
        raise ValidationError(
            "cannot listen on no address", expected="a name or a number; 127.0.0.1 is this machine alone"
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named: asyncio's own loop sends small writes at once only on sockets of which it knows it.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), port))
    except OSError as problem:
        listener.close()
        raise ValidationError(
            f"cannot listen on {host}:{port}: {problem.strerror}", expected="a free port (0 takes any) on this machine"
        ) from None
    listener.listen(BACKLOG)
    return listener


def bind_unix(path: Path) -> socket.socket:
    """Return a socket at `path` that only its owner can connect to; a dead one in its place is removed."""
    if path.is_socket():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()
            except OSError:
                pass  # what it is, `bind` will say
            else:
                raise ValidationError(f"somebody listens on {path} already", expected="another path")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        path.chmod(0o600)
    except OSError as problem:
        listener.close()
        reason = problem.strerror or str(problem)
        raise ValidationError(f"cannot listen on {path}: {reason}", expected="a new path") from None
    listener.listen(BACKLOG)
    return listener


def port_of(listener: socket.socket) -> int | None:
    """Return the port that was really taken; None for a Unix socket."""
    return None if listener.family == socket.AF_UNIX else int(listener.getsockname()[1])


def bind_remembered_port(folder: Path | None, name: str, host: str, port: int) -> socket.socket:
    """Return a socket that listens on the port; for port 0, on the one that `name` had before, if it is free.

    What was had before is kept in the ledger's `folder`; without one nothing is remembered.
    """
    if port != 0 or folder is None:
        return bind_tcp(host, port)
    file = folder / FILE
    remembered: dict[str, int] = {}
    with suppress(OSError, msgspec.DecodeError):  # what cannot be read was not written down
        remembered = msgspec.json.decode(file.read_bytes(), type=dict[str, int])
    before = remembered.get(name, 0)
    if 0 < before <= HIGHEST_PORT:
        with suppress(ValidationError):
            return bind_tcp(host, before)
        return bind_tcp(host, 0)
    listener = bind_tcp(host, 0)
    _write_ports(file, remembered | {name: listener.getsockname()[1]})
    return listener


def _write_ports(file: Path, ports: dict[str, int]) -> None:
    """Write the ports down; where that is not possible, the ledger itself will say so."""
    beside = file.with_name(f"{file.name}.new")
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside.touch(mode=0o600)
        beside.write_text(json.dumps(ports, indent=1))
        beside.replace(file)
