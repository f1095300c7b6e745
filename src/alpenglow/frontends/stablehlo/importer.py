"""From a function of StableHLO to a graph: operations in order, each by its converter.

The result of a converter is checked against the type that the program declares.  Functions are
imported at their calls.  Elements of small integer tensors are tracked (`contents`), since programs
with dynamic dimensions compute shapes.

A program whose graph depends on data is imported in parts (`ir.staged`): a step that needs elements
which are not known yet, or that no graph can hold, is left for later with all that reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from alpenglow.base.errors import AlpenglowError, FeedError, ModelError, UnsupportedError
from alpenglow.frontends.control import Control
from alpenglow.frontends.operands import Importing
from alpenglow.frontends.refusals import NO_CONVERTER
from alpenglow.frontends.stablehlo import converters
from alpenglow.frontends.stablehlo.control import CONTROL, GROUPS, TOKENS, control, handed_on
from alpenglow.frontends.stablehlo.convert.affine import as_real, is_quantized, requantized
from alpenglow.frontends.stablehlo.custom_calls import ASSERTION
from alpenglow.frontends.stablehlo.custom_calls import SAME as SAME_CALLS
from alpenglow.frontends.stablehlo.declared import declared, static
from alpenglow.frontends.stablehlo.module import Module, Operation
from alpenglow.frontends.stablehlo.steps import Applied
from alpenglow.frontends.stablehlo.table import Site
from alpenglow.frontends.stepped import ConvertingImporter
from alpenglow.frontends.steps import SAME, Body, Step
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.staged import Known
from alpenglow.ir.types import Array, TensorType


class Importer(ConvertingImporter[Applied]):
    """The state of the import of one part; `later` are the steps that are left for another."""

    format = "StableHLO"

    def __init__(
        self, g: Graph, module: Module, constants: Mapping[str, Array], given: Known
    ) -> None:
        super().__init__(g, given)
        self.module = module
        self.constants = constants
        self.tuples: dict[str, tuple[str, ...]] = {}

    def prefix(self, step: Step[Applied]) -> str:
        return f"{step.outputs[0]}/"

    def apart(self, body: Body[Applied]) -> Importer:
        return Importer(Graph("apart"), self.module, {}, Known({}))

    def _control(self, step: Step[Applied]) -> Control[Applied] | None:
        return control(self.module, step)

    def _taken(self, step: Step[Applied]) -> Sequence[Step[Applied]]:
        if step.kind in (*TOKENS, *GROUPS):
            return self._handed_on(step)
        if self._is_same(step):
            self._rename(step)
        elif step.outputs:
            return super()._taken(step)
        elif step.kind == "stablehlo.custom_call":
            self._assert(step)
        elif step.kind not in CONTROL:
            self._step(step)
        return ()

    def _handed_on(self, step: Step[Applied]) -> Sequence[Step[Applied]]:
        try:
            return handed_on(step, self.tuples)
        except AlpenglowError as error:
            raise error.located(node=step.label) from None

    def _assert(self, step: Step[Applied]) -> None:
        """Raise FeedError if what a program says of extents is known to be wrong."""
        attributes = step.payload.operation.attributes
        if attributes.get("call_target_name") != ASSERTION or not step.inputs:
            return
        v = self.find(step.inputs[0])
        elements = v.array if v.array is not None else self.contents(v)
        if elements is not None and not all(elements.reshape(-1).tolist()):
            message = str(attributes.get("error_message", "a shape does not fit"))
            raise FeedError(message, node=step.label)

    # ── names ──

    def _stated(self, name: str) -> Value:
        if name in self.constants:
            return self.g.constant(self.constants[name], name, copy=False)
        what = "a tuple" if name in self.tuples else "undefined"
        raise ModelError(f"'{name}' is {what}, expected a tensor")

    def _is_same(self, step: Step[Applied]) -> bool:
        target = step.payload.operation.attributes.get("call_target_name")
        return step.kind == "stablehlo.custom_call" and target in SAME_CALLS

    def _rename(self, step: Step[Applied]) -> None:
        """Let values go by other names."""
        if len(step.inputs) != len(step.outputs):
            raise ModelError(
                f"{step.kind} has {len(step.inputs)} operands and {len(step.outputs)} results, "
                "expected the same number", node=step.label,
            )  # fmt: skip
        for name, result in zip(step.inputs, step.outputs, strict=True):
            if name in self.tuples:
                self.tuples[result] = self.tuples[name]
                continue
            self.values[result] = v = self.find(name)
            if step.kind != SAME and step.payload.operation.types:
                self._check(step, 0, v)

    # ── steps ──

    def _convert(self, step: Step[Applied]) -> Value | Sequence[Value]:
        entry = converters.find(step.kind)
        if entry is None:
            raise UnsupportedError(NO_CONVERTER)
        site = self._site(step, step.payload.operation, self)
        made: Value | Sequence[Value]
        if is_quantized(step.payload.operation):
            operation, real = as_real(site, step.inputs)
            made = requantized(site, entry.convert(self._site(step, operation, real)))
        else:
            made = entry.convert(site)
        count = 1 if isinstance(made, Value) else len(made)
        if count != len(step.outputs):
            raise ModelError(f"{step.kind} has {len(step.outputs)} results, expected {count}")
        return made

    def _site(self, step: Step[Applied], operation: Operation, importer: Importing) -> Site:
        return Site(self.g, operation, step.label, step.inputs, step.outputs, importer,
                    self.module, step.payload.scope, None)  # fmt: skip

    def _check(self, step: Step[Applied], i: int, v: Value) -> Value:
        """Return a result as it is declared; raise ModelError if it is of another type."""
        return declared(self.g, step.kind, step.payload.operation.types, i, v)

    def _declared(self, step: Step[Applied], i: int) -> TensorType | None:
        return static(step.payload.operation.types[i])

    def _place(self, step: Step[Applied]) -> str:
        return step.payload.operation.place
