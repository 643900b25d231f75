"""An environment of one's own with typed messages: written, served by `proctor serve`, driven by a typed client."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Annotated

from pydantic import Field

from proctor.client import EnvClient
from proctor.contracts.environment import Environment
from proctor.models.wire import Action, Observation, State

STEPS = 50


class Heat(Action):
    """How much to heat, or below 0 to cool."""

    degrees: Annotated[float, Field(ge=-5.0, le=5.0)]


class Room(Observation):
    """How warm it is."""

    celsius: float


class RoomState(State):
    """What an orchestrator may know besides."""

    outside: float


class Thermostat(Environment[Heat, Room, RoomState]):
    """Keep a room at 20 degrees.

    The observation is the temperature, the reward how far it is off the mark, negative; an episode has 50 steps.
    """

    quick = True

    def __init__(self, outside: float = 5.0) -> None:
        self._outside = outside
        self._celsius = outside
        self._steps = 0
        self._episode_id: str | None = None

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Room:
        """Begin in a room that is anything from freezing to hot."""
        self._celsius = random.Random(seed).uniform(0.0, 40.0)  # noqa: S311  # a game, not a secret
        self._steps, self._episode_id = 0, episode_id
        return Room(celsius=self._celsius)

    def step(self, action: Heat) -> Room:
        """Heat, and lose a tenth of the difference to the outside."""
        self._celsius += action.degrees - (self._celsius - self._outside) / 10
        self._steps += 1
        return Room(celsius=self._celsius, reward=-abs(self._celsius - 20.0), truncated=self._steps == STEPS)

    @property
    def state(self) -> RoomState:
        """Where the room stands."""
        return RoomState(episode_id=self._episode_id, step_count=self._steps, outside=self._outside)


class ThermostatClient(EnvClient[Heat, Room, RoomState]):
    """Drives a served `Thermostat`: `step` takes a Heat and gives a Room."""


def control(room: Room) -> Heat:
    """Return what a simple controller does."""
    return Heat(degrees=max(-5.0, min(5.0, (20.0 - room.celsius) + 1.5)))


def main() -> None:
    """Serve the environment and play one episode in it."""
    target = [f"{Path(__file__).stem}:Thermostat", "--set", "outside=0"]
    command = [sys.executable, "-m", "proctor", "serve", *target, "--port", "0", "--insecure", "--json"]
    folder = Path(__file__).parent
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603  # our own command
        try:
            url = json.loads(server.stdout.readline())["url"]
            with ThermostatClient.blocking(url) as client:
                room, total = client.reset(seed=1), 0.0
                print(f"{room.celsius:.1f} degrees, {client.state().outside:.1f} outside")
                while not room.done:
                    room = client.step(control(room))
                    total += room.reward
                print(f"{room.celsius:.1f} degrees after {client.state().step_count} steps, return {total:.1f}")
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
