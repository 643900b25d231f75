"""The viewer over HTTP: routes, live news, and the processes that read the ledger for them."""
