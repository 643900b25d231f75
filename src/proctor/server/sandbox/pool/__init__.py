"""The server's side of a sandbox: worker processes, their sockets, zygotes, cgroups."""
