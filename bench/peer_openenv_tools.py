"""OpenEnv's own server with the echo as a tool: `python -m bench.peer_openenv_tools KIND PORT`, in the environment of OpenEnv.

KIND is `declared`: written as OpenEnv's pages say, an `MCPEnvironment` around a FastMCP server whose one tool, `act`, makes a
step and answers with the observation. Or it is `undeclared`: an environment that takes `CallToolAction` as its action, lists no
tool and checks no argument, which is the least that OpenEnv can be asked to do for a call. `bench.control_env` is the same
environment written for Proctor.
"""

import sys
from typing import Any

import uvicorn
from fastmcp import FastMCP  # type: ignore[import-not-found]  # installed for some targets only
from openenv.core.env_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State

SESSIONS = 512


def echoed(state: State, message: str) -> dict[str, Any]:
    """Say it again, and count."""
    state.step_count += 1
    return {"echoed": message, "count": state.step_count, "step": state.step_count, "done": False}


class EchoTools(MCPEnvironment):  # type: ignore[misc]  # likewise
    """An echo that counts, behind a tool."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        self._state = State()
        server: Any = FastMCP("echo")
        server.tool(self.act)
        super().__init__(server)

    def act(self, message: str) -> dict[str, Any]:
        """Say it again."""
        return echoed(self._state, message)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Observation:
        """Begin to count."""
        self._state = State(episode_id=episode_id, step_count=0)
        return Observation()

    def _step_impl(self, action: Action, timeout_s: float | None = None, **_: Any) -> Observation:
        raise ValueError("this environment has tools only")

    @property
    def state(self) -> State:
        """The episode and the count."""
        return self._state


class EchoCalls(Environment[CallToolAction, CallToolObservation, State]):  # type: ignore[misc]  # likewise
    """The same, which takes calls as its actions; asynchronous, so that OpenEnv runs it on its event loop."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> CallToolObservation:
        """Begin to count."""
        self._state = State(episode_id=episode_id, step_count=0)
        return CallToolObservation(tool_name="")

    def step(self, action: CallToolAction, timeout_s: float | None = None, **_: Any) -> CallToolObservation:
        """Say it again."""
        return CallToolObservation(tool_name="act", result=echoed(self._state, action.arguments["message"]))

    async def step_async(self, action: CallToolAction, timeout_s: float | None = None, **_: Any) -> CallToolObservation:
        """Say it again."""
        return self.step(action)

    @property
    def state(self) -> State:
        """The episode and the count."""
        return self._state


KINDS = {"declared": EchoTools, "undeclared": EchoCalls}


def main(kind: str, port: str) -> None:
    """Serve until ended."""
    app = create_app(KINDS[kind], CallToolAction, CallToolObservation, env_name="echo", max_concurrent_envs=SESSIONS)
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main(*sys.argv[1:])
