"""Our client of a batch as a child: `python -m bench.control_batch URL N FORM`.

FORM is `packed` (a `RemoteVectorEnv`, arrays as bytes), or `plain` (the same session, every array as a list).
"""

from __future__ import annotations

import asyncio
import sys
from itertools import cycle

import msgspec
import numpy as np
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from bench.control_load import answer_rates, answer_rates_of, rate_of_all
from bench.gyms import BATCH_STEPS, drawn_rows, stepping_batch
from proctor.client import Connection, RemoteVectorEnv
from proctor.models.spaces import codec_of, space_from


def drive_packed(url: str, num_envs: int) -> None:
    """Measure a remote vector environment as a learner has it."""
    env = RemoteVectorEnv(num_envs, url)
    try:
        env.reset(seed=0)
        kinds = int(env.single_action_space.n)  # type: ignore[attr-defined]  # a Discrete space
        answer_rates_of(stepping_batch(env, drawn_rows(kinds, BATCH_STEPS, num_envs)))
    finally:
        env.close()


async def drive_plain(url: str, num_envs: int) -> None:
    """Measure the session without packed arrays; observations and rewards are read back as arrays."""
    async with Connection(url) as connection:
        spaces = (await connection.schema()).spaces or {}
        actions, observations = (space_from(spaces[name]) for name in ("action", "observation"))
        read = codec_of(batch_space(observations, num_envs)).decode
        session = await connection.batch(num_envs)
        await session.reset(b'{"seed":0}')
        rows = cycle(drawn_rows(int(actions.n), BATCH_STEPS, num_envs))  # type: ignore[attr-defined]  # Discrete

        async def step() -> tuple[object, NDArray[np.float64]]:
            seen = await session.step(msgspec.json.encode({"actions": next(rows).tolist()}))
            return read(msgspec.json.decode(seen.observations)), np.array(msgspec.json.decode(seen.rewards))  # type: ignore[arg-type]  # a step has rewards

        async def measure(seconds: float) -> float:
            return num_envs * await rate_of_all([step], seconds)

        await answer_rates(measure)


def main(url: str, num_envs: str, form: str) -> None:
    """Answer every `go SECONDS` with the environment steps a second."""
    if form == "packed":
        drive_packed(url, int(num_envs))
    else:
        asyncio.run(drive_plain(url, int(num_envs)))


if __name__ == "__main__":
    main(*sys.argv[1:])
