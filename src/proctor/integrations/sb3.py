"""Vector environments for stable-baselines3 and sb3-contrib: `as_sb3(vector_env)`.

Rule 1: a VecEnv begins the next episode in the step that ends one. A vector environment must do the same (SAME_STEP):
    one that restarts a step later would hand the learner a step in which its action was ignored.
Rule 2: an info is empty until an episode ends. Then it holds the environment's last info (with `score`, where there is
    one), `terminal_observation`, `TimeLimit.truncated` and the `episode` that a Monitor would report.
Rule 3: the masks that `MaskablePPO` asks for are the `action_mask` of the environment's latest info.
Rule 4: stable-baselines3 is imported when an environment is adapted, never before.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from time import perf_counter
from typing import Any, Final

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from proctor.errors import MissingExtraError, ValidationError

MASKS: Final = "action_masks"
FINAL: Final = ("final_obs", "final_info")
"""What a vector environment says of an episode that has ended, beside what it says of the next one."""
SEQUENCES: Final = (np.ndarray, list, tuple)
Indices = int | Iterable[int] | None
Rows = list[dict[str, Any]]


def as_sb3(vector_env: VectorEnv[Any, Any, Any], *, clock: Callable[[], float] = perf_counter) -> Any:
    """Return `vector_env` as a `stable_baselines3` VecEnv, which owns it from now on.

    `clock` gives the seconds of `infos[i]["episode"]["t"]`, the time since this call. The environment is reset once, to
    learn whether it reports action masks.
    """
    mode = vector_env.metadata.get("autoreset_mode")
    if mode != AutoresetMode.SAME_STEP:
        raise ValidationError(
            "stable-baselines3 needs the next episode in the step that ends one",
            found=mode,
            expected='gym.make_vec(id, num_envs=N, autoreset_mode="SameStep"); for vectors of Gymnasium\'s own, '
            'vector_kwargs={"autoreset_mode": "SameStep"}',
        )
    return _vec_env_class()(vector_env, clock)


@cache
def _vec_env_class() -> Any:
    try:
        from stable_baselines3.common.vec_env import VecEnv
    except ImportError:
        raise MissingExtraError("training", package="stable-baselines3", extra="train") from None
    return type("Sb3VecEnv", (VecEnvAdapter, VecEnv), {"__doc__": VecEnvAdapter.__doc__, "__module__": __name__})


def select_info(info: Mapping[str, Any], index: int) -> dict[str, Any]:
    """Return what a vector environment's `info` says of one sub-environment; the masks `_key` stay behind."""
    row = {}
    for key, values in info.items():
        if key[:1] != "_":
            mask = info.get("_" + key)
            if mask is None or mask[index]:
                row[key] = _select_entry(values, index)
    return row


def _have_equal_values(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(value, other[key]) for key, value in one.items())


def _select_entry(values: Any, index: int) -> Any:
    if isinstance(values, dict):
        return select_info(values, index)
    return values[index] if isinstance(values, SEQUENCES) else values


