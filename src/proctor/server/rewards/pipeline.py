"""What is done to rewards on their way to a client: a pipeline of transforms, declared by whoever serves.

Rule 1: server side only. A client can neither see nor change the pipeline; it receives the transformed reward, the
    record has the raw one and every transform's part.
Rule 2: an empty plan costs nothing: a session asks once (`if plan`) and has no pipeline.
Rule 3: a step is all or nothing. If one transform fails, no transform has moved, and the session's episode is lost.
Rule 4: the same inputs give the same outputs, from a fresh pipeline or from a restored snapshot; chance and time have
    no part in it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import gymnasium as gym
import msgspec
import numpy as np
from numpy.typing import NDArray

from proctor.errors import ComponentError, StateError, ValidationError
from proctor.server.rewards.transforms import (
    RewardStep,
    RunningMoments,
    Transform,
    is_finite,
    make_not_finite_error,
    parse_transforms,
)
from proctor.server.rewards.views import ArrayFormat, Mask, Moment, Rewards, StepOutputs, View

__all__ = ["ArrayFormat", "Moment", "Pipeline", "Plan", "TransformedRewards", "View", "plan_of"]


@dataclass(frozen=True, slots=True)
class Plan:
    """The transforms of a server, checked and imported; false when there are none."""

    transforms: tuple[Transform[Any], ...] = ()
    specs: tuple[dict[str, Any], ...] = ()
    """Complete, with names and defaults: `plan_of(plan.specs)` is the same plan."""

    def __bool__(self) -> bool:
        return bool(self.transforms)

    @property
    def reads_outputs(self) -> bool:
        """Whether some transform looks at observations or metadata: a batch must then report all its infos."""
        return any(transform.reads_outputs for transform in self.transforms)

    def pipeline(
        self, num_envs: int | None = None, *, packed: bool = False, space: gym.Space[Any] | None = None
    ) -> "Pipeline":
        """Return a pipeline for one session: of one environment, or a batch of `num_envs` (see `ArrayFormat`)."""
        return Pipeline(self, ArrayFormat(num_envs, packed, space))


def plan_of(tables: object) -> Plan:
    """Return the plan that a list of tables declares; a ValidationError names the place that is wrong."""
    read = parse_transforms(tables)
    return Plan(tuple(transform for transform, _ in read), tuple(spec for _, spec in read))


@dataclass(frozen=True, slots=True)
class TransformedRewards:
    """Rewards after the last transform, and by name the change that each made, all of shape (n,) and finite."""

    rewards: Rewards
    parts: Mapping[str, Rewards]


class Pipeline:
    """A plan at work in one session: `begin` after every reset, `apply` after every step; false when it does nothing."""

    def __init__(self, plan: Plan, form: ArrayFormat) -> None:
        self._plan = plan
        self._form = form
        self._states: list[Any] = [transform.make_state(form.size) for transform in plan.transforms]
        self._steps: NDArray[np.int64] = np.zeros(form.size, np.int64)
        self._has_begun: Mask = np.zeros(form.size, np.bool_)
        self._everyone: Mask = np.ones(form.size, np.bool_)

    def __bool__(self) -> bool:
        return bool(self._states)

    def begin(self, moment: Moment) -> None:
        """Begin an episode in the sub-environments that `moment.begins` marks (None: all); the others go on."""
        self._check_size(moment)
        which = self._everyone if moment.begins is None else moment.begins
        _, opening = self._form.read_outputs(moment)
        self._states = self._begin_episodes(self._states, which, opening)
        self._steps = np.where(which, 0, self._steps)
        self._has_begun = self._has_begun | which

    def apply(self, moment: Moment) -> TransformedRewards:
        """Return the transformed rewards of a step; a ComponentError if a transform fails."""
        self._check_size(moment)
        if not self._has_begun.all():
            raise StateError("rewards before the first reset", expected="begin() with every sub-environment")
        if not is_finite(moment.rewards):
            raise ComponentError("a reward is not finite", found=moment.rewards, expected="finite rewards")
        acted = self._everyone
        if moment.begins is not None:  # who only began an episode took no step
            acted = ~moment.begins | moment.terminations | moment.truncations
        steps = self._steps + acted
        reached, opening = self._form.read_outputs(moment)
        turn = RewardStep(moment.terminations, moment.truncations, acted, steps, reached)
        with np.errstate(all="ignore"):  # what overflows is found by `_part`
            rewarded, states = self._apply_all(moment.rewards, turn)
        if moment.begins is not None and moment.begins.any():
            states = self._begin_episodes(states, moment.begins, opening)
            steps = np.where(moment.begins, 0, steps)
        self._states, self._steps = states, steps
        return rewarded

    def _apply_all(self, rewards: Rewards, turn: RewardStep) -> tuple[TransformedRewards, list[Any]]:
        parts, states = {}, []
        everyone = turn.acted is self._everyone
        for transform, state in zip(self._plan.transforms, self._states, strict=True):
            changed, state = transform.apply(rewards, turn, state)
            if not everyone:
                changed = np.where(turn.acted, changed, rewards)
            parts[transform.name] = _part(transform.name, rewards, changed)
            states.append(state)
            rewards = changed
        return TransformedRewards(rewards, parts), states

    def _begin_episodes(self, states: Sequence[Any], which: Mask, outputs: StepOutputs) -> list[Any]:
        nobody = ~self._everyone
        beginning = RewardStep(nobody, nobody, which, np.zeros_like(self._steps), outputs)
        both = zip(self._plan.transforms, states, strict=True)
        return [transform.begin(state, beginning) for transform, state in both]

    def _check_size(self, moment: Moment) -> None:
        if moment.rewards.shape != self._steps.shape:
            raise ComponentError("not one reward each", found=moment.rewards.shape, expected=f"{self._steps.shape}")

    def snapshot(self) -> dict[str, Any]:
        """Return everything that the pipeline remembers, as JSON; floats survive the way through JSON exactly."""
        both = zip(self._plan.transforms, self._states, strict=True)
        return {
            "steps": self._steps.tolist(),
            "begun": self._has_begun.tolist(),
            "states": {
                transform.name: msgspec.to_builtins(state, enc_hook=np.ndarray.tolist) for transform, state in both
            },
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Remember what a pipeline of the same plan and size did when it took the snapshot."""
        try:
            steps = np.array(snapshot["steps"], np.int64)
            begun = np.array(snapshot["begun"], np.bool_)
            saved = snapshot["states"]
            both = ((saved[transform.name], transform.make_state(steps.size)) for transform in self._plan.transforms)
            states = [_load_state(state, fresh) for state, fresh in both]
        except (KeyError, TypeError, ValueError, OverflowError) as problem:
            raise ValidationError("not a snapshot of this pipeline", expected="one that it took") from problem
        if steps.shape != self._steps.shape or begun.shape != steps.shape:
            raise ValidationError("a snapshot of another size", found=steps.shape, expected=f"{self._steps.shape}")
        self._states, self._steps, self._has_begun = states, steps, begun


def _part(name: str, before: Rewards, after: Rewards) -> Rewards:
    """Return the change that a transform made; a ComponentError if it is not finite, as then `after` may not be."""
    change: Rewards = after - before
    if not is_finite(change):
        raise make_not_finite_error(name, after[~np.isfinite(change)][0])
    return change


def _load_state(saved: Any, fresh: Any) -> Any:
    """Return the state that was saved, of the form of a fresh one; a KeyError, TypeError or ValueError if it is none."""
    if fresh is None or isinstance(fresh, float):
        return None if fresh is None else float(saved)
    if isinstance(fresh, RunningMoments):
        return RunningMoments(*(_load_state(saved[each.name], getattr(fresh, each.name)) for each in fields(fresh)))
    row = np.array(saved, np.float64)
    if row.shape != fresh.shape:
        raise ValueError
    return row
