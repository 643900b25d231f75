"""Reward transforms."""
