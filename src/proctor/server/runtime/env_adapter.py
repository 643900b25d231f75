"""An environment, or a batch of them: what it says of itself, and at work, JSON in, JSON out, behind the lifecycle's guard.

Rule 1: an adapter lives where its environment lives, on the event loop, in a thread or in another process, and knows none of
    them; one call at a time.
Rule 2: a call that the lifecycle forbids, or whose input does not fit, is `RequestRefused` and runs nothing.
Rule 3: what the environment raises, an exit too, is logged here with an incident's number and `RequestFailed`: a peer learns the
    number. From then on only a reset by a new environment helps. A ValidationError or StateError is a refusal.
Rule 4: one message steps all sub-environments of a batch. It restarts its episodes by itself unless its mode is `disabled`; then a
    step is refused while a sub-environment waits for its reset.
Rule 5: an `EnvDescription` is a value that can cross a pipe: an environment that runs in a sandbox is made there to be asked, and
    its description is all that the server ever learns of it. It is somebody else's word: checked in its form, and only ever shown.
Rule 6: a server's description is the same on the WebSocket and on HTTP.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import isfinite
from typing import Any, Final, TypeAlias, TypeVar

import gymnasium as gym
import msgspec
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray
from pydantic import ValidationError as ModelError

from proctor import __version__
from proctor.contracts.lifecycle import AFTER_STEP, STEPPABLE, EnvironmentState, LifecycleMethod, guard
from proctor.contracts.tools import Tool, ToolPlan
from proctor.envs.gym_adapter import LARGEST_SEED, AdaptedEnvironment
from proctor.envs.targets import AnyEnvironment, Target, Vector, digest_environment, is_async
from proctor.errors import ComponentError, StateError, ValidationError
from proctor.models.control import PROTOCOL, Code, Metadata, Schemas, StepBatch
from proctor.models.descriptions import describe_value
from proctor.models.infos import encode_info, encode_infos
from proctor.models.spaces import codec_of, described, space_from
from proctor.models.wire import PLAIN, Action, Encoding, Observation
from proctor.server.runtime.results import (
    MOST_ACTIONS,
    USER_CODE_ERRORS,
    BatchOutcome,
    EnvOutcome,
    ToolOutcome,
    make_failure,
    make_refusal,
    refusal_from_error,
    refusal_from_model_error,
)

LOG: Final = logging.getLogger("proctor.environment")
EMPTY_OBJECT: Final = b"{}"
NO_SCENE: Final = b"null"
TOOL: Final = "a tool"
MASK: Final = "reset_mask"
"""Gymnasium's option that says which sub-environments to reset."""
Mask = NDArray[np.bool_]
AnswerT = TypeVar("AnswerT")
MaybeLater: TypeAlias = AnswerT | Awaitable[AnswerT]


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
    def metadata(self) -> Metadata:
        """What a server that serves it says."""
        server = f"proctor/{__version__}"
        return Metadata(self.name, self.description, self.version, server, [PROTOCOL], num_envs=self.can_batch)

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


class ResetRequest(msgspec.Struct, frozen=True):
    """What a reset asks for, checked in shape."""

    seed: int | Sequence[int | None] | None
    episode_id: str
    options: dict[str, Any] | None
    mask: list[bool] | None = None


class GuardedAdapter:
    """What adapters share: the lifecycle's guard, and exceptions that become refusals and failures."""

    what = "environment"

    def __init__(self, encoding: Encoding, incident: Callable[[], str]) -> None:
        self._encoding = encoding
        self._incident = incident
        self._lifecycle = EnvironmentState.CREATED

    def _guard(self, method: LifecycleMethod) -> None:
        try:
            guard(self._lifecycle, method)
        except StateError as problem:
            raise refusal_from_error(problem) from None

    def _call_environment(self, ask: Callable[[], AnswerT], method: str) -> AnswerT:
        try:
            return ask()
        except USER_CODE_ERRORS as problem:
            raise self._make_error(problem, method) from None

    def _conclude(self, answer: Any, conclude: Callable[[Any], AnswerT], method: str) -> AnswerT:
        """Return the outcome; the environment has moved, so whatever is wrong with its answer is a failure."""
        try:
            return conclude(answer)
        except USER_CODE_ERRORS as problem:
            raise self._log_failure(problem, method) from None

    def _make_error(self, problem: BaseException, method: str) -> Exception:
        if isinstance(problem, ValidationError | StateError):
            return refusal_from_error(problem)
        return self._log_failure(problem, method)

    def _log_failure(self, problem: BaseException, method: str) -> Exception:
        number = self._incident()
        LOG.error("%s failed in %s, incident %s", self.what, method, number, exc_info=problem)
        place = method if method == TOOL else f"{method}()"
        return make_failure(Code.EXECUTION_ERROR, f"the {self.what} failed in {place}", incident=number)


