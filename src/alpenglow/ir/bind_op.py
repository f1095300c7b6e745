"""Operators with dynamic dimensions among their attributes: `bind_op` fixes these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from alpenglow.ir import dims
from alpenglow.ir.dims import Sym
from alpenglow.ir.layout import Layout
from alpenglow.ir.op import Elementwise, Op


def bind_op(op: Op, extents: Mapping[str, int]) -> Op:
    """Return `op` with numbers in place of the named extents among its attributes."""
    if isinstance(op, Elementwise) or not extents:
        return op
    changed = {}
    for f in fields(op):  # type: ignore[arg-type]
        before = getattr(op, f.name)
        after = _bind_attribute(before, extents)
        if after is not before:
            changed[f.name] = after
    return replace(op, **changed) if changed else op  # type: ignore[type-var]


def _bind_attribute(value: Any, extents: Mapping[str, int]) -> Any:
    if isinstance(value, Sym):
        return dims.bind(value, extents)
    if isinstance(value, Layout):
        return value.bind(extents)
    if isinstance(value, tuple) and any(isinstance(v, Sym) for v in value):
        return tuple(_bind_attribute(v, extents) for v in value)
    return value
