"""A module that never comes to the end of its import."""

from __future__ import annotations

import threading

from tests.system.attacks.hostile import Hostile

threading.Event().wait(3600)


class Slow(Hostile):
    """Is never made."""
