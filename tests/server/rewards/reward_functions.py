"""Functions of a user, named as `tests.server.rewards.reward_functions:function` in the tests of reward transforms."""

from typing import Any

from proctor.server.rewards.pipeline import View

seen: list[tuple[float, View]] = []
"""What `watch` was called with; a test empties it first."""


def bonus(reward: float, view: View) -> float:
    """Return a reward that depends on everything a view has."""
    x: float = view.observation["observation"]["x"][0]
    phi: float = view.metadata["phi"]
    ended = 10.0 * view.terminated + 100.0 * view.truncated
    return reward + x + phi + 0.01 * view.step + ended


def height(view: View) -> float:
    """Return a potential from the observation alone."""
    value: float = view.observation["observation"]["x"][0] ** 2 + view.observation["observation"]["pair"][0]
    return value


def watch(reward: float, view: View) -> float:
    """Return the reward and remember the call."""
    seen.append((reward, view))
    return reward


def metadata_phi(view: View) -> Any:
    """Return what the metadata say, a number or not."""
    return view.metadata["phi"]


def from_metadata(reward: float, view: View) -> Any:
    """Return whatever the metadata hold under `answer`."""
    return view.metadata["answer"]


def raises(reward: float, view: View) -> float:
    """Raise what nobody expects."""
    raise LookupError("a secret of the user's")


def leaves(reward: float, view: View) -> float:
    """End the process, if nobody stops it."""
    raise SystemExit(3)


def doubled(reward: float, view: View) -> float:
    """Return twice the reward."""
    return 2.0 * reward


async def later(reward: float, view: View) -> float:
    """Return too late."""
    return reward


def of_three(reward: float, view: View, more: int) -> float:
    """Take one argument too many."""
    return reward + more


class Scaler:
    """A class that makes numbers is none; an instance is a function."""

    def __call__(self, reward: float, view: View) -> float:
        """Return half of the reward."""
        return reward / 2


half = Scaler()
not_callable = 5
