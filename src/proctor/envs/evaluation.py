"""Episodes of a policy in an environment, one after the other, and what they amount to.

Rule 1: episode k of a run that begins with the seed S has the seed S + k, for the environment and for the policy.
Rule 2: the policy is shown observations and nothing else. Whether an episode succeeded and its score are read from the
    last `info` (`SUCCESS_KEYS`, `SCORE_KEY`); an environment that does not say so has no success rate or no score.
Rule 3: no clock: how long it took is for the caller to measure.
Rule 4: an environment's class names the module of its policies (`policies = "proctor.envs.plume.policies"`), and that
    module has the table `POLICIES`; it is imported when it is asked for. Any other environment has `GENERAL_POLICIES`
    alone. This file knows no environment.
"""

import copy
import math
import statistics
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from numbers import Real
from typing import Any, Final, Protocol

import gymnasium as gym

from proctor.contracts.chance import SEED_LIMIT, Chance, Stream
from proctor.errors import ValidationError

SUCCESS_KEYS: Final = ("goal_reached", "is_success")
SCORE_KEY: Final = "score"
Z95: Final = 1.959963984540054  # standard deviations either side of the mean that hold 95 % of a normal distribution

Env = gym.Env[Any, Any]


class Policy(Protocol):
    """Chooses actions from observations; the same seed and observations give the same actions."""

    def reset(self, seed: int) -> None:
        """Forget everything and begin an episode; needed before the first `act`."""

    def act(self, observation: Any) -> Any:
        """Return the next action."""


@dataclass(frozen=True, slots=True)
class EpisodeResult:
    """How one episode went; `success` and `score` are None where the environment does not say."""

    seed: int
    steps: int
    total_reward: float
    terminated: bool
    truncated: bool
    success: bool | None
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with the bounds of its 95 % confidence interval; a mean of one value has no bounds."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class EvaluationSummary:
    """What a run amounts to; steps to the goal are those of the successful episodes, None where there are none."""

    episodes: int
    steps: int
    success_rate: Interval | None
    median_steps_to_goal: float | None
    mean_steps_to_goal: float | None
    mean_return: Interval
    mean_score: Interval | None


def play_stepwise(env: Env, policy: Policy, seed: int) -> Generator[None, None, EpisodeResult]:
    """Play one episode and stop after the reset and after every step, so that the caller can look at `env`."""
    policy.reset(seed)
    observation, info = env.reset(seed=seed)
    steps, total_reward, terminated, truncated = 0, 0.0, False, False
    yield
    while not (terminated or truncated):
        observation, reward, terminated, truncated, info = env.step(policy.act(observation))
        steps += 1
        total_reward += float(reward)
        yield
    success = next((bool(info[key]) for key in SUCCESS_KEYS if key in info), None)
    said = info.get(SCORE_KEY)
    score = float(said) if isinstance(said, Real) and not isinstance(said, bool) else None
    return EpisodeResult(seed, steps, total_reward, bool(terminated), bool(truncated), success, score)


def play_episode(env: Env, policy: Policy, seed: int) -> EpisodeResult:
    """Return how one episode goes."""
    playing = play_stepwise(env, policy, seed)
    while True:
        try:
            next(playing)
        except StopIteration as end:
            result: EpisodeResult = end.value
            return result


def run_episodes(env: Env, policy: Policy, episodes: int, seed: int) -> Iterator[EpisodeResult]:
    """Return the results of `episodes` episodes, each played when it is asked for."""
    if episodes < 1:
        raise ValidationError("a run needs episodes", found=episodes, expected="at least 1")
    if not 0 <= seed <= SEED_LIMIT - episodes:
        raise ValidationError(
            "the seeds of the run are out of range",
            found=seed,
            expected=f"0 <= seed <= {SEED_LIMIT - episodes} for {episodes} episodes",
        )
    return (play_episode(env, policy, seed + k) for k in range(episodes))


def summarize(results: Sequence[EpisodeResult]) -> EvaluationSummary:
    """Return what `results`, at least one, amount to."""
    if not results:
        raise ValidationError("nothing to sum up", found=0, expected="at least one episode")
    judged = [result for result in results if result.success is not None]
    to_goal = [result.steps for result in judged if result.success]
    scores = [result.score for result in results if result.score is not None]
    return EvaluationSummary(
        episodes=len(results),
        steps=sum(result.steps for result in results),
        success_rate=wilson_interval(len(to_goal), len(judged)) if judged else None,
        median_steps_to_goal=statistics.median(to_goal) if to_goal else None,
        mean_steps_to_goal=statistics.fmean(to_goal) if to_goal else None,
        mean_return=mean_interval([result.total_reward for result in results]),
        mean_score=mean_interval(scores) if scores else None,
    )


def wilson_interval(successes: int, trials: int) -> Interval:
    """Return the rate of `successes` with its Wilson interval, which stays inside [0, 1]."""
    rate = successes / trials
    weight = Z95 * Z95 / trials
    centre = (rate + weight / 2) / (1 + weight)
    reach = Z95 * math.sqrt(rate * (1 - rate) / trials + weight / (4 * trials)) / (1 + weight)
    # At the ends the bound is exact; the arithmetic is not.
    low = 0.0 if successes == 0 else max(centre - reach, 0.0)
    high = 1.0 if successes == trials else min(centre + reach, 1.0)
    return Interval(rate, low, high)


def mean_interval(values: Sequence[float]) -> Interval:
    """Return the mean with its normal interval."""
    mean = statistics.fmean(values)
    if len(values) == 1:
        return Interval(mean, None, None)
    reach = Z95 * statistics.stdev(values, mean) / math.sqrt(len(values))
    return Interval(mean, mean - reach, mean + reach)


RANDOM_STREAM: Final = int(Stream.POLICY)  # those of an environment's own policies follow it


class RandomPolicy:
    """Every action with equal chance; for any action space."""

    def __init__(self, space: gym.Space[Any]) -> None:
        self._space = copy.deepcopy(space)

    def reset(self, seed: int) -> None:
        """Begin with a generator that is a function of `seed`."""
        self._space.seed(Chance(seed).below(SEED_LIMIT, RANDOM_STREAM, 0))

    def act(self, observation: Any) -> Any:
        """Return any action."""
        return self._space.sample()


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """One policy to choose by name: what it does, and how it is made for an environment."""

    about: str
    make: Callable[[Env], Policy]


def _make_random(env: Env) -> Policy:
    return RandomPolicy(env.action_space)


# The policies that play any environment.
GENERAL_POLICIES: Final = {"random": PolicyEntry("any action, whatever is observed", _make_random)}


def find_policies(env: Env) -> Mapping[str, PolicyEntry]:
    """Return the policies that play `env`, by name."""
    module = getattr(type(env.unwrapped), "policies", None)
    if not isinstance(module, str):
        return GENERAL_POLICIES
    table: Mapping[str, PolicyEntry] = import_module(module).POLICIES
    return table


def make_policy(name: str, env: Env) -> Policy:
    """Return the policy `name` for `env`; a name that is not known is a ValidationError with those that are."""
    known = find_policies(env)
    if name not in known:
        raise unknown_policy_error(name, env)
    return known[name].make(env)


def unknown_policy_error(name: str, env: Env) -> ValidationError:
    """Return the error of a policy that `env` does not have."""
    kind = type(env.unwrapped).__name__
    return ValidationError(f"unknown policy of {kind}", found=name, expected=f"one of {', '.join(find_policies(env))}")
