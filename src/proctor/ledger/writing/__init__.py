"""How events get into a ledger: built as rows, committed in groups, within limits."""
