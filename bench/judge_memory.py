"""What a fresh process does to be measured: `python -m bench.judge_memory EPISODES` prints its resident bytes.

Rule 1: packets are made as they are judged, a hundred episodes open at a time, a hundred packets each; all are closed
    in the end, and the judge is alive while memory is read.
"""

import gc
import sys

from bench.footprint import resident
from bench.judge_stream import OPEN, ROUND, authored, conforming, interleaved
from proctor.episode.judge import Judge

PACKETS = 100


def judged(episodes: int) -> Judge:
    """Return the judge of so many episodes, in lots of those that are open together."""
    lines = authored(PACKETS // ROUND)
    conforming(lines)
    judge = Judge()
    for first in range(0, episodes, OPEN):
        for verdict in judge.stream(interleaved(lines, min(OPEN, episodes - first), first)):
            if not verdict.accepted:
                raise ValueError(f"a line was refused: {verdict.reason}")
    return judge


def main(episodes: str) -> None:
    """Judge, and print one line."""
    judge = judged(int(episodes))
    gc.collect()
    print(resident())
    del judge


if __name__ == "__main__":
    main(*sys.argv[1:])
