"""Episodes of a ledger as a Minari dataset, with the spaces of the environment that they were played in.

Rule 1: the environment is made in this process, from what its session put on record, to be asked for its spaces; it is
    not reset. So export from a ledger whose targets you would run.
Rule 2: all episodes must have the same spaces: a dataset has one pair.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from pathlib import Path

import msgspec
from gymnasium.envs.registration import EnvSpec

from proctor.envs.settings import constructor_keywords, find_creator, find_spec
from proctor.envs.targets import Target
from proctor.errors import ValidationError
from proctor.ledger.export.minari import EpisodeSpaces, MinariExport, check_dataset_id, write_minari
from proctor.ledger.export.output import Progress, ignore_progress
from proctor.ledger.reader import EpisodeSummary, Ledger
from proctor.models.events import SessionOpened


def export_minari(
    ledger: Ledger, episodes: Sequence[EpisodeSummary], path: Path, more: Progress = ignore_progress
) -> MinariExport:
    """Write these episodes as the Minari dataset in the new folder `path`; its name is the dataset's id."""
    check_dataset_id(path)
    made: dict[bytes, EpisodeSpaces] = {}
    for each in episodes:
        opened = find_opening(ledger, each)
        key = msgspec.json.encode((opened.target, opened.settings), order="deterministic")
        if key not in made:
            made[key] = read_spaces(opened)
    if not made:
        raise ValidationError("there is no episode to export", expected="at least one")
    words = f"{len(episodes)} episodes of {', '.join(sorted({each.environment for each in episodes}))}, from a ledger."
    return write_minari(ledger, episodes, path, _common_spaces(list(made.values())), description=words, more=more)


def find_opening(ledger: Ledger, episode: EpisodeSummary) -> SessionOpened:
    """Return what was said when the episode's session was opened."""
    first = next(ledger.rows(episode.chain), None)
    if first is None or not isinstance(first.event, SessionOpened):
        raise ValidationError(
            f"the chain {episode.chain} does not begin with its session", expected="a ledger that `verify` accepts"
        )
    return first.event


def read_spaces(opened: SessionOpened) -> EpisodeSpaces:
    """Return the spaces of the environment that a session served, which is made for that and closed."""
    target = Target(opened.target, opened.settings)
    environment = target.make()
    found = environment.spaces
    closing = environment.close()
    if closing is not None:
        # On a thread: whoever calls this may be inside an event loop of its own.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, _await_closing(closing)).result()
    if found is None:
        raise ValidationError(
            f"{opened.target} has no Gymnasium spaces", expected="an environment with spaces, or another format"
        )
    return EpisodeSpaces(found[0], found[1], _make_spec(opened))


async def _await_closing(closing: Awaitable[None]) -> None:
    await closing


def _make_spec(opened: SessionOpened) -> EnvSpec | None:
    """Return how Gymnasium makes the environment; None where it is none of its ids, or JSON cannot say how."""
    if opened.target.rpartition(":")[2].isidentifier():
        return None
    spec = copy(find_spec(opened.target))
    if not isinstance(spec.entry_point, str):
        return None
    keywords = constructor_keywords(opened.target, find_creator(spec), opened.settings)
    spec.max_episode_steps = keywords.pop("max_episode_steps", spec.max_episode_steps)
    spec.kwargs = {**spec.kwargs, **keywords}
    return spec


def _common_spaces(found: Sequence[EpisodeSpaces]) -> EpisodeSpaces:
    first = found[0]
    for each in found[1:]:
        if (each.action, each.observation) != (first.action, first.observation):
            raise ValidationError(
                "these episodes have different spaces",
                found=f"{each.action} and {each.observation}",
                expected=f"{first.action} and {first.observation}: export them one by one",
            )
    # With several settings there is no one way to make the environment again.
    return first if len(found) == 1 else EpisodeSpaces(first.action, first.observation)
