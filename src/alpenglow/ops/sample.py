"""Applications for `examples`: every legal element type, odd ranks and zero sizes.

An example is an operator followed by one item an operand: a type as text (the tests draw the
contents), a NumPy array, or None.
"""

from __future__ import annotations

from collections.abc import Collection

from alpenglow.ir.op import Examples, Op, of_one_type


def unary(op: Op, dtypes: Collection[str]) -> Examples:
    """Yield applications to one tensor: all shapes in one type, all types in one shape."""
    return of_one_type(op, dtypes, 1)


def binary(op: Op, dtypes: Collection[str]) -> Examples:
    """Yield applications to two tensors of one type."""
    return of_one_type(op, dtypes, 2)
