"""Known elements of small integer tensors while a model is imported.

Models compute shapes with ordinary operators: Shape, Gather, Concat, Mul, ….  If a dimension is
dynamic, its symbol takes the place of the number, and the same operators run on arrays of symbols:
elementwise ones through their scalar formula, the others through their NumPy reference.

Counters of loops often pass through floats, as ``int(float(i) + 1)``.  Under an assumption floats
are carried along, too, if they are integers that their type holds exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from alpenglow.frontends.presume import Undecided, at_least_0, is_0, presume
from alpenglow.ir.dims import (
    Dim,
    Sym,
    assumed,
    assuming,
    is_element,
    is_open,
    known,
    names,
    natural,
)
from alpenglow.ir.graph import Node, Value
from alpenglow.ir.op import Elementwise, Op, Primitive
from alpenglow.ir.types import Array, TensorType
from alpenglow.ops.elementwise.arithmetic import Add, Sub
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.reduction.reduction import ReduceProd, ReduceSum
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.in_range import InRange
from alpenglow.ops.tensor.movement import Broadcast, Concat, Reshape, Slice, Transpose

LIMIT = 64
"""Tensors of more elements than this are data, not shapes."""

BY_REFERENCE: tuple[type[Primitive], ...] = (
    Broadcast, Concat, ReduceProd, ReduceSum, Reshape, Slice, Transpose,
)  # fmt: skip
"""Operators whose references move, add and multiply elements, whatever these are."""


MOST_EXACT = {"f32": 1 << 24, "f64": (1 << 31) - 1}
"""Up to which number integers in floats are followed: their type and i32 hold them exactly."""

ON_FLOATS = (Add, Broadcast, Cast, Concat, Reshape, Slice, Sub, Transpose)
"""Operators that map integers in floats to integers, if these are not too large."""


def may_be_shape(node: Node) -> bool:
    """Whether the single result of `node` is a small tensor of integers, by its type at least."""
    t = node.results[0].type
    if len(node.results) != 1 or _repeats(node):
        return False
    if t.dtype in MOST_EXACT:
        if assumed() is None or not isinstance(node.op, ON_FLOATS):
            return False
    elif t.dtype not in ("i32", "i64", "bool"):
        return False
    return t.static and t.size <= LIMIT


def _repeats(node: Node) -> bool:
    """Return True if elements are repeated along a dynamic axis: so many are data."""
    x = node.inputs[0] if isinstance(node.op, Broadcast) else None
    if x is None:
        return False
    shape = node.output.type.shape
    kept = (None,) * (len(shape) - x.type.rank) + x.type.shape
    with assuming(None):  # compare expressions, not numbers
        return any(is_open(d) and d != before for d, before in zip(shape, kept, strict=True))


def propagate(node: Node, known: list[Array | None]) -> Array | None:
    """Return the elements of the single result of `node`, given the elements of its operands.

    None if they are not known: the result is data.  An empty tensor is known.
    """
    shape = node.results[0].type.shape
    if not any(map(is_open, shape)) and 0 in shape and may_be_shape(node):
        return np.empty(shape, object)  # nothing was asked of symbols
    if any(k is None for k in known) or not may_be_shape(node):
        return None
    try:
        elements = _propagated(node, [np.asarray(k, object) for k in known])
        return elements if elements is None or _is_exact(node.output.type, elements) else None
    except (Undecided, TypeError):
        return None


def _propagated(node: Node, arrays: list[Array]) -> Array | None:
    """Return the elements of an operator's result; raise its error if operands do not decide."""
    if isinstance(node.op, InRange):
        return arrays[0] if _in_range(node.op, arrays[0]) else None
    if isinstance(node.op, Elementwise):
        result = np.asarray(node.op.scalar(SYMBOLIC, *arrays), object)
        return np.broadcast_to(result, node.output.type.extents)
    if moves(_places(node.op, arrays)):
        return None  # it is another element in each turn of a loop
    if isinstance(node.op, Gather):
        # Indices must be numbers; the data may hold symbols.
        indices = np.asarray(arrays[1], np.int64)
        return np.asarray(node.op.reference(arrays[0], indices), object)
    if isinstance(node.op, BY_REFERENCE):
        return np.asarray(node.op.reference(*arrays), object)
    return None


def _places(op: Op, arrays: list[Array]) -> Array | None:
    """Return the positions that an operator reads, if they follow from elements."""
    match op:
        case Gather():
            return arrays[1]
        case Slice():
            return np.array(op.starts, object)
    return None


def _is_exact(t: TensorType, elements: Array) -> bool:
    """Whether a type holds these integers exactly; of symbols that is a guard."""
    most = MOST_EXACT.get(t.dtype)
    return most is None or all(-most <= d <= most for d in elements.reshape(-1).tolist())


def _in_range(op: InRange, array: Array) -> bool:
    """Whether all elements are known to be in range."""
    both = [(v - op.low, op.high - v) for v in array.reshape(-1).tolist()]
    return all(not isinstance(d, Sym) and d >= 0 for pair in both for d in pair)


def numbers(known: Array | None) -> bool:
    """Whether all elements are numbers."""
    return known is not None and not any(isinstance(d, Sym) for d in known.reshape(-1).tolist())


