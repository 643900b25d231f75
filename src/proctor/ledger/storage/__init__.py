"""How a ledger lies on the disk: the SQLite file, its values, and the lock of its writer."""
