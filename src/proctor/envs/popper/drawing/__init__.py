"""From Column Popper's scene to pictures, in pixels and in a terminal."""
