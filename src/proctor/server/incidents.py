"""Numbers that a peer may know, and that find an entry in the server's log."""

import secrets


def new_incident() -> str:
    """Return a number that nobody else has."""
    return secrets.token_hex(6)
