"""Environments that are driven again: what a record asks of one goes in, what a server would have recorded comes out.

Rule 1: what comes out is said with the functions that the server says it with (`Observation.inside`, `encode_info`), so that
    it can be compared byte for byte.
Rule 2: what the environment raises is `EnvironmentFailure`, for a replay that fails where the record goes on is a finding.
Rule 3: coroutines run on an event loop in a thread of its own, so that a replay works where a loop runs already (a notebook, a
    server), and all of an environment's coroutines meet the same loop. Nothing is started for an environment without.
Rule 4: an environment counts its resets, so the nth episode of a session is the nth reset of its environment. What the
    episode before it left can therefore go on; a new one is reset so many times first, with the same seed.
Rule 5: what cannot be made here (its module is missing, a setting was hidden in the record) is a ValidationError. Code or versions
    that have changed are notes beside a result, never errors by themselves.
"""

import asyncio
import inspect
import platform
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Self, TypeVar

import gymnasium as gym
import msgspec
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from msgspec import Raw
from numpy.typing import NDArray
from pydantic import ValidationError as ModelError

from proctor.access.redaction import HIDDEN
from proctor.envs.targets import AnyEnvironment, Target, Vector, digest_class, digest_environment
from proctor.errors import ComponentError, ValidationError
from proctor.ledger.rows import check_value_count
from proctor.models.arrays import array_to_lists, pack_array
from proctor.models.control import MOST_ENVS, StepBatch
from proctor.models.events import SessionOpened
from proctor.models.infos import encode_info, encode_infos
from proctor.models.spaces import codec_of
from proctor.models.wire import Encoding, Observation
from proctor.replay.comparison import NULL, BatchOutput, EnvironmentRequest, EnvOutput, RecordedReset, has_scene

ENVIRONMENT_ERRORS: Final = (Exception, SystemExit)
"""What somebody else's code may raise."""
EMPTY_OBJECT: Final = b"{}"
MASK: Final = "reset_mask"
"""Gymnasium's option that says which sub-environments to reset."""
Mask = NDArray[np.bool_]
Result = TypeVar("Result")

_encode: Final = msgspec.json.Encoder().encode
_actions: Final = msgspec.json.Decoder(StepBatch).decode


class EnvironmentFailure(Exception):
    """The environment did not answer; the text says what it raised."""


def call_environment(ask: Callable[[], Result]) -> Result:
    """Return what the environment answers, or raise `EnvironmentFailure`."""
    try:
        return ask()
    except ENVIRONMENT_ERRORS as problem:
        raise failure_from(problem) from problem


def failure_from(problem: BaseException) -> EnvironmentFailure:
    """Return what a replay says of an exception."""
    return EnvironmentFailure(f"{type(problem).__name__}: {problem}")


class CoroutineRunner:
    """Runs awaitables one by one, on a loop in a thread of its own."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "proctor-replay")
        self._runner = asyncio.Runner()

    def result(self, answer: Awaitable[Any]) -> Any:
        """Return what the awaitable returns, or raise what it raises."""

        async def wait_for_answer() -> Any:
            return await answer

        return self._thread.submit(lambda: self._runner.run(wait_for_answer())).result()

    def close(self) -> None:
        """End the loop and the thread."""
        self._thread.submit(self._runner.close).result()
        self._thread.shutdown()


class SingleDriver:
    """One environment, and how many resets it has had."""

    def __init__(self, environment: AnyEnvironment, encoding: Encoding) -> None:
        self.environment: Final = environment
        self.resets = 0
        self._encoding = encoding
        self._coroutines: CoroutineRunner | None = None
        self._read = environment.action_type.__pydantic_validator__.validate_json
        self._type = environment.observation_type
        self._act = environment.step

    def carry_out(self, request: EnvironmentRequest) -> EnvOutput:
        """Return what the environment answers to a row's request."""
        scene = has_scene(request.event)
        if request.reset is None:
            return self.act(request.action, scene=scene)
        for _ in range(request.reset.count_missing(self.resets)):
            self._reset(request.reset)
        return self.begin(request.reset, scene=scene)

    def begin(self, reset: RecordedReset, *, scene: bool = False) -> EnvOutput:
        """Begin an episode, whatever there was before."""
        return self._encode_output(self._reset(reset), begins=True, scene=scene)

    def act(self, action: Raw | bytes, *, scene: bool = False) -> EnvOutput:
        """Carry out the action that a JSON text says."""
        check_value_count(action)
        try:
            said = self._read(bytes(action))
        except ModelError as problem:
            # What only its authors understand is left out.
            errors = problem.errors(include_url=False, include_context=False, include_input=False)
            told = ", or: ".join(dict.fromkeys(each["msg"] for each in errors))
            raise EnvironmentFailure(f"it is none of this environment ({told})") from problem
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

    def code(self) -> str:
        """Return the digest of the environment's code; empty: there is none."""
        return digest_environment(self.environment)

    def close(self) -> None:
        """Let go of the environment; what it raises about that is nobody's finding."""
        try:
            closing = self.environment.close()
            if inspect.isawaitable(closing):
                self._await(closing)
        except ENVIRONMENT_ERRORS:
            return
        finally:
            if self._coroutines is not None:
                self._coroutines.close()
                self._coroutines = None

    def _reset(self, reset: RecordedReset) -> Observation:
        self.resets += 1
        return self._await_observation(call_environment(lambda: self._reset_once(reset)))

    def _reset_once(self, reset: RecordedReset) -> Any:
        if reset.options is not None:
            self.environment.configure(reset.options)
        return self.environment.reset(seed=reset.seed, episode_id=reset.episode_id)  # type: ignore[arg-type]  # one seed

    def _await(self, answer: Awaitable[Any]) -> Any:
        if self._coroutines is None:
            self._coroutines = CoroutineRunner()
        return self._coroutines.result(answer)

    def _await_observation(self, answer: Any) -> Observation:
        if not isinstance(answer, Observation) and inspect.isawaitable(answer):
            answer = call_environment(lambda: self._await(answer))
        if not isinstance(answer, self._type):
            expected = self._type.__name__
            raise failure_from(ComponentError("not the declared observation", found=answer, expected=expected))
        observation: Observation = answer
        return observation

    def _encode_output(self, observation: Observation, *, begins: bool, scene: bool) -> EnvOutput:
        metadata = observation.metadata
        try:
            return EnvOutput(
                observation.inside(self._encoding),
                encode_info(metadata) if metadata else EMPTY_OBJECT,
                observation.reward,
                observation.terminated,
                observation.truncated,
                _encode(self.environment.scene(begins=begins)) if scene else NULL,
            )
        except ENVIRONMENT_ERRORS as problem:
            raise failure_from(problem) from problem


