"""What a model needs that is not there, told all at once before anything is imported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from alpenglow.base.errors import UnsupportedError
from alpenglow.base.words import counted, some
from alpenglow.frontends.tflite import converters
from alpenglow.frontends.tflite.model import Subgraph, Tensor
from alpenglow.frontends.tflite.steps import BODIES
from alpenglow.frontends.tflite.variables import VARIABLES


def check_supported(subgraphs: Sequence[Subgraph]) -> None:
    """Raise UnsupportedError that lists all operators and tensors which there is nothing for."""
    missing: Counter[str] = Counter()
    for o in (o for s in subgraphs for o in s.operators):
        known = converters.find(o.kind, o.custom) is not None
        known |= not o.custom and (o.kind in BODIES or o.kind in VARIABLES)
        if not known:
            missing[f"custom {o.kind}" if o.custom else o.kind] += 1
    if missing:
        listed = ", ".join(f"{name} ({counted(n, 'node')})" for name, n in sorted(missing.items()))
        raise UnsupportedError(f"these operators are not supported: {listed}")
    _check_quantised([t for s in subgraphs for t in _used(s)])


def _check_quantised(tensors: Sequence[Tensor]) -> None:
    """Raise UnsupportedError if tensors are quantised: the rules of their rounding go here."""
    quantised = [t for t in tensors if t.quantised]
    if quantised:
        types = Counter(t.dtype for t in quantised)
        listed = ", ".join(f"{counted(n, 'tensor')} of {d}" for d, n in sorted(types.items()))
        raise UnsupportedError(
            f"quantised models are not supported: {listed} ({some([t.name for t in quantised])})"
        )


def _used(subgraph: Subgraph) -> list[Tensor]:
    """Return the tensors that operators of a subgraph read or make."""
    numbers = {i for o in subgraph.operators for i in (*o.inputs, *o.outputs) if i >= 0}
    return [subgraph.tensors[i] for i in sorted(numbers)]
