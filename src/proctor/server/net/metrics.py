"""What the server counts, for Prometheus; with several workers the counts of all are summed.

Rule: names and labels are fixed here; a label never holds what a peer sent.
"""

import os
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable by which the client library shares counts between processes."""
BUCKETS: Final = (1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 5e-2, 0.1, 0.5, 1.0, 5.0, 30.0)


GAUGES: Final = {
    "sessions": ("proctor_sessions", "Sessions that are open.", "livesum"),
    "connections": ("proctor_connections", "Sockets that are connected.", "livesum"),
    "waiting": ("proctor_waiting", "Clients that wait for a session.", "livesum"),
    "pending": ("proctor_pending_requests", "Requests that wait.", "livesum"),
    "disk_free": ("proctor_disk_free_bytes", "Bytes that are free on the disk that holds the record.", "livemin"),
    "disk_low": ("proctor_disk_low", "1 while that disk is nearly full: no session is opened.", "livemax"),
}
COUNTERS: Final = {
    "steps": ("proctor_steps", "Environment steps taken.", ()),
    "opened": ("proctor_sessions_opened", "Sessions opened so far.", ()),
    "errors": ("proctor_errors", "Errors told to clients.", ("code",)),
    "refusals": ("proctor_refused", "Requests refused by the access checks.", ("status",)),
    "ended": ("proctor_sessions_ended", "Sessions ended so far.", ("reason",)),
}


class Metrics:
    """The counts of one server, or of one worker."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self._gauges = {
            key: Gauge(name, about, registry=registry, multiprocess_mode=mode)  # type: ignore[arg-type]  # by the table
            for key, (name, about, mode) in GAUGES.items()
        }
        self._counters = {
            key: Counter(name, about, labels, registry=registry) for key, (name, about, labels) in COUNTERS.items()
        }
        seconds = Histogram("proctor_step_seconds", "Time of a step in the server.", registry=registry, buckets=BUCKETS)
        # Bound once: these two are called on every step.
        self._add_steps = self._counters["steps"].inc
        self._observe = seconds.observe

    def count_steps(self, seconds: float, count: int) -> None:
        """Count one step message, which stepped `count` environments."""
        self._add_steps(count)
        self._observe(seconds)

    def count_session(self) -> None:
        """Count a session that was opened."""
        self._counters["opened"].inc()

    def count_session_end(self, reason: str) -> None:
        """Count a session that has ended."""
        self._counters["ended"].labels(reason).inc()

    def count_error(self, code: str) -> None:
        """Count an error that was told to a client."""
        self._counters["errors"].labels(code).inc()

    def count_refusal(self, status: int) -> None:
        """Count a request that the access checks refused."""
        self._counters["refusals"].labels(str(status)).inc()

    def count_connection(self, change: int) -> None:
        """Count a socket in (1) or out (-1)."""
        self._gauges["connections"].inc(change)

    def note(self, *, sessions: int, waiting: int, pending: int) -> None:
        """Set how full the server is."""
        self._gauges["sessions"].set(sessions)
        self._gauges["waiting"].set(waiting)
        self._gauges["pending"].set(pending)

    def note_disk(self, *, free: int, is_low: bool) -> None:
        """Set how full the disk is that holds the record."""
        self._gauges["disk_free"].set(free)
        self._gauges["disk_low"].set(is_low)

    def page(self) -> bytes:
        """Return all counts in Prometheus's text format."""
        if FOLDER not in os.environ:
            return generate_latest(self.registry)
        summed = CollectorRegistry()
        MultiProcessCollector(summed)  # type: ignore[no-untyped-call]  # it ships no types
        return generate_latest(summed)