def moves(known: Array | None) -> bool:
    """Return True if some of the elements follow from elements that were measured."""
    elements = [] if known is None else known.reshape(-1).tolist()
    return any(is_element(name) for d in elements for name in names(d))


def of_constant(v: Value) -> Array | None:
    """Return the elements of a small constant of integers, which may be floats by their type."""
    if v.array is None or v.array.size > LIMIT:
        return None
    most = MOST_EXACT.get(v.type.dtype)
    if most is not None and assumed() is not None:
        whole = (np.abs(v.array) <= most).all() and (v.array == np.rint(v.array)).all()
        if not whole or (np.signbit(v.array) & (v.array == 0)).any():
            return None
        return v.array.astype(np.int64).astype(object)
    return v.array.astype(object) if v.array.dtype.kind in "iub" else None  # Python's own numbers


def _quotient(a: Dim, b: Dim) -> Dim:
    """Return a / b, rounded towards 0; 0 where b is 0."""
    if not presume(b, "!="):
        return 0
    below = not presume(a, ">=")
    size = (-a if below else a) // (b if presume(b, ">=") else -b)
    return -size if below == presume(b, ">=") else size


def _remainder(a: Dim, b: Dim) -> Dim:
    """Return the remainder of a by b, with the sign of b; 0 if b is 0."""
    return a % b if presume(b, "!=") else 0


def _rest(a: Dim, b: Dim) -> Dim:
    """Return the remainder of a by b, with the sign of a; 0 if b is 0."""
    return a - b * _quotient(a, b) if presume(b, "!=") else 0


def _smaller(a: Dim, b: Dim) -> Dim:
    """Return the smaller of two extents; of equal ones the first of `_moving_first`."""
    a, b = _moving_first(a, b)
    return a if at_least_0(b - a) else b


def _larger(a: Dim, b: Dim) -> Dim:
    a, b = _moving_first(a, b)
    return a if at_least_0(a - b) else b


def _moving_first(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    """Return two extents in order: an extent made of elements, such as a counter, comes first.

    A loop ends where its counter reaches the other extent: the last turn then takes the same choice
    as the turns before it, and runs the same code.
    """
    swap = any(map(is_element, names(b))) and not any(map(is_element, names(a)))
    return (b, a) if swap else (a, b)


def _sign(a: Dim) -> int:
    """Return the sign of what has one for certain: nothing is taken for granted of it."""
    if known(a):
        return (a > 0) - (a < 0)
    if natural(a - 1) or natural(-a - 1):
        return 1 if natural(a - 1) else -1
    raise Undecided(f"sign({a})")


class SymbolicMath:
    """The part of the scalar vocabulary that shape arithmetic uses, on arrays of symbols."""

    def __getattr__(self, name: str) -> Any:
        raise Undecided(name)

    def add(self, x: Any, y: Any) -> Any:
        return x + y

    def sub(self, x: Any, y: Any) -> Any:
        return x - y

    def mul(self, x: Any, y: Any) -> Any:
        return x * y

    def div(self, x: Any, y: Any) -> Any:
        return _each(_quotient)(x, y)

    def mod(self, x: Any, y: Any) -> Any:
        return _each(_remainder)(x, y)

    def fmod(self, x: Any, y: Any) -> Any:
        return _each(_rest)(x, y)

    def sign(self, x: Any) -> Any:
        return _each(_sign)(x)

    def neg(self, x: Any) -> Any:
        return x * -1

    def abs(self, x: Any) -> Any:
        return _each(lambda a: a if at_least_0(a) else -a)(x)

    def minimum(self, x: Any, y: Any) -> Any:
        return _each(_smaller)(x, y)

    def maximum(self, x: Any, y: Any) -> Any:
        return _each(_larger)(x, y)

    def eq(self, x: Any, y: Any) -> Any:
        return _each(lambda a, b: is_0(a - b))(x, y)

    def ne(self, x: Any, y: Any) -> Any:
        return _each(lambda a, b: not is_0(a - b))(x, y)

    def lt(self, x: Any, y: Any) -> Any:
        return _each(lambda a, b: not at_least_0(a - b))(x, y)

    def le(self, x: Any, y: Any) -> Any:
        return _each(lambda a, b: at_least_0(b - a))(x, y)

    def gt(self, x: Any, y: Any) -> Any:
        return _each(lambda a, b: not at_least_0(b - a))(x, y)

    def ge(self, x: Any, y: Any) -> Any:
        return _each(lambda a, b: at_least_0(a - b))(x, y)

    def bit_not(self, x: Any) -> Any:
        return _each(lambda a: not a if isinstance(a, bool) else ~a)(x)

    def bit_and(self, x: Any, y: Any) -> Any:
        return _each(lambda a, b: a & b)(x, y)

    def bit_or(self, x: Any, y: Any) -> Any:
        return _each(lambda a, b: a | b)(x, y)

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        return _each(lambda c, a, b: a if c else b)(condition, x, y)

    def cast(self, x: Any, dtype: str) -> Any:
        if dtype == "bool":
            return self.ne(x, 0)
        return _each(lambda a: int(a) if isinstance(a, bool) else a)(x)


def _each(f: Any) -> Any:
    return np.frompyfunc(f, f.__code__.co_argcount, 1)


SYMBOLIC = SymbolicMath()
