"""Converters of special functions of CHLO: of Bessel, gamma and what derives from it, zeta."""

from __future__ import annotations

from collections.abc import Mapping

from alpenglow.extras.special.bessel_modified import BesselI
from alpenglow.extras.special.gamma import Digamma, Lgamma, Polygamma
from alpenglow.extras.special.incomplete import Zeta
from alpenglow.frontends.numbers import apply
from alpenglow.frontends.stablehlo.table import Made, Site, both, on
from alpenglow.ir.graph import Value
from alpenglow.ir.op import Op
from alpenglow.ops.tensor.movement import unstretched

FUNCTIONS: Mapping[str, type[Op]] = {"digamma": Digamma, "lgamma": Lgamma}


@on(*(f"chlo.{name}" for name in FUNCTIONS), pointwise=True)
def function(s: Site) -> Made:
    s.count(1)
    return apply(s.g, FUNCTIONS[s.plain](), s.wide(0))


@on("chlo.bessel_i1e", pointwise=True)
def bessel_i1e(s: Site) -> Made:
    return s.g(BesselI(1, True), s.wide(0))


@on(*both("zeta"), "chlo.zeta", pointwise=True)
def zeta(s: Site) -> Made:
    x, q = s.pair()
    return s.g(Zeta(), x, q)


@on("chlo.polygamma", "chlo.broadcast_polygamma", pointwise=True)
def polygamma(s: Site) -> Made:
    """The order must be a constant, the same for all elements."""
    n, x = s.pair()
    order = _same_for_all(n)
    if order is None or order < 0 or order != int(order):
        raise s.refuse("computed n is not supported; supported: a constant integer of at least 0")
    return s.g(Polygamma(int(order)), x) if order else s.g(Digamma(), x)


def _same_for_all(v: Value) -> float | None:
    """Return the element that all are, if that is known."""
    array = unstretched(v).array
    if array is None or not array.size or (array != array.reshape(-1)[0]).any():
        return None
    return float(array.reshape(-1)[0])
