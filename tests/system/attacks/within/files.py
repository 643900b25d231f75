"""Files: of the host, of the server, of the sandbox itself; links, mounts, namespaces, groups, rights."""

from __future__ import annotations

import ctypes
import os
import stat
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import tests
from tests.system.attacks.within.tries import Tries, called, inside, syscall

ROOT = "root"
HOST_FILES = (
    "/etc/shadow", "/etc/passwd", "/etc/hostname", "/etc/sudoers", f"/{ROOT}/.bashrc", f"/{ROOT}/.ssh/id_rsa", f"/{ROOT}/.bash_history",
    "/home", "/var/log", "/boot", "/opt", "/srv", "/mnt", "/run", "/sys/kernel", "/sys/fs/cgroup", "/sys/class/net", "/dev/mem", "/dev/kmsg",
    "/dev/sda", "/dev/vda", "/dev/nvme0n1", "/dev/fuse", "/dev/kvm", "/dev/net/tun", "/dev/loop0", "/dev/console", "/dev/port",
)  # fmt: skip
WRITABLE = ("/tmp", "/dev/shm")
NAMESPACES = {
    "mount": 0x00020000, "cgroup": 0x02000000, "uts": 0x04000000, "ipc": 0x08000000, "user": 0x10000000, "pid": 0x20000000,
    "net": 0x40000000, "time": 0x80,
}  # fmt: skip
SETUID = (
    *("/usr/bin/su", "/usr/bin/mount", "/usr/bin/passwd", "/usr/bin/sudo", "/usr/bin/newgrp", "/usr/bin/chsh"),
    "/usr/bin/pkexec",
)


def looked_at(path: str) -> object:
    """Return what is in a folder, or the beginning of a file."""
    place = Path(path)
    return list(place.iterdir()) if place.is_dir() else _first_of(place)


def _first_of(place: Path) -> bytes:
    with place.open("rb", buffering=0) as file:
        return file.read(64)


@inside
def files_of_the_host(tries: Tries) -> None:
    """Read files of the host: passwords, homes, devices, the server's token, state, log and record, and a canary."""
    for path in (*HOST_FILES, *tries.clue.files, tries.clue.folder):
        tries.here(path, partial(looked_at, path))
    for path in tries.clue.files:
        tries.here(f"{path}, roundabout", partial(looked_at, f"/tmp/../usr/bin/../..{path}"))
        tries.here(f"{path}, of a process", partial(looked_at, f"/proc/1/root{path}"))


@inside
def writing_elsewhere(tries: Tries) -> None:
    """Write into every folder that can be seen, over every file of its own module, and into the host's folder."""
    refused = [folder for folder in _folders() if not _taken(folder)]
    taken = [folder for folder in _folders() if folder not in refused and not folder.startswith(WRITABLE)]
    tries.held(f"{len(refused)} folders", not taken, f"taken: {taken[:5]}")
    for path in (__file__, os.__file__, "/usr/bin/env", f"{tries.clue.folder}/pwned", *tries.clue.files):
        tries.here(f"overwrite {path}", partial(_overwritten, path))
        tries.here(f"remove {path}", partial(os.unlink, path))
        tries.here(f"replace {path}", partial(os.rename, "/tmp", path))
        tries.here(f"rights of {path}", partial(os.chmod, path, 0o777))
    tries.here("a new folder in the root", Path("/new").mkdir)


def _folders() -> Iterator[str]:
    deepest = 4
    for folder, inner, _ in os.walk("/"):
        inner[:] = [] if folder.count("/") >= deepest else inner
        yield folder
    yield from (str(path) for path in Path(tests.__path__[0]).rglob("*") if path.is_dir())


def _taken(folder: str) -> bool:
    path = f"{folder}/.pwned"
    try:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        Path(path).unlink()
    except OSError:
        return False
    return True


def _overwritten(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY))


@inside
def links(tries: Tries) -> None:
    """Reach the host by symbolic links, hard links, magic links and descriptors of folders."""
    for number, path in enumerate((*tries.clue.files, "/etc/shadow", "/proc/1/root", "/")):
        link = f"/tmp/link-{number}"
        Path(link).symlink_to(path)
        if path != "/":
            tries.here(f"a link to {path}", partial(looked_at, link))
    for path in (*tries.clue.files, os.__file__, "/usr/bin/env", "/etc/shadow"):
        tries.here(f"a hard link to {path}", partial(os.link, path, "/tmp/hard"))
    top = os.open("/", os.O_PATH)
    for path in tries.clue.files:
        tries.here(f"..{path} from the root", partial(os.open, "../" * 20 + path.lstrip("/"), os.O_RDONLY, dir_fd=top))
    os.close(top)
    for magic in (
        "/proc/self/root",
        "/proc/self/cwd",
        "/proc/self/fd/0",
        "/proc/thread-self",
        "/dev/fd/0",
        "/dev/stdin",
    ):
        tries.here(magic, partial(looked_at, magic))


