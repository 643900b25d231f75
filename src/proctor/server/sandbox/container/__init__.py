"""Containers as sandboxes, and the images for them."""
