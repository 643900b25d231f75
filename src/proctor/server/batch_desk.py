"""A batch at work: one message steps all its sub-environments.

The rules are those of `desk`. A batch restarts its episodes by itself unless its mode is `disabled`; then a step is
refused while a sub-environment waits for its reset.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from proctor.contracts.lifecycle import EnvironmentState, Method, guard
from proctor.envs.adapted import LARGEST_SEED
from proctor.envs.targets import Vector
from proctor.errors import ComponentError, StateError, ValidationError
from proctor.models.control import Code, StepBatch
from proctor.models.infos import told_infos
from proctor.models.spaces import codec_of
from proctor.models.wire import Encoding
from proctor.server.answers import RAISED, BatchOutcome, ToolAnswer, failed, refusal_of, refused
from proctor.server.desk import ResetOrder

LOG: Final = logging.getLogger("proctor.environment")
MASK: Final = "reset_mask"
"""Gymnasium's option that says which sub-environments to reset."""
Result = TypeVar("Result")
Mask = NDArray[np.bool_]


class BatchDesk:
    """A vector environment, its spaces' forms and where it stands."""

    def __init__(self, vector: Vector, encoding: Encoding, incident: Callable[[], str], *, infos: bool) -> None:
        self._vector = vector
        self._encoding = encoding
        self._incident = incident
        self._infos = infos
        self._stands = EnvironmentState.CREATED
        self._mode = AutoresetMode(vector.metadata["autoreset_mode"])
        self._nobody: Mask = np.zeros(vector.num_envs, np.bool_)
        self._ended = self._nobody
        self._actions = codec_of(vector.action_space)
        self._observations = codec_of(vector.observation_space)
        self._observation = codec_of(vector.single_observation_space)
        self._read = msgspec.json.Decoder(StepBatch).decode

    def reset(self, order: ResetOrder) -> BatchOutcome:
        """Begin an episode everywhere, or where the mask says."""
        self._guard(Method.RESET)
        mask = self._checked_mask(order)
        seed = self._checked_seed(order.seed)
        options = dict(order.options or {})
        if MASK in options:
            raise refused(Code.VALIDATION_ERROR, "a mask is no option", expected="the mask in its own field")
        if mask is not None:
            options[MASK] = mask
        observations, infos = self._asked(lambda: self._vector.reset(seed=seed, options=options or None), Method.RESET)
        return self._concluded(lambda: self._begun(observations, infos, mask), Method.RESET)

    def step(self, data: bytes) -> BatchOutcome:
        """Carry out one action for each sub-environment."""
        self._guard(Method.STEP)
        if self._mode is AutoresetMode.DISABLED and self._ended.any():
            raise refused(
                Code.STATE_ERROR,
                "some episodes have ended",
                expected="a reset with a mask of those before the next step",
                clause="NO-STEP-AFTER-END",
            )
        actions = self._parsed(data)
        answer = self._asked(lambda: self._vector.step(actions), Method.STEP)
        return self._concluded(lambda: self._stepped(answer), Method.STEP)

    def call(self, tool: str, arguments: bytes) -> ToolAnswer:
        """Refuse: a batch has no agent."""
        raise refused(Code.NO_AGENT_PLANE, "a batch has no tools", expected="a session of one environment")

    def act(self, action: bytes) -> ToolAnswer:
        """Refuse: a batch has no agent."""
        return self.call("", action)

    def state(self) -> bytes:
        """Return which sub-environments have ended; a batch has no other state of its own."""
        return msgspec.json.encode({"num_envs": self._vector.num_envs, "ended": np.flatnonzero(self._ended).tolist()})

    def close(self) -> None:
        """Close all environments; calling it again does nothing."""
        if self._stands is not EnvironmentState.CLOSED:
            self._stands = EnvironmentState.CLOSED
            self._vector.close()

    def _guard(self, method: Method) -> None:
        try:
            guard(self._stands, method)
        except StateError as problem:
            raise refusal_of(problem) from None

    def _checked_seed(self, seed: int | list[int] | None) -> Any:
        """Return the seed or the seeds, or refuse what the single environments would refuse."""
        count = self._vector.num_envs
        if isinstance(seed, list) and len(seed) != count:
            raise refused(Code.VALIDATION_ERROR, "not one seed each", expected=f"{count} seeds")
        last = [] if seed is None else seed if isinstance(seed, list) else [seed, seed + count - 1]
        if not all(0 <= each <= LARGEST_SEED for each in last):
            raise refused(
                Code.VALIDATION_ERROR,
                "not a seed",
                expected=f"an integer from 0 to {LARGEST_SEED}, for the last sub-environment too",
                clause="ENV-RESET-P2",
            )
        return seed

    def _checked_mask(self, order: ResetOrder) -> Mask | None:
        if order.mask is None:
            return None
        if self._mode is not AutoresetMode.DISABLED:
            raise refused(Code.VALIDATION_ERROR, "this batch restarts by itself", expected="no mask")
        mask = np.array(order.mask, np.bool_)
        if mask.shape != self._nobody.shape or not mask.any():
            raise refused(
                Code.VALIDATION_ERROR,
                "not a reset mask",
                expected=f"{self._vector.num_envs} booleans with at least one true",
            )
        if self._stands is EnvironmentState.CREATED and not mask.all():
            raise refused(Code.STATE_ERROR, "the first reset must reset all", expected="no mask")
        return mask

    def _parsed(self, data: bytes) -> Any:
        try:
            return self._actions.decode(msgspec.json.decode(self._read(data).actions))
        except msgspec.DecodeError as problem:
            raise refused(Code.VALIDATION_ERROR, f"these are no actions: {problem}") from None
        except ValidationError as problem:
            raise refusal_of(problem) from None

    def _begun(self, observations: Any, infos: Mapping[str, Any], mask: Mask | None) -> BatchOutcome:
        everyone = np.ones_like(self._nobody)
        outcome = BatchOutcome(
            self._observed(observations), self._told(infos, begun=True), begins=everyone if mask is None else mask
        )
        self._ended = self._nobody if mask is None else self._ended & ~mask
        self._stands = EnvironmentState.READY
        return outcome

    def _stepped(self, answer: Any) -> BatchOutcome:
        observations, rewards, terminations, truncations, infos = answer
        rewards = np.asarray(rewards, np.float64)
        if not np.isfinite(rewards).all():
            raise ComponentError("a reward is not finite", found=rewards, expected="finite rewards")
        ended = np.logical_or(terminations, truncations)
        begins = self._beginners(ended)
        outcome = BatchOutcome(
            self._observed(observations),
            self._told(infos, begun=bool(begins.any())),
            rewards,
            np.asarray(terminations, np.bool_),
            np.asarray(truncations, np.bool_),
            begins,
        )
        self._ended = self._nobody if self._mode is AutoresetMode.SAME_STEP else ended
        return outcome

    def _beginners(self, ended: Mask) -> Mask:
        """Return whose observation is the first of an episode, after a step that ended those of `ended`."""
        by_mode = {AutoresetMode.SAME_STEP: ended, AutoresetMode.NEXT_STEP: self._ended}
        return by_mode.get(self._mode, self._nobody)

    def _observed(self, observations: Any) -> bytes:
        return msgspec.json.encode(self._observations.encode(observations, self._encoding))

    def _told(self, infos: Mapping[str, Any], *, begun: bool) -> bytes:
        """Return the infos that the session asked for, and what a learner cannot do without."""
        return told_infos(infos, self._encoding, self._said, everything=self._infos, begun=begun)

    def _said(self, observation: Any) -> Any:
        return self._observation.encode(observation, self._encoding)

    def _asked(self, ask: Callable[[], Result], method: str) -> Result:
        try:
            return ask()
        except (ValidationError, StateError) as problem:
            raise refusal_of(problem) from None
        except RAISED as problem:
            raise self._failed(problem, method) from None

    def _concluded(self, conclude: Callable[[], Result], method: str) -> Result:
        """Return the outcome; the environments have moved, so whatever is wrong with their answer is a failure."""
        try:
            return conclude()
        except RAISED as problem:
            raise self._failed(problem, method) from None

    def _failed(self, problem: BaseException, method: str) -> Exception:
        number = self._incident()
        LOG.error("batch failed in %s, incident %s", method, number, exc_info=problem)
        return failed(Code.EXECUTION_ERROR, f"the batch failed in {method}()", incident=number)
