"""Many games of Column Popper in one, as compiled loops over arrays."""
