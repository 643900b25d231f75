"""Episodes as lines, for the commands that read them."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from proctor.episode import Author

NOON = datetime(2025, 1, 1, 12, tzinfo=UTC)


def conforming(name: str = "corr_good", campaign: str | None = None) -> Iterator[Any]:
    """Yield an episode that verifies, writes and is closed."""
    author = Author(name, at=NOON, campaign_id=campaign)
    seen = author.observation({"temperature": 21})
    yield seen
    yield author.belief({"warm": True}, evidence=[seen])
    yield author.decision("VERIFY_FIRST")
    yield author.plan()
    asked = author.directive("thermometer")
    yield asked
    yield author.result(asked)
    again = author.observation({"temperature": 22})
    yield again
    yield author.belief({"warm": True}, evidence=[again])
    yield author.decision("ACT")
    token = author.token("heater")
    yield token
    done = author.directive("heater", safety="WRITE", token=token)
    yield done
    yield author.result(done)
    yield author.belief()
    yield author.record("close")


def violated(name: str = "corr_bad", campaign: str | None = None) -> Iterator[Any]:
    """Yield an episode that decides before it believes, and stays open with a task."""
    author = Author(name, at=NOON, campaign_id=campaign)
    yield author.record("open", {"profile": "strict"})
    seen = author.observation({"temperature": 21})
    yield seen
    yield author.decision("ACT", previous=None)
    yield author.belief({"warm": True}, evidence=[seen], previous=None)
    yield author.decision("ACT")
    yield author.directive("thermometer")


def text_of(*episodes: Iterator[Any]) -> bytes:
    return b"".join(packet.line() + b"\n" for episode in episodes for packet in episode)


def written(path: Path, *episodes: Iterator[Any]) -> str:
    """Write the episodes one after another, and return the file's name."""
    path.write_bytes(text_of(*episodes))
    return str(path)
