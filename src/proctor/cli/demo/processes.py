"""The processes of the demo: a server as anybody would start it, and an agent that holds nothing but its grant.

Rule 1: whatever was started is ended with its block, however the block ends.
Rule 2: everything is kept in one folder, the credentials and the signing key too; the user's own are neither read nor made.
Rule 3: nothing is started in the terminal's own group: an interrupt reaches the demo alone, which ends the others in order.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, TypeAlias

import proctor
from proctor.access.credentials import CredentialKind, default_state_file
from proctor.access.secret_files import read_private
from proctor.cli.ledger_key import load_signing_key
from proctor.client.agents import Grant
from proctor.errors import ComponentError, ValidationError

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 15.0
TICK_SECONDS: Final = 0.02
SHOWN_LOG_LINES: Final = 12
"""Of a log, when something went wrong."""
Sink: TypeAlias = int | IO[bytes]
AGENT: Final = Path("examples") / "governed_agent.py"


class DemoFolder:
    """The folder of one demo, and what is where in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger: Final = folder / "ledger"
        self.public_key: Final = folder / "ledger-key.pub"
        self.server_log: Final = folder / "server.log"
        self.agent_log: Final = folder / "agent.log"

    @property
    def variables(self) -> dict[str, str]:
        """The environment of the server: ours, but for what names credentials and where they are kept."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith("PROCTOR_")}
        return {**ours, "XDG_STATE_HOME": str(self.folder / "state")}

    def secret(self, kind: CredentialKind) -> str:
        """Return a credential that the server has made."""
        return read_private(default_state_file(self.variables, kind), follow_links=False)

    def write_public_key(self) -> bytes:
        """Return the public key of the ledger, which is then in its file."""
        public = load_signing_key(self.variables).signer.public
        self.public_key.write_text(f"{public.hex()}\n")
        return public


@contextmanager
def run_server(place: DemoFolder, arguments: Sequence[str]) -> Iterator[str]:
    """Run `proctor serve` with these arguments and the demo's own for the block, and yield its address."""
    command = [sys.executable, "-m", "proctor", "serve", *arguments, "--ledger", str(place.ledger)]
    command += ["--port", "0", "--agent-port", "0", "--json"]
    with place.server_log.open("wb") as log, _run_process(command, place.variables, subprocess.PIPE, log) as process:
        yield _read_announcement(process, place)["url"]


@contextmanager
def run_agent(place: DemoFolder, grant: Grant, arguments: Sequence[str]) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the reference agent for the block, or until it has done; all that it is given is its grant."""
    command = [sys.executable, str(agent_file()), *arguments]
    given = {"PROCTOR_GRANT_ADDRESS": grant.address, "PROCTOR_GRANT_TOKEN": grant.token}
    with place.agent_log.open("wb") as log, _run_process(command, given, log, log, cwd=Path("/")) as process:
        yield process


def agent_file() -> Path:
    """Return where the reference agent is: in the package of an installation, or beside its source."""
    package = Path(proctor.__file__).resolve().parent
    for root in (package, package.parents[1]):
        if (root / AGENT).is_file():
            return root / AGENT
    raise ValidationError(f"there is no {AGENT}", expected="an installation with its examples")


def check_exit(process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Raise a ComponentError if a process that has ended by itself has failed."""
    if process.poll():
        raise ComponentError(f"the agent failed with exit code {process.returncode}:\n{_read_last_lines(log)}")


@contextmanager
def _run_process(
    command: Sequence[str], variables: Mapping[str, str], out: Sink, err: Sink, cwd: Path | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(  # noqa: S603  # our own interpreter with our own programs
        command,
        env=variables,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        _end_process(process)


def _end_process(process: "subprocess.Popen[bytes]") -> None:
    """End a process: it is asked first, and whoever interrupts that gets it done at once."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _read_announcement(process: "subprocess.Popen[bytes]", place: DemoFolder) -> dict[str, str]:
    """Return what a server says of itself when it is ready."""
    pipe = process.stdout
    if pipe is None:
        raise ComponentError("the server has no output to announce itself on")
    os.set_blocking(pipe.fileno(), False)
    said, deadline = b"", time.monotonic() + START_SECONDS
    while not said.endswith(b"\n"):
        if process.poll() is not None:
            raise ComponentError(f"the server did not start:\n{_read_last_lines(place.server_log)}")
        if time.monotonic() > deadline:
            raise ComponentError(f"the server did not start within {START_SECONDS:g} seconds")
        said += pipe.read() or b""
        time.sleep(TICK_SECONDS)
    document: dict[str, str] = json.loads(said)
    return document


def _read_last_lines(log: Path) -> str:
    return "\n".join(log.read_text("utf-8", "replace").splitlines()[-SHOWN_LOG_LINES:])
