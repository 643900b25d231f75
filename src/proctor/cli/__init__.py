"""The command `proctor`: one file per command."""
