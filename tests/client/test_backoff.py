from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from proctor.client.settings import Backoff

CHANCES = st.floats(0, 1, exclude_max=True)


def test_the_first_attempt_comes_at_once_and_the_delays_double() -> None:
    delays = list(islice(Backoff(first=1.0, longest=5.0).delays(lambda: 0.0), 6))

    assert delays == [0.0, 1.0, 2.0, 4.0, 5.0, 5.0]


@given(st.lists(CHANCES, min_size=10, max_size=10), st.floats(0.01, 1), st.floats(1, 60))
def test_chance_takes_at_most_half_of_a_delay_away(chances: list[float], first: float, longest: float) -> None:
    backoff = Backoff(first=first, longest=longest)
    draws = iter(chances)
    most = list(islice(backoff.delays(lambda: 0.0), 10))

    for delay, limit in zip(islice(backoff.delays(lambda: next(draws)), 10), most, strict=True):
        assert limit / 2 <= delay <= limit <= longest
