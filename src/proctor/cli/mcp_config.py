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

NAME: Final = "proctor"
DEFAULT_GRANT: Final = Path("grant.json")


class Client(StrEnum):
    """Whose configuration."""

    CLAUDE = "claude"
    VSCODE = "vscode"
    CURSOR = "cursor"


FILES: Final = {
    Client.CLAUDE: "claude_desktop_config.json, or .mcp.json in a project",
    Client.VSCODE: ".vscode/mcp.json",
    Client.CURSOR: ".cursor/mcp.json",
}


def mcp_config(
    client: Annotated[Client, typer.Option(help="Whose configuration.")],
    grant: Annotated[
        Path, typer.Option(metavar="FILE", help="The file in which an orchestrator saves the grant.")
    ] = DEFAULT_GRANT,
) -> None:
    """Print the configuration with which a desktop client uses the tools of a grant."""
    with standard_output() as output:
        output.write((json.dumps(configuration(client, command(grant)), indent=2) + "\n").encode())
    typer.echo(f"to be merged into {FILES[client]}", err=True)


def configuration(client: Client, words: list[str]) -> dict[str, Any]:
    """Return a client's configuration for an MCP server that is started with these words."""
    server = {"command": words[0], "args": words[1:]}
    if client is Client.VSCODE:
        return {"servers": {NAME: {"type": "stdio", **server}}}
    return {"mcpServers": {NAME: server}}


def command(grant: Path) -> list[str]:
    """Return the command; absolute, because a desktop client has another folder and another PATH."""
    found = shutil.which("proctor", path=str(Path(sys.executable).parent)) or shutil.which("proctor")
    program = [sys.executable, "-m", "proctor"] if found is None else [str(Path(found).absolute())]
    return [*program, "mcp", "--grant", str(grant.absolute())]