class BatchDriver:
    """A vector environment, who of it has ended, and how many resets it has had."""

    def __init__(self, vector: Vector, encoding: Encoding, *, infos: bool) -> None:
        self.vector: Final = vector
        self.resets = 0
        self._encoding = encoding
        self._infos = infos
        self._mode = AutoresetMode(vector.metadata["autoreset_mode"])
        self._nobody: Mask = np.zeros(vector.num_envs, np.bool_)
        self.ended = self._nobody
        """Who has ended and not begun again."""
        self._actions = codec_of(vector.action_space)
        self._observations = codec_of(vector.observation_space)
        self._observation = codec_of(vector.single_observation_space)

    def carry_out(self, request: EnvironmentRequest) -> BatchOutput:
        """Return what the batch answers to a row's request."""
        if request.reset is None:
            return self.act(request.action)
        for _ in range(request.reset.count_missing(self.resets)):
            self._reset(request.reset)
        reset = request.reset
        observations, infos = self._reset(reset)
        self.ended = self._nobody if reset.mask is None else self.ended & ~np.array(reset.mask, np.bool_)
        return call_environment(
            lambda: BatchOutput(self._encode_observations(observations), self._encode_infos(infos, begun=True))
        )

    def act(self, data: Raw | bytes) -> BatchOutput:
        """Carry out the actions that a JSON text says, one for each sub-environment."""
        check_value_count(data)
        return call_environment(lambda: self._step(data))

    def state(self) -> Any:
        """Return which sub-environments have ended."""
        return {"num_envs": self.vector.num_envs, "ended": np.flatnonzero(self.ended).tolist()}

    def scene(self, *, begins: bool) -> None:
        """Return None: a batch has no picture; its sub-episodes have, replayed alone."""

    def code(self) -> str:
        """Return the digest of the environments' code; empty: there is none."""
        vector = self.vector
        return digest_class(type(vector.envs[0].unwrapped if isinstance(vector, SyncVectorEnv) else vector))

    def close(self) -> None:
        """Let go of the environments; what they raise about that is nobody's finding."""
        try:
            self.vector.close()
        except ENVIRONMENT_ERRORS:
            return

    def _reset(self, reset: RecordedReset) -> tuple[Any, Any]:
        self.resets += 1
        options = dict(reset.options or {})
        if reset.mask is not None:
            options[MASK] = np.array(reset.mask, np.bool_)
        seed: Any = reset.seed
        answer: tuple[Any, Any] = call_environment(lambda: self.vector.reset(seed=seed, options=options or None))
        return answer

    def _step(self, data: Raw | bytes) -> BatchOutput:
        actions = self._actions.decode(msgspec.json.decode(_actions(data).actions))
        observations, rewards, terminations, truncations, infos = self.vector.step(actions)
        ended = np.logical_or(terminations, truncations)
        begun = {AutoresetMode.SAME_STEP: ended, AutoresetMode.NEXT_STEP: self.ended}.get(self._mode, self._nobody)
        self.ended = self._nobody if self._mode is AutoresetMode.SAME_STEP else ended
        return BatchOutput(
            self._encode_observations(observations),
            self._encode_infos(infos, begun=bool(begun.any())),
            self._encode_array(np.asarray(rewards, np.float64)),
            self._encode_array(np.asarray(terminations, np.bool_)),
            self._encode_array(np.asarray(truncations, np.bool_)),
        )

    def _encode_observations(self, observations: Any) -> bytes:
        return _encode(self._observations.encode(observations, self._encoding))

    def _encode_infos(self, infos: Any, *, begun: bool) -> bytes:
        def encode_observation(observation: Any) -> Any:
            return self._observation.encode(observation, self._encoding)

        return encode_infos(infos, self._encoding, encode_observation, everything=self._infos, begun=begun)

    def _encode_array(self, array: NDArray[Any]) -> bytes:
        return _encode(pack_array(array, self._encoding.compress) if self._encoding.packed else array_to_lists(array))


