"""The ids that Gymnasium learns from us; imports no environment (see `register_on_import` for when this is called)."""

from typing import Final

from gymnasium.envs.registration import register as _register
from gymnasium.envs.registration import registry

IDS: Final = {
    "proctor/PlumeSearch-v0": (
        "proctor.envs.plume.env:PlumeSearchEnv",
        "proctor.envs.plume.vector.batched_env:BatchedPlumeSearch",
    ),
    "proctor/ColumnPopper-v0": (
        "proctor.envs.popper.env:ColumnPopperEnv",
        "proctor.envs.popper.vector.batched_env:BatchedColumnPopper",
    ),
    "SpecKitAI/ColumnPopper-v1": (
        "proctor.envs.popper.env:ContractColumnPopperEnv",
        "proctor.envs.popper.vector.batched_env:BatchedContractColumnPopper",
    ),
}
"""Each id with the class of one environment and the class of a batch."""

REMOTE: Final = (
    "proctor/Remote-v0",
    "proctor.client.remote_envs:RemoteEnv",
    "proctor.client.remote_envs:RemoteVectorEnv",
)
"""Whatever environment a server runs: no environment of ours, so it is not in `IDS`."""


def register() -> None:
    """Register every environment of ours; doing it twice is harmless."""
    for env_id, single, batched in (*((env_id, *classes) for env_id, classes in IDS.items()), REMOTE):
        if env_id not in registry:
            # Our own lifecycle guards the order of calls, counts the steps and checks its parts; `proctor check` judges
            # the rest. So Gymnasium's wrappers, which cost a call each on every step, are not needed.
            _register(
                id=env_id,
                entry_point=single,
                vector_entry_point=batched,
                order_enforce=False,
                disable_env_checker=True,
            )
