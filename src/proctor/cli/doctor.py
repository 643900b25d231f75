"""`proctor doctor`: what each tier of the sandbox really blocks on this host, tried and not guessed."""

import json
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from proctor.server.sandbox.attacks import SandboxProbe
from proctor.server.sandbox.probe import ProbeVerdict, SandboxReport, find_next_tier, full_report, strongest
from proctor.server.sandbox.tiers import Tier

BROKEN: Final = "bold red"
STYLES: Final = {ProbeVerdict.BLOCKED: "green", ProbeVerdict.OPEN: "yellow", ProbeVerdict.UNPROVEN: "magenta"}


def doctor(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print everything as JSON, with a sentence per probe.")
    ] = False,
) -> None:
    """Try on this host what each tier of the sandbox blocks, and say which one `proctor serve` would choose."""
    with Console(stderr=True).status("trying what each tier blocks"):
        report = full_report()
    if as_json:
        typer.echo(json.dumps({"strongest": str(strongest(report)), **msgspec.to_builtins(report)}, indent=2))
        return
    console = Console(highlight=False)
    console.print(_probe_table(report), "", _tier_table(report), "", _conclusion(report), sep="\n")


def _probe_table(report: SandboxReport) -> Table:
    """Return what came of every probe: tiers as columns; a promise that is not kept stands out."""
    tiers = (Column(str(found.tier), no_wrap=True) for found in report.tiers)
    first = Column("what is tried", style="cyan", no_wrap=True)
    table = Table(first, *tiers, Column(style="dim"), box=None, padding=(0, 2, 0, 0))
    for probe in SandboxProbe:
        cells = []
        for found in report.tiers:
            finding = found.of(probe)
            broken = finding in found.find_faults()
            style = BROKEN if broken else STYLES[finding.verdict]
            cells.append(Text(f"{finding.verdict}{'!' if broken else ''}", style))
        table.add_row(str(probe), *cells, probe.about)
    return table


def _tier_table(report: SandboxReport) -> Table:
    table = Table.grid(Column(style="bold", no_wrap=True), Column(), padding=(0, 2, 0, 0))
    for found in report.tiers:
        words = Text(found.tier.about)
        if not found.holds():
            words.append(" Not to be had here.", BROKEN)
        if found.note is not None:
            words.append(f" Here {found.note}.", STYLES[ProbeVerdict.OPEN])
        table.add_row(str(found.tier), words)
    engines = " and ".join(report.host.engines) or "neither docker nor podman"
    table.add_row(str(Tier.DOCKER), f"{Tier.DOCKER.about} Only by name; {engines} can be called here.")
    return table


def _conclusion(report: SandboxReport) -> Text:
    host = report.host
    words = Text(f"`proctor serve` chooses {strongest(report)} on this host.\n", style="bold")
    missing = find_next_tier(report)
    if missing is not None:
        words.append(f"For {missing[0]}: {missing[1]}.\n", BROKEN)
    # Why there are none stands above, with what is missing.
    cgroups = host.cgroups if host.cgroups.startswith("version") else "none for this user"
    return words.append(
        f"Linux {host.kernel} on {host.architecture}, {'as root' if host.root else 'not as root'}; bubblewrap: "
        f"{host.bubblewrap or 'none'}; cgroups: {cgroups}; user namespaces: {host.user_namespaces}.",
        "dim",
    )
