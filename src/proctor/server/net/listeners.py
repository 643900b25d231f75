"""Ports that were chosen for a server, so that its next run takes the same: clients and agents come back to an address.

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
from proctor.server.net.uvicorn_protocols import bind_tcp, port_of

FILE: Final = "ports.json"


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
