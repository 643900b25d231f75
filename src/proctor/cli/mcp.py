"""`proctor mcp`: a desktop client's MCP server, which is an agent plane at the other end of a grant.

Rule: standard output belongs to the protocol; whatever is wrong is said on standard error, before the first message.
"""

from pathlib import Path
from typing import Annotated

import typer

from proctor.bridge.grant_file import read_grant


def mcp(
    grant: Annotated[
        Path, typer.Option(metavar="FILE", help="The file (0600) in which an orchestrator saved the grant.")
    ],
) -> None:
    """Carry MCP messages between standard input and output and the agent plane that a grant opens."""
    key = read_grant(grant)
    from proctor.bridge.stdio import bridge

    bridge(key)
