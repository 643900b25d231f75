"""Sockets: to the server's ports, to the host, to the network, to the session next door."""

from __future__ import annotations

import os
import socket
from functools import partial
from pathlib import Path

from tests.system.attacks.within.tries import Tries, inside, syscall

SECONDS = 0.5
NAMES = ("example.com", "localhost", "metadata.google.internal", "registry")
UNIX_PATHS = (
    "/run/docker.sock",
    "/var/run/docker.sock",
    "/run/dbus/system_bus_socket",
    "/run/systemd/private",
    "/dev/log",
)
OTHER_FAMILIES = {
    "AF_NETLINK": (16, socket.SOCK_RAW, 0),
    "AF_PACKET": (17, socket.SOCK_RAW, 0),
    "AF_VSOCK": (40, socket.SOCK_STREAM, 0),
    "AF_ALG": (38, socket.SOCK_SEQPACKET, 0),
    "AF_KEY": (15, socket.SOCK_RAW, 2),
    "AF_BLUETOOTH": (31, socket.SOCK_RAW, 1),
    "AF_XDP": (44, socket.SOCK_RAW, 0),
    "AF_TIPC": (30, socket.SOCK_STREAM, 0),
    "AF_CAN": (29, socket.SOCK_RAW, 1),
    "AF_RDS": (21, socket.SOCK_SEQPACKET, 0),
    "AF_APPLETALK": (5, socket.SOCK_DGRAM, 0),
    "AF_QIPCRTR": (42, socket.SOCK_DGRAM, 0),
}


@inside
def ports_of_the_server(tries: Tries) -> None:
    """Connect to the control plane, the agent plane and other ports, by every address of this machine."""
    for address in ("127.0.0.1", "127.0.0.2", "::1", "0.0.0.0", *tries.clue.addresses):
        for port in (tries.clue.control_port, tries.clue.agent_port, 22, 80):
            tries.here(f"TCP {address}:{port}", partial(connected, address, port))


def connected(address: str, port: int) -> None:
    """Connect by TCP, and hang up."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as peer:
        peer.settimeout(SECONDS)
        peer.connect((address, port))


@inside
def the_network(tries: Tries) -> None:
    """Send datagrams, raw packets and pings, listen for others, and ask a cloud for its metadata."""
    for address in ("169.254.169.254", "8.8.8.8", "255.255.255.255", "224.0.0.1", *tries.clue.addresses):
        tries.here(f"TCP {address}:80", partial(connected, address, 80))
        tries.here(f"UDP {address}:53", partial(_sent, address))
    tries.here("raw packets", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW).close())
    tries.here("pings", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP).close())
    tries.here("a port of its own", lambda: socket.create_server(("127.0.0.1", 0)).close())
    tries.here(
        "the control port",
        lambda: socket.create_server(("127.0.0.1", tries.clue.control_port), reuse_port=True).close(),
    )


def _sent(address: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.sendto(b"x", (address, 53))


@inside
def names_of_hosts(tries: Tries) -> None:
    """Resolve names, with libc and by hand, which would carry out a secret in a name."""
    for name in NAMES:
        tries.here(f"address of {name}", partial(socket.getaddrinfo, name, 80, type=socket.SOCK_STREAM))
    for path in ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf"):
        tries.here(path, Path(path).read_bytes)


@inside
def local_sockets(tries: Tries) -> None:
    """Connect to the host's local sockets: by path, and by an abstract name on which the host listens."""
    for path in (*UNIX_PATHS, *tries.clue.files):
        tries.here(path, partial(met, path))
    tries.here("an abstract name of the host", partial(met, "\0" + tries.clue.abstract))
    for name in ("/tmp/.X11-unix/X0", "/org/freedesktop/systemd1/notify", "dbus-system"):
        tries.here(f"@{name}", partial(met, "\0" + name))


def met(address: str) -> None:
    """Connect to a local socket, and hang up."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(SECONDS)
        peer.connect(address)


@inside
def other_families(tries: Tries) -> None:
    """Open sockets of every other family: netlink, packets, virtual machines, cryptography, radio."""
    for name, (family, kind, protocol) in OTHER_FAMILIES.items():
        tries.here(name, partial(_opened, family, kind, protocol))
        tries.here(f"a pair of {name}", partial(_pair, family, kind, protocol))


def _opened(family: int, kind: int, protocol: int) -> None:
    os.close(syscall("socket", family, kind, protocol))


def _pair(family: int, kind: int, protocol: int) -> None:
    import ctypes

    syscall("socketpair", family, kind, protocol, ctypes.create_string_buffer(8))


@inside
def waits_at_a_meeting(tries: Tries) -> None:
    """Listen where another hostile session can come: on an abstract name and on paths of the folders that are writable."""
    for address in _meetings(tries.clue.meeting):
        try:
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(address)
            listener.listen()
        except OSError as problem:
            tries.denied.append(f"{address!r}: {problem}")
        else:
            KEPT.append(listener)
            tries.denied.append(f"{address!r}: listens")


KEPT: list[socket.socket] = []
"""Sockets on which somebody may come."""


@inside
def comes_to_a_meeting(tries: Tries) -> None:
    """Connect to another hostile session that has agreed on a name: abstract, or a path in a folder that is writable."""
    for address in _meetings(tries.clue.meeting):
        tries.here(f"a meeting at {address!r}", partial(met, address))


def _meetings(name: str) -> tuple[str, ...]:
    return "\0" + name, f"/tmp/{name}", f"/dev/shm/{name}"
