"""Applications for `examples`: every legal element type, odd ranks and zero sizes.

An example is an operator followed by one item an operand: a type as text (the tests draw the
contents), a NumPy array, or None.
"""

from __future__ import annotations

from collections.abc import Collection

from alpenglow.ir.op import Examples, Op

SHAPES = ("", "1", "17", "0,3", "3,5", "2,1,3,1,2")
"""A scalar, one element, an odd length, nothing, two axes, five axes."""


def unary(op: Op, dtypes: Collection[str]) -> Examples:
    """Yield applications to one tensor: all shapes in one type, all types in one shape."""
    main = next(d for d in ("f32", "c64", min(dtypes)) if d in dtypes)
    for shape in SHAPES:
        yield op, f"{main}[{shape}]"
    for dtype in sorted(set(dtypes) - {main}):
        yield op, f"{dtype}[3,7]"


def binary(op: Op, dtypes: Collection[str]) -> Examples:
    """Yield applications to two tensors of one type."""
    for op_, t in unary(op, dtypes):
        yield op_, t, t
