"""Every recorder keeps the rules of its contract; one row of `KINDS` each."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from proctor.contracts.recorder import Recorder
from proctor.errors import ComponentError
from proctor.models.events import EpisodeReset, Event, SessionClosed, SessionOpened, encode_event
from proctor.server.sessions.recorders import JsonlRecorder, NullRecorder, read_events
from tests.models.events_strategies import events
from tests.server.memory_recorder import MemoryRecorder


@dataclass(frozen=True, slots=True)
class Kind:
    """A recorder, and how to read what it keeps."""

    make: Callable[[Path], Recorder]
    read: Callable[[Recorder, Path], list[object]]


def in_memory(recorder: Recorder, path: Path) -> list[object]:
    assert isinstance(recorder, MemoryRecorder)
    return list(recorder.events)


def in_file(recorder: Recorder, path: Path) -> list[object]:
    return list(read_events(path))


KEEPING = [
    pytest.param(Kind(lambda path: MemoryRecorder(), in_memory), id="memory"),
    pytest.param(Kind(JsonlRecorder, in_file), id="jsonl"),
    pytest.param(Kind(lambda path: JsonlRecorder(path, sync=True), in_file), id="jsonl-sync"),
]
KINDS = [*KEEPING, pytest.param(Kind(lambda path: NullRecorder(), lambda recorder, path: []), id="null")]
FIRST = EpisodeReset(session="s", at=0.0, epoch=1, episode_id="e", observation=Raw(b'{"observation":1}'))
LAST = SessionClosed(session="s", at=1.0, reason="client", episodes=1, steps=0)
WORDS: Any = dict.fromkeys(
    ("environment", "environment_version", "target", "server", "place", "python", "gymnasium", "numpy"), ""
)
UNSAYABLE = SessionOpened(session="s", at=0.0, settings={"callback": print}, **WORDS)


def lines(found: list[object]) -> list[bytes]:
    assert all(isinstance(event, get_args(Event)) for event in found)
    return [encode_event(event) for event in found]  # type: ignore[arg-type]  # the line above


@pytest.mark.parametrize("kind", KINDS)
def test_a_recorder_is_recognised_by_its_members(kind: Kind, tmp_path: Path) -> None:
    recorder = kind.make(tmp_path / "record.jsonl")

    assert isinstance(recorder, Recorder)
    recorder.close()


def test_a_recorder_may_answer_later() -> None:
    """The annotation is the contract: the type checker reads it here."""

    class Later:
        async def record(self, event: Event) -> None: ...

        def head(self, session: str) -> None: ...

        def close(self) -> None: ...

    later: Recorder = Later()

    assert inspect.signature(Recorder.record).return_annotation == Awaitable[None] | None
    assert isinstance(later, Recorder)


@pytest.mark.parametrize("kind", KEEPING)
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(given_events=st.lists(events, max_size=6))
def test_events_are_on_record_in_the_order_in_which_they_were_given(
    kind: Kind, tmp_path: Path, given_events: list[Event]
) -> None:
    path = tmp_path / "record.jsonl"
    path.unlink(missing_ok=True)
    recorder = kind.make(path)

    for number, event in enumerate(given_events, start=1):
        assert recorder.record(event) is None
        assert len(kind.read(recorder, path)) == number

    assert lines(kind.read(recorder, path)) == [encode_event(event) for event in given_events]
    recorder.close()


@pytest.mark.parametrize("kind", KEEPING)
def test_what_cannot_be_kept_is_a_component_error_and_spoils_nothing(kind: Kind, tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    recorder = kind.make(path)
    recorder.record(FIRST)

    with pytest.raises(ComponentError):
        recorder.record(UNSAYABLE)
    recorder.record(LAST)

    assert lines(kind.read(recorder, path)) == [encode_event(FIRST), encode_event(LAST)]
    recorder.close()


@pytest.mark.parametrize("kind", KEEPING)
def test_the_buffer_of_an_event_may_be_used_again_after_the_call(kind: Kind, tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    buffer = bytearray(b'{"observation":1}')
    recorder = kind.make(path)

    recorder.record(replace(FIRST, observation=Raw(buffer)))
    buffer[:] = b'{"observation":2}'

    assert lines(kind.read(recorder, path)) == [encode_event(FIRST)]
    recorder.close()


@pytest.mark.parametrize("kind", KINDS)
def test_closing_twice_is_closing_once(kind: Kind, tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    recorder = kind.make(path)
    recorder.record(FIRST)
    before = kind.read(recorder, path)

    recorder.close()
    recorder.close()

    assert kind.read(recorder, path) == before


@pytest.mark.parametrize("kind", KEEPING)
def test_nothing_is_taken_after_the_close(kind: Kind, tmp_path: Path) -> None:
    recorder = kind.make(tmp_path / "record.jsonl")
    recorder.close()

    with pytest.raises(ComponentError, match="closed"):
        recorder.record(LAST)
