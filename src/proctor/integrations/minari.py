"""Episodes of a ledger as a Minari dataset, for offline reinforcement learning.

Rule 1: the environment is made in this process, from what its session put on record, to be asked for its spaces; it is
    not reset. So export from a ledger whose targets you would run.
Rule 2: only episodes of single environments, all with the same spaces (a dataset has one pair), whose observations are on record
    with their values. Anything else is refused by name before a file is made; an episode without a step is left out.
Rule 3: the folder is the dataset, and its name is the dataset's id: `~/.minari/datasets/plume-v0` is what
    `minari.load_dataset("plume-v0")` finds.
Rule 4: what was written is read back once, and a dataset that Minari would misread does not appear.
Rule 5: arrays are stored exactly, pictures too. Rewards are those after transforms. `infos` stay in the ledger: they
    differ from step to step, which Minari's columns cannot hold.
"""

import asyncio
import re
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import gymnasium as gym
import msgspec
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from msgspec import Raw

from proctor.envs.settings import constructor_keywords, find_creator, find_spec
from proctor.envs.targets import Target
from proctor.errors import ValidationError
from proctor.ledger.export import Progress, ignore_progress, import_extra, new_folder, report_progress
from proctor.ledger.reader import EpisodeSummary, Ledger, Row
from proctor.ledger.rows import decode_value
from proctor.models.events import EpisodeReset, EpisodeStepped, SessionOpened
from proctor.models.spaces import Codec, codec_of
from proctor.replay.comparison import find_seed
from proctor.replay.replayer import read_opening

PURPOSE: Final = "an export to Minari"
FORMAT: Final = "arrow"
"""How Minari stores it: the one of its formats that needs no package beyond those of the extra."""
DATASET_ID: Final = re.compile(r"[-_\w]+-v\d+")
SUPPORTED_SPACES: Final = (
    spaces.Box,
    spaces.Discrete,
    spaces.MultiDiscrete,
    spaces.MultiBinary,
    spaces.Text,
    spaces.Dict,
    spaces.Tuple,
)
"""The spaces that Minari can store."""

AnySpace = gym.Space[Any]


@dataclass(frozen=True, slots=True)
class EpisodeSpaces:
    """What an environment takes and gives, and how Gymnasium makes it, where it does."""

    action: AnySpace
    observation: AnySpace
    spec: EnvSpec | None = None


class MinariExport(NamedTuple):
    """What came of it; `left_out` are the chains of episodes without a step."""

    dataset_id: str
    episodes: int
    steps: int
    left_out: tuple[str, ...]


def export_minari(
    ledger: Ledger, episodes: Sequence[EpisodeSummary], path: Path, more: Progress = ignore_progress
) -> MinariExport:
    """Write these episodes as the Minari dataset in the new folder `path`; its name is the dataset's id."""
    check_dataset_id(path)
    made: dict[bytes, EpisodeSpaces] = {}
    for each in episodes:
        opened = read_opening(ledger.rows(each.chain), each.chain)
        key = msgspec.json.encode((opened.target, opened.settings), order="deterministic")
        if key not in made:
            made[key] = read_spaces(opened)
    if not made:
        raise ValidationError("there is no episode to export", expected="at least one")
    words = f"{len(episodes)} episodes of {', '.join(sorted({each.environment for each in episodes}))}, from a ledger."
    return write_minari(ledger, episodes, path, _common_spaces(list(made.values())), description=words, more=more)


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


def write_minari(
    ledger: Ledger,
    episodes: Sequence[EpisodeSummary],
    path: Path,
    spaces_of_all: EpisodeSpaces,
    *,
    description: str = "",
    more: Progress = ignore_progress,
) -> MinariExport:
    """Write the episodes as the dataset in the new folder `path`."""
    storage_kind = import_extra("minari.dataset.minari_storage", PURPOSE).MinariStorage
    version: str = import_extra("minari", PURPOSE).__version__
    dataset_id = check_dataset_id(path)
    for space in (spaces_of_all.action, spaces_of_all.observation):
        _check_space(space)
    wanted = [each for each in episodes if each.steps]
    left_out = tuple(each.chain for each in episodes if not each.steps)
    _check_episodes(wanted)
    with new_folder(path) as folder:
        storage = storage_kind.new(
            folder / "data",
            observation_space=spaces_of_all.observation,
            action_space=spaces_of_all.action,
            env_spec=spaces_of_all.spec,
            data_format=FORMAT,
            jpeg_encoding=False,
        )
        storage.update_metadata({"dataset_id": dataset_id, "minari_version": version, "description": description})
        storage.update_episodes(_make_buffers(ledger, wanted, spaces_of_all, more))
        _check_read_back(folder / "data", wanted)
    return MinariExport(dataset_id, len(wanted), sum(each.steps for each in wanted), left_out)


