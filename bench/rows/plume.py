"""The rows of the plume search."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from bench.c_plume import CPlume, Layout, compiled
from bench.fresh import bytes_each, first_step, import_cpu
from bench.gyms import batched, batched_resets, drawn_rows, made_vector, resets, single
from bench.measure import Gap, Probe, rate_of
from bench.peers import peer
from bench.row import Better, Opener, Row, ratio_at_least, value_below
from proctor.envs.plume.env import PlumeSearchEnv
from proctor.errors import MissingExtraError

PLUME: Final = "proctor/PlumeSearch-v0"
CARTPOLE: Final = "CartPole-v1"
PUFFS: Final = {"plume": "puffs"}
N: Final = 1024
BATCH: Final = f"N={N}"
KERNEL_STEPS: Final = 1000
LOT: Final = 1000
BIG_LOT: Final = 100_000


def kernel(num_envs: int) -> Opener:
    """Environment steps a second of the batched kernel alone, `KERNEL_STEPS` steps a call."""

    def opened(stack: ExitStack) -> Probe:
        try:
            from bench.kernel_loop import kernel_loop
        except MissingExtraError as problem:
            raise Gap(str(problem)) from None
        env = made_vector(stack, PLUME, num_envs).unwrapped
        env.reset(seed=0)
        run = kernel_loop(env)
        actions = drawn_rows(int(env.single_action_space.n), KERNEL_STEPS, num_envs)

        def chunk() -> int:
            run(actions)
            return actions.size

        return rate_of(chunk)

    return opened


def c_loop(num_envs: int) -> Opener:
    """Environment steps a second of `anchor.c`, `KERNEL_STEPS` steps a call."""

    def opened(stack: ExitStack) -> Probe:
        layout = Layout.of(PlumeSearchEnv())
        loop = CPlume(compiled(stack), layout, num_envs)
        loop.reset(seed=0)
        actions = drawn_rows(int(layout.numbers["moves"]), KERNEL_STEPS, num_envs)

        def chunk() -> int:
            loop.run(actions)
            return actions.size

        return rate_of(chunk)

    return opened


def _cost(name: str, subject: Opener, anchor: Opener, anchor_name: str, unit: str, note: str = "") -> Row:
    """Return a row that is reported without a goal, and better the lower it is."""
    return Row(name, subject, anchor, anchor_name, unit=unit, better=Better.LOWER, note=note)


ROWS: Final = (
    Row(
        "plume.single/plume-nav-sim",
        single(PLUME),
        peer("bench.peer_plume_nav_sim", "plume-nav-sim"),
        "plume-nav-sim",
        ratio_at_least(8.0),
    ),
    Row("plume.single/cartpole", single(PLUME), single(CARTPOLE), "CartPole-v1", ratio_at_least(4.0)),
    Row(
        "plume.single-unwrapped/cartpole-unwrapped",
        single(PLUME, unwrapped=True),
        single(CARTPOLE, unwrapped=True),
        "CartPole-v1, unwrapped",
        ratio_at_least(4.0),
    ),
    Row(
        "plume.batched/vector-cartpole",
        batched(PLUME, N),
        batched(CARTPOLE, N, "vector_entry_point"),
        "vector CartPole-v1",
        ratio_at_least(10.0),
        note=BATCH,
    ),
    Row(
        "plume.batched/sync",
        batched(PLUME, N),
        batched(PLUME, N, "sync"),
        "SyncVectorEnv of ours",
        ratio_at_least(100.0),
        note=BATCH,
    ),
    Row("plume.kernel/c", kernel(N), c_loop(N), "C loop", ratio_at_least(0.8), note=BATCH),
    Row("plume.api/kernel", batched(PLUME, N), kernel(N), "our kernel", ratio_at_least(0.5), note=BATCH),
    Row(
        "plume.puffs-batched/puffs-single",
        batched(PLUME, N, config=PUFFS),
        single(PLUME, config=PUFFS),
        "puffs, single",
        note=BATCH,
    ),
    Row("plume.puffs-single/single", single(PLUME, config=PUFFS), single(PLUME), "the Gaussian default"),
    Row("plume.reset/cartpole", resets(PLUME), resets(CARTPOLE), "CartPole-v1", unit="resets/s"),
    Row(
        "plume.reset-batched/vector-cartpole",
        batched_resets(PLUME, N),
        batched_resets(CARTPOLE, N, "vector_entry_point"),
        "vector CartPole-v1",
        unit="resets/s",
        note=BATCH,
    ),
    _cost(
        "plume.memory/cartpole",
        bytes_each("single", PLUME, LOT),
        bytes_each("single", CARTPOLE, LOT),
        "CartPole-v1",
        "bytes/env",
        f"{LOT} envs",
    ),
    _cost(
        "plume.memory-batched/vector-cartpole",
        bytes_each("vector", PLUME, BIG_LOT),
        bytes_each("vector", CARTPOLE, BIG_LOT),
        "vector CartPole-v1",
        "bytes/env",
        f"N={BIG_LOT}",
    ),
    Row(
        "plume.import/gymnasium",
        import_cpu("proctor"),
        import_cpu("gymnasium"),
        "import gymnasium",
        value_below(0.3),
        unit="s CPU",
        better=Better.LOWER,
    ),
    _cost("plume.first-step/cartpole", first_step("single", PLUME), first_step("single", CARTPOLE), "CartPole-v1", "s"),
    _cost(
        "plume.first-step-batched/vector-cartpole",
        first_step("vector", PLUME, N),
        first_step("vector", CARTPOLE, N),
        "vector CartPole-v1",
        "s",
        f"{BATCH}, compiled before",
    ),
)
