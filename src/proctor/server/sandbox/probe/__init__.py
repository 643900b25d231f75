"""What each tier really blocks on this host."""
