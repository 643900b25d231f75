"""Whoever watches gets every row in order, or is told how many are gone; whoever acts never waits for it."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from proctor.server.sessions.row_log import MOST_AT_ONCE, RowLog


def filled(count: int, *, most: int = 100, most_bytes: int = 10**6) -> RowLog:
    rows = RowLog(most=most, most_bytes=most_bytes)
    for number in range(1, count + 1):
        rows.add(str(number).encode())
    return rows


def test_rows_are_numbered_from_one_and_read_after_any_of_them() -> None:
    rows = filled(5)

    assert rows.last == 5
    assert list(rows.after(0, 10).rows) == [b"1", b"2", b"3", b"4", b"5"]
    assert list(rows.after(3, 10).rows) == [b"4", b"5"]
    assert list(rows.after(5, 10).rows) == []
    assert rows.after(5, 10).missed == 0


def test_what_is_forgotten_is_counted() -> None:
    rows = filled(10, most=4)

    assert list(rows.after(0, 10).rows) == [b"7", b"8", b"9", b"10"]
    assert rows.after(0, 10).missed == 6
    assert rows.after(5, 10).missed == 1
    assert rows.after(6, 10).missed == 0


def test_bytes_are_bounded_but_the_last_row_is_always_there() -> None:
    rows = RowLog(most=100, most_bytes=10)

    for _ in range(3):
        rows.add(b"x" * 20)

    assert list(rows.after(0, 10).rows) == [b"x" * 20]
    assert rows.after(0, 10).missed == 2


def test_one_answer_has_a_bounded_size() -> None:
    rows = RowLog(most_bytes=10 * MOST_AT_ONCE)
    for _ in range(5):
        rows.add(b"x" * (MOST_AT_ONCE // 2))

    page = rows.after(0, 10)

    assert len(page.rows) == 2
    assert page.missed == 0


@given(count=st.integers(0, 60), most=st.integers(1, 20), page=st.integers(1, 7))
def test_whoever_reads_page_by_page_gets_what_is_kept_once_and_in_order(count: int, most: int, page: int) -> None:
    rows = filled(count, most=most)
    seen: list[bytes] = []
    missed = last = 0

    while True:
        found = rows.after(last, page)
        missed += found.missed
        last += found.missed + len(found.rows)
        seen += found.rows
        if not found.rows:
            break

    assert seen == [str(number).encode() for number in range(max(1, count - most + 1), count + 1)]
    assert missed == max(0, count - most)
    assert last == count


def test_a_reader_that_waits_is_woken_by_the_next_row_and_by_the_end() -> None:
    async def scenario() -> list[int]:
        rows = RowLog()
        woken: list[int] = []

        async def read(number: int) -> None:
            await rows.wait_for_change(20)
            woken.append(number)

        async with asyncio.timeout(300), asyncio.TaskGroup() as readers:
            first = readers.create_task(read(1))
            await asyncio.sleep(0)
            rows.add(b"{}")
            await first
            readers.create_task(read(2))
            await asyncio.sleep(0)
            rows.wake()
        return woken

    assert asyncio.run(scenario()) == [1, 2]


def test_a_reader_does_not_wait_longer_than_it_said() -> None:
    async def scenario() -> None:
        async with asyncio.timeout(300):
            await RowLog().wait_for_change(0.01)

    asyncio.run(scenario())
