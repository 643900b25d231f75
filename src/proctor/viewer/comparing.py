"""Two episodes side by side, and an episode that was left at one of its steps.

Rule 1: the record is read row by row, and no further than to the first difference; a value is loaded only where digests differ.
Rule 2: episodes of different environments are not compared step by step: that they are different is what is said.
Rule 3: a branch is driven in this process, as by `proctor replay --fork`, and never recorded.
"""

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any, Final

import msgspec
from msgspec import Raw

from proctor.episode.verdict_words import kind_words
from proctor.errors import ValidationError
from proctor.ledger.files import Stored
from proctor.ledger.reader import Ledger
from proctor.models.events import BatchReset, EpisodeReset, SessionOpened
from proctor.replay.difference import shown
from proctor.replay.fork import forked
from proctor.viewer.branching import Branching, fork_name
from proctor.viewer.documents import Difference, Fork
from proctor.viewer.moments import Moment, Spoken, lines, moments
from proctor.viewer.parting import END, ENDS, SILENCE, Parting, first_of, lines_parted, moments_parted
from proctor.viewer.plain import plain

MOST_ACTIONS: Final = 10_000
"""Of a branch."""
MOST_VALUE: Final = 2048
"""Bytes of a value that is told whole."""
SHOWN: Final = 80
"""Of a value in a sentence."""
NULL: Final = Raw(b"null")
UNLIKE: Final = ("environment", "num_envs")
"""What differs before anything is done."""

_encode: Final = msgspec.json.Encoder().encode


def difference(ledger: Ledger, one: str, other: str) -> Difference:
    """Return where two episodes first differ, or that they do not; a ValidationError if there is no such episode."""
    left, right = _Reading(ledger, one), _Reading(ledger, other)
    apart = _made_apart(left.opened, right.opened)
    if apart is not None:
        return _document(one, other, *apart)
    found = moments_parted(left.moments(), right.moments())
    until = (None, None) if found is None else (found.number_one, found.number_other)
    said = lines_parted(left.lines(until[0]), right.lines(until[1]))
    first = first_of(found, said)
    return _document(one, other, first, _sentence(first) + _why(left, right))


def fork(ledger: Ledger, chain: str, step: int, actions: Sequence[Any]) -> Fork:
    """Return what other actions lead to after so many steps, beside its origin; a ValidationError says why it cannot be."""
    if len(actions) > MOST_ACTIONS:
        raise ValidationError("these are too many actions", found=len(actions), expected=f"at most {MOST_ACTIONS}")
    origin = _Reading(ledger, chain)
    found = forked(ledger, chain, step, actions)
    branch = Branching(chain, step, ledger.located(chain)[0])
    branch.follow(origin.rows())
    for row in found.rows:
        branch.add(row)
    # What the server would have paid for the new steps is not known where it transforms rewards.
    paid = not origin.opened.transforms
    parting = moments_parted(origin.moments(paid=paid), branch.moments(paid=paid))
    way = found.standing
    doubt = "" if way.first is None else f" The way there was not as recorded: it differs at step {way.at_step}."
    return Fork(
        head=branch.head(),
        slice=branch.slice(),
        left=found.left,
        difference=_document(chain, fork_name(chain, step), parting, _sentence(parting) + plain(doubt, 200)),
    )


# ------------------------------------------------------------------------------------------------------- the record
class _Reading:
    """The chain of one episode."""

    def __init__(self, ledger: Ledger, chain: str) -> None:
        self._file, self._chain = ledger.located(chain)
        first = self._file.stored_at(self._chain.first)
        opened = None if first is None else self._file.row(chain, first).event
        if not isinstance(opened, SessionOpened):
            raise ValidationError("this chain is no episode", found=chain, expected="the chain of an episode")
        self.opened: Final = opened

    def rows(self) -> Iterator[Stored]:
        """Yield the rows as they are stored."""
        return self._file.stored_in(self._chain)

    def moments(self, *, paid: bool = True) -> Iterator[Moment]:
        """Yield the resets and the steps."""
        return moments(self.rows(), self._file.value, paid=paid)

    def lines(self, until: int | None) -> Iterator[Spoken]:
        """Yield the lines that were stated, up to a row."""
        return lines(takewhile(lambda stored: until is None or stored[0] <= until, self.rows()))

    def began(self) -> dict[str, Any]:
        """Return how the episode began, as far as that can be why it is not like another."""
        reset = self._file.stored_at(self._chain.first + 1)
        event = None if reset is None or reset[1] != self._chain.first else self._file.row("", reset).event
        opened = self.opened
        made: dict[str, Any] = {
            "settings": opened.settings,
            "transforms": opened.transforms,
            "policy": opened.policy,
        }
        if not isinstance(event, EpisodeReset | BatchReset):
            return made | {"seed": None, "options": b"null"}
        return made | {"seed": event.seed, "options": bytes(event.options)}


