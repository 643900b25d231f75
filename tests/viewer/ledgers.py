"""Ledgers of real sessions for whoever looks at them: searches, games, governed agents, hostile ones, long ones.

Rule 1: every function adds one episode to the ledger in a folder, with the real writer, and returns its chain.
Rule 2: what is on record is the same in every run, but for tokens; time begins at `begun` and passes by itself.
"""

import argparse
import asyncio
import io
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import cache, partial
from importlib.util import module_from_spec, spec_from_file_location
from itertools import count
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import gymnasium as gym
import msgspec
from msgspec import Raw
from msgspec.structs import replace

from proctor.envs.evaluation import make_policy
from proctor.envs.settings import make_env
from proctor.ledger.keys import Signer
from proctor.ledger.writer import LedgerWriter
from proctor.models import events
from proctor.models.control import GrantWish, Reset
from tests.replay.recorded_ledgers import POPPER, Sitting, make_session
from tests.server.governed.governed_sessions import Agent, Hall, until
from tests.server.live_server import PATIENCE

PLUME = "proctor/PlumeSearch-v0"
AGENT = Path(__file__).resolve().parents[2] / "examples" / "governed_agent.py"
SIGNER = Signer.of(bytes(range(32)))
BEGUN = 1_790_000_000.0
TICK = 0.02
"""Seconds that pass between two events."""
FIELD = {"grid_size": [96, 48], "source_location": [14, 24], "plume": "advected", "max_steps": 600}
ASKS = 8
"""A seed with which the agent comes to where it is unsure, in this field."""
SHAPED: tuple[dict[str, Any], ...] = ({"type": "step_cost", "cost": 0.01}, {"type": "scale", "factor": 2.0})
IMG = '<img src=x onerror="window.__pwned=1">'
SCRIPT = "</script><script>window.__pwned=2</script>"
TURNED = "\u202egnp.elif\u202c \u2066x\u2069"
HOSTILE = f"{IMG}{SCRIPT}{TURNED}"
"""Markup that would run if anything put it into a page as markup, and marks that turn the direction of writing."""
ENDLESS = "A" * 5000


# ------------------------------------------------------------------------------------------------------------ the writer
class Clock:
    """Time that passes a little with every look."""

    def __init__(self, begun: float) -> None:
        self._ticks = count()
        self._begun = begun

    def __call__(self) -> float:
        return self._begun + TICK * next(self._ticks)


