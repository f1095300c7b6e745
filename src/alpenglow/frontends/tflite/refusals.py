"""Operators of a model that have no converter."""

from __future__ import annotations

from collections.abc import Sequence

from alpenglow.base.errors import Refusal
from alpenglow.frontends.refusals import unknown
from alpenglow.frontends.tflite import converters
from alpenglow.frontends.tflite.file.model import Subgraph
from alpenglow.frontends.tflite.steps import BODIES, VARIABLES, place_of


def missing(subgraphs: Sequence[Subgraph]) -> list[Refusal]:
    """Return the operators that have no converter, or none for quantized tensors."""
    found = []
    for s in subgraphs:
        for i, o in enumerate(s.operators):
            if not o.custom and (o.kind in BODIES or o.kind in VARIABLES):
                continue
            tensors = [s.tensors[k] for k in (*o.inputs, *o.outputs) if k >= 0]
            types = sorted({t.dtype for t in tensors if t.quantised})
            quantised = None if o.custom else converters.find_quantised(o.kind)
            if (quantised if types else converters.find(o.kind, o.custom)) is None:
                kind = f"custom {o.kind}" if o.custom else o.kind
                found.append(unknown(kind, place_of(s, i), types))
    return found
