"""An environment at work: JSON in, JSON out, with the lifecycle's guard in front.

Rule 1: an adapter lives where its environment lives, on the event loop, in a thread or in another process, and knows none of
    them; one call at a time.
Rule 2: a call that the lifecycle forbids, or whose input does not fit, is `RequestRefused` and runs nothing.
Rule 3: what the environment raises, an exit too, is logged here with an incident's number and `RequestFailed`: a peer learns the
    number. From then on only a reset by a new environment helps. A ValidationError or StateError is a refusal.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from math import isfinite
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from pydantic import ValidationError as ModelError

from proctor.contracts.lifecycle import AFTER_STEP, STEPPABLE, EnvironmentState, LifecycleMethod, guard
from proctor.contracts.tools import ToolPlan
from proctor.envs.targets import AnyEnvironment
from proctor.errors import ComponentError, StateError, ValidationError
from proctor.models.control import Code
from proctor.models.descriptions import describe_value
from proctor.models.infos import encode_info
from proctor.models.wire import PLAIN, Action, Encoding, Observation, observation_json
from proctor.server.runtime.results import (
    MOST_ACTIONS,
    USER_CODE_ERRORS,
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
AnswerT = TypeVar("AnswerT")
MaybeLater: TypeAlias = AnswerT | Awaitable[AnswerT]


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
        content = outcome.observation if self._encoding == PLAIN else observation_json(observation)
        return ToolOutcome(
            self._environment.describe_observation(observation), content, actions[0], outcome, actions[1:]
        )

    def _encode_latest(self, observation: Observation) -> ToolOutcome:
        return ToolOutcome(self._environment.describe_observation(observation), observation_json(observation))

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
            observation_json(observation, self._encoding),
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


def _encode_value(value: Any) -> ToolOutcome:
    return ToolOutcome(describe_value(value), msgspec.json.encode(value))
