"""Values whose gradient a user states, in place of the gradient of the nodes that compute them."""

from __future__ import annotations

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Composite, Examples
from alpenglow.ir.region import inlined
from alpenglow.ir.types import TensorType


class CustomGradient(Composite):
    """y, which counts as computed from xs alone, with the gradients that the region says.

    Inputs of the region are the gradient of y, then xs; its output `di` is the gradient of
    xs[i], 0 where there is none.  What y is computed from gets no other gradient by way of y.
    Without xs there is no region, and y counts as constant.
    """

    def infer(self, y: TensorType, *xs: TensorType, regions: tuple[Graph, ...] = ()) -> TensorType:
        if len(regions) != bool(xs):
            raise TypeRuleError(
                f"{self.name}: {len(regions)} regions for {len(xs)} xs, expected {int(bool(xs))}"
            )
        for body in regions:
            wanted = (y, *xs)
            inputs = tuple(v.type for v in body.inputs.values())
            if inputs != wanted:
                raise TypeRuleError(
                    f"{self.name}: the region takes {_listed(inputs)}, expected {_listed(wanted)}"
                )
            places = {f"d{i}": x for i, x in enumerate(xs)}
            for name, v in body.outputs.items():
                if v.type != places.get(name):
                    expected = places.get(name, f"outputs among {', '.join(places)}")
                    raise TypeRuleError(
                        f"{self.name}: output {name} of the region is {v.type}, expected {expected}"
                    )
        return y

    def lower(self, b: Graph, y: Value, *xs: Value) -> Value:
        return y

    def gradient(
        self, b: Graph, dy: Value, y: Value, *xs: Value, regions: tuple[Graph, ...] = ()
    ) -> list[Value | None]:
        if not regions:
            return [None]
        (body,) = regions
        grads = dict(zip(body.outputs, inlined(b, body, [dy, *xs]), strict=True))
        return [None, *(grads.get(f"d{i}") for i in range(len(xs)))]

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), "bf16[3,5]"
        yield cls(), "i64[2,0]"


def _listed(types: tuple[TensorType, ...]) -> str:
    return f"({', '.join(map(str, types))})"
