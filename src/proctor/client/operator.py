"""The operator's client: what waits, how episodes stand, what was judged, and the operator's acts, without `await`.

Rule 1: it takes the operator's credential, which neither resets nor steps; a control credential opens none of this.
Rule 2: an act is sent once. If no answer comes, the error says that nobody knows whether it was done: `pending` and `sessions`
    tell.
Rule 3: an act names its episode, and an answer its question. If another episode runs by then, or the question does not wait
    any more, nothing is done, and the error says so (STALE_EPOCH, STALE_QUESTION).
Rule 4: what the judge refuses is a `Done` that says so (`accepted` is False); what cannot be asked for at all is an exception.
Rule 5: an HTTP connection serves one request, with nothing but the standard library; nothing is kept open, nothing is sent twice, no
    redirect and no proxy is followed: a credential goes where the user sent it. Every wait is bounded, and so is the size of what is read.
Rule 6: RequestTimeout says that nothing has changed, so only a request that changes nothing raises it. Where it is not known
    whether the server did what it was asked, the error says so.
"""

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final, Literal, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

from proctor.client.address import WEBSOCKET_PATH, Address, parse_address
from proctor.client.replies import exception_from_problem
from proctor.errors import ConnectionFailed, Missed, RemoteError, RequestTimeout, ValidationError
from proctor.models import operator as orders
from proctor.models.control import Code, Problem
from proctor.models.operator import Done, GovernedSession, InEpisode, JudgedRow, NamedQuestion, Severity, Waiting

MOST_BYTES: Final = 64 * 2**20
"""The largest answer that is read."""
OUTCOME_UNKNOWN: Final = "whether it did what it was asked is not known"


