"""A container's file system as a tar, and an image around it that docker and podman load.

Rule: the same files give the same bytes: sorted, one date, owned by root, bytecode without what differs from run to run.
    So an image's id says what is in it.
"""

import hashlib
import io
import json
import marshal
import os
import platform
import stat
import tarfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

DATE: Final = 315532800
"""1980-01-01: the first day that every tool believes."""
CREATED: Final = "1980-01-01T00:00:00Z"
UNCHECKED: Final = (1).to_bytes(4, "little")
"""Bytecode that is found by the source's hash and never compared with it: there is no other source in an image."""
OLD_MARSHAL: Final = 2
"""The last version without back references, which depend on what else the process holds."""
ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
ProgressCallback = Callable[[], object]


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file of this machine, with its bytes and whether it can be run."""

    path: Path


@dataclass(frozen=True, slots=True)
class TextEntry:
    """A file with these bytes."""

    content: bytes


@dataclass(frozen=True, slots=True)
class BytecodeEntry:
    """What Python compiles the source at `path` to, for a module at `place`; nothing if it does not compile."""

    path: Path
    place: str


@dataclass(frozen=True, slots=True)
class LinkEntry:
    """A symbolic link."""

    target: str


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """A folder, by default one that only root writes to."""

    mode: int = 0o755


ArchiveEntry = FileEntry | TextEntry | BytecodeEntry | LinkEntry | FolderEntry
ArchiveTree = Mapping[str, ArchiveEntry]
"""Entries by their absolute places in the container."""


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """How containers of an image run unless they are told otherwise."""

    entrypoint: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    user: str = "65534:65534"


class _HashingWriter(io.RawIOBase):
    """Writes on, and knows the digest of all that was written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, piece: Any) -> int:
        self.digest.update(piece)
        return self._file.write(piece)


def write_layer(tree: ArchiveTree, file: IO[bytes], tick: ProgressCallback = lambda: None) -> str:
    """Write a tree as the tar of a layer and return its digest; `tick` is called once for each entry of the tree."""
    whole = {str(place): FolderEntry() for place in _find_parents(tree)} | dict(tree)
    hashing = _HashingWriter(file)
    with tarfile.open(fileobj=hashing, mode="w|", format=tarfile.PAX_FORMAT, bufsize=2**20) as tar:
        # By parts, so that a folder comes right before what is in it.
        for place in sorted(whole, key=lambda place: PurePosixPath(place).parts):
            _add_entry(tar, place.lstrip("/"), whole[place])
            if place in tree:
                tick()
    return hashing.digest.hexdigest()


def describe_image(digest: str, config: ImageConfig) -> bytes:
    """Return the description of an image with this layer; its own digest is the image's id."""
    told = {
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "created": CREATED,
        "config": {
            "User": config.user,
            "Env": [f"{name}={value}" for name, value in sorted(config.environment.items())],
            "Entrypoint": list(config.entrypoint),
            "WorkingDir": "/",
            "Labels": dict(config.labels),
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [{"created": CREATED, "created_by": "proctor image"}],
    }
    return json.dumps(told, sort_keys=True).encode()


def compute_image_id(description: bytes) -> str:
    """Return an image's id."""
    return hashlib.sha256(description).hexdigest()


def write_image(layer: Path, digest: str, description: bytes, name: str, file: IO[bytes]) -> None:
    """Write an image of one layer with its name, in the form in which engines save and load images."""
    described_in = f"{compute_image_id(description)}.json"
    manifest = [{"Config": described_in, "RepoTags": [name], "Layers": [f"{digest}/layer.tar"]}]
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        _add_entry(tar, described_in, TextEntry(description))
        _add_entry(tar, digest, FolderEntry())
        _add_entry(tar, f"{digest}/layer.tar", FileEntry(layer))
        _add_entry(tar, "manifest.json", TextEntry(json.dumps(manifest, sort_keys=True).encode()))


def compile_source(source: bytes, place: str) -> bytes | None:
    """Return the bytecode of a source for a module that lies at `place`; None if it does not compile."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # other people's escapes are not news
            code = compile(source, place, "exec", dont_inherit=True, optimize=0)
    except (SyntaxError, ValueError, RecursionError):
        return None
    return MAGIC_NUMBER + UNCHECKED + source_hash(source) + marshal.dumps(code, OLD_MARSHAL)


def _find_parents(tree: ArchiveTree) -> set[PurePosixPath]:
    return {parent for place in tree for parent in PurePosixPath(place).parents} - {PurePosixPath("/")}


def _add_entry(tar: tarfile.TarFile, name: str, entry: ArchiveEntry) -> None:
    head = tarfile.TarInfo(name)
    head.mtime = DATE
    head.mode = 0o644
    if isinstance(entry, FileEntry):
        _add_file(tar, head, entry.path)
    elif isinstance(entry, LinkEntry):
        head.type, head.linkname, head.mode = tarfile.SYMTYPE, entry.target, 0o777
        tar.addfile(head)
    elif isinstance(entry, FolderEntry):
        head.type, head.mode = tarfile.DIRTYPE, entry.mode
        tar.addfile(head)
    else:
        content = (
            entry.content if isinstance(entry, TextEntry) else compile_source(entry.path.read_bytes(), entry.place)
        )
        if content is not None:
            head.size = len(content)
            tar.addfile(head, io.BytesIO(content))


def _add_file(tar: tarfile.TarFile, head: tarfile.TarInfo, path: Path) -> None:
    with path.open("rb") as file:
        about = os.fstat(file.fileno())
        head.size = about.st_size
        head.mode = 0o755 if about.st_mode & stat.S_IXUSR else 0o644
        tar.addfile(head, file)
