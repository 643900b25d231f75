"""Ledgers for everything that reads them: made-up sessions that are quick, and some of real environments."""

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from proctor.episode.judge import Judge
from proctor.ledger.keys import Signer
from proctor.ledger.writer import LedgerWriter
from proctor.models.events import (
    AgentGranted,
    BatchReset,
    BatchStepped,
    EpisodeClosed,
    EpisodeReset,
    EpisodeStepped,
    Event,
    Failed,
    PacketJudged,
    SessionClosed,
    SessionOpened,
    SessionResumed,
)
from tests.cli.streams import conforming, violated

NOON = 1_735_732_800.0  # 2025-01-01 12:00 UTC
SEED = bytes(range(32))
SIGNER = Signer.of(SEED)


def opened(session: str, *, at: float = NOON, **said: Any) -> SessionOpened:
    fields: dict[str, Any] = {
        "environment": "proctor/PlumeSearch-v0",
        "environment_version": "0",
        "target": "proctor/PlumeSearch-v0",
        "server": "0.1.0",
        "boot": "boot1",
        "place": "inline",
        "python": "3.11.9",
        "gymnasium": "1.2.2",
        "numpy": "2.1.0",
    }
    return SessionOpened(session=session, at=at, **{**fields, **said})


def reset(session: str, *, epoch: int = 1, at: float = NOON, **said: Any) -> EpisodeReset:
    fields: dict[str, Any] = {"episode_id": f"ep-{session}-{epoch}", "seed": 7, "observation": seeing(0.0)}
    return EpisodeReset(session=session, at=at, epoch=epoch, **{**fields, **said})


def stepped(session: str, step: int, *, epoch: int = 1, action: object = 0, **said: Any) -> EpisodeStepped:
    fields: dict[str, Any] = {
        "at": NOON + step * 0.25,
        "action": Raw(msgspec.json.encode({"action": action})),
        "observation": seeing(step / 8),
        "raw_reward": 0.5,
        "reward": 0.5,
        "terminated": False,
        "truncated": False,
    }
    return EpisodeStepped(session=session, epoch=epoch, step=step, **{**fields, **said})


def seeing(*numbers: float) -> Raw:
    return Raw(msgspec.json.encode({"observation": numbers}))


def closed(session: str, steps: int, *, epoch: int = 1, at: float = NOON + 10, **said: Any) -> EpisodeClosed:
    fields: dict[str, Any] = {"principal": "system", "reason": "closed"}
    return EpisodeClosed(session=session, at=at, epoch=epoch, steps=steps, **{**fields, **said})


def ended(session: str, *, at: float = NOON + 11) -> SessionClosed:
    return SessionClosed(session=session, at=at, principal="system", reason="closed", episodes=1, steps=3)


def free(session: str = "free") -> Iterator[Event]:
    """Yield a session of an orchestrator: three steps, the last one ends it."""
    yield opened(session)
    yield reset(session)
    yield stepped(session, 1)
    yield stepped(session, 2)
    yield stepped(session, 3, action=1, terminated=True, reward=1.0)
    yield closed(session, 3)
    yield ended(session)


def played(session: str = "played") -> Iterator[Event]:
    """Yield a session in which an agent moves, is refused once, and goes on after a restart; it stays open."""
    agent: dict[str, Any] = {"principal": "agent", "grant": "g1"}
    yield opened(session, settings={"action": {"type": "eight_direction_stay"}})
    yield reset(session, seed=None, metadata=Raw(b'{"seed":99}'))
    yield AgentGranted(session=session, at=NOON, epoch=1, grant="g1", agent="walker", tools=["move", "sniff"])
    for step in (1, 2, 3):
        yield stepped(session, step, tool="move", request_id=5, **agent)
    yield stepped(session, 4, action=2, tool="move", request_id=6, **agent)
    yield Failed(session=session, at=NOON + 2, epoch=1, step=4, code="VALIDATION_ERROR", request="call", **agent)
    yield SessionResumed(
        session=session, at=NOON + 90, epoch=1, step=4, boot="boot2", server="0.1.0", principal="system"
    )


def governed(session: str = "governed") -> Iterator[Event]:
    """Yield a session whose packets were judged: a conforming episode, then one that is refused things."""
    yield opened(session, policy={"name": "standard"})
    for epoch, packets in ((1, conforming(f"corr_{session}_a")), (2, violated(f"corr_{session}_b"))):
        yield reset(session, epoch=epoch)
        yield AgentGranted(session=session, at=NOON, epoch=epoch, grant=f"g{epoch}", agent="walker", tools=["move"])
        yield from judged(session, epoch, packets)
        yield closed(session, 0, epoch=epoch, outcome="conforming" if epoch == 1 else "violated", state="S0_IDLE")
    yield ended(session)


