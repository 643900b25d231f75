"""Batches of environments: what every batch shares, and how its kernels are compiled."""
