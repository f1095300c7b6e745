"""Element types: their names in ONNX, and the types in which an operator of ONNX computes.

If the specification or runtimes have no form of an operator for an element type, its
operands are converted to a wider type and its results back.  Nothing is lost: a wider type holds
every element of the narrower, what wraps there wraps on the way back, and half precision is
computed in f32 and rounded once by our own operators, too.
"""

from __future__ import annotations

from functools import cache

import onnx

from alpenglow.exporters.onnx.runs import RUNS
from alpenglow.frontends.onnx.file.attributes import ELEMENT_NAMES, ELEMENTS
from alpenglow.ir.types import NARROW_FLOATS, width

CODES = {name: code for code, name in ELEMENTS.items()}
"""ONNX's number of each of our element types, as far as the installed onnx has it."""

BY_TYPE = {f"tensor({theirs.lower()})": ours for theirs, ours in ELEMENT_NAMES.items()}
"""Our name of each type of tensor, as schemas spell it."""

WIDER: dict[str, tuple[str, ...]] = {
    "i8": ("i32", "i64"), "i16": ("i32", "i64"), "i32": ("i64",),
    "u8": ("i32", "i64"), "u16": ("i32", "i64"), "u32": ("i64",),
    "f16": ("f32",), "bf16": ("f32",),
    "i2": ("i8", "i32"), "i4": ("i8", "i32"), "u2": ("u8", "i32"), "u4": ("u8", "i32"),
    "f4e2m1": ("f32",), "f6e2m3": ("f32",), "f6e3m2": ("f32",), "f8e4m3fn": ("f32",),
    "f8e4m3fnuz": ("f32",), "f8e5m2": ("f32",), "f8e5m2fnuz": ("f32",), "f8e8m0": ("f32",),
}  # fmt: skip
"""The types that hold every element of one, the first to be tried first."""

CARRIED: dict[str, tuple[str, ...]] = {"bool": ("u8", "i32", "f32"), "u64": ("i64",)}
"""More types that bring elements back unchanged, for operators that only move them."""

MOVES = frozenset({
    "Compress", "Concat", "Expand", "Gather", "GatherElements", "GatherND", "Identity", "Reshape",
    "ReverseSequence", "Slice", "Squeeze", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where",
})  # fmt: skip
"""The operators of ONNX that compute nothing with the elements of their variable type."""

EIGHT_BITS = frozenset(d for d in NARROW_FLOATS if width(d) == 8)
"""The floats of which ONNX says whether what is too large becomes the largest."""

Schema = onnx.defs.OpSchema


@cache
def schema_of(op_type: str, opset: int) -> Schema | None:
    """Return the schema of an operator in an opset; None if ONNX has no operator of that name."""
    if not onnx.defs.has(op_type, opset):
        return None
    return onnx.defs.get_schema(op_type, opset)


@cache
def allowed(schema: Schema, variable: str) -> frozenset[str]:
    """Return the element types that a variable of a schema allows."""
    for constraint in schema.type_constraints:
        if constraint.type_param_str == variable:
            names = (BY_TYPE.get(t) for t in constraint.allowed_type_strs)
            return frozenset(n for n in names if n is not None)
    return frozenset({BY_TYPE[variable]}) if variable in BY_TYPE else frozenset()


def single(schema: Schema, variable: str) -> str:
    """Return the only element type that a variable of a schema allows; "" if there are more."""
    (only, *more) = allowed(schema, variable)
    return "" if more else only


def carrier(schema: Schema, variable: str, dtype: str) -> str | None:
    """Return the type in which an operator takes elements of type `dtype`; None if there is none.

    Types that runtimes have an implementation for come before those that only the specification
    has.
    """
    legal = allowed(schema, variable)
    runs = legal & RUNS.get((schema.name, variable), legal)
    if "f32" in runs:
        runs |= legal & {"f16"}  # runtimes without f16 convert by themselves
    wider = (dtype, *WIDER.get(dtype, ()))
    if schema.name in MOVES:
        wider += CARRIED.get(dtype, ())
    return next((d for known in (runs, legal) for d in wider if d in known), None)
