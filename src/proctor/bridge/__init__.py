"""From a desktop client's standard input to an agent plane, with a grant's token."""
