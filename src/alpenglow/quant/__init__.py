"""Reduced precision: from the ranges of values to a graph that stores them in few bits.

`profile` holds what was seen of each value, `calibrate` chooses the range to store, `schema` makes
a scale and zero point of it, `plan` decides what is stored so and what stays as it is, and why, and
`convert` writes the graph.  Running a graph to see its values is for `alpenglow.calibration`.
"""

from alpenglow.quant.convert import quantize
from alpenglow.quant.options import QuantOptions
from alpenglow.quant.profile import Profile

__all__ = ["Profile", "QuantOptions", "quantize"]
