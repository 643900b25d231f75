"""What a target says of itself (names, schemas, tools, where its steps may run), and what a server says of both.

Rule 1: an `EnvDescription` is a value that can cross a pipe: an environment that runs in a sandbox is made there to be asked, and
    its description is all that the server ever learns of it.
Rule 2: what came from a sandbox is somebody else's word. It is checked in its form, and its texts are only ever shown.
Rule 3: a server's description is the same on the WebSocket and on HTTP.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import msgspec

from proctor import __version__
from proctor.contracts.tools import Tool
from proctor.envs.gym_adapter import AdaptedEnvironment
from proctor.envs.source_digest import digest_environment
from proctor.envs.targets import Target, is_async
from proctor.models.control import PROTOCOL, Metadata, Schemas
from proctor.models.spaces import described, space_from


class EnvDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What a target says of itself."""

    name: str
    description: str
    version: str
    schemas: Schemas
    quick: bool
    steps_are_coroutines: bool
    can_batch: bool
    tools: tuple[Tool, ...] = ()
    agent_info: tuple[str, ...] = ()
    """The keys of metadata that agents may see."""
    shows_reward: bool = False
    max_agents: int = 1
    code: str = ""
    """The digest of the environment's source."""

    @property
    def observation_space(self) -> gym.Space[Any] | None:
        """The space of observations, where there is one."""
        spaces = self.schemas.spaces
        return None if spaces is None else space_from(spaces["observation"])


def describe_target(target: Target) -> EnvDescription:
    """Return what the target says of itself; it is made once for that, and closed."""
    environment = target.make()
    spaces = environment.spaces
    card = EnvDescription(
        name=environment.name,
        description=environment.description,
        version=environment.version,
        schemas=Schemas(
            environment.action_type.model_json_schema(),
            environment.observation_type.model_json_schema(mode="serialization"),
            environment.state_type.model_json_schema(mode="serialization"),
            None if spaces is None else {"action": described(spaces[0]), "observation": described(spaces[1])},
        ),
        quick=environment.quick,
        steps_are_coroutines=is_async(environment),
        can_batch=isinstance(environment, AdaptedEnvironment),
        tools=environment.toolbox().tools,
        agent_info=environment.agent_info,
        shows_reward=environment.shows_reward,
        max_agents=environment.max_agents,
        code=digest_environment(environment),
    )
    closing = environment.close()
    if closing is not None:
        # On a thread: whoever makes a server may be inside an event loop of its own.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, _await_closing(closing)).result()
    return card


async def _await_closing(closing: Any) -> None:
    await closing


@dataclass(frozen=True, slots=True)
class ServerDescription:
    """Metadata and schemas, made once."""

    metadata: Metadata
    schemas: Schemas


def describe_server(card: EnvDescription) -> ServerDescription:
    """Return what to say of the environment that a target makes."""
    metadata = Metadata(
        card.name, card.description, card.version, f"proctor/{__version__}", [PROTOCOL], num_envs=card.can_batch
    )
    return ServerDescription(metadata, card.schemas)
