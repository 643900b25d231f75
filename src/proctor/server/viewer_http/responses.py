"""How answers are sent: security headers on every one, gzip where it is worth it, and news as server-sent events.

Rule: the headers are put on by the outermost layer, so that no answer, a refusal neither, leaves without them.
"""

import zlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from typing import Any, Final

from proctor.access.browser_visits import is_open_page, is_page_path

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


def gzip_body(body: bytes) -> bytes:
    """Return the body as gzip has it."""
    press = zlib.compressobj(LEVEL, wbits=GZIP)
    return press.compress(body) + press.flush()


def gzip_if_large(body: bytes, packs: bool) -> tuple[bytes, bool]:
    """Return the body, packed if it may be and that is worth it, and whether it is."""
    return (gzip_body(body), True) if packs and len(body) > LARGE else (body, False)


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
