"""What may follow an operator in its kernel, drawn at random: bias, activation, residual."""

from __future__ import annotations

import random

from alpenglow.ir.graph import Graph, Value
from alpenglow.ops.elementwise.activation import Gelu, Relu, Sigmoid
from alpenglow.ops.elementwise.arithmetic import Add, Maximum, Mul
from alpenglow.ops.tensor.movement import Broadcast, Reshape, Transpose

EXACT = ("none", "relu", "bias", "residual", "stretched", "square", "twice")
"""Those that make whole numbers of whole numbers."""

ROUNDED = ("sigmoid", "gelu")

FOLLOWING = (*EXACT, *ROUNDED)


def followed(g: Graph, y: Value, how: str, rng: random.Random) -> Value:
    """Return what follows a value, which may be the sum of several things."""
    shape = y.type.extents
    match how:
        case "relu":
            return g(Relu(), y)
        case "bias":
            axis = rng.randrange(len(shape))
            bias = g.input("bias", y.type.with_shape((shape[axis],)))
            ones = [d if a == axis else 1 for a, d in enumerate(shape)]
            return g(Relu(), g(Add(), y, g(Broadcast(shape), g(Reshape(tuple(ones)), bias))))
        case "residual":
            # It is computed, so that the result may take its place.
            other = g(Relu(), g.input("other", y.type))
            return g(Relu(), g(Add(), other, y))
        case "stretched":
            perm = tuple(reversed(range(len(shape))))
            other = g.input("turned", y.type.with_shape(tuple(shape[a] for a in perm)))
            return g(Maximum(), y, g(Transpose(perm), other))
        case "square":
            return g(Mul(), y, y)
        case "twice":
            first = g(Add(), y, g.input("first", y.type))
            return g(Add(), first, g(Relu(), g(Add(), first, g.input("second", y.type))))
        case "sigmoid":
            return g(Mul(), y, g(Sigmoid(), y))
        case "gelu":
            return g(Gelu(), g(Add(), y, g.input("other", y.type)))
    return y
