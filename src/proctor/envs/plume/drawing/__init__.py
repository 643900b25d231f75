"""From a plume search's scene to pictures, in pixels and in a terminal."""
