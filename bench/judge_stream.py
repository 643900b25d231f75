"""What judges are measured with: whole conforming episodes of twenty packets a round, interleaved.

Rule 1: an episode is authored once; the others are the same bytes under another name of the same length, so that a
    million packets need no memory of their own.
Rule 2: every line is accepted, which whoever measures asks once before the clock runs (`conforming`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from proctor.episode.author import Author
from proctor.episode.judge import Judge
from proctor.episode.packets.fields import Budgets, DefinitionOfDone, ExecutionMetadata, Intent, RiskBudget
from proctor.episode.packets.writer import QUALITY, PacketDefaults

OPEN: Final = 100
ROUND: Final = 20

_NAME: Final = "bench-00000000"
_BEGINNING: Final = datetime(2025, 1, 1, tzinfo=UTC)
_POLICY: Final = PacketDefaults(
    intent=Intent(
        summary="keep the greenhouse between 18 and 24 degrees",
        scope="the north zone",
    ),
    quality=replace(
        QUALITY,
        definition_of_done=DefinitionOfDone(
            text="the zone is inside its band",
            checks=["two readings agree"],
        ),
    ),
    budgets=Budgets(
        token_budget=1_000_000,
        tool_call_budget=1_000,
        time_budget_seconds=86_400,
        risk_budget=RiskBudget(envelope="one night", max_loss=250.0),
    ),
)
_SPENT: Final = ExecutionMetadata(execution_time_ms=184.5, tokens_used=312, tool_calls_used=1, retry_count=0)


def authored(rounds: int = 1) -> list[bytes]:
    """Return the lines of one episode, its close last: observe, believe, verify, decide, write, observe and learn."""
    author = Author(f"corr_{_NAME}", at=_BEGINNING, policy=_POLICY)
    lines = [line for number in range(rounds) for line in _round(author, number)]
    return [*lines, author.record("close").line()]


def _round(author: Author, number: int) -> Iterator[bytes]:
    asked = author.observation(
        {"text": "the night is colder than forecast, please see to the north zone", "operator": "shift-2"},
        type="user_input",
    )
    yield asked.line()
    seen = author.observation(_reading("north", 17.2 + number), tool="thermometer")
    yield seen.line()
    yield author.belief(_believed("north", "cooling"), evidence=[asked, seen]).line()
    yield author.decision("VERIFY_FIRST", "one reading is not enough").line()
    yield author.plan(["the north zone is below its band", "the valve answers"]).line()
    evidence = []
    for tool in ("thermometer-2", "valve-status"):
        task = author.directive(tool, params={"zone": "north", "samples": 12, "interval_seconds": 5}, timeout=60)
        yield task.line()
        yield author.result(task, data=_reading("north", 17.1), cost=_SPENT).line()
        evidence.append(author.observation(_reading("north", 17.1), tool=tool))
        yield evidence[-1].line()
    yield author.belief(_believed("north", "below the band"), evidence=evidence).line()
    yield author.decision(
        "ACT",
        "open the heating valve of the north zone by a tenth, twice, and read again",
        assumptions={"the thermometer is calibrated": True, "the valve moves when told": True},
    ).line()
    token = author.token(["valve"], operations=["write", "modify"], uses=2)
    yield token.line()
    for opening in (0.1, 0.2):
        task = author.directive("valve", safety="WRITE", token=token, params={"zone": "north", "opening": opening})
        yield task.line()
        yield author.result(task, data={"zone": "north", "opening": opening}, cost=_SPENT).line()
    warmer = author.observation(_reading("north", 18.4), tool="thermometer")
    yield warmer.line()
    yield author.belief(_believed("north", "inside the band"), evidence=[warmer]).line()


def _reading(zone: str, degrees: float) -> dict[str, object]:
    return {"zone": zone, "celsius": degrees, "humidity": 0.61, "samples": 4}


def _believed(zone: str, state: str) -> dict[str, object]:
    return {f"{zone}.state": state, f"{zone}.trend": {"slope_per_hour": -0.4}}


def renamed(lines: Iterable[bytes], number: int) -> list[bytes]:
    """Return an episode's lines under the name of its number."""
    old, new = _NAME.encode(), f"bench-{number:08d}".encode()
    return [line.replace(old, new) for line in lines]


def interleaved(lines: list[bytes], episodes: int = OPEN, first: int = 0) -> list[bytes]:
    """Return the lines of so many episodes, one line of each by turns."""
    each = [renamed(lines, first + number) for number in range(episodes)]
    return [line for turn in zip(*each, strict=True) for line in turn]


def packets_in(lines: Iterable[bytes]) -> list[bytes]:
    """Return the lines that are packets: a record begins otherwise."""
    return [line for line in lines if line.startswith(b'{"header"')]


def mean_size(lines: Iterable[bytes]) -> float:
    """Return the mean length of the packets among `lines`, in bytes."""
    sizes = [len(line) for line in packets_in(lines)]
    return sum(sizes) / len(sizes)


def conforming(lines: Iterable[bytes]) -> Judge:
    """Return a judge that accepted every line; raise a ValueError with the first that it did not."""
    judge = Judge()
    for line in lines:
        verdict = judge.apply(line)
        if not verdict.accepted or verdict.warnings:
            told = [*verdict.findings, *verdict.warnings]
            raise ValueError(f"a line to measure with was not accepted as it is: {told}")
    return judge
