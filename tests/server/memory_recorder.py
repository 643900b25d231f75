"""A recorder that keeps what it is given."""

from proctor.errors import ComponentError
from proctor.models.events import Event, decode_event, encode_event


class MemoryRecorder:
    """Keeps events in memory; safe means: as long as the process lives."""

    def __init__(self) -> None:
        self._kept: list[Event] = []
        self._closed = False

    @property
    def events(self) -> tuple[Event, ...]:
        """The events that are kept, in the order in which they came; still there after `close`."""
        return tuple(self._kept)

    def of(self, session: str) -> tuple[Event, ...]:
        """Return the kept events of one session, in order."""
        return tuple(event for event in self._kept if event.session == session)

    def record(self, event: Event) -> None:
        """Keep a copy of the event."""
        if self._closed:
            raise ComponentError("the recorder is closed", expected="no more events")
        self._kept.append(decode_event(encode_event(event)))

    def head(self, session: str) -> None:
        """Return None: nothing here could prove anything."""

    def close(self) -> None:
        """Take no more events."""
        self._closed = True
