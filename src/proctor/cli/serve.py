"""`proctor serve`: an environment behind a control plane, and its tools behind an agent plane.

Rule 1: what the command line says beats the file of settings, which beats the defaults.
Rule 2: the credential is shown when it is made, and never again; a client's snippet names where it is kept.
Rule 3: an option is called as its setting (`server/settings.py`); those of the table `storage` have a row in `STORAGE`.
"""

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer
from rich.console import Console
from rich.text import Text

from proctor.access.credentials import (
    CONTROL,
    LEDGER_KEY,
    OPERATOR,
    CredentialKind,
    ServerCredential,
    default_state_file,
    find_credential,
)
from proctor.access.redaction import Redactor
from proctor.access.request_policy import HIGHEST_PORT, PAGE_PATH, Visits
from proctor.cli.options import load_signing_key
from proctor.cli.output import printable
from proctor.envs import settings as env_settings
from proctor.errors import ValidationError
from proctor.server.logs import set_up_logs
from proctor.server.net.uvicorn_server import bind_remembered_port, bind_unix, port_of
from proctor.server.settings import ServerSettings, parse_settings, read_settings_file


def serve(
    target: Annotated[str | None, typer.Argument(metavar="ID|MODULE:NAME", help="What to serve.")] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file with settings.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", "-s", help="KEY=VALUE for the environment.")] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on [127.0.0.1].")] = None,
    port: Annotated[int | None, typer.Option(help="The port; 0 takes any that is free [8000].")] = None,
    unix_socket: Annotated[Path | None, typer.Option(help="Listen on a Unix socket instead.")] = None,
    insecure: Annotated[bool | None, typer.Option("--insecure", help="No credential; for loopback only.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="A file (0600) that holds the credential.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that share the address [1].")] = None,
    max_sessions: Annotated[int | None, typer.Option(help="Sessions at once, in each worker [1024].")] = None,
    agent_port: Annotated[int | None, typer.Option(help="Serve agents (MCP) on this port, too; 0: any.")] = None,
    agent_url: Annotated[str | None, typer.Option(help="What agents are told to connect to, if another.")] = None,
    sandbox: Annotated[
        str | None, typer.Option(help="auto, none, process, bwrap, strict or docker: how environments are kept apart.")
    ] = None,
    mounts: Annotated[list[str] | None, typer.Option("--mount", help="PATH or PATH:rw that a sandbox sees.")] = None,
    network: Annotated[
        bool | None, typer.Option("--network", help="Give containers (--sandbox docker) a network.")
    ] = None,
    image: Annotated[
        str | None, typer.Option(help="For --sandbox docker: an image with Proctor and the environment.")
    ] = None,
    place: Annotated[str | None, typer.Option(help="auto, inline or thread: where steps run without sandbox.")] = None,
    step_timeout_seconds: Annotated[
        float | None, typer.Option("--step-timeout", help="Seconds that a step may take; 0: no limit [60].")
    ] = None,
    grace_seconds: Annotated[
        float | None, typer.Option("--grace", help="Seconds that a session waits for its client [60].")
    ] = None,
    idle_seconds: Annotated[
        float | None, typer.Option("--idle", help="Seconds after which an unused session ends; 0: never [3600].")
    ] = None,
    record: Annotated[Path | None, typer.Option(help="Write every event to this file, a line each.")] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="Keep the ledger in this folder; sessions survive a crash.")
    ] = None,
    durability: Annotated[str | None, typer.Option(help="full, normal or off: what a reply waits for [full].")] = None,
    observations: Annotated[
        str | None, typer.Option(help="all or digest: what the ledger keeps of them [all].")
    ] = None,
    max_step_bytes: Annotated[
        int | None, typer.Option(help="Bytes on record of one step; 0: no limit [16777216].")
    ] = None,
    max_episode_bytes: Annotated[
        int | None, typer.Option(help="Bytes on record of one episode; 0: no limit [1073741824].")
    ] = None,
    max_packet_bytes: Annotated[
        int | None, typer.Option(help="Bytes of one packet of a governed agent [65536].")
    ] = None,
    min_free_bytes: Annotated[
        int | None, typer.Option(help="Bytes that stay free on the record's disk [5 % of it, at most 512 MiB].")
    ] = None,
    governed: Annotated[
        str | None, typer.Option(metavar="POLICY", help="Govern agents: open, standard, strict, or a TOML file.")
    ] = None,
    operator_token_file: Annotated[Path | None, typer.Option(help="A file (0600) with the operator's.")] = None,
    allow_hosts: Annotated[list[str] | None, typer.Option("--allow-host", help="Another name of this server.")] = None,
    allow_origins: Annotated[list[str] | None, typer.Option("--allow-origin", help="A page that may connect.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error [info].")] = None,
    log_json: Annotated[bool | None, typer.Option("--log-json", help="Log one JSON object a line.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the addresses as one line of JSON.")] = False,
) -> None:
    """Serve an environment to orchestrators over a WebSocket, until interrupted."""
    # Every option is called as the setting that it sets; what was not given is None or empty.
    given = {name: value for name, value in locals().items() if value is not None and value != []}
    del given["as_json"]
    server = _make_settings(given.pop("config", None), given)
    redactor = Redactor()
    set_up_logs(server, redactor)
    control, operator = None, None
    if not server.insecure:
        control = _find_credential(CONTROL, server.token_file, redactor)
    if server.governed is not None or server.has_viewer:
        operator = _find_credential(OPERATOR, server.operator_token_file, redactor)
    seed = None
    if server.ledger is not None:
        seed = load_signing_key().seed
        os.environ.pop(LEDGER_KEY.variable, None)
    raise typer.Exit(_run_server(server, control, operator, seed, as_json=as_json))


