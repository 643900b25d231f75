"""A batch that is driven again; the rules are those of `driver`."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
from gymnasium.vector import AutoresetMode
from msgspec import Raw, Struct
from numpy.typing import NDArray

from proctor.envs.targets import Vector
from proctor.models.arrays import array_to_lists, pack_array
from proctor.models.control import StepBatch
from proctor.models.events import BatchReset, BatchStepped
from proctor.models.infos import encode_infos
from proctor.models.spaces import codec_of
from proctor.models.wire import Encoding
from proctor.replay.driver import ENVIRONMENT_ERRORS, NULL, call_environment

MASK: Final = "reset_mask"
"""Gymnasium's option that says which sub-environments to reset."""
Mask = NDArray[np.bool_]
Seeds = int | Sequence[int | None] | None

_encode: Final = msgspec.json.Encoder().encode
_options: Final = msgspec.json.Decoder(dict[str, Any] | None).decode
_mask: Final = msgspec.json.Decoder(list[bool] | None).decode
_actions: Final = msgspec.json.Decoder(StepBatch).decode


class BatchOutput(Struct, frozen=True, gc=False):
    """What a batch answered, as JSON texts; a reset has no rewards and no flags."""

    observations: bytes
    infos: bytes
    rewards: bytes = NULL
    terminations: bytes = NULL
    truncations: bytes = NULL


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

    def begin(self, event: BatchReset, seeds: Seeds) -> BatchOutput:
        """Reset the batch, as often as it had been reset then; or go on with a reset of those that a mask marks."""
        mask = parse_reset_mask(event)
        if mask is None:
            while self.resets < event.nth - 1:
                self._reset(event, seeds, None)
        observations, infos = self._reset(event, seeds, mask)
        self.ended = self._nobody if mask is None else self.ended & ~mask
        return call_environment(
            lambda: BatchOutput(self._encode_observations(observations), self._encode_infos(infos, begun=True))
        )

    def step(self, event: BatchStepped) -> BatchOutput:
        """Carry out recorded actions."""
        return self.act(event.actions)

    def act(self, data: Raw | bytes) -> BatchOutput:
        """Carry out the actions that a JSON text says, one for each sub-environment."""
        return call_environment(lambda: self._encode_step(self.vector.step(self.read(data))))

    def read(self, data: Raw | bytes) -> Any:
        """Return the actions that a JSON text says, in the form of the action space."""
        return self._actions.decode(msgspec.json.decode(_actions(data).actions))

    def state(self) -> Any:
        """Return which sub-environments have ended."""
        return {"num_envs": self.vector.num_envs, "ended": np.flatnonzero(self.ended).tolist()}

    def scene(self, *, begins: bool) -> None:
        """Return None: a batch has no picture; its sub-episodes have, replayed alone."""

    def close(self) -> None:
        """Let go of the environments; what they raise about that is nobody's finding."""
        try:
            self.vector.close()
        except ENVIRONMENT_ERRORS:
            return

    def _reset(self, event: BatchReset, seeds: Seeds, mask: Mask | None) -> tuple[Any, Any]:
        self.resets += 1
        options = dict(_options(event.options) or {})
        if mask is not None:
            options[MASK] = mask
        given: Any = seeds if seeds is None or isinstance(seeds, int) else list(seeds)
        answer: tuple[Any, Any] = call_environment(lambda: self.vector.reset(seed=given, options=options or None))
        return answer

    def _encode_step(self, answer: Any) -> BatchOutput:
        observations, rewards, terminations, truncations, infos = answer
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
        return encode_infos(infos, self._encoding, self._encode_observation, everything=self._infos, begun=begun)

    def _encode_observation(self, observation: Any) -> Any:
        return self._observation.encode(observation, self._encoding)

    def _encode_array(self, array: NDArray[Any]) -> bytes:
        return _encode(pack_array(array, self._encoding.compress) if self._encoding.packed else array_to_lists(array))


def parse_reset_mask(event: BatchReset) -> Mask | None:
    """Return whom a reset was for; None: for all."""
    mask = _mask(event.mask)
    return None if mask is None else np.array(mask, np.bool_)
