import asyncio

from hypothesis import given
from hypothesis import strategies as st

from proctor.client.requests import Alarm

PATIENCE = 120.0


class Sleeper:
    def __init__(self) -> None:
        self.woken_at: float | None = None
        self.woken = asyncio.Event()

    def wake(self) -> None:
        self.woken_at = asyncio.get_running_loop().time()
        self.woken.set()


@given(st.lists(st.integers(0, 20), min_size=1, max_size=12), st.sets(st.integers(0, 11)))
def test_all_are_woken_when_they_are_due_and_not_before_but_for_those_let_alone(
    times: list[int], alone: set[int]
) -> None:
    async def main() -> None:
        alarm, begun = Alarm(), asyncio.get_running_loop().time()
        sleepers = [Sleeper() for _ in times]
        for sleeper, time in zip(sleepers, times, strict=True):
            alarm.watch(sleeper, time / 1000)
        for index in alone & set(range(len(times))):
            alarm.unwatch(sleepers[index])
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(each.woken.wait() for index, each in enumerate(sleepers) if index not in alone))
        for index, (sleeper, time) in enumerate(zip(sleepers, times, strict=True)):
            assert (sleeper.woken_at is None) == (index in alone)
            assert sleeper.woken_at is None or sleeper.woken_at >= begun + time / 1000 - 1e-3

    asyncio.run(main())


def test_one_timer_serves_many_and_a_stopped_alarm_wakes_nobody() -> None:
    async def main() -> tuple[int, bool]:
        alarm, loop = Alarm(), asyncio.get_running_loop()
        for _ in range(100):
            sleeper = Sleeper()
            alarm.watch(sleeper, PATIENCE)
            alarm.unwatch(sleeper)
        timers = len(loop._scheduled)  # type: ignore[attr-defined]
        alarm.watch(last := Sleeper(), 0.001)
        alarm.stop()
        alarm.stop()
        await asyncio.sleep(0.005)
        return timers, last.woken.is_set()

    assert asyncio.run(main()) == (1, False)
