"""Converters between floats and quantized values."""

from __future__ import annotations

from alpenglow.frontends.stablehlo.convert.affine import dequantized, of_type, quantized
from alpenglow.frontends.stablehlo.table import Made, Site, on


@on("stablehlo.uniform_quantize")
def uniform_quantize(s: Site) -> Made:
    """Quantized operands are quantized again, with another scale."""
    (x,), before = s.required(1), of_type(s.operation.operand_types[0])
    if before is not None:
        x = dequantized(s, x, before)
    kind = of_type(s.result())
    if kind is None:
        raise s.refuse(f"the result is {s.result()}, expected a quantized type")
    return quantized(s, x, kind)


@on("stablehlo.uniform_dequantize")
def uniform_dequantize(s: Site) -> Made:
    s.count(1)
    kind = of_type(s.operation.operand_types[0])
    if kind is None:
        found = s.operation.operand_types[0]
        raise s.refuse(f"the operand is {found}, expected a quantized type")
    return dequantized(s, s.input(0), kind)
