"""Container engines of the tests' own: a dockerd and a podman store in a private folder, gone afterwards."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proctor.errors import ComponentError
from proctor.server.sandbox.container.engine import Engine
from tests.server.live_server import until

PATIENCE = 120.0


@contextmanager
def own_folder() -> Iterator[Path]:
    """Give a folder with a short name: the path of a Unix socket may not be long."""
    folder = Path(tempfile.mkdtemp(prefix="pd-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def own_docker() -> Iterator[Engine]:
    """Give a docker whose daemon is ours: no bridge, no firewall rules, and nothing of it outside one folder."""
    with own_folder() as folder:
        address = f"unix://{folder}/docker.sock"
        command = [
            *("dockerd", "--host", address, "--data-root", str(folder / "data"), "--exec-root", str(folder / "exec")),
            *("--pidfile", str(folder / "pid"), "--iptables=false", "--bridge=none"),
        ]
        engine = Engine("docker", ("docker", "--host", address))
        with (folder / "log").open("wb") as log:
            daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        try:
            until(lambda: engine.answers() or daemon.poll() is not None, PATIENCE)
            assert daemon.poll() is None, (folder / "log").read_text()[-2000:]
            yield engine
        finally:
            daemon.terminate()
            try:
                daemon.wait(PATIENCE)
            finally:
                daemon.kill()


@contextmanager
def own_podman() -> Iterator[Engine]:
    """Give a podman whose store is ours; it has no daemon."""
    with own_folder() as folder:
        places = ("--root", str(folder / "root"), "--runroot", str(folder / "run"), "--tmpdir", str(folder / "tmp"))
        # An overlay is quicker by far, and cannot be had where this machine's own root is one.
        engines = [Engine("podman", ("podman", *places, "--storage-driver", driver)) for driver in ("overlay", "vfs")]
        engine = next(each for each in engines if works(each))
        try:
            yield engine
        finally:
            engine.remove([each.name for each in engine.containers("proctor")])


def works(engine: Engine) -> bool:
    """Return whether an engine has a place for images."""
    try:
        engine.facts()
    except ComponentError:
        return False
    return True
