"""Attacks on a running server: each is a function and a command, `python -m bench.attacks.NAME`."""
