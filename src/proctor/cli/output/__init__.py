"""What all commands share: standard output, columns, bars of progress, and a browser that is opened."""
