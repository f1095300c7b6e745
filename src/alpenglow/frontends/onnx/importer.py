"""From an ONNX model to graphs: nodes in order, each through its entry in the table.

Everything that a model can get wrong is found here and reported by file and node; operators that
cannot be converted are reported all at once.  Small integer computations (shapes) are carried
along and folded (`contents`), so that what is left open is exactly what the model leaves open.

A model whose graph depends on data is imported in parts (`ir.staged`): a node that needs
elements which are not known yet, or that no graph can hold, is left for later with all that reads
it, and what can be imported is the next part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import onnx

from alpenglow.base.errors import AlpenglowError, ModelError, Refusal, UnsupportedError
from alpenglow.base.words import shown
from alpenglow.frontends.control import Control
from alpenglow.frontends.onnx import converters
from alpenglow.frontends.onnx.control import LOOPS, Knowledge, branches, turning
from alpenglow.frontends.onnx.file.attributes import Attributes, check_form
from alpenglow.frontends.onnx.functions.body import domain_of
from alpenglow.frontends.onnx.functions.functions import opset_of
from alpenglow.frontends.onnx.functions.subgraphs import graphs_of, label, varied
from alpenglow.frontends.onnx.hosted import HostSite, find_hosted, makes_host_value
from alpenglow.frontends.onnx.ranked import DECODING, Ranked
from alpenglow.frontends.onnx.steps import NodeStep, Placed, renaming, step_of
from alpenglow.frontends.onnx.table import Made, Site
from alpenglow.frontends.presume import Needed, at_least_0
from alpenglow.frontends.refusals import NO_CONVERTER, unknown
from alpenglow.frontends.stepped import ConvertingImporter
from alpenglow.frontends.steps import SAME, Body
from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.staged import Known
from alpenglow.ir.types import Array, TensorType
from alpenglow.ops.tensor.movement import Reshape


class Importer(ConvertingImporter[onnx.NodeProto]):
    """The state of the import of one part; `later` are the steps that are left for another.

    `stated` are the constants of graphs that stand where they are run.  `declared` returns the
    type that the model declares for a value, if all of it is known.
    """

    format = "ONNX"
    folds = True

    def __init__(
        self, name: str, opsets: Mapping[str, int], folder: Path | None,
        constants: Mapping[str, Array], given: Known, ranked: Ranked,
        declared: Callable[[str], TensorType | None] = lambda name: None,
    ) -> None:  # fmt: skip
        super().__init__(Graph(name), given)
        self.opsets = opsets
        self.folder = folder
        self.constants = constants
        self.stated: dict[str, Array] = {}
        self.ranked = ranked
        self.declared = declared
        self._variables: set[str] = set()  # what is differentiated by
        self._kept: set[Node] = set()  # what must not be folded for that
        self._tied: dict[int, Value] = {}  # constants by the identity of their arrays

    def run(self, steps: Iterable[NodeStep]) -> None:
        """Import as many steps as possible; they are in topological order."""
        steps = tuple(steps)
        self._variables.update(name for step in steps for name in varied(step.payload))
        super().run(steps)

    def prefix(self, step: NodeStep) -> str:
        return f"{next(filter(None, step.outputs), step.payload.name)}/"

    def apart(self, body: Body[onnx.NodeProto]) -> Importer:
        return Importer("apart", self.opsets, self.folder, {}, Known({}), Ranked((), {}))

    def enter(self, body: Body[onnx.NodeProto]) -> None:
        assert isinstance(body, Placed), "a graph was placed"
        self.stated |= body.constants
        self._variables.update(name for step in body.steps for name in varied(step.payload))

    def _control(self, step: NodeStep) -> Control[onnx.NodeProto] | None:
        node = step.payload
        if domain_of(node) != "":
            return None
        if node.op_type == "If":
            return branches(step, self.folder)
        if node.op_type not in LOOPS or any(name in self.given.others for name in step.reads):
            return None
        self._check_form(node)
        known = Knowledge(self._number, self._extent, self._type_of)
        return turning(step, self._opset(node), known, self.folder)

    def _number(self, name: str) -> int | None:
        """Return the integer that a value is, if it is known."""
        v = self.find(name)
        elements = self.contents(v) if v.array is None else v.array
        if elements is None or elements.size != 1:
            return None
        (value,) = elements.reshape(-1).tolist()
        return int(value) if isinstance(value, int) else None

    def _extent(self, name: str) -> Dim:
        """Return the number or extent that a value is, 0 for a negative one; raise Needed."""
        v = self.find(name)
        elements = self.contents(v) if v.array is None else v.array
        if elements is None:
            raise Needed(name, v)
        if elements.size != 1:
            raise ModelError(
                f"'{name}' is a number of iterations of {elements.size} elements, expected one"
            )
        (extent,) = elements.reshape(-1).tolist()
        return extent if at_least_0(extent) else 0

    def _type_of(self, name: str) -> TensorType:
        return self.find(name).type

    # ── names ──

    def _stated(self, name: str) -> Value:
        array = self.constants[name] if name in self.constants else self.stated.get(name)
        if array is not None:
            if id(array) not in self._tied:
                self._tied[id(array)] = self.g.constant(array, name, copy=False)
            return self._variable(name, self._tied[id(array)])
        if name in self.given.others:
            raise ModelError(f"'{name}' holds no numbers, expected a tensor of numbers")
        raise ModelError(f"input '{name}' is an output past those expected of its operator")

    def _variable(self, name: str, v: Value) -> Value:
        """Return v, but no constant if something is differentiated by it: it must not be folded."""
        if name not in self._variables or v.array is None:
            return v
        node = self.g.add(Reshape(v.type.shape), [v], name=name)
        self._kept.add(node)
        self.known[node.output] = None
        return node.output

    # ── what no graph holds ──

    def _instead(self, step: NodeStep) -> Sequence[NodeStep]:
        """Return the steps that replace a node that only moves strings."""
        if step.make is not None:
            return ()
        if step.kind == SAME:
            return [renaming(step)]

        def is_number(name: str) -> bool:
            known = (self.values, self.constants, self.stated, self.given.types)
            return any(name in names for names in known)

        node = step.payload
        nodes = self.ranked.on_ranks(node, opset_of(node, self.opsets), is_number)
        if nodes:
            self.hold_back(self.ranked.encoded)
        return [step_of(n) for n in nodes]

    def by_host(self, node: onnx.NodeProto) -> bool:
        """Whether a node cannot be in a graph: loops, and what works on other than numbers."""
        if node.domain == DECODING:
            return True
        domain, opset = domain_of(node), self._opset(node)
        if node.op_type in LOOPS and not domain:
            return True
        if converters.find(domain, node.op_type, opset) is None:
            return find_hosted(domain, node.op_type, opset) is not None
        if any(name in self.given.others for name in node.input):
            return find_hosted(domain, node.op_type, opset) is not None
        return makes_host_value(domain, host_site(node, opset, self.folder))

    # ── nodes of graphs ──

    def _step(self, step: NodeStep) -> None:
        if step.make is None:
            if self.by_host(step.payload):
                self._postpone(step)
                return
            self._check_form(step.payload)
        super()._step(step)
        for name in step.outputs:
            if name in self._variables:
                self.values[name] = self._variable(name, self.values[name])

    def _check(self, step: NodeStep, i: int, v: Value) -> Value:
        return v

    def _declared(self, step: NodeStep, i: int) -> TensorType | None:
        return self.declared(step.outputs[i])

    def _settle(self, fresh: Sequence[Node]) -> dict[Value, Value]:
        return super()._settle([n for n in fresh if n not in self._kept])

    def _check_form(self, node: onnx.NodeProto) -> None:
        try:
            check_form(node, domain_of(node), self._opset(node))
        except AlpenglowError as error:
            raise error.located(node=label(node)) from None

    def _convert(self, step: NodeStep) -> Made:
        node = step.payload
        domain, opset = domain_of(node), self._opset(node)
        convert = converters.find(domain, node.op_type, opset)
        if convert is None:
            raise UnsupportedError(NO_CONVERTER)
        name = step.label.removeprefix(f"{node.op_type} '").removesuffix("'")
        return convert(
            Site(
                self.g, node.op_type, f"{node.op_type} '{shown(name)}'", opset, step.inputs,
                step.outputs, Attributes(node, self.folder), self,
            )
        )  # fmt: skip

    def _opset(self, node: onnx.NodeProto) -> int:
        opset = opset_of(node, self.opsets)
        assert opset is not None, "checked before"
        return opset


def host_site(node: onnx.NodeProto, opset: int, folder: Path | None) -> HostSite:
    """Return the view of a node that a hosted form converts."""
    count = sum(bool(name) for name in node.input)
    return HostSite(node.op_type, opset, Attributes(node, folder), count, len(node.output))


def missing(nodes: Sequence[onnx.NodeProto], opsets: Mapping[str, int]) -> list[Refusal]:
    """Return the nodes without a converter, also the nodes in branches and loops.

    Raises ModelError for an operator of a domain of which the model imports no opset.
    """
    found: list[Refusal] = []
    for node in nodes:
        domain, opset = domain_of(node), opset_of(node, opsets)
        if opset is None:
            raise ModelError(
                f"the opset of domain '{domain}' is missing in opset_import", node=label(node)
            )
        if not domain and node.op_type in (*LOOPS, "If"):
            found += [r for g in graphs_of(node) for r in missing(g.node, opsets)]
            continue
        key = domain, node.op_type, opset
        if converters.find(*key) is None and find_hosted(*key) is None:
            kind = f"{domain}:{node.op_type}" if domain else node.op_type
            found.append(unknown(kind, label(node).removeprefix(f"{node.op_type} ")))
    return found