@contextmanager
def writing(folder: Path, clock: Clock, observations: Any = "all") -> Iterator[LedgerWriter]:
    """Yield a writer that adds to the ledger in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    writer = LedgerWriter(
        folder, boot="boot", server="0", signer=SIGNER, durability="off", observations=observations, wall=clock
    )
    try:
        yield writer
    finally:
        writer.close()


def _run(scenario: Awaitable[None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(3 * PATIENCE):
            await scenario

    asyncio.run(bounded())


# -------------------------------------------------------------------------------------------------------- free episodes
def chosen_actions(target: str, settings: dict[str, Any], policy: str, seed: int, steps: int) -> list[Any]:
    """Return what a policy does in an environment that is played beforehand."""
    env: gym.Env[Any, Any] = make_env(target, settings)
    chooser = make_policy(policy, env)
    chooser.reset(seed)
    seen, _ = env.reset(seed=seed)
    actions: list[Any] = []
    for _ in range(steps):
        actions.append(int(chooser.act(seen)))
        seen, _, terminated, truncated, _ = env.step(actions[-1])
        if terminated or truncated:
            break
    env.close()
    return actions


def free_episode(
    folder: Path,
    target: str,
    settings: dict[str, Any],
    actions: Sequence[Any],
    *,
    seed: int,
    session: str,
    agent: str = "",
    begun: float = BEGUN,
    closes: bool = True,
    **more: Any,
) -> str:
    """Record an episode with these actions; one that is not closed was left open by a server that is no more."""
    clock = Clock(begun)

    async def scenario(writer: LedgerWriter) -> None:
        sitting = Sitting(target, settings, scenes="num_envs" not in more, **more)
        there, _ = make_session(session, sitting, writer, clock)
        await there.open()
        await there.reset(Reset(seed=seed, episode_id=f"{session}-episode"), 1)
        if agent:
            writer.record(granted(session, agent, clock()))
        for number, action in enumerate(actions):
            if there.over:
                break
            await there.step(msgspec.json.encode(action), number + 2)
        if closes:
            await there.close("client")

    with writing(folder, clock) as writer:
        _run(scenario(writer))
    return f"{session}.1"


def granted(session: str, agent: str, at: float) -> events.AgentGranted:
    return events.AgentGranted(
        session=session, at=at, epoch=1, grant="grant-1", agent=agent, tools=["move"], digest="0" * 64
    )


def _single(actions: Sequence[Any]) -> list[dict[str, Any]]:
    return [{"action": action} for action in actions]


def plume_episode(
    folder: Path,
    steps: int = 600,
    *,
    seed: int = ASKS,
    session: str = "plume",
    turns_at: int | None = None,
    **more: Any,
) -> str:
    """Record a search in a moving plume that runs and tumbles; with `turns_at` that step goes the other way."""
    actions = chosen_actions(PLUME, FIELD, "run_tumble", seed, steps)
    if turns_at is not None:
        actions[turns_at - 1] = (actions[turns_at - 1] + 2) % 4
    return free_episode(folder, PLUME, FIELD, _single(actions), seed=seed, session=session, **more)


def popper_episode(folder: Path, steps: int = 200, *, seed: int = 3, session: str = "popper", **more: Any) -> str:
    """Record a game of Column Popper by the greedy policy."""
    actions = chosen_actions(POPPER, {}, "greedy", seed, steps)
    return free_episode(folder, POPPER, {}, _single(actions), seed=seed, session=session, **more)


def _balancing(steps: int) -> list[dict[str, Any]]:
    return _single([step % 2 for step in range(steps)])


def pixels_episode(folder: Path, steps: int = 20, *, session: str = "pixels", **more: Any) -> str:
    """Record an environment that we do not know and that draws itself."""
    settings = {"render_mode": "rgb_array"}
    return free_episode(folder, "CartPole-v1", settings, _balancing(steps), seed=1, session=session, **more)


def unknown_episode(folder: Path, steps: int = 20, *, session: str = "unknown", **more: Any) -> str:
    """Record an environment that we do not know and that draws nothing."""
    return free_episode(folder, "CartPole-v1", {}, _balancing(steps), seed=1, session=session, **more)


def batch_episode(folder: Path, steps: int = 20, *, num_envs: int = 4, session: str = "batch", **more: Any) -> str:
    """Record a batch of searches."""
    acts = [{"actions": [(step + each) % 4 for each in range(num_envs)]} for step in range(steps)]
    return free_episode(folder, PLUME, {}, acts, seed=1, session=session, num_envs=num_envs, **more)


# ---------------------------------------------------------------------------------------------------- governed episodes
class Filmed(Hall):
    """A governed session whose scenes are on record in a ledger, at times that a clock says."""

    def __init__(
        self, name: str, target: str, writer: LedgerWriter, clock: Clock, policy: str, **settings: Any
    ) -> None:
        self.clock = clock
        super().__init__(target, policy, name=name, **settings)
        sitting = Sitting(target, settings, scenes=True, policy=self.policy.as_document())
        self.session, _ = make_session(name, sitting, writer, clock)

    def wall(self) -> float:
        return self.clock()

    async def started(self, seed: int, agent: str) -> Agent:
        """Begin the episode, and return its agent, who is on record, too."""
        await self.session.open()
        await self.granting.reset(self.session, Reset(seed=seed, episode_id=f"{self.session.name}-episode"), 1)
        given = await self.granting.grant(self.session, GrantWish(agent=agent), 2)
        return Agent(self.view(given))

    async def answered(self, choice: int = 0, text: str = "go on") -> None:
        """Answer the first question that comes, as the operator."""
        await until(self.operator.pending, tries=100_000)
        (waiting,) = self.operator.pending()
        await self.operator.answer(waiting, choice=waiting.options[choice].option_id, text=text)


Scenario = Callable[[Filmed, Agent], Awaitable[None]]


def _governed(
    folder: Path, scenario: Scenario, *, session: str, agent: str, seed: int, begun: float, settings: dict[str, Any]
) -> str:
    clock = Clock(begun)

    async def played(writer: LedgerWriter) -> None:
        hall = Filmed(session, PLUME, writer, clock, "standard", **settings)
        await scenario(hall, await hall.started(seed, agent))
        await hall.session.close("client")

    with writing(folder, clock) as writer:
        _run(played(writer))
    return f"{session}.1"


@cache
def _reference() -> ModuleType:
    spec = spec_from_file_location("governed_agent", AGENT)
    if spec is None or spec.loader is None:
        raise AssertionError("there is no reference agent")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class InRoom:
    """What the reference agent takes for an MCP client: its calls go to the session at once."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def call_tool(self, tool: str, arguments: dict[str, Any]) -> Any:
        heard = await self._agent.use(tool, **arguments)
        content, meta = (None, {"proctor/error": heard.said}) if heard.refused else (heard.said, None)
        return SimpleNamespace(structured_content=content, meta=meta, is_error=heard.refused)


