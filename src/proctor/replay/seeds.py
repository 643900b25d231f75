"""The seed with which an episode is replayed: what was asked for, or else what the environment said that it drew.

Rule: an episode whose seed nobody knows cannot be replayed, and that is said, with the reason; nothing is guessed.
"""

from typing import Any, Final

import msgspec

from proctor.errors import ValidationError
from proctor.models.events import BatchReset, EpisodeReset
from proctor.replay.batch_driver import parse_reset_mask
from proctor.replay.comparison import unpack_arrays

EXPECTED: Final = 'a seed, or an environment that reports the one it drew as info["seed"]'


def find_seed(event: EpisodeReset) -> int | None:
    """Return the seed of an episode; None: nobody knows it."""
    if event.seed is not None:
        return event.seed
    told = msgspec.json.decode(event.metadata)
    seed = told.get("seed") if isinstance(told, dict) else None
    return seed if type(seed) is int else None


def unknown_seed_error() -> ValidationError:
    """Return why an episode whose seed nobody knows cannot be replayed."""
    return ValidationError(
        "this episode cannot be replayed: it was begun without a seed, and its environment does not say which it drew",
        expected=EXPECTED,
    )


def find_batch_seeds(event: BatchReset, num_envs: int) -> int | list[int | None]:
    """Return the seeds of a batch's reset, or raise a ValidationError: nobody knows them.

    Of a reset by a mask None means that the generator went on, as it does again; whom the mask leaves out gets None.
    """
    if isinstance(event.seed, int):
        return event.seed
    asked = [None] * num_envs if event.seed is None else event.seed
    told = parse_info_seeds(msgspec.json.decode(event.infos))
    seeds = [told.get(i) if seed is None else seed for i, seed in enumerate(asked)]
    if None in seeds and parse_reset_mask(event) is None:
        raise ValidationError(
            "this batch cannot be replayed: it was begun without seeds, and does not say which it drew",
            found=f"no seed of sub-environment {seeds.index(None)}",
            expected=EXPECTED,
        )
    return seeds


def parse_info_seeds(infos: Any) -> dict[int, int]:
    """Return the seed of every sub-environment whose episode begins with these infos."""
    if not isinstance(infos, dict) or "seed" not in infos:
        return {}
    seeds, which = unpack_arrays(infos["seed"]), unpack_arrays(infos.get("_seed"))
    if not isinstance(seeds, list) or not isinstance(which, list):
        return {}
    return {i: seed for i, (seed, begins) in enumerate(zip(seeds, which, strict=False)) if begins and type(seed) is int}
