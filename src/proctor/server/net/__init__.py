"""Sockets: listening, limits before a credential, draining, metrics."""