async def _searched(hall: Filmed, agent: Agent) -> None:
    """Search as the reference agent does: it acts too early, cheats once and asks once."""
    module = _reference()
    await agent.use("move", direction="up", steps=1)
    options = argparse.Namespace(ask=290.0, uses=100, pause=0.0, cheat=True)
    player = module.GovernedAgent(InRoom(agent), "sniff", ["move"], options)
    operator = asyncio.create_task(hall.answered(text="search on, with shorter moves"))
    with redirect_stdout(io.StringIO()):
        await player.play(partial(module.search, ["up", "right", "down", "left"]))
    operator.cancel()


def governed_episode(
    folder: Path,
    *,
    session: str = "governed",
    agent: str = "governed_agent.py",
    seed: int = ASKS,
    begun: float = BEGUN,
) -> str:
    """Record a governed search: a directive out of order (FSM), a forged token (GOV-1), and a question that is answered."""
    return _governed(folder, _searched, session=session, agent=agent, seed=seed, begun=begun, settings=FIELD)


async def _attacked(hall: Filmed, agent: Agent) -> None:
    """Say markup wherever an agent may say anything."""
    await agent.believe(**{IMG: SCRIPT, TURNED: [HOSTILE, {HOSTILE: ENDLESS}]})
    await agent.use("decide", outcome=HOSTILE, summary=HOSTILE)
    await agent.use("move", direction=HOSTILE)
    await agent.submit(
        {"header": {"packet_type": HOSTILE, "layer_source": HOSTILE}, "mcp": {}, "payload": {HOSTILE: 1}}
    )
    await agent.use("decide", outcome="ESCALATE", summary=HOSTILE)
    asking = agent.use("escalate", question=HOSTILE, options=[HOSTILE, ENDLESS[:300]], gaps=[HOSTILE], wait_seconds=290)
    asked = asyncio.create_task(asking)
    await hall.answered(text=HOSTILE)
    await asked
    await agent.use("decide", outcome="ACT", summary=HOSTILE)
    await agent.use("request_token", tools=["move"], rationale=HOSTILE)
    await agent.use("move", direction="up", steps=3)


def hostile_episode(folder: Path, *, session: str = "hostile", begun: float = BEGUN) -> str:
    """Record a governed episode of an agent whose every word is markup, or turns the direction of writing."""
    return _governed(folder, _attacked, session=session, agent=HOSTILE[:100], seed=1, begun=begun, settings={})


