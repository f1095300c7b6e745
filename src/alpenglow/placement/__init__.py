"""Networks cut over workers: which runs what, why, and what that costs."""

from alpenglow.placement.place import place
from alpenglow.placement.text import Placement, Stage

__all__ = ["Placement", "Stage", "place"]
