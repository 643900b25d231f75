"""Container engines of the tests' own: a dockerd and a podman store in a private folder, gone afterwards."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import proctor
from proctor.errors import ComponentError
from proctor.server.sandbox.pool.container_pool import Engine
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
            *("--storage-driver", "vfs"),
        ]
        engine = Engine("docker", ("docker", "--host", address))
        with (folder / "log").open("wb") as log:
            daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        try:
            until(lambda: _answers(engine) or daemon.poll() is not None, PATIENCE)
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
            engine.remove(engine.containers("proctor"))


def works(engine: Engine) -> bool:
    """Return whether an engine has a place for images."""
    try:
        engine.facts()
    except ComponentError:
        return False
    return True


# ------------------------------------------------------------------------------------------------------------- images
SITE = f"usr/lib/python{sysconfig.get_python_version()}/site-packages"
PACKAGES = (
    *("annotated_types", "farama_notifications", "gymnasium", "msgspec", "numpy", "numpy.libs", "pydantic"),
    *("pydantic_core", "typing_extensions.py", "typing_inspection"),
)
LEFT_OUT = {"site-packages", "test", "tests", "__pycache__", "idlelib", "ensurepip"}


def import_image(engine: Engine, name: str, *modules: Path) -> str:
    """Give an engine an image of this Python, Proctor, what its workers import, and some modules; return its name."""
    packages = Path(site.getsitepackages()[0])
    tree = {
        "usr/bin/python3": Path(sys.executable).resolve(),
        str(Path(SITE).parent): Path(sysconfig.get_path("stdlib")),
    }
    tree |= {f"{SITE}/{path.name}": path for path in (*(packages / each for each in PACKAGES), *modules)}
    tree[f"{SITE}/proctor"] = Path(proctor.__file__).parent
    binaries = [
        path
        for each in tree.values()
        for path in (each, *each.rglob("*.so*"))
        if path.is_file() and not LEFT_OUT & set(path.relative_to(each).parts)
    ]
    said = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False).stdout.split()
    libraries = {os.path.normpath(word) for word in said if word.startswith("/") and word[-1] != ":"}
    tree |= {library[1:]: Path(library) for library in libraries if str(packages) not in library}
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(f"{folder}/root.tar", "w", dereference=True) as tar:
            # Docker makes folders that are not named for root alone.
            for each in sorted({str(parent) for place in tree for parent in Path(place).parents} - {".", *tree}):
                tar.add("/usr", each, recursive=False)
            for place, path in tree.items():
                tar.add(path, place, filter=readable)
        engine.run(
            "import", "--change", "ENV PATH=/usr/local/bin:/usr/bin", f"{folder}/root.tar", name, seconds=PATIENCE
        )
    return name


def readable(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    entry.mode |= 0o555 if entry.isdir() else 0o444
    name = Path(entry.name).name
    return None if name in LEFT_OUT or name.startswith("config-") else entry


def derive(engine: Engine, base: str, name: str, *changes: str, files: Path | None = None) -> str:
    """Make an image of another by lines of a Dockerfile, with a folder on top; return its name."""
    engine.run("create", "--pull", "never", "--network", "none", "--name", "deriving", base, "nothing")
    try:
        if files is not None:
            engine.run("cp", str(files), "deriving:/")
        engine.run(
            "commit", *(word for each in changes for word in ("--change", each)), "deriving", name, seconds=PATIENCE
        )
    finally:
        engine.remove(["deriving"])
    return name


def _answers(engine: Engine) -> bool:
    with suppress(ComponentError):
        engine.check()
        return True
    return False