@inside
def mounts(tries: Tries) -> None:
    """Change what is mounted: bind, remount, unmount, a fresh proc, cgroups, the new interface, another root."""
    bind, remount = 0x1000, 0x20
    cases = {
        "bind the root": (b"/", b"/tmp", None, bind),
        "remount the root": (None, b"/", None, remount),
        "a fresh proc": (b"proc", b"/tmp", b"proc", 0),
        "cgroups": (b"cgroup2", b"/tmp", b"cgroup2", 0),
        "sysfs": (b"sysfs", b"/tmp", b"sysfs", 0),
        "a tmpfs": (b"tmpfs", b"/tmp", b"tmpfs", 0),
        "a disk": (b"/dev/vda", b"/tmp", b"ext4", 0),
        "an overlay": (b"overlay", b"/tmp", b"overlay", 0),
    }
    for name, (source, place, kind, flags) in cases.items():
        given = (source, place, kind, ctypes.c_ulong(flags), None)
        tries.in_child(f"mount {name}", partial(called, "mount", *given))
    for place in (b"/tmp", b"/proc", b"/", b"/dev/shm"):
        tries.in_child(f"unmount {place.decode()}", partial(called, "umount2", place, 2))
    path = ctypes.create_string_buffer(b"/tmp")
    tries.in_child("pivot_root", partial(syscall, "pivot_root", path, path))
    tries.in_child("chroot", lambda: os.chroot("/tmp"))
    tries.in_child("open_tree", partial(syscall, "open_tree", -100, path, 1))
    tries.in_child("fsopen", partial(syscall, "fsopen", ctypes.create_string_buffer(b"tmpfs"), 0))
    tries.in_child("move_mount", partial(syscall, "move_mount", -100, path, -100, path, 0))
    tries.in_child("mount_setattr", partial(syscall, "mount_setattr", -100, path, 0, None, 0))


@inside
def mounting_ends_the_worker(tries: Tries) -> None:
    """Unmount what hides the processes, from the worker itself."""
    called("umount2", b"/proc", 2)
    tries.reached.append("umount2: it worked")


@inside
def namespaces(tries: Tries) -> None:
    """Enter namespaces: new ones of every kind, and those of the host."""
    for name, flag in NAMESPACES.items():
        tries.in_child(f"unshare {name}", partial(called, "unshare", ctypes.c_int(flag)))
        tries.in_child(f"clone {name}", partial(_cloned, flag))
        wish = ctypes.create_string_buffer(flag.to_bytes(8, "little") + bytes(80), 88)
        tries.in_child(f"clone3 {name}", partial(syscall, "clone3", wish, 88))
    for kind in ("user", "mnt", "net", "pid"):
        tries.in_child(f"setns {kind}", partial(_entered, kind, tries.clue.server_pid))


def _cloned(flag: int) -> None:
    child = syscall("clone", flag | 17, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def _entered(kind: str, pid: int) -> None:
    try:
        descriptor = os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY)
    except OSError:
        descriptor = os.open("/", os.O_RDONLY)
    called("setns", descriptor, 0)


@inside
def groups_of_processes(tries: Tries) -> None:
    """Raise its own limits: the files of its cgroup, its resource limits."""
    import resource

    for folder in ("/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids", "/proc/self/cgroup", "/cgroup"):
        tries.here(folder, partial(os.listdir, folder))
    for name in ("RLIMIT_NOFILE", "RLIMIT_FSIZE", "RLIMIT_CORE", "RLIMIT_MEMLOCK", "RLIMIT_MSGQUEUE"):
        kind = getattr(resource, name)
        soft, hard = resource.getrlimit(kind)
        tries.here(f"{name} beyond {hard}", partial(_raised, kind, hard + 1))
        tries.held(f"{name}", soft == hard != resource.RLIM_INFINITY, f"{soft}")


def _raised(kind: int, most: int) -> None:
    import resource

    try:
        resource.setrlimit(kind, (most, most))
    except ValueError as problem:
        raise PermissionError(1, str(problem)) from None


