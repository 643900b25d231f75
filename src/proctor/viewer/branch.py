"""A branch of an episode as pages show an episode: the way on record up to a step, and then what other actions led to.

Rule 1: the rows are told by the functions that tell a chain's rows, so that a page cannot tell the two apart.
Rule 2: rows are numbered anew, from 0, and are nowhere in a ledger: nobody can ask for one of them.
Rule 3: the time stands still after the step where the branch begins, and where rewards are transformed by the server, what it would
    have paid is not known.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from proctor.errors import ValidationError
from proctor.ledger.reader import SummaryBuilder
from proctor.ledger.rows import encode_event_row, find_observation_storage, parse_event_row
from proctor.ledger.storage.ledger_file import ChainEntry, LedgerFile, Row, StoredRow
from proctor.models.events import BatchReset, BatchStepped, EpisodeReset, EpisodeStepped, Event, SessionOpened
from proctor.models.pixels import is_pixels
from proctor.replay.fork import BranchStep
from proctor.viewer.documents import EpisodeHead, EpisodeNote, EpisodeSlice, StepColumns
from proctor.viewer.first_difference import EpisodeMoment, read_moments
from proctor.viewer.slices import SliceBuilder
from proctor.viewer.summary import build_head, build_line

UNKNOWN_REWARDS: Final = "What the server would have paid for the new steps is not known: it transforms rewards."
_encode_json: Final = msgspec.json.Encoder().encode


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
    return Raw(_encode_json(value))
