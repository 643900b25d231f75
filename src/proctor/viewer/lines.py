"""An episode on one line of the list, from what was gathered of its chain. Pure.

Rule 1: a line says what the ledger's own list says (`ledger/summaries.py`), in the words of the page.
Rule 2: an episode is live as long as its chain is open and somebody writes to its file.
"""

from pathlib import Path
from typing import Final

from proctor.episode.states import State
from proctor.ledger.files import Chain
from proctor.ledger.summaries import EpisodeSummary, Fold
from proctor.viewer.documents import Line

LOST: Final = "lost"
OPEN: Final = "open"
EXACT: Final = 2**53
"""The integers up to here are the same in a browser."""


def line_of(fold: Fold, path: Path, chain: Chain, *, live: bool) -> Line:
    """Return the line of a chain in the file at `path`."""
    told = fold.summary(path, chain)
    return Line(
        chain=told.chain,
        session=told.session,
        epoch=told.epoch,
        episode_id=told.episode_id,
        environment=told.environment,
        agent=told.agent,
        state=_state(told, lost=fold.tally.heard.lost),
        outcome=_outcome(told),
        reason=told.reason,
        steps=told.steps,
        total_reward=told.total_reward,
        refusals=told.refusals,
        tier=told.tier,
        opened_at=told.opened_at,
        closed_at=told.closed_at,
        last_at=max(fold.at, told.opened_at),
        live=live and chain.last is None,
        governed=told.governed,
        num_envs=told.num_envs,
        seed=_seed(told.seed),
        terminated=told.terminated,
        truncated=told.truncated,
        rows=told.rows,
        last=fold.number,
    )


def _seed(seed: int | None) -> int | str | None:
    return str(seed) if seed is not None and seed > EXACT else seed


def _state(told: EpisodeSummary, *, lost: bool) -> str:
    if lost or told.reason == LOST:
        return LOST
    if told.governed:
        return told.state or State.IDLE
    return _flag(told) or ("ready" if told.reason == "" else "closed")


def _outcome(told: EpisodeSummary) -> str | None:
    return told.outcome or OPEN if told.governed else _flag(told)


def _flag(told: EpisodeSummary) -> str | None:
    """Return how the environment ended the episode, None if it did not."""
    if told.terminated:
        return "terminated"
    return "truncated" if told.truncated else None
