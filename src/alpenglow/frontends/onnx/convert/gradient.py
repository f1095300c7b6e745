"""The converter of Gradient, which differentiates a part of the model that it is in.

Its attributes name values: y, and the xs and zs that y is a function of.  Its operands are where
the derivatives by the xs are wanted; mostly the named values themselves, for which the forward
nodes are there already.  Otherwise what was derived is built again with the operands in their
place.
"""

from __future__ import annotations

from collections.abc import Sequence

from alpenglow.autodiff import gradients, leading_to, substituted
from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.onnx.functions.subgraphs import PREVIEW
from alpenglow.frontends.onnx.table import Made, Site, on
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.types import FLOATS


@on("Gradient", domain=PREVIEW)
def gradient(s: Site) -> Made:
    xs, zs = s.needed("xs"), s.attribute("zs", ())
    names, inputs = [*xs, *zs], s.required()
    if len(inputs) != len(names):
        raise s.wrong(f"{len(inputs)} inputs, expected one for each of {len(names)} xs and zs")
    named, y = [s.named(n) for n in names], s.named(s.needed("y"))
    if len(set(named)) < len(named):
        raise s.wrong(f"xs and zs are {', '.join(names)}, expected different values")
    for name, own, other in zip(names, named, inputs, strict=True):
        if own.type != other.type:
            raise s.wrong(f"the input for '{name}' is {other.type}, expected {own.type}")
    for name, v in ((s.needed("y"), y), *zip(xs, named, strict=False)):
        if v.type.dtype not in FLOATS:
            raise s.wrong(f"'{name}' is {v.type}, expected floats")
    check_determined(s.g, s.needed("y"), y, named)
    dxs = gradients(s.g, y, named[: len(xs)], named[len(xs) :])
    return substituted(s.g, dxs, dict(zip(named, inputs, strict=True)))


def check_determined(g: Graph, name: str, y: Value, leaves: Sequence[Value]) -> None:
    """Raise UnsupportedError if y is a function of more than `leaves` and constants."""
    stop = set(leaves)
    read = {v for node in leading_to(g, [y], leaves) for v in node.inputs if v is not None} | {y}
    for v in read - stop:
        if v.producer is None and v.array is None:
            raise UnsupportedError(
                f"Gradient: '{name}' is also computed from '{v.name}', expected in xs or zs"
            )