@inside
def rights(tries: Tries) -> None:
    """Become root: by its own ids, by capabilities, by programs with the set-uid bit, by owning files."""
    for name, call in (("setuid", os.setuid), ("setgid", os.setgid), ("seteuid", os.seteuid), ("setegid", os.setegid)):
        tries.in_child(f"{name}(0)", partial(call, 0))
    tries.in_child("setgroups", partial(os.setgroups, [0, 4, 6]))
    tries.in_child("setresuid", partial(os.setresuid, 0, 0, 0))
    everything = ctypes.create_string_buffer(b"\xff" * 24, 24)
    header = ctypes.create_string_buffer((0x20080522).to_bytes(4, "little") + bytes(4), 8)
    tries.in_child("capset", partial(syscall, "capset", header, everything))
    tries.in_child("to be dumpable again", partial(called, "prctl", 4, 1, 0, 0, 0))
    tries.in_child("ambient capabilities", partial(called, "prctl", 47, 2, 21, 0, 0))
    tries.in_child("to take no_new_privs back", partial(called, "prctl", 38, 0, 0, 0, 0))
    tries.held(
        "who it is",
        len(set(os.getresuid())) == 1
        and os.getuid() >= 65534
        and os.getresgid() == (65534,) * 3
        and set(os.getgroups()) <= {65534},
        str(os.getresuid()),
    )
    Path("/tmp/own").write_bytes(b"")
    tries.here("to own files", partial(os.chown, "/tmp/own", 0, 0))
    Path("/tmp/suid").write_bytes(Path("/usr/bin/id").read_bytes())
    with open("/tmp/suid") as file:  # noqa: PTH123
        os.fchmod(file.fileno(), 0o6755)
    ids = [subprocess.run([path], capture_output=True, timeout=10, check=False).stdout for path in ("/tmp/suid",)]
    tries.held("a set-uid program of its own", b"uid=0" not in b"".join(ids), str(ids)[:80])
    for path in filter(os.path.exists, SETUID):
        said = subprocess.run(
            [path, "--version"], capture_output=True, timeout=10, check=False, stdin=subprocess.DEVNULL
        )
        tries.held(f"{path}", b"uid=0" not in said.stdout, f"ended with {said.returncode}")


@inside
def devices(tries: Tries) -> None:
    """Make and open devices, and push characters into a terminal."""
    for name, device in (("sda", (8, 0)), ("mem", (1, 1)), ("kmsg", (1, 11)), ("tty", (5, 0)), ("null", (1, 3))):
        mode = 0o666 | (stat.S_IFBLK if name == "sda" else stat.S_IFCHR)
        tries.in_child(f"mknod {name}", partial(os.mknod, f"/tmp/{name}", mode, os.makedev(*device)))
    kinds = [path.name for path in Path("/dev").iterdir() if _is_device(path)]
    harmless = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "console"}
    tries.held("devices", set(kinds) <= harmless, str(sorted(kinds)))
    for path in ("/dev/tty", "/dev/console", "/dev/tty0", "/dev/tty1", "/dev/ttyS0", "/dev/pts/0"):
        tries.here(path, partial(_overwritten, path))
    for number in range(3):
        tries.in_child(f"TIOCSTI on {number}", partial(_pushed, number))


def _is_device(path: Path) -> bool:
    mode = path.lstat().st_mode
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def _pushed(number: int) -> None:
    import fcntl

    fcntl.ioctl(number, 0x5412, b"x")


@inside
def handles_of_files(tries: Tries) -> None:
    """Open files of the host by their handles, without a path: inode 2 is the root of most disks."""
    handle = (8).to_bytes(4, "little") + (1).to_bytes(4, "little") + (2).to_bytes(8, "little")
    for place in ("/", "/usr", "/tmp"):
        tries.in_child(f"a handle on {place}", partial(_by_handle, place, handle))
    identity = ctypes.create_string_buffer((128).to_bytes(4, "little") + bytes(132))
    number = ctypes.create_string_buffer(4)
    tries.in_child(
        "name_to_handle_at",
        partial(syscall, "name_to_handle_at", -100, ctypes.create_string_buffer(b"/"), identity, number, 0),
    )


def _by_handle(place: str, handle: bytes) -> None:
    folder = os.open(place, os.O_RDONLY)
    syscall("open_by_handle_at", folder, ctypes.create_string_buffer(handle), os.O_RDONLY)
