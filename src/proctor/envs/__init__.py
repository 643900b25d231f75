"""The environments, and what they share: how they are compiled, registered, shown and played."""
