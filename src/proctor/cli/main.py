"""The command `proctor`: one row per command, and the only place where an exception becomes a message.

Rule 1: a command's module is imported when the command is called; `proctor --help` imports none of them.
Rule 2: a mistake of the user is one red line on standard error and the exit code 2, never a traceback. The environment
    variable PROCTOR_TRACEBACK=1 shows the traceback all the same.
Rule 3: standard output is for results; progress and errors go to standard error.
"""

import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires
from typing import Annotated, Final

import typer

from proctor import __version__
from proctor.cli.output import make_app, print_note
from proctor.errors import MissingExtraError, ProctorError

# What Python raises for a size that was asked for and that nothing refused.
TOO_LARGE: Final = (MemoryError, OverflowError)
# How a library that typer asks begins its sentences about a value, and how we do.
_OURS: Final = {": Value error, ": ": ", ": Input should ": ": it should "}
# A requirement of an extra, as a distribution's metadata writes it.
_EXTRA: Final = re.compile(r"""(?P<package>[\w-]+).*;.*\bextra == ['"](?P<extra>[\w-]+)['"].*""")
# Typer brings its own copy of click or not, as its version goes; what it raises for bad usage is this, either way.
UsageError: Final[type[Exception]] = typer.BadParameter.__bases__[0]


@dataclass(frozen=True, slots=True)
class Command:
    """A command by name: what is called `name`, with _ for -, in the module `proctor.cli.<module>`, `name` if none is said.

    That is a function, or a typer application where the command has commands of its own.
    """

    name: str
    about: str
    module: str = ""


COMMANDS: Final = (
    Command("envs", "List what there is: ids, spaces, options, parts, policies."),
    Command("run", "Run policies for some episodes and print a table."),
    Command("check", "Check an environment or a part against its contract."),
    Command("play", "Play an environment yourself, in the terminal."),
    Command("serve", "Serve an environment to orchestrators and to agents."),
    Command("doctor", "Try what each sandbox really blocks on this machine."),
    Command("mcp", "Bring a desktop client to an agent's grant, over stdio."),
    Command("mcp-config", "Print the configuration that a desktop client needs for that.", "mcp"),
    Command("operator", "Answer, stop and watch the agents of governed episodes."),
    Command("ledger", "List, show, verify and export what is on record."),
    Command("view", "Look at the episodes of a ledger in a browser."),
    Command("replay", "Drive an environment again from the record, and compare."),
    Command("export", "Write an episode as a page, one file that opens from disk.", "view"),
    Command("judge", "Judge streams of packets: what was legal, and why not."),
    Command("diagram", "Draw the machine of packets, or an episode's walk.", "judge"),
    Command("schema", "Write the JSON Schemas of packets and records."),
    Command("demo", "Watch a governed agent, then prove and replay what it did."),
)

app = make_app("Reinforcement-learning environments under contract.")


@app.callback(
    epilog="PROCTOR_TRACEBACK=1 in the environment shows where an error came from.", invoke_without_command=True
)
def proctor(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Reinforcement-learning environments under contract."""
    if version:
        typer.echo(f"proctor {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _make_callback(command: Command) -> Callable[[typer.Context], None]:
    """Return a function that hands the rest of the command line to the command's own module."""

    def call(context: typer.Context) -> None:
        name = command.name.replace("-", "_")
        found = getattr(import_module(f"proctor.cli.{command.module or name}"), name)
        typed = tuple(context.args)
        own = found
        if not isinstance(found, typer.Typer):
            own = make_app()
            own.command(help=found.__doc__)(found)
        elif not typed:
            typed = ("--help",)
        # What was typed is also the command's object: an error may say how to repeat it.
        code = own(list(typed), prog_name=f"proctor {command.name}", standalone_mode=False, obj=typed)
        raise typer.Exit(code or 0)

    return call


for _command in COMMANDS:
    # The rest is not parsed here: every option, `--help` too, belongs to the command.
    app.command(
        _command.name,
        help=_command.about,
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False},
    )(_make_callback(_command))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (that of the process by default) and return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code: int | None = app(given, prog_name="proctor", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    # The entry file: whatever is the user's mistake becomes a message here, and all else goes on as it came.
    except Exception as problem:
        if isinstance(problem, ModuleNotFoundError):
            problem = _name_extra(problem, given)
        # Gymnasium is judged only if it is there.
        gymnasium = sys.modules.get("gymnasium")
        theirs = (gymnasium.error.Error,) if gymnasium is not None else ()
        is_user_error = isinstance(problem, (ProctorError, UsageError, *TOO_LARGE, *theirs))
        if os.environ.get("PROCTOR_TRACEBACK") == "1" or not is_user_error:
            raise problem
        words = " ".join(_describe_error(problem).split())
        print_note(f"proctor: {words}", style="red")
        return 2
    return code or 0


def _name_extra(problem: ModuleNotFoundError, given: Sequence[str]) -> Exception:
    """Return the error that says which extra brings what is missing; one that no extra brings stays what it is."""
    package = (problem.name or "").partition(".")[0].replace("_", "-")
    try:
        wanted = requires("proctor-rl") or []
    except PackageNotFoundError:  # run from a folder of sources
        return problem
    for requirement in wanted:
        found = _EXTRA.fullmatch(requirement)
        # The last two are sums of others.
        if found is not None and found["package"] == package and found["extra"] not in ("all", "dev"):
            what = f"proctor {given[0]}" if given else "this"
            return MissingExtraError(what, package=package, extra=found["extra"])
    return problem


def _describe_error(problem: Exception) -> str:
    if isinstance(problem, UsageError):
        text: str = problem.format_message()  # type: ignore[attr-defined]  # typer has no public name for this class
        return re.sub("|".join(_OURS), lambda found: _OURS[found[0]], text)
    if isinstance(problem, TOO_LARGE):
        return f"too large for this machine: {str(problem) or type(problem).__name__}"
    return str(problem)
