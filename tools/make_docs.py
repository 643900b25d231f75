"""Writes the pages of docs/ that are made from tables in the code; `--check` only says which are stale."""

import ast
import inspect
import sys
from collections.abc import Callable, Collection, Iterator
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.inspect import Field, FloatType, IntType, ListType, StructType, Type, UnionType, type_info

from proctor.contracts.clauses import CLAUSES
from proctor.contracts.lifecycle import TABLE, EnvironmentState, diagram, reachable
from proctor.envs.plume.config import ComponentKind, component_types
from proctor.episode.diagram import draw_machine, rows_everywhere
from proctor.episode.rules.catalogue import CATALOGUE
from proctor.episode.transition_table import STATES, Guard, Position, TableOption, TransitionRow
from proctor.episode.transition_table import TABLE as TRANSITIONS
from proctor.models import control
from proctor.server.control.protocol import RULES, RequestRule

DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
NOTE: Final = "<!-- Made by `make docs`; edit the table in the code, not this page. -->\n"
AnyStruct = type[msgspec.Struct]


def lifecycle_page() -> str:
    """Return the page about states and transitions."""
    rows = "".join(
        f"| {row.source} | `{row.method}()` | {row.target or 'StateError'} | {row.when or ''} | {row.rule} |\n"
        for row in TABLE
    )
    reach = "".join(
        f"- from {state}: {', '.join(sorted(reachable(state) - {state})) or 'nothing else'}\n"
        for state in EnvironmentState
    )
    return (
        f"{NOTE}\n# The lifecycle of an environment\n\n"
        "Every environment stands in one of five states, and one table says which call is legal in which. The table is\n"
        "`src/proctor/contracts/lifecycle.py`; the guard of every environment, this page and the tests are made from it.\n"
        "A refused call raises a `StateError` that names the rule, and changes nothing.\n\n"
        f"```mermaid\n{diagram()}```\n\n"
        f"| from | call | to | when | rule |\n|---|---|---|---|---|\n{rows}\n"
        "A step that both reaches the goal and uses up the last step sets both flags; the state is terminated.\n\n"
        f"## What one call can lead to\n\n{reach}"
    )


def clauses_page() -> str:
    """Return the page that lists every clause by its subject."""
    text = (
        f"{NOTE}\n# Clauses\n\n"
        "Every sentence of the contracts has an id. Errors name the clause that was broken, `proctor check` judges each\n"
        "of them, and each has a test that keeps it and one that breaks it.\n"
    )
    for subject, clauses in groupby(
        sorted(CLAUSES.values(), key=lambda clause: clause.subject), lambda clause: clause.subject
    ):
        rows = "".join(f"| {clause.id} | {clause.sentence} |\n" for clause in clauses)
        text += f"\n## {subject.capitalize()}\n\n| id | sentence |\n|---|---|\n{rows}"
    return text


def components_page() -> str:
    """Return the page that lists the component types with their options."""
    text = (
        f"{NOTE}\n# Component types\n\n"
        "What a configuration of plume search can name, with every option and its default; one without a default must be\n"
        "given. A reward's `goal_radius` is the environment's unless it is set. `proctor envs` prints the same.\n"
    )
    for kind in ComponentKind:
        text += f"\n## {kind}\n\n| type | options |\n|---|---|\n"
        for name, options in component_types(kind).items():
            shown = ", ".join(f"`{key}`" + ("" if value is ... else f" = {value!r}") for key, value in options.items())
            text += f"| `{name}` | {shown or 'none'} |\n"
    return text


REPLIES: Final[dict[str, tuple[tuple[str, AnyStruct | None], ...]]] = {
    "hello": (("hello", control.Welcome),),
    "open": (("opened", control.Opened),),
    "resume": (("resumed", control.Resumed),),
    "reset": (("observation", control.ObservationReply), ("batch", control.BatchReply)),
    "step": (("observation", control.ObservationReply), ("batch", control.BatchReply)),
    "state": (("state", None),),
    "cancel": (("cancelled", control.Cancelled),),
    "grant": (("granted", control.Granted),),
    "revoke": (("revoked", control.Revoked),),
    "watch": (("watched", control.Watched),),
    "wait_end": (("ended", control.Ended),),
    "close": (("closed", control.Closed),),
    "metadata": (("metadata", control.Metadata),),
    "schema": (("schema", control.Schemas),),
}
"""The replies to each request with their data; None is the environment's own State. A test asks a running server."""


