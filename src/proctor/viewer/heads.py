"""What an episode's page needs before its steps, from the two rows that its chain begins with. Pure.

Rule: a value of more than `MOST_VALUE` bytes is null; the raw row has it.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw

from proctor.ledger.files import Row
from proctor.ledger.rows import Observations
from proctor.models.events import NULL, BatchReset, EpisodeReset, SessionOpened
from proctor.models.pixels import is_pixels
from proctor.viewer.documents import Head, Line
from proctor.viewer.pictures import NO_PIXELS
from proctor.viewer.slices import short

MOST_VALUE: Final = 2**22
"""Bytes of a scene, an observation or options in a head."""
_NAMES: Final = ("name", "type")
"""What a transform is called by, the first that it has."""


def head_of(line: Line, rows: Sequence[Row], keeps: Observations) -> Head:
    """Return the head of an episode; what its rows do not say is empty."""
    opened = next((row.event for row in rows if isinstance(row.event, SessionOpened)), None)
    reset = next((row for row in rows if isinstance(row.event, EpisodeReset | BatchReset)), None)
    begun = None if reset is None else reset.event
    return Head(
        line=line,
        target="" if opened is None else opened.target,
        settings=_raw({} if opened is None else opened.settings),
        policy=_raw(None if opened is None else opened.policy),
        transforms=[] if opened is None else [_name(spec) for spec in opened.transforms],
        options=_bounded(begun.options) if isinstance(begun, EpisodeReset | BatchReset) else NULL,
        versions={} if opened is None else _versions(opened),
        scene=_scene(begun.scene) if isinstance(begun, EpisodeReset) else NULL,
        observation=_observation(begun),
        keeps=keeps,
        first=0 if reset is None else reset.number,
    )


def _raw(value: Any) -> Raw:
    return Raw(msgspec.json.encode(value))


def _bounded(value: Raw) -> Raw:
    return value if memoryview(value).nbytes <= MOST_VALUE else NULL


def _name(spec: dict[str, Any]) -> str:
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
    return NO_PIXELS if is_pixels(scene) else _bounded(scene)


def _observation(begun: Any) -> Raw:
    if isinstance(begun, EpisodeReset):
        return _bounded(begun.observation)
    return short(begun.observations) if isinstance(begun, BatchReset) else NULL
