"""Two episodes side by side, and an episode that was left at one of its steps.

Rule 1: the record is read row by row, and no further than to the first difference; a value is loaded only where digests differ.
Rule 2: episodes of different environments are not compared step by step: that they are different is what is said.
Rule 3: a row that cannot be read is passed over, and that is said.
Rule 4: an episode that is open has not ended: it has come as far as it is.
Rule 5: a branch is driven in this process, as by `proctor replay --fork`, and never recorded. Its rows are told by the functions that
    tell a chain's rows, so that a page cannot tell the two apart; they are numbered anew, from 0, and nobody can ask for one of them.
    Its time stands still, and where rewards are transformed by the server, what it would have paid is not known.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from proctor.errors import ValidationError
from proctor.ledger.chain import is_episode_chain
from proctor.ledger.reader import Ledger, SummaryBuilder
from proctor.ledger.rows import encode_event_row, find_observation_storage, parse_event_row
from proctor.ledger.storage.ledger_file import ChainEntry, LedgerFile, Row, StoredRow
from proctor.models.arrays import is_pixels
from proctor.models.events import BatchReset, BatchStepped, EpisodeReset, EpisodeStepped, Event, SessionOpened
from proctor.narration.verdicts import describe_kind
from proctor.replay import fork
from proctor.replay.comparison import format_value
from proctor.replay.fork import BranchStep
from proctor.viewer.catalog import build_head
from proctor.viewer.documents import (
    MOST_ACTIONS,
    EpisodeDifference,
    EpisodeHead,
    EpisodeNote,
    EpisodeSlice,
    Fork,
    StepColumns,
    clean_text,
)
from proctor.viewer.first_difference import (
    END,
    ENDS,
    SILENCE,
    EpisodeMoment,
    FirstDifference,
    StatedLine,
    choose_first,
    find_line_difference,
    find_moment_difference,
    read_lines,
    read_moments,
    read_row,
)
from proctor.viewer.followed_file import build_line
from proctor.viewer.slices import SliceBuilder

MOST_VALUE: Final = 2048
"""Bytes of a value that is told whole."""
MOST_SHOWN: Final = 80
"""Of a value in a sentence."""
SO_FAR: Final = "is here so far"
"""Said of an open episode instead of that it ends."""
SHORTER: Final = (ENDS, SO_FAR)
SAME: Final = "They are the same in every step: actions, observations, rewards, ends and pictures; and in every packet."
SAME_STEPS: Final = "They are the same in every step: actions, observations, rewards, ends and pictures."
"""Of a branch, whose packets nobody states."""
SETUP_FIELDS: Final = ("environment", "num_envs")
"""What differs before anything is done."""
UNKNOWN_REWARDS: Final = "What the server would have paid for the new steps is not known: it transforms rewards."
_encode: Final = msgspec.json.Encoder().encode


def compare_episodes(ledger: Ledger, one: str, other: str) -> EpisodeDifference:
    """Return where two episodes first differ, or that they do not; a ValidationError if there is no such episode."""
    left, right = _EpisodeReader(ledger, one), _EpisodeReader(ledger, other)
    apart, turned = _find_setup_difference(left.opened, right.opened), _find_setup_difference(right.opened, left.opened)
    if apart is not None and turned is not None:
        return _build_document(one, other, apart[0], apart[1], turned[1])
    found = find_moment_difference(left.moments(), right.moments())
    until = (None, None) if found is None else (found.number_one, found.number_other)
    said = find_line_difference(left.lines(until[0]), right.lines(until[1]))
    first = _say_so_far(choose_first(found, said), left, right)
    text, turned_text = (
        _describe_difference(seen) + _describe_causes(ours, theirs) + _describe_unread_rows(ours, theirs)
        for seen, ours, theirs in ((first, left, right), (_mirror(first), right, left))
    )
    return _build_document(one, other, first, text, turned_text)


def fork_episode(ledger: Ledger, chain: str, step: int, actions: Sequence[Any]) -> Fork:
    """Return what other actions lead to after so many steps, beside its origin; a ValidationError says why it cannot be."""
    if len(actions) > MOST_ACTIONS:
        raise ValidationError("these are too many actions", found=len(actions), expected=f"at most {MOST_ACTIONS}")
    origin = _EpisodeReader(ledger, chain)
    found = fork.fork_episode(ledger, chain, step, actions)
    branch = BranchBuilder(chain, step, ledger.find_chain(chain)[0])
    branch.follow(origin.rows())
    for row in found.rows:
        branch.add(row)
    parting = find_moment_difference(origin.moments(paid=branch.is_paid), branch.moments(paid=branch.is_paid))
    way = found.standing
    doubt = "" if way.first is None else f" The way there was not as recorded: it differs at step {way.at_step}."
    doubt += "" if branch.is_paid else f" {UNKNOWN_REWARDS}"
    texts = [SAME_STEPS if each is None else _describe_difference(each) for each in (parting, _mirror(parting))]
    return Fork(
        head=branch.head(),
        slice=branch.slice(),
        left=found.left,
        difference=_build_document(chain, fork_name(chain, step), parting, *(text + doubt for text in texts)),
    )


# ------------------------------------------------------------------------------------------------------- the record
class _EpisodeReader:
    """The chain of one episode."""

    def __init__(self, ledger: Ledger, chain: str) -> None:
        self._file, self._chain = ledger.find_chain(chain)
        if not is_episode_chain(chain):
            raise ValidationError("this chain is no episode", found=chain, expected="the chain of an episode")
        opened = self._event(self._chain.first)
        self.opened: Final = opened if isinstance(opened, SessionOpened) else None
        """None: it cannot be read."""
        self.unread: Final[set[int]] = set()
        """The numbers of the rows that were passed over."""
        self.is_open: Final = self._chain.last is None

    def rows(self) -> Iterator[StoredRow]:
        """Yield the rows as they are stored."""
        return self._file.read_chain_rows(self._chain)

    def moments(self, *, paid: bool = True) -> Iterator[EpisodeMoment]:
        """Yield the resets and the steps."""
        return read_moments(self.rows(), self._value, self.unread.add, paid=paid)

    def lines(self, until: int | None) -> Iterator[StatedLine]:
        """Yield the lines that were stated, up to a row."""
        rows = takewhile(lambda stored: until is None or stored[0] <= until, self.rows())
        return read_lines(rows, self.unread.add)

    def _value(self, digest: str) -> bytes | None:
        """Return a value; one that is damaged is as one that was not stored."""
        try:
            return self._file.value(digest)
        except ValidationError:
            return None

    def _event(self, number: int) -> object:
        """Return what a row of the chain says; None if there is none that can be read."""
        stored = self._file.read_row(number)
        said = None if stored is None or stored[1] != self._chain.first else read_row(stored[3])
        return None if said is None else said.event

    def read_setup(self) -> dict[str, Any]:
        """Return how the episode began, as far as that can be why it is not like another."""
        event = self._event(self._chain.first + 1)
        opened = self.opened
        made: dict[str, Any] = {
            "settings": None if opened is None else opened.settings,
            "transforms": None if opened is None else opened.transforms,
            "policy": None if opened is None else opened.policy,
        }
        if not isinstance(event, EpisodeReset | BatchReset):
            return made | {"seed": None, "options": b"null"}
        return made | {"seed": event.seed, "options": bytes(event.options)}


# -------------------------------------------------------------------------------------------------------- the words
def _find_setup_difference(
    left: SessionOpened | None, right: SessionOpened | None
) -> tuple[FirstDifference, str] | None:
    """Return that two episodes are not of one sort, in a sentence, too; None if they are, or nobody knows."""
    if left is None or right is None:
        return None
    if left.environment != right.environment:
        names = (left.environment, right.environment)
        words = [clean_text(name, MOST_SHOWN) for name in names]
        text = f"They are episodes of two environments: {words[0]} on the left, {words[1]} on the right."
        return FirstDifference("environment", "", *names, 0, None, None), text
    if left.num_envs != right.num_envs:
        sizes = (left.num_envs, right.num_envs)
        words = ["one environment" if each is None else f"a batch of {each}" for each in sizes]
        return FirstDifference(
            "num_envs", "", *sizes, 0, None, None
        ), f"The left one is of {words[0]}, the right one of {words[1]}."
    return None


def _describe_difference(found: FirstDifference | None) -> str:
    """Return a difference in one sentence."""
    if found is None:
        return SAME
    if found.what == END:
        return _describe_end(found)
    where = f" at {clean_text(found.where, MOST_SHOWN)}" if found.where else ""
    told = _LINE_SENTENCES.get(found.what, "the {what} differs{where}: {left} on the left, {right} on the right.")
    ended, other = ("left", "right") if found.left in SHORTER else ("right", "left")
    words = told.format(
        what=found.what,
        where=where,
        kind=describe_kind(clean_text(found.kind, MOST_SHOWN)),
        left=_describe_value(found.what, found.left),
        right=_describe_value(found.what, found.right),
        ended=ended,
        other=other,
        yet=" yet" if SO_FAR in (found.left, found.right) else "",
    )
    return f"{_describe_moment(found)} {words}"


def _describe_moment(found: FirstDifference) -> str:
    if found.what in _LINE_SENTENCES:
        return f"After step {found.step}" if found.step else "Before the first step"
    return f"At step {found.step}" if found.step else "At the reset"


_LINE_SENTENCES: Final = {
    "kind": "the left one states {left} where the right one states {right}.",
    "verdict": "{kind} is {left} on the left and {right} on the right.",
    "rules": "{kind} breaks {left} on the left and {right} on the right.",
    "state": "{kind} leads to {left} on the left and to {right} on the right.",
    "payload": "{kind} says different things{where}: {left} on the left, {right} on the right.",
    SILENCE: "the {other} one states {kind}, and the {ended} one states nothing more{yet}.",
}


def _describe_value(what: str, value: Any) -> str:
    """Return one of two values that differ, for a sentence."""
    if what == "kind":
        return describe_kind(clean_text(str(value), MOST_SHOWN))
    if what == "rules":
        return clean_text(", ".join(value), MOST_SHOWN) or "no rule"
    if what in ("verdict", "state"):
        return clean_text(str(value), MOST_SHOWN)
    return clean_text(format_value(value, MOST_SHOWN), 2 * MOST_SHOWN)


def _describe_end(found: FirstDifference) -> str:
    ended, other = ("left", "right") if found.left in SHORTER else ("right", "left")
    if not found.step:
        return f"The {ended} one has no steps; the {other} one has."
    if SO_FAR in (found.left, found.right):
        return f"The {ended} one has come as far as step {found.step}; the {other} one went on."
    return f"The {ended} one ends after step {found.step}; the {other} one goes on."


def _say_so_far(found: FirstDifference | None, left: _EpisodeReader, right: _EpisodeReader) -> FirstDifference | None:
    """Return a difference; that one of the two is shorter is said of an open one only so far."""
    if found is None or found.what not in (END, SILENCE):
        return found
    if found.left == ENDS:
        return dataclasses.replace(found, left=SO_FAR) if left.is_open else found
    return dataclasses.replace(found, right=SO_FAR) if right.is_open else found


def _mirror(found: FirstDifference | None) -> FirstDifference | None:
    """Return a difference as seen from the other side."""
    if found is None:
        return None
    one, other = found.number_other, found.number_one
    return dataclasses.replace(found, left=found.right, right=found.left, number_one=one, number_other=other)


def _describe_unread_rows(left: _EpisodeReader, right: _EpisodeReader) -> str:
    """Return that some rows could not be read, in a sentence; empty: all that were looked at could be."""
    counts = [(len(each.unread), side) for each, side in ((left, "left"), (right, "right")) if each.unread]
    told = " and ".join(f"{count} on the {side}" for count, side in counts)
    return f" Rows that cannot be read were passed over: {told}." if told else ""


def _describe_causes(left: _EpisodeReader, right: _EpisodeReader) -> str:
    """Return what may be the reason: two episodes that began differently."""
    ours, theirs = left.read_setup(), right.read_setup()
    apart = [name for name in ours if ours[name] != theirs[name]]
    words = [
        f"seed ({format_value(ours['seed'], 20)} and {format_value(theirs['seed'], 20)})" if name == "seed" else name
        for name in apart
    ]
    return f" They did not begin alike: they differ in {', '.join(words)}." if words else ""


def _build_document(one: str, other: str, found: FirstDifference | None, text: str, turned: str) -> EpisodeDifference:
    first = FirstDifference("", "", None, None, 0, None, None) if found is None else found
    return EpisodeDifference(
        one=one,
        other=other,
        same=found is None,
        step=None if found is None or found.what in SETUP_FIELDS else found.step,
        number_one=first.number_one,
        number_other=first.number_other,
        what=first.what,
        where=first.where,
        left=_encode_value(first.left),
        right=_encode_value(first.right),
        text=text,
        turned=turned,
    )


def _encode_value(value: Any) -> Raw:
    """Return a value as JSON; one that is long, in its beginning and its end."""
    said = _encode(value)
    return Raw(said if len(said) <= MOST_VALUE else _encode(format_value(value, MOST_VALUE // 2)))


# --------------------------------------------------------------------------------------------------------- a branch
def fork_name(chain: str, step: int) -> str:
    """Return what a branch is called."""
    return f"{chain}~fork@{step}"


class BranchBuilder:
    """The branch of `chain` at a step; `file` is where its way is on record."""

    def __init__(self, chain: str, step: int, file: LedgerFile) -> None:
        self._chain = ChainEntry(0, fork_name(chain, step), None)
        self._step = step
        self._file = file
        self._fold = SummaryBuilder()
        self._rows: list[StoredRow] = []
        self._held: dict[str, bytes] = {}
        """Values of the branch, by their digests."""
        self._followed = 0
        """So many rows are the record's."""
        self._own = 0
        """The step where it begins, as its row says it: a batch's own count begins anew where some of it are reset."""

    def follow(self, rows: Iterable[StoredRow]) -> None:
        """Take the rows of the record up to the one after which so many steps have been done."""
        done = -1
        for stored in rows:
            self._take(stored[3])
            self._followed += 1
            event = parse_event_row(stored[3]).event
            if isinstance(event, EpisodeStepped | BatchStepped):
                self._own = event.step
            elif isinstance(event, BatchReset):
                self._own = 0
            # Of the resets only the first counts; a batch may have more, by masks.
            done += isinstance(event, EpisodeStepped | BatchStepped)
            done += done < 0 and isinstance(event, EpisodeReset | BatchReset)
            if done == self._step:
                return

    def add(self, row: BranchStep) -> None:
        """Take what one more action led to."""
        body, blobs = encode_event_row(self._event(row), "all")
        self._held |= {digest.hex(): value for digest, value in blobs or ()}
        self._take(body)

    def head(self) -> EpisodeHead:
        """Return what a page needs before the steps."""
        line = build_line(self._fold, self._file.path, self._chain, live=False)
        paid = line.total_reward if self.is_paid else None
        # Whose agent it was has done nothing of what is new here.
        line = replace(line, agent="", total_reward=paid, fork=True)
        return build_head(line, self._opening(), find_observation_storage(self._rows[0][3]))

    def slice(self) -> EpisodeSlice:
        """Return all of it, from the reset on."""
        resets = [row.event for row in self._opening() if isinstance(row.event, EpisodeReset)]
        pixels = any(is_pixels(event.scene) for event in resets)
        gathering = SliceBuilder(self, pixels=pixels, batch=isinstance(self._fold.reset, BatchReset))
        for number, _, seq, body, _ in self._rows:
            gathering.take(number, seq, body)
        found = gathering.slice(self._chain.name, 0, self._rows[-1][0], more=False, ended=True)
        steps = found.steps if self.is_paid else self._blank_unknown_totals(found.steps)
        return replace(found, steps=steps, notes=[*found.notes, self._note()])

    def _note(self) -> EpisodeNote:
        """Return where the record was left, in words."""
        text = "Here the record is left: what follows never happened, and nobody has recorded it."
        return EpisodeNote(
            number=self._followed - 1,
            seq=self._followed - 1,
            step=self._step,
            at=self._fold.at,
            principal="system",
            kind="forked",
            text=text if self.is_paid else f"{text} {UNKNOWN_REWARDS}",
        )

    @property
    def is_paid(self) -> bool:
        """Whether it is known what the server would have paid for every step."""
        opened = self._fold.opened
        return opened is None or not opened.transforms or len(self._rows) <= self._followed

    def _blank_unknown_totals(self, steps: StepColumns) -> StepColumns:
        """Return steps without the sums that are not known."""
        sums = zip(steps.number, steps.total, strict=True)
        return replace(steps, total=[total if number < self._followed else None for number, total in sums])

    def moments(self, *, paid: bool) -> Iterator[EpisodeMoment]:
        """Yield the reset and the steps, to be compared."""
        return read_moments(self._rows, self._value, paid=paid)

    def values(self, digests: Iterable[str], most: int) -> dict[str, bytes]:
        """Return the values that rows name; one that is not there, or longer than `most`, is missing."""
        found = ((digest, self._value(digest)) for digest in digests)  # one at a time: the others may be very long
        return {digest: value for digest, value in found if value is not None and len(value) <= most}

    def _value(self, digest: str) -> bytes | None:
        held = self._held.get(digest)
        return self._file.value(digest) if held is None else held

    def _take(self, body: bytes) -> None:
        stored = (len(self._rows), 0, len(self._rows), body, b"")
        self._rows.append(stored)
        self._fold.add_row(stored)

    def _opening(self) -> list[Row]:
        """Return the rows with which it begins: the session's opening, and the reset."""
        return [self._file.row(self._chain.name, stored) for stored in self._rows[:2]]

    def _event(self, row: BranchStep) -> Event:
        opened, reset = self._fold.opened, self._fold.reset
        if opened is None or reset is None:
            raise ValidationError(
                "this chain is no episode", found=self._chain.name, expected="the chain of an episode"
            )
        said: dict[str, Any] = {
            "session": opened.session,
            "at": self._fold.at,
            "principal": "system",
            "epoch": reset.epoch,
            "step": self._own + row.step - self._step,
        }
        return _build_batch_step(row, said, opened) if isinstance(reset, BatchReset) else _build_step(row, said, opened)


def _build_step(row: BranchStep, said: dict[str, Any], opened: SessionOpened) -> EpisodeStepped:
    answer = row.branch
    return EpisodeStepped(
        **said,
        action=_encode_raw(row.said),
        observation=_encode_raw(answer.observation),
        metadata=_encode_raw(answer.metadata),
        raw_reward=answer.reward,
        reward=None if opened.transforms else answer.reward,
        terminated=answer.terminated,
        truncated=answer.truncated,
        scene=_encode_raw(answer.scene),
    )


def _build_batch_step(row: BranchStep, said: dict[str, Any], opened: SessionOpened) -> BatchStepped:
    answer = row.branch
    return BatchStepped(
        **said,
        actions=_encode_raw(row.said),
        observations=_encode_raw(answer.observation),
        infos=_encode_raw(answer.metadata),
        raw_rewards=_encode_raw(answer.reward),
        rewards=_encode_raw(None if opened.transforms else answer.reward),
        terminations=_encode_raw(answer.terminated),
        truncations=_encode_raw(answer.truncated),
    )


def _encode_raw(value: Any) -> Raw:
    return Raw(_encode(value))
