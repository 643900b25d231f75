"""How answers are sent: security headers on every one, gzip where it is worth it, news as server-sent events, and the page's own files.

Rule 1: the headers are put on by the outermost layer, so that no answer, a refusal neither, leaves without them.
Rule 2: the page's files are read once, from the package. A path is looked up among those; no path of a peer reaches a file system.
Rule 3: the page names its files below a folder that is called after all their bytes. What has that address never changes, so
    that a browser keeps it and asks no more: a page of many modules opens without a request for each.
"""

import gzip
import zlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from proctor.access.request_policy import is_open_page, is_page_path

LARGE: Final = 32 * 1024
LEVEL: Final = 1
"""The quickest: the way is short."""
GZIP: Final = 16 + zlib.MAX_WBITS


def accepts_gzip(header: str) -> bool:
    """Return whether an Accept-Encoding header takes gzip."""
    for each in header.lower().split(","):
        name, _, weight = each.partition(";")
        if name.strip() in {"gzip", "*"}:
            return weight.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False


def gzip_if_large(body: bytes, packs: bool) -> tuple[bytes, bool]:
    """Return the body, packed if it may be and that is worth it, and whether it is."""
    return (zlib.compress(body, LEVEL, GZIP), True) if packs and len(body) > LARGE else (body, False)


def format_event(name: str, raw: bytes) -> bytes:
    """Return an event; what agents wrote may hold line breaks, each of which needs a `data` of its own."""
    return b"".join((f"event: {name}\n".encode(), *(b"data: %b\n" % part for part in raw.splitlines()), b"\n"))


Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Receive, Send], Awaitable[None]]
Pairs = tuple[tuple[bytes, bytes], ...]

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
EVERYWHERE: Final[Pairs] = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
UNKEPT: Final[Pairs] = ((b"cache-control", b"no-store"),)
ASKED_AGAIN: Final[Pairs] = ((b"cache-control", b"no-cache"),)
"""A browser keeps the page's own files, and asks each time whether they are still the same."""


def add_headers(application: Application) -> Application:
    """Return the application with our headers on every answer below the viewer's and the operator's paths."""

    async def serve(scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not is_page_path(scope["path"]):
            await application(scope, receive, send)
            return
        more = headers_for(scope["method"], scope["path"])

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = message.get("headers", ())
                message = {**message, "headers": [*own, *_missing(more, own)]}
            await send(message)

        await application(scope, receive, send_with_headers)

    return serve


def _missing(pairs: Pairs, own: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Yield ours; how long it may be kept is said by the answer itself, where that knows it."""
    knows = any(name == b"cache-control" for name, _ in own)
    return (pair for pair in pairs if not (knows and pair[0] == b"cache-control"))


def headers_for(method: str, path: str) -> Pairs:
    """Return the headers of an answer to such a request."""
    public = is_open_page(method, path) and method != "POST"
    return (*EVERYWHERE, *(ASKED_AGAIN if public else UNKEPT))


# -------------------------------------------------------------------------------------------------- the page's own files
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
