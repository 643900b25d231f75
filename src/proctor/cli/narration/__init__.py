"""The events of an episode in words, for the commands that show one."""
