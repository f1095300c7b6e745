"""Schemas: from the range of a tensor to the scale and zero point that store it in few bits.

Every schema can write 0 exactly, since paddings and the results of activations are full of it.  A
range is therefore widened to hold 0 first.  Two more rules hold whatever the schema:

- A range without width (a tensor of zeros) has scale 1: zeros come back as zeros.
- A scale is never less than the smallest normal f32, 2⁻¹²⁶: denormals lose bits, and a division by
  one can overflow.  A tensor that small comes back as zeros, or nearly so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from alpenglow.base.errors import OptionError
from alpenglow.ir.types import DTYPES, NARROW_INTS, Array, width
from alpenglow.ir.vocabulary import NUMPY
from alpenglow.ops.quantized.fake_quantize import SMALLEST, moved_steps

Schema = Literal["asymmetric", "symmetric", "symmetric_uint8", "symmetric_power2"]
SCHEMAS: tuple[Schema, ...] = ("asymmetric", "symmetric", "symmetric_uint8", "symmetric_power2")


@dataclass(frozen=True, slots=True)
class Parameters:
    """real = (stored - zero_point) * scale, stored as `dtype`."""

    dtype: str
    scale: float
    zero_point: int

    def __post_init__(self) -> None:
        check_scale(self.scale)
        low, high = limits(self.dtype)
        if not low <= self.zero_point <= high:
            raise OptionError(
                f"zero_point is {self.zero_point}, expected {low} to {high} for {self.dtype}"
            )

    @property
    def low(self) -> float:
        """The least number that can be stored."""
        return (limits(self.dtype)[0] - self.zero_point) * self.scale

    @property
    def high(self) -> float:
        """The greatest number that can be stored."""
        return (limits(self.dtype)[1] - self.zero_point) * self.scale

    def stored(self, x: Array) -> Array:
        """Return `x` as it is stored: divided, rounded with halves to even, and limited."""
        low, high = limits(self.dtype)
        with np.errstate(over="ignore"):
            steps = np.rint(np.asarray(x, np.float32) / np.float32(self.scale))
        near = np.clip(steps.astype(np.float64) + self.zero_point, low, high)
        stored: Array = near.astype(DTYPES[self.dtype])
        return stored

    def restored(self, x: Array) -> Array:
        """Return, in f64, what `x` is once it has been stored and read back."""
        steps: Array = self.stored(x).astype(np.float64) - self.zero_point
        return steps * self.scale


def limits(dtype: str) -> tuple[int, int]:
    """Return the least and the greatest number of an integer type."""
    bits = width(dtype)
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if dtype[0] == "i" else (0, (1 << bits) - 1)


def check_scale(scale: Any) -> None:
    """Raise OptionError unless all scales are finite, positive, and no denormals."""
    scales = np.asarray(scale, np.float64)
    wrong = scales[~(np.isfinite(scales) & (scales >= SMALLEST))]
    if wrong.size:
        raise OptionError(
            f"{float(wrong.flat[0])!r} is no scale: expected a finite number of 2^-126 at least"
        )


def storage(low: float, schema: Schema, bits: Literal[8, 16] = 8) -> str:
    """Return the element type that a schema stores a range in that begins at `low`."""
    unsigned = schema == "asymmetric" or (schema == "symmetric_uint8" and low >= 0)
    return f"{'u' if unsigned else 'i'}{bits}"


def parameters(low: float, high: float, dtype: str, schema: Schema) -> Parameters:
    """Return the scale and zero point with which `dtype` holds the range from `low` to `high`.

    - asymmetric: the range, widened to hold 0, takes all steps.
    - symmetric: the larger side takes half of the steps; the zero point is in the middle.
    - symmetric_uint8: as symmetric; a range without negative numbers takes all steps of a u8.
    - symmetric_power2: as symmetric, the scale rounded up to a power of two, so that rescaling is
      a shift.

    Raises OptionError for a range that is not finite or ends before it begins.
    """
    if schema not in SCHEMAS:
        raise OptionError(f"schema is '{schema}', expected one of {', '.join(SCHEMAS)}")
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise OptionError(f"the range is {low} to {high}, expected finite numbers in order")
    low, high = min(low, 0.0), max(high, 0.0)
    first, last = limits(dtype)
    if schema == "asymmetric":
        scale = _usable((high - low) / (last - first))
        zero = round(first - low / scale)
        return Parameters(dtype, scale, min(max(zero, first), last))
    if schema == "symmetric_uint8" and first == 0 and low >= 0:
        return Parameters(dtype, _usable(high / last), 0)
    middle = (first + last + 1) // 2
    scale = _usable(max(-low, high) / (last - middle))
    if schema == "symmetric_power2":
        scale = 2.0 ** math.ceil(math.log2(scale))
    return Parameters(dtype, scale, middle)


def steps(x: Array, scale: Array, dtype: str) -> Array:
    """Return `x` in steps of symmetric scales that broadcast to it, limited on both sides alike."""
    _, last = limits(dtype)
    zero = np.zeros((), DTYPES[dtype])
    with np.errstate(over="ignore"):
        moved, _ = moved_steps(NUMPY, dtype, np.asarray(x, np.float32), scale, zero)
    near = np.clip(moved, -last, last).astype(np.int64)
    # NumPy converts to narrow integers from bytes only.
    stored: Array = (near.astype(np.int8) if dtype in NARROW_INTS else near).astype(DTYPES[dtype])
    return stored


def _usable(scale: float) -> float:
    """Return a scale as f32 holds it: 1 for a range without width, and never a denormal."""
    if scale == 0:
        return 1.0
    return max(float(np.float32(scale)), SMALLEST)
