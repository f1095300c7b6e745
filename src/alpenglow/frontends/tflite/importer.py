"""From a TFLite subgraph to a graph: operators in order, each through its entry in the table.

What a converter makes is held to the type that the file states for it.  Nothing is folded; but what
small integer tensors hold is kept along (`contents`), since models compute shapes.

A model whose graph depends on data is imported in parts (`ir.staged`): a step that needs elements
which are not known yet, or that no graph can hold, is left for later with all that reads it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from alpenglow.base.errors import AlpenglowError, ModelError, UnsupportedError
from alpenglow.base.words import shown
from alpenglow.frontends.parts import PartImporter
from alpenglow.frontends.presume import Needed, Undecided, presume_extents
from alpenglow.frontends.shapes import check_size
from alpenglow.frontends.tflite import converters
from alpenglow.frontends.tflite.control import LOOP, SAME, Splice, expanded
from alpenglow.frontends.tflite.model import Model, Tensor
from alpenglow.frontends.tflite.steps import Step
from alpenglow.frontends.tflite.table import Site
from alpenglow.frontends.tflite.variables import VARIABLES, Key, Variables
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.staged import Known
from alpenglow.ir.types import DTYPES, Array


class Importer(PartImporter):
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
        self.later: list[Step] = []
        self._made: set[str] = set()

    def run(self, steps: Iterable[Step]) -> None:
        """Import what can be imported of steps."""
        waiting = deque(steps)
        while waiting:
            step = waiting.popleft()
            try:
                if any(name in self._missing for name in step.inputs) or step.kind == LOOP:
                    self._postpone(step)
                elif step.kind == SAME:
                    self.values[step.outputs[0]] = self.find(step.inputs[0])
                elif step.kind in VARIABLES and not step.operator.custom:
                    self._variable(step)
                elif (splice := self._located(step)) is not None:
                    self.tensors |= splice.tensors
                    waiting.extendleft(reversed(splice.steps))
                else:
                    self._step(step)
            except Undecided:
                self._postpone(step)
            except Needed as needed:
                self._missed(needed)
                self._postpone(step)

    # ── what a converter may ask ──

    @property
    def rounding(self) -> str:
        """How integers that stand for reals are rounded."""
        return self.model.rounding

    def find(self, name: str) -> Value:
        """Return a value by name: one that was made, an input, a constant or a variable."""
        if name in self.values:
            return self.values[name]
        self.values[name] = v = self._found(name)
        return v

    def declared(self, name: str) -> Tensor:
        """Return what the file says of a tensor."""
        return self.tensors[name] if name in self.tensors else self._inputs[name]

    def assign(self, name: str, value: Value) -> None:
        """Let a tensor that is a variable have a value from here on."""
        if not self.tensors[name].is_variable:
            raise ModelError(f"'{name}' is changed, and is no variable")
        self.find(name)
        self.variables.assign(("", name), value)
        self.values[name] = value

    # ── names ──

    def _found(self, name: str) -> Value:
        elements = self.given.elements.get(name)
        if name in self.given.types:
            if elements is not None and elements.dtype != object:
                return self.g.constant(elements, name)
            v = self.g.input(name, self.given.types[name])
            if elements is not None:
                self.known[v] = elements
            return v
        tensor = self.tensors.get(name)
        if tensor is None:
            raise ModelError(f"'{name}' is read before anything makes it")
        array = tensor.array()
        if array is None and tensor.is_variable:
            return self.variables.of_tensor(name, tensor)
        if array is None and tensor.ranked and 0 in tensor.shape and tensor.dtype in DTYPES:
            array = np.empty(tensor.shape, DTYPES[tensor.dtype])
        if array is None:
            raise ModelError(f"'{name}' is read before anything makes it")
        return self.g.constant(array, name)

    # ── steps ──

    def _located(self, step: Step) -> Splice | None:
        try:
            return expanded(self.model, step, self._truth, self._prefix)
        except AlpenglowError as error:
            raise error.located(node=step.label) from None

    def _truth(self, name: str) -> bool:
        """Return the element of a bool; raise Needed if it is not known."""
        v = self.find(name)
        if v.type.dtype != "bool":
            raise ModelError(f"the condition '{name}' is {v.type}, expected a bool")
        elements = v.array
        if elements is None:
            elements = self.elements(name)
        if elements is None:
            elements = self.contents(v)
        if elements is None:
            raise Needed(name, v)
        if elements.size != 1:
            raise ModelError(f"the condition '{name}' has {elements.size} elements, expected one")
        return bool(elements.reshape(-1)[0])

    def _prefix(self, name: str) -> str:
        """Return what no name begins with that there is."""
        prefix = f"{name}/"
        while any(n.startswith(prefix) for n in self.tensors):
            prefix += "/"
        return prefix

    def _variable(self, step: Step) -> None:
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
            self._check(step.outputs[0], v)
            self.values[step.outputs[0]] = v

    def _step(self, step: Step) -> None:
        self._check_results(step)
        results, fresh = self._tried(lambda: self._imported(step))
        for name, v in zip(step.outputs, results, strict=False):
            presume_extents(v.type.shape)
            if v.producer in fresh and not v.name:
                v.name = name
            self.values[name] = v
            self._made.add(name)

    def _check_results(self, step: Step) -> None:
        for name in step.outputs:
            tensor = self.tensors.get(name)
            if tensor is None or tensor.content is not None or name in self._made:
                what = "an input" if tensor is None else "a constant"
                what = "made twice" if name in self._made else what
                raise ModelError(f"the result '{name}' is {what}", node=step.label)

    def _check(self, name: str, v: Value) -> None:
        """Raise ModelError unless a result has the element type and rank that the file states."""
        tensor = self.tensors[name]
        same = v.type.dtype == tensor.dtype
        if not same or (tensor.ranked and v.type.rank != len(tensor.shape)):
            raise ModelError(f"'{name}' is declared {tensor}, and is {v.type}")

    def _imported(self, step: Step) -> tuple[Sequence[Value], set[Node]]:
        """Return what a step makes, and the nodes of the graph for it."""

        def convert() -> tuple[Sequence[Value], set[Node]]:
            before = len(self.g.nodes)
            made = self._convert(step)
            fresh = self._since(before)
            self._settle(fresh)
            results = [made] if isinstance(made, Value) else list(made)
            for name, v in zip(step.outputs, results, strict=False):
                self._check(name, v)
            return results, set(fresh)

        return self._converted(convert, step.kind, step.label, step.inputs)

    def _convert(self, step: Step) -> Value | Sequence[Value]:
        entry = converters.find(step.kind, step.operator.custom)
        if not step.outputs:
            raise ModelError(f"{step.kind} has no results")
        options = step.operator.options(entry.options) if entry and entry.options else {}
        if any(self.declared(n).quantised for n in (*step.inputs, *step.outputs) if n):
            convert = converters.find_quantised(step.kind)
        else:
            convert = entry.convert if entry else None
        assert convert is not None, "checked before"
        # Scales may be any floats; converters look at what comes of them where it matters.
        with np.errstate(all="ignore"):
            made = convert(Site(self.g, step, options, self))
        count = 1 if isinstance(made, Value) else len(made)
        if count < len(step.outputs):
            raise ModelError(f"{step.kind} makes {count} results, and the file has more: "
                             f"{', '.join(map(shown, step.outputs))}")  # fmt: skip
        return made

    def _postpone(self, step: Step) -> None:
        if step.kind in VARIABLES:
            raise UnsupportedError(
                "a variable is changed in a model whose graph depends on its data", node=step.label
            )
        self.later.append(step)
        self._missing.update(step.outputs)

    # ── what is known of elements ──

    def _settle(self, fresh: Sequence[Node]) -> None:
        for node in fresh:
            for v in node.results:
                check_size(f"the result of {node.op.name}", v.type)
            elements = self._shape_contents(node)
            self.known |= dict.fromkeys(node.results, elements)
