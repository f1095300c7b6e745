"""Running models to quantise them: profiles, the search for the cheapest precision of each layer
within an allowed loss of accuracy, and what was found as ONNX."""

from alpenglow.calibration.export import Exported, export
from alpenglow.calibration.ranges import profile_ranges
from alpenglow.calibration.samples import Dataset
from alpenglow.calibration.tune import Tuning, tune

__all__ = ["Dataset", "Exported", "Tuning", "export", "profile_ranges", "tune"]
