"""A server's environment as a `gymnasium.Env`, and its batch as a `gymnasium.vector.VectorEnv` that is stepped with one message.

Rule 1: the spaces are the server's own, rebuilt from its `schema`; values travel in their form, arrays as bytes.
Rule 2: a credential is not kept in a `spec`, which is printed and compared.
Rule 3: a remote environment belongs to the process that made it: it is neither pickled nor copied.
Rule 4: what a step of a batch returns is what the server's vector environment returned: the same arrays, dtypes and keys, and in
    `same_step` mode `final_obs` and `final_info` as Gymnasium passes them.
Rule 5: without `infos` the server sends only what a learner needs of episodes that ended, and the seeds of those that began.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, NoReturn

import gymnasium as gym
import msgspec
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from msgspec import Raw
from numpy.typing import NDArray

from proctor.client.blocking import get_shared_loop
from proctor.client.connection import Connection, ConnectionSettings
from proctor.client.replies import encode_json
from proctor.errors import ComponentError, StateError, ValidationError
from proctor.models.arrays import PLAIN_KEYS, unpack_array
from proctor.models.control import BatchReply, ObservationReply
from proctor.models.spaces import Codec, codec_of, space_from
from proctor.models.wire import Encoding

AnySpace = gym.Space[Any]


class _Remote:
    """What a remote environment and a remote batch share: a connection and a session that are used without `await`."""

    _session: Any
    _spec: EnvSpec | None = None
    _what = "remote environment"

    def _connect(
        self, url: str, token: str | None, settings: ConnectionSettings | None, render_mode: str | None
    ) -> tuple[AnySpace, AnySpace]:
        """Connect, and return the spaces of action and observation; a server without spaces is refused."""
        if render_mode is not None:
            raise ValidationError(f"a {self._what} does not render", found=render_mode, expected="render_mode=None")
        settings = replace(ConnectionSettings() if settings is None else settings, packed=True)
        self._connection = Connection(url, token=token, settings=settings)
        self._run = get_shared_loop().run
        spaces = self._run(self._connection.schema()).spaces
        if spaces is None:
            expected = "an EnvClient, which needs none"
            raise ValidationError("the server's environment has no Gymnasium spaces", expected=expected)
        return space_from(spaces["action"]), space_from(spaces["observation"])

    @contextmanager
    def _close_on_failure(self) -> Iterator[None]:
        opened = False
        try:
            yield
            opened = True
        finally:
            if not opened and hasattr(self, "_connection"):
                self._run(self._connection.close())

    def _encode(self, codec: Codec, key: str, value: Any) -> bytes:
        welcome = self._connection.welcome
        encoding = Encoding() if welcome is None else Encoding(welcome.packed, welcome.compression)
        return encode_value(codec, key, value, encoding)

    @property
    def head(self) -> str | None:
        """What proves the record: the head in the reply to the last reset; None where the server keeps no ledger."""
        head: str | None = self._session.head
        return head

    @property
    def spec(self) -> EnvSpec | None:
        """How Gymnasium made it, without the credential."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        self._spec = without_credential(spec)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise StateError(
            f"a {self._what} cannot be pickled or copied: its session belongs to this process",
            expected="a new one, made where it is used",
        )


def encode_value(codec: Codec, key: str, value: Any, encoding: Encoding) -> bytes:
    """Return the JSON object that says `value` under `key`; what is not of the space's form is a ValidationError."""
    try:
        return msgspec.json.encode({key: codec.encode(value, encoding)})
    except ComponentError as problem:
        raise ValidationError(problem.message, found=value, expected=problem.expected) from None


def encode_reset(given: dict[str, Any]) -> bytes:
    """Return the data of a reset; None says nothing, arrays are written as lists."""
    said = {key: value for key, value in given.items() if value is not None}
    return encode_json(said, enc_hook=_array_to_list) if said else b""


def _array_to_list(value: Any) -> Any:
    # numpy's arrays and scalars alike.
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no JSON value")


