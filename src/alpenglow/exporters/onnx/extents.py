"""Open extents: what the model computes where the graph has a polynomial in names.

The value of a name is read from the shape of an input.  Each polynomial of names is computed once,
as an i64[1].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from alpenglow.exporters.onnx.writer import Operand, Refused, Tensor, Writer
from alpenglow.ir.dims import Dim, Ratio, Sym, is_open, symbol
from alpenglow.ir.graph import Value
from alpenglow.ir.solve import sources


def read_symbols(w: Writer, inputs: Mapping[str, Value]) -> None:
    """Say where each symbol comes from, in the order in which one tells another."""
    for equation in sources({name: v.type.shape for name, v in inputs.items()}):
        w.origins[equation.symbol] = (inputs[equation.input], equation)


def extents(w: Writer, dims: Sequence[Dim]) -> Operand:
    """Return extents as an i64 vector, a constant where all are numbers."""
    if not any(is_open(d) for d in dims):
        return np.array([int(d) for d in dims], np.int64)
    if len(dims) == 1:
        return extent(w, dims[0])
    parts: list[Operand] = []
    for d in dims:
        if not is_open(d) and parts and isinstance(parts[-1], np.ndarray):
            parts[-1] = np.append(parts[-1], np.int64(int(d)))
        else:
            parts.append(extent(w, d))
    return w("Concat", *parts, axis=0)


def extent(w: Writer, d: Dim) -> Operand:
    """Return one extent as an i64[1]."""
    if not isinstance(d, Sym):
        return np.array([d], np.int64)
    if d not in w.extents:
        total: Operand = None
        for monomial, coefficient in d.terms:
            factors: list[Operand] = [_atom(w, a) for a in monomial]
            if coefficient != 1 or not factors:
                factors.append(np.array([coefficient], np.int64))
            product = factors[0]
            for f in factors[1:]:
                product = w("Mul", product, f)
            total = product if total is None else w("Add", total, product)
        w.extents[d] = w.tensor(total)
    return w.extents[d]


def scalar_extent(w: Writer, d: Dim) -> Operand:
    """Return one extent as an i64[]."""
    if not is_open(d):
        return np.array(int(d), np.int64)
    return w("Squeeze", extent(w, d), np.zeros(1, np.int64))


def _atom(w: Writer, atom: str | Ratio) -> Operand:
    if isinstance(atom, str):
        return _symbol(w, atom)
    left, right = extent(w, _number(atom.left)), extent(w, _number(atom.right))
    rest = w("Mod", left, right)
    if atom.op == "%":
        return rest
    # Division rounds towards zero, but is exact without the remainder, whose sign is the divisor's.
    return w("Div", w("Sub", left, rest), right)


def _number(d: Sym) -> Dim:
    """Return an extent as a number if it is one."""
    if all(not monomial for monomial, _ in d.terms):
        return sum(coefficient for _, coefficient in d.terms)
    return d


def _symbol(w: Writer, name: str) -> Tensor:
    key = symbol(name)
    if key not in w.extents:
        if name not in w.origins:
            raise Refused(f"dimension {name} is not a dimension of an input, expected one")
        v, equation = w.origins[name]
        y = w("Shape", v, start=equation.axis, end=equation.axis + 1)
        if equation.rest != 0:
            y = w("Sub", y, extent(w, equation.rest))
        if equation.factor != 1:
            y = w("Div", y, np.array([equation.factor], np.int64))
        w.extents[key] = y
    return w.extents[key]