class EnvAdapter(GuardedAdapter):
    """One environment, its models and where it stands in the lifecycle."""

    def __init__(
        self, environment: AnyEnvironment, encoding: Encoding, incident: Callable[[], str], *, scenes: bool = False
    ) -> None:
        super().__init__(encoding, incident)
        self._environment = environment
        self._scenes = scenes
        self._latest: Observation | None = None
        self._read = environment.action_type.__pydantic_validator__.validate_json
        self._act = environment.step
        self._toolbox = environment.toolbox()

    def reset(self, order: ResetRequest) -> MaybeLater[EnvOutcome]:
        """Begin an episode."""
        self._guard(LifecycleMethod.RESET)
        seed = order.seed
        if isinstance(seed, Sequence) or order.mask is not None:
            raise make_refusal(
                Code.VALIDATION_ERROR, "this session has one environment", expected="one seed and no mask"
            )
        return self._ask(partial(self._start_reset, order, seed), self._finish_reset, LifecycleMethod.RESET)

    def step(self, action: bytes) -> MaybeLater[EnvOutcome]:
        """Carry out the action that this JSON text says."""
        if self._lifecycle is not STEPPABLE:
            self._guard(LifecycleMethod.STEP)
        return self._ask(partial(self._act, self._parse_action(action)), self._finish_step, LifecycleMethod.STEP)

    def call(self, tool: str, arguments: bytes) -> MaybeLater[ToolOutcome]:
        """Use a tool: one that reads answers, one that acts carries out its first action and says what is left."""
        plan = self._call_environment(partial(self._toolbox.plan, tool, arguments), TOOL)
        if inspect.isawaitable(plan):
            return self._finish_plan_later(plan)
        return self._finish_plan(plan)

    def act(self, action: bytes) -> MaybeLater[ToolOutcome]:
        """Carry out an action that a call left to be done."""
        return self._start_actions([self._parse_action(action)])

    def state(self) -> bytes:
        """Return the environment's state as a JSON text."""
        return self._call_environment(self._encode_state, "state")

    def close(self) -> MaybeLater[None]:
        """Close the environment; calling it again does nothing."""
        if self._lifecycle is EnvironmentState.CLOSED:
            return None
        self._lifecycle = EnvironmentState.CLOSED
        return self._environment.close()

    def _parse_action(self, action: bytes) -> Any:
        try:
            return self._read(action)
        except ModelError as problem:
            raise refusal_from_model_error("an action", problem) from None

    async def _finish_plan_later(self, plan: Awaitable[ToolPlan]) -> ToolOutcome:
        answer = self._finish_plan(await self._await_answer(plan, TOOL))
        return await answer if isinstance(answer, Awaitable) else answer

    def _finish_plan(self, plan: ToolPlan) -> MaybeLater[ToolOutcome]:
        if plan.actions:
            return self._start_actions(list(plan.actions))
        if plan.value is not None:
            return self._conclude(plan.value, _encode_value, TOOL)
        seen = self._latest if plan.seen is None else plan.seen
        if seen is None:
            raise make_refusal(Code.STATE_ERROR, "nothing has been observed yet", expected="a reset before")
        return self._conclude(seen, self._encode_latest, TOOL)

    def _start_actions(self, actions: list[Action]) -> MaybeLater[ToolOutcome]:
        self._guard(LifecycleMethod.STEP)
        if len(actions) > MOST_ACTIONS:
            raise make_refusal(
                Code.VALIDATION_ERROR, "this call asks for too many actions", expected=f"at most {MOST_ACTIONS} actions"
            )
        spoken = self._call_environment(lambda: [self._encode_action(action) for action in actions], TOOL)
        return self._ask(partial(self._act, actions[0]), partial(self._finish_action, spoken), LifecycleMethod.STEP)

    def _encode_action(self, action: Action) -> bytes:
        if not isinstance(action, self._environment.action_type):
            raise ComponentError("a tool made no action", found=action, expected=self._environment.action_type.__name__)
        told: bytes = action.__pydantic_serializer__.to_json(action)
        return told

    def _finish_action(self, actions: list[bytes], observation: Observation) -> ToolOutcome:
        outcome = self._finish_step(observation)
        content = outcome.observation if self._encoding == PLAIN else observation.inside()
        words = self._environment.describe_observation(observation)
        return ToolOutcome(words, content, actions[0], outcome, actions[1:])

    def _encode_latest(self, observation: Observation) -> ToolOutcome:
        return ToolOutcome(self._environment.describe_observation(observation), observation.inside())

    def _start_reset(self, order: ResetRequest, seed: int | None) -> Any:
        if order.options is not None:
            self._environment.configure(order.options)
        return self._environment.reset(seed=seed, episode_id=order.episode_id)

    def _finish_reset(self, observation: Observation) -> EnvOutcome:
        outcome = self._make_outcome(observation, begins=True)
        self._lifecycle = EnvironmentState.READY
        self._latest = observation
        return outcome

    def _finish_step(self, observation: Observation) -> EnvOutcome:
        outcome = self._make_outcome(observation, begins=False)
        self._lifecycle = AFTER_STEP[outcome.terminated, outcome.truncated]
        self._latest = observation
        return outcome

    def _make_outcome(self, observation: Observation, *, begins: bool) -> EnvOutcome:
        if not isinstance(observation, self._environment.observation_type):
            raise ComponentError(
                "not the declared observation", found=observation, expected=self._environment.observation_type.__name__
            )
        reward = observation.reward
        if reward is not None and not isfinite(reward):
            raise ComponentError("the reward is not finite", found=reward, expected="a finite number or None")
        return EnvOutcome(
            observation.inside(self._encoding),
            encode_info(observation.metadata) if observation.metadata else EMPTY_OBJECT,
            reward,
            observation.terminated,
            observation.truncated,
            msgspec.json.encode(self._environment.scene(begins=begins)) if self._scenes else NO_SCENE,
        )

    def _encode_state(self) -> bytes:
        state = self._environment.state
        if not isinstance(state, self._environment.state_type):
            raise ComponentError("not the declared state", found=state, expected=self._environment.state_type.__name__)
        told: bytes = state.__pydantic_serializer__.to_json(state)
        return told

    def _ask(self, ask: Callable[[], Any], conclude: Callable[[Any], AnswerT], method: str) -> MaybeLater[AnswerT]:
        """Return what the environment answers, now or later; its exceptions become refusals and failures."""
        try:
            answer = ask()
        except USER_CODE_ERRORS as problem:
            raise self._make_error(problem, method) from None
        # The first question spares most answers the second, which takes as long as a step.
        if not isinstance(answer, Observation) and inspect.isawaitable(answer):
            return self._ask_later(answer, conclude, method)
        try:
            return conclude(answer)
        except USER_CODE_ERRORS as problem:  # the environment has moved
            raise self._log_failure(problem, method) from None

    async def _ask_later(self, answer: Awaitable[Any], conclude: Callable[[Any], AnswerT], method: str) -> AnswerT:
        return self._conclude(await self._await_answer(answer, method), conclude, method)

    async def _await_answer(self, answer: Awaitable[AnswerT], method: str) -> AnswerT:
        try:
            return await answer
        except (*USER_CODE_ERRORS, asyncio.CancelledError) as problem:
            task = asyncio.current_task()
            if isinstance(problem, asyncio.CancelledError) and (task is None or task.cancelling()):
                raise
            # If nobody gave this call up, then what was cancelled is something inside the environment.
            raise self._make_error(problem, method) from None


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
        # Whose observation is the first of an episode.
        begins = {AutoresetMode.SAME_STEP: ended, AutoresetMode.NEXT_STEP: self._ended}.get(self._mode, self._nobody)
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

    def _encode_observations(self, observations: Any) -> bytes:
        return msgspec.json.encode(self._observations.encode(observations, self._encoding))

    def _encode_infos(self, infos: Mapping[str, Any], *, begun: bool) -> bytes:
        """Return the infos that the session asked for, and what a learner cannot do without."""
        encode = partial(self._observation.encode, encoding=self._encoding)
        return encode_infos(infos, self._encoding, encode, everything=self._infos, begun=begun)


def _encode_value(value: Any) -> ToolOutcome:
    return ToolOutcome(describe_value(value), msgspec.json.encode(value))
