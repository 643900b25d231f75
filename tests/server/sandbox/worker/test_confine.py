"""What a process takes from itself: the steps that anybody may take, and those of a strict worker in bubblewrap."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.server.sandbox.pool.bubblewrap import command, find_binds
from proctor.server.sandbox.tiers import Mount, SandboxLimits, SandboxRequest, Tier
from proctor.server.sandbox.worker import confine
from tests.server.live_server import until
from tests.server.sandbox.in_bubblewrap import PREFACE, WORKER, told

ALONE = """
import json, os, resource, sys
from proctor.server.sandbox.worker import confine
from proctor.server.sandbox.tiers import SandboxLimits, Tier

def say(value):
    print(json.dumps(value), flush=True)

def status():
    return dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines())
"""


def alone(program: str) -> Any:
    """Return what a program says that runs without a sandbox."""
    done = subprocess.run([sys.executable, "-c", ALONE + program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_settled_process_has_its_limits_and_no_way_to_more_rights() -> None:
    said = alone(
        """
limits = SandboxLimits(file_bytes=1000, open_files=50)
confine.settle(Tier.PROCESS, limits)
kinds = (resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_CORE)
say([status()["NoNewPrivs"], *(resource.getrlimit(kind) for kind in kinds)])
"""
    )

    assert said == ["1", [1000, 1000], [50, 50], [0, 0]]


def test_a_process_without_a_cgroup_can_take_so_much_memory_and_no_more() -> None:
    said = alone(
        """
confine.settle(Tier.PROCESS, SandboxLimits(memory_bytes=200 * 2**20))
enough = len(bytearray(50 * 2**20))
try:
    bytearray(300 * 2**20)
except MemoryError:
    say("refused")
"""
    )

    assert said == "refused"


def test_a_limit_is_never_raised() -> None:
    said = alone(
        """
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
confine.rlimits(SandboxLimits(open_files=50), memory=False)
say(resource.getrlimit(resource.RLIMIT_NOFILE))
"""
    )

    assert said == [40, 40]


def test_capabilities_are_given_up() -> None:
    said = alone(
        """