class _UnixConnection(HTTPConnection):
    def __init__(self, path: str, *, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def send_http_request(address: Address, path: str, body: bytes | None, *, seconds: float) -> tuple[int, bytes]:
    """Return the status and the content that answer a request for `path` at `address`: a GET, or a POST if it has a body.

    Raises ConnectionFailed if there is no connection or it breaks, and RequestTimeout if no answer to a GET comes in time.
    """
    where = urlsplit(address.uri)
    if address.socket_path is not None:
        connection: HTTPConnection = _UnixConnection(address.socket_path, timeout=CONNECT_SECONDS)
    else:
        kind = HTTPSConnection if address.secure else HTTPConnection
        connection = kind(where.hostname or "", where.port, timeout=CONNECT_SECONDS)
    headers = {**address.headers, "Accept": "application/json", "Connection": "close"}
    if body is not None:
        headers["Content-Type"] = "application/json"
    method, unknown = ("GET", "") if body is None else ("POST", f"; {OUTCOME_UNKNOWN}")
    try:
        try:
            connection.connect()
        except (OSError, HTTPException) as problem:
            raise ConnectionFailed(f"no connection to {address}: {_describe_problem(problem)}") from None
        connection.sock.settimeout(seconds)
        # A server need not be at the root of its address.
        connection.request(method, where.path.removesuffix(WEBSOCKET_PATH) + path, body, headers)
        with connection.getresponse() as response:
            content = response.read(MOST_BYTES + 1)
            if len(content) > MOST_BYTES:
                raise HTTPException(f"it is larger than {MOST_BYTES // 2**20} MiB")
            return response.status, content
    except ConnectionFailed:
        raise
    except TimeoutError:
        if body is None:
            raise RequestTimeout(f"no answer from {address}", expected=f"one within {seconds:g} seconds") from None
        raise ConnectionFailed(f"no answer from {address} within {seconds:g} seconds: {OUTCOME_UNKNOWN}") from None
    except (OSError, HTTPException) as problem:
        raise ConnectionFailed(f"the connection to {address} broke: {_describe_problem(problem)}{unknown}") from None
    finally:
        connection.close()


def _describe_problem(problem: Exception) -> str:
    return str(problem) or type(problem).__name__


T = TypeVar("T")
TOKEN_VARIABLE: Final = "PROCTOR_OPERATOR_TOKEN"  # noqa: S105  # the name of a variable, not a secret
CONNECT_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 30.0
WAIT_SECONDS: Final = 20.0
REFUSALS: Final = {
    401: "the server refused the operator's credential",
    403: "the server refused this Host",
    404: "there is no such thing for an operator, since no episode is governed there, or nothing kept,",
}


@dataclass(frozen=True, slots=True)
class JudgedRows:
    """Rows in order. `last` is the last one that there is; `missed` of those that were asked for are no longer kept."""

    rows: tuple[JudgedRow, ...]
    last: int
    missed: int


class OperatorClient:
    """An operator's hand on one server.

    `token` is the operator's credential; without it, the one in the address or in PROCTOR_OPERATOR_TOKEN is taken.
    """

    def __init__(self, url: str, *, token: str | None = None, timeout: float = ANSWER_SECONDS) -> None:
        if not 0 < timeout < float("inf"):
            raise ValidationError("not a time: timeout", found=timeout, expected="a positive number of seconds")
        self.address: Final = parse_address(url, token=token, environment=os.environ, variable=TOKEN_VARIABLE)
        self._timeout = timeout

    def __repr__(self) -> str:
        return f"OperatorClient({str(self.address)!r})"

    def pending(self) -> list[Waiting]:
        """Return what waits for an operator, the oldest first."""
        return self._request("pending", None, orders.Pending).waiting

    def sessions(self) -> list[GovernedSession]:
        """Return how the governed episodes stand that run."""
        return self._request("sessions", None, orders.Governed).sessions

    def page(self, after: int = 0, wait_seconds: float = WAIT_SECONDS) -> JudgedRows:
        """Return what was judged after row `after`; if there is nothing yet, wait for it, at most 60 seconds."""
        query = urlencode({"after": after, "wait": wait_seconds})
        found = self._request(f"watch?{query}", None, orders.JudgedPage, more=max(wait_seconds, 0.0))
        rows = tuple(_decode_reply(row, JudgedRow, self.address) for row in found.rows)
        return JudgedRows(rows, found.last, found.missed)

    def watch(
        self, after: int = 0, *, follow: bool = True, on_missed: Literal["raise", "skip"] = "raise"
    ) -> Iterator[JudgedRow]:
        """Yield every line of every governed episode with its verdict, as they come; `after` is the last row that one has.

        With `follow=False` it ends with the last row that there is. Raises Missed if rows are no longer kept.
        """
        while True:
            page = self.page(after, WAIT_SECONDS if follow else 0.0)
            after = next_after(page, after)
            if page.missed and on_missed == "raise":
                first = page.rows[0].row if page.rows else page.last + 1
                raise Missed(f"{page.missed} rows are no longer kept", missed=page.missed, next_row=first)
            yield from page.rows
            if not follow and after >= page.last:
                return

    def question(self, name: str) -> Waiting:
        """Return what waits under this name, SESSION.EPOCH.NUMBER-RUN, or under this id; raise if nothing does, or several."""
        found = [each for each in self.pending() if name in (orders.question_name(each), each.id)]
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(map(orders.question_name, found))
            raise ValidationError("this names several questions", found=name, expected=f"one of {names}")
        raise RemoteError(
            "no such question waits: it was answered or withdrawn, its episode is over, or there never was one",
            code=Code.STALE_QUESTION,
            expected="one that `pending` lists",
        )

    def answer(self, question: NamedQuestion | str, choice: str | None = None, *, text: str = "") -> Done:
        """Answer an agent's question by the id of an option, in words, or both.

        Here and below, the question is what `pending` returned, or its name: SESSION.EPOCH.NUMBER-RUN.
        """
        asked = self._find_question(question)
        return self._act("answer", orders.Answer(asked.session, asked.epoch, asked.id, choice, text))

    def approve(
        self,
        question: NamedQuestion | str,
        *,
        uses: int | None = None,
        life_seconds: float | None = None,
        text: str = "",
    ) -> Done:
        """Issue the token that was asked for, or a smaller one."""
        asked = self._find_question(question)
        return self._act("approve", orders.Approve(asked.session, asked.epoch, asked.id, uses, life_seconds, text))

    def deny(self, question: NamedQuestion | str, *, text: str = "") -> Done:
        """Do not issue the token that was asked for."""
        asked = self._find_question(question)
        return self._act("deny", orders.Deny(asked.session, asked.epoch, asked.id, text))

    def alert(self, episode: InEpisode | str, summary: str, *, severity: Severity = "CRITICAL") -> Done:
        """State that something is wrong; CRITICAL stops the episode's agents at once, until `clear`.

        Here and below, the episode is whatever belongs to it (a row, a question, one of `sessions`) or `SESSION.EPOCH`.
        """
        return self._act("alert", orders.RaiseAlert(*_parse_episode(episode), summary, severity))

    def clear(self, episode: InEpisode | str, summary: str = "") -> Done:
        """Lift the safe mode of the episode."""
        return self._act("clear", orders.Clear(*_parse_episode(episode), summary))

    def revoke(self, episode: InEpisode | str, *, token_id: str | None = None, grant: str | None = None) -> Done:
        """Take back a token, or an agent's whole grant; one of the two."""
        return self._act("revoke", orders.Withdraw(*_parse_episode(episode), token_id, grant))

    def approve_budget(
        self,
        episode: InEpisode | str,
        *,
        token_budget: int = 0,
        tool_call_budget: int = 0,
        time_budget_seconds: int = 0,
        note: str = "",
    ) -> Done:
        """Add to what may be spent in the episode."""
        amounts = (token_budget, tool_call_budget, time_budget_seconds)
        return self._act("budget", orders.ApproveBudget(*_parse_episode(episode), *amounts, note))

    def link(self) -> str:
        """Return an address of the server's pages, for a browser; it is good once, for an hour."""
        return self._request("link", b"{}", orders.Link).url

    def _find_question(self, question: NamedQuestion | str) -> NamedQuestion:
        return self.question(question) if isinstance(question, str) else question

    def _act(self, name: str, order: msgspec.Struct) -> Done:
        try:
            msgspec.convert(msgspec.to_builtins(order), type(order))
            body = msgspec.json.encode(order)
        except (msgspec.ValidationError, TypeError, UnicodeEncodeError) as problem:
            raise ValidationError(f"this cannot be asked for: {problem}") from None
        return self._request(name, body, Done)

    def _request(self, name: str, body: bytes | None, kind: type[T], more: float = 0.0) -> T:
        seconds = self._timeout + more
        status, content = send_http_request(self.address, f"/operator/{name}", body, seconds=seconds)
        if status == 200:
            return _decode_reply(content, kind, self.address)
        try:
            problem = msgspec.json.decode(content, type=Problem)
        except (msgspec.DecodeError, UnicodeDecodeError):
            message = REFUSALS.get(status, "the server refused the request")
            raise ConnectionFailed(f"{message} at {self.address}", found=status) from None
        raise exception_from_problem(problem)


def next_after(page: JudgedRows, after: int) -> int:
    """Return after which row to ask next: a server that was started anew counts from 1 again."""
    if page.last < after:
        return 0
    return page.rows[-1].row if page.rows else min(after + page.missed, page.last)


def _parse_episode(episode: InEpisode | str) -> tuple[str, int]:
    """Return the session and the epoch of an episode, or raise a ValidationError for a text that names none."""
    if not isinstance(episode, str):
        return episode.session, episode.epoch
    session, _, epoch = episode.rpartition(".")
    if session and epoch.isascii() and epoch.isdigit():
        return session, int(epoch)
    raise ValidationError("this names no episode", found=episode, expected="SESSION.EPOCH, as `sessions` shows it")


def _decode_reply(raw: bytes | msgspec.Raw, kind: type[T], address: Address) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ConnectionFailed(f"what came from {address} is no answer of an operator's server") from None
