"""Ledgers of real sessions, for tests that replay them."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from gymnasium.vector.utils import batch_space
from msgspec import Raw

from proctor.envs.targets import Target
from proctor.ledger.reader import Ledger, Row
from proctor.ledger.writer import LedgerWriter
from proctor.models.control import Reset
from proctor.models.spaces import codec_of
from proctor.models.wire import PLAIN, Encoding
from proctor.server.rewards.pipeline import plan_of
from proctor.server.runtime.env_adapter import EnvDescription, describe_target
from proctor.server.runtime.results import RequestError
from proctor.server.sessions.response_builder import BatchResponseBuilder, ResponseBuilder, SingleResponseBuilder
from proctor.server.sessions.session import Session
from proctor.server.sessions.session_spec import SessionSpec, choose_executor_kind
from tests.server.live_server import PATIENCE

PLUME = "proctor/PlumeSearch-v0"
POPPER = "proctor/ColumnPopper-v0"


@dataclass(frozen=True)
class Play:
    """One episode: how it is begun, and how many random actions it gets, or which."""

    seed: int | list[int] | None = 1
    steps: int = 20
    options: dict[str, Any] | None = None
    actions: Sequence[Any] | None = None


@dataclass(frozen=True)
class Sitting:
    """One session and its episodes."""

    target: str = PLUME
    settings: dict[str, Any] = field(default_factory=dict)
    plays: Sequence[Play] = (Play(),)
    num_envs: int | None = None
    mode: str | None = None
    infos: bool = False
    scenes: bool = False
    encoding: Encoding = PLAIN
    transforms: Sequence[dict[str, Any]] = ()
    policy: dict[str, Any] | None = None


def record(folder: Path, *sittings: Sitting, observations: Any = "all", boot: str = "boot") -> Path:
    """Play the sessions one after the other, on record; return the ledger's folder."""
    folder.mkdir(exist_ok=True)
    writer = LedgerWriter(folder, boot=boot, server="1", signer=None, durability="off", observations=observations)
    try:
        asyncio.run(_played(writer, sittings, boot))
    finally:
        writer.close()
    return folder


def record_unfinished(folder: Path, sitting: Sitting) -> Path:
    """Play a session that nobody closes; return the ledger's folder."""
    folder.mkdir(exist_ok=True)
    writer = LedgerWriter(folder, boot="boot", server="1", signer=None, durability="off")
    try:
        session, _ = make_session("boot0", sitting, writer)
        asyncio.run(_sat(session, sitting, 0, closing=False))
    finally:
        writer.close()
    return folder


def chains(folder: Path) -> list[str]:
    with Ledger.open(folder) as ledger:
        return [episode.chain for episode in ledger.episodes()]


def rows_of(folder: Path, place: int = 0) -> list[Row]:
    """Return the rows of an episode, counted in the order of opening."""
    with Ledger.open(folder) as ledger:
        return list(ledger.rows(ledger.episodes()[place].chain))


async def _played(writer: LedgerWriter, sittings: Sequence[Sitting], boot: str) -> None:
    async with asyncio.timeout(10 * PATIENCE):
        for number, sitting in enumerate(sittings):
            await _sat(make_session(f"{boot}{number}", sitting, writer)[0], sitting, number)


@cache
def _describe(target: str, settings: bytes) -> EnvDescription:
    with ThreadPoolExecutor(1) as thread:  # where no event loop runs, as when a server starts
        return thread.submit(describe_target, Target(target, msgspec.json.decode(settings))).result(PATIENCE)


def make_session(
    name: str, sitting: Sitting, writer: LedgerWriter, clock: Callable[[], float] | None = None
) -> tuple[Session, ResponseBuilder]:
    """Return a session that is not open yet, and what builds its responses; a millisecond passes with every look at its clock."""
    target = Target(sitting.target, sitting.settings)
    card = _describe(sitting.target, msgspec.json.encode(sitting.settings))
    plan = plan_of(list(sitting.transforms))
    pipeline = plan.pipeline(sitting.num_envs)
    account: ResponseBuilder = (
        SingleResponseBuilder(pipeline, extended=True)
        if sitting.num_envs is None
        else BatchResponseBuilder(pipeline, sitting.encoding)
    )
    opening = SessionSpec(
        target,
        card,
        choose_executor_kind(target, card, None, sitting.num_envs),
        sitting.encoding,
        sitting.num_envs,
        sitting.mode,
        sitting.infos,
        sitting.scenes,
        transforms=[dict(spec) for spec in plan.specs],
        policy=sitting.policy,
    )
    clock = clock or partial(next, count(1000.0, 0.001))
    return Session(name, opening, account, writer, clock=clock, boot="boot", step_timeout=PATIENCE), account


async def _sat(session: Session, sitting: Sitting, number: int, *, closing: bool = True) -> None:
    await session.open()
    for place, play in enumerate(sitting.plays):
        options = Raw(msgspec.json.encode(play.options))
        await session.reset(Reset(seed=play.seed, options=options), place)
        rng = np.random.default_rng([number, place])
        acts = sample(sitting, rng, play.steps) if play.actions is None else play.actions
        await (_stepped(session, acts) if sitting.num_envs is None else _batch_stepped(session, sitting, acts))
    if closing:
        await session.close("done")


async def _stepped(session: Session, actions: Sequence[Any]) -> None:
    for action in actions:
        if session.over:
            return
        await session.step(msgspec.json.encode({"action": action}), None)


async def _batch_stepped(session: Session, sitting: Sitting, actions: Sequence[Any]) -> None:
    """Step the batch, and reset those that have ended where nothing else does."""
    for action in actions:
        try:
            await session.step(msgspec.json.encode({"actions": action}), None)
        except RequestError:
            ended = msgspec.json.decode(await session.state(None))["ended"]
            mask = [i in ended for i in range(sitting.num_envs or 0)]
            await session.reset(Reset(mask=Raw(msgspec.json.encode(mask))), None)
            await session.step(msgspec.json.encode({"actions": action}), None)


def sample(sitting: Sitting, rng: np.random.Generator, count: int) -> list[Any]:
    """Return random actions as on the wire."""
    spaces = Target(sitting.target, sitting.settings).make().spaces
    if spaces is None:
        return list(map(int, rng.integers(0, 9, count)))
    space = spaces[0] if sitting.num_envs is None else batch_space(spaces[0], sitting.num_envs)
    space.seed(int(rng.integers(2**31)))
    codec = codec_of(space)
    return [codec.encode(space.sample()) for _ in range(count)]