class VecEnvAdapter:
    """A vector environment with the methods of a `stable_baselines3` VecEnv.

    The class that `as_sb3` makes derives from this one and from VecEnv. All sub-environments share their settings, so
    `get_attr` gives the vector environment's own attribute for each of them, and `set_attr` is refused.
    """

    def __init__(self, vector_env: VectorEnv[Any, Any, Any], clock: Callable[[], float]) -> None:
        self.vector_env = vector_env
        self._clock, self._began = clock, clock()
        self._masks = vector_env.reset()[1].get("action_mask")
        space, actions = vector_env.single_observation_space, vector_env.single_action_space
        super().__init__(vector_env.num_envs, space, actions)  # type: ignore[call-arg]  # VecEnv's, joined at run time
        self.num_envs: int = vector_env.num_envs
        self.reset_infos: Rows = [{} for _ in range(self.num_envs)]
        self._seeds: list[int | None] = [None] * self.num_envs
        self._options: dict[str, Any] = {}
        self._actions: Any = None
        self._returns = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, np.int64)

    def seed(self, seed: int | None = None) -> list[int | None]:
        """Return the seeds of the next reset, counted up from `seed`; without one the generator goes on."""
        self._seeds = [None if seed is None else seed + i for i in range(self.num_envs)]
        return self._seeds

    def set_options(self, options: Sequence[Mapping[str, Any]] | Mapping[str, Any] | None = None) -> None:
        """Keep the options of the next reset; a list must say the same for all."""
        each = [options or {}] * self.num_envs if options is None or isinstance(options, Mapping) else list(options)
        if len(each) != self.num_envs or not all(_have_equal_values(one, each[0]) for one in each):
            raise ValidationError(
                "sub-environments share their options",
                found=options,
                expected=f"one mapping, or {self.num_envs} that say the same",
            )
        self._options = dict(each[0])

    def reset(self) -> Any:
        """Return the first observations, with the seeds and options that were kept for this reset."""
        seeds, options = None if None in self._seeds else self._seeds, self._options or None
        # Given up before they are used: what is refused once must not be refused for ever.
        self.seed()
        self.set_options()
        observations, info = self.vector_env.reset(seed=seeds, options=options)  # type: ignore[arg-type]  # a list, as our batches take
        self._masks = info.get("action_mask")
        self.reset_infos = [select_info(info, i) for i in range(self.num_envs)]
        self._returns[:] = 0.0
        self._lengths[:] = 0
        return observations

    def step_async(self, actions: Any) -> None:
        """Keep the actions for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> tuple[Any, NDArray[np.float32], NDArray[np.bool_], Rows]:
        """Return observations, rewards, dones and infos; where an episode ended, the observation begins the next."""
        observations, rewards, terminated, truncated, info = self.vector_env.step(self._actions)
        self._masks = info.get("action_mask")
        self._returns += rewards
        self._lengths += 1
        dones = terminated | truncated
        infos: Rows = [{} for _ in range(self.num_envs)]
        ended = np.flatnonzero(dones).tolist()
        # Looked at only if an episode has ended: looking may be what makes the values.
        begun = {key: values for key, values in info.items() if key not in FINAL} if ended else {}
        for i in ended:
            infos[i] = self._last_word(info, i, timed_out=not terminated[i])
            self.reset_infos[i] = select_info(begun, i)
        return observations, np.array(rewards, np.float32), dones, infos

    def _last_word(self, info: Mapping[str, Any], i: int, *, timed_out: bool) -> dict[str, Any]:
        """Return the info of a step that ended an episode, and count the next one from nothing."""
        episode = {"r": float(self._returns[i]), "l": int(self._lengths[i]), "t": round(self._clock() - self._began, 6)}
        self._returns[i], self._lengths[i] = 0.0, 0
        return {
            **select_info(info["final_info"], i),
            "terminal_observation": _select_entry(info["final_obs"], i),
            "TimeLimit.truncated": timed_out,
            "episode": episode,
        }

    def action_masks(self, index: int) -> NDArray[Any]:
        """Return which actions are legal now in one sub-environment."""
        if self._masks is None:
            raise AttributeError("the environment's info has no action_mask")
        mask: NDArray[Any] = self._masks[index].copy()
        return mask

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """Return the vector environment's attribute for each index; `action_masks` is a method of each."""
        rows = self._rows(indices)
        if attr_name == MASKS:
            self.action_masks(0)
            return [partial(self.action_masks, i) for i in rows]
        owner = self.vector_env if hasattr(self.vector_env, attr_name) else self.vector_env.unwrapped
        return [getattr(owner, attr_name)] * len(rows)

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Refuse: what a batch was made with is fixed."""
        raise ValidationError(
            f"{attr_name!r} cannot be set in a batch", found=value, expected="a new batch, made with this setting"
        )

    def env_method(self, method_name: str, *args: Any, indices: Indices = None, **keywords: Any) -> list[Any]:
        """Return the answers to `action_masks`, the one method that a sub-environment has of its own."""
        rows = self._rows(indices)
        if method_name != MASKS:
            raise AttributeError(f"a sub-environment of a batch has no method {method_name!r}, only {MASKS!r}")
        return [self.action_masks(i) for i in rows]

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Indices = None) -> list[bool]:
        """Return True for stable-baselines3's Monitor, whose `episode` is reported here, and False for all others."""
        return [wrapper_class.__name__ == "Monitor"] * len(self._rows(indices))

    def close(self) -> None:
        """Close the vector environment."""
        self.vector_env.close()

    def _rows(self, indices: Indices) -> Sequence[int]:
        if indices is None:
            return range(self.num_envs)
        return [indices] if isinstance(indices, int) else list(indices)