def record_events(folder: Path, hall: Hall, scenario: Callable[[Agent], Awaitable[object]], **opening: Any) -> None:
    """Record what an agent does in a session of its own, whose opening may say something else."""

    async def played() -> None:
        await scenario(await hall.agent())
        await hall.session.close("done")

    _run(played())
    with writing(folder, Clock(1e9)) as writer:
        for event in hall.events:
            policy = {"policy": hall.policy.as_document()} | opening
            writer.record(replace(event, **policy) if isinstance(event, events.SessionOpened) else event)


# ----------------------------------------------------------------------------------------------------- without a session
def opened(session: str, at: float, environment: str = PLUME, **more: Any) -> events.SessionOpened:
    fields: dict[str, Any] = {
        "environment": environment,
        "environment_version": "0",
        "target": environment,
        "server": "0",
        "boot": "boot",
        "place": "inline",
        "python": "3.11",
        "gymnasium": "1.2",
        "numpy": "2.0",
    }
    return events.SessionOpened(session=session, at=at, **(fields | more))


def _raw(value: Any) -> Raw:
    return Raw(msgspec.json.encode(value))


def forged_episode(folder: Path, *, session: str = "forged", begun: float = BEGUN) -> str:
    """Record an episode in which every text of every event is markup: no server of ours would write it."""
    clock = Clock(begun)
    said: dict[str, Any] = {"session": session, "epoch": 1}
    scene = {"environment": HOSTILE, "static": {HOSTILE: HOSTILE}, "frame": {HOSTILE: HOSTILE}}
    with writing(folder, clock) as writer:
        writer.record(opened(session, clock(), HOSTILE, tier=HOSTILE, policy={"name": HOSTILE}, settings={IMG: SCRIPT}))
        writer.record(
            events.EpisodeReset(
                **said, at=clock(), episode_id=HOSTILE, seed=1, observation=_raw({IMG: SCRIPT}), scene=_raw(scene)
            )
        )
        writer.record(granted(session, HOSTILE, clock()))
        for step in range(1, 6):
            writer.record(_forged_step(session, step, clock()))
        writer.record(_forged_packet(session, clock()))
        writer.record(events.Failed(**said, at=clock(), step=5, code=HOSTILE, request=HOSTILE, clause=HOSTILE))
        writer.record(
            events.EpisodeClosed(
                **said, at=clock(), steps=5, reason=HOSTILE, outcome=HOSTILE, state=HOSTILE, obligations=[HOSTILE]
            )
        )
        writer.record(events.SessionClosed(session=session, at=clock(), reason=HOSTILE, episodes=1, steps=5))
    return f"{session}.1"


LINK = "javascript:window.__pwned=3"
STYLE = "red;}*{display:none!important}/*"
POISONED: dict[str, Any] = {
    "__proto__": {"polluted": True, "then": LINK},
    "constructor": {"prototype": {"polluted": True}},
    "href": LINK,
    "style": STYLE,
    "toString": STYLE,
    "length": 10**15,
}


def poisoned_episode(folder: Path, *, session: str = "poisoned", begun: float = BEGUN) -> str:
    """Record an episode whose keys are those of every object, whose texts are addresses and styles, and whose scene is endless."""
    clock = Clock(begun)
    said: dict[str, Any] = {"session": session, "epoch": 1}
    field = {"kind": "image", "columns": 10**9, "rows": 10**9, "levels": LINK, **POISONED}
    scene = {"environment": "plume", "grid_size": [10**9, 10**9], "size": [1e308, 1e308], "plume": field, **POISONED}
    with writing(folder, clock) as writer:
        writer.record(opened(session, clock(), "__proto__", settings=POISONED, policy={"name": LINK}, tier=STYLE))
        writer.record(
            events.EpisodeReset(
                **said, at=clock(), episode_id="constructor", seed=1, observation=_raw(POISONED), scene=_raw(scene),
                metadata=_raw(POISONED),
            )
        )  # fmt: skip
        writer.record(granted(session, "__proto__", clock()))
        for step in range(1, 6):
            writer.record(
                replace(
                    _forged_step(session, step, clock()),
                    metadata=_raw(POISONED),
                    parts={"__proto__": 1e308, "constructor": -1e308, "hasOwnProperty": 0.5},
                    scene=_raw({"agent": [1e308, -1e308], "step": step, **POISONED}),
                    tool="__proto__",
                    reward=1e308,
                )
            )
        writer.record(events.EpisodeClosed(**said, at=clock(), steps=5, reason=LINK, outcome="__proto__", state=STYLE))
        writer.record(events.SessionClosed(session=session, at=clock(), reason=LINK, episodes=1, steps=5))
    return f"{session}.1"


