"""The control plane: the WebSocket on which orchestrators open, reset, step and close."""