STORAGE: Final = ("max_step_bytes", "max_episode_bytes", "max_packet_bytes", "min_free_bytes")
"""The options that are settings of the table `storage`."""


def _make_settings(config: Path | None, given: dict[str, Any]) -> ServerSettings:
    values = {} if config is None else read_settings_file(config)
    storage = {name: given.pop(name) for name in STORAGE if name in given}
    if "settings" in given:
        given["settings"] = env_settings.parse_settings(given["settings"])
    values.update(given)
    if storage:
        # A table of the file keeps what the command line does not say; one that is no table is refused below.
        table = values.get("storage", {})
        values["storage"] = {**table, **storage} if isinstance(table, dict) else table
    if "target" not in values:
        raise ValidationError("nothing to serve", expected="an id, a class or module:factory")
    return parse_settings(values)


def _find_credential(kind: CredentialKind, file: Path | None, redactor: Redactor) -> ServerCredential:
    found = find_credential(kind, os.environ, file, default_state_file(os.environ, kind), hide=redactor.hide)
    # Environments are somebody else's code: what they run in need not know it.
    os.environ.pop(kind.variable, None)
    return found


def _run_server(
    settings: ServerSettings,
    control: ServerCredential | None,
    operator: ServerCredential | None,
    seed: bytes | None,
    *,
    as_json: bool,
) -> int:
    from proctor.server.app import Keys, Listening, Server, run

    keys = Keys(
        None if control is None else control.credential, None if operator is None else operator.credential, seed
    )
    agents = None if settings.agent_port is None else _open_agent_listeners(settings)
    if settings.unix_socket is None:
        listener = bind_remembered_port(settings.ledger, "control", settings.host, settings.port)
    elif settings.workers > 1:
        raise ValidationError("workers need addresses of their own", expected="a TCP port, or one worker")
    else:
        listener = bind_unix(settings.unix_socket)
    visits = Visits(clock=time.monotonic) if settings.has_viewer else None
    announce = _print_json if as_json else _print_announcement

    def ready(tier: str) -> None:
        url = _http_url(settings, listener)
        if settings.unix_socket is not None:
            url = f"unix://{settings.unix_socket.absolute()}"
        planes = [f"{_http_url(settings, each)}/mcp" for each in agents or ()]
        viewer = None if visits is None else f"{url}{PAGE_PATH}#code={visits.code()}"
        announce(Announcement(settings, control, operator, url, planes, viewer, tier))

    try:
        if settings.workers > 1:
            from proctor.server.workers import run_workers

            return run_workers(settings, keys, listener, agents, ready)
        listening = Listening([listener], agents=None if agents is None else agents[0])
        run(lambda: Server(settings, keys, listening, visits=visits), ready)
        return 0
    except KeyboardInterrupt:
        return 0
    finally:
        for each in (listener, *(agents or ())):
            each.close()
        if settings.unix_socket is not None:
            settings.unix_socket.unlink(missing_ok=True)