confine.drop_capabilities()
say([int(status()[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")])
"""
    )

    assert said == [0, 0, 0, 0]


def test_an_undumpable_process_shows_nothing_to_others() -> None:
    said = alone(
        """
import ctypes
before = ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)
confine.undumpable()
say([before, ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)])
"""
    )

    assert said == [1, 0]


def test_a_process_dies_with_the_one_that_started_it() -> None:
    program = """
import os, signal, time
from proctor.server.sandbox.worker import confine
if os.fork() == 0:
    confine.die_with_parent()
    print(os.getpid(), flush=True)
    time.sleep(100)
    os._exit(0)
signal.pause()
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.kill()

    until(lambda: not is_alive(child))


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_a_step_that_fails_says_which() -> None:
    with pytest.raises(OSError, match="a tmpfs on /nowhere") as caught:
        confine._mount_tmpfs("/nowhere", 0, "")

    assert caught.value.errno in {errno.ENOENT, errno.EPERM}


@given(st.binary(max_size=20).map(lambda raw: raw.replace(b"\0", b"")))
def test_a_path_in_the_list_of_mounts_is_read_as_it_was(raw: bytes) -> None:
    written = b"".join(b"\\%03o" % each if each in b" \t\n\\" else bytes([each]) for each in raw)

    assert os.fsencode(confine.decode_mount_point(b"/tmp/" + written)) == os.fsencode(Path(os.fsdecode(b"/tmp/" + raw)))


INSIDE = """
import socket, struct
say({
    "pid": os.getpid(), "users": os.getresuid() + os.getresgid(), "here": os.getcwd(),
    "processes": os.listdir("/proc"), "tmp": os.listdir("/tmp") + os.listdir("/dev/shm"),
    "written": [tried(open, path, "w") for path in ("/x", "/proc/x", "/dev/x", "/usr/x", "/tmp/x", "/dev/shm/x")],
    "filled": tried(lambda: open("/tmp/large", "wb").write(bytes(2**21))),
    "network": tried(socket.socket), "unshare": confine._LIBC.unshare(0x10000000),
    "files": tried(lambda: [open("/dev/null") for _ in range(300)]),
})
"""


@pytest.mark.system
def test_a_strict_worker_is_alone_as_nobody_with_a_tmpfs_of_its_own() -> None:
    said = told(INSIDE)

    # Where Python or Proctor itself lies below /tmp, that is mounted there by name.
    mounted = {Path(path).parts[2] for path in (sys.prefix, *sys.path) if path.startswith("/tmp/")}
    assert said == {
        "pid": 1,
        "users": [65534] * 6,
        "here": "/tmp",
        "processes": [],
        "tmp": sorted(mounted),
        "written": [errno.EROFS, errno.EROFS, errno.EROFS, errno.EROFS, 0, 0],
        "filled": errno.ENOSPC,
        "network": errno.EPERM,
        "unshare": -1,
        "files": errno.EMFILE,
    }


@pytest.mark.system
def test_what_is_mounted_below_tmp_is_still_there_in_a_worker_and_as_it_was(tmp_path: Path) -> None:
    folder, file, writable = tmp_path / "with blank", tmp_path / "file", tmp_path / "open"
    folder.mkdir()
    writable.mkdir(mode=0o777)
    writable.chmod(0o777)
    file.write_text("text")
    (folder / "inner").touch()
    mounts = (Mount(folder), Mount(file), Mount(writable, writable=True))
    program = f"""
said = [os.listdir({str(folder)!r}), open({str(file)!r}).read()]
said += [tried(open, os.path.join(place, "new"), "w") for place in ({str(folder)!r}, {str(writable)!r})]
say([*said, tried(open, {str(file)!r}, "w"), sorted(os.listdir({str(tmp_path)!r}))])
"""

    assert told(program, mounts=mounts) == [
        ["inner"],
        "text",
        errno.EROFS,
        0,
        errno.EROFS,
        ["file", "open", "with blank"],
    ]
    assert (writable / "new").exists()


NEIGHBOURS = """
import signal, time
confine.adopt_orphans()
for _ in range(2):
    left, right = os.pipe()
    if os.fork() == 0:
        confine.own_namespaces(limits)
        confine.settle(Tier.STRICT, limits)
        outcomes = [tried(os.kill, pid, signal.SIGKILL) for pid in range(2, 60)]
        os.write(right, b"done" if set(outcomes) == {3} else b"hurt")
        time.sleep(100)
    said = os.read(left, 4).decode()
children = 0
while True:
    pid, _ = os.waitpid(-1, 0 if children < 2 else os.WNOHANG)
    if pid == 0:
        break
    children += 1
say([said, children])
"""


@pytest.mark.system
def test_a_worker_finds_no_neighbour_to_kill_and_the_zygote_stays_its_parent() -> None:
    # The two that ended are those whose only task was to fork into the new namespaces.
    assert told(NEIGHBOURS, worker=False) == ["done", 2]


SOCKETS = """
import socket
confine.adopt_orphans()
listener = socket.socket(socket.AF_UNIX)
listener.bind("\\0of-the-sandbox")
listener.listen()
if os.fork() == 0:
    confine.own_namespaces(limits)
    confine.settle(Tier.STRICT, limits)
    os._exit(tried(socket.socket(socket.AF_UNIX).connect, "\\0of-the-sandbox"))
os.wait()
say(os.waitstatus_to_exitcode(os.wait()[1]))
"""


@pytest.mark.system
def test_a_worker_does_not_even_reach_abstract_sockets_of_its_sandbox() -> None:
    assert told(SOCKETS, worker=False) == errno.ECONNREFUSED


@pytest.mark.system
def test_workers_end_when_their_zygote_is_killed() -> None:
    wish = SandboxRequest(Tier.STRICT, limits=SandboxLimits())
    program = f"{PREFACE}{WORKER}say('ready')\nimport time\ntime.sleep(100)"
    line = command(wish, find_binds("proctor", ()), [sys.executable, "-c", program])
    with subprocess.Popen(line, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b'"ready"\n'

        def pythons() -> list[int]:
            return [pid for pid in _descendants(process.pid) if _is_python(pid)]

        until(lambda: len(pythons()) == 2)
        zygote, worker = pythons()
        os.kill(zygote, signal.SIGKILL)
        until(lambda: not is_alive(worker))


def _descendants(pid: int) -> list[int]:
    children = [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*children, *(each for child in children for each in _descendants(child))]


def _is_python(pid: int) -> bool:
    return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(os.fsencode(sys.executable))
