"""The ledger: what sessions stated, kept in SQLite files as chains of hashes, read, proved, pruned and handed over.

It knows events, the recorder's contract and errors; never sockets, environments or sessions.
"""
