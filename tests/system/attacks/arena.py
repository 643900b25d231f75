"""A server under attack: a process as anybody would start it, its log, its record, and its secrets.

Rule 1: everything that must not get out is a canary: it is there on purpose, is found nowhere by chance, and is looked for
    in every byte that an attacker got.
Rule 2: what the attacks of one side cannot know (the control credential, the seeds) is known here only.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

from websockets.sync.client import ClientConnection, connect

from tests.server.commands import Command, serve
from tests.server.live_server import Served, Session, Talk, until

CONTROL_SECRET: Final = "canary-control-5vN2kQ8wJ4xR7tZ1"
VARIABLE, IN_VARIABLE = "ANSWERS_OF_THE_SERVER", "canary-variable-9fH3mB6sL0"
IN_FILE: Final = "canary-file-2pX7dK5gT8"
CANARIES: Final = (CONTROL_SECRET, IN_VARIABLE, IN_FILE)
"""What is in every arena."""
LARGEST_MESSAGE: Final = 512 * 2**20


@dataclass(frozen=True, slots=True)
class Trail:
    """A file that grows by whole lines of JSON."""

    path: Path

    @property
    def end(self) -> int:
        """Where it ends now."""
        return self.path.stat().st_size

    def text(self, start: int = 0) -> bytes:
        """Return what was written from some place on."""
        with self.path.open("rb") as file:
            file.seek(start)
            return file.read()

    def lines(self, start: int = 0) -> list[dict[str, Any]]:
        """Return what was written from some place on, line by line; a last line that has no end yet is left out."""
        text = self.text(start)
        return [json.loads(line) for line in text[: text.rfind(b"\n") + 1].splitlines()]


@dataclass
class Arena:
    """A running server."""

    command: Command
    document: dict[str, Any]
    log: Trail
    record: Trail
    canary_file: Path
    secret: str
    """The control credential."""

    @property
    def control_port(self) -> int:
        return _port(self.document["url"])

    @property
    def agent_port(self) -> int:
        return _port(self.document["agents"][0])

    def connect(self, **keywords: Any) -> ClientConnection:
        """Return an open WebSocket of the orchestrator; whoever asked closes it."""
        headers = {"Authorization": f"Bearer {self.secret}"}
        opening: Any = connect(
            self.document["websocket"],
            additional_headers=headers,
            compression=None,
            max_size=LARGEST_MESSAGE,
            **keywords,
        )
        socket: ClientConnection = opening.__enter__()
        return socket

    def talk(self) -> Talk:
        """Return a connection that said hello."""
        return Talk(cast("Served", self), greet=True)

    @contextmanager
    def session(self, **wish: Any) -> Iterator[Session]:
        """Give a session, which is closed at the end if it is still there."""
        with self.talk() as talk:
            session = Session(talk, **wish)
            try:
                yield session
            finally:
                session.ask("close")

    def logged(self, start: int, *words: str) -> list[dict[str, Any]]:
        """Return the lines of the log from some place on that have all the words, as soon as there are some."""

        def found() -> list[dict[str, Any]]:
            return [line for line in self.log.lines(start) if all(word in json.dumps(line) for word in words)]

        return cast("list[dict[str, Any]]", until(found))

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.command.process.poll() is None


@contextmanager
def arena(
    home: Path,
    target: str,
    *arguments: str,
    config: str = "",
    more: Mapping[str, str] | None = None,
    secret: str = CONTROL_SECRET,
    plain: bool = False,
) -> Iterator[Arena]:
    """Serve a target in the strict sandbox, with both planes, a log and a record, until the block ends.

    The credential comes from the environment, unless the arguments name a file with it. A plain log is one for people.
    """
    home.mkdir(parents=True, exist_ok=True)
    record, settings, canary = home / "record.jsonl", home / "settings.toml", home / "answers.txt"
    settings.write_text(config)
    canary.write_text(IN_FILE)
    canary.chmod(0o644)
    fixed = ("--config", str(settings), "--record", str(record), "--port", "0", "--agent-port", "0")
    sandbox = () if "--sandbox" in arguments else ("--sandbox", "strict")
    variables = {
        VARIABLE: IN_VARIABLE,
        **({} if "--token-file" in arguments else {"PROCTOR_CONTROL_TOKEN": secret}),
        **(more or {}),
    }
    lines = () if plain else ("--log-json",)
    with serve(home, target, *fixed, *sandbox, "--json", *lines, *arguments, more=variables) as command:
        yield Arena(command, command.document, Trail(home / "err"), Trail(record), canary, secret)


def without(canaries: Iterable[str], heard: bytes, where: str) -> None:
    """Raise if a canary is in some bytes: as it is, or in hexadecimal or base64."""
    for canary in canaries:
        for form in _forms(canary):
            assert form not in heard, f"{canary} is in {where}: ...{_around(heard, form)!r}"


def _forms(canary: str) -> tuple[bytes, ...]:
    plain = canary.encode()
    return plain, plain.hex().encode(), b64encode(plain).rstrip(b"=")[:-1]


def _around(heard: bytes, form: bytes) -> bytes:
    place = heard.index(form)
    return heard[max(0, place - 100) : place + 200]


def _port(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port
