"""Programs as people write them, each at a point where it has a kink, and what their own values say of the gradient."""

from clarke.ordinary import distributions, geometry, idioms, losses, networks, physics, sorting
from clarke.ordinary.entries import ENTRIES, Entry

__all__ = ["ENTRIES", "Entry", "distributions", "geometry", "idioms", "losses", "networks", "physics", "sorting"]
