"""Bodies of reductions, sorts and scatters: on scalars as they are written, here on whole tensors.

All that such a body may do is pointwise, so it is applied to tensors of any shape at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.frontends.stablehlo.declared import declared_pointwise
from alpenglow.frontends.stablehlo.module import CALLS, Block, Operation
from alpenglow.frontends.stablehlo.table import Site, find
from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Value
from alpenglow.ir.types import Array
from alpenglow.ops.tensor.movement import stretch

DEEPEST = 32
"""How deep calls in a body may be nested."""


class Applied:
    """Values by name in a body that is applied to tensors of one shape."""

    def __init__(self, site: Site, shape: tuple[Dim, ...], depth: int) -> None:
        self.site, self.shape, self.depth = site, shape, depth
        self.values: dict[str, Value] = {}

    def find(self, name: str) -> Value:
        """Return a value of the body, or one from outside, the same for all elements."""
        if name not in self.values:
            v = self.site.importer.find(self.site.scope[name])
            if v.type.rank:
                raise UnsupportedError(
                    f"{self.site.kind}: the body reads {v.type} from outside, expected a scalar"
                )
            self.values[name] = stretch(self.site.g, v, self.shape)
        return self.values[name]

    def contents(self, v: Value) -> Array | None:
        return None

    def elements(self, name: str) -> Array | None:
        return None


def apply_body(s: Site, block: Block, arguments: Sequence[Value], depth: int = 0) -> list[Value]:
    """Return the results of a body on arguments of one shape; raise UnsupportedError if it fails.

    Raises ModelError if the body takes another number of arguments.
    """
    if len(block.arguments) != len(arguments) or not arguments:
        raise s.wrong(f"the body takes {len(block.arguments)} values, expected {len(arguments)}")
    if depth > DEEPEST:
        raise s.refuse(f"calls in the body are nested {depth} deep, expected at most {DEEPEST}")
    applied = Applied(s, arguments[0].type.shape, depth)
    for (name, _), v in zip(block.arguments, arguments, strict=True):
        applied.values[name] = v
    for o in block.body:
        made = _applied(s, applied, o)
        if len(made) != len(o.results):
            raise ModelError(f"{o.label} has {len(o.results)} results, expected {len(made)}")
        for i, (name, v) in enumerate(zip(o.results, made, strict=True)):
            applied.values[name] = declared_pointwise(s.g, o, i, v, applied.shape)
    return [applied.find(name) for name in block.results]


def _applied(s: Site, applied: Applied, o: Operation) -> Sequence[Value]:
    if o.name in CALLS:
        function = s.module.function(str(o.attributes.get(CALLS[o.name], "")))
        inputs = [applied.find(name) for name in o.operands]
        return apply_body(s, function.body, inputs, applied.depth + 1)
    entry = find(o.name)
    if entry is None or not entry.pointwise or o.regions:
        supported = "elementwise operations without regions, and calls"
        raise s.refuse(f"{o.label} in the body is not supported; supported: {supported}")
    inner = Site(s.g, o, o.label, o.operands, o.results, applied, s.module, {}, applied.shape)
    made = entry.convert(inner)
    return [made] if isinstance(made, Value) else list(made)


# ── what a body is known to be ──


def single(block: Block) -> str:
    """Return the operation that is all of a body on two arguments, "" if it is more.

    A body that returns its second argument is ``second``, one that returns the first ``first``.
    """
    names = [name for name, _ in block.arguments]
    if len(names) != 2 or len(block.results) != 1:
        return ""
    if not block.body:
        return {names[0]: "first", names[1]: "second"}.get(block.results[0], "")
    (operation, *more) = block.body
    if more or block.results != operation.results or len(operation.operands) != 2:
        return ""
    if set(operation.operands) != set(names) or operation.attributes:
        return ""
    return operation.name if operation.name in MONOIDS else ""


MONOIDS = {
    "stablehlo.add": "add",
    "stablehlo.multiply": "mul",
    "stablehlo.minimum": "min",
    "stablehlo.maximum": "max",
    "stablehlo.and": "and",
    "stablehlo.or": "or",
}
"""Operations of which reductions are known, and the names of these."""
