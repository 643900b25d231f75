"""What a zygote does once so that its workers need not: all that they inherit costs them neither time nor memory.

Rule: only environments of Proctor and of Gymnasium itself are made, which are known to leave nothing behind. A user's
    may count its instances, hold a licence or start threads; it is made in workers only.
"""

from contextlib import suppress
from typing import Final

import msgspec

from proctor.envs.settings import spec_of
from proctor.envs.targets import Target
from proctor.models.spaces import codec_of
from proctor.models.wire import PLAIN
from proctor.server.answers import RAISED
from proctor.server.desk import Desk, ResetOrder

KNOWN: Final = ("proctor.envs.", "gymnasium.envs.")


def is_known(target: Target) -> bool:
    """Whether an environment is known to leave nothing behind: by the module that makes it."""
    with suppress(*RAISED):
        made_by = spec_of(target.text).entry_point
        return isinstance(made_by, str) and made_by.startswith(KNOWN)
    return False


def rehearse(target: Target) -> None:
    """Make one environment, begin an episode, step and close; what is wrong with it, a worker will say."""
    if is_known(target):
        with suppress(*RAISED):
            _rehearse(target)


def _rehearse(target: Target) -> None:
    environment = target.make()
    desk = Desk(environment, PLAIN, lambda: "")
    desk.reset(ResetOrder(0, "", None))
    if environment.spaces is not None:
        space = environment.spaces[0]
        desk.step(msgspec.json.encode({"action": codec_of(space).encode(space.sample(), PLAIN)}))
    desk.close()


def step_a_batch(target: Target, mode: str) -> None:
    """Step a batch of one, so that an engine of ours is compiled; there is none for others."""
    if target.has_engine:
        batch = target.make_batch(1, mode)
        batch.reset(seed=0)
        batch.step(batch.action_space.sample())
        batch.close()
