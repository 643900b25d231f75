"""Minari datasets: what is refused before a file is made, and what the real Minari reads back."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from gymnasium import spaces
from msgspec import Raw

from proctor.envs.targets import Target
from proctor.errors import MissingExtraError, ValidationError
from proctor.integrations.minari import (
    EpisodeSpaces,
    collect_values,
    export_minari,
    read_spaces,
    to_columns,
    write_minari,
)
from proctor.ledger.export import select_episodes
from proctor.ledger.reader import Ledger
from proctor.models.events import Event
from proctor.models.spaces import codec_of
from proctor.replay.replayer import read_opening
from tests.cli.recordings import batch, closed, ended, free, opened, played, real, reset, stepped, written

PLUME = "proctor/PlumeSearch-v0"
POPPER = "proctor/ColumnPopper-v0"


def test_a_walk_has_one_observation_more_than_steps(tmp_path: Path) -> None:
    with Ledger.open(written(tmp_path / "ledger", real("s", PLUME, seeds=[5], steps=4))) as ledger:
        found = read_spaces(read_opening(ledger.rows("s.1"), "s.1"))
        walk = collect_values(ledger.rows("s.1"), codec_of(found.action), codec_of(found.observation))

    assert (walk.seed, len(walk.observations), len(walk.actions), len(walk.rewards)) == (5, 5, 4, 4)
    assert all(found.observation.contains(each) for each in walk.observations)
    assert all(found.action.contains(each) for each in walk.actions)


def test_a_seed_that_the_environment_drew_is_the_one_it_told(tmp_path: Path) -> None:
    action, observation = codec_of(spaces.Discrete(9)), codec_of(spaces.Box(0, 9, (1,), np.float32))
    with Ledger.open(written(tmp_path / "ledger", played())) as ledger:
        assert collect_values(ledger.rows("played.1"), action, observation).seed == 99


def test_values_of_parts_become_columns_of_parts() -> None:
    space = spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)])})

    found = to_columns(space, [{"a": 1, "b": (0, 1)}, {"a": 2, "b": (1, 1)}])

    assert found == {"a": [1, 2], "b": ([0, 1], [1, 1])}


def refused(folder: Path, out: Path, says: str, *names: str) -> None:
    with Ledger.open(folder) as ledger, pytest.raises(ValidationError, match=says):
        export_minari(ledger, select_episodes(ledger, names), out)

    assert not out.exists()


def test_a_folder_without_a_version_is_no_id(tmp_path: Path) -> None:
    refused(written(tmp_path / "ledger", free()), tmp_path / "plume", "such as plume-v0")


def test_episodes_with_different_spaces_do_not_make_one_dataset(tmp_path: Path) -> None:
    folder = written(tmp_path / "ledger", real("a", PLUME, seeds=[1]), real("b", POPPER, seeds=[1]))

    refused(folder, tmp_path / "both-v0", "different spaces")


def test_an_environment_without_spaces_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Target, "make", lambda self: _Spaceless())
    refused(written(tmp_path / "ledger", free()), tmp_path / "plume-v0", "has no Gymnasium spaces")


class _Spaceless:
    spaces = None

    async def close(self) -> None:
        pass


def test_an_empty_ledger_makes_no_dataset(tmp_path: Path) -> None:
    refused(written(tmp_path / "ledger"), tmp_path / "plume-v0", "no episode to export")


def test_without_the_extra_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "minari", None)
    with (
        Ledger.open(written(tmp_path / "ledger", free())) as ledger,
        pytest.raises(MissingExtraError, match=r"proctor-rl\[export\]"),
    ):
        export_minari(ledger, select_episodes(ledger, []), tmp_path / "plume-v0")

    assert not (tmp_path / "plume-v0").exists()


# ------------------------------------------------------------------------------------------------- the real Minari
def loaded(path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(path.parent))
    return import_module("minari").load_dataset(path.name)


def environments() -> list[tuple[str, dict[str, Any]]]:
    return [
        (PLUME, {}),
        (PLUME, {"action": {"type": "continuous"}}),
        (POPPER, {"include_time_left_norm": True}),
        ("CartPole-v1", {}),
        ("FrozenLake-v1", {"is_slippery": False}),
    ]


@pytest.mark.parametrize(("target", "settings"), environments())
def test_minari_reads_the_values_that_were_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, settings: dict[str, Any]
) -> None:
    folder = written(tmp_path / "ledger", real("s", target, settings=settings, seeds=[3, 4]))
    with Ledger.open(folder) as ledger:
        made = export_minari(ledger, select_episodes(ledger, []), tmp_path / "made-v0")
        found = read_spaces(read_opening(ledger.rows("s.1"), "s.1"))
        walks = [
            collect_values(ledger.rows(each.chain), codec_of(found.action), codec_of(found.observation))
            for each in ledger.episodes()
        ]

    dataset = loaded(tmp_path / "made-v0", monkeypatch)
    assert (dataset.total_episodes, dataset.total_steps) == (made.episodes, made.steps) == (2, made.steps)
    assert dataset.observation_space == found.observation
    for episode, walk in zip(dataset.iterate_episodes(), walks, strict=True):
        np.testing.assert_equal(episode.observations, stacked(found.observation, walk.observations))
        np.testing.assert_equal(episode.actions, stacked(found.action, walk.actions))
        assert episode.rewards.tolist() == walk.rewards
        assert episode.terminations.tolist() == walk.terminations
    assert [each["seed"] for each in dataset.storage.get_episode_metadata([0, 1])] == [3, 4]


def stacked(space: Any, values: list[Any]) -> Any:
    """Return values as Minari hands them out."""
    found = to_columns(space, values)
    return {key: np.stack(each) for key, each in found.items()} if isinstance(found, dict) else np.stack(found)


def test_the_environment_can_be_made_again_from_the_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"action": {"type": "oriented_grid"}, "grid_size": [16, 16]}
    with Ledger.open(written(tmp_path / "ledger", real("s", PLUME, settings=settings))) as ledger:
        export_minari(ledger, select_episodes(ledger, []), tmp_path / "made-v0")

    env = loaded(tmp_path / "made-v0", monkeypatch).recover_environment()
    assert env.action_space.n == 3
    env.close()


def test_an_episode_without_a_step_is_left_out_by_name(tmp_path: Path) -> None:
    empty: list[Event] = [opened("e"), reset("e"), closed("e", 0), ended("e")]
    with Ledger.open(written(tmp_path / "ledger", empty, real("s", PLUME, seeds=[1]))) as ledger:
        made = export_minari(ledger, select_episodes(ledger, []), tmp_path / "made-v0")

    assert (made.episodes, made.left_out) == (1, ("e.1",))


@pytest.mark.parametrize(
    ("story", "says"), [(batch, "a batch is no single episode"), (lambda: [opened("e")], "no episode")]
)
def test_what_makes_no_dataset_is_refused(tmp_path: Path, story: Any, says: str) -> None:
    refused(written(tmp_path / "ledger", story()), tmp_path / "made-v0", says)


def test_observations_that_were_not_kept_are_refused(tmp_path: Path) -> None:
    folder = written(tmp_path / "ledger", real("s", PLUME, seeds=[1]), observations="digest")

    refused(folder, tmp_path / "made-v0", "by their digest alone")


def test_a_picture_comes_back_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), np.uint8)
    said = [Raw(msgspec.json.encode({"observation": each.tolist()})) for each in pictures]
    story: list[Event] = [opened("s"), reset("s", observation=said[0]), stepped("s", 1, observation=said[1])]
    found = EpisodeSpaces(spaces.Discrete(2), spaces.Box(0, 255, (32, 32, 3), np.uint8))
    with Ledger.open(written(tmp_path / "ledger", story)) as ledger:
        write_minari(ledger, select_episodes(ledger, []), tmp_path / "made-v0", found)

    (episode,) = loaded(tmp_path / "made-v0", monkeypatch).iterate_episodes()
    np.testing.assert_array_equal(episode.observations, pictures)


def test_an_episode_that_minari_would_misread_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrow = import_module("pyarrow")
    write = import_module("pyarrow.dataset").write_dataset

    def in_pieces(batch: Any, *arguments: Any, **options: Any) -> None:
        """Write two batches, as pyarrow does with a long episode."""
        pieces = arrow.Table.from_batches([batch.slice(0, 2), batch.slice(2)])
        write(pieces, *arguments, **{**options, "max_rows_per_group": 2})

    monkeypatch.setattr(arrow.dataset, "write_dataset", in_pieces)
    refused(written(tmp_path / "ledger", free()), tmp_path / "made-v0", "does not read free.1 back whole")


def test_a_space_that_minari_cannot_hold_is_named(tmp_path: Path) -> None:
    odd = EpisodeSpaces(spaces.Discrete(2), spaces.Dict({"a": spaces.Sequence(spaces.Discrete(2))}))
    with (
        Ledger.open(written(tmp_path / "ledger", free())) as ledger,
        pytest.raises(ValidationError, match="Minari cannot hold this space"),
    ):
        write_minari(ledger, select_episodes(ledger, []), tmp_path / "made-v0", odd)
