"""May this browser come in? The gate for pages: the operator's credential opens it, and so does the cookie of a visit.

A cookie is sent by a browser whoever asks it to, and to every port of the same name. So more is asked of a request that
comes with one: that no other page sent it, and, if it may change something, that the page itself vouches for it.

Rule 1: Host and Origin come first, as at the other gate. The page itself, its scripts and styles, and the place where a code
    is traded need no credential.
Rule 2: a request with an Authorization header stands or falls with that; its cookie is not looked at.
Rule 3: with a cookie an Origin must be our own; what is more than reading needs one, and the visit's token. What the browser
    says of where a request comes from (Sec-Fetch-Site) must be ourselves, or a person.
Rule 4: of two cookies with our name neither counts.
"""

from dataclasses import replace
from typing import Final

from proctor.door.credentials import Headers, accepts, presented
from proctor.door.gate import READING, Policy, Verdict, judge_address
from proctor.door.visits import Visits

SHELL: Final = "/viewer/"
FRONTS: Final = ("/", "/viewer")
"""What people type; from there they are led to the page."""
STATICS: Final = "/viewer/static/"
ENTRANCE: Final = "/viewer/enter"
OPERATOR: Final = "/operator/"
LINK: Final = "/operator/link"
CSRF_HEADER: Final = "x-proctor-csrf"
OWN_SITES: Final = frozenset({b"same-origin", b"none"})


def cookie_name(port: int | None) -> str:
    """Return the name of the cookie: a browser keeps those of all ports of a machine together."""
    return f"proctor_visit_{port or 0}"


def judge_visitor(
    policy: Policy, visits: Visits, port: int | None, method: str, path: str, headers: Headers
) -> Verdict:
    """Return the verdict on a request for a page, or for what an operator does; never raises."""
    verdict = judge_address(policy, path, headers)
    if not verdict.allowed or is_open(method, path):
        return verdict
    if path.startswith(OPERATOR) and policy.credential is None:
        return verdict
    if any(name.lower() == b"authorization" for name, _ in headers):
        known = policy.credential is not None and accepts(policy.credential, presented(headers))
        return Verdict.ALLOWED if known else Verdict.NO_CREDENTIAL
    return _judge_visit(policy, visits, cookie_of(port, headers), method, path, headers)


def is_open(method: str, path: str) -> bool:
    """Return whether this needs no credential: the page, what it is made of, and where it trades its code."""
    if method == "POST":
        return path == ENTRANCE
    return method in READING and (path == SHELL or path in FRONTS or path.startswith(STATICS))


def is_pages(path: str) -> bool:
    """Return whether a path is one of the pages' own, or of what is asked there."""
    return path in FRONTS or path.startswith((SHELL, OPERATOR))


def cookie_of(port: int | None, headers: Headers) -> str | None:
    """Return the value of the one cookie with our name; None if there is none, or more than one."""
    wanted = f"{cookie_name(port)}=".encode()
    # Other programs of the host may have many; what bounds a request's headers bounds these.
    lines = [value for name, value in headers if name.lower() == b"cookie"]
    found = [part.strip(b" \t") for line in lines for part in line.split(b";")]
    values = [part.removeprefix(wanted) for part in found if part.startswith(wanted)]
    return values[0].decode("latin-1") if len(values) == 1 else None


def _judge_visit(
    policy: Policy, visits: Visits, cookie: str | None, method: str, path: str, headers: Headers
) -> Verdict:
    if not visits.has(cookie) or path == LINK:
        return Verdict.NO_CREDENTIAL
    sites = _values(headers, b"sec-fetch-site")
    own = judge_address(replace(policy, origins=frozenset(), pages=True), path, headers)
    if not own.allowed or not OWN_SITES.issuperset(sites):
        return Verdict.FOREIGN_ORIGIN
    if method in READING:
        return Verdict.ALLOWED
    if not _values(headers, b"origin"):
        return Verdict.FOREIGN_ORIGIN
    tokens = _values(headers, CSRF_HEADER.encode())
    token = tokens[0].decode("latin-1") if len(tokens) == 1 else None
    return Verdict.ALLOWED if visits.accepts(cookie, token) else Verdict.NO_TOKEN


def _values(headers: Headers, wanted: bytes) -> list[bytes]:
    return [value.strip(b" \t") for name, value in headers if name.lower() == wanted]
