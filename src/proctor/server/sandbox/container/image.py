"""What goes into the image of an environment: this Python, its libraries, Proctor, the environment; and how it is built.

Rule 1: everything lies under one folder and is started by a loader of its own, so that it runs on an empty root as well
    as on top of any other image, whose own files are never touched.
Rule 2: nothing of the environment is imported or run on this machine; see `distributions`.
"""

import hashlib
import json
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final

from proctor import __version__
from proctor.envs.settings import add_working_directory, find_spec
from proctor.errors import ComponentError, ValidationError
from proctor.server.sandbox.container.distributions import (
    find_dependencies,
    find_distribution_files,
    find_module_files,
    walk_files,
)
from proctor.server.sandbox.container.engine import TARGET_LABEL, VERSION_LABEL, Engine, ImageFacts
from proctor.server.sandbox.container.image_archive import (
    ArchiveEntry,
    BytecodeEntry,
    FileEntry,
    FolderEntry,
    ImageConfig,
    LinkEntry,
    ProgressCallback,
    TextEntry,
    compute_image_id,
    describe_image,
    write_image,
    write_layer,
)
from proctor.server.sandbox.container.shared_libraries import find_libraries, is_elf
from proctor.server.sandbox.tiers import Mount

ROOT: Final = "/opt/proctor"
REPOSITORY: Final = "proctor-env"

NOT_NEEDED: Final = frozenset(
    {
        *("__pycache__", "site-packages", "dist-packages", "test", "tests", "idle_test"),
        *("ensurepip", "idlelib", "lib2to3", "pydoc_data", "tkinter", "turtledemo"),
    }
)
"""Folders of the standard library that no environment without a screen and without pip looks into."""
NOT_NEEDED_FILES: Final = re.compile(r"turtle\.py|(_tkinter|_test|_ctypes_test|_xx|xx).*\.so|.*\.(a|pyc|exe)")
SYSTEM: Final[dict[str, ArchiveEntry]] = {
    "/etc/passwd": TextEntry(b"root:x:0:0:root:/:/\nnobody:x:65534:65534:nobody:/tmp:/\n"),
    "/etc/group": TextEntry(b"root:x:0:\nnogroup:x:65534:\n"),
    "/tmp": FolderEntry(0o1777),  # noqa: S108  # the container's own
    **{f"/{name}": FolderEntry() for name in ("dev", "proc", "sys")},
}
"""What an empty root lacks."""


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """What to make an image of, and out of what."""

    target: str
    name: str | None = None
    base: str | None = None
    mounts: tuple[Mount, ...] = ()
    beside: tuple[str, ...] = ()
    """Distributions to take along that no metadata tells of."""


