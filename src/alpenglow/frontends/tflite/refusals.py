"""What a model needs that is not there, told all at once before anything is imported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from alpenglow.base.errors import UnsupportedError
from alpenglow.base.words import counted
from alpenglow.frontends.tflite import converters
from alpenglow.frontends.tflite.model import Operator, Subgraph
from alpenglow.frontends.tflite.steps import BODIES, VARIABLES


def check_supported(subgraphs: Sequence[Subgraph]) -> None:
    """Raise UnsupportedError that lists all operators which there is nothing for."""
    missing: Counter[str] = Counter()
    for s in subgraphs:
        for o in s.operators:
            if not o.custom and (o.kind in BODIES or o.kind in VARIABLES):
                continue
            numbers = [i for i in (*o.inputs, *o.outputs) if i >= 0]
            types = sorted({s.tensors[i].dtype for i in numbers if s.tensors[i].quantised})
            if types and (o.custom or converters.find_quantised(o.kind) is None):
                missing[f"{_said(o)} on quantised {' and '.join(types)}"] += 1
            elif not types and converters.find(o.kind, o.custom) is None:
                missing[_said(o)] += 1
    if missing:
        listed = ", ".join(f"{name} ({counted(n, 'node')})" for name, n in sorted(missing.items()))
        raise UnsupportedError(f"these operators are not supported: {listed}")


def _said(operator: Operator) -> str:
    return f"custom {operator.kind}" if operator.custom else operator.kind
