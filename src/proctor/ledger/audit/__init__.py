"""Checks of one ledger file, row by row: what `verify` is made of."""
