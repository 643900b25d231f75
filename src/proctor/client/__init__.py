"""The client: typed sessions on a server's control plane, and remote Gymnasium environments.

Names are resolved when first used: a typed client needs neither Gymnasium nor numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proctor.client.agents import Grant as Grant
    from proctor.client.agents import Transition as Transition
    from proctor.client.blocking import SyncEnvClient as SyncEnvClient
    from proctor.client.connection import Connection as Connection
    from proctor.client.connection import ConnectionSettings as ConnectionSettings
    from proctor.client.env_client import EnvClient as EnvClient
    from proctor.client.env_client import GenericClient as GenericClient
    from proctor.client.env_client import JsonAction as JsonAction
    from proctor.client.env_client import JsonObservation as JsonObservation
    from proctor.client.env_client import JsonState as JsonState
    from proctor.client.operator import OperatorClient as OperatorClient
    from proctor.client.remote_envs import RemoteEnv as RemoteEnv
    from proctor.client.remote_envs import RemoteVectorEnv as RemoteVectorEnv
    from proctor.models.control import GrantWish as GrantWish

_HOMES = {
    "Connection": "client.connection",
    "ConnectionSettings": "client.connection",
    "EnvClient": "client.env_client",
    "GenericClient": "client.env_client",
    "Grant": "client.agents",
    "GrantWish": "models.control",
    "JsonAction": "client.env_client",
    "JsonObservation": "client.env_client",
    "JsonState": "client.env_client",
    "OperatorClient": "client.operator",
    "RemoteEnv": "client.remote_envs",
    "RemoteVectorEnv": "client.remote_envs",
    "SyncEnvClient": "client.blocking",
    "Transition": "client.agents",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605  # read from the table of lazy names


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'proctor.client' has no attribute {name!r}")
    return getattr(import_module(f"proctor.{_HOMES[name]}"), name)
