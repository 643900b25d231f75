"""`proctor operator`: what governed episodes ask of a human, the human's answers, and a live view of what is judged.

Rule 1: exit code 0 if it was done, 1 if the judge refused it, 2 if it could not be asked for.
Rule 2: the credential is read from the file that is named, the address, PROCTOR_OPERATOR_TOKEN or the state file, in this
    order; it is never an argument, which every process of the machine can read.
Rule 3: what agents wrote is shown, never obeyed: nothing in it can move a terminal's cursor, and every line of it is marked.
Rule 4: an act names the episode that it is about, by session and epoch, and an answer its question, which is printed with it. If
    another episode runs by then, or the question does not wait any more, nothing is done.
Rule 5: in a list, what stands in a column is never shortened: people copy it. What stands beneath is wrapped to the terminal.
Rule 6: `watch` leaves nothing out in silence: rows that are no longer kept are counted, a server that has gone is named. One that
    was started anew is followed from its first row; one that does not come back ends the feed.
"""

import os
import re
import shlex
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, cast

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from proctor.access.credentials import OPERATOR, default_state_file, read_private
from proctor.cli.output import encode_line, make_app, open_in_browser, print_note, printable, standard_output
from proctor.cli.terminal import OutputFormat, clip, format_cells, stdout_format
from proctor.client.operator import WAIT_SECONDS, JudgedRows, OperatorClient, next_after
from proctor.errors import ConnectionFailed, RemoteError, RequestTimeout, ValidationError
from proctor.models.control import Code
from proctor.models.operator import Done, Governed, GovernedSession, JudgedRow, Link, Pending, Waiting, question_name
from proctor.narration.events import describe_refusal
from proctor.narration.verdicts import ACCEPTED, REFUSED

DEFAULT_URL: Final = "http://127.0.0.1:8000"
# Ids and sessions may begin with a dash: whatever is no option of ours is taken as one.
ALLOW_DASHES: Final[dict[str, Any]] = {"ignore_unknown_options": True}

