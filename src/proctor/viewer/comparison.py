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
from proctor.models.events import BatchReset, BatchStepped, EpisodeReset, EpisodeStepped, SessionOpened
from proctor.narration.verdicts import describe_kind
from proctor.replay import fork
from proctor.replay.comparison import format_value
from proctor.replay.fork import BranchStep
from proctor.viewer import documents, first_difference
from proctor.viewer.catalog import build_head
from proctor.viewer.followed_file import build_line
from proctor.viewer.slices import SliceBuilder

MOST_VALUE: Final = 2048
"""Bytes of a value that is told whole."""
MOST_SHOWN: Final = 80
"""Of a value in a sentence."""
SO_FAR: Final = "is here so far"
"""Said of an open episode instead of that it ends."""
SAME: Final = "They are the same in every step: actions, observations, rewards, ends and pictures; and in every packet."
SAME_STEPS: Final = "They are the same in every step: actions, observations, rewards, ends and pictures."
"""Of a branch, whose packets nobody states."""
UNKNOWN_REWARDS: Final = "What the server would have paid for the new steps is not known: it transforms rewards."
_encode: Final = msgspec.json.Encoder().encode


def compare_episodes(ledger: Ledger, one: str, other: str) -> documents.EpisodeDifference:
    """Return where two episodes first differ, or that they do not; a ValidationError if there is no such episode."""
    left, right = _EpisodeReader(ledger, one), _EpisodeReader(ledger, other)
    first = _find_setup_difference(left.opened, right.opened)
    notes = ("", "")
    if first is None:
        moment = first_difference.find_moment_difference(left.moments(), right.moments())
        until = (None, None) if moment is None else (moment.number_one, moment.number_other)
        line = first_difference.find_line_difference(left.lines(until[0]), right.lines(until[1]))
        first = _say_so_far(first_difference.choose_first(moment, line), left, right)
        notes = (_describe_causes(left, right), _describe_causes(right, left))
    return _build_document(one, other, first, notes)


def fork_episode(ledger: Ledger, chain: str, step: int, actions: Sequence[Any]) -> documents.Fork:
    """Return what other actions lead to after so many steps, beside its origin; a ValidationError says why it cannot be."""
    if len(actions) > documents.MOST_ACTIONS:
        raise ValidationError(
            "these are too many actions", found=len(actions), expected=f"at most {documents.MOST_ACTIONS}"
        )
    origin = _EpisodeReader(ledger, chain)
    found = fork.fork_episode(ledger, chain, step, actions)
    branch = BranchBuilder(chain, step, ledger.find_chain(chain)[0])
    branch.follow(origin.rows())
    for row in found.rows:
        branch.add(row)
    parting = first_difference.find_moment_difference(
        origin.moments(paid=branch.is_paid), branch.moments(paid=branch.is_paid)
    )
    way = found.standing
    doubt = "" if way.first is None else f" The way there was not as recorded: it differs at step {way.at_step}."
    doubt += "" if branch.is_paid else f" {UNKNOWN_REWARDS}"
    difference = _build_document(chain, fork_name(chain, step), parting, (doubt, doubt), same=SAME_STEPS)
    return documents.Fork(head=branch.head(), slice=branch.slice(), left=found.left, difference=difference)


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

    def moments(self, *, paid: bool = True) -> Iterator[first_difference.EpisodeMoment]:
        """Yield the resets and the steps."""
        return first_difference.read_moments(self.rows(), self._value, self.unread, paid=paid)

    def lines(self, until: int | None) -> Iterator[first_difference.StatedLine]:
        """Yield the lines that were stated, up to a row."""
        return first_difference.read_lines(
            takewhile(lambda stored: until is None or stored[0] <= until, self.rows()), self.unread
        )

    def _value(self, digest: str) -> bytes | None:
        """Return a value; one that is damaged is as one that was not stored."""
        try:
            return self._file.value(digest)
        except ValidationError:
            return None

    def _event(self, number: int) -> object:
        stored = self._file.read_row(number)
        said = None if stored is None or stored[1] != self._chain.first else first_difference.read_row(stored[3])
        return None if said is None else said.event

    def read_setup(self) -> dict[str, Any]:
        """Return how the episode began, as far as that can be why it is not like another."""
        event = self._event(self._chain.first + 1)
        begun = event if isinstance(event, EpisodeReset | BatchReset) else None
        return {
            **{name: getattr(self.opened, name, None) for name in ("settings", "transforms", "policy")},
            "seed": None if begun is None else begun.seed,
            "options": b"null" if begun is None else bytes(begun.options),
        }


