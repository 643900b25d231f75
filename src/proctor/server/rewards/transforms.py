"""The reward transforms, each over arrays of shape (n,), and how a table declares one: `type = "clip"`, `low = -1.0`.

Rule 1: a transform is a value and never changes. What it must remember is a state that the pipeline keeps and hands in,
    so that a step that fails half-way leaves nothing behind.
Rule 2: only sub-environments that took a step (`RewardStep.acted`) are looked at; the others' numbers are thrown away.
Rule 3: numbers that are not finite never leave a transform: a ComponentError names the transform.
Rule 4: a table is checked when a server starts: types, options, ranges, and that functions can be imported and called. A
    ValidationError names the place: `transforms[0].low`. `KINDS` is the whole list of types; a reader takes its options one by
    one, and what it did not take is unknown.
"""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from proctor.contracts.arguments import parse_number
from proctor.envs.settings import import_member
from proctor.errors import ComponentError, ValidationError
from proctor.server.rewards.views import Mask, Rewards, StepOutputs, View

StateT = TypeVar("StateT")


@dataclass(frozen=True, slots=True)
class RewardStep:
    """One step as the transforms see it: `acted` took it, `steps` counts each one's own, this one included.

    Or the beginning of episodes in the sub-environments `acted`, which is step 0.
    """

    terminations: Mask
    truncations: Mask
    acted: Mask
    steps: NDArray[np.int64]
    outputs: StepOutputs

    def view(self, index: int) -> View:
        """Return what a user's function may look at in one sub-environment."""
        ended = bool(self.terminations[index]), bool(self.truncations[index])
        return View(self.outputs, index, *ended, int(self.steps[index]))


@dataclass(frozen=True, slots=True)
class Transform(ABC, Generic[StateT]):
    """Changes rewards; `name` is the key of its part in the events."""

    name: str
    reads_outputs: ClassVar[bool] = False
    """Whether it looks at observations or metadata."""

    def make_state(self, num_envs: int) -> StateT | None:
        """Return the state before the first reset; None where nothing is remembered."""
        return None

    def begin(self, state: StateT, beginning: RewardStep) -> StateT:
        """Return the state with new episodes where they begin."""
        return state

    @abstractmethod
    def apply(self, rewards: Rewards, turn: RewardStep, state: StateT) -> tuple[Rewards, StateT]:
        """Return the changed rewards, a new array, and the next state."""


@dataclass(frozen=True, slots=True)
class Clip(Transform[None]):
    """Keeps rewards within [low, high]; None leaves a side open."""

    low: float | None
    high: float | None

    def apply(self, rewards: Rewards, turn: RewardStep, state: None) -> tuple[Rewards, None]:
        """Return the rewards moved to the nearer bound."""
        if self.low is not None:
            rewards = np.maximum(rewards, self.low)
        if self.high is not None:
            rewards = np.minimum(rewards, self.high)
        return rewards, None


@dataclass(frozen=True, slots=True)
class Scale(Transform[None]):
    """Multiplies rewards."""

    factor: float

    def apply(self, rewards: Rewards, turn: RewardStep, state: None) -> tuple[Rewards, None]:
        """Return the rewards times the factor."""
        return rewards * self.factor, None


@dataclass(frozen=True, slots=True)
class StepCost(Transform[None]):
    """Takes the same cost from every step, the last one included."""

    cost: float

    def apply(self, rewards: Rewards, turn: RewardStep, state: None) -> tuple[Rewards, None]:
        """Return the rewards less the cost."""
        return rewards - self.cost, None


@dataclass(frozen=True, slots=True)
class CustomTransform(Transform[None]):
    """A user's own function of the reward and a `View`; it should be pure and quick, for the server waits for it."""

    function: Callable[[float, View], float]
    reads_outputs = True

    def apply(self, rewards: Rewards, turn: RewardStep, state: None) -> tuple[Rewards, None]:
        """Return what the function gives for each sub-environment that took a step."""
        changed = rewards.copy()
        for index in np.flatnonzero(turn.acted).tolist():
            changed[index] = _call_function(self.name, self.function, float(rewards[index]), turn.view(index))
        return changed, None


@dataclass(frozen=True, slots=True)
class Potential(Transform[Rewards]):
    """Potential-based shaping: adds weight * (gamma * phi(s') - phi(s)); its state is phi(s).

    phi of a terminal state is 0 and is not asked for; a truncated episode keeps its own. phi is a user's function of a
    `View`, or a number that the environment gives under `key` in its metadata.
    """

    function: Callable[[View], float] | None
    key: str | None
    gamma: float
    weight: float
    reads_outputs = True

    def make_state(self, num_envs: int) -> Rewards:
        """Return a potential of 0 everywhere."""
        return np.zeros(num_envs)

    def begin(self, state: Rewards, beginning: RewardStep) -> Rewards:
        """Return the potentials, new where an episode begins."""
        began = state.copy()
        began[beginning.acted] = self._potentials(beginning, beginning.acted)
        return began

    def apply(self, rewards: Rewards, turn: RewardStep, state: Rewards) -> tuple[Rewards, Rewards]:
        """Return the shaped rewards and the potentials that the step reached."""
        lives = turn.acted & ~turn.terminations
        reached = np.zeros(rewards.size)
        if lives.any():
            reached[lives] = self._potentials(turn, lives)
        return rewards + self.weight * (self.gamma * reached - state), reached

    def _potentials(self, seen: RewardStep, which: Mask) -> Rewards:
        if self.function is None:
            values = seen.outputs.numbers(str(self.key), which)
            if not is_finite(values):
                raise make_not_finite_error(self.name, values[~np.isfinite(values)][0])
            return values
        return np.array(
            [_call_function(self.name, self.function, seen.view(i)) for i in np.flatnonzero(which).tolist()]
        )


