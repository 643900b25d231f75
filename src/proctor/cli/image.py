"""`proctor image`: a container image with this Python, Proctor and an environment, for `proctor serve --sandbox docker`.

Rule 1: nothing is downloaded, and nothing of the environment runs on this machine: it is tried in a container.
Rule 2: standard output has the image's name and size; progress and warnings go to standard error.
"""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.text import Text

from proctor.cli.output import printable
from proctor.cli.terminal import progress_bar
from proctor.envs.settings import parse_settings
from proctor.envs.targets import Target
from proctor.errors import ComponentError, ProctorError
from proctor.server.sandbox.container.container_pool import ContainerPool
from proctor.server.sandbox.container.engine import Engine
from proctor.server.sandbox.container.image import (
    BuiltImage,
    ImageContents,
    ImageRequest,
    build_image,
    collect_contents,
)
from proctor.server.sandbox.tiers import Mount, SandboxRequest, Tier


def image(
    target: Annotated[str, typer.Argument(metavar="ID|MODULE:NAME", help="What the image is for.")],
    tag: Annotated[str | None, typer.Option(metavar="NAME", help="The image's name [proctor-env:<id>-<hash>].")] = None,
    base: Annotated[
        str | None, typer.Option(metavar="IMAGE", help="Build on top of this image [an empty one].")
    ] = None,
    engine: Annotated[str | None, typer.Option(help="docker or podman [the first that answers].")] = None,
    mount: Annotated[
        list[str] | None, typer.Option(metavar="PATH", help="A file or folder that goes into the image, at its place.")
    ] = None,
    beside: Annotated[
        list[str] | None, typer.Option("--with", metavar="NAME", help="A distribution to take along, such as scipy.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE.tar", help="Write a file for `load`, load nothing.")] = None,
    attempt: Annotated[bool, typer.Option("--try/--no-try", help="Make the environment in a container.")] = True,
    setting: Annotated[list[str] | None, typer.Option("--set", "-s", help="KEY=VALUE, to try it with.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Build a container image of this Python, Proctor and an environment, from scratch and without a registry."""
    wish = ImageRequest(target, tag, base, tuple(map(Mount.parse, mount or ())), tuple(beside or ()))
    tried = Target(target, parse_settings(setting or []))
    # Asked for before the work begins; a file can be written without one.
    found = None if out is not None and base is None else Engine.find(engine)
    contents = collect_contents(wish)
    with progress_bar("files", len(contents.tree), quiet=as_json) as shown:
        built = build_image(wish, contents, found, out, shown.advance)
    if found is not None and out is None and attempt:
        _try_image(built, tried, found)
    if as_json:
        typer.echo(json.dumps(_document(wish, contents, built, out)))
    else:
        _print_image(wish, contents, built, out)


def _try_image(built: BuiltImage, target: Target, engine: Engine) -> None:
    """Make the environment once in a container of the image; if that fails, say so, and that the image is there."""
    pool = ContainerPool.start(target, SandboxRequest(Tier.DOCKER), built.name, engine)
    try:
        pool.card()
    except ProctorError as problem:
        raise ComponentError(
            f"the image {built.name} is there, but {target.text} could not be made in it: {problem}",
            expected="what it needs, by --with NAME or --mount PATH; or --set KEY=VALUE, or --no-try",
        ) from None
    finally:
        pool.end()


def _document(wish: ImageRequest, contents: ImageContents, built: BuiltImage, out: Path | None) -> dict[str, Any]:
    return {
        "target": wish.target,
        "image": built.name,
        "id": built.digest,
        "bytes": built.size,
        "files": len(contents.tree),
        "base": wish.base,
        "file": None if out is None else str(out),
        "missing": list(contents.missing),
    }


def _print_image(wish: ImageRequest, contents: ImageContents, built: BuiltImage, out: Path | None) -> None:
    if contents.missing:
        warning = f"required and not found on this machine: {', '.join(contents.missing)}"
        Console(stderr=True, highlight=False, soft_wrap=True).print(Text(warning, style="yellow"))
    console = Console(highlight=False, soft_wrap=True)
    size = f"  {decimal(built.size)} in {len(contents.tree):,} files" + (f" on top of {wish.base}" if wish.base else "")
    console.print(Text.assemble((built.name, "bold"), size))
    if out is not None:
        console.print(printable(f"It is in {out}: docker load --input {out}"), markup=False)
    console.print(
        printable(f"proctor serve {wish.target}") + f" --sandbox docker --image {built.name}", style="dim", markup=False
    )
