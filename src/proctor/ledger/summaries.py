"""What can be said of an episode on one line, from as few rows as possible.

Rule 1: of a chain that the server ended, four rows are read, wherever they lie; of others all are.
"""

from dataclasses import dataclass
from pathlib import Path

from proctor.errors import ValidationError
from proctor.ledger.chain import is_episode, session_of
from proctor.ledger.files import Chain, LedgerFile, Stored
from proctor.ledger.head import head_text
from proctor.ledger.rows import ChainEnded, Own, read_body, statement_in
from proctor.ledger.tracks import NOTHING, TERMINATED, TRUNCATED, Tally, tallied, told_total
from proctor.models.events import BatchReset, EpisodeClosed, EpisodeReset, Event, SessionOpened


@dataclass(frozen=True, slots=True)
class EpisodeSummary:
    """What can be said of an episode on one line."""

    chain: str
    session: str
    epoch: int
    environment: str
    target: str
    episode_id: str
    seed: int | None
    """As asked for; None for a batch."""
    opened_at: float
    closed_at: float | None
    steps: int
    total_reward: float | None
    terminated: bool
    truncated: bool
    reason: str | None
    """Why it was closed; empty: it is open; None: it was left without a word."""
    governed: bool
    outcome: str | None
    num_envs: int | None
    rows: int
    head: str
    file: Path
    boot: str


def summaries(file: LedgerFile) -> list[EpisodeSummary]:
    """Return the episodes of a file, in order of their first rows."""
    chains = [chain for chain in file.chains() if is_episode(chain.name)]
    quick = {chain.first: _quick(file, chain) for chain in chains}
    slow = {chain.first: _Fold() for chain in chains if quick[chain.first] is None}
    for stored in file.stored_of(slow):
        slow[stored[1]].take(stored)
    return [_summary(file.path, chain, quick[chain.first] or slow[chain.first]) for chain in chains]


class _Fold:
    """What a summary is made of, gathered row by row."""

    def __init__(self) -> None:
        self.opened: SessionOpened | None = None
        self.reset: EpisodeReset | BatchReset | None = None
        self.closed: EpisodeClosed | None = None
        self.tally: Tally = NOTHING
        self.seq = -1
        self.hash = b""

    def take(self, stored: Stored) -> None:
        _, _, self.seq, body, self.hash = stored
        said = _said(body)
        if isinstance(said, SessionOpened):
            self.opened = said
        elif isinstance(said, EpisodeReset | BatchReset):
            self.reset = self.reset or said
        elif isinstance(said, EpisodeClosed):
            self.closed = said
        elif said is not None:
            self.tally = tallied(self.tally, said)


def _quick(file: LedgerFile, chain: Chain) -> _Fold | None:
    """Return what four rows say of a chain that has ended; None: they do not say it."""
    if chain.last is None:
        return None
    after = file.stored_at(chain.last + 1)
    ended = None if after is None else _said(after[3])
    if not isinstance(ended, ChainEnded) or ended.chain != chain.name:
        return None
    fold = _Fold()
    for number in sorted({chain.first, chain.first + 1, chain.last}):
        stored = file.stored_at(number)
        if stored is None or stored[1] != chain.first:
            return None
        fold.take(stored)
    fold.tally = Tally(ended.steps, ended.total_reward, ended.terminated * TERMINATED | ended.truncated * TRUNCATED)
    return fold


def _said(body: bytes) -> Event | Own | None:
    """Return what a row says, None if it cannot be read: a list of what there is leaves out no episode for that."""
    try:
        return statement_in(read_body(body))
    except (ValidationError, TypeError):
        return None


def _summary(path: Path, chain: Chain, fold: _Fold) -> EpisodeSummary:
    opened, reset, closed, tally = fold.opened, fold.reset, fold.closed, fold.tally
    unsaid = "" if chain.last is None else None
    return EpisodeSummary(
        chain=chain.name,
        session=session_of(chain.name),
        epoch=0 if reset is None else reset.epoch,
        environment="" if opened is None else opened.environment,
        target="" if opened is None else opened.target,
        episode_id="" if reset is None else reset.episode_id,
        seed=reset.seed if isinstance(reset, EpisodeReset) else None,
        opened_at=0.0 if reset is None else reset.at,
        closed_at=None if closed is None else closed.at,
        steps=tally.steps,
        total_reward=told_total(tally),
        terminated=bool(tally.ended & TERMINATED),
        truncated=bool(tally.ended & TRUNCATED),
        reason=unsaid if closed is None else closed.reason,
        governed=opened is not None and opened.policy is not None,
        outcome=None if closed is None else closed.outcome,
        num_envs=None if opened is None else opened.num_envs,
        rows=fold.seq + 1,
        head=head_text(chain.name, fold.seq + 1, fold.hash),
        file=path,
        boot="" if opened is None else opened.boot,
    )
