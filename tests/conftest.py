"""What every test needs: Hypothesis profiles, a machine without a screen, and programs that listen to Ctrl-C."""

from __future__ import annotations

import gc
import os
import signal

import pytest
from hypothesis import HealthCheck, settings

# A window opens nowhere, a plot is drawn to memory, and pygame does not greet.
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

# A shell starts what runs in the background with SIGINT ignored, and every program that a test starts would inherit that.
# A handler is not inherited: the programs begin with the default.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: the first example of a compiled kernel pays for its compilation, and a busy machine is no mistake of the
# code. There are hundreds of properties, and the quick tests have eight minutes on two cores;
# HYPOTHESIS_PROFILE=thorough looks longer.
settings.register_profile("default", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
# For the gate: the same examples every time, so that it says the same about the same code.
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True, print_blob=True)
settings.register_profile("thorough", parent=settings.get_profile("default"), max_examples=2_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default"))


@pytest.fixture
def anyio_backend() -> str:
    """The event loop of asynchronous tests: anyio's pytest plugin asks for it."""
    return "asyncio"


def pytest_collection_finish() -> None:
    """Leave what was collected out of every later garbage collection: thousands of tests that all stay to the end."""
    gc.collect()
    gc.freeze()