def messages_page() -> str:
    """Return the page of the control protocol's messages: the rules, and every field of every message."""
    rows = "".join(_rule_row(rule) for rule in RULES.values())
    return (
        f"{NOTE}\n# The control protocol's messages\n\n"
        "Every request, every reply and every field. How they are used is told in "
        "[control-protocol.md](control-protocol.md);\nthe shapes are `src/proctor/models/control.py`, the rules "
        "`src/proctor/server/control/protocol.py`.\n\n"
        "| request | its data | reply | its data | without `hello` | names a session after `hello` | needs `epoch` |\n"
        f"|---|---|---|---|---|---|---|\n{rows}\n"
        "Any request can be answered by `error` with a [Problem](#problem); after `hello` the server may push `warning` with\n"
        "a [Notice](#notice) at any time. `close` names a session, or none: then it closes the socket, and has no reply.\n"
        + "".join(map(_struct_section, message_structs()))
    )


def message_structs() -> Iterator[AnyStruct]:
    """Yield every Struct of the control protocol once, in the order of the page."""
    found: list[AnyStruct | None] = [control.Request, control.Reply]
    for name, rule in RULES.items():
        found += [control.StepBatch if name == "step" else rule.data, *(data for _, data in REPLIES[name])]
    found += [control.WatchedStep, control.Problem, control.Notice]
    yield from (struct for struct in dict.fromkeys(found) if struct is not None)


def _rule_row(rule: RequestRule) -> str:
    data = "an action, or [StepBatch](#stepbatch)" if rule.kind == "step" else _link(rule.data, "none")
    words = " or ".join(f"`{word}`" for word, _ in REPLIES[rule.kind])
    answers = " or ".join(_link(struct, "a State") for _, struct in REPLIES[rule.kind])
    flags = (rule.without_hello, rule.names_session, rule.needs_epoch)
    return f"| `{rule.kind}` | {data} | {words} | {answers} | {' | '.join('yes' if flag else '' for flag in flags)} |\n"


def _link(struct: AnyStruct | None, otherwise: str) -> str:
    return otherwise if struct is None else f"[{struct.__name__}](#{struct.__name__.lower()})"


def _struct_section(struct: AnyStruct) -> str:
    info = type_info(struct)
    fields = info.fields if isinstance(info, StructType) else ()
    sentences = attribute_docs(struct)
    rows = "".join(
        f"| `{field.encode_name}` | {_kind(field.type)} | {_absence(field)} | {sentences.get(field.name, '')} |\n"
        for field in fields
    )
    about = inspect.cleandoc(struct.__doc__ or "")
    return f"\n## {struct.__name__}\n\n{about}\n\n| field | value | if absent | meaning |\n|---|---|---|---|\n{rows}"


def _absence(field: Field) -> str:
    """Return what the absence of a field means: nothing is told, or its default; empty if it is always there."""
    if field.required:
        return ""
    if field.default in (msgspec.NODEFAULT, msgspec.UNSET):
        return "not told"
    return "`null`" if isinstance(field.default, msgspec.Raw) else f"`{msgspec.json.encode(field.default).decode()}`"


WORDS: Final = {"Any": "JSON", "Bool": "true or false", "Dict": "object", "None": "null", "Raw": "JSON", "Str": "text"}


def _kind(kind: Type) -> str:
    """Return a type in words that belong to no programming language."""
    match kind:
        case UnionType(types=types):
            return " or ".join(map(_kind, types))
        case StructType(cls=struct):
            return f"[{struct.__name__}](#{struct.__name__.lower()})"
        case IntType() | FloatType():
            return ("integer" if isinstance(kind, IntType) else "number") + _bounds(kind)
        case ListType(item_type=item, max_length=most):
            return f"list of {_kind(item)}" + ("" if most is None else f", at most {most}")
    most = getattr(kind, "max_length", None)
    return WORDS[type(kind).__name__.removesuffix("Type")] + ("" if most is None else f" of at most {most} characters")


def _bounds(kind: Any) -> str:
    if kind.ge is not None and kind.le is not None:
        return f" from {kind.ge} to {'2^53' if kind.le == 2**53 else kind.le}"
    return "" if kind.gt is None else f" above {kind.gt}"


def attribute_docs(owner: type) -> dict[str, str]:
    """Return the sentence that stands under an attribute of a module's class, by the attribute's name."""
    (tree,) = ast.parse(inspect.getsource(owner)).body
    found = {}
    for above, below in pairwise(tree.body if isinstance(tree, ast.ClassDef) else ()):
        target = above.target if isinstance(above, ast.AnnAssign) else None
        if isinstance(target, ast.Name) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            found[target.id] = " ".join(str(below.value.value).split())
    return found


