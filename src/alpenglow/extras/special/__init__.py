"""Special functions: of Airy and Bessel, gamma and what derives from it, zeta."""

from alpenglow.extras.special import airy, bessel, bessel_modified, gamma, incomplete, loops

__all__ = ["airy", "bessel", "bessel_modified", "gamma", "incomplete", "loops"]
