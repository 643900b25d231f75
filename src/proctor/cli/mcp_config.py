"""`proctor mcp-config`: what to write into a desktop client's configuration, so that it starts `proctor mcp`.

Rule: the configuration names the grant's file and never a token: clients keep such files readable, copy and sync them.
"""

import json
import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from proctor.cli.output import standard_output

SERVER_NAME: Final = "proctor"
DEFAULT_GRANT: Final = Path("grant.json")


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
    ] = DEFAULT_GRANT,
) -> None:
    """Print the configuration with which a desktop client uses the tools of a grant."""
    with standard_output() as output:
        output.write((json.dumps(configuration(client, bridge_command(grant)), indent=2) + "\n").encode())
    typer.echo(f"to be merged into {CONFIG_FILES[client]}", err=True)


def configuration(client: DesktopClient, words: list[str]) -> dict[str, Any]:
    """Return a client's configuration for an MCP server that is started with these words."""
    server = {"command": words[0], "args": words[1:]}
    if client is DesktopClient.VSCODE:
        return {"servers": {SERVER_NAME: {"type": "stdio", **server}}}
    return {"mcpServers": {SERVER_NAME: server}}


def bridge_command(grant: Path) -> list[str]:
    """Return the command; absolute, because a desktop client has another folder and another PATH."""
    found = shutil.which("proctor", path=str(Path(sys.executable).parent)) or shutil.which("proctor")
    program = [sys.executable, "-m", "proctor"] if found is None else [str(Path(found).absolute())]
    return [*program, "mcp", "--grant", str(grant.absolute())]
