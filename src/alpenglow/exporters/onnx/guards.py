"""Guards on the dynamic dimensions of a graph, as nodes that fail where a guard does not hold.

ONNX has no assertion, but no tensor has a negative extent.  For each guard ``x >= 0`` the model
makes a tensor of shape ``[x, 0]``, which holds nothing however large x is; the shape of each output
is concatenated with these tensors.
"""

from __future__ import annotations

import math

import numpy as np
from onnx import numpy_helper

from alpenglow.exporters.onnx.extents import extents
from alpenglow.exporters.onnx.writer import Operand, Tensor, Writer
from alpenglow.ir.dims import Dim, Guards, Sym


def check_of(w: Writer, guards: Guards) -> Tensor | None:
    """Return an i64[0] that is computed where guards hold and nowhere else; None without guards."""
    needed = strongest([x for guard in guards for x in not_negative(*guard)])
    none = np.array([0], np.int64)
    value = numpy_helper.from_array(none, "value")
    parts: list[Operand] = [
        w("ConstantOfShape", extents(w, [x, 0]), makes="i64", value=value) for x in needed
    ]
    if not parts:
        return None
    whole = parts[0] if len(parts) == 1 else w("Concat", *parts, axis=0)
    return w("Reshape", whole, none, allowzero=1)


def not_negative(x: Sym, relation: str) -> list[Dim]:
    """Return extents that are all at least 0 if and only if ``x relation 0``."""
    match relation:
        case ">=":
            return [x]
        case "<":
            return [x * -1 - 1]
        case "==":
            return [x, x * -1]
    assert relation == "!=", relation
    is_extent = len(x.terms) == 1 and len(x.terms[0][0]) == 1 and x.terms[0][1] == 1
    return [x - 1 if is_extent else x * x - 1]


def strongest(bounds: list[Dim]) -> list[Dim]:
    """Return those that the others follow from, of such that differ in a number or a factor."""
    least: dict[Dim, int] = {}
    for x in bounds:
        if not isinstance(x, Sym):
            continue
        number = sum(c for monomial, c in x.terms if not monomial)
        factor = math.gcd(*(c for monomial, c in x.terms if monomial))
        # A sum of multiples is not below a number where the sum is not below the next multiple.
        key = (x - number) // factor
        least[key] = min(number // factor, least.get(key, number // factor))
    return [key + number for key, number in least.items()]


def checked(w: Writer, t: Tensor, check: Tensor) -> Tensor:
    """Return a tensor as it is, where a check can be computed."""
    return w("Reshape", t, w("Concat", w("Shape", t), check, axis=0))
