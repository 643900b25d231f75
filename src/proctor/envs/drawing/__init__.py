"""What every environment that draws shares: marks, letters and scenes, terminals, windows, films."""
