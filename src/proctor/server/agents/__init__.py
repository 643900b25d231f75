"""What listens for agents: MCP over HTTP, on a socket of its own, with a token for one episode."""
