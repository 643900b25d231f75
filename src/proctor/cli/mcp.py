"""`proctor mcp`: a desktop client's MCP server, which is an agent plane at the other end of a grant; `proctor mcp-config`: how it starts that.

Rule 1: standard output belongs to the protocol; whatever is wrong is said on standard error, before the first message.
Rule 2: the configuration names the grant's file and never a token: clients keep such files readable, copy and sync them.
"""

import json
import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from proctor.cli.output import standard_output


def mcp(
    grant: Annotated[
        Path, typer.Option(metavar="FILE", help="The file (0600) in which an orchestrator saved the grant.")
    ],
) -> None:
    """Carry MCP messages between standard input and output and the agent plane that a grant opens."""
    from proctor.bridge import bridge, read_grant

    bridge(read_grant(grant))


class DesktopClient(StrEnum):
    """Whose configuration."""

    CLAUDE = "claude"
    VSCODE = "vscode"
    CURSOR = "cursor"


CONFIG_FILES: Final = {
    DesktopClient.CLAUDE: "claude_desktop_config.json, or .mcp.json in a project",
    DesktopClient.VSCODE: ".vscode/mcp.json",
    DesktopClient.CURSOR: ".cursor/mcp.json",
}


def mcp_config(
    client: Annotated[DesktopClient, typer.Option(help="Whose configuration.")],
    grant: Annotated[
        Path, typer.Option(metavar="FILE", help="The file in which an orchestrator saves the grant.")
    ] = Path("grant.json"),
) -> None:
    """Print the configuration with which a desktop client uses the tools of a grant."""
    with standard_output() as output:
        output.print(json.dumps(configuration(client, bridge_command(grant)), indent=2) + "\n")
    typer.echo(f"to be merged into {CONFIG_FILES[client]}", err=True)


def configuration(client: DesktopClient, words: list[str]) -> dict[str, Any]:
    """Return a client's configuration for an MCP server that is started with these words."""
    server = {"command": words[0], "args": words[1:]}
    if client is DesktopClient.VSCODE:
        return {"servers": {"proctor": {"type": "stdio", **server}}}
    return {"mcpServers": {"proctor": server}}


def bridge_command(grant: Path) -> list[str]:
    """Return the command; absolute, because a desktop client has another folder and another PATH."""
    found = shutil.which("proctor", path=str(Path(sys.executable).parent)) or shutil.which("proctor")
    program = [sys.executable, "-m", "proctor"] if found is None else [str(Path(found).absolute())]
    return [*program, "mcp", "--grant", str(grant.absolute())]
