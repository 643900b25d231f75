"""What pages say of an episode before its steps: its line in the list (`build_line`), and its head (`build_head`). Pure.

Rule 1: a line says what the ledger's own list says (`ledger/reader.py`), in the words of the page.
Rule 2: an episode is live as long as its chain is open and somebody writes to its file.
Rule 3: a head comes from the two rows that a chain begins with; a value of more than `MOST_VALUE` bytes is null there, and the raw row
    has it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Raw

from proctor.episode.transition_table import ProtocolState
from proctor.ledger.reader import EpisodeSummary, SummaryBuilder
from proctor.ledger.rows import ObservationStorage
from proctor.ledger.storage.ledger_file import ChainEntry, Row
from proctor.models.events import NULL, BatchReset, EpisodeReset, SessionOpened
from proctor.models.pixels import is_pixels
from proctor.viewer.documents import EpisodeHead, EpisodeLine
from proctor.viewer.pictures import NO_PIXELS
from proctor.viewer.slices import null_if_large

LOST: Final = "lost"
OPEN: Final = "open"
EXACT: Final = 2**53
"""The integers up to here are the same in a browser."""


def build_line(fold: SummaryBuilder, path: Path, chain: ChainEntry, *, live: bool) -> EpisodeLine:
    """Return the line of a chain in the file at `path`."""
    told = fold.summary(path, chain)
    return EpisodeLine(
        chain=told.chain,
        session=told.session,
        epoch=told.epoch,
        episode_id=told.episode_id,
        environment=told.environment,
        agent=told.agent,
        state=_state(told, lost=fold.totals.non_step.lost),
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
        return told.state or ProtocolState.IDLE
    return _find_end(told) or ("ready" if told.reason == "" else "closed")


def _outcome(told: EpisodeSummary) -> str | None:
    return told.outcome or OPEN if told.governed else _find_end(told)


def _find_end(told: EpisodeSummary) -> str | None:
    """Return how the environment ended the episode, None if it did not."""
    if told.terminated:
        return "terminated"
    return "truncated" if told.truncated else None


MOST_VALUE: Final = 2**22
"""Bytes of a scene, an observation or options in a head."""
_NAMES: Final = ("name", "type")
"""What a transform is called by, the first that it has."""


def build_head(line: EpisodeLine, rows: Sequence[Row], keeps: ObservationStorage) -> EpisodeHead:
    """Return the head of an episode; what its rows do not say is empty."""
    opened = next((row.event for row in rows if isinstance(row.event, SessionOpened)), None)
    reset = next((row for row in rows if isinstance(row.event, EpisodeReset | BatchReset)), None)
    begun = None if reset is None else reset.event
    return EpisodeHead(
        line=line,
        target="" if opened is None else opened.target,
        settings=_encode_raw({} if opened is None else opened.settings),
        policy=_encode_raw(None if opened is None else opened.policy),
        transforms=[] if opened is None else [_find_name(spec) for spec in opened.transforms],
        options=_null_if_huge(begun.options) if isinstance(begun, EpisodeReset | BatchReset) else NULL,
        versions={} if opened is None else _versions(opened),
        scene=_scene(begun.scene) if isinstance(begun, EpisodeReset) else NULL,
        observation=_observation(begun),
        keeps=keeps,
        first=0 if reset is None else reset.number,
    )


def _encode_raw(value: Any) -> Raw:
    return Raw(msgspec.json.encode(value))


def _null_if_huge(value: Raw) -> Raw:
    return value if memoryview(value).nbytes <= MOST_VALUE else NULL


def _find_name(spec: dict[str, Any]) -> str:
    return str(next((spec[key] for key in _NAMES if key in spec), ""))


def _versions(opened: SessionOpened) -> dict[str, str]:
    return {
        "proctor": opened.server,
        "environment": opened.environment_version,
        "python": opened.python,
        "gymnasium": opened.gymnasium,
        "numpy": opened.numpy,
    }


def _scene(scene: Raw) -> Raw:
    return NO_PIXELS if is_pixels(scene) else _null_if_huge(scene)


def _observation(begun: Any) -> Raw:
    if isinstance(begun, EpisodeReset):
        return _null_if_huge(begun.observation)
    return null_if_large(begun.observations) if isinstance(begun, BatchReset) else NULL
