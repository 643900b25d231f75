"""What earlier runs left open in a file: where its chains stand, and the sessions that nobody closed.

Rule 1: the last server chain says which sessions were open when its run began, so nothing before the oldest of them is read.
Rule 2: a chain that is not as it was written is said to be so; what to do about it is the reader's to decide.
"""

import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import UNSET

from proctor.errors import ComponentError, ValidationError
from proctor.ledger.chain import (
    SERVER_PREFIX,
    ChainState,
    ChainWalk,
    count_event,
    epoch_from_chain_name,
    format_head,
    is_episode_chain,
    session_from_chain_name,
)
from proctor.ledger.rows import (
    ObservationStorage,
    PartialEvent,
    RowBody,
    RunBegan,
    encode_opening_row,
    lacks_observation,
    parse_event_or_statement,
    parse_partial_row,
    parse_statement,
    read_body,
)
from proctor.ledger.storage.ledger_file import ChainEntry, LedgerFile, Row
from proctor.ledger.storage.sqlite import translate_errors
from proctor.models.events import Event, SessionClosed, SessionOpened


@dataclass(frozen=True)
class UnfinishedSession:
    """A session that no run has closed."""

    opened: SessionOpened
    events: list[Event]
    """Of its latest chain after the first row, whole, with the values of observations; empty if there was no reset."""
    last_request_id: int
    """The highest that any of its events has, in any chain; 0 if none has one."""
    all_epochs: int
    """The session's last epoch; 0 if there was no reset."""
    digests: list[str | None] = field(default_factory=list)
    """Beside `events`: the SHA-256 of the observation's exact bytes in hexadecimal digits."""
    steps_before: int = 0
    """Steps in all its earlier chains, and those of them that agents caused."""
    agent_steps_before: int = 0
    damage: str = ""
    """Why its latest chain cannot be trusted; empty: it is as it was written."""

    @property
    def rows(self) -> Iterator[Row]:
        """The events as rows, of which the number and the hash are not known any more."""
        for seq, (event, digest) in enumerate(zip(self.events, self.digests, strict=True), 1):
            yield Row(0, self.opened.session, seq, event, digest, not lacks_observation(event, digest), b"")


@dataclass(frozen=True, slots=True)
class RecoveredState:
    """Where the chains of a file stand."""

    next: int
    previous: str | None
    opened: dict[str, int]
    """The rows that say SessionOpened of sessions that are not closed, in order."""
    states: dict[str, ChainState]
    damages: dict[str, str]


def recover_state(file: LedgerFile, keeps: ObservationStorage) -> RecoveredState:
    """Return where the file stands; `keeps` is how new chains will keep observations."""
    try:
        with translate_errors(file.path, ComponentError):
            (last,) = file.connection.execute("SELECT max(number) FROM rows").fetchone()
        servers = [chain for chain in file.chains() if chain.name.startswith(SERVER_PREFIX)]
        if not servers:
            return RecoveredState((last or 0) + 1, None, {}, {}, {})
        previous, opened = _read_server_chain(file, servers[-1])
        chain_states, damages = _find_chain_states(file, opened, keeps)
    except ValidationError as problem:
        raise ComponentError(f"the ledger {file.path} is damaged: {problem}") from problem
    return RecoveredState(last + 1, previous, opened, chain_states, damages)


def _read_server_chain(file: LedgerFile, server: ChainEntry) -> tuple[str | None, dict[str, int]]:
    opened: dict[str, int] = {}
    head = None
    for number, _, seq, body, digest in file.read_chain_rows(server):
        head = format_head(server.name, seq + 1, digest)
        said = parse_event_or_statement(read_body(body), trusted=file.trusted)
        if isinstance(said, RunBegan):
            opened = {_read_opening(file, each)[1].session: each for each in said.unfinished}
        elif isinstance(said, SessionOpened):
            opened[said.session] = number
        elif isinstance(said, SessionClosed):
            opened.pop(said.session, None)
    return head, opened


def _read_opening(file: LedgerFile, number: int) -> tuple[RowBody, SessionOpened]:
    found = file.read_row(number)
    if found is None:
        raise ValidationError(f"row {number} is missing", expected="the opening of a session")
    body = read_body(found[3])
    said = parse_event_or_statement(body, trusted=file.trusted)
    if not isinstance(said, SessionOpened):
        raise ValidationError(f"row {number} is another", expected="the opening of a session")
    return body, said


def find_unfinished_chains(file: LedgerFile) -> set[str]:
    """Return the names of the chains of sessions that no run has closed; a ValidationError if that cannot be read."""
    servers = [chain for chain in file.chains() if chain.name.startswith(SERVER_PREFIX)]
    opened = _read_server_chain(file, servers[-1])[1] if servers else {}
    return {chain.name for chains in _find_session_chains(file, opened).values() for chain in chains}