# -------------------------------------------------------------------------------------------------------- the words
_SENTENCES: Final = {
    "environment": "They are episodes of two environments: {left} on the left, {right} on the right.",
    "num_envs": "The left one is of {left}, the right one of {right}.",
    "kind": "{when} the left one states {left} where the right one states {right}.",
    "verdict": "{when} {kind} is {left} on the left and {right} on the right.",
    "rules": "{when} {kind} breaks {left} on the left and {right} on the right.",
    "state": "{when} {kind} leads to {left} on the left and to {right} on the right.",
    "payload": "{when} {kind} says different things{where}: {left} on the left, {right} on the right.",
    first_difference.SILENCE: "{when} the {other} one states {kind}, and the {ended} one states nothing more{yet}.",
}
_OTHER: Final = "{when} the {what} differs{where}: {left} on the left, {right} on the right."
SETUP_FIELDS: Final = ("environment", "num_envs")
"""What differs before anything is done."""


def _find_setup_difference(
    left: SessionOpened | None, right: SessionOpened | None
) -> first_difference.FirstDifference | None:
    """Return that two episodes are not of one sort; None if they are, or nobody knows."""
    for what in SETUP_FIELDS if left is not None and right is not None else ():
        one, other = getattr(left, what), getattr(right, what)
        if one != other:
            return first_difference.FirstDifference(what, "", one, other, 0, None, None)
    return None


def _describe_difference(found: first_difference.FirstDifference) -> str:
    step, is_open = found.step, SO_FAR in (found.left, found.right)
    ended, other = ("left", "right") if found.left in (first_difference.ENDS, SO_FAR) else ("right", "left")
    if found.what == first_difference.END and not step:
        return f"The {ended} one has no steps; the {other} one has."
    if found.what == first_difference.END and is_open:
        return f"The {ended} one has come as far as step {step}; the {other} one went on."
    if found.what == first_difference.END:
        return f"The {ended} one ends after step {step}; the {other} one goes on."
    if found.what in _SENTENCES:
        when = f"After step {step}" if step else "Before the first step"
    else:
        when = f"At step {step}" if step else "At the reset"
    return _SENTENCES.get(found.what, _OTHER).format(
        when=when,
        what=found.what,
        where=f" at {documents.clean_text(found.where, MOST_SHOWN)}" if found.where else "",
        kind=describe_kind(documents.clean_text(found.kind, MOST_SHOWN)),
        left=_describe_value(found.what, found.left),
        right=_describe_value(found.what, found.right),
        ended=ended,
        other=other,
        yet=" yet" if is_open else "",
    )


def _describe_value(what: str, value: Any) -> str:
    match what:
        case "num_envs":
            return "one environment" if value is None else f"a batch of {value}"
        case "kind":
            return describe_kind(documents.clean_text(str(value), MOST_SHOWN))
        case "rules":
            return documents.clean_text(", ".join(value), MOST_SHOWN) or "no rule"
        case "environment" | "verdict" | "state":
            return documents.clean_text(str(value), MOST_SHOWN)
    return documents.clean_text(format_value(value, MOST_SHOWN), 2 * MOST_SHOWN)


def _say_so_far(
    found: first_difference.FirstDifference | None, left: _EpisodeReader, right: _EpisodeReader
) -> first_difference.FirstDifference | None:
    """Return a difference; that one of the two is shorter is said of an open one only so far."""
    if found is None or found.what not in (first_difference.END, first_difference.SILENCE):
        return found
    if found.left == first_difference.ENDS:
        return dataclasses.replace(found, left=SO_FAR) if left.is_open else found
    return dataclasses.replace(found, right=SO_FAR) if right.is_open else found


def _describe_causes(left: _EpisodeReader, right: _EpisodeReader) -> str:
    """Return what may be the reason: two episodes that began differently, or rows that could not be read."""
    ours, theirs = left.read_setup(), right.read_setup()
    words = [name for name in ours if ours[name] != theirs[name]]
    if "seed" in words:
        seeds = f"seed ({format_value(ours['seed'], 20)} and {format_value(theirs['seed'], 20)})"
        words[words.index("seed")] = seeds
    causes = f" They did not begin alike: they differ in {', '.join(words)}." if words else ""
    counts = [f"{len(each.unread)} on the {side}" for each, side in ((left, "left"), (right, "right")) if each.unread]
    unread = f" Rows that cannot be read were passed over: {' and '.join(counts)}." if counts else ""
    return causes + unread