# -------------------------------------------------------------------------------------------------------- the words
def _made_apart(left: SessionOpened, right: SessionOpened) -> tuple[Parting, str] | None:
    """Return that two episodes are not of one sort, in a sentence, too; None if they are."""
    if left.environment != right.environment:
        names = (left.environment, right.environment)
        words = [plain(name, SHOWN) for name in names]
        text = f"They are episodes of two environments: {words[0]} on the left, {words[1]} on the right."
        return Parting("environment", "", *names, 0, None, None), text
    if left.num_envs != right.num_envs:
        sizes = (left.num_envs, right.num_envs)
        words = ["one environment" if each is None else f"a batch of {each}" for each in sizes]
        return Parting(
            "num_envs", "", *sizes, 0, None, None
        ), f"The left one is of {words[0]}, the right one of {words[1]}."
    return None


def _sentence(found: Parting | None) -> str:
    """Return a difference in one sentence."""
    if found is None:
        return "They are the same in every step and every packet."
    if found.what == END:
        return _ended(found)
    where = f" at {plain(found.where, SHOWN)}" if found.where else ""
    told = _LINES.get(found.what, "the {what} differs{where}: {left} on the left, {right} on the right.")
    ended, other = ("left", "right") if found.left == ENDS else ("right", "left")
    words = told.format(
        what=found.what,
        where=where,
        kind=kind_words(plain(found.kind, SHOWN)),
        left=_words(found.what, found.left),
        right=_words(found.what, found.right),
        ended=ended,
        other=other,
    )
    return f"{_when(found)} {words}"


def _when(found: Parting) -> str:
    if found.what in _LINES:
        return f"After step {found.step}" if found.step else "Before the first step"
    return f"At step {found.step}" if found.step else "At the reset"


_LINES: Final = {
    "kind": "the left one states {left} where the right one states {right}.",
    "verdict": "{kind} is {left} on the left and {right} on the right.",
    "rules": "{kind} breaks {left} on the left and {right} on the right.",
    "state": "{kind} leads to {left} on the left and to {right} on the right.",
    "payload": "{kind} says different things{where}: {left} on the left, {right} on the right.",
    SILENCE: "the {other} one states {kind}, and the {ended} one states nothing more.",
}


def _words(what: str, value: Any) -> str:
    """Return one of two values that differ, for a sentence."""
    if what == "kind":
        return kind_words(plain(str(value), SHOWN))
    if what == "rules":
        return plain(", ".join(value), SHOWN) or "no rule"
    if what in ("verdict", "state"):
        return plain(str(value), SHOWN)
    return plain(shown(value, SHOWN), 2 * SHOWN)


def _ended(found: Parting) -> str:
    ended, other = ("left", "right") if found.left == ENDS else ("right", "left")
    if not found.step:
        return f"The {ended} one has no steps; the {other} one has."
    return f"The {ended} one ends after step {found.step}; the {other} one goes on."


def _why(left: _Reading, right: _Reading) -> str:
    """Return what may be the reason: two episodes that began differently."""
    ours, theirs = left.began(), right.began()
    apart = [name for name in ours if ours[name] != theirs[name]]
    words = [
        f"seed ({shown(ours['seed'], 20)} and {shown(theirs['seed'], 20)})" if name == "seed" else name
        for name in apart
    ]
    return f" They did not begin alike: they differ in {', '.join(words)}." if words else ""


def _document(one: str, other: str, found: Parting | None, text: str) -> Difference:
    return Difference(
        one=one,
        other=other,
        same=found is None,
        step=None if found is None or found.what in UNLIKE else found.step,
        number_one=None if found is None else found.number_one,
        number_other=None if found is None else found.number_other,
        what="" if found is None else found.what,
        where="" if found is None else found.where,
        left=NULL if found is None else _told(found.left),
        right=NULL if found is None else _told(found.right),
        text=text,
    )


def _told(value: Any) -> Raw:
    """Return a value as JSON; one that is long, in its beginning and its end."""
    said = _encode(value)
    return Raw(said if len(said) <= MOST_VALUE else _encode(shown(value, MOST_VALUE // 2)))
