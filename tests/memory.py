"""How much memory a block takes at most."""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def measured_memory() -> Iterator[Callable[[], int]]:
    """Measure the block; the function that is yielded returns the bytes that it held at most."""
    peaks: list[int] = []
    tracemalloc.start()
    try:
        yield lambda: peaks[0]
        peaks.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
