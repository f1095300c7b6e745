"""Running models to quantize them: profiles, and the search for the cheapest precision of each
layer within an allowed loss of accuracy."""

from alpenglow.calibration.ranges import profile_ranges
from alpenglow.calibration.samples import Dataset
from alpenglow.calibration.tune import Tuning, tune

__all__ = ["Dataset", "Tuning", "profile_ranges", "tune"]
