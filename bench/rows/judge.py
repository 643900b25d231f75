"""The rows of the episode judge: from bytes to verdict, against reading alone and against packages put together.

Rule 1: both sides of a row get the same bytes: a hundred interleaved conforming episodes, their closes included; what is
    counted are packets.
Rule 2: every line is accepted, which is asked once before anything is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Final

import msgspec

from bench.fresh import printed
from bench.judge_anchor import Assembled
from bench.judge_memory import PACKETS
from bench.judge_stream import OPEN, authored, conforming, interleaved, packets_in
from bench.measure import Gap, Probe, rate_of
from bench.row import Better, Opener, Row, ratio_at_least, ratio_below
from proctor.episode.judge import Judge

Pass = Callable[[list[bytes]], None]
"""Reads or judges all lines once."""

EPISODES: Final = 10_000
FEWER: Final = EPISODES // 10


def stream_of(episodes: int = OPEN) -> list[bytes]:
    """Return the lines to measure with; raise a ValueError if one of them is not accepted."""
    lines = interleaved(authored(), episodes)
    conforming(lines)
    return lines


def through(made: Callable[[], Pass], episodes: int = OPEN) -> Opener:
    """Packets a second of what `made` returns."""

    def opened(_: ExitStack) -> Probe:
        lines = stream_of(episodes)
        count = len(packets_in(lines))
        run = made()

        def chunk() -> int:
            run(lines)
            return count

        return rate_of(chunk)

    return opened


def applied() -> Pass:
    """Judge each line by `apply`, in a judge of its own for each pass."""

    def run(lines: list[bytes]) -> None:
        apply = Judge().apply
        for line in lines:
            apply(line)

    return run


def streamed() -> Pass:
    """Judge the lines by `stream`."""

    def run(lines: list[bytes]) -> None:
        for _ in Judge().stream(lines):
            pass

    return run


def told() -> Pass:
    """Judge each line, and read all that a verdict can say."""
    everything = attrgetter("rules", "pointers", "reason", "legal_next", "obligations", "way")

    def run(lines: list[bytes]) -> None:
        for verdict in Judge().stream(lines):
            everything(verdict)

    return run


def untyped() -> Pass:
    """Read each line into dicts and lists, by msgspec."""

    def run(lines: list[bytes]) -> None:
        decode = msgspec.json.decode
        for line in lines:
            decode(line)

    return run


def assembled(*, inlined: bool = False) -> Pass:
    """Judge each line by jsonschema and `transitions`."""
    judge = Assembled(inlined=inlined)
    if not all(judge.apply(line) for line in stream_of(1)):
        raise ValueError("a line to measure with was not accepted")

    def run(lines: list[bytes]) -> None:
        apply = judge.apply
        for line in lines:
            apply(line)

    return run


def resident_after(episodes: int) -> Opener:
    """Resident bytes of a fresh process that has judged so many episodes of a hundred packets, all closed."""

    def opened(_: ExitStack) -> Probe:
        if not Path("/proc/self/statm").exists():
            raise Gap("resident memory is read from /proc, which this system lacks")
        return lambda _seconds: float(printed(["-m", "bench.judge_memory", str(episodes)]))

    return opened


NOTE: Final = f"{OPEN} episodes, packets of 1.3 kB"


def _rate(name: str, subject: Opener, anchor: Opener, anchor_name: str, bound: float | None, note: str = NOTE) -> Row:
    goal = None if bound is None else ratio_at_least(bound)
    return Row(name, subject, anchor, anchor_name, goal, unit="packets/s", note=note, tier="none")


ROWS: Final = (
    _rate("judge.packets/untyped", through(applied), through(untyped), "msgspec.json.decode", 0.5),
    _rate("judge.stream/untyped", through(streamed), through(untyped), "msgspec.json.decode", None),
    _rate(
        "judge.told/untyped", through(told), through(untyped), "msgspec.json.decode", None, f"{NOTE}, all of it read"
    ),
    _rate(
        "judge.packets/jsonschema-transitions",
        through(applied),
        through(assembled),
        "jsonschema and transitions, schema and table only",
        100.0,
    ),
    _rate(
        "judge.packets/jsonschema-inlined",
        through(applied),
        through(partial(assembled, inlined=True)),
        "jsonschema and transitions, every $ref written out",
        None,
    ),
    Row(
        "judge.memory/tenth",
        resident_after(EPISODES),
        resident_after(FEWER),
        f"after {FEWER * PACKETS:,} packets in {FEWER:,} closed episodes",
        ratio_below(1.1),
        unit="bytes",
        better=Better.LOWER,
        note=f"after {EPISODES * PACKETS:,} packets in {EPISODES:,} closed episodes",
        tier="none",
    ),
)
