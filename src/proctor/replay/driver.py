"""One environment that is driven again: what was asked of it goes in, what a server would have recorded comes out.

Rule 1: what comes out is said with the functions that the server says it with (`observation_json`, `told_info`), so that
    it can be compared byte for byte.
Rule 2: what the environment raises is `Raised`, for a replay that fails where the record goes on is a finding.
"""

import inspect
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw, Struct
from pydantic import ValidationError as ModelError

from proctor.envs.targets import AnyEnvironment
from proctor.errors import ComponentError
from proctor.models.events import EpisodeReset, EpisodeStepped
from proctor.models.infos import told_info
from proctor.models.wire import Encoding, Observation, observation_json
from proctor.replay.coroutines import Coroutines

RAISED: Final = (Exception, SystemExit)
"""What somebody else's code may raise."""
NULL: Final = b"null"
NOTHING: Final = b"{}"
Result = TypeVar("Result")

_encode: Final = msgspec.json.Encoder().encode
_options: Final = msgspec.json.Decoder(dict[str, Any] | None).decode


class Found(Struct, frozen=True, gc=False):
    """What an environment answered: the fields of an event that the environment decides, as JSON texts."""

    observation: bytes
    metadata: bytes
    reward: float | None
    terminated: bool
    truncated: bool
    scene: bytes = NULL


class Raised(Exception):
    """The environment did not answer; the text says what it raised."""


class SingleDriver:
    """One environment, and how many resets it has had."""

    def __init__(self, environment: AnyEnvironment, encoding: Encoding) -> None:
        self.environment: Final = environment
        self.resets = 0
        self._encoding = encoding
        self._coroutines = Coroutines()
        self._read = environment.action_type.__pydantic_validator__.validate_json
        self._type = environment.observation_type
        self._act = environment.step

    def begin(self, event: EpisodeReset, seed: int | None) -> Found:
        """Reset the environment until it has had as many resets as it had then; return what the last one showed."""
        options = _options(event.options)
        while self.resets < event.nth - 1:
            self._reset(options, seed, event.episode_id)
        return self._found(self._reset(options, seed, event.episode_id), begins=True, scene=_has_scene(event))

    def restart(self, seed: int, options: dict[str, Any] | None) -> Found:
        """Begin the episode of this seed, whatever there was before."""
        return self._found(self._reset(options, seed, None), begins=True, scene=False)

    def step(self, event: EpisodeStepped) -> Found:
        """Carry out a recorded action."""
        return self.act(event.action, scene=_has_scene(event))

    def act(self, action: Raw | bytes, *, scene: bool = False) -> Found:
        """Carry out the action that a JSON text says."""
        try:
            said = self._read(bytes(action))
        except ModelError as problem:
            raise Raised(_words(problem)) from problem
        try:
            answer = self._act(said)
        except RAISED as problem:
            raise raised(problem) from problem
        # The class is asked for first, because a model's `isinstance` takes as long as a step.
        seen: Any = answer if type(answer) is self._type else self._settled(answer)
        return self._found(seen, begins=False, scene=scene)

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
        except RAISED:
            return
        finally:
            self._coroutines.close()

    def _reset(self, options: dict[str, Any] | None, seed: int | None, episode_id: str | None) -> Observation:
        self.resets += 1
        return self._settled(asked(lambda: self._begun(options, seed, episode_id)))

    def _begun(self, options: dict[str, Any] | None, seed: int | None, episode_id: str | None) -> Any:
        if options is not None:
            self.environment.configure(options)
        return self.environment.reset(seed=seed, episode_id=episode_id)

    def _settled(self, answer: Any) -> Observation:
        if not isinstance(answer, Observation) and inspect.isawaitable(answer):
            answer = asked(lambda: self._coroutines.result(answer))
        if not isinstance(answer, self._type):
            raise raised(ComponentError("not the declared observation", found=answer, expected=self._type.__name__))
        observation: Observation = answer
        return observation

    def _found(self, observation: Observation, *, begins: bool, scene: bool) -> Found:
        metadata = observation.metadata
        try:
            return Found(
                observation_json(observation, self._encoding),
                told_info(metadata) if metadata else NOTHING,
                observation.reward,
                observation.terminated,
                observation.truncated,
                _encode(self.environment.scene(begins=begins)) if scene else NULL,
            )
        except RAISED as problem:
            raise raised(problem) from problem


def asked(ask: Callable[[], Result]) -> Result:
    """Return what the environment answers, or raise `Raised`."""
    try:
        return ask()
    except RAISED as problem:
        raise raised(problem) from problem


def raised(problem: BaseException) -> Raised:
    """Return what a replay says of an exception."""
    return Raised(f"{type(problem).__name__}: {problem}")


def _words(problem: ModelError) -> str:
    """Return what a model says of an action, without what only its authors understand."""
    said = dict.fromkeys(each["msg"] for each in problem.errors(include_url=False, include_context=False))
    return f"it is none of this environment ({', or: '.join(said)})"


def _has_scene(event: EpisodeReset | EpisodeStepped) -> bool:
    return bytes(event.scene) != NULL