@dataclass(frozen=True, slots=True)
class ImageContents:
    """What goes into an image: files by place, how they are started, and what was looked for in vain."""

    tree: dict[str, ArchiveEntry]
    entrypoint: tuple[str, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """An image that was built; `size` counts the bytes of what we put into it."""

    name: str
    digest: str
    size: int


def find_module(target: str) -> str:
    """Return the module that a target comes from; of a module that registers ids, the module itself."""
    module, colon, _ = target.partition(":")
    if colon:
        return module
    entry_point = find_spec(target).entry_point
    if entry_point is None:
        raise ValidationError("there is no single environment of this id", found=target, expected="an entry point")
    return entry_point.partition(":")[0] if isinstance(entry_point, str) else entry_point.__module__


def collect_contents(wish: ImageRequest) -> ImageContents:
    """Return what goes into an image; a target of which no file is found is a ValidationError."""
    writable = [mount for mount in wish.mounts if mount.writable]
    if writable:
        raise ValidationError(
            "an image has no writable mounts", found=str(writable[0].path), expected="`proctor serve --mount PATH:rw`"
        )
    add_working_directory()
    module = find_module(wish.target)
    needs = find_dependencies(module, wish.beside)
    packages = {place: path for found in needs.distributions.values() for place, path in find_distribution_files(found)}
    packages |= {place: path for found in needs.loose.values() for place, path in find_module_files(found)}
    site = _find_site_packages()
    files = dict(_find_python_files()) | {f"{site}/{place}": path for place, path in packages.items()}
    tree: dict[str, ArchiveEntry] = {place: FileEntry(path) for place, path in files.items()}
    tree |= {_bytecode_path(place): BytecodeEntry(path, place) for place, path in files.items() if _is_module(place)}
    found = find_libraries([path for path in files.values() if is_elf(path)])
    if found.loader is None:
        raise ComponentError("this Python has no loader", found=sys.executable, expected="a dynamically linked one")
    tree |= {f"{ROOT}/lib/{name}": FileEntry(path) for name, path in found.files.items()}
    loader = f"{ROOT}/lib/{found.loader.name}"
    tree[loader] = FileEntry(found.loader)
    tree |= {place: FileEntry(path) for mount in wish.mounts for place, path in _find_mounted_files(mount)}
    if wish.base is None:
        # What starts this Python again by its name finds the loader where every program looks for it.
        tree |= SYSTEM | {str(found.loader): LinkEntry(loader)}
    return ImageContents(
        tree, (loader, "--library-path", f"{ROOT}/lib", _interpreter_path()), (*needs.missing, *sorted(found.absent))
    )


def build_image(
    wish: ImageRequest, contents: ImageContents, engine: Engine | None, out: Path | None, tick: ProgressCallback
) -> BuiltImage:
    """Build an image: into the engine, or into a file if `out` names one."""
    config = _make_config(wish, contents)
    base = None if wish.base is None else _require_engine(engine).image(wish.base)
    with tempfile.TemporaryDirectory(prefix="proctor-image-") as folder:
        layer = Path(folder) / "layer.tar"
        with layer.open("wb") as file:
            digest = write_layer(contents.tree, file, tick)
        if base is not None:
            return _build_on_base(wish, base, layer, digest, config, _require_engine(engine), out)
        description = describe_image(digest, config)
        name = wish.name or _make_name(wish.target, compute_image_id(description))
        place = Path(folder) / "image.tar" if out is None else out
        with place.open("wb") as file:
            write_image(layer, digest, description, name, file)
        if out is None:
            _require_engine(engine).load(place)
        return BuiltImage(name, compute_image_id(description), layer.stat().st_size)


def _build_on_base(
    wish: ImageRequest,
    base: ImageFacts,
    layer: Path,
    digest: str,
    config: ImageConfig,
    engine: Engine,
    out: Path | None,
) -> BuiltImage:
    """Build on top of an image that the engine has."""
    mark = hashlib.sha256(describe_image(digest, config) + base.digest.encode()).hexdigest()
    name = wish.name or _make_name(wish.target, mark)
    engine.commit(base.name, layer, dockerfile_changes(config), name)
    if out is not None:
        engine.save(name, out)
    return BuiltImage(name, engine.image(name).digest, layer.stat().st_size)


def dockerfile_changes(config: ImageConfig) -> list[str]:
    """Return how an image on top of another is started, as lines of a Dockerfile; the base's own variables stay."""
    quoted = json.dumps
    labels = [f"LABEL {quoted(name)}={quoted(value)}" for name, value in sorted(config.labels.items())]
    return [*labels, f"ENTRYPOINT {quoted(list(config.entrypoint))}", "CMD []", f"USER {config.user}"]


def _make_config(wish: ImageRequest, contents: ImageContents) -> ImageConfig:
    labels = {TARGET_LABEL: wish.target, VERSION_LABEL: __version__}
    environment = {"PATH": f"{ROOT}/bin", "LD_LIBRARY_PATH": f"{ROOT}/lib", "LANG": "C.UTF-8", "HOME": "/tmp"}  # noqa: S108
    return ImageConfig(contents.entrypoint, environment, labels)


def _make_name(target: str, digest: str) -> str:
    word = re.sub(r"[^a-z0-9]+", "-", target.lower()).strip("-")[:60]
    return f"{REPOSITORY}:{word}-{digest[:12]}"


def _require_engine(engine: Engine | None) -> Engine:
    return Engine.find() if engine is None else engine


def _interpreter_path() -> str:
    return f"{ROOT}/bin/python{sysconfig.get_python_version()}"


def _find_python_files() -> Iterator[tuple[str, Path]]:
    """Yield the interpreter and the standard library, without what nobody looks into."""
    yield _interpreter_path(), Path(sys.executable).resolve()
    library = Path(sysconfig.get_path("stdlib"))
    place = f"{ROOT}/{sys.platlibdir}/{library.name}"
    for parts, path in walk_files(library, lambda name: name in NOT_NEEDED or name.startswith("config-")):
        if not NOT_NEEDED_FILES.fullmatch(path.name):
            yield "/".join((place, *parts)), path


def _find_site_packages() -> str:
    """Return where the Python of the image will look for packages; only this Python, outside any virtual environment, knows."""
    question = "import site, sys; print(site.getsitepackages([sys.argv[1]])[-1])"
    command = [str(Path(sys.executable).resolve()), "-I", "-c", question, ROOT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)  # noqa: S603
    return done.stdout.strip()


def _is_module(place: str) -> bool:
    return place.endswith(".py") and "/tests/" not in place


def _bytecode_path(place: str) -> str:
    return cache_from_source(place, optimization="")


def _find_mounted_files(mount: Mount) -> Iterator[tuple[str, Path]]:
    if mount.path.is_file():
        yield str(mount.place), mount.path
    else:
        yield from ((str(mount.place.joinpath(*parts)), path) for parts, path in walk_files(mount.path))
