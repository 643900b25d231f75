"""A server under load that is killed again and again, what its clients were told, and what its ledger says afterwards.

Each player keeps what it has sent and what was acknowledged. The audit compares that with the ledger: every acknowledged row
is there, once, as it was acknowledged; nothing else is there but what was sent last and never answered.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import msgspec

from proctor.client.connection import Backoff, Connection, ConnectionSettings
from proctor.client.env_client import EnvClient
from proctor.errors import ConnectionFailed, EpisodeLost
from proctor.ledger.reader import Ledger
from proctor.ledger.verify import verify
from proctor.models.control import GrantWish
from proctor.models.events import (
    BatchReset,
    BatchStepped,
    EpisodeReset,
    EpisodeStepped,
    SessionClosed,
    SessionOpened,
    SessionResumed,
)
from proctor.models.wire import Action, Observation, State
from tests.server.commands import ROOT, variables
from tests.server.mcp_agents import agent_with, lets_in

PATIENCE = 120.0
SETTINGS = ConnectionSettings(
    request_timeout=PATIENCE, connect_timeout=30.0, cancel_timeout=30.0, backoff=Backoff(first=0.02, longest=0.3)
)
DIRECTIONS = ("up", "right", "down", "left")


class Chosen(Action):
    """A choice."""

    action: int


class Sensed(Observation):
    """What a sensor gives."""

    observation: tuple[float, ...]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


class Victim:
    """`proctor serve` with a ledger, on addresses that stay."""

    def __init__(self, home: Path, target: str, *arguments: str) -> None:
        self.ledger = home / "ledger"
        self.port, self.agent_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.kills = 0
        self._home = home
        self._command = [
            *(sys.executable, "-m", "proctor", "serve", target, "--json", "--insecure", "--grace", "300"),
            *("--port", str(self.port), "--agent-port", str(self.agent_port), "--ledger", str(self.ledger)),
            *("--max-sessions", "256", "--log-level", "info", *arguments),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._home.mkdir(exist_ok=True)
        with (self._home / "out").open("wb") as out, (self._home / "err").open("ab") as err:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, env=variables(self._home), stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )

    async def ready(self) -> None:
        async with asyncio.timeout(PATIENCE):
            while not (self._home / "out").read_bytes().endswith(b"\n"):
                assert self._process is not None
                assert self._process.poll() is None, (self._home / "err").read_text()[-2000:]
                await asyncio.sleep(0.01)

    def end(self, number: int) -> int:
        assert self._process is not None
        self.kills += number == signal.SIGKILL
        self._process.send_signal(number)
        return self._process.wait(PATIENCE)

    def clean_up(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(PATIENCE)


class Pulse:
    """Counts what was acknowledged, and lets one wait for more."""

    def __init__(self) -> None:
        self.count = 0
        self._moved = asyncio.Event()

    def beat(self) -> None:
        self.count += 1
        self._moved.set()

    async def after(self, beats: int) -> None:
        until = self.count + beats
        async with asyncio.timeout(PATIENCE):
            while self.count < until:
                self._moved.clear()
                await self._moved.wait()


@dataclass
class Episode:
    """What one client sent and was told; a step is told as (observation, reward), in whatever form its kind has."""

    seed: int
    first: Any
    sent: list[Any] = field(default_factory=list)
    told: list[Any] = field(default_factory=list)
    lost: str | None = None


Key = tuple[str, int]


@dataclass
class Load:
    """All clients, what they know, and when they are to stop."""

    url: str
    chance: random.Random
    pulse: Pulse
    over: asyncio.Event
    episodes: dict[Key, Episode] = field(default_factory=dict)
    agents: dict[Key, Counter[str]] = field(default_factory=dict)
    """For an episode of agents: how many calls of each grant were answered."""
    watched: dict[Key, list[int]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    async def single(self, connection: Connection, moves: int) -> None:
        client = EnvClient(connection, action_type=Chosen, observation_type=Sensed, state_type=State)
        while not self.over.is_set():
            seed = self.chance.randrange(1, 10_000)
            seen = await self._begun(client.reset(seed=seed))
            if seen is None:
                continue
            episode = self._kept(client.session, seed, seen.observation)
            for _ in range(self.chance.randrange(1, moves)):
                action = self.chance.randrange(4)
                episode.sent.append(action)
                seen = await self._told(episode, client.step(Chosen(action=action)))
                if seen is None:
                    break
                episode.told.append((seen.observation, seen.reward))
                if seen.done or self.over.is_set():
                    break
        await client.close()

    async def batch(self, connection: Connection, num_envs: int, moves: int) -> None:
        session: Any = None
        while session is None and not self.over.is_set():
            session = await self._begun(connection.batch(num_envs))
        while not self.over.is_set():
            seed = self.chance.randrange(1, 10_000)
            seen = await self._begun(session.reset(b'{"seed":%d}' % seed))
            if seen is None:
                continue
            episode = self._kept(session, seed, bytes(seen.observations))
            for _ in range(self.chance.randrange(1, moves)):
                actions = json.dumps({"actions": [self.chance.randrange(4) for _ in range(num_envs)]})
                episode.sent.append(json.loads(actions))
                seen = await self._told(episode, session.step(actions.encode()))
                if seen is None:
                    break
                episode.told.append((bytes(seen.observations), bytes(seen.rewards)))
                if self.over.is_set():
                    break
        if session is not None:
            await session.close()

    async def orchestrator(self, calls: int) -> None:
        """Let an agent act, and read afterwards what it did."""
        client = EnvClient(self.url, action_type=Chosen, observation_type=Sensed, state_type=State, settings=SETTINGS)
        while not self.over.is_set():
            seed = self.chance.randrange(1, 10_000)
            seen = await self._begun(client.reset(seed=seed, grant=GrantWish(agent="mover")))
            if seen is None:
                continue
            key = self._key(client.session)
            self._kept(client.session, seed, seen.observation)
            self.agents[key] = Counter()
            assert client.granted is not None
            await self._acted(key, client.granted.address, client.granted.token, client.granted.grant, calls)
            try:
                self.watched[key] = [row.step async for row in client.watch(follow=False)]
            except EpisodeLost as loss:
                self.episodes[key].lost = loss.code
        await client.close()

    async def _acted(self, key: Key, address: str, token: str, grant: str, calls: int) -> None:
        """Make so many calls; after a broken connection the agent comes back with the same token."""
        self.agents[key][grant] = 0  # known, also if none of its calls is ever answered
        while self.agents[key][grant] < calls and not self.over.is_set():
            try:
                async with agent_with(address, token) as agent:
                    while self.agents[key][grant] < calls and not self.over.is_set():
                        answer = await agent.use("move", direction=self.chance.choice(DIRECTIONS), steps=2)
                        if answer.code is not None:
                            return
                        self.agents[key][grant] += 1
                        self.pulse.beat()
            except Exception:  # noqa: BLE001  # a client library's own ways to say that the server is gone
                await self._knock(key, address, token)

    async def _knock(self, key: Key, address: str, token: str) -> None:
        """Wait until the agent plane answers, and note if it does not know the token."""
        while not self.over.is_set():
            try:
                if not await lets_in(address, token):
                    self.problems.append(f"{key}: the token of a grant is forgotten")
                    raise LookupError(key)
                return
            except httpx2.HTTPError:
                await asyncio.sleep(0.05)

    async def _begun(self, beginning: Any) -> Any:
        """Return what a beginning brought; None: the server was just gone, and nothing had begun."""
        try:
            seen = await beginning
        except (EpisodeLost, ConnectionFailed):
            await asyncio.sleep(0.05)
            return None
        self.pulse.beat()
        return seen

    async def _told(self, episode: Episode, step: Any) -> Any:
        try:
            seen = await step
        except EpisodeLost as loss:
            episode.lost = loss.code
            return None
        self.pulse.beat()
        return seen

    def _kept(self, session: Any, seed: int, first: Any) -> Episode:
        episode = self.episodes[self._key(session)] = Episode(seed, first)
        return episode

    def _key(self, session: Any) -> Key:
        return session.name or "", session.position.epoch


@dataclass(frozen=True)
class Mix:
    """How many clients of which kind there are, and how long their episodes may be."""

    singles: int = 52
    batches: int = 8
    agents: int = 4
    moves: int = 60


@asynccontextmanager
async def loaded(victim: Victim, mix: Mix, chance: random.Random) -> AsyncIterator[Load]:
    """Have clients at work while this is entered; afterwards they end their sessions."""
    load = Load(victim.url, chance, Pulse(), asyncio.Event())
    connections = [Connection(victim.url, settings=SETTINGS) for _ in range(8)]
    async with asyncio.TaskGroup() as clients:
        for index in range(mix.singles):
            clients.create_task(load.single(connections[index % len(connections)], mix.moves))
        for index in range(mix.batches):
            clients.create_task(load.batch(connections[index % len(connections)], 4, mix.moves))
        for _ in range(mix.agents):
            clients.create_task(load.orchestrator(8))
        yield load
        load.over.set()
    for connection in connections:
        await connection.close()


async def killed(victim: Victim, times: int, mix: Mix, chance: random.Random) -> Load:
    """Kill the server so many times at random instants, most of them under load, and some while it begins."""
    victim.start()
    await victim.ready()
    async with asyncio.timeout(PATIENCE + 30.0 * times), loaded(victim, mix, chance) as load:
        await load.pulse.after(mix.singles)
        for _ in range(times):
            await load.pulse.after(chance.randrange(1, 600))
            await asyncio.sleep(chance.random() * 0.01)  # not only right after a reply
            victim.end(signal.SIGKILL)
            victim.start()
            if chance.random() < 0.15:
                await asyncio.sleep(chance.uniform(0.2, 2.0))  # somewhere in its beginning
                victim.end(signal.SIGKILL)
                victim.start()
            await victim.ready()
        await load.pulse.after(mix.singles)
    assert victim.end(signal.SIGTERM) == 0
    return load


# ------------------------------------------------------------------------------------------------------- afterwards
@dataclass
class Recorded:
    """What the ledger has of one episode, in its order."""

    resets: list[Any] = field(default_factory=list)
    steps: list[Any] = field(default_factory=list)


@dataclass
class Audit:
    """What was found."""

    rows: int
    acknowledged: int
    resumed: int
    lost: Counter[str]
    """Why episodes did not go on, and how often."""
    problems: list[str]


def audited(ledger: Path, load: Load) -> Audit:
    """Compare what clients were told with what is on record."""
    report = verify(ledger)
    problems = [*load.problems, *(f"verify: {finding}" for finding in report.findings)]
    recorded: dict[Key, Recorded] = defaultdict(Recorded)
    sessions: Counter[str] = Counter()
    resumed: list[SessionResumed] = []
    with Ledger.open(ledger) as opened:
        for row in opened.all_rows():
            event = row.event
            if isinstance(event, EpisodeReset | BatchReset):
                recorded[event.session, event.epoch].resets.append(event)
            elif isinstance(event, EpisodeStepped | BatchStepped):
                recorded[event.session, event.epoch].steps.append(event)
            elif isinstance(event, SessionResumed):
                resumed.append(event)
            elif isinstance(event, SessionOpened) and row.chain.startswith("server."):
                sessions[event.session] += 1
            elif isinstance(event, SessionClosed):
                sessions[event.session] -= 1
    problems += [f"{name} was not closed once" for name, left in sessions.items() if left != 0]
    for key, found in recorded.items():
        problems += _about_order(key, found)
    for key, episode in load.episodes.items():
        problems += _about(key, episode, recorded[key], load)
    lost = Counter(event.lost for event in resumed if event.lost is not None)
    problems += _about_losses(load, {(event.session, event.epoch) for event in resumed if event.lost is not None})
    acknowledged = sum(1 + len(episode.told) for episode in load.episodes.values())
    return Audit(report.rows, acknowledged, len(resumed) - lost.total(), lost, problems)


def _about_order(key: Key, found: Recorded) -> list[str]:
    numbers = [step.step for step in found.steps]
    problems = [] if len(found.resets) == 1 else [f"{key} has {len(found.resets)} resets"]
    return problems if numbers == list(range(1, len(numbers) + 1)) else [*problems, f"{key} has the steps {numbers}"]


def _about(key: Key, episode: Episode, found: Recorded, load: Load) -> list[str]:
    if not found.resets:
        return [f"{key}: an acknowledged reset is not on record"]
    problems = []
    reset = found.resets[0]
    if (reset.seed, _seen(reset)) != (episode.seed, episode.first):
        problems.append(f"{key}: another reset is on record")
    if key in load.agents:
        return problems + _about_agents(key, found, load)
    if len(found.steps) < len(episode.told):
        problems.append(f"{key}: {len(episode.told)} steps were acknowledged, {len(found.steps)} are on record")
    actions = [_action(step) for step in found.steps]
    if actions != episode.sent[: len(actions)]:
        problems.append(f"{key}: other actions are on record than were sent")
    told = [(_seen(step), _reward(step)) for step in found.steps[: len(episode.told)]]
    if told != episode.told:
        problems.append(f"{key}: something else was told than is on record")
    return problems


def _about_agents(key: Key, found: Recorded, load: Load) -> list[str]:
    """An agent's call made two steps; one whose answer was lost may have made some, and the agent called again."""
    calls = sum(load.agents[key].values())
    problems = []
    if len(found.steps) < 2 * calls or any(step.grant not in load.agents[key] for step in found.steps):
        problems.append(f"{key}: {calls} calls were answered, {len(found.steps)} steps are on record")
    watched = load.watched.get(key)
    if watched is not None and watched != [step.step for step in found.steps][: len(watched)]:
        problems.append(f"{key}: rows {watched} were watched")
    return problems


def _about_losses(load: Load, lost: set[Key]) -> list[str]:
    """Whatever a client lost, the record says why."""
    return [
        f"{key} was lost ({episode.lost}) and nobody says why"
        for key, episode in load.episodes.items()
        if episode.lost is not None and key not in lost
    ]


def _seen(event: Any) -> Any:
    if isinstance(event, BatchReset | BatchStepped):
        return bytes(event.observations)
    return tuple(msgspec.json.decode(event.observation)["observation"])


def _reward(event: Any) -> Any:
    return bytes(event.rewards) if isinstance(event, BatchStepped) else event.reward


def _action(event: Any) -> Any:
    if isinstance(event, BatchStepped):
        return msgspec.json.decode(event.actions)
    return msgspec.json.decode(event.action)["action"]


def many() -> int:
    """Return how often the server is killed in all: PROCTOR_KILLS, or 25 times."""
    return int(os.environ.get("PROCTOR_KILLS", "25"))
