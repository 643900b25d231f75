"""The page's own files: read once, from the package, and nothing else can be asked for.

Rule 1: a path is looked up among those that were read; no path of a peer ever reaches a file system.
Rule 2: the page names its files below a folder that is called after all their bytes. What has that address never changes, so
    that a browser keeps it and asks no more: a page of many modules opens without a request for each.
"""

import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from proctor.server.viewer_http.responses import accepts_gzip

INDEX: Final = "index.html"
NAMED: Final = '"static/'
"""How the page names its files."""
END_OF_HEAD: Final = "</head>"
FOR_EVER: Final = "max-age=31536000, immutable"
WORTH_PACKING: Final = 1024
MEDIA: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
"""Files of other kinds are not served."""


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file, as it is sent."""

    body: bytes
    packed: bytes
    media: str
    tag: str
    fixed: bool = False
    """Whether its address stands for these bytes."""

    def answer(self, request: Request) -> Response:
        """Return it, unless the browser has it already."""
        headers = {"etag": self.tag, "vary": "accept-encoding", **({"cache-control": FOR_EVER} if self.fixed else {})}
        if request.headers.get("if-none-match") == self.tag:
            return Response(None, 304, headers)
        if len(self.body) >= WORTH_PACKING and accepts_gzip(request.headers.get("accept-encoding", "")):
            return Response(self.packed, 200, {**headers, "content-encoding": "gzip"}, self.media)
        return Response(self.body, 200, headers, self.media)


def read_static_files(folder: Traversable | None = None) -> dict[str, StaticFile]:
    """Return all files by their paths below the folder, which is the package's own by default; the page as it is sent."""
    root = files("proctor.viewer").joinpath("static") if folder is None else folder
    read = {path: _build_file(body, media) for path, body, media in _walk_files(root, "")}
    version = sha256("".join(f"{path} {file.tag}\n" for path, file in read.items()).encode()).hexdigest()[:16]
    fixed = {f"{version}/{path}": replace(file, fixed=True) for path, file in read.items() if path != INDEX}
    page = {INDEX: _build_index(read[INDEX], fixed)} if INDEX in read else {}
    return {**read, **fixed, **page}


def _build_index(index: StaticFile, fixed: Mapping[str, StaticFile]) -> StaticFile:
    """Return the page that names the fixed addresses, and all modules at once: else they are found one behind the other."""
    version = next(iter(fixed), "").partition("/")[0]
    modules = [path for path, file in fixed.items() if file.media == MEDIA[".js"]]
    links = "".join(f'    <link rel="modulepreload" href={NAMED}{path}">\n' for path in modules)
    text = index.body.decode().replace(NAMED, f"{NAMED}{version}/")
    return _build_file(text.replace(END_OF_HEAD, f"{links.lstrip()}  {END_OF_HEAD}", 1).encode(), index.media)


def _walk_files(folder: Traversable, above: str) -> Iterator[tuple[str, bytes, str]]:
    for each in sorted(folder.iterdir(), key=lambda entry: entry.name):
        path = f"{above}{each.name}"
        if each.is_dir():
            yield from _walk_files(each, f"{path}/")
            continue
        media = MEDIA.get(f".{each.name.rpartition('.')[2]}")
        if media is not None:
            yield path, each.read_bytes(), media


def _build_file(body: bytes, media: str) -> StaticFile:
    # `mtime`: the same bytes each time.
    return StaticFile(body, gzip.compress(body, 6, mtime=0), media, f'"{sha256(body).hexdigest()[:32]}"')
