"""The ids that Gymnasium learns from us, and how it learns them without an import by the user.

Gymnasium reads no entry points since 1.0. So the wheel brings a one-line `.pth` file, which imports `proctor` when Python starts
(unless `PROCTOR_NO_AUTO_REGISTRATION` is set), and `proctor` calls `register_on_import`. Rule: nothing heavy is imported
here, no environment, and Gymnasium only by `register`; registering waits until someone imports it.
"""

import sys
from importlib.machinery import ModuleSpec

# Each id with the class of one environment and the class of a batch.
IDS = {
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
# Whatever environment a server runs: no environment of ours, so it is not in `IDS`.
REMOTE = {"proctor/Remote-v0": ("proctor.client.remote_envs:RemoteEnv", "proctor.client.remote_envs:RemoteVectorEnv")}
# The module whose end of import opens Gymnasium's registry.
TRIGGER = "gymnasium.envs"


def register() -> None:
    """Register every environment of ours; doing it twice is harmless."""
    from gymnasium.envs.registration import register as add_to_registry
    from gymnasium.envs.registration import registry

    for env_id, (single, batched) in {**IDS, **REMOTE}.items():
        if env_id not in registry:
            # Our own lifecycle guards the order of calls, counts the steps and checks its parts; `proctor check` judges
            # the rest. So Gymnasium's wrappers, which cost a call each on every step, are not needed.
            add_to_registry(
                id=env_id, entry_point=single, vector_entry_point=batched, order_enforce=False, disable_env_checker=True
            )


def register_on_import() -> None:
    """Register our ids now if Gymnasium is there, else when it is imported; doing it twice is harmless."""
    if TRIGGER in sys.modules:
        register()
    elif not any(isinstance(finder, _RegistrationHook) for finder in sys.meta_path):
        sys.meta_path.insert(0, _RegistrationHook())


class _RegistrationHook:
    """An import hook that fires once: when `TRIGGER` has been imported, our ids are registered."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return the trigger's own spec with our registration appended; None for every other module."""
        if name != TRIGGER:
            return None
        from importlib.util import find_spec

        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: object) -> None:
                execute(module)  # type: ignore[arg-type]  # typeshed wants ModuleType, which costs an import
                register()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]  # the point of this hook
        return spec
