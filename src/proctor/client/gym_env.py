"""A server's environment as a `gymnasium.Env`: `gym.make("proctor/Remote-v0", url=...)`."""

from typing import Any, Final, NoReturn

import gymnasium as gym
import msgspec
from gymnasium.envs.registration import EnvSpec
from msgspec import Raw

from proctor.client.remote import Line, refuse_copy, reset_text, said, without_credential
from proctor.client.settings import Settings
from proctor.errors import ValidationError
from proctor.models.control import Seen
from proctor.models.spaces import codec_of

KEY: Final = "observation"


class RemoteEnv(gym.Env[Any, Any]):
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
        settings: Settings | None = None,
        render_mode: str | None = None,
    ) -> None:
        if render_mode is not None:
            raise ValidationError(
                "a remote environment does not render", found=render_mode, expected="render_mode=None"
            )
        self.render_mode = None
        self._spec: EnvSpec | None = None
        self._line = Line(url, token, settings)
        opened = False
        try:
            self.action_space, self.observation_space = self._line.spaces()
            self._session = self._line.run(self._line.connection.session())
            opened = True
        finally:
            if not opened:
                self._line.close()
        self._action = codec_of(self.action_space)
        self._observation = codec_of(self.observation_space)

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

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; the only way on after EpisodeLost."""
        seen = self._line.run(self._session.reset(reset_text({"seed": seed, "options": options})))
        super().reset(seed=seed)
        return self._observed(seen), _info(seen)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one step, exactly once."""
        data = said(self._action, "action", action, self._line.encoding)
        seen = self._line.run(self._session.step(data))
        reward = 0.0 if seen.reward is None else seen.reward
        terminated = seen.terminated if isinstance(seen.terminated, bool) else seen.done
        return self._observed(seen), reward, terminated, seen.truncated is True, _info(seen)

    def state(self) -> dict[str, Any]:
        """Return the environment's state as JSON says it."""
        state: dict[str, Any] = msgspec.json.decode(self._line.run(self._session.state()))
        return state

    def render(self) -> None:
        """Show nothing: pictures stay on the server."""

    def close(self) -> None:
        """End the session; calling it again does nothing."""
        self._line.close()

    def __repr__(self) -> str:
        return f"RemoteEnv({str(self._line.connection.address)!r})"

    def __str__(self) -> str:
        return repr(self)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        refuse_copy("remote environment")

    def _observed(self, seen: Seen) -> Any:
        try:
            inside = msgspec.json.decode(seen.observation)[KEY]
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
            raise ValidationError("the server's observation has no value", expected=f'an object with "{KEY}"') from None
        # An environment may observe beyond its own bounds; the form is checked all the same.
        return self._observation.decode(inside, bounded=False)


def _info(seen: Seen) -> dict[str, Any]:
    if not isinstance(seen.metadata, Raw):
        return {}
    info: dict[str, Any] = msgspec.json.decode(seen.metadata, type=dict)
    return info
