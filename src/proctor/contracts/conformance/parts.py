"""What the checks of all parts share: metadata, and calls that must be refused."""

from collections.abc import Callable, Mapping
from typing import Any

from proctor.contracts.conformance.report import KEPT, Outcome, Probe, short


def refused(kinds: tuple[type[Exception], ...], call: Callable[..., Any], *arguments: Any) -> str | None:
    """Return None if `call` raises one of `kinds`, else what it answers; anything else that it raises passes through."""
    try:
        answer = call(*arguments)
    except kinds:
        return None
    return f"answers {short(answer)} instead of {kinds[0].__name__}"


def has_metadata(probe: Probe, keys: Mapping[str, type]) -> Outcome:
    """Return whether `get_metadata()` of the subject returns a dict with these keys and types."""
    part = probe.make()
    probe.doing = "get_metadata()"
    metadata = part.get_metadata()
    if not isinstance(metadata, dict):
        return probe.broken(f"returns {short(metadata)}, no dict")
    for key, kind in keys.items():
        if not isinstance(metadata.get(key), kind):
            return probe.broken(f"{key!r} is {short(metadata.get(key))}, expected a {kind.__name__}")
    return KEPT
