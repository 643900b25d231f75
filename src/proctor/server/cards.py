"""What a target says of itself: names, schemas, tools, and where its steps may run.

Rule 1: a card is a value that can cross a pipe: an environment that runs in a sandbox is made there to be asked, and its
    card is all that the server ever learns of it.
Rule 2: what came from a sandbox is somebody else's word. It is checked in its form, and its texts are only ever shown.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium as gym
import msgspec

from proctor.contracts.tools import Tool
from proctor.envs.adapted import AdaptedEnvironment
from proctor.envs.code import code_of
from proctor.envs.targets import Target, is_async
from proctor.models.control import Schemas
from proctor.models.spaces import described, space_from


class Card(msgspec.Struct, frozen=True, kw_only=True):
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


def card_of(target: Target) -> Card:
    """Return what the target says of itself; it is made once for that, and closed."""
    environment = target.make()
    spaces = environment.spaces
    card = Card(
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
        code=code_of(environment),
    )
    closing = environment.close()
    if closing is not None:
        # On a thread: whoever makes a server may be inside an event loop of its own.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, _awaited(closing)).result()
    return card


async def _awaited(closing: Any) -> None:
    await closing
