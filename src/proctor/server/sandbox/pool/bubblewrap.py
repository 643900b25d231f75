"""How a process is started in bubblewrap, and which files it sees there.

Rule 1: what is visible is named: the system's libraries, this Python with its packages, `proctor` itself, the target's
    top-level module, and the mounts of the settings. Never a home, never the working directory.
Rule 2: everything is read-only but a sized tmpfs and mounts that the settings call writable.
Rule 3: nothing is executed to find out what a target needs.
Rule 4: there is never a network: one that a sandbox shared with this host would lead to its loopback addresses.
"""

import importlib.util
import os
import shutil
import site
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import proctor
from proctor.server.sandbox.tiers import HOME, NOBODY, Mount, SandboxRequest

SYSTEM: Final = ("/usr", "/bin", "/lib", "/lib32", "/lib64", "/libx32")
LOADER: Final = ("/etc/ld.so.cache", "/etc/alternatives")
PARTS_OF_A_PREFIX: Final = ("bin", "lib", "lib64", "pyvenv.cfg")
"""All that is shown of a Python that was installed into somebody's home or into the working directory itself."""

VARIABLES: Final = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": HOME,
    "TMPDIR": HOME,
    "USER": "nobody",
    "LOGNAME": "nobody",
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
    # A sandbox has few processors and little memory: a pool of threads in every worker would only take both.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",
    "SDL_VIDEODRIVER": "dummy",
    "SDL_AUDIODRIVER": "dummy",
    "MPLBACKEND": "agg",
}
"""All the environment variables that a sandbox has; nothing of the server's own comes in."""


def find_executable() -> str | None:
    """Return the path of bubblewrap, None where it is not installed."""
    return shutil.which("bwrap")


def command(wish: SandboxRequest, binds: Sequence[Mount], inside: Sequence[str]) -> list[str]:
    """Return the command line that runs `inside` in bubblewrap; a process that is root there has to become nobody.

    It dies with the thread that starts it, not with the process: start it from one that stays.
    """
    users = {"PYTHONUSERBASE": site.getuserbase()} if _user_site() else {"PYTHONNOUSERSITE": "1"}
    links = [path for path in map(Path, SYSTEM) if path.is_symlink()]
    seen = (*_system_mounts(), *binds)
    # Those above the mounts by name, which only root might enter if bubblewrap made them by itself.
    folders = sorted({parent for bind in seen for parent in bind.place.parents} - {Path("/"), Path(HOME)})
    sized = ("--perms", "1777", "--size", str(wish.limits.tmp_bytes), "--tmpfs")
    return [
        find_executable() or "bwrap",
        *_isolation_arguments(),
        *(word for name, value in (VARIABLES | users).items() for word in ("--setenv", name, value)),
        *("--proc", "/proc", "--dev", "/dev"),
        # The tmpfs come first: what is mounted by name may lie below them.
        *(*sized, HOME, *sized, "/dev/shm"),  # noqa: S108 - in the sandbox
        *(word for path in links for word in ("--symlink", str(path.readlink()), str(path))),
        *(word for folder in folders for word in ("--dir", str(folder))),
        *(
            word
            for each in seen
            for word in ("--bind" if each.writable else "--ro-bind", str(each.path), str(each.place))
        ),
        *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", HOME, "--"),
        *inside,
    ]


def _isolation_arguments() -> Iterator[str]:
    yield from ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--unshare-net")
    yield from ("--hostname", "sandbox", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL")
    if os.geteuid() == 0:
        # Inside, `become_nobody` gives these two up again, and is then nobody on the host too.
        yield from ("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")
    else:
        yield from ("--unshare-user", "--uid", str(NOBODY), "--gid", str(NOBODY))


def _system_mounts() -> Iterator[Mount]:
    for path in map(Path, (*SYSTEM, *LOADER)):
        # What a folder of the system links to is in /usr, and linked; a file's link may lead anywhere.
        if path.exists() and not (path.is_symlink() and str(path) in SYSTEM):
            yield Mount(path.resolve(), path)


def find_binds(target: str, mounts: Iterable[Mount]) -> tuple[Mount, ...]:
    """Return what a sandbox for `target` (a module, `module:member`, `module:Id-v0`, or a plain id) sees."""
    bound: list[Path] = []
    for path in (*_python_paths(), *_module_paths(target)):
        if not any(path.is_relative_to(other) for other in (Path("/usr"), *bound)):
            bound.append(path)
    return (*(Mount(path) for path in bound), *mounts)


def _python_paths() -> Iterator[Path]:
    """Yield what this interpreter consists of, by the names it uses and by the real ones; folders before what is in them."""
    named = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix, *site.getsitepackages(), *_user_site()}
    own = Path(proctor.__file__).parent
    for path in sorted({own, own.resolve(), *map(Path, named), *(Path(name).resolve() for name in named)}):
        parts = [path / name for name in PARTS_OF_A_PREFIX] if _is_too_much(path) else [path]
        yield from (part for part in parts if part.exists())


def _user_site() -> list[str]:
    """Return the folder of packages that this user installed for himself, if this interpreter looks there."""
    return [site.getusersitepackages()] if site.ENABLE_USER_SITE else []


def _is_too_much(path: Path) -> bool:
    """Return whether a folder is the root, a home or the working directory, or holds one of them."""
    private = (Path(os.path.expanduser("~")), Path.cwd())  # noqa: PTH111 - Path.home() raises where there is none
    return any(each.resolve().is_relative_to(path.resolve()) for each in private)


def _module_paths(target: str) -> Iterator[Path]:
    """Yield the file or the folders of the target's top-level module; a plain id has none."""
    names = target.partition(":")[0].split(".")
    # A top-level name: finding it executes nothing.
    spec = importlib.util.find_spec(names[0]) if all(map(str.isidentifier, names)) else None
    if spec is None:
        return
    if spec.submodule_search_locations is not None:
        yield from (Path(folder).absolute() for folder in spec.submodule_search_locations)
    elif spec.has_location and spec.origin is not None:
        yield Path(spec.origin).absolute()