def _open_agent_listeners(settings: ServerSettings) -> list[socket.socket]:
    """Return a socket for each worker: a grant is good in the worker that gave it, and names its address."""
    first = settings.agent_port or 0
    if first + settings.workers - 1 > HIGHEST_PORT:
        raise ValidationError("not enough ports for all workers", found=first, expected="a lower agent port, or 0")
    return [
        bind_remembered_port(settings.ledger, f"agents-{index}", settings.host, first + index if first else 0)
        for index in range(settings.workers)
    ]


def _http_url(settings: ServerSettings, listener: socket.socket) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{port_of(listener)}"


class Announcement(NamedTuple):
    """Where the server is, how to get in, and how environments are kept apart."""

    settings: ServerSettings
    control: ServerCredential | None
    operator: ServerCredential | None
    url: str
    agents: list[str]
    viewer: str | None
    tier: str


def _print_json(said: Announcement) -> None:
    settings, control, operator = said.settings, said.control, said.operator
    document = {
        "target": settings.target,
        "url": said.url,
        "websocket": None if settings.unix_socket is not None else f"ws{said.url.removeprefix('http')}/ws",
        "insecure": settings.insecure,
        "credential": None if control is None else control.source,
        "credential_file": _file_of(control),
        "token": None if control is None else control.secret,
        "workers": settings.workers,
        "pid": os.getpid(),
        "agents": said.agents,
        "sandbox": said.tier,
        "operator": None if operator is None else {"credential_file": _file_of(operator), "token": operator.secret},
        "ledger": None if settings.ledger is None else str(settings.ledger),
        "viewer": said.viewer,
    }
    typer.echo(json.dumps(document))
    sys.stdout.flush()


def _file_of(found: ServerCredential | None) -> str | None:
    return None if found is None or found.path is None else str(found.path)


def _print_announcement(said: Announcement) -> None:
    settings = said.settings
    console = Console(highlight=False, soft_wrap=True)
    console.print(Text.assemble("proctor serves ", (settings.target, "bold"), " at ", (said.url, "bold cyan")))
    console.print(_describe_credential(said.control))
    if said.agents:
        console.print(Text.assemble("agents, with a grant: ", (", ".join(said.agents), "bold cyan")))
    if said.operator is not None:
        governed = "" if settings.governed is None else f"governed by {settings.governed}; "
        where = f"{governed}the operator's credential is in {_file_of(said.operator) or OPERATOR.variable}"
        once = "" if said.operator.secret is None else ", shown this once: "
        console.print(Text.assemble(where, once, (said.operator.secret or "", "bold yellow")))
    if settings.ledger is not None:
        ledger = printable(str(settings.ledger))
        console.print(Text.assemble("ledger: ", (ledger, "bold"), f" (durability {settings.durability})"))
        if said.viewer is None:
            console.print(Text(f"pages: `proctor view {ledger}` shows what is in it"))
        else:
            words = "pages, once with this address (`proctor operator link` gives another): "
            console.print(Text.assemble(words, (said.viewer, "bold cyan")))
    console.print(Text.assemble("sandbox: ", (said.tier, "bold"), " (`proctor doctor` shows what that blocks)"))
    console.print(Text(f"\n{_snippet(said.control, said.url)}\n", style="dim"))
    console.print("Ctrl-C stops it.")
    # At once, so that whoever started the server can read it.
    sys.stdout.flush()


def _describe_credential(found: ServerCredential | None) -> Text:
    if found is None:
        insecure = "no credential: every process on this machine can reset and step these environments"
        return Text.assemble(("insecure: ", "bold red"), insecure)
    where = _file_of(found) or CONTROL.variable
    if found.secret is None:
        return Text(f"credential: as kept in {where}")
    return Text.assemble(f"credential (shown this once, kept in {where}): ", (found.secret, "bold yellow"))


def _snippet(found: ServerCredential | None, url: str) -> str:
    imports, token = "", ""
    if found is not None and found.path is not None:
        imports, token = "from pathlib import Path\n", f', token=Path("{found.path}").read_text().strip()'
    elif found is not None:
        imports, token = "import os\n", f', token=os.environ["{CONTROL.variable}"]'
    return (
        f"{imports}from proctor.client import RemoteEnv\n\n"
        f'env = RemoteEnv("{url}"{token})\n'
        "observation, info = env.reset(seed=1)\n"
        "observation, reward, terminated, truncated, info = env.step(env.action_space.sample())"
    )
