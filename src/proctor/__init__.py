"""Proctor runs reinforcement-learning environments under contract.

Importing this package imports nothing heavy: names are resolved when first used, and Gymnasium learns our ids when
somebody imports it (see `proctor.envs.registration`).
"""

from importlib import import_module

from proctor.envs.registration import register_on_import

TYPE_CHECKING = False  # type checkers take this for True; the typing module would cost every start of Python
if TYPE_CHECKING:
    from typing import Any

    from proctor.contracts.lifecycle import EnvironmentState as EnvironmentState
    from proctor.contracts.spatial import AgentState as AgentState
    from proctor.contracts.spatial import Coordinates as Coordinates
    from proctor.contracts.spatial import GridSize as GridSize
    from proctor.envs.plume.config import EnvironmentConfig as EnvironmentConfig
    from proctor.envs.plume.env import PlumeSearchEnv as PlumeSearchEnv
    from proctor.errors import ComponentError as ComponentError
    from proctor.errors import ProctorError as ProctorError
    from proctor.errors import RenderingError as RenderingError
    from proctor.errors import StateError as StateError
    from proctor.errors import ValidationError as ValidationError
    from proctor.viewer.single_file import Episode as Episode

__version__ = "0.1.0"

_HOMES = {
    "AgentState": "proctor.contracts.spatial",
    "ComponentError": "proctor.errors",
    "Coordinates": "proctor.contracts.spatial",
    "EnvironmentConfig": "proctor.envs.plume.config",
    "EnvironmentState": "proctor.contracts.lifecycle",
    "Episode": "proctor.viewer.single_file",
    "GridSize": "proctor.contracts.spatial",
    "PlumeSearchEnv": "proctor.envs.plume.env",
    "ProctorError": "proctor.errors",
    "RenderingError": "proctor.errors",
    "StateError": "proctor.errors",
    "ValidationError": "proctor.errors",
}

__all__ = ["__version__", *sorted(_HOMES)]


def __getattr__(name: str) -> "Any":
    if name not in _HOMES:
        raise AttributeError(f"module 'proctor' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


register_on_import()
