"""OpenEnv's own server with the echo: `python -m bench.peer_openenv_server PORT`, in the environment of OpenEnv.

It is started as OpenEnv's pages say, with `create_app` and uvicorn; only the number of sessions is raised.
"""

import sys

import uvicorn
from openenv.core.env_server import create_app

from bench.peer_openenv_env import EchoAction, EchoObservation, served

SESSIONS = 512


def main(port: str) -> None:
    """Serve until ended."""
    app = create_app(served(), EchoAction, EchoObservation, env_name="echo", max_concurrent_envs=SESSIONS)
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main(*sys.argv[1:])