Driver = SingleDriver | BatchDriver


def find_target(opened: SessionOpened) -> Target:
    """Return what a session served, or raise a ValidationError: a part of its settings was never recorded, or it is too large."""
    check_num_envs(opened)
    hidden = next(_find_secrets(opened.settings, ""), None)
    if hidden is not None:
        raise ValidationError(
            "this episode cannot be replayed: a setting that is named like a secret is not in the record",
            found=hidden,
            expected="settings without secrets",
        )
    return Target(opened.target, dict(opened.settings))


def check_num_envs(opened: SessionOpened) -> None:
    """Raise a ValidationError if a record says more environments than any server serves."""
    if opened.num_envs is not None and opened.num_envs > MOST_ENVS:
        raise ValidationError(
            "this episode cannot be replayed: its record says more environments than a server serves",
            found=opened.num_envs,
            expected=f"at most {MOST_ENVS}",
        )


def _find_secrets(value: Any, name: str) -> Iterator[str]:
    if value == HIDDEN:
        yield name
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _find_secrets(each, str(key))
    elif isinstance(value, list):
        for each in value:
            yield from _find_secrets(each, name)


def make_driver(opened: SessionOpened) -> Driver:
    """Return a new environment of a session, or raise a ValidationError."""
    target = find_target(opened)
    encoding = Encoding(opened.packed, opened.compress)
    count = opened.num_envs
    if count is None:
        return SingleDriver(call_factory(target.make), encoding)
    vector = call_factory(lambda: target.make_batch(count, opened.autoreset_mode))
    return BatchDriver(vector, encoding, infos=opened.infos)


def call_factory(make: Callable[[], Result]) -> Result:
    """Return what a factory makes; whatever it raises becomes a ValidationError."""
    try:
        return make()
    except ENVIRONMENT_ERRORS as problem:
        raise ValidationError(
            f"this episode cannot be replayed: its environment could not be made: {problem}"
        ) from problem


class DriverCache:
    """Gives out environments, one at a time; the last one goes on as long as it fits. A `with` block drops it at its end."""

    def __init__(self) -> None:
        self.current: Driver | None = None
        """The environment that was given out last and is still there."""
        self._opened: SessionOpened | None = None
        self.is_reused = False
        """Whether the environment that was given out last had had an episode before."""
        self.notes: tuple[str, ...] = ()
        """What is different here from where the latest session was served."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()

    def driver(self, opened: SessionOpened, nth: int) -> Driver:
        """Return an environment of this session that has had fewer than `nth` resets."""
        driver = self.current
        self.is_reused = driver is not None and self._opened == opened and driver.resets < nth
        if driver is None or not self.is_reused:
            self.drop()
            driver = self.current = make_driver(opened)
            self._opened = opened
            self.notes = tuple(describe_changes(opened, driver.code()))
        return driver

    def drop(self) -> None:
        """Let go of the environment; the next one is new."""
        driver, self.current = self.current, None
        if driver is not None:
            driver.close()


def describe_changes(opened: SessionOpened, code: str) -> Iterator[str]:
    """Yield what is different here, where the environment's code has this digest, from where the session was served."""
    if opened.code and code and code != opened.code:
        yield f"the environment's code has changed: {opened.code[:12]} when it was recorded, {code[:12]} now"
    versions = (
        ("Python", opened.python, platform.python_version()),
        ("Gymnasium", opened.gymnasium, gym.__version__),
        ("numpy", opened.numpy, np.__version__),
    )
    yield from (f"recorded with {name} {then}, replayed with {now}" for name, then, now in versions if then != now)