Url = Annotated[str, typer.Option("--url", help="The server's address.")]
TokenFile = Annotated[
    Path | None, typer.Option("--token-file", help="A file (0600) that holds the operator's credential.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
QuestionName = Annotated[
    str, typer.Argument(metavar="QUESTION", help="SESSION.EPOCH.NUMBER-RUN, as `pending` shows it.")
]
EpisodeName = Annotated[str, typer.Argument(metavar="EPISODE", help="SESSION.EPOCH, as `sessions` shows it.")]
TextOption = Annotated[str, typer.Option("--text", help="What is said to the agent.")]


def _refuse_option(words: str | None) -> str | None:
    """Return words as they are, unless they are an option that was mistyped: only names may begin with two dashes."""
    if words is not None and words.startswith("--"):
        raise ValidationError("there is no such option", found=words, expected="words that do not begin with `--`")
    return words


operator = make_app("Answer, stop and watch the agents of governed episodes.")


@operator.command()
def pending(url: Url = DEFAULT_URL, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """Show what waits for an operator: the questions and their options, and tokens that were asked for."""
    waiting = _client(url, token_file).pending()
    if as_json:
        _print_json(Pending(waiting))
    elif waiting:
        _print_questions(waiting)
    else:
        typer.echo("nothing waits for an operator")


@operator.command()
def sessions(url: Url = DEFAULT_URL, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """Show how the governed episodes stand."""
    found = _client(url, token_file).sessions()
    if as_json:
        _print_json(Governed(found))
    elif found:
        headings = ("episode", "state", "policy", "steps", "packets", "refused", "waiting")
        _print_list(headings, [_session_entry(each) for each in found])
    else:
        typer.echo("no governed episode runs")


@operator.command()
def watch(
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,
    after: Annotated[int, typer.Option(min=0, help="The last row that one has seen.")] = 0,
    new: Annotated[bool, typer.Option("--new", help="Only what comes from now on.")] = False,
    once: Annotated[bool, typer.Option("--once", help="End with the last row that there is.")] = False,
    session: Annotated[str | None, typer.Option(help="Only this session.")] = None,
    refused_only: Annotated[bool, typer.Option("--refused-only", help="Only what was refused.")] = False,
) -> None:
    """Show every packet with its verdict as it is judged, until Ctrl-C."""
    client = _client(url, token_file)
    try:
        with standard_output() as output:
            output.write_at_once(True)
            first = client.page(BEYOND_LAST_ROW, 0.0).last if new else after
            if not as_json:
                output.print(stdout_format().style(_format_cells(FEED_HEADINGS), bold=True) + "\n")
            for page in read_pages(client, first, follow=not once, note=partial(print_note, style="yellow")):
                for row in page.rows:
                    if session not in (None, row.session) or (refused_only and row.accepted):
                        continue
                    if as_json:
                        output.write(encode_line(row))
                    else:
                        output.print(format_row(row, stdout_format()) + "\n")
    except KeyboardInterrupt:
        # This is how one is meant to end it.
        raise typer.Exit(0) from None


@operator.command(context_settings=ALLOW_DASHES)
def answer(
    question: QuestionName,
    option: Annotated[
        str | None, typer.Argument(metavar="OPTION", help="The id of an option.", callback=_refuse_option)
    ] = None,
    text: TextOption = "",
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Answer an agent's question: choose one of its options, say something with --text, or both."""
    if option is None and not text:
        raise ValidationError("an answer says something", expected="an option, --text, or both")
    client = _client(url, token_file)
    _print_result(client.answer(_print_question(client, question, as_json), option, text=text), as_json)


@operator.command(context_settings=ALLOW_DASHES)
def approve(
    question: QuestionName,
    uses: Annotated[int | None, typer.Option(min=1, help="Fewer uses than were asked for.")] = None,
    life: Annotated[float | None, typer.Option(help="Seconds; fewer than the policy gives.")] = None,
    text: TextOption = "",
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Issue the token that an agent asked for."""
    client = _client(url, token_file)
    asked = _print_question(client, question, as_json)
    _print_result(client.approve(asked, uses=uses, life_seconds=life, text=text), as_json)


@operator.command(context_settings=ALLOW_DASHES)
def deny(
    question: QuestionName,
    text: TextOption = "",
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Do not issue the token that an agent asked for."""
    client = _client(url, token_file)
    _print_result(client.deny(_print_question(client, question, as_json), text=text), as_json)


@operator.command(context_settings=ALLOW_DASHES)
def alert(
    episode: EpisodeName,
    summary: Annotated[str, typer.Argument(help="What is wrong.", callback=_refuse_option)],
    severity: Annotated[str, typer.Option(help="INFO, WARNING, ERROR or CRITICAL.")] = "CRITICAL",
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """State that something is wrong; CRITICAL stops the episode's agents at once, until `clear`."""
    _print_result(_client(url, token_file).alert(episode, summary, severity=cast(Any, severity.upper())), as_json)


@operator.command(context_settings=ALLOW_DASHES)
def clear(
    episode: EpisodeName,
    summary: Annotated[str, typer.Argument(help="Why it can go on.", callback=_refuse_option)] = "",
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Lift the safe mode of an episode."""
    _print_result(_client(url, token_file).clear(episode, summary), as_json)


@operator.command(context_settings=ALLOW_DASHES)
def revoke(
    episode: EpisodeName,
    token: Annotated[str | None, typer.Option(help="The id of a token.")] = None,
    grant: Annotated[str | None, typer.Option(help="The name of a grant: its agent has no tools any more.")] = None,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Take back a token, or an agent's whole grant."""
    if (token is None) == (grant is None):
        raise ValidationError("one thing is revoked at a time", expected="--token or --grant")
    _print_result(_client(url, token_file).revoke(episode, token_id=token, grant=grant), as_json)


@operator.command(context_settings=ALLOW_DASHES)
def budget(
    episode: EpisodeName,
    tokens: Annotated[int, typer.Option(min=0, help="More tokens of language.")] = 0,
    tool_calls: Annotated[int, typer.Option(min=0, help="More calls of tools.")] = 0,
    seconds: Annotated[int, typer.Option(min=0, help="More time.")] = 0,
    note: Annotated[str, typer.Option(help="Why.")] = "",
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Add to what may be spent in an episode."""
    if not (tokens or tool_calls or seconds):
        raise ValidationError("nothing is added", expected="--tokens, --tool-calls or --seconds")
    amounts = {"token_budget": tokens, "tool_call_budget": tool_calls, "time_budget_seconds": seconds}
    _print_result(_client(url, token_file).approve_budget(episode, **amounts, note=note), as_json)


@operator.command()
def link(
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    as_json: AsJson = False,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open it in a browser.")] = False,
) -> None:
    """Print a new address of the server's pages, for a browser; it is good once, for an hour."""
    address = _client(url, token_file).link()
    if as_json:
        _print_json(Link(address))
    else:
        typer.echo(printable(address))
    if open_browser:
        open_in_browser(address).join()


def _client(url: str, token_file: Path | None) -> OperatorClient:
    if token_file is not None:
        try:
            return OperatorClient(url, token=read_private(token_file, follow_links=True))
        except FileNotFoundError:
            expected = "a file that holds the credential"
            raise ValidationError(f"there is no file {token_file}", expected=expected) from None
    client = OperatorClient(url)
    if client.address.token is None:
        # What a server on this machine keeps for its operator, if there is one.
        with suppress(FileNotFoundError):
            kept = read_private(default_state_file(os.environ, OPERATOR), follow_links=False)
            return OperatorClient(url, token=kept)
    return client


# -------------------------------------------------------------------------------------------------------- what one sees
INDENT: Final = "    "
QUOTE: Final = "> "
"""Begins every line of words that a peer chose freely, and no other line: they are not taken for words of this program."""
NARROWEST: Final = 30
MOST_LINES: Final = 20


class ListDetail(NamedTuple):
    """A paragraph beneath an entry, behind `word` where that says what it is; `quoted` if a peer wrote it."""

    text: str
    word: str = ""
    style: str = ""
    quoted: bool = False


class ListEntry(NamedTuple):
    """One thing: its columns, and what is said of it."""

    cells: Sequence[str]
    details: Sequence[ListDetail] = ()
    style: str = "bold"


def list_lines(headings: Sequence[str], entries: Sequence[ListEntry], width: int | None) -> Iterator[Text]:
    """Yield the lines; `width` None is for a page on which nothing is wrapped."""
    rows = [headings, *(tuple(map(printable, entry.cells)) for entry in entries)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(format_cells(row, widths)).rstrip() for row in rows]
    yield Text(lines[0], style="dim")
    for entry, line in zip(entries, lines[1:], strict=True):
        yield Text(line, style=entry.style)
        word = max((len(printable(detail.word)) for detail in entry.details), default=0)
        for detail in entry.details:
            yield from _detail_lines(detail, word, width)


def _detail_lines(detail: ListDetail, word: int, width: int | None) -> Iterator[Text]:
    mark = QUOTE if detail.quoted else ""
    indent = INDENT + (f"{printable(detail.word).ljust(word)}  " if detail.word else "")
    first, rest = indent + mark, " " * len(indent) + mark
    lines = [printable(part.rstrip()) for part in detail.text.split("\n")]
    if width is not None:
        room = max(width - len(first), NARROWEST)
        lines = [line for part in lines for line in textwrap.wrap(part, room, break_on_hyphens=False) or [""]]
    for number, line in enumerate(lines[:MOST_LINES]):
        yield Text(f"{rest if number else first}{line}".rstrip(), style=detail.style)
    if len(lines) > MOST_LINES:
        yield Text(f"{rest}... {len(lines) - MOST_LINES} more lines: --json has all of it", style="dim")


def _print_list(headings: Sequence[str], entries: Sequence[ListEntry]) -> None:
    console = Console(highlight=False, markup=False, emoji=False)
    for line in list_lines(headings, entries, console.width if console.is_terminal else None):
        console.print(line, soft_wrap=True)


def _print_json(value: msgspec.Struct) -> None:
    with standard_output() as output:
        output.write(encode_line(value))


def _print_question(client: OperatorClient, name: str, as_json: bool) -> Waiting:
    """Return the question of this name, and print it: whoever answers sees what."""
    found = client.question(name)
    if not as_json:
        _print_questions([found])
    return found


def _print_questions(waiting: Sequence[Waiting]) -> None:
    _print_list(("question", "kind", "session", "epoch", "waits"), [_question_entry(each) for each in waiting])


def _question_entry(each: Waiting) -> ListEntry:
    cells = (question_name(each), each.kind, each.session, str(each.epoch), format_wait(time.time() - each.since))
    options = [
        ListDetail(option.description, word=f"option {_quote_option(option.option_id)}", style="cyan", quoted=True)
        for option in each.options
    ]
    ways = [ListDetail("approve or deny", style="cyan")] if each.kind == "token" and not options else options
    return ListEntry(cells, [*_agent_details(each.agent), ListDetail(each.question, word="asks", quoted=True), *ways])


def _quote_option(name: str) -> str:
    """Return an option's id as it can be typed; one with other signs than those of plain names in quotation marks."""
    return name if re.fullmatch(r"[\w.-]+", name) and name.isprintable() else shlex.quote(printable(name))


def _session_entry(each: GovernedSession) -> ListEntry:
    state = f"{each.state} (over)" if each.over else each.state
    counts = (each.steps, each.packets, each.refusals, each.waiting)
    cells = (f"{each.session}.{each.epoch}", state, each.policy, *map(str, counts))
    details = [("legal next:", each.legal_next), ("open:", each.obligations), ("tokens:", each.tokens)]
    told = [ListDetail(", ".join(words), word=word, style="dim") for word, words in details if words]
    return ListEntry(cells, [*_agent_details(each.agent), *told], "bold red" if each.safe_mode else "bold")


def _agent_details(name: str) -> list[ListDetail]:
    return [ListDetail(name, word="agent:", style="dim")] if name else []


def format_wait(seconds: float) -> str:
    """Return how long something takes, in the largest unit that says it."""
    whole = max(0, int(seconds))
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if whole >= 2 * size:
            return f"{whole // size} {unit}"
    return f"{whole} s"


def _print_result(done: Done, as_json: bool) -> None:
    """Say what came of an act, and end with the code that says the same."""
    state = f"the episode {done.session}.{done.epoch} is in {done.state}"
    if as_json:
        _print_json(done)
    elif done.accepted:
        typer.echo(printable(f"done; {state}"))
    else:
        print_note(f"refused: {describe_refusal(done.rules, done.reason)}; {state}", style="red")
    raise typer.Exit(0 if done.accepted else 1)


# ------------------------------------------------------------------------------------------------- what is judged, live
FEED_COLUMNS: Final = {"time": 12, "episode": 19, "state": 12, "who": 8, "packet": 16, "verdict": 8}
FEED_HEADINGS: Final = (*FEED_COLUMNS, "reason")
COLUMNS_WIDTH: Final = sum(FEED_COLUMNS.values()) + len(FEED_COLUMNS)
RETRY_SECONDS: Final = 60.0
PAUSE_SECONDS: Final = 1.0
BEYOND_LAST_ROW: Final = 2**53
"""After this row there is none: an answer tells how many there are."""


def format_row(row: JudgedRow, form: OutputFormat) -> str:
    """Return a row of the feed; on a terminal it fits, elsewhere the reason stays whole."""
    word = ACCEPTED if row.accepted else REFUSED
    at = datetime.fromtimestamp(row.at).astimezone().strftime("%H:%M:%S.%f")[:-3]
    kind = row.kind.removesuffix("Packet") or "unreadable"
    # Of an accepted packet, the tool that said it.
    told = (row.reason or row.tool or "") if row.accepted else describe_refusal(row.rules, row.reason)
    reason = clip(told, max(form.width - COLUMNS_WIDTH, 10)) if form.terminal else printable(told)
    text = _format_cells((at, f"{row.session}.{row.epoch}", row.state or "-", row.principal, kind, word, reason))
    start = COLUMNS_WIDTH - FEED_COLUMNS["verdict"] - 1
    styled = form.style(word, fg="green" if row.accepted else "red")
    return text[:start] + styled + text[start + len(word) :]


def _format_cells(cells: Sequence[str]) -> str:
    return " ".join([*format_cells(cells[:-1], FEED_COLUMNS.values()), cells[-1]]).rstrip()


def read_pages(
    client: OperatorClient,
    after: int,
    *,
    follow: bool,
    note: Callable[[str], object],
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], object] = time.sleep,
) -> Iterator[JudgedRows]:
    """Yield what was judged after row `after`, and with `follow` what comes, page by page.

    A server that goes away is waited for; one that stays away, or was never there, is the error that says so.
    """
    was_there, gone_since = False, None
    while True:
        try:
            page = client.page(after, WAIT_SECONDS if follow else 0.0)
        except (ConnectionFailed, RequestTimeout, RemoteError) as problem:
            # The server may answer again if it is stopping, or nobody is there; but not if it has refused something.
            stops = isinstance(problem, RemoteError) and problem.code == Code.SHUTTING_DOWN
            refused = isinstance(problem, RemoteError) or isinstance(problem.found, int)
            if not (follow and was_there and (stops or not refused)):
                raise
            if gone_since is None:
                gone_since = clock()
                note(f"the server has gone ({problem}); waiting for it")
            if clock() - gone_since > RETRY_SECONDS:
                raise
            pause(PAUSE_SECONDS)
            continue
        was_there, gone_since = True, None
        if page.missed:
            note(f"{page.missed} rows are no longer kept")
        after = next_after(page, after)
        yield page
        if not follow and after >= page.last:
            return
