"""Our client of a batch as a child: `python -m bench.control_batch URL N FORM`; FORM is `packed` or `plain`."""

from __future__ import annotations

import asyncio
import sys

import numpy as np

from bench.control_load import answer_rates
from bench.gyms import BATCH_STEPS, stepping_batch
from bench.measure import rate
from proctor.client import RemoteVectorEnv, Settings


def main(url: str, num_envs: str, form: str) -> None:
    """Answer every `go SECONDS` with the environment steps a second."""
    env = RemoteVectorEnv(int(num_envs), url, settings=Settings(packed=form == "packed"))
    try:
        env.reset(seed=0)
        kinds = int(env.single_action_space.n)  # type: ignore[attr-defined]  # a Discrete space
        rows = np.random.default_rng(0).integers(kinds, size=(BATCH_STEPS, env.num_envs))
        chunk = stepping_batch(env, rows)

        async def measure(seconds: float) -> float:
            return await asyncio.to_thread(rate, chunk, seconds)

        asyncio.run(answer_rates(measure))
    finally:
        env.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
