"""Serves environments: sessions, the planes that reach them, and what is done to rewards on the way."""
