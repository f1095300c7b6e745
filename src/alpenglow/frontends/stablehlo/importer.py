"""From a function of StableHLO to a graph: operations in order, each by its converter.

What a converter makes is held to the type that the program states for it.  Functions are imported
where they are called.  What small integer tensors hold is kept along (`contents`), since programs
with open extents compute shapes.

A program whose graph depends on data is imported in parts (`ir.staged`): a step that needs elements
which are not known yet, or that no graph can hold, is left for later with all that reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from alpenglow.base.errors import AlpenglowError, FeedError, ModelError
from alpenglow.frontends.operands import Importing
from alpenglow.frontends.stablehlo import converters
from alpenglow.frontends.stablehlo.control import expanded
from alpenglow.frontends.stablehlo.custom_calls import ASSERTION
from alpenglow.frontends.stablehlo.custom_calls import SAME as SAME_CALLS
from alpenglow.frontends.stablehlo.declared import declared
from alpenglow.frontends.stablehlo.module import Module, Operation
from alpenglow.frontends.stablehlo.quantized import as_real, is_quantized, requantized
from alpenglow.frontends.stablehlo.steps import Step
from alpenglow.frontends.stablehlo.table import Site
from alpenglow.frontends.stepped import SAME, StepImporter
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.staged import Known
from alpenglow.ir.types import Array


class Importer(StepImporter[Step]):
    """The state of the import of one part; `later` are the steps that are left for another."""

    format = "StableHLO"

    def __init__(
        self, g: Graph, module: Module, constants: Mapping[str, Array], given: Known
    ) -> None:
        super().__init__(g, given)
        self.module = module
        self.constants = constants
        self.tuples: dict[str, tuple[str, ...]] = {}

    def _taken(self, step: Step) -> Sequence[Step]:
        if step.kind == SAME or self._is_same(step):
            self._rename(step)
        elif (instead := self._located(step)) is not None:
            return instead
        elif step.outputs or step.kind != "stablehlo.custom_call":
            self._step(step)
        elif step.operation.attributes.get("call_target_name") == ASSERTION and step.inputs:
            self._assert(step)
        return ()

    def _assert(self, step: Step) -> None:
        """Raise FeedError if what a program says of extents is known to be wrong."""
        v = self.find(step.inputs[0])
        elements = v.array if v.array is not None else self.contents(v)
        if elements is not None and not all(elements.reshape(-1).tolist()):
            message = str(step.operation.attributes.get("error_message", "a shape does not fit"))
            raise FeedError(message, node=step.label)

    # ── names ──

    def _stated(self, name: str) -> Value:
        if name in self.constants:
            return self.g.constant(self.constants[name], name, copy=False)
        what = "a tuple" if name in self.tuples else "no tensor that anything makes"
        raise ModelError(f"'{name}' is read, which is {what}")

    def _is_same(self, step: Step) -> bool:
        target = step.operation.attributes.get("call_target_name")
        return step.kind == "stablehlo.custom_call" and target in SAME_CALLS

    def _rename(self, step: Step) -> None:
        """Let values go by other names."""
        if len(step.inputs) != len(step.outputs):
            raise ModelError(f"{step.kind} has {len(step.inputs)} operands", node=step.label)
        for name, result in zip(step.inputs, step.outputs, strict=True):
            if name in self.tuples:
                self.tuples[result] = self.tuples[name]
                continue
            self.values[result] = v = self.find(name)
            if step.operation.types:
                self._check(step, 0, v)

    # ── steps ──

    def _located(self, step: Step) -> Sequence[Step] | None:
        try:
            return expanded(
                self.module, step, lambda name: self.one_element(name, ("bool", "i32")), self.tuples
            )
        except AlpenglowError as error:
            raise error.located(node=step.label) from None

    def _convert(self, step: Step) -> Value | Sequence[Value]:
        entry = converters.find(step.kind)
        assert entry is not None, "checked before"
        site = self._site(step, step.operation, self)
        made: Value | Sequence[Value]
        if is_quantized(step.operation):
            operation, real = as_real(site, step.inputs)
            made = requantized(site, entry.convert(self._site(step, operation, real)))
        else:
            made = entry.convert(site)
        count = 1 if isinstance(made, Value) else len(made)
        if count != len(step.outputs):
            raise ModelError(f"{step.kind} makes {count} values of {len(step.outputs)}")
        return made

    def _site(self, step: Step, operation: Operation, importer: Importing) -> Site:
        return Site(self.g, operation, step.inputs, step.outputs, importer, self.module,
                    step.scope, None)  # fmt: skip

    def _check(self, step: Step, i: int, v: Value) -> Value:
        """Return a result as it is declared; raise ModelError if it is of another type."""
        return declared(self.g, step.kind, step.operation.types, i, v)
