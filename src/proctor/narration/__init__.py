"""Events and verdicts of the record in words, for the commands, the viewer, the demo and traces."""
