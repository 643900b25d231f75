"""Nothing runs twice: the memory of replies, against a model that forgets nothing."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proctor.server.control import protocol as module
from proctor.server.control.protocol import MOST_KEPT_BYTES, Admission, ReplyCache

FEW_BYTES = 100
"""The bound of the machine below, so that it is met often."""


def reply_to(number: int, size: int = 0) -> bytes:
    return b"%d:" % number + bytes(size)


class Remembered(RuleBasedStateMachine):
    """Every request that was ever seen, in the order in which it came, with what was answered to it."""

    @initialize(most=st.integers(1, 4))
    def begin(self, most: int) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(module, "MOST_KEPT_BYTES", FEW_BYTES)
        self.replies = ReplyCache(most)
        self.most = most
        self.orderly = True
        self.contents: dict[int, int] = {}
        self.answers: dict[int, bytes] = {}
        self.ran: list[int] = []
        self.last_kept: int | None = None

    def teardown(self) -> None:
        self.patch.undo()

    @property
    def running(self) -> list[int]:
        return [number for number in self.contents if number not in self.answers]

    def kept(self) -> dict[int, bytes]:
        """Return the replies that a repeated request would get."""
        found = {number: self.replies.admit(number, content) for number, content in self.contents.items()}
        kept = {number: answer for number, answer in found.items() if isinstance(answer, bytes)}
        assert all(self.replies.keeps(number) == (number in kept) for number in found)
        return kept

    @rule(ahead=st.integers(1, 3), content=st.integers(0, 1))
    def a_new_request_comes(self, ahead: int, content: int) -> None:
        number = max(self.contents, default=0) + ahead

        assert self.replies.admit(number, content) is Admission.NEW
        self.contents[number] = content
        self.ran.append(number)

    @rule(number=st.integers(1, 60), content=st.integers(0, 1))
    def any_request_comes(self, number: int, content: int) -> None:
        admission = self.replies.admit(number, content)

        if number > max(self.contents, default=0):
            assert admission is Admission.NEW
            self.contents[number] = content
            self.ran.append(number)
        elif number not in self.contents or self.contents[number] != content:
            assert admission is Admission.REUSED
        elif number in self.answers:
            assert admission in (self.answers[number], Admission.REUSED)
        else:
            assert admission is Admission.RUNNING

    @precondition(lambda self: self.running)
    @rule(data=st.data(), size=st.sampled_from((0, 0, 0, FEW_BYTES // 3, FEW_BYTES + 1)))
    def a_request_is_answered(self, data: st.DataObject, size: int) -> None:
        number = data.draw(st.sampled_from(self.running))
        self.orderly = self.orderly and number == self.running[0]
        self.answers[number] = reply_to(number, size)
        self.last_kept = number

        self.replies.keep(number, self.answers[number])

    @invariant()
    def nothing_runs_twice(self) -> None:
        assert len(self.ran) == len(set(self.ran))
        assert self.replies.last_id == max(self.contents, default=0)

    @invariant()
    def what_is_kept_is_exact_and_bounded(self) -> None:
        kept = self.kept()

        assert kept == {number: self.answers[number] for number in kept}
        assert len(kept) <= self.most
        assert len(kept) == 1 or sum(map(len, kept.values())) <= FEW_BYTES

    @invariant()
    def the_last_reply_is_always_kept(self) -> None:
        assert self.last_kept is None or self.last_kept in self.kept()

    @invariant()
    def small_replies_are_kept_as_long_as_was_promised(self) -> None:
        small = sum(map(len, self.answers.values())) <= FEW_BYTES
        if small and self.orderly and not self.running:
            assert sorted(self.kept()) == sorted(self.answers)[-self.most :]


TestRemembered = Remembered.TestCase
TestRemembered.settings = settings(deadline=None, stateful_step_count=30)


def test_a_repeated_request_gets_its_reply_as_often_as_it_comes() -> None:
    replies = ReplyCache(2)

    assert replies.admit(1, 7) is Admission.NEW
    assert replies.admit(1, 7) is Admission.RUNNING
    replies.keep(1, b"one")

    assert [replies.admit(1, 7) for _ in range(3)] == [b"one"] * 3


def test_the_last_replies_are_kept_and_older_ones_are_refused() -> None:
    replies = ReplyCache(3)

    for number in range(1, 7):
        replies.admit(number, number)
        replies.keep(number, reply_to(number))

    assert [replies.admit(number, number) for number in range(1, 7)] == [
        *([Admission.REUSED] * 3),
        *(reply_to(number) for number in (4, 5, 6)),
    ]


def test_a_request_that_runs_long_does_not_let_the_memory_grow() -> None:
    replies = ReplyCache(2)
    replies.admit(1, 0)

    for number in range(2, 1000):
        replies.admit(number, 0)
        replies.keep(number, reply_to(number))

    answered = [number for number in range(2, 1000) if isinstance(replies.admit(number, 0), bytes)]
    assert len(answered) <= 2
    assert replies.admit(1, 0) is Admission.RUNNING


def test_a_reply_that_is_too_large_is_kept_alone() -> None:
    replies = ReplyCache(4)
    for number, size in ((1, 10), (2, MOST_KEPT_BYTES + 1)):
        replies.admit(number, 0)
        replies.keep(number, reply_to(number, size))

    assert replies.admit(1, 0) is Admission.REUSED
    assert replies.admit(2, 0) == reply_to(2, MOST_KEPT_BYTES + 1)
    replies.admit(3, 0)
    replies.keep(3, b"three")
    assert replies.admit(2, 0) is Admission.REUSED
    assert replies.admit(3, 0) == b"three"


def test_what_came_before_the_server_was_ended_is_spent_but_for_what_had_no_effect() -> None:
    replies = ReplyCache(2)
    replies.restore(5, {3})

    assert replies.admit(4, 1) is Admission.REUSED
    assert replies.admit(5, 1) is Admission.REUSED
    assert replies.admit(3, 1) is Admission.NEW
    replies.keep(3, b"again")
    assert replies.admit(3, 1) == b"again"
    assert replies.last_id == 5
    assert replies.admit(6, 1) is Admission.NEW