def check_dataset_id(path: Path) -> str:
    """Return the id of the dataset at `path`, or raise a ValidationError."""
    if not DATASET_ID.fullmatch(path.name):
        raise ValidationError(
            "the folder of a Minari dataset has its id as its name",
            found=path.name,
            expected="a name with a version, such as plume-v0",
        )
    return path.name


def _check_space(space: AnySpace) -> None:
    if not isinstance(space, SUPPORTED_SPACES):
        raise ValidationError(
            "Minari cannot hold this space",
            found=str(space),
            expected=f"one of {', '.join(kind.__name__ for kind in SUPPORTED_SPACES)}",
        )
    parts: Iterable[AnySpace] = ()
    if isinstance(space, spaces.Dict):
        parts = space.spaces.values()
    elif isinstance(space, spaces.Tuple):
        parts = space.spaces
    for part in parts:
        _check_space(part)


def _check_episodes(episodes: Sequence[EpisodeSummary]) -> None:
    if not episodes:
        raise ValidationError("there is no episode with a step", expected="at least one")
    batch = next((each for each in episodes if each.num_envs is not None), None)
    if batch is not None:
        raise ValidationError(
            "a batch is no single episode", found=batch.chain, expected="episodes of sessions with one environment"
        )


def _make_buffers(
    ledger: Ledger, episodes: Iterable[EpisodeSummary], all_spaces: EpisodeSpaces, more: Progress
) -> Iterator[Any]:
    buffer = import_extra("minari.data_collector.episode_buffer", PURPOSE).EpisodeBuffer
    for number, each in enumerate(episodes):
        rows = report_progress(ledger.rows(each.chain), more)
        walk = collect_values(rows, codec_of(all_spaces.action), codec_of(all_spaces.observation))
        yield buffer(
            id=number,
            seed=walk.seed,
            observations=to_columns(all_spaces.observation, walk.observations),
            actions=to_columns(all_spaces.action, walk.actions),
            rewards=walk.rewards,
            terminations=walk.terminations,
            truncations=walk.truncations,
        )


def _check_read_back(data: Path, episodes: Sequence[EpisodeSummary]) -> None:
    """Raise a ValidationError if Minari reads other steps than were written.

    Its Arrow storage takes one batch of rows for an episode, and pyarrow makes several of a long one: without a word, a
    reader would get the beginning of this episode, and of the next one a piece of this.
    """
    read = import_extra("minari.dataset.minari_dataset", PURPOSE).MinariDataset(data).iterate_episodes()
    for episode in episodes:
        found = next(read, None)
        steps = 0 if found is None else len(found.rewards)
        if steps != episode.steps:
            raise ValidationError(
                f"Minari does not read {episode.chain} back whole",
                found=steps,
                expected=f"{episode.steps} steps: leave this episode out, or export it as Parquet",
            )


@dataclass(slots=True)
class EpisodeValues:
    """An episode as values of its spaces: one observation more than there are steps."""

    seed: int | None
    observations: list[Any]
    actions: list[Any]
    rewards: list[float]
    terminations: list[bool]
    truncations: list[bool]


def collect_values(rows: Iterable[Row], action: Codec, observation: Codec) -> EpisodeValues:
    """Return what these rows say; a ValidationError where an observation was not kept, or does not fit its space."""
    walk = EpisodeValues(None, [], [], [], [], [])
    for row in rows:
        event = row.event
        if isinstance(event, EpisodeReset):
            walk.seed = find_seed(event)
        elif isinstance(event, EpisodeStepped):
            walk.actions.append(action.decode(_read_key(row, event.action, "action"), bounded=False))
            walk.rewards.append(0.0 if event.reward is None else event.reward)
            walk.terminations.append(event.terminated)
            walk.truncations.append(event.truncated)
        else:
            continue
        if not row.values:
            raise ValidationError(
                f"the observations of {row.chain} are on record by their digest alone",
                expected='a ledger that was written with observations = "all"',
            )
        walk.observations.append(observation.decode(_read_key(row, event.observation, "observation"), bounded=False))
    return walk


def _read_key(row: Row, text: Raw, key: str) -> Any:
    """Return what stands under `key`, as every environment with spaces says it."""
    said = decode_value(text)
    if not isinstance(said, dict) or key not in said:
        raise ValidationError(
            f"row {row.seq} of {row.chain} has no {key} of a space", expected=f'an object with "{key}"'
        )
    return said[key]


def to_columns(space: AnySpace, values: Sequence[Any]) -> Any:
    """Return values of `space` as Minari wants them: a list, or of a Dict and a Tuple one for each part."""
    if isinstance(space, spaces.Dict):
        return {key: to_columns(part, [value[key] for value in values]) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(to_columns(part, [value[place] for value in values]) for place, part in enumerate(space.spaces))
    return list(values)
