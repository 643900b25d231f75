"""An environment at work: JSON in, JSON out, with the lifecycle's guard in front.

Rule 1: a desk lives where its environment lives, on the event loop, in a thread or in another process, and knows none of
    them; one call at a time.
Rule 2: a call that the lifecycle forbids, or whose input does not fit, is `Refused` and runs nothing.
Rule 3: what the environment raises, an exit too, is logged here with an incident's number and `Failed`: a peer learns the
    number. From then on only a reset by a new environment helps. A ValidationError or StateError is a refusal.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from math import isfinite
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from pydantic import ValidationError as ModelError

from proctor.contracts.lifecycle import AFTER_STEP, STEPPABLE, EnvironmentState, Method, guard
from proctor.contracts.tools import Planned
from proctor.envs.targets import AnyEnvironment
from proctor.errors import ComponentError, StateError, ValidationError
from proctor.models.control import Code
from proctor.models.infos import told_info
from proctor.models.value_words import told_value
from proctor.models.wire import PLAIN, Action, Encoding, Observation, observation_json
from proctor.server.answers import (
    MOST_ACTIONS,
    RAISED,
    Outcome,
    ToolAnswer,
    failed,
    refusal_of,
    refusal_of_model,
    refused,
)

LOG: Final = logging.getLogger("proctor.environment")
NOTHING: Final = b"{}"
NO_SCENE: Final = b"null"
TOOL: Final = "a tool"
Result = TypeVar("Result")
MaybeLater: TypeAlias = Result | Awaitable[Result]


class ResetOrder(msgspec.Struct, frozen=True):
    """What a reset asks for, checked in shape."""

    seed: int | list[int] | None
    episode_id: str
    options: dict[str, Any] | None
    mask: list[bool] | None = None


class Desk:
    """One environment, its models and where it stands in the lifecycle."""

    def __init__(
        self, environment: AnyEnvironment, encoding: Encoding, incident: Callable[[], str], *, scenes: bool = False
    ) -> None:
        self._environment = environment
        self._scenes = scenes
        self._encoding = encoding
        self._incident = incident
        self._stands = EnvironmentState.CREATED
        self._latest: Observation | None = None
        self._read = environment.action_type.__pydantic_validator__.validate_json
        self._act = environment.step
        self._toolbox = environment.toolbox()

    def reset(self, order: ResetOrder) -> MaybeLater[Outcome]:
        """Begin an episode."""
        self._guard(Method.RESET)
        seed = order.seed
        if isinstance(seed, list) or order.mask is not None:
            raise refused(Code.VALIDATION_ERROR, "this session has one environment", expected="one seed and no mask")
        return self._asked(partial(self._begun, order, seed), self._has_begun, Method.RESET)

    def step(self, action: bytes) -> MaybeLater[Outcome]:
        """Carry out the action that this JSON text says."""
        if self._stands is not STEPPABLE:
            self._guard(Method.STEP)
        return self._asked(partial(self._act, self._parsed(action)), self._has_stepped, Method.STEP)

    def call(self, tool: str, arguments: bytes) -> MaybeLater[ToolAnswer]:
        """Use a tool: one that reads answers, one that acts carries out its first action and says what is left."""
        plan = self._answered(partial(self._toolbox.plan, tool, arguments), TOOL)
        if inspect.isawaitable(plan):
            return self._planned_later(plan)
        return self._planned(plan)

    def act(self, action: bytes) -> MaybeLater[ToolAnswer]:
        """Carry out an action that a call left to be done."""
        return self._acted([self._parsed(action)])

    def state(self) -> bytes:
        """Return the environment's state as a JSON text."""
        return self._answered(self._state_json, "state")

    def close(self) -> MaybeLater[None]:
        """Close the environment; calling it again does nothing."""
        if self._stands is EnvironmentState.CLOSED:
            return None
        self._stands = EnvironmentState.CLOSED
        return self._environment.close()

    def _parsed(self, action: bytes) -> Any:
        try:
            return self._read(action)
        except ModelError as problem:
            raise refusal_of_model("an action", problem) from None

    async def _planned_later(self, plan: Awaitable[Planned]) -> ToolAnswer:
        answer = self._planned(await self._settled(plan, TOOL))
        return await answer if isinstance(answer, Awaitable) else answer

    def _planned(self, plan: Planned) -> MaybeLater[ToolAnswer]:
        if plan.actions:
            return self._acted(list(plan.actions))
        if plan.value is not None:
            return self._concluded(plan.value, _as_value, TOOL)
        seen = self._latest if plan.seen is None else plan.seen
        if seen is None:
            raise refused(Code.STATE_ERROR, "nothing has been observed yet", expected="a reset before")
        return self._concluded(seen, self._as_seen, TOOL)

    def _acted(self, actions: list[Action]) -> MaybeLater[ToolAnswer]:
        self._guard(Method.STEP)
        if len(actions) > MOST_ACTIONS:
            raise refused(
                Code.VALIDATION_ERROR, "this call asks for too many actions", expected=f"at most {MOST_ACTIONS} actions"
            )
        spoken = self._answered(lambda: [self._spoken(action) for action in actions], TOOL)
        return self._asked(partial(self._act, actions[0]), partial(self._has_acted, spoken), Method.STEP)

    def _spoken(self, action: Action) -> bytes:
        if not isinstance(action, self._environment.action_type):
            raise ComponentError("a tool made no action", found=action, expected=self._environment.action_type.__name__)
        told: bytes = action.__pydantic_serializer__.to_json(action)
        return told

    def _has_acted(self, actions: list[bytes], observation: Observation) -> ToolAnswer:
        outcome = self._has_stepped(observation)
        content = outcome.observation if self._encoding == PLAIN else observation_json(observation)
        return ToolAnswer(self._environment.told(observation), content, actions[0], outcome, actions[1:])

    def _as_seen(self, observation: Observation) -> ToolAnswer:
        return ToolAnswer(self._environment.told(observation), observation_json(observation))

    def _guard(self, method: Method) -> None:
        try:
            guard(self._stands, method)
        except StateError as problem:
            raise refusal_of(problem) from None

    def _begun(self, order: ResetOrder, seed: int | None) -> Any:
        if order.options is not None:
            self._environment.configure(order.options)
        return self._environment.reset(seed=seed, episode_id=order.episode_id)

    def _has_begun(self, observation: Observation) -> Outcome:
        outcome = self._outcome(observation, begins=True)
        self._stands = EnvironmentState.READY
        self._latest = observation
        return outcome

    def _has_stepped(self, observation: Observation) -> Outcome:
        outcome = self._outcome(observation, begins=False)
        self._stands = AFTER_STEP[outcome.terminated, outcome.truncated]
        self._latest = observation
        return outcome

    def _outcome(self, observation: Observation, *, begins: bool) -> Outcome:
        if not isinstance(observation, self._environment.observation_type):
            raise ComponentError(
                "not the declared observation", found=observation, expected=self._environment.observation_type.__name__
            )
        reward = observation.reward
        if reward is not None and not isfinite(reward):
            raise ComponentError("the reward is not finite", found=reward, expected="a finite number or None")
        return Outcome(
            observation_json(observation, self._encoding),
            told_info(observation.metadata) if observation.metadata else NOTHING,
            reward,
            observation.terminated,
            observation.truncated,
            msgspec.json.encode(self._environment.scene(begins=begins)) if self._scenes else NO_SCENE,
        )

    def _state_json(self) -> bytes:
        state = self._environment.state
        if not isinstance(state, self._environment.state_type):
            raise ComponentError("not the declared state", found=state, expected=self._environment.state_type.__name__)
        told: bytes = state.__pydantic_serializer__.to_json(state)
        return told

    def _asked(self, ask: Callable[[], Any], conclude: Callable[[Any], Result], method: str) -> MaybeLater[Result]:
        """Return what the environment answers, now or later; its exceptions become refusals and failures."""
        answer = self._answered(ask, method)
        # The first question spares most answers the second, which takes as long as a step.
        if not isinstance(answer, Observation) and inspect.isawaitable(answer):
            return self._later(answer, conclude, method)
        return self._concluded(answer, conclude, method)

    async def _later(self, answer: Awaitable[Any], conclude: Callable[[Any], Result], method: str) -> Result:
        return self._concluded(await self._settled(answer, method), conclude, method)

    async def _settled(self, answer: Awaitable[Result], method: str) -> Result:
        try:
            return await answer
        except (*RAISED, asyncio.CancelledError) as problem:
            task = asyncio.current_task()
            if isinstance(problem, asyncio.CancelledError) and (task is None or task.cancelling()):
                raise
            # If nobody gave this call up, then what was cancelled is something inside the environment.
            raise self._not_done(problem, method) from None

    def _answered(self, ask: Callable[[], Result], method: str) -> Result:
        try:
            return ask()
        except RAISED as problem:
            raise self._not_done(problem, method) from None

    def _concluded(self, answer: Any, conclude: Callable[[Any], Result], method: str) -> Result:
        """Return the outcome; the environment has moved, so whatever is wrong with its answer is a failure."""
        try:
            return conclude(answer)
        except RAISED as problem:
            raise self._failed(problem, method) from None

    def _not_done(self, problem: BaseException, method: str) -> Exception:
        if isinstance(problem, ValidationError | StateError):
            return refusal_of(problem)
        return self._failed(problem, method)

    def _failed(self, problem: BaseException, method: str) -> Exception:
        number = self._incident()
        LOG.error("environment failed in %s, incident %s", method, number, exc_info=problem)
        place = method if method == TOOL else f"{method}()"
        return failed(Code.EXECUTION_ERROR, f"the environment failed in {place}", incident=number)


def _as_value(value: Any) -> ToolAnswer:
    return ToolAnswer(told_value(value), msgspec.json.encode(value))
