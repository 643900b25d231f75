"""Only what is known to leave nothing behind is made before there is a worker."""

from __future__ import annotations

import pytest

from proctor.envs.gym_adapter import GymEnvironment
from proctor.envs.plume.typed_env import PlumeEnvironment
from proctor.envs.popper.typed_env import PopperEnvironment
from proctor.envs.targets import Target
from proctor.server.sandbox.worker.zygote import is_safe_to_warm_up, step_batch_once, warm_up_environment
from tests.server.environments import diary
from tests.server.sandbox.processes import ENVIRONMENTS

KNOWN = {
    "CartPole-v1": GymEnvironment,
    "Pendulum-v1": GymEnvironment,
    "Blackjack-v1": GymEnvironment,
    "proctor/PlumeSearch-v0": PlumeEnvironment,
    "proctor/ColumnPopper-v0": PopperEnvironment,
}


@pytest.mark.parametrize("text", KNOWN)
def test_a_known_environment_is_made_stepped_and_closed(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    for name in ("reset", "step", "close"):
        original = getattr(KNOWN[text], name)

        def noted(self: object, *said: object, name: str = name, original: object = original, **also: object) -> object:
            done.append(name)
            return original(self, *said, **also)  # type: ignore[operator]  # it is the method

        monkeypatch.setattr(KNOWN[text], name, noted)

    warm_up_environment(Target(text))

    assert is_safe_to_warm_up(Target(text))
    assert done == ["reset", "step", "close"]


@pytest.mark.parametrize("text", [f"{ENVIRONMENTS}:Corridor-v0", f"{ENVIRONMENTS}:Counting", "Nothing-v7", "nowhere:x"])
def test_a_users_environment_is_never_made(text: str) -> None:
    made = diary("").made

    warm_up_environment(Target(text))
    step_batch_once(Target(text), "same_step")

    assert not is_safe_to_warm_up(Target(text))
    assert diary("").made == made


def test_a_rehearsal_that_fails_is_no_ones_concern() -> None:
    warm_up_environment(Target("CartPole-v1", {"no_such_setting": 1}))
