"""Only what is known to leave nothing behind is made before there is a worker."""

from __future__ import annotations

import pytest

from proctor.envs.adapted import GymEnvironment
from proctor.envs.plume.served import PlumeEnvironment
from proctor.envs.popper.served import PopperEnvironment
from proctor.envs.targets import Target
from proctor.server.sandbox.rehearsal import is_known, rehearse, step_a_batch
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

    rehearse(Target(text))

    assert is_known(Target(text))
    assert done == ["reset", "step", "close"]


@pytest.mark.parametrize("text", [f"{ENVIRONMENTS}:Corridor-v0", f"{ENVIRONMENTS}:Counting", "Nothing-v7", "nowhere:x"])
def test_a_users_environment_is_never_made(text: str) -> None:
    made = diary("").made

    rehearse(Target(text))
    step_a_batch(Target(text), "same_step")

    assert not is_known(Target(text))
    assert diary("").made == made


def test_a_rehearsal_that_fails_is_no_ones_concern() -> None:
    rehearse(Target("CartPole-v1", {"no_such_setting": 1}))
