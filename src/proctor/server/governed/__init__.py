"""Governed episodes: every call of an agent becomes packets, which are judged, recorded and answered."""
