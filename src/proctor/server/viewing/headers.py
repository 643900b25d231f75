"""What a browser is told about every answer: what a page may load, who may frame it, what may be kept.

Rule: the headers are put on by the outermost layer, so that no answer, a refusal neither, leaves without them.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from typing import Any, Final

from proctor.door.visitors import is_open, is_pages

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


def with_headers(application: Application) -> Application:
    """Return the application with our headers on every answer below the viewer's and the operator's paths."""

    async def headed(scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not is_pages(scope["path"]):
            await application(scope, receive, send)
            return
        more = headers_for(scope["method"], scope["path"])

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = message.get("headers", ())
                message = {**message, "headers": [*own, *_missing(more, own)]}
            await send(message)

        await application(scope, receive, sent)

    return headed


def _missing(pairs: Pairs, own: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Yield ours; how long it may be kept is said by the answer itself, where that knows it."""
    knows = any(name == b"cache-control" for name, _ in own)
    return (pair for pair in pairs if not (knows and pair[0] == b"cache-control"))


def headers_for(method: str, path: str) -> Pairs:
    """Return the headers of an answer to such a request."""
    public = is_open(method, path) and method != "POST"
    return (*EVERYWHERE, *(ASKED_AGAIN if public else UNKEPT))
