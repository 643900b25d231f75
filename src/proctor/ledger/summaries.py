"""What can be said of an episode on one line, from as few rows as possible.

Rule 1: of a chain that the server ended, four rows are read, wherever they lie; of others all are, and of those that a writer of an
    earlier version ended, which did not say all that is listed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from msgspec import UNSET, structs

from proctor.errors import ValidationError
from proctor.ledger.chain import is_episode, session_of
from proctor.ledger.files import Chain, LedgerFile, Stored
from proctor.ledger.glances import GlancedEvent, glanced
from proctor.ledger.head import head_text
from proctor.ledger.rows import ChainEnded, Own, own_in, told_in
from proctor.ledger.tracks import (
    MOST_AGENTS,
    NOTHING,
    TERMINATED,
    TRUNCATED,
    Heard,
    Tally,
    tallied_at_a_glance,
    told_total,
)
from proctor.models.events import NULL, BatchReset, EpisodeClosed, EpisodeReset, SessionOpened


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
    agent: str = ""
    """Who was granted tools: the first, and how many others; empty: nobody was."""
    tier: str = "none"
    """How strongly the environment is isolated."""
    refusals: int | None = None
    """Lines that the judge or the gate refused, and requests that were refused."""
    state: str | None = None
    """Where the machine of a governed episode stands, or stood last; None: nothing was judged."""


def summaries(file: LedgerFile) -> list[EpisodeSummary]:
    """Return the episodes of a file, in order of their first rows."""
    chains = [chain for chain in file.chains() if is_episode(chain.name)]
    found = folds(file, chains)
    return [found[chain.first].summary(file.path, chain) for chain in chains]


def folds(file: LedgerFile, chains: Sequence[Chain]) -> dict[int, "Fold"]:
    """Return what is gathered of these episodes, by their first rows."""
    quick = quick_folds(file)
    slow = {chain.first: Fold() for chain in chains if chain.first not in quick}
    for stored in file.stored_of(slow):
        slow[stored[1]].take(stored)
    return quick | slow


class Fold:
    """What a summary is made of, gathered row by row."""

    def __init__(self) -> None:
        self.opened: SessionOpened | None = None
        self.reset: EpisodeReset | BatchReset | None = None
        self.closed: EpisodeClosed | None = None
        self.tally: Tally = NOTHING
        self.number = 0
        self.seq = -1
        self.hash = b""
        self.at = 0.0
        """Of the last row, as the next three above; in seconds since 1970."""

    def take(self, stored: Stored) -> None:
        """Go on to the next row; what cannot be read of it is passed over, for a list leaves out no episode for that."""
        self.number, _, self.seq, body, self.hash = stored
        try:
            event = glanced(body).event
            if event is not UNSET:
                self._hear(event, body)
        except (ValidationError, TypeError):
            return

    def _hear(self, event: GlancedEvent, body: bytes) -> None:
        self.at = event.at
        if event.event in _WHOLE:
            said = told_in(body).event
            if isinstance(said, SessionOpened):
                self.opened = _without_settings(said)
            elif isinstance(said, EpisodeReset | BatchReset):
                self.reset = self.reset or _without_values(said)
            elif isinstance(said, EpisodeClosed):
                self.closed = said
        else:
            self.tally = tallied_at_a_glance(self.tally, event)

    def believe(self, ended: ChainEnded) -> None:
        """Take what the server said of the chain at its end, instead of reading all of it."""
        flags = ended.terminated * TERMINATED | ended.truncated * TRUNCATED
        heard = Heard(ended.refusals or 0, tuple(ended.agents or ()), ended.state or "")
        self.tally = Tally(ended.steps, ended.total_reward, flags, heard)

    def summary(self, path: Path, chain: Chain) -> EpisodeSummary:
        """Return what was gathered of the chain, in the file at `path`."""
        return _summary(path, chain, self)


def _without_settings(said: SessionOpened) -> SessionOpened:
    """Return what a list needs of an opening: whether it has a policy and transforms, not which. Many are held at a time."""
    policy: dict[str, Any] | None = None if said.policy is None else {}
    return structs.replace(said, settings={}, probe={}, policy=policy, transforms=[{}] if said.transforms else [])


def _without_values(said: EpisodeReset | BatchReset) -> EpisodeReset | BatchReset:
    """Return what a list needs of a reset. A `Raw` would hold the whole row."""
    if isinstance(said, BatchReset):
        return structs.replace(said, seed=None, options=NULL, mask=NULL, observations=NULL, infos=NULL, pipeline=NULL)
    return structs.replace(said, options=NULL, observation=NULL, metadata=NULL, pipeline=NULL, scene=NULL)


_WHOLE: Final = frozenset({"session_opened", "episode_reset", "batch_reset", "episode_closed"})
"""The events that are read whole."""


def quick_folds(file: LedgerFile) -> dict[int, Fold]:
    """Return what four rows say of each chain that has ended, by its first row; some are missing, of which they do not."""
    chains = {chain.first: chain for chain in file.chains() if is_episode(chain.name)}
    found = ((first, _quick(chains[first], rows)) for first, rows in file.ends() if first in chains)
    return {first: fold for first, fold in found if fold is not None}


def _quick(chain: Chain, rows: list[Stored]) -> Fold | None:
    """Return what the rows at both ends of a chain say, and the one after it."""
    *own, after = rows
    ended = own_at_a_glance(after[3])
    if not isinstance(ended, ChainEnded) or ended.chain != chain.name or not says_all(ended):
        return None
    if {(stored[0], stored[1]) for stored in own} != {
        (number, chain.first) for number in (chain.first, chain.first + 1, chain.last)
    }:
        return None
    fold = Fold()
    for stored in own:
        fold.take(stored)
    fold.believe(ended)
    return fold


def says_all(ended: ChainEnded) -> bool:
    """Return whether the end of a chain says all that a list says of it; one of an earlier version does not."""
    return None not in (ended.refusals, ended.agents, ended.state)


def own_at_a_glance(body: bytes) -> Own | None:
    """Return the ledger's own statement in a row, None if there is none that can be read."""
    try:
        own = glanced(body).own
        return None if own is UNSET else own_in(own)
    except (ValidationError, TypeError):
        return None


def told_agents(names: Sequence[str]) -> str:
    """Return the name of the first agent, with how many others there are, as far as they are remembered."""
    least = " or more" if len(names) >= MOST_AGENTS else ""
    more = f" +{len(names) - 1}{least}" if len(names) > 1 else ""
    return f"{names[0]}{more}" if names else ""


def _summary(path: Path, chain: Chain, fold: Fold) -> EpisodeSummary:
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
        agent=told_agents(tally.heard.agents),
        tier="none" if opened is None else opened.tier,
        refusals=tally.heard.refusals,
        state=(None if closed is None else closed.state) or tally.heard.state or None,
    )