def without_credential(spec: EnvSpec | None) -> EnvSpec | None:
    """Return a spec that tells where, not how to get in."""
    if spec is None:
        return None
    kwargs = {key: value for key, value in spec.kwargs.items() if key != "token"}
    if isinstance(kwargs.get("url"), str):
        scheme, separator, rest = kwargs["url"].partition("://")
        kwargs["url"] = scheme + separator + rest.rpartition("@")[2]
    return replace(spec, kwargs=kwargs)


class RemoteEnv(_Remote, gym.Env[Any, Any]):
    """One environment that a server runs, step by step over one connection.

    Spaces, rewards and ends are the server's; `info` is the metadata of its observation, as JSON says it (arrays are
    lists). Options of `reset` go to the environment. It does not render. When the episode cannot go on, `step` raises
    `EpisodeLost` until `reset`; it never goes on with another.
    """

    metadata = {"render_modes": []}

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        settings: ConnectionSettings | None = None,
        render_mode: str | None = None,
    ) -> None:
        self.render_mode = None
        with self._close_on_failure():
            self.action_space, self.observation_space = self._connect(url, token, settings, render_mode)
            self._session = self._run(self._connection.session())
        self._action = codec_of(self.action_space)
        self._observation = codec_of(self.observation_space)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; the only way on after EpisodeLost."""
        seen = self._run(self._session.reset(encode_reset({"seed": seed, "options": options})))
        super().reset(seed=seed)
        return self._read_observation(seen), _read_info(seen)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one step, exactly once."""
        seen = self._run(self._session.step(self._encode(self._action, "action", action)))
        reward = 0.0 if seen.reward is None else seen.reward
        terminated = seen.terminated if isinstance(seen.terminated, bool) else seen.done
        return self._read_observation(seen), reward, terminated, seen.truncated is True, _read_info(seen)

    def state(self) -> dict[str, Any]:
        """Return the environment's state as JSON says it."""
        state: dict[str, Any] = msgspec.json.decode(self._run(self._session.state()))
        return state

    def render(self) -> None:
        """Show nothing: pictures stay on the server."""

    def close(self) -> None:
        """End the session; calling it again does nothing."""
        self._run(self._connection.close())

    def __repr__(self) -> str:
        return f"RemoteEnv({str(self._connection.address)!r})"

    def __str__(self) -> str:
        return repr(self)

    def _read_observation(self, seen: ObservationReply) -> Any:
        try:
            inside = msgspec.json.decode(seen.observation)["observation"]
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
            expected = 'an object with "observation"'
            raise ValidationError("the server's observation has no value", expected=expected) from None
        # An environment may observe beyond its own bounds; the form is checked all the same.
        return self._observation.decode(inside, bounded=False)


def _read_info(seen: ObservationReply) -> dict[str, Any]:
    if not isinstance(seen.metadata, Raw):
        return {}
    info: dict[str, Any] = msgspec.json.decode(seen.metadata, type=dict)
    return info


FINAL_OBSERVATIONS: Final = "final_obs"
Array = NDArray[Any]


