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
    from proctor.client.grants import Grant as Grant
    from proctor.client.gym_env import RemoteEnv as RemoteEnv
    from proctor.client.operator import OperatorClient as OperatorClient
    from proctor.client.settings import Settings as Settings
    from proctor.client.transitions import Transition as Transition
    from proctor.client.vector_env import RemoteVectorEnv as RemoteVectorEnv
    from proctor.models.grants import GrantWish as GrantWish

_HOMES = {
    "Connection": "client.connection",
    "EnvClient": "client.env_client",
    "GenericClient": "client.generic_client",
    "Grant": "client.grants",
    "GrantWish": "models.grants",
    "JsonAction": "client.generic_client",
    "JsonObservation": "client.generic_client",
    "JsonState": "client.generic_client",
    "OperatorClient": "client.operator",
    "RemoteEnv": "client.gym_env",
    "RemoteVectorEnv": "client.vector_env",
    "Settings": "client.settings",
    "SyncEnvClient": "client.blocking",
    "Transition": "client.transitions",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605  # read from the table of lazy names


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'proctor.client' has no attribute {name!r}")
    return getattr(import_module(f"proctor.{_HOMES[name]}"), name)
