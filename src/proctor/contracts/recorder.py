"""Who keeps what sessions state, as a Protocol.

Rule 1: a reply leaves only when its event is safe. What "safe" means (in memory, given to the operating system, on the
    disk) is the recorder's own promise, and its docstring says it.
Rule 2: events of one session are recorded in the order in which they were given; events of different sessions may mix.
Rule 3: a recorder that cannot keep an event raises a ComponentError, from `record` or from what it returned. The session
    then answers RECORDING_FAILED and its episode is lost. No other error leaves a recorder, whatever the disk said. A
    RecordLimitError among them says which limit is reached, and the session answers with the code of that limit.
Rule 4: an event that failed is not on record, and what was recorded before it stays readable. The next event may
    succeed.
Rule 5: the Raw fields of an event are the recorder's only during the call. One who keeps an event longer takes its JSON
    (`events.encode_event`) or copies them.
Rule 6: a recorder is called from one thread. `close` may be called twice; after it a recorder keeps nothing more, and one that
    kept anything raises a ComponentError.
"""

from collections.abc import Awaitable
from typing import Protocol, runtime_checkable

from proctor.models.events import Event


@runtime_checkable
class Recorder(Protocol):
    """Keeps events; see the rules at the head."""

    def record(self, event: Event) -> Awaitable[None] | None:
        """Return None when the event is safe, or an awaitable that ends when it is."""

    def head(self, session: str) -> str | None:
        """Return what proves that all which is safe of this session's latest episode is there; None: nothing does."""

    def close(self) -> None:
        """Let go of files and memory; what was recorded stays where it is kept."""
