"""From an ONNX model to graphs: nodes in order, each through its entry in the table.

Everything that a model can get wrong is found here and reported by file and node; operators that
are not known are reported all at once.  Small integer computations (shapes) are carried along and
folded (`contents`), so that what is left open is exactly what the model leaves open.

A model whose graph depends on data is imported in parts (`ir.staged`): a node that needs
elements which are not known yet, or that no graph can hold, is left for later with all that reads
it, and what can be imported is the next part.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from alpenglow.base.errors import AlpenglowError, ModelError, UnsupportedError
from alpenglow.base.words import counted, shown
from alpenglow.evaluate import apply
from alpenglow.frontends import contents
from alpenglow.frontends.onnx import converters
from alpenglow.frontends.onnx.attributes import (
    Attributes,
    check_form,
    check_size,
)
from alpenglow.frontends.onnx.function_body import domain_of
from alpenglow.frontends.onnx.functions import OPSET, opset_of
from alpenglow.frontends.onnx.hosted import HostSite, find_hosted, makes_host_value
from alpenglow.frontends.onnx.ranked import DECODING, Ranked
from alpenglow.frontends.onnx.subgraphs import branch, graphs_of, label, reads, varied
from alpenglow.frontends.onnx.table import Made, Needed, Site
from alpenglow.frontends.onnx.unroll import Operands, unrolled
from alpenglow.frontends.parts import PartImporter
from alpenglow.frontends.presume import Undecided, presume_extents
from alpenglow.ir.graph import Graph, Node, Value, is_closed
from alpenglow.ir.staged import Known
from alpenglow.ir.types import Array
from alpenglow.ops.in_range import InRange
from alpenglow.ops.movement import Reshape

LOOPS = ("Loop", "Scan")


class Importer(PartImporter):
    """The state of the import of one part; `later` are the nodes that are left for another."""

    format = "ONNX"

    def __init__(
        self,
        name: str,
        opsets: Mapping[str, int],
        folder: Path | None,
        constants: Mapping[str, Array],
        given: Known,
        ranked: Ranked,
    ) -> None:
        super().__init__(Graph(name), given)
        self.opsets = opsets
        self.folder = folder
        self.constants = constants
        self.ranked = ranked
        self.later: list[onnx.NodeProto] = []
        self._variables: set[str] = set()  # what is differentiated by
        self._kept: set[Node] = set()  # what must not be folded for that

    def run(self, nodes: Sequence[onnx.NodeProto]) -> None:
        """Import what can be imported of `nodes`, which stand in topological order."""
        waiting = deque(nodes)
        self._variables.update(name for node in nodes for name in varied(node))
        while waiting:
            node = waiting.popleft()
            try:
                if on_ranks := self._on_ranks(node):
                    waiting.extendleft(reversed(on_ranks))
                elif any(name in self._missing for name in reads(node)):
                    self._postpone(node)
                elif node.op_type == "If" and domain_of(node) == "":
                    chosen = self._chosen(node)
                    self._variables.update(name for inner in chosen for name in varied(inner))
                    waiting.extendleft(reversed(chosen))
                elif self._unrolled(node):
                    pass
                elif self.by_host(node):
                    self._postpone(node)
                else:
                    self._node(node)
            except Undecided:
                self._postpone(node)
            except Needed as needed:
                self._missed(needed)
                self._postpone(node)

    def _unrolled(self, node: onnx.NodeProto) -> bool:
        """Import a loop that turns a few times as the nodes of its turns; False where it is none.

        A loop that would have to be cut in its first turn is better left whole; one that cannot be
        imported so may yet run, where extents happen to fit.
        """
        if node.op_type not in LOOPS or domain_of(node) != "":
            return False
        opset = opset_of(node, self.opsets)
        assert opset is not None, "checked before"
        self._check_form(node)
        if any(name in self.given.others for name in reads(node)):
            return False
        known = Operands(self._all_elements, lambda name: self.find(name).type)
        turns = unrolled(node, opset, known, (OPSET,))
        if turns is None:
            return False
        later, missing = len(self.later), set(self._missing)
        needs, beside, values = dict(self.needs), dict(self.beside), dict(self.values)
        first, *others = turns.turns
        try:
            self.run([*turns.before, *first])
            if len(self.later) == later:
                for nodes in (*others, turns.after):
                    self.run(nodes)
                return True
        except AlpenglowError:
            pass  # the loop will complain of it
        del self.later[later:]
        self._missing, self.needs, self.beside = missing, needs, beside
        self.values = values | self.g.inputs  # those that a turn was the first to read stay
        return False

    def _all_elements(self, name: str) -> Array | None:
        """Return the elements of a value, as far as they are known."""
        v = self.find(name)
        return self.contents(v) if v.array is None else v.array

    def _postpone(self, node: onnx.NodeProto) -> None:
        self.later.append(node)
        self._missing.update(o for o in node.output if o)

    def find(self, name: str) -> Value:
        """Return a value by name: one that was made, an input, or a constant."""
        if name in self.values:
            return self.values[name]
        if name in self.constants:
            v = self._variable(name, self.g.constant(self.constants[name], name, copy=False))
        elif name in self.given.types:
            v = self._given(name)
        elif name in self.given.others:
            raise ModelError(f"'{name}' is no tensor of numbers, as this operator expects")
        else:
            raise ModelError(f"input '{name}' is an output that its operator does not have")
        self.values[name] = v
        return v

    def _variable(self, name: str, v: Value) -> Value:
        """Return v, but no constant if something is differentiated by it: it must not be folded."""
        if name not in self._variables or v.array is None:
            return v
        node = self.g.add(Reshape(v.type.shape), [v], name=name)
        self._kept.add(node)
        self.known[node.output] = None
        return node.output

    def _given(self, name: str) -> Value:
        t = self.given.types[name]
        elements = self.given.elements.get(name)
        if elements is not None and elements.dtype != object:
            return self.g.constant(elements, name)
        v = self.g.input(name, t)
        if elements is not None:
            self.known[v] = elements
        return v

    # ── what no graph holds ──

    def _on_ranks(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """Return what does the work of a node on strings that it only moves, in its stead."""

        def is_number(name: str) -> bool:
            return any(name in known for known in (self.values, self.constants, self.given.types))

        nodes = self.ranked.on_ranks(node, opset_of(node, self.opsets), is_number)
        if nodes:
            self.hold_back(self.ranked.encoded)
        return nodes

    def by_host(self, node: onnx.NodeProto) -> bool:
        """Whether a node cannot be in a graph: loops, and what works on other than numbers."""
        if node.domain == DECODING:
            return True
        domain, opset = domain_of(node), opset_of(node, self.opsets)
        assert opset is not None, "checked before"
        if node.op_type in LOOPS and not domain:
            return True
        if find_hosted(domain, node.op_type, opset) is None:
            return False
        if converters.find(domain, node.op_type, opset) is None:
            return True
        if any(name in self.given.others for name in node.input):
            return True
        return makes_host_value(domain, host_site(node, opset, self.folder))

    def _chosen(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """Return the nodes of the branch that an If takes; raise Needed if that is not known."""
        if len(node.input) != 1 or not node.input[0]:
            raise ModelError("If: expected one input, the condition", node=label(node))
        condition = self.find(node.input[0])
        if condition.type.dtype != "bool":
            message = f"If: the condition is {condition.type}, expected a bool"
            raise ModelError(message, node=label(node))
        elements = self.contents(condition) if condition.array is None else condition.array
        if elements is None:
            raise Needed(node.input[0])
        if elements.size != 1:
            message = f"If: the condition has {elements.size} elements, expected one"
            raise ModelError(message, node=label(node))
        name = "then_branch" if int(elements.reshape(-1)[0]) else "else_branch"
        graphs = {a.name: a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH}
        if name not in graphs:
            raise ModelError(f"If: attribute '{name}' is missing", node=label(node))
        if graphs[name].input or len(graphs[name].output) != len(node.output):
            raise ModelError(
                f"If: {name} has {len(graphs[name].input)} inputs and "
                f"{len(graphs[name].output)} outputs, expected none and {len(node.output)}",
                node=label(node),
            )
        return branch(node, graphs[name], (OPSET,))

    # ── nodes of graphs ──

    def _node(self, node: onnx.NodeProto) -> None:
        self._check_form(node)
        outputs, fresh, folded = self._tried(lambda: self._imported(node))
        results = [outputs] if isinstance(outputs, Value) else list(outputs)
        for name, v in zip(node.output, results, strict=False):
            v = folded.get(v, v)
            presume_extents(v.type.shape)
            if v.producer in fresh and not v.name:
                v.name = name
            self.values[name] = self._variable(name, v)
        self.values.pop("", None)

    def _imported(self, node: onnx.NodeProto) -> tuple[Made, list[Node], dict[Value, Value]]:
        """Return what a node makes, the nodes of the graph for it, and what became constant."""

        def convert() -> tuple[Made, list[Node], dict[Value, Value]]:
            before = len(self.g.nodes)
            outputs = self._convert(node)
            fresh = [n for n in self._since(before) if n not in self._kept]
            return outputs, fresh, self._settle(fresh)

        return self._converted(convert, node.op_type, label(node), node.input)

    def _check_form(self, node: onnx.NodeProto) -> None:
        opset = opset_of(node, self.opsets)
        assert opset is not None, "checked before"
        try:
            check_form(node, domain_of(node), opset)
        except AlpenglowError as error:
            raise error.located(node=label(node)) from None

    def _convert(self, node: onnx.NodeProto) -> Made:
        domain, opset = domain_of(node), opset_of(node, self.opsets)
        convert = None if opset is None else converters.find(domain, node.op_type, opset)
        assert opset is not None and convert is not None, "checked before"
        name = label(node).removeprefix(f"{node.op_type} '").removesuffix("'")
        return convert(
            Site(
                self.g, node.op_type, f"{node.op_type} '{shown(name)}'", opset, node.input,
                node.output, Attributes(node, self.folder), self,
            )
        )  # fmt: skip

    def _settle(self, fresh: list[Node]) -> dict[Value, Value]:
        """Find the contents of what `fresh` nodes made; return constants for those all numbers."""
        folded: dict[Value, Value] = {}
        for node in fresh:
            for v in node.results:
                check_size(f"the result of {node.op.name}", v.type)
            inputs = [folded.get(v, v) if v is not None else None for v in node.inputs]
            computed = node.op.pure and not isinstance(node.op, InRange)
            if not any(v is None or v.array is None for v in inputs) and computed:
                small = all(
                    not v.type.symbols() and v.type.size <= contents.LIMIT for v in node.results
                )
                cheap = all(v is None or v.type.size <= 4096 for v in inputs)
                if small and cheap and is_closed(node):
                    arrays = [None if v is None else v.array for v in inputs]
                    results = apply(node.op, arrays, node.regions)
                    for v, array in zip(node.results, results, strict=True):
                        exact = np.ascontiguousarray(array).reshape(array.shape)
                        folded[v] = self.g.constant(exact, copy=False)
                        self.known[v] = contents.of_constant(folded[v])
                    continue
            elements = self._shape_contents(node)
            self.known |= dict.fromkeys(node.results, elements)
            if elements is not None and contents.numbers(elements):
                exact = np.array(elements.ravel().tolist(), node.output.type.numpy)
                folded[node.output] = self.g.constant(exact.reshape(elements.shape))
        return folded


def host_site(node: onnx.NodeProto, opset: int, folder: Path | None) -> HostSite:
    """Return what a hosted form sees of a node."""
    count = sum(bool(name) for name in node.input)
    return HostSite(node.op_type, opset, Attributes(node, folder), count, len(node.output))


def check_supported(nodes: Sequence[onnx.NodeProto], opsets: Mapping[str, int]) -> None:
    """Raise UnsupportedError that lists all operators which there is nothing for."""
    missing: Counter[str] = Counter()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        domain = domain_of(node)
        opset = opset_of(node, opsets)
        if opset is None:
            raise ModelError(f"no opset is imported for domain '{domain}'", node=label(node))
        control = not domain and node.op_type in (*LOOPS, "If")
        known = converters.find(domain, node.op_type, opset) or find_hosted(
            domain, node.op_type, opset
        )
        if not control and known is None:
            missing[f"{domain}:{node.op_type}" if domain else node.op_type] += 1
        if control:
            waiting += [inner for g in graphs_of(node) for inner in g.node]
    if missing:
        listed = ", ".join(f"{name} ({counted(n, 'node')})" for name, n in sorted(missing.items()))
        raise UnsupportedError(f"these operators are not supported: {listed}")
