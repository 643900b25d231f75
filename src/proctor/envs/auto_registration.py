"""Tells Gymnasium our ids as soon as it is imported, so that `gym.make` needs no import of ours.

Gymnasium reads no entry points since 1.0. So the wheel brings a one-line `.pth` file, `import proctor`, which Python
runs when it starts, and `proctor` calls `register_on_import`. Rule: nothing heavy is imported here, and Gymnasium itself never;
registering waits until someone imports it.
"""

import sys
from importlib.machinery import ModuleSpec

TRIGGER = "gymnasium.envs"
"""The module whose end of import opens Gymnasium's registry."""


def register_on_import() -> None:
    """Register our ids now if Gymnasium is there, else when it is imported; doing it twice is harmless."""
    if TRIGGER in sys.modules:
        _register()
    elif not any(isinstance(finder, _RegistrationHook) for finder in sys.meta_path):
        sys.meta_path.insert(0, _RegistrationHook())


def _register() -> None:
    from proctor.envs.registration import register

    register()


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
                _register()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]  # the point of this hook
        return spec
