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


class Metrics:
    """The counts of one server, or of one worker."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._sessions = Gauge(
            "proctor_sessions", "Sessions that are open.", registry=self.registry, multiprocess_mode="livesum"
        )
        self._connections = Gauge(
            "proctor_connections", "Sockets that are connected.", registry=self.registry, multiprocess_mode="livesum"
        )
        self._waiting = Gauge(
            "proctor_waiting", "Clients that wait for a session.", registry=self.registry, multiprocess_mode="livesum"
        )
        self._pending = Gauge(
            "proctor_pending_requests", "Requests that wait.", registry=self.registry, multiprocess_mode="livesum"
        )
        self._disk_free = Gauge(
            "proctor_disk_free_bytes",
            "Bytes that are free on the disk that holds the record.",
            registry=self.registry,
            multiprocess_mode="livemin",
        )
        self._disk_low = Gauge(
            "proctor_disk_low",
            "1 while that disk is nearly full: no session is opened.",
            registry=self.registry,
            multiprocess_mode="livemax",
        )
        self._steps = Counter("proctor_steps", "Environment steps taken.", registry=self.registry)
        self._opened = Counter("proctor_sessions_opened", "Sessions opened so far.", registry=self.registry)
        self._errors = Counter("proctor_errors", "Errors told to clients.", ["code"], registry=self.registry)
        self._refusals = Counter("proctor_refused", "Requests refused at the door.", ["status"], registry=self.registry)
        self._ended = Counter("proctor_sessions_ended", "Sessions ended so far.", ["reason"], registry=self.registry)
        self._seconds = Histogram(
            "proctor_step_seconds", "Time of a step in the server.", registry=self.registry, buckets=BUCKETS
        )
        self._bind()

    def _bind(self) -> None:
        # Bound once: these two are called on every step.
        self._add_steps = self._steps.inc
        self._observe = self._seconds.observe

    def count_steps(self, seconds: float, count: int) -> None:
        """Count one step message, which stepped `count` environments."""
        self._add_steps(count)
        self._observe(seconds)

    def count_session(self) -> None:
        """Count a session that was opened."""
        self._opened.inc()

    def count_session_end(self, reason: str) -> None:
        """Count a session that has ended."""
        self._ended.labels(reason).inc()

    def count_error(self, code: str) -> None:
        """Count an error that was told to a client."""
        self._errors.labels(code).inc()

    def count_refusal(self, status: int) -> None:
        """Count a request that the access checks refused."""
        self._refusals.labels(str(status)).inc()

    def count_connection(self, change: int) -> None:
        """Count a socket in (1) or out (-1)."""
        self._connections.inc(change)

    def note(self, *, sessions: int, waiting: int, pending: int) -> None:
        """Set how full the server is."""
        self._sessions.set(sessions)
        self._waiting.set(waiting)
        self._pending.set(pending)

    def note_disk(self, *, free: int, is_low: bool) -> None:
        """Set how full the disk is that holds the record."""
        self._disk_free.set(free)
        self._disk_low.set(is_low)

    def page(self) -> bytes:
        """Return all counts in Prometheus's text format."""
        if FOLDER not in os.environ:
            return generate_latest(self.registry)
        summed = CollectorRegistry()
        MultiProcessCollector(summed)  # type: ignore[no-untyped-call]  # it ships no types
        return generate_latest(summed)
