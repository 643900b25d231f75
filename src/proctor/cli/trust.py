"""The option `--trust` of the commands that make an environment which a record names.

Rule: without it nothing is made that is not registered here (`replay/trust.py`), and the error says which command does so.
"""

import shlex
from typing import Annotated, TypeAlias

import typer

TrustOption: TypeAlias = Annotated[
    bool, typer.Option("--trust", help="Import and run whatever environment the record names.")
]


def trusting_command(context: typer.Context) -> str:
    """Return the command line that runs now, with `--trust`."""
    path = context.command_path.split()
    # What was typed after `proctor COMMAND`; of a command with commands of its own the first word is one of these.
    typed = (context.find_root().obj or ())[len(path) - 2 :]
    return shlex.join([*path, "--trust", *typed])
