"""A batch at work: one message steps all its sub-environments.

The rules are those of `env_adapter`. A batch restarts its episodes by itself unless its mode is `disabled`; then a step is
refused while a sub-environment waits for its reset.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from proctor.contracts.lifecycle import EnvironmentState, LifecycleMethod
from proctor.envs.gym_adapter import LARGEST_SEED
from proctor.envs.targets import Vector
from proctor.errors import ComponentError, ValidationError
from proctor.models.control import Code, StepBatch
from proctor.models.infos import encode_infos
from proctor.models.spaces import codec_of
from proctor.models.wire import Encoding
from proctor.server.runtime.env_adapter import GuardedAdapter, ResetRequest
from proctor.server.runtime.results import BatchOutcome, ToolOutcome, make_refusal, refusal_from_error

MASK: Final = "reset_mask"
"""Gymnasium's option that says which sub-environments to reset."""
Mask = NDArray[np.bool_]


class BatchAdapter(GuardedAdapter):
    """A vector environment, its spaces' forms and where it stands."""

    what = "batch"

    def __init__(self, vector: Vector, encoding: Encoding, incident: Callable[[], str], *, infos: bool) -> None:
        super().__init__(encoding, incident)
        self._vector = vector
        self._infos = infos
        self._mode = AutoresetMode(vector.metadata["autoreset_mode"])
        self._nobody: Mask = np.zeros(vector.num_envs, np.bool_)
        self._ended = self._nobody
        self._actions = codec_of(vector.action_space)
        self._observations = codec_of(vector.observation_space)
        self._observation = codec_of(vector.single_observation_space)
        self._read = msgspec.json.Decoder(StepBatch).decode

    def reset(self, order: ResetRequest) -> BatchOutcome:
        """Begin an episode everywhere, or where the mask says."""
        self._guard(LifecycleMethod.RESET)
        mask = self._check_mask(order)
        seed = self._check_seed(order.seed)
        options = dict(order.options or {})
        if MASK in options:
            raise make_refusal(Code.VALIDATION_ERROR, "a mask is no option", expected="the mask in its own field")
        if mask is not None:
            options[MASK] = mask
        ask = partial(self._vector.reset, seed=seed, options=options or None)
        answer = self._call_environment(ask, LifecycleMethod.RESET)
        return self._conclude(answer, lambda told: self._finish_reset(told[0], told[1], mask), LifecycleMethod.RESET)

    def step(self, data: bytes) -> BatchOutcome:
        """Carry out one action for each sub-environment."""
        self._guard(LifecycleMethod.STEP)
        if self._mode is AutoresetMode.DISABLED and self._ended.any():
            raise make_refusal(
                Code.STATE_ERROR,
                "some episodes have ended",
                expected="a reset with a mask of those before the next step",
                clause="NO-STEP-AFTER-END",
            )
        actions = self._parse_actions(data)
        answer = self._call_environment(partial(self._vector.step, actions), LifecycleMethod.STEP)
        return self._conclude(answer, self._finish_step, LifecycleMethod.STEP)

    def call(self, tool: str, arguments: bytes) -> ToolOutcome:
        """Refuse: a batch has no agent."""
        raise make_refusal(Code.NO_AGENT_PLANE, "a batch has no tools", expected="a session of one environment")

    def act(self, action: bytes) -> ToolOutcome:
        """Refuse: a batch has no agent."""
        return self.call("", action)

    def state(self) -> bytes:
        """Return which sub-environments have ended; a batch has no other state of its own."""
        return msgspec.json.encode({"num_envs": self._vector.num_envs, "ended": np.flatnonzero(self._ended).tolist()})

    def close(self) -> None:
        """Close all environments; calling it again does nothing."""
        if self._lifecycle is not EnvironmentState.CLOSED:
            self._lifecycle = EnvironmentState.CLOSED
            self._vector.close()

    def _check_seed(self, seed: int | Sequence[int | None] | None) -> Any:
        """Return the seed or the seeds, or refuse what the single environments would refuse."""
        count = self._vector.num_envs
        if isinstance(seed, Sequence) and len(seed) != count:
            raise make_refusal(Code.VALIDATION_ERROR, "not one seed each", expected=f"{count} seeds")
        last = [] if seed is None else seed if isinstance(seed, Sequence) else [seed, seed + count - 1]
        if not all(each is None or 0 <= each <= LARGEST_SEED for each in last):
            raise make_refusal(
                Code.VALIDATION_ERROR,
                "not a seed",
                expected=f"an integer from 0 to {LARGEST_SEED}, for the last sub-environment too",
                clause="ENV-RESET-P2",
            )
        return seed

    def _check_mask(self, order: ResetRequest) -> Mask | None:
        if order.mask is None:
            return None
        if self._mode is not AutoresetMode.DISABLED:
            raise make_refusal(Code.VALIDATION_ERROR, "this batch restarts by itself", expected="no mask")
        mask = np.array(order.mask, np.bool_)
        if mask.shape != self._nobody.shape or not mask.any():
            raise make_refusal(
                Code.VALIDATION_ERROR,
                "not a reset mask",
                expected=f"{self._vector.num_envs} booleans with at least one true",
            )
        if self._lifecycle is EnvironmentState.CREATED and not mask.all():
            raise make_refusal(Code.STATE_ERROR, "the first reset must reset all", expected="no mask")
        return mask

    def _parse_actions(self, data: bytes) -> Any:
        try:
            return self._actions.decode(msgspec.json.decode(self._read(data).actions))
        except msgspec.DecodeError as problem:
            raise make_refusal(Code.VALIDATION_ERROR, f"these are no actions: {problem}") from None
        except ValidationError as problem:
            raise refusal_from_error(problem) from None

    def _finish_reset(self, observations: Any, infos: Mapping[str, Any], mask: Mask | None) -> BatchOutcome:
        everyone = np.ones_like(self._nobody)
        outcome = BatchOutcome(
            self._encode_observations(observations),
            self._encode_infos(infos, begun=True),
            begins=everyone if mask is None else mask,
        )
        self._ended = self._nobody if mask is None else self._ended & ~mask
        self._lifecycle = EnvironmentState.READY
        return outcome

    def _finish_step(self, answer: Any) -> BatchOutcome:
        observations, rewards, terminations, truncations, infos = answer
        rewards = np.asarray(rewards, np.float64)
        if not np.isfinite(rewards).all():
            raise ComponentError("a reward is not finite", found=rewards, expected="finite rewards")
        ended = np.logical_or(terminations, truncations)
        begins = self._find_beginning(ended)
        outcome = BatchOutcome(
            self._encode_observations(observations),
            self._encode_infos(infos, begun=bool(begins.any())),
            rewards,
            np.asarray(terminations, np.bool_),
            np.asarray(truncations, np.bool_),
            begins,
        )
        self._ended = self._nobody if self._mode is AutoresetMode.SAME_STEP else ended
        return outcome

    def _find_beginning(self, ended: Mask) -> Mask:
        """Return whose observation is the first of an episode, after a step that ended those of `ended`."""
        by_mode = {AutoresetMode.SAME_STEP: ended, AutoresetMode.NEXT_STEP: self._ended}
        return by_mode.get(self._mode, self._nobody)

    def _encode_observations(self, observations: Any) -> bytes:
        return msgspec.json.encode(self._observations.encode(observations, self._encoding))

    def _encode_infos(self, infos: Mapping[str, Any], *, begun: bool) -> bytes:
        """Return the infos that the session asked for, and what a learner cannot do without."""
        return encode_infos(infos, self._encoding, self._encode_final_observation, everything=self._infos, begun=begun)

    def _encode_final_observation(self, observation: Any) -> Any:
        return self._observation.encode(observation, self._encoding)
