"""A server's batch as a `gymnasium.vector.VectorEnv`: N environments stepped with one message.

Rule 1: what a step returns is what the server's vector environment returned: the same arrays, dtypes and keys, and in
    `same_step` mode `final_obs` and `final_info` as Gymnasium passes them.
Rule 2: without `infos` the server sends only what a learner needs of episodes that ended, and the seeds of those that began.
"""

from collections.abc import Sequence
from typing import Any, Final, NoReturn

import msgspec
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from msgspec import Raw
from numpy.typing import NDArray

from proctor.client.remote import Line, refuse_copy, reset_text, said, without_credential
from proctor.client.settings import Settings
from proctor.errors import ValidationError
from proctor.models.arrays import PLAIN_KEYS, unpacked
from proctor.models.control import SeenBatch
from proctor.models.spaces import Codec, codec_of

MASK: Final = "reset_mask"
FINAL: Final = "final_obs"
Array = NDArray[Any]


class RemoteVectorEnv(VectorEnv[Any, Any, Any]):
    """`num_envs` environments that a server runs, stepped together.

    `autoreset_mode` is one of Gymnasium's, by value or by name. Options of `reset` go to the environments;
    `options["reset_mask"]` says which of them begin, where the mode is `disabled`. With `infos` every info is sent.
    """

    def __init__(
        self,
        num_envs: int,
        url: str,
        *,
        token: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        infos: bool = False,
        settings: Settings | None = None,
        render_mode: str | None = None,
    ) -> None:
        if render_mode is not None:
            raise ValidationError("a remote batch does not render", found=render_mode, expected="render_mode=None")
        mode = _checked_mode(autoreset_mode)
        self.num_envs = num_envs
        self.render_mode = None
        self.metadata = {"render_modes": [], "autoreset_mode": mode}
        self._spec: EnvSpec | None = None
        self._line = Line(url, token, settings)
        opened = False
        try:
            self.single_action_space, self.single_observation_space = self._line.spaces()
            order = self._line.connection.batch(num_envs, autoreset_mode=mode.name.lower(), infos=infos)
            self._session = self._line.run(order)
            opened = True
        finally:
            if not opened:
                self._line.close()
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._actions = codec_of(self.action_space)
        self._observations = codec_of(self.observation_space)
        self._observation = codec_of(self.single_observation_space)

    @property
    def head(self) -> str | None:
        """What proves the record: the head in the reply to the last reset; None where the server keeps no ledger."""
        return self._session.head

    @property
    def spec(self) -> EnvSpec | None:
        """How Gymnasium made it, without the credential."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        self._spec = without_credential(spec)

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode everywhere, or where `options["reset_mask"]` says; the only way on after EpisodeLost."""
        rest = dict(options or {})
        mask = rest.pop(MASK, None)
        data = reset_text({"seed": _checked_seeds(seed), "options": rest or None, "mask": mask})
        seen = self._line.run(self._session.reset(data))
        return self._observed(seen), self._told(seen)

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Take one step in every environment, exactly once."""
        seen = self._line.run(self._session.step(said(self._actions, "actions", actions, self._line.encoding)))
        return (
            self._observed(seen),
            _column(seen.rewards, np.float64, self.num_envs),
            _column(seen.terminations, np.bool_, self.num_envs),
            _column(seen.truncations, np.bool_, self.num_envs),
            self._told(seen),
        )

    def close_extras(self, **kwargs: Any) -> None:
        """End the session; `close()` calls this once."""
        self._line.close()

    def __repr__(self) -> str:
        return f"RemoteVectorEnv({self.num_envs}, {str(self._line.connection.address)!r})"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        refuse_copy("remote batch")

    def _observed(self, seen: SeenBatch) -> Any:
        return self._observations.decode(_value(seen.observations), bounded=False)

    def _told(self, seen: SeenBatch) -> dict[str, Any]:
        if not isinstance(seen.infos, Raw):
            return {}
        infos: dict[str, Any] = msgspec.json.decode(seen.infos, type=dict)
        finals = infos.pop(FINAL, None)
        told = {key: _array(value) for key, value in infos.items()}
        if finals is not None:
            told[FINAL] = _each(finals, self._observation, self.num_envs)
        return told


def _checked_mode(mode: AutoresetMode | str) -> AutoresetMode:
    for known in AutoresetMode:
        if mode is known or mode in (known.value, known.name, known.name.lower()):
            return known
    raise ValidationError(
        "unknown autoreset mode", found=mode, expected=" or ".join(known.value for known in AutoresetMode)
    )


def _checked_seeds(seed: Any) -> Any:
    """Return a seed, or one for each; a list in which some are None cannot be said, one of only None is no seed."""
    if seed is None or isinstance(seed, int | np.integer):
        return seed
    each = list(seed)
    if None not in each:
        return each
    if any(one is not None for one in each):
        raise ValidationError("some seeds are missing", found=each, expected="one seed for each, or none at all")
    return None


def _value(raw: Any) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError):
        raise ValidationError("a part of the server's reply cannot be read", expected="JSON") from None


def _column(raw: Any, dtype: Any, length: int) -> Array:
    """Return one number for each sub-environment."""
    value = _value(raw)
    array = unpacked(value) if isinstance(value, dict) else np.array(value)
    if array.shape != (length,) or array.dtype.kind not in "biuf":
        raise ValidationError("not one number each", found=array.shape, expected=f"{length} numbers")
    return array.astype(dtype, copy=False)


def _array(value: Any) -> Any:
    """Return a value of an info as a vector environment would have it: packed arrays as arrays, lists as objects."""
    if isinstance(value, dict):
        if value.keys() >= PLAIN_KEYS:
            return unpacked(value)
        return {key: _array(part) for key, part in value.items()}
    if isinstance(value, list):
        array = np.empty(len(value), dtype=object)
        array[:] = [_array(part) for part in value]
        return array
    return value


def _each(finals: dict[str, Any], codec: Codec, length: int) -> Array:
    """Return the last observations of those that ended, one by one, as Gymnasium passes them."""
    each = np.full(length, None, dtype=object)
    for index, value in zip(finals["index"], finals["values"], strict=True):
        each[index] = codec.decode(value, bounded=False)
    return each