@dataclass(frozen=True, slots=True)
class RunningMoments:
    """Running moments of the discounted returns, over all sub-environments, and each one's return so far."""

    mean: float
    variance: float
    count: float
    returns: Rewards


@dataclass(frozen=True, slots=True)
class Normalise(Transform[RunningMoments]):
    """Divides rewards by the running standard deviation of the discounted return, as Gymnasium's NormalizeReward does.

    The numbers are those of Gymnasium's wrappers, in double precision, with one difference: a return begins at 0 with
    every episode, where Gymnasium lets the last one leak into the next unless a batch resets in the same step.
    """

    gamma: float
    epsilon: float

    def make_state(self, num_envs: int) -> RunningMoments:
        """Return Gymnasium's prior: variance 1 with the weight of 1e-4 samples."""
        return RunningMoments(0.0, 1.0, 1e-4, np.zeros(num_envs))

    def begin(self, state: RunningMoments, beginning: RewardStep) -> RunningMoments:
        """Return the same moments, with returns of 0 where an episode begins."""
        return replace(state, returns=np.where(beginning.acted, 0.0, state.returns))

    def apply(self, rewards: Rewards, turn: RewardStep, state: RunningMoments) -> tuple[Rewards, RunningMoments]:
        """Return the scaled rewards; the moments include this step."""
        follows = np.where(turn.terminations, 0.0, state.returns * self.gamma) + rewards
        returns = np.where(turn.acted, follows, state.returns)
        spread = _update_moments(state, returns, returns[turn.acted])
        if not (math.isfinite(spread.variance) and math.isfinite(spread.mean)):
            raise make_not_finite_error(self.name, spread.variance)
        return rewards / math.sqrt(spread.variance + self.epsilon), spread


def _update_moments(spread: RunningMoments, returns: Rewards, values: Rewards) -> RunningMoments:
    """Return the moments with more values in them (Chan's parallel formula, in the order Gymnasium computes it)."""
    size = values.size
    if size == 0:
        return RunningMoments(spread.mean, spread.variance, spread.count, returns)
    mean, variance = (values.item(), 0.0) if size == 1 else (float(np.mean(values)), float(np.var(values)))
    delta, count = mean - spread.mean, spread.count + size
    squares = spread.variance * spread.count + variance * size + delta * delta * spread.count * size / count
    return RunningMoments(spread.mean + delta * size / count, squares / count, count, returns)


def _call_function(name: str, function: Callable[..., float], *arguments: object) -> float:
    """Return what a user's function gives, or raise a ComponentError: it raised, or gave no finite number."""
    try:
        value = function(*arguments)
    # A user's function may raise anything, an exit too; the session is told which transform it was.
    except (Exception, SystemExit) as problem:
        raise ComponentError(
            f"the transform {name!r} raised {type(problem).__name__}", expected="a number"
        ) from problem
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise ComponentError(f"the transform {name!r} gave no number", found=value, expected="a finite number")
    try:
        number = float(value)
    except OverflowError:  # an int beyond the floats
        number = math.inf
    if not math.isfinite(number):
        raise make_not_finite_error(name, value)
    return number


def is_finite(numbers: Rewards) -> bool:
    """Return whether all are finite; the way round numpy is ten times as quick for a single number."""
    if numbers.size == 1:
        return math.isfinite(numbers.item())
    return bool(np.isfinite(numbers).all())


def make_not_finite_error(name: str, found: object) -> ComponentError:
    """Return the error for a transform whose result is no finite number."""
    return ComponentError(f"the transform {name!r} gave no finite number", found=found, expected="a finite number")


LONGEST_NAME: Final = 64


