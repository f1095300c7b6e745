"""Types: an element type, a shape and a layout, written ``f32[1,64,56,56]`` in row-major order."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from alpenglow.base.errors import ParseError, TypeRuleError
from alpenglow.ir import dims
from alpenglow.ir.dims import Dim, Sym
from alpenglow.ir.layout import ROW_MAJOR, Layout, parse_extents

Array = NDArray[Any]

DTYPES: dict[str, np.dtype[Any]] = {
    "bool": np.dtype(np.bool_),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8),
    "u16": np.dtype(np.uint16),
    "u32": np.dtype(np.uint32),
    "u64": np.dtype(np.uint64),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "f8e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8e4m3fnuz": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "f8e5m2fnuz": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "f8e8m0": np.dtype(ml_dtypes.float8_e8m0fnu),
    "f6e2m3": np.dtype(ml_dtypes.float6_e2m3fn),
    "f6e3m2": np.dtype(ml_dtypes.float6_e3m2fn),
    "f4e2m1": np.dtype(ml_dtypes.float4_e2m1fn),
    "i4": np.dtype(ml_dtypes.int4),
    "u4": np.dtype(ml_dtypes.uint4),
    "i2": np.dtype(ml_dtypes.int2),
    "u2": np.dtype(ml_dtypes.uint2),
    "c64": np.dtype(np.complex64),
    "c128": np.dtype(np.complex128),
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}

ALIASES = {dtype.name: name for name, dtype in DTYPES.items()}
"""Element types by the names that NumPy gives them, which are taken, too: float32."""

HALVES = frozenset({"f16", "bf16"})
"""The short floats: what computes with them computes in f32."""

FLOATS = HALVES | {"f32", "f64"}

KINDS = {n: "f" if n in FLOATS else "b" if n == "bool" else "iu" for n in DTYPES}
"""Of which kinds, as NumPy has them, a number of Python may be that takes an element type."""
SIGNED = frozenset({"i8", "i16", "i32", "i64"})
UNSIGNED = frozenset({"u8", "u16", "u32", "u64"})
INTS = SIGNED | UNSIGNED
NUMBERS = FLOATS | INTS
ALL = NUMBERS | {"bool"}
"""What operators compute with.  The types below are moved, stored and converted, no more."""

NARROW_FLOATS = frozenset(
    {"f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f8e8m0", "f6e2m3", "f6e3m2", "f4e2m1"}
)
NARROW_INTS = frozenset({"i4", "u4", "i2", "u2"})
NARROW = NARROW_FLOATS | NARROW_INTS
"""Each element is a byte in memory, those of fewer bits in its low bits, with zeros above."""

PARTS = {"c64": "f32", "c128": "f64"}
"""What the two parts of a complex number are: in memory the real one, then the imaginary one."""

COMPLEX = frozenset(PARTS)
OPAQUE = NARROW | COMPLEX
EVERY = ALL | OPAQUE


def width(dtype: str) -> int:
    """Return how many bits tell the values of an element type apart; a bool has 8."""
    if dtype in NARROW:
        return int(dtype[1])
    return DTYPES[dtype].itemsize * 8


def holds(dtype: str, number: float) -> bool:
    """True if a number is one of an element type; floats hold each, rounded."""
    if dtype not in INTS | NARROW_INTS | {"bool"}:
        return True
    bits, signed = 1 if dtype == "bool" else width(dtype), dtype.startswith("i")
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return low <= number <= high and number == int(number)


@dataclass(frozen=True, slots=True)
class TensorType:
    """Describe a tensor: element type, shape and layout.

    Args:
        dtype: the element type: "f32", "i8", "bool" …
        shape: the dimensions: numbers, or names of dynamic dimensions.
        layout: the order of the elements in memory.

    Example:
        >>> t = ag.TensorType.parse("f32[N,3,224,224]")
        >>> t.rank, t.bind({"N": 2}).nbytes
        (4, 1204224)
    """

    dtype: str
    shape: tuple[Dim, ...]
    layout: Layout = ROW_MAJOR

    def __post_init__(self) -> None:
        if self.dtype in ALIASES:
            object.__setattr__(self, "dtype", ALIASES[self.dtype])
        if self.dtype not in DTYPES:
            known = " ".join(DTYPES)
            raise TypeRuleError(f"dtype is {self.dtype!r}, expected one of {known}")
        if self.layout is not ROW_MAJOR:
            self.layout.check(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(self.layout.extents(self.shape))}]"

    __repr__ = __str__

    @classmethod
    def parse(cls, text: str) -> TensorType:
        """Read the text that `str` returned, for example ``f32[N,3,224,224]``.

        Args:
            text: the type as text.

        Returns:
            The type.

        Raises:
            ParseError: if the text is not a type.
        """
        match = re.fullmatch(r"\s*(\w+)\s*(?:\[(.*)\])?\s*", text)
        if match is None or match[1] not in DTYPES | ALIASES:
            known = " ".join(DTYPES)
            raise ParseError(f"type is '{text}', expected DTYPE[DIMENSIONS], DTYPE one of {known}")
        parts = [p for p in _listed(match[2] or "") if p.strip()]
        layout, shape = parse_extents(parts)
        t = cls(match[1], shape, layout)
        if any(isinstance(d, int) and d < 0 for d in t.shape):
            raise ParseError(f"type is '{text}', expected dimensions of 0 or more")
        return t

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def is_plain(self) -> bool:
        """Whether elements are in row-major order, and all of them specified."""
        return type(self.layout) is Layout

    @property
    def logical(self) -> tuple[Dim, ...]:
        """The shape of the tensor in row-major order."""
        return self.layout.logical(self.shape)

    @property
    def static(self) -> bool:
        """Whether all extents are numbers, or taken to be some (`dims.assuming`)."""
        return all(isinstance(d, int) or dims.known(d) for d in self.shape)

    @property
    def extents(self) -> tuple[int, ...]:
        """The shape of a static type: ints, or what behaves as ints under an assumption."""
        assert self.static, f"{self} has open extents"
        return cast("tuple[int, ...]", self.shape)

    @property
    def size(self) -> int:
        """The number of elements, with the padding of the layout; all dimensions must be fixed."""
        return math.prod(self.extents)

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype of the elements."""
        return DTYPES[self.dtype]

    @property
    def nbytes(self) -> int:
        """The size in bytes, with the padding of the layout; all dimensions must be fixed."""
        return self.size * self.numpy.itemsize

    def with_dtype(self, dtype: str) -> TensorType:
        return replace(self, dtype=dtype)

    def with_shape(self, shape: Iterable[Dim]) -> TensorType:
        """Return the type of this element type and the given shape, in row-major order."""
        return TensorType(self.dtype, tuple(shape))

    def bind(self, values: Mapping[str, Dim]) -> TensorType:
        """Fix dynamic dimensions, or rename them.

        Args:
            values: numbers or other dimensions by name.

        Returns:
            The type.
        """
        shape = tuple(dims.bind(d, values) for d in self.shape)
        return TensorType(self.dtype, shape, self.layout.bind(values))

    def symbols(self) -> set[str]:
        return {n for d in self.shape if isinstance(d, Sym) for n in dims.names(d)}

    def admits(self, shape: Sequence[int]) -> bool:
        """Whether an array of this shape may have the type, whatever its open extents are."""
        return len(shape) == self.rank and all(
            isinstance(d, Sym) or d == n for d, n in zip(self.shape, shape, strict=True)
        )


def _listed(text: str) -> list[str]:
    """Return what stands between commas, but for those inside of parentheses."""
    parts, depth = [""], 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if c == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += c
    return parts


def type_of(array: Array) -> TensorType:
    """Return the type of a NumPy array."""
    assert array.dtype in NAMES, f"no type for {array.dtype}"
    return TensorType(NAMES[array.dtype], array.shape)
