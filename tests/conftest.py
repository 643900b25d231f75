"""What every test needs: Hypothesis profiles and a machine without a screen."""

from __future__ import annotations

import gc
import os

from hypothesis import HealthCheck, settings

# A window opens nowhere, a plot is drawn to memory, and pygame does not greet.
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

# No deadline: the first example of a compiled kernel pays for its compilation. There are hundreds of properties,
# and the quick tests have ten minutes on two cores; HYPOTHESIS_PROFILE=thorough looks longer.
settings.register_profile("default", deadline=None, max_examples=40)
settings.register_profile("ci", parent=settings.get_profile("default"), print_blob=True)
settings.register_profile(
    "thorough",
    parent=settings.get_profile("ci"),
    max_examples=2_000,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default"))


def pytest_collection_finish() -> None:
    """Leave what was collected out of every later garbage collection: thousands of tests that all stay to the end."""
    gc.collect()
    gc.freeze()