def _find_chain_states(
    file: LedgerFile, opened: dict[str, int], keeps: ObservationStorage
) -> tuple[dict[str, ChainState], dict[str, str]]:
    latest = {session: chains[-1] for session, chains in _find_session_chains(file, opened).items() if chains}
    walks = {chain.first: ChainWalk(chain.first, chain.name, chain.last) for chain in latest.values()}
    damages: dict[int, str] = {}
    for number, first, seq, body, digest in file.read_rows_of_chains(walks):
        problem = _read_chain_row(walks[first], number, seq, body, digest)
        if problem:
            damages.setdefault(first, f"row {number} of the chain {walks[first].name} {problem}")
    chain_states = {}
    for session, number in opened.items():
        opening = encode_opening_row(_read_opening(file, number)[0], keeps)
        if session in latest:
            walk = walks[latest[session].first]
            place = (walk.name, walk.first, walk.seq, walk.number, walk.hash)
            chain_states[session] = ChainState(opening, *place, walk.last is None, walk.keeps, walk.totals)
        else:
            chain_states[session] = ChainState(opening)
    return chain_states, {session: damages.get(chain.first, "") for session, chain in latest.items()}


def _read_chain_row(walk: ChainWalk, number: int, seq: int, body: bytes, digest: bytes) -> str:
    """Go on to a row of the server's own file; return what is wrong with it, and nothing if nothing is."""
    problem = "is not as it was written" if walk.check_row(number, seq, body, digest) else ""
    try:
        read = read_body(body)
        walk.keeps = read.observations or walk.keeps
        walk.totals = count_event(walk.totals, parse_event_or_statement(read, trusted=True))
    except ValidationError as error:
        return problem or f"cannot be read: {error}"
    return problem


def _find_session_chains(file: LedgerFile, opened: dict[str, int]) -> dict[str, list[ChainEntry]]:
    found: dict[str, list[ChainEntry]] = {session: [] for session in opened}
    for chain in file.chains():
        session = session_from_chain_name(chain.name)
        if is_episode_chain(chain.name) and session in opened and chain.first > opened[session]:
            found[session].append(chain)
    return found


def read_unfinished_sessions(path: Path, found: RecoveredState) -> list[UnfinishedSession]:
    """Return the sessions that are not closed, whole."""
    latest = {session: state.first for session, state in found.states.items()}
    try:
        with closing(LedgerFile(path, live=True)) as file:
            counts = _count_sessions(file, found.opened, latest)
            return [_read_unfinished_session(file, session, found, counts[session]) for session in found.opened]
    except ValidationError as problem:
        raise ComponentError(f"the ledger {path} is damaged: {problem}") from problem


def _read_unfinished_session(
    file: LedgerFile, session: str, found: RecoveredState, counts: "_Counts"
) -> UnfinishedSession:
    damage = found.damages.get(session, "")
    rows: list[Row] = []
    try:
        chain = file.chain(found.states[session].name)
        if chain is not None:
            rows = [file.row(chain.name, stored) for stored in file.read_chain_rows(chain)]
    except ValidationError as problem:
        damage = damage or str(problem)
    rows = [row for row in rows if not isinstance(row.event, SessionOpened)]
    return UnfinishedSession(
        opened=_read_opening(file, found.opened[session])[1],
        events=[row.event for row in rows],  # type: ignore[misc]  # an episode's chain has none of the ledger's own
        last_request_id=counts.request_id,
        all_epochs=counts.epochs,
        digests=[row.digest for row in rows],
        steps_before=counts.steps,
        agent_steps_before=counts.agent_steps,
        damage=damage,
    )


@dataclass(slots=True)
class _Counts:
    request_id: int = 0
    epochs: int = 0
    steps: int = 0
    agent_steps: int = 0
    latest: int = 0
    """The first row of the session's latest chain, whose steps are not counted here."""

    def add(self, first: int, event: PartialEvent) -> None:
        self.request_id = max(self.request_id, event.request_id or 0)
        self.epochs = max(self.epochs, event.epoch)
        if event.event in ("episode_stepped", "batch_stepped") and first != self.latest:
            self.steps += 1
            self.agent_steps += event.grant is not None


def _count_sessions(file: LedgerFile, opened: dict[str, int], latest: dict[str, int]) -> dict[str, _Counts]:
    """Return what was counted of each session in all its chains, and in the server's."""
    counts = {session: _Counts(latest=latest[session]) for session in opened}
    firsts = [chain.first for each in _find_session_chains(file, opened).values() for chain in each]
    firsts += [chain.first for chain in file.chains() if chain.name.startswith(SERVER_PREFIX)]
    for _, first, _, body, _ in file.read_rows_of_chains(firsts, start=min(opened.values(), default=sys.maxsize)):
        try:
            row = parse_partial_row(body)
            named = "" if row.own is UNSET else getattr(parse_statement(row.own), "chain", "")
        except ValidationError:
            continue  # a damaged row: `verify` names it
        if row.event is not UNSET and row.event.session in counts:
            counts[row.event.session].add(first, row.event)
        elif session_from_chain_name(named) in counts:
            # The chain itself may have been pruned; its epoch is not given out again.
            counted = counts[session_from_chain_name(named)]
            counted.epochs = max(counted.epochs, epoch_from_chain_name(named))
    return counts
