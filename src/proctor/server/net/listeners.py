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
        _remove_dead(path)
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


def _remove_dead(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError:
            return
    raise ValidationError(f"somebody listens on {path} already", expected="another path")


def remove_socket_path(path: Path) -> None:
    """Remove a socket's path when the server has gone."""
    with suppress(FileNotFoundError):
        path.unlink()


def port_of(listener: socket.socket) -> int | None:
    """Return the port that was really taken; None for a Unix socket."""
    if listener.family == socket.AF_UNIX:
        return None
    port: int = listener.getsockname()[1]
    return port


class RememberedPorts:
    """The ports of the server that keeps its ledger in `folder`; without one nothing is remembered."""

    def __init__(self, folder: Path | None) -> None:
        self._file = None if folder is None else folder / FILE

    def bind(self, name: str, host: str, port: int) -> socket.socket:
        """Return a socket that listens on the port; for port 0, on the one that `name` had before, if it is free."""
        if port != 0 or self._file is None:
            return bind_tcp(host, port)
        remembered = self._read_ports(self._file)
        before = remembered.get(name, 0)
        listener = self._bind_again(host, before) or bind_tcp(host, 0)
        if not 0 < before <= HIGHEST_PORT:
            self._write_ports(self._file, remembered | {name: port_of(listener) or 0})
        return listener

    def _bind_again(self, host: str, port: int) -> socket.socket | None:
        if 0 < port <= HIGHEST_PORT:
            with suppress(ValidationError):
                return bind_tcp(host, port)
        return None

    def _read_ports(self, file: Path) -> dict[str, int]:
        """Return what was written down; what cannot be read was not."""
        try:
            return msgspec.json.decode(file.read_bytes(), type=dict[str, int])
        except (OSError, msgspec.DecodeError):
            return {}

    def _write_ports(self, file: Path, ports: dict[str, int]) -> None:
        """Write the ports down; where that is not possible, the ledger itself will say so."""
        beside = file.with_name(f"{file.name}.new")
        with suppress(OSError):
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            beside.touch(mode=0o600)
            beside.write_text(json.dumps(ports, indent=1))
            beside.replace(file)
