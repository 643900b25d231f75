"""Many plume searches in one, as compiled loops over arrays."""
