"""How fast Proctor is, as ratios measured in one run: `python -m bench`."""
