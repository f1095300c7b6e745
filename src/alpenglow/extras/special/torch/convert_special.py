"""Converters for special functions: of Bessel and Airy, gamma, zeta, orthogonal polynomials."""

from __future__ import annotations

from alpenglow.extras.special import airy, bessel, bessel_modified, gamma, incomplete
from alpenglow.frontends.torch.convert.arithmetic import paired
from alpenglow.frontends.torch.convert.elementwise import one
from alpenglow.frontends.torch.table import Made, Operand, Site, on
from alpenglow.ir.graph import Value
from alpenglow.ir.op import Op
from alpenglow.ops.elementwise import iterated


def special(op: Op, *targets: str) -> None:
    """Register an operator on one tensor, computed in the element type of the result."""

    @on(*targets)
    def convert(s: Site, x: Value) -> Made:
        return s.g(op, s.cast(x, s.result.dtype))


special(bessel.BesselJ0(), "aten.special_bessel_j0.default", "prims.bessel_j0.default")
special(bessel.BesselJ1(), "aten.special_bessel_j1.default", "prims.bessel_j1.default")
special(bessel.BesselY0(), "aten.special_bessel_y0.default")
special(bessel.BesselY1(), "aten.special_bessel_y1.default")
special(bessel.SphericalBesselJ0(), "aten.special_spherical_bessel_j0.default",
        "prims.spherical_bessel_j0.default")  # fmt: skip
special(airy.AiryAi(), "aten.special_airy_ai.default")
special(bessel_modified.BesselI(0), "aten.i0.default", "aten.special_modified_bessel_i0.default",
        "prims.bessel_i0.default")  # fmt: skip
special(bessel_modified.BesselI(1), "aten.special_i1.default",
        "aten.special_modified_bessel_i1.default", "prims.bessel_i1.default")  # fmt: skip
special(bessel_modified.BesselI(0, True), "aten.special_i0e.default", "prims.bessel_i0e.default")
special(bessel_modified.BesselI(1, True), "aten.special_i1e.default", "prims.bessel_i1e.default")
special(bessel_modified.BesselK(0), "aten.special_modified_bessel_k0.default")
special(bessel_modified.BesselK(1), "aten.special_modified_bessel_k1.default")
special(bessel_modified.BesselK(0, True), "aten.special_scaled_modified_bessel_k0.default")
special(bessel_modified.BesselK(1, True), "aten.special_scaled_modified_bessel_k1.default")


one("lgamma", gamma.Lgamma())
one("digamma", gamma.Digamma())


@on("aten.polygamma.default")
def polygamma(s: Site, n: int, x: Value) -> Made:
    op = gamma.Polygamma(n) if n else gamma.Digamma()
    return s.g(op, s.cast(x, s.result.dtype))


paired(incomplete.IncompleteGamma(), "aten.igamma.default", "prims.igamma.default")
paired(incomplete.IncompleteGamma(True), "aten.igammac.default", "prims.igammac.default")
paired(incomplete.Zeta(), "aten.special_zeta.default", "aten.special_zeta.other_scalar",
       "aten.special_zeta.self_scalar", "prims.zeta.default")  # fmt: skip


def polynomials(name: str, op: iterated.Orthogonal) -> None:
    """Register the polynomials of a family: a degree loses its fraction."""

    @on(f"aten.special_{name}.default", f"aten.special_{name}.x_scalar",
        f"aten.special_{name}.n_scalar")  # fmt: skip
    def convert(s: Site, x: Operand, n: Operand) -> Made:
        (y,) = s.operands(x, dtype=s.result.dtype)
        (degree,) = s.broadcast(s.cast(s.tensor(n, s.result.dtype), "i64"))
        return s.g(op, y, degree)


for _kind in "tuvw":
    polynomials(f"chebyshev_polynomial_{_kind}", iterated.Orthogonal(_kind))
    polynomials(f"shifted_chebyshev_polynomial_{_kind}", iterated.Orthogonal(_kind, True))
polynomials("hermite_polynomial_h", iterated.Orthogonal("h"))
polynomials("hermite_polynomial_he", iterated.Orthogonal("he"))
polynomials("laguerre_polynomial_l", iterated.Orthogonal("l"))
polynomials("legendre_polynomial_p", iterated.Orthogonal("p"))
