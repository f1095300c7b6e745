"""Converters for operators that move elements: reshape, transpose, slice, concat, …"""

from __future__ import annotations

from alpenglow.base.errors import ModelError
from alpenglow.frontends.onnx.table import Made, Site, on
from alpenglow.ir.dims import Dim, product
from alpenglow.ir.graph import Value
from alpenglow.ops.movement import Concat, Reshape, Transpose


@on("Reshape")
def reshape_attribute(s: Site) -> Made:
    return reshaped(s, s.needed("shape"))


@on("Reshape", since=5)
def reshape(s: Site) -> Made:
    return reshaped(s, s.dims(1))


def reshaped(s: Site, wanted: tuple[Dim, ...]) -> Value:
    """Return input 0 in the shape `wanted`: 0 keeps an extent, -1 takes what is left."""
    x = s.input(0)
    keep_zero = bool(s.attribute("allowzero", 0))
    shape: list[Dim] = []
    for i, d in enumerate(wanted):
        if d == 0 and not keep_zero:
            if i >= x.type.rank:
                raise ModelError(f"Reshape: shape {wanted} copies axis {i}, which {x.type} lacks")
            d = x.type.shape[i]
        shape.append(d)
    if shape.count(-1) > 1:
        raise ModelError(f"Reshape: shape {wanted} leaves more than one extent open")
    if -1 in shape:
        rest = product([d for d in shape if d != -1])
        total = product(x.type.shape)
        if rest == 0 or (isinstance(rest, int) and isinstance(total, int) and total % rest):
            raise ModelError(f"Reshape: {x.type} does not fill shape {wanted}")
        shape[shape.index(-1)] = total // rest
    return s.g(Reshape(tuple(shape)), x)


@on("Flatten")
def flatten(s: Site) -> Made:
    x = s.input(0)
    axis = s.attribute("axis", 1)
    if not -x.type.rank <= axis <= x.type.rank:
        raise ModelError(f"Flatten: axis {axis} is not in {x.type}")
    axis += x.type.rank if axis < 0 else 0
    return s.g(Reshape((product(x.type.shape[:axis]), product(x.type.shape[axis:]))), x)


@on("Transpose")
def transpose(s: Site) -> Made:
    x = s.input(0)
    return s.g(Transpose(s.attribute("perm", tuple(reversed(range(x.type.rank))))), x)


@on("Concat")
def concat(s: Site) -> Made:
    return s.g(Concat(s.attribute("axis", 1)), *s.required())


@on("Identity")
def identity(s: Site) -> Made:
    return s.input(0)
