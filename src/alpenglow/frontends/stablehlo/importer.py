"""From a function of StableHLO to a graph: operations in order, each by its converter.

What a converter makes is held to the type that the program states for it.  Functions are imported
where they are called.  What small integer tensors hold is kept along (`contents`), since programs
with open extents compute shapes.

A program whose graph depends on data is imported in parts (`ir.staged`): a step that needs elements
which are not known yet, or that no graph can hold, is left for later with all that reads it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from alpenglow.base.errors import AlpenglowError, FeedError, ModelError
from alpenglow.frontends.operands import Importing
from alpenglow.frontends.parts import PartImporter
from alpenglow.frontends.presume import Needed, Undecided, presume_extents
from alpenglow.frontends.shapes import check_size
from alpenglow.frontends.stablehlo import converters
from alpenglow.frontends.stablehlo.control import LOOP, SAME, expanded
from alpenglow.frontends.stablehlo.custom_calls import ASSERTION
from alpenglow.frontends.stablehlo.custom_calls import SAME as SAME_CALLS
from alpenglow.frontends.stablehlo.declared import declared
from alpenglow.frontends.stablehlo.module import Module, Operation
from alpenglow.frontends.stablehlo.quantized import as_real, is_quantized, requantized
from alpenglow.frontends.stablehlo.steps import Step
from alpenglow.frontends.stablehlo.table import Site
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.staged import Known
from alpenglow.ir.types import Array


class Importer(PartImporter):
    """The state of the import of one part; `later` are the steps that are left for another."""

    format = "StableHLO"

    def __init__(
        self, g: Graph, module: Module, constants: Mapping[str, Array], given: Known
    ) -> None:
        super().__init__(g, given)
        self.module = module
        self.constants = constants
        self.tuples: dict[str, tuple[str, ...]] = {}
        self.later: list[Step] = []

    def run(self, steps: Iterable[Step]) -> None:
        """Import what can be imported of steps."""
        waiting = deque(steps)
        while waiting:
            step = waiting.popleft()
            try:
                self._next(step, waiting)
            except Undecided:
                self._postpone(step)
            except Needed as needed:
                self._missed(needed)
                self._postpone(step)

    def _next(self, step: Step, waiting: deque[Step]) -> None:
        if any(name in self._missing for name in step.reads) or step.kind == LOOP:
            self._postpone(step)
        elif step.kind == SAME or self._is_same(step):
            self._rename(step)
        elif (instead := self._located(step)) is not None:
            waiting.extendleft(reversed(instead))
        elif step.outputs or step.kind != "stablehlo.custom_call":
            self._step(step)
        elif step.operation.attributes.get("call_target_name") == ASSERTION and step.inputs:
            self._assert(step)

    def _assert(self, step: Step) -> None:
        """Raise FeedError if what a program says of extents is known to be wrong."""
        v = self.find(step.inputs[0])
        elements = v.array if v.array is not None else self.contents(v)
        if elements is not None and not all(elements.reshape(-1).tolist()):
            message = str(step.operation.attributes.get("error_message", "a shape does not fit"))
            raise FeedError(message, node=step.label)

    # ── what a converter may ask ──

    def find(self, name: str) -> Value:
        """Return a value by name: one that was made, an input or a constant."""
        if name in self.values:
            return self.values[name]
        self.values[name] = v = self._found(name)
        return v

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
        if name in self.constants:
            return self.g.constant(self.constants[name], name)
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
            return expanded(self.module, step, self._chosen, self.tuples)
        except AlpenglowError as error:
            raise error.located(node=step.label) from None

    def _chosen(self, name: str) -> int:
        """Return the number of a branch; raise Needed if it is not known."""
        v = self.find(name)
        if v.type.dtype not in ("bool", "i32"):
            raise ModelError(f"what chooses a branch is {v.type}")
        elements = v.array
        if elements is None:
            elements = self.elements(name)
        if elements is None:
            elements = self.contents(v)
        if elements is None:
            raise Needed(name, v)
        if elements.size != 1:
            raise ModelError(f"what chooses a branch has {elements.size} elements, expected one")
        return int(elements.reshape(-1)[0])

    def _step(self, step: Step) -> None:
        results, fresh = self._tried(lambda: self._imported(step))
        for name, v in zip(step.outputs, results, strict=True):
            presume_extents(v.type.shape)
            if v.producer in fresh and not v.name:
                v.name = name
            self.values[name] = v

    def _imported(self, step: Step) -> tuple[Sequence[Value], set[Node]]:
        """Return what a step makes, and the nodes of the graph for it."""

        def convert() -> tuple[Sequence[Value], set[Node]]:
            before = len(self.g.nodes)
            made = self._convert(step)
            results = [made] if isinstance(made, Value) else list(made)
            if len(results) != len(step.outputs):
                raise ModelError(f"{step.kind} makes {len(results)} values of {len(step.outputs)}")
            results = [self._check(step, i, v) for i, v in enumerate(results)]
            fresh = self._since(before)
            self._settle(fresh)
            return results, set(fresh)

        return self._converted(convert, step.kind, step.label, step.reads)

    def _convert(self, step: Step) -> Value | Sequence[Value]:
        entry = converters.find(step.kind)
        assert entry is not None, "checked before"
        site = self._site(step, step.operation, self)
        if not is_quantized(step.operation):
            return entry.convert(site)
        operation, real = as_real(site, step.inputs)
        return requantized(site, entry.convert(self._site(step, operation, real)))

    def _site(self, step: Step, operation: Operation, importer: Importing) -> Site:
        return Site(self.g, operation, step.inputs, step.outputs, importer, self.module,
                    step.scope, None)  # fmt: skip

    def _check(self, step: Step, i: int, v: Value) -> Value:
        """Return a result as it is declared; raise ModelError if it is of another type."""
        return declared(self.g, step.kind, step.operation.types, i, v)

    def _postpone(self, step: Step) -> None:
        self.later.append(step)
        self._missing.update(step.outputs)

    # ── what is known of elements ──

    def _settle(self, fresh: Sequence[Node]) -> None:
        for node in fresh:
            for v in node.results:
                check_size(f"the result of {node.op.name}", v.type)
            elements = self._shape_contents(node)
            self.known |= dict.fromkeys(node.results, elements)