@dataclass(slots=True)
class TransformOptions:
    """One table: options are taken by name, and `spec` collects what they came to, defaults included."""

    place: str
    table: Mapping[str, object]
    spec: dict[str, Any]
    known: list[str] = field(default_factory=lambda: ["type"])

    def number(
        self,
        key: str,
        default: float | None = None,
        *,
        above: float = -math.inf,
        least: float = -math.inf,
        most: float = math.inf,
    ) -> float:
        """Return a finite number within its bounds; without a default it is needed."""
        self.known.append(key)
        found = self.table.get(key, default)
        if found is None:
            raise ValidationError(f"{self.place}.{key} is missing", expected="a number")
        number = parse_number(f"{self.place}.{key}", found, above=above, least=least, most=most)
        self.spec[key] = number
        return number

    def bound(self, key: str) -> float | None:
        """Return a finite number, or None where the option is left out."""
        self.known.append(key)
        return self.number(key) if key in self.table else None

    def text(self, key: str) -> str | None:
        """Return a text, or None where the option is left out."""
        self.known.append(key)
        if key not in self.table:
            return None
        found = self.table[key]
        if not isinstance(found, str) or not found:
            raise ValidationError(f"{self.place}.{key} is not a text", found=found, expected="a text")
        self.spec[key] = found
        return found

    def function(self, key: str, arguments: int) -> Callable[..., float] | None:
        """Return the function that `module:function` names, or None where the option is left out."""
        named = self.text(key)
        return None if named is None else _import_function(f"{self.place}.{key}", named, arguments)


def _clip(name: str, options: TransformOptions) -> Transform[Any]:
    low, high = options.bound("low"), options.bound("high")
    if low is None and high is None:
        raise ValidationError(f"{options.place} clips nothing", expected="low, high or both")
    if low is not None and high is not None and low > high:
        raise ValidationError(f"{options.place}.low lies above high", found=low, expected=f"a number <= {high:g}")
    return Clip(name, low, high)


def _potential(name: str, options: TransformOptions) -> Transform[Any]:
    function, key = options.function("function", 1), options.text("key")
    if (function is None) == (key is None):
        raise ValidationError(f"{options.place} needs one potential", expected="either function or key")
    return Potential(
        name, function, key, options.number("gamma", 0.99, least=0.0, most=1.0), options.number("weight", 1.0)
    )


def _own(name: str, options: TransformOptions) -> Transform[Any]:
    function = options.function("function", 2)
    if function is None:
        raise ValidationError(f"{options.place}.function is missing", expected='"module:function"')
    return CustomTransform(name, function)


KINDS: Final[Mapping[str, Callable[[str, TransformOptions], Transform[Any]]]] = {
    "clip": _clip,
    "scale": lambda name, options: Scale(name, options.number("factor")),
    "step_cost": lambda name, options: StepCost(name, options.number("cost", least=0.0)),
    "potential": _potential,
    "normalise": lambda name, options: Normalise(
        name, options.number("gamma", 0.99, least=0.0, most=1.0), options.number("epsilon", 1e-8, above=0.0)
    ),
    "own": _own,
}


def parse_transforms(tables: object) -> list[tuple[Transform[Any], dict[str, Any]]]:
    """Return each transform with its complete spec, which gives the same transform again; or a ValidationError."""
    if not isinstance(tables, Sequence) or isinstance(tables, str | bytes):
        raise ValidationError("transforms is not a list", found=tables, expected="a list of tables")
    read: list[tuple[Transform[Any], dict[str, Any]]] = []
    for index, table in enumerate(tables):
        place = f"transforms[{index}]"
        if not isinstance(table, Mapping):
            raise ValidationError(f"{place} is not a table", found=table, expected='a table with a "type"')
        kind = table.get("type")
        if not isinstance(kind, str) or kind not in KINDS:
            raise ValidationError(f"{place}.type is unknown", found=kind, expected="one of " + ", ".join(KINDS))
        options = TransformOptions(place, table, {"type": kind})
        transform = KINDS[kind](_name(options, kind, {known.name for known, _ in read}), options)
        for key in table:
            if key not in options.known:
                known = ", ".join(dict.fromkeys(options.known))
                raise ValidationError(f"{place}.{key} is unknown", found=key, expected=f"one of {known}")
        read.append((transform, options.spec))
    return read


def _name(options: TransformOptions, kind: str, taken: set[str]) -> str:
    """Return the name that was given, or the type, numbered where it is taken."""
    name = options.text("name")
    if name is None:
        tries = (kind if number == 1 else f"{kind}-{number}" for number in range(1, len(taken) + 2))
        name = next(each for each in tries if each not in taken)
    if name in taken or len(name) > LONGEST_NAME:
        expected = f"at most {LONGEST_NAME} characters that no other transform has"
        raise ValidationError(f"{options.place}.name cannot be used", found=name, expected=expected)
    options.spec["name"] = name
    return name


def _import_function(place: str, named: str, arguments: int) -> Callable[..., float]:
    """Return the function that `named` ("module:function") names and that takes so many arguments."""
    module, _, member = named.partition(":")
    expected = f'"module:function", importable, of {arguments} argument{"" if arguments == 1 else "s"}'
    if not (module and member):
        raise ValidationError(f"{place} names no function", found=named, expected=expected)
    try:
        found = import_member(module, member)
    except ValidationError as problem:
        raise ValidationError(f"{place}: {problem.message}", found=named, expected=expected) from problem
    if inspect.iscoroutinefunction(found) or not _takes(found, arguments):
        raise ValidationError(f"{place} is no such function", found=named, expected=expected)
    function: Callable[..., float] = found
    return function


def _takes(function: Callable[..., float], arguments: int) -> bool:
    """Return whether the function can be called with so many arguments; True where Python cannot tell."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        return False
    return True
