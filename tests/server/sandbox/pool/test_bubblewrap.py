"""What is visible in a sandbox, and by which command line."""

import os
import site
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import proctor
from proctor.server.sandbox.pool import bubblewrap
from proctor.server.sandbox.pool.bubblewrap import command, find_binds
from proctor.server.sandbox.tiers import Mount, SandboxLimits, SandboxRequest, Tier
from tests.server.sandbox.in_bubblewrap import told

OWN = Path(proctor.__file__).parent
NAMES = st.text("abc", min_size=1, max_size=3)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map(lambda parts: Path("/", *parts))
MOUNTS = st.lists(st.builds(Mount, PATHS, st.none() | PATHS, st.booleans()), max_size=5)


def places(target: str) -> set[Path]:
    return {bind.path for bind in find_binds(target, ())}


def pairs(line: list[str], option: str) -> list[tuple[str, str]]:
    return [(line[place + 1], line[place + 2]) for place, word in enumerate(line) if word == option]


@given(MOUNTS, st.lists(NAMES, min_size=1))
def test_only_what_is_called_writable_is(mounts: list[Mount], inside: list[str]) -> None:
    line = command(SandboxRequest(Tier.BWRAP), mounts, inside)
    writable = [(str(each.path), str(each.place)) for each in mounts if each.writable]
    read_only = [(str(each.path), str(each.place)) for each in mounts if not each.writable]

    assert pairs(line, "--bind") == writable
    assert pairs(line, "--ro-bind")[-len(read_only) :] == read_only or not read_only
    assert line[line.index("--") + 1 :] == inside
    assert "--unshare-net" in line


@given(MOUNTS)
def test_every_folder_above_a_mount_is_made_by_name_so_that_nobody_may_enter_it(mounts: list[Mount]) -> None:
    line = command(SandboxRequest(), mounts, ["true"])
    made = [line[place + 1] for place, word in enumerate(line) if word == "--dir"]

    for mount in mounts:
        assert {str(parent) for parent in mount.place.parents} - {"/", "/tmp"} <= set(made)
    assert made == sorted(made)


def test_a_command_clears_the_environment_and_keeps_apart_what_can_be_kept_apart() -> None:
    limits = SandboxLimits(tmp_bytes=12345)
    line = command(SandboxRequest(Tier.STRICT, limits=limits), (), ["true"])

    assert {"--clearenv", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent"} <= set(line)
    assert line.count("12345") == 2
    assert line.index("--clearenv") < line.index("--setenv")
    assert line[line.index("--remount-ro") :][:4] == ["--remount-ro", "/dev", "--remount-ro", "/"]


@pytest.mark.parametrize(("user", "expected"), [(0, "CAP_SETUID"), (1000, "--unshare-user")])
def test_root_becomes_nobody_inside_and_others_by_a_user_namespace(
    monkeypatch: pytest.MonkeyPatch, user: int, expected: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)

    assert expected in command(SandboxRequest(), (), ["true"])


@pytest.mark.parametrize("network", [True, False])
def test_there_is_no_network_and_nothing_that_tells_of_the_host(network: bool) -> None:
    line = command(SandboxRequest(network=network), (), ["true"])
    shown = {place for _, place in pairs(line, "--ro-bind")}

    assert {place for place in shown if place.startswith("/etc")} <= set(bubblewrap.LOADER)
    assert "--unshare-net" in line


def test_this_python_and_proctor_are_shown_but_nothing_around_them() -> None:
    shown = places("CartPole-v1")

    assert OWN in shown or any(OWN.is_relative_to(path) for path in shown)
    assert all(any(Path(prefix).is_relative_to(path) for path in (*shown, Path("/usr"))) for prefix in _prefixes())
    assert not any(path in shown for path in (Path("/"), Path.home(), Path.cwd(), OWN.parent, OWN.parent.parent))


def _prefixes() -> set[str]:
    return {sys.prefix, sys.base_prefix}


def test_a_python_in_the_working_directory_shows_its_parts_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("bin", "lib", "secrets"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    shown = places("CartPole-v1")

    assert {tmp_path / "bin", tmp_path / "lib"} <= shown
    assert not shown & {tmp_path, tmp_path / "secrets"}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package, a module of one file and a package without `__init__`; to import one of them would fail."""
    (tmp_path / "packaged" / "inner").mkdir(parents=True)
    (tmp_path / "packaged" / "__init__.py").write_text("raise SystemExit")
    (tmp_path / "single.py").write_text("raise SystemExit")
    (tmp_path / "spread").mkdir()
    (tmp_path / "private").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("packaged:Env", "packaged"),
        ("packaged.inner.envs:make", "packaged"),
        ("packaged:Some-v0", "packaged"),
        ("single:Env", "single.py"),
        ("spread.envs:Env", "spread"),
    ],
)
def test_a_targets_top_level_module_is_shown_and_nothing_beside_it_and_is_not_executed(
    package: Path, target: str, name: str
) -> None:
    assert {path for path in places(target) if path.is_relative_to(package)} == {package / name}


@pytest.mark.parametrize("target", ["CartPole-v1", "Namespace/Some-v3", "nowhere_at_all:Env", "sys:path", "math:pi"])
def test_a_target_without_files_of_its_own_needs_nothing_more(target: str) -> None:
    assert places(target) == places("")


def test_mounts_come_last_and_as_they_are() -> None:
    mounts = (Mount(Path("/usr/share")), Mount(Path("/srv"), writable=True))

    assert find_binds("CartPole-v1", mounts)[-2:] == mounts


def test_packages_of_the_users_own_are_shown_where_this_python_looks_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "ENABLE_USER_SITE", True)
    monkeypatch.setattr(site, "getusersitepackages", lambda: str(tmp_path))
    monkeypatch.setattr(site, "getuserbase", lambda: "/base")
    line = command(SandboxRequest(), (), ["true"])

    assert tmp_path in places("")
    assert ("PYTHONUSERBASE", "/base") in pairs(line, "--setenv")


SEEN = """
say({
    "root": sorted(os.listdir("/")), "etc": sorted(os.listdir("/etc")), "variables": sorted(os.environ),
    "here": os.getcwd(), "package": sorted(os.listdir(os.path.dirname(FOLDER))), "host": os.uname().nodename,
    "written": [tried(open, path, "w") for path in ("/file", "/dev/file", "/usr/file", FOLDER + "/file", "/tmp/file")],
    "users": os.getresuid() + os.getresgid() + tuple(os.getgroups()),
})
"""


@pytest.mark.system
def test_a_real_sandbox_shows_what_was_named_and_lets_write_into_its_tmpfs_only(package: Path) -> None:
    folder = package / "packaged"
    seen = told(f"FOLDER = {str(folder)!r}\n{SEEN}", worker=False, target="packaged:Env")

    assert set(seen["root"]) <= {*("bin", "dev", "etc", "lib", "lib64", "lib32", "libx32", "proc", "tmp", "usr")} | {
        bind.place.parts[1] for bind in find_binds("packaged:Env", ())
    }
    assert set(seen["etc"]) <= {"alternatives", "ld.so.cache"}
    assert set(seen["variables"]) <= {*bubblewrap.VARIABLES, "PYTHONNOUSERSITE", "PWD"}
    assert (seen["here"], seen["host"]) == ("/tmp", "sandbox")
    assert seen["package"] == ["packaged"]
    assert [bool(number) for number in seen["written"]] == [True, True, True, True, False]
    assert set(seen["users"]) == {65534}
