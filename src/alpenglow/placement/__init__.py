"""Networks cut over workers: which runs what, why, and what that costs."""

from alpenglow.placement.compiled import PlacedModel, placed
from alpenglow.placement.placing import place
from alpenglow.placement.text import Placement, Stage

__all__ = ["PlacedModel", "Placement", "Stage", "place", "placed"]