def episode_rules_page() -> str:
    """Return the page that lists every rule of the episode judge."""
    rows = "".join(f"| {rule.id} | {rule.level} | {rule.sentence} |\n" for rule in CATALOGUE)
    return (
        f"{NOTE}\n# The rules of an episode\n\n"
        "A verdict names the rules that a line breaks by these ids, in this order. An error refuses the line, and nothing\n"
        "changes; a warning is told, and the line is taken. [judge.md](judge.md) tells how a verdict is read,\n"
        "[episode-table.md](episode-table.md) what the table is that FSM speaks of. Rules of your own stand after these.\n\n"
        f"| rule | level | sentence |\n|---|---|---|\n{rows}"
    )


def episode_table_page() -> str:
    """Return the page about the states and transitions of an episode."""
    folded = rows_everywhere(TRANSITIONS)
    return (
        f"{NOTE}\n# The table of an episode\n\n"
        "Which packet may follow which, from `src/proctor/episode/transition_table.py`: a transition that is not here does not exist. The\n"
        "[rules](episode-rules.md) say what a packet and the history must say besides. `proctor diagram` prints the picture.\n\n"
        f"```mermaid\n{draw_machine()}```\n\n"
        "A dotted edge of the DOT picture, or a label with brackets, needs an option. {S7, S2} is one place with two names: after\n"
        "the BeliefUpdatePacket that ends an execution, the next packet tells which of the two it was.\n\n"
        f"## Positions\n\nWhat is pending in a state decides what may come next.\n\n| position | state |\n|---|---|\n"
        f"{''.join(_position_row(position) for position in Position)}\n"
        "## Transitions\n\n| position | packet or record | leads to | through | if | option |\n|---|---|---|---|---|---|\n"
        f"{''.join(_transition_row(row) for row in TRANSITIONS if row not in folded)}\n"
        "## In every position\n\n| packet or record | leads to | except in |\n|---|---|---|\n"
        f"{''.join(_everywhere_rows(folded))}\n"
        f"## Conditions\n\n| if | the history says that |\n|---|---|\n"
        f"{_meanings(Guard)}\n| option | is set by |\n|---|---|\n{_meanings(TableOption)}"
    )


def _meanings(words: type[Guard] | type[TableOption]) -> str:
    return "".join(f"| {word.name} | {word} |\n" for word in words)


def _position_row(position: Position) -> str:
    return f"| {position} | {' or '.join(STATES[position])} |\n"


def _transition_row(row: TransitionRow) -> str:
    source = row.source if row.start is None else f"{row.source}, which was {row.start}"
    guards = ", ".join(guard.name for guard in row.guards)
    option = "" if row.option is None else row.option.name
    return f"| {source} | {row.event} | {row.target} | {', '.join(row.through)} | {guards} | {option} |\n"


def _everywhere_rows(folded: Collection[TransitionRow]) -> Iterator[str]:
    for event in dict.fromkeys(row.event for row in TRANSITIONS if row in folded):
        rows = [row for row in folded if row.event is event]
        moving = {row.target for row in rows if row.target is not row.source}
        missing = set(Position) - {row.source for row in rows} - {Position.CLOSED}
        yield f"| {event} | {', '.join(sorted(moving)) or 'where it was'} | {', '.join(sorted(missing))} |\n"


PAGES: Final[dict[str, Callable[[], str]]] = {
    "lifecycle.md": lifecycle_page,
    "clauses.md": clauses_page,
    "components.md": components_page,
    "control-messages.md": messages_page,
    "episode-rules.md": episode_rules_page,
    "episode-table.md": episode_table_page,
}


def stale() -> list[str]:
    """Return the names of the pages that differ from what the code says."""
    return [
        name for name, make in PAGES.items() if not (DOCS / name).exists() or (DOCS / name).read_text("utf-8") != make()
    ]


def main(arguments: list[str]) -> int:
    """Write the stale pages, or with `--check` fail if there are any."""
    names = stale()
    for name in names:
        if "--check" in arguments:
            print(f"docs/{name} is stale: run `make docs`")
        else:
            (DOCS / name).write_text(PAGES[name](), "utf-8")
            print(f"wrote docs/{name}")
    return 1 if names and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
