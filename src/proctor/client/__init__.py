"""The client: typed sessions on a server's control plane, and remote Gymnasium environments.

Names are resolved when first used: a typed client needs neither Gymnasium nor numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proctor.client.blocking import SyncEnvClient as SyncEnvClient
    from proctor.client.connection import Connection as Connection
    from proctor.client.env_client import EnvClient as EnvClient
    from proctor.client.generic_client import GenericClient as GenericClient
    from proctor.client.generic_client import JsonAction as JsonAction
    from proctor.client.generic_client import JsonObservation as JsonObservation
    from proctor.client.generic_client import JsonState as JsonState
    from proctor.client.gym_env import RemoteEnv as RemoteEnv
    from proctor.client.settings import Settings as Settings
    from proctor.client.vector_env import RemoteVectorEnv as RemoteVectorEnv

_HOMES = {
    "Connection": "connection",
    "EnvClient": "env_client",
    "GenericClient": "generic_client",
    "JsonAction": "generic_client",
    "JsonObservation": "generic_client",
    "JsonState": "generic_client",
    "RemoteEnv": "gym_env",
    "RemoteVectorEnv": "vector_env",
    "Settings": "settings",
    "SyncEnvClient": "blocking",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605  # read from the table of lazy names


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'proctor.client' has no attribute {name!r}")
    return getattr(import_module(f"proctor.client.{_HOMES[name]}"), name)
