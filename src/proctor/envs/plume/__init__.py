"""Plume search: an agent on a grid looks for the source of an odor."""
