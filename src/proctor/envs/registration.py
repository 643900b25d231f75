"""The ids that Gymnasium learns from us; imports no environment (see `announce` for when this is called)."""

from gymnasium.envs.registration import register as _register
from gymnasium.envs.registration import registry


def register() -> None:
    """Register every environment of ours; doing it twice is harmless."""
    if "proctor/PlumeSearch-v0" not in registry:
        # Our own lifecycle guards the order of calls, counts the steps and checks its parts; `proctor check` judges the
        # rest. So Gymnasium's wrappers, which cost a call each on every step, are not needed.
        _register(
            id="proctor/PlumeSearch-v0",
            entry_point="proctor.envs.plume.env:PlumeSearchEnv",
            vector_entry_point="proctor.envs.plume.batch:BatchedPlumeSearch",
            order_enforce=False,
            disable_env_checker=True,
        )