class RemoteVectorEnv(_Remote, VectorEnv[Any, Any, Any]):
    """`num_envs` environments that a server runs, stepped together.

    `autoreset_mode` is one of Gymnasium's, by value or by name. Options of `reset` go to the environments;
    `options["reset_mask"]` says which of them begin, where the mode is `disabled`. With `infos` every info is sent.
    """

    _what = "remote batch"

    def __init__(
        self,
        num_envs: int,
        url: str,
        *,
        token: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        infos: bool = False,
        settings: ConnectionSettings | None = None,
        render_mode: str | None = None,
    ) -> None:
        mode = _parse_autoreset_mode(autoreset_mode)
        self.num_envs = num_envs
        self.render_mode = None
        self.metadata = {"render_modes": [], "autoreset_mode": mode}
        with self._close_on_failure():
            self.single_action_space, self.single_observation_space = self._connect(url, token, settings, render_mode)
            batch = self._connection.batch(num_envs, autoreset_mode=mode.name.lower(), infos=infos)
            self._session = self._run(batch)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._actions = codec_of(self.action_space)
        self._observations = codec_of(self.observation_space)
        self._observation = codec_of(self.single_observation_space)

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode everywhere, or where `options["reset_mask"]` says; the only way on after EpisodeLost."""
        rest = dict(options or {})
        mask = rest.pop("reset_mask", None)
        data = encode_reset({"seed": _check_seeds(seed), "options": rest or None, "mask": mask})
        seen = self._run(self._session.reset(data))
        return self._read_observations(seen), self._read_infos(seen)

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Take one step in every environment, exactly once."""
        seen = self._run(self._session.step(self._encode(self._actions, "actions", actions)))
        return (
            self._read_observations(seen),
            _read_column(seen.rewards, np.float64, self.num_envs),
            _read_column(seen.terminations, np.bool_, self.num_envs),
            _read_column(seen.truncations, np.bool_, self.num_envs),
            self._read_infos(seen),
        )

    def close_extras(self, **kwargs: Any) -> None:
        """End the session; `close()` calls this once."""
        self._run(self._connection.close())

    def __repr__(self) -> str:
        return f"RemoteVectorEnv({self.num_envs}, {str(self._connection.address)!r})"

    def _read_observations(self, seen: BatchReply) -> Any:
        return self._observations.decode(_decode_json(seen.observations), bounded=False)

    def _read_infos(self, seen: BatchReply) -> dict[str, Any]:
        if not isinstance(seen.infos, Raw):
            return {}
        infos: dict[str, Any] = msgspec.json.decode(seen.infos, type=dict)
        finals = infos.pop(FINAL_OBSERVATIONS, None)
        told = {key: _unpack_info(value) for key, value in infos.items()}
        if finals is not None:
            # The last observations of those that ended, one by one, as Gymnasium passes them.
            told[FINAL_OBSERVATIONS] = each = np.full(self.num_envs, None, dtype=object)
            for index, value in zip(finals["index"], finals["values"], strict=True):
                each[index] = self._observation.decode(value, bounded=False)
        return told


def _parse_autoreset_mode(mode: AutoresetMode | str) -> AutoresetMode:
    for known in AutoresetMode:
        if mode is known or mode in (known.value, known.name, known.name.lower()):
            return known
    raise ValidationError(
        "unknown autoreset mode", found=mode, expected=" or ".join(known.value for known in AutoresetMode)
    )


def _check_seeds(seed: Any) -> Any:
    """Return a seed, or one for each; a list in which some are None cannot be said, one of only None is no seed."""
    if seed is None or isinstance(seed, int | np.integer):
        return seed
    each = list(seed)
    if None not in each:
        return each
    if any(one is not None for one in each):
        raise ValidationError("some seeds are missing", found=each, expected="one seed for each, or none at all")
    return None


def _decode_json(raw: Any) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError):
        raise ValidationError("a part of the server's reply cannot be read", expected="JSON") from None


def _read_column(raw: Any, dtype: Any, length: int) -> Array:
    """Return one number for each sub-environment."""
    value = _decode_json(raw)
    array = unpack_array(value) if isinstance(value, dict) else np.array(value)
    if array.shape != (length,) or array.dtype.kind not in "biuf":
        raise ValidationError("not one number each", found=array.shape, expected=f"{length} numbers")
    return array.astype(dtype, copy=False)


def _unpack_info(value: Any) -> Any:
    """Return a value of an info as a vector environment would have it: packed arrays as arrays, lists as objects."""
    if isinstance(value, dict):
        if value.keys() >= PLAIN_KEYS:
            return unpack_array(value)
        return {key: _unpack_info(part) for key, part in value.items()}
    if isinstance(value, list):
        array = np.empty(len(value), dtype=object)
        array[:] = [_unpack_info(part) for part in value]
        return array
    return value
