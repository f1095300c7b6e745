"""The converter of Det, the determinants of matrices."""

from __future__ import annotations

from alpenglow.extras.linalg.linalg import Det
from alpenglow.frontends.onnx.table import Made, Site, on


@on("Det", since=11)
def det(s: Site) -> Made:
    return s.g(Det(), s.input(0))
