"""From a TFLite subgraph to a graph: operators in order, each through its entry in the table.

Each result is checked against the type that the file declares.  Nothing is folded; but what
small integer tensors hold is kept along (`contents`), since models compute shapes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from alpenglow.base.errors import AlpenglowError, ModelError, UnsupportedError
from alpenglow.base.words import shown
from alpenglow.frontends.control import Control
from alpenglow.frontends.refusals import NO_CONVERTER
from alpenglow.frontends.stepped import ConvertingImporter
from alpenglow.frontends.steps import Body, Step
from alpenglow.frontends.tflite import converters
from alpenglow.frontends.tflite.control import control
from alpenglow.frontends.tflite.file.model import Model, Tensor
from alpenglow.frontends.tflite.steps import VARIABLES, Applied, Placed
from alpenglow.frontends.tflite.table import Site
from alpenglow.frontends.tflite.variables import SPLIT_VARIABLES, Key, Variables
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.staged import Known
from alpenglow.ir.types import DTYPES, Array, TensorType


class Importer(ConvertingImporter[Applied]):
    """The state of the import of one part; `later` are the steps that are left for another."""

    format = "TFLite"

    def __init__(
        self, g: Graph, model: Model, tensors: Mapping[str, Tensor],
        inputs: Mapping[str, Tensor], given: Known, initial: Mapping[Key, Array],
        reserved: Collection[str] = (),
    ) -> None:  # fmt: skip
        super().__init__(g, given)
        self.model = model
        self.tensors = dict(tensors)
        self._inputs = inputs
        self.variables = Variables(g, initial, reserved)
        self._made: set[str] = set()

    def prefix(self, step: Step[Applied]) -> str:
        """Return a prefix that no name has yet."""
        prefix = f"{step.outputs[0] if step.outputs else ''}/"
        while any(n.startswith(prefix) for n in self.tensors):
            prefix += "/"
        return prefix

    def enter(self, body: Body[Applied]) -> None:
        assert isinstance(body, Placed), "a subgraph was placed"
        self.tensors |= body.tensors

    def apart(self, body: Body[Applied]) -> Importer:
        assert isinstance(body, Placed), "a subgraph was placed"
        tensors = {**self.tensors, **body.tensors}
        return Importer(Graph("apart"), self.model, tensors, body.inputs, Known({}), {})

    def _control(self, step: Step[Applied]) -> Control[Applied] | None:
        return control(self.model, step)

    def _taken(self, step: Step[Applied]) -> Sequence[Step[Applied]]:
        if step.kind == "CALL_ONCE" and not step.payload.operator.custom:
            return ()  # what it does has been done
        if step.kind not in VARIABLES or step.payload.operator.custom:
            return super()._taken(step)
        self._variable(step)
        return ()

    # ── what a converter may ask ──

    @property
    def rounding(self) -> str:
        """The rounding of quantized values."""
        return self.model.rounding

    def declared(self, name: str) -> Tensor:
        """Return the declaration of a tensor in the file."""
        return self.tensors[name] if name in self.tensors else self._inputs[name]

    def assign(self, name: str, value: Value) -> None:
        """Let a tensor that is a variable have a value from here on."""
        if not self.tensors[name].is_variable:
            raise ModelError(f"'{name}' is assigned, expected a tensor with is_variable")
        self.find(name)
        self.variables.assign(("", name), value)
        self.values[name] = value

    # ── names ──

    def _stated(self, name: str) -> Value:
        tensor = self.tensors.get(name)
        unmade = ModelError(f"'{name}' is read before it is computed, expected an earlier result")
        if tensor is None:
            raise unmade
        array = tensor.array()
        if array is None and tensor.is_variable:
            return self.variables.of_tensor(name, tensor)
        if array is None and tensor.ranked and 0 in tensor.shape and tensor.dtype in DTYPES:
            array = np.empty(tensor.shape, DTYPES[tensor.dtype])
        if array is None:
            raise unmade
        return self.g.constant(array, name, copy=False)

    # ── steps ──

    def _variable(self, step: Step[Applied]) -> None:
        try:
            if step.kind == "ASSIGN_VARIABLE":
                if len(step.inputs) != 2:
                    raise ModelError(f"{step.kind} has {len(step.inputs)} operands, expected two")
                self.variables.assign(self.variables.key(step), self.find(step.inputs[1]))
                return
            if len(step.outputs) != 1:
                raise ModelError(f"{step.kind} has {len(step.outputs)} results, expected one")
            v = self.variables.step(step)
        except AlpenglowError as error:
            raise error.located(node=step.label) from None
        if v is not None:
            self._check(step, 0, v)
            self.values[step.outputs[0]] = v

    def _step(self, step: Step[Applied]) -> None:
        self._check_results(step)
        super()._step(step)
        self._made.update(step.outputs)

    def _check_results(self, step: Step[Applied]) -> None:
        for name in step.outputs:
            tensor = self.tensors.get(name)
            if tensor is None or tensor.content is not None or name in self._made:
                what = "an input" if tensor is None else "a constant"
                what = "also an earlier result" if name in self._made else what
                raise ModelError(f"result '{name}' is {what}, expected a tensor of its own",
                                 node=step.label)  # fmt: skip

    def _check(self, step: Step[Applied], i: int, v: Value) -> Value:
        """Return a result if it has the element type and rank that the file states."""
        tensor = self.tensors[step.outputs[i]]
        same = v.type.dtype == tensor.dtype
        if not same or (tensor.ranked and v.type.rank != len(tensor.shape)):
            raise ModelError(f"'{step.outputs[i]}' is {v.type}, expected {tensor} as declared")
        return v

    def _declared(self, step: Step[Applied], i: int) -> TensorType | None:
        return self.declared(step.outputs[i]).type

    def _place(self, step: Step[Applied]) -> str:
        return step.payload.place

    def _convert(self, step: Step[Applied]) -> Value | Sequence[Value]:
        entry = converters.find(step.kind, step.payload.operator.custom)
        options = step.payload.operator.options(entry.options) if entry and entry.options else {}
        if any(self.declared(n).quantised for n in (*step.inputs, *step.outputs) if n):
            convert = converters.find_quantised(step.kind)
        else:
            convert = entry.convert if entry else None
        if convert is None:
            raise UnsupportedError(NO_CONVERTER)
        if not step.outputs:
            raise ModelError(f"{step.kind} has 0 results, expected at least 1")
        # Scales may be any floats; converters look at what comes of them where it matters.
        with np.errstate(all="ignore"):
            made = convert(Site(self.g, step, options, self))
        count = 1 if isinstance(made, Value) else len(made)
        if count < len(step.outputs):
            raise ModelError(f"{step.kind} has results {', '.join(map(shown, step.outputs))}, "
                             f"expected at most {count}")  # fmt: skip
        return made

    def _postpone(self, step: Step[Applied]) -> None:
        if step.kind in VARIABLES:
            raise UnsupportedError(SPLIT_VARIABLES, node=step.label)
        super()._postpone(step)
