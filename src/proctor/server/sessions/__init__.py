"""A session: one running environment with its recorder."""