def _forged_step(session: str, step: int, at: float) -> events.EpisodeStepped:
    return events.EpisodeStepped(
        session=session,
        at=at,
        epoch=1,
        step=step,
        action=_raw({"action": HOSTILE}),
        observation=_raw({"observation": [HOSTILE, IMG]}),
        metadata=_raw({IMG: SCRIPT}),
        raw_reward=0.5,
        reward=0.5,
        parts={IMG: 0.25, SCRIPT: 0.25},
        terminated=False,
        truncated=False,
        grant=HOSTILE,
        tool=HOSTILE,
        scene=_raw({HOSTILE: step, "agent": HOSTILE}),
    )


def _forged_packet(session: str, at: float) -> events.PacketJudged:
    return events.PacketJudged(
        session=session,
        at=at,
        principal="agent",
        epoch=1,
        step=5,
        line=_raw({"header": {"packet_type": HOSTILE}, "payload": {IMG: ENDLESS}}),
        kind=HOSTILE,
        packet_id=HOSTILE,
        accepted=False,
        path=[HOSTILE],
        rules=[HOSTILE],
        pointers=[HOSTILE],
        reason=HOSTILE,
        warnings=[HOSTILE],
        state=HOSTILE,
        grant=HOSTILE,
        tool=HOSTILE,
    )


def _begun(session: str, at: float, observation: list[float], scene: Any) -> events.EpisodeReset:
    return events.EpisodeReset(
        session=session,
        at=at,
        epoch=1,
        episode_id=f"{session}-episode",
        seed=1,
        observation=_raw({"observation": observation}),
        scene=_raw(scene),
    )


def _step(
    session: str, at: float, step: int, action: int, observation: list[float], reward: float, frame: Any
) -> events.EpisodeStepped:
    return events.EpisodeStepped(
        session=session,
        at=at,
        epoch=1,
        step=step,
        action=_raw({"action": action}),
        observation=_raw({"observation": observation}),
        raw_reward=reward,
        reward=reward,
        terminated=False,
        truncated=False,
        scene=_raw(frame),
    )


def long_episode(
    folder: Path, steps: int = 10_000, *, session: str = "long", begun: float = BEGUN, closes: bool = True
) -> str:
    """Record a search of so many steps that goes round and round; its events are stated without a session."""
    env: Any = make_env(PLUME, {"max_steps": steps + 1}).unwrapped
    seen, _ = env.reset(seed=1, options={"start": (20, 20)})
    with writing(folder, Clock(begun)) as writer:
        writer.record(opened(session, begun, settings={"max_steps": steps + 1}))
        writer.record(_begun(session, begun, [float(seen[0])], env.scene()))
        for step in range(1, steps + 1):
            action = (1, 0, 3, 2)[step // (20 + step // 500) % 4]
            seen, reward, *_ = env.step(action)
            at = begun + step / 1000
            writer.record(_step(session, at, step, action, [float(seen[0])], float(reward), env.frame()))
        if closes:
            writer.record(
                events.EpisodeClosed(session=session, at=begun + steps / 1000, epoch=1, steps=steps, reason="closed")
            )
    return f"{session}.1"
