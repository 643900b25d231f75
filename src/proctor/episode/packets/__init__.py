"""Packets: their fields, how they are read, checked and written."""
