"""One environment that is driven again: what was asked of it goes in, what a server would have recorded comes out.

Rule 1: what comes out is said with the functions that the server says it with (`observation_json`, `encode_info`), so that
    it can be compared byte for byte.
Rule 2: what the environment raises is `EnvironmentFailure`, for a replay that fails where the record goes on is a finding.
Rule 3: coroutines run on an event loop in a thread of its own, so that a replay works where a loop runs already (a notebook, a
    server), and all of an environment's coroutines meet the same loop. Nothing is started for an environment without.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw, Struct
from pydantic import ValidationError as ModelError

from proctor.envs.targets import AnyEnvironment
from proctor.errors import ComponentError
from proctor.models.events import EpisodeReset, EpisodeStepped
from proctor.models.infos import encode_info
from proctor.models.wire import Encoding, Observation, observation_json


class CoroutineRunner:
    """Runs awaitables one by one."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._runner: asyncio.Runner | None = None

    def result(self, answer: Awaitable[Any]) -> Any:
        """Return what the awaitable returns, or raise what it raises."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "proctor-replay")
            self._runner = asyncio.Runner()
        return self._thread.submit(self._run, answer).result()

    def _run(self, answer: Awaitable[Any]) -> Any:
        async def wait_for_answer() -> Any:
            return await answer

        runner = self._runner
        return None if runner is None else runner.run(wait_for_answer())

    def close(self) -> None:
        """End the loop and the thread."""
        thread, self._thread = self._thread, None
        if thread is not None and self._runner is not None:
            thread.submit(self._runner.close).result()
            thread.shutdown()


ENVIRONMENT_ERRORS: Final = (Exception, SystemExit)
"""What somebody else's code may raise."""
NULL: Final = b"null"
EMPTY_OBJECT: Final = b"{}"
Result = TypeVar("Result")

_encode: Final = msgspec.json.Encoder().encode
_options: Final = msgspec.json.Decoder(dict[str, Any] | None).decode


class EnvOutput(Struct, frozen=True, gc=False):
    """What an environment answered: the fields of an event that the environment decides, as JSON texts."""

    observation: bytes
    metadata: bytes
    reward: float | None
    terminated: bool
    truncated: bool
    scene: bytes = NULL


class EnvironmentFailure(Exception):
    """The environment did not answer; the text says what it raised."""


class SingleDriver:
    """One environment, and how many resets it has had."""

    def __init__(self, environment: AnyEnvironment, encoding: Encoding) -> None:
        self.environment: Final = environment
        self.resets = 0
        self._encoding = encoding
        self._coroutines = CoroutineRunner()
        self._read = environment.action_type.__pydantic_validator__.validate_json
        self._type = environment.observation_type
        self._act = environment.step

    def begin(self, event: EpisodeReset, seed: int | None) -> EnvOutput:
        """Reset the environment until it has had as many resets as it had then; return what the last one showed."""
        options = _options(event.options)
        while self.resets < event.nth - 1:
            self._reset(options, seed, event.episode_id)
        return self._encode_output(self._reset(options, seed, event.episode_id), begins=True, scene=_has_scene(event))

    def restart(self, seed: int, options: dict[str, Any] | None) -> EnvOutput:
        """Begin the episode of this seed, whatever there was before."""
        return self._encode_output(self._reset(options, seed, None), begins=True, scene=False)

    def step(self, event: EpisodeStepped) -> EnvOutput:
        """Carry out a recorded action."""
        return self.act(event.action, scene=_has_scene(event))

    def act(self, action: Raw | bytes, *, scene: bool = False) -> EnvOutput:
        """Carry out the action that a JSON text says."""
        try:
            said = self._read(bytes(action))
        except ModelError as problem:
            raise EnvironmentFailure(_describe_action_error(problem)) from problem
        try:
            answer = self._act(said)
        except ENVIRONMENT_ERRORS as problem:
            raise failure_from(problem) from problem
        # The class is asked for first, because a model's `isinstance` takes as long as a step.
        seen: Any = answer if type(answer) is self._type else self._await_observation(answer)
        return self._encode_output(seen, begins=False, scene=scene)

    def state(self) -> Any:
        """Return the environment's state, as JSON can say it."""
        return msgspec.json.decode(self.environment.state.__pydantic_serializer__.to_json(self.environment.state))

    def scene(self, *, begins: bool) -> Any:
        """Return what a picture needs."""
        return msgspec.json.decode(_encode(self.environment.scene(begins=begins)))

    def close(self) -> None:
        """Let go of the environment; what it raises about that is nobody's finding."""
        try:
            closing = self.environment.close()
            if inspect.isawaitable(closing):
                self._coroutines.result(closing)
        except ENVIRONMENT_ERRORS:
            return
        finally:
            self._coroutines.close()

    def _reset(self, options: dict[str, Any] | None, seed: int | None, episode_id: str | None) -> Observation:
        self.resets += 1
        return self._await_observation(call_environment(lambda: self._reset_once(options, seed, episode_id)))

    def _reset_once(self, options: dict[str, Any] | None, seed: int | None, episode_id: str | None) -> Any:
        if options is not None:
            self.environment.configure(options)
        return self.environment.reset(seed=seed, episode_id=episode_id)

    def _await_observation(self, answer: Any) -> Observation:
        if not isinstance(answer, Observation) and inspect.isawaitable(answer):
            answer = call_environment(lambda: self._coroutines.result(answer))
        if not isinstance(answer, self._type):
            raise failure_from(
                ComponentError("not the declared observation", found=answer, expected=self._type.__name__)
            )
        observation: Observation = answer
        return observation

    def _encode_output(self, observation: Observation, *, begins: bool, scene: bool) -> EnvOutput:
        metadata = observation.metadata
        try:
            return EnvOutput(
                observation_json(observation, self._encoding),
                encode_info(metadata) if metadata else EMPTY_OBJECT,
                observation.reward,
                observation.terminated,
                observation.truncated,
                _encode(self.environment.scene(begins=begins)) if scene else NULL,
            )
        except ENVIRONMENT_ERRORS as problem:
            raise failure_from(problem) from problem


def call_environment(ask: Callable[[], Result]) -> Result:
    """Return what the environment answers, or raise `EnvironmentFailure`."""
    try:
        return ask()
    except ENVIRONMENT_ERRORS as problem:
        raise failure_from(problem) from problem


def failure_from(problem: BaseException) -> EnvironmentFailure:
    """Return what a replay says of an exception."""
    return EnvironmentFailure(f"{type(problem).__name__}: {problem}")


def _describe_action_error(problem: ModelError) -> str:
    """Return what a model says of an action, without what only its authors understand."""
    said = dict.fromkeys(each["msg"] for each in problem.errors(include_url=False, include_context=False))
    return f"it is none of this environment ({', or: '.join(said)})"


def _has_scene(event: EpisodeReset | EpisodeStepped) -> bool:
    return bytes(event.scene) != NULL