def _build_document(
    one: str, other: str, found: first_difference.FirstDifference | None, notes: tuple[str, str], same: str = SAME
) -> documents.EpisodeDifference:
    first = first_difference.FirstDifference("", "", None, None, 0, None, None) if found is None else found
    mirrored = dataclasses.replace(first, left=first.right, right=first.left)
    text, turned = (same if found is None else _describe_difference(each) for each in (first, mirrored))
    return documents.EpisodeDifference(
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
        text=text + notes[0],
        turned=turned + notes[1],
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
                self._own, done = event.step, done + 1
            elif isinstance(event, EpisodeReset | BatchReset):
                # Of the resets only the first counts; a batch may have more, by masks.
                self._own, done = 0, max(done, 0)
            if done == self._step:
                return

    def add(self, row: BranchStep) -> None:
        """Take what one more action led to."""
        body, blobs = encode_event_row(self._build_event(row), "all")
        self._held |= {digest.hex(): value for digest, value in blobs or ()}
        self._take(body)

    def head(self) -> documents.EpisodeHead:
        """Return what a page needs before the steps."""
        line = build_line(self._fold, self._file.path, self._chain, live=False)
        paid = line.total_reward if self.is_paid else None
        # Whose agent it was has done nothing of what is new here.
        line = replace(line, agent="", total_reward=paid, fork=True)
        return build_head(line, self._opening(), find_observation_storage(self._rows[0][3]))

    def slice(self) -> documents.EpisodeSlice:
        """Return all of it, from the reset on, with a note where the record was left."""
        resets = [row.event for row in self._opening() if isinstance(row.event, EpisodeReset)]
        pixels = any(is_pixels(event.scene) for event in resets)
        gathering = SliceBuilder(self, pixels=pixels, batch=isinstance(self._fold.reset, BatchReset))
        for number, _, seq, body, _ in self._rows:
            gathering.take(number, seq, body)
        found = gathering.slice(self._chain.name, 0, self._rows[-1][0], more=False, ended=True)
        steps = found.steps
        text = "Here the record is left: what follows never happened, and nobody has recorded it."
        if not self.is_paid:
            sums = zip(steps.number, steps.total, strict=True)
            steps = replace(steps, total=[total if number < self._followed else None for number, total in sums])
            text = f"{text} {UNKNOWN_REWARDS}"
        last, at = self._followed - 1, self._fold.at
        note = documents.EpisodeNote(
            number=last, seq=last, step=self._step, at=at, principal="system", kind="forked", text=text
        )
        return replace(found, steps=steps, notes=[*found.notes, note])

    @property
    def is_paid(self) -> bool:
        """Whether it is known what the server would have paid for every step."""
        opened = self._fold.opened
        return opened is None or not opened.transforms or len(self._rows) <= self._followed

    def moments(self, *, paid: bool) -> Iterator[first_difference.EpisodeMoment]:
        """Yield the reset and the steps, to be compared."""
        return first_difference.read_moments(self._rows, self._value, set(), paid=paid)

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

    def _build_event(self, row: BranchStep) -> EpisodeStepped | BatchStepped:
        opened, reset, answer = self._fold.opened, self._fold.reset, row.branch
        if opened is None or reset is None:
            found, expected = self._chain.name, "the chain of an episode"
            raise ValidationError("this chain is no episode", found=found, expected=expected)
        said: dict[str, Any] = {
            "session": opened.session,
            "at": self._fold.at,
            "principal": "system",
            "epoch": reset.epoch,
            "step": self._own + row.step - self._step,
        }
        paid = None if opened.transforms else answer.reward
        action, observation, metadata = map(_encode_raw, (row.said, answer.observation, answer.metadata))
        if isinstance(reset, BatchReset):
            return BatchStepped(
                **said,
                actions=action,
                observations=observation,
                infos=metadata,
                raw_rewards=_encode_raw(answer.reward),
                rewards=_encode_raw(paid),
                terminations=_encode_raw(answer.terminated),
                truncations=_encode_raw(answer.truncated),
            )
        return EpisodeStepped(
            **said,
            action=action,
            observation=observation,
            metadata=metadata,
            raw_reward=answer.reward,
            reward=paid,
            terminated=answer.terminated,
            truncated=answer.truncated,
            scene=_encode_raw(answer.scene),
        )


def _encode_raw(value: Any) -> Raw:
    return Raw(_encode(value))