def judged(session: str, epoch: int, packets: Iterable[Any]) -> Iterator[PacketJudged]:
    """Yield what a server states of these packets; after the first comes one that no agent may say."""
    judge = Judge()
    for number, packet in enumerate(packets):
        line = packet.line()
        verdict = judge.apply(line)
        record = getattr(packet, "record", None)
        yield PacketJudged(
            session=session,
            at=NOON + number,
            epoch=epoch,
            step=0,
            principal="system" if record else "agent",
            line=Raw(line),
            kind=str(record or packet.kind),
            packet_id=verdict.packet_id,
            accepted=verdict.accepted,
            path=list(verdict.path),
            rules=list(verdict.rules),
            pointers=list(verdict.pointers),
            reason=verdict.reason,
            state=verdict.path[-1] if verdict.path else "",
            grant=f"g{epoch}",
            tool="submit_packet",
        )
        if number == 0:
            yield forged(session, epoch)


def forged(session: str, epoch: int = 1) -> PacketJudged:
    return PacketJudged(
        session=session,
        at=NOON,
        epoch=epoch,
        step=0,
        principal="agent",
        line=Raw(b'{"forged": 1}'),
        kind="ToolAuthorizationToken",
        judged=False,
        accepted=False,
        rules=["GOV-1"],
        reason="an agent issues no tokens: ask for one with request_token, which the policy answers or a human does",
        grant=f"g{epoch}",
    )


def batch(session: str = "batch", num_envs: int = 2) -> Iterator[Event]:
    """Yield a session of several environments."""
    yield opened(session, num_envs=num_envs, autoreset_mode="next_step")
    yield BatchReset(
        session=session, at=NOON, epoch=1, episode_id="ep-batch", seed=3, observations=Raw(b'{"observation":[[0],[1]]}')
    )
    yield BatchStepped(
        session=session,
        at=NOON + 1,
        epoch=1,
        step=1,
        actions=Raw(b'{"actions":[0,1]}'),
        observations=Raw(b'{"observation":[[2],[3]]}'),
        raw_rewards=Raw(b"[0.0,1.0]"),
        rewards=Raw(b'{"dtype":"<f8","shape":[2],"data":"AAAAAAAAAAAAAAAAAADwPw=="}'),
        terminations=Raw(b"[false,true]"),
        truncations=Raw(b"[false,false]"),
    )
    yield closed(session, 1)
    yield ended(session)


def real(
    session: str, target: str, *, seeds: Iterable[int] = (1, 2), steps: int = 6, settings: dict[str, Any] | None = None
) -> Iterator[Event]:
    """Yield episodes of a real environment, its actions drawn from its own space."""
    from proctor.envs.targets import Target
    from proctor.models.spaces import codec_of

    environment: Any = Target(target, settings or {}).make()
    space = environment.spaces[0]
    yield opened(session, environment=environment.name, target=target, settings=settings or {})
    for epoch, seed in enumerate(seeds, start=1):
        space.seed(seed)
        seen = environment.reset(seed=seed, episode_id=f"ep-{session}-{epoch}")
        yield reset(session, epoch=epoch, seed=seed, observation=Raw(seen.inside()))
        step = 0
        while step < steps and not seen.done:
            step += 1
            said = codec_of(space).encode(space.sample())
            seen = environment.step(environment.action_type.model_validate_json(msgspec.json.encode({"action": said})))
            yield stepped(
                session,
                step,
                epoch=epoch,
                action=said,
                reward=seen.reward,
                raw_reward=seen.reward,
                terminated=seen.terminated,
                truncated=seen.truncated,
                observation=Raw(seen.inside()),
            )
        yield closed(session, step, epoch=epoch)
    yield ended(session)
    environment.close()


def written(
    folder: Path, *stories: Iterable[Event], worker: int = 0, boot: str = "boot1", observations: Any = "all"
) -> Path:
    """Write these events, one story after another, to a ledger in `folder`, and return the folder."""
    folder.mkdir(exist_ok=True)

    async def run() -> None:
        writer = LedgerWriter(
            folder,
            worker=worker,
            boot=boot,
            server="0.1.0",
            signer=SIGNER,
            durability="off",
            observations=observations,
            wall=lambda: NOON,
        )
        try:
            for event in (event for story in stories for event in story):
                waiting = writer.record(event)
                if waiting is not None:
                    await waiting
        finally:
            writer.close()

    asyncio.run(run())
    return folder
