"""ONNX models, imported in as many parts as their data ask for: see `ir.staged`."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import onnx

from alpenglow.base.errors import AlpenglowError, ModelError, UnsupportedError
from alpenglow.frontends import stepped
from alpenglow.frontends.files import importing
from alpenglow.frontends.onnx.control import LOOPS, scanning
from alpenglow.frontends.onnx.file.about import metadata
from alpenglow.frontends.onnx.file.attributes import (
    check_form,
    kind_of,
    stated_constant,
    string_tensor,
    tensor_array,
)
from alpenglow.frontends.onnx.file.declared import (
    constant_inputs,
    declared,
    labels_of,
    read_types,
    static,
    typed_inputs,
)
from alpenglow.frontends.onnx.file.extents import identifier
from alpenglow.frontends.onnx.functions.body import domain_of
from alpenglow.frontends.onnx.functions.functions import imports, opset_of
from alpenglow.frontends.onnx.functions.subgraphs import captured, label, ordered, with_own_outputs
from alpenglow.frontends.onnx.hosted import find_hosted
from alpenglow.frontends.onnx.importer import Importer, host_site, missing
from alpenglow.frontends.onnx.ranked import (
    Ranked,
    Ranks,
    decoded,
    encoded_constants,
    without_unread,
)
from alpenglow.frontends.onnx.reader import read
from alpenglow.frontends.onnx.rewrite.carried import settled
from alpenglow.frontends.onnx.rewrite.class_names import numbered
from alpenglow.frontends.onnx.rewrite.lists import without_lists
from alpenglow.frontends.onnx.steps import NodeStep, graph_of, step_of
from alpenglow.frontends.refusals import refusing
from alpenglow.ir.dims import is_open
from alpenglow.ir.graph import Graph
from alpenglow.ir.op import Host
from alpenglow.ir.solve import untold
from alpenglow.ir.staged import Action, Apply, Known, Loop, Part, Scan, StagedModel
from alpenglow.ir.types import Array, TensorType

LOG = logging.getLogger(__name__)

Model = str | Path | bytes | onnx.ModelProto
Steps = tuple[NodeStep, ...]


def load(
    model: Model,
    shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, Any] = MappingProxyType({}),
) -> Graph | StagedModel:
    """Read an ONNX model and return its graph, or the model where that depends on the data.

    `shapes` binds open extents of inputs by input name; `constants` are values of inputs.
    Raises ModelError if the file is damaged or breaks the rules of ONNX, UnsupportedError if it
    uses what is not there.
    """
    proto, file, folder = read(model, aside=True)
    with importing(file, "ONNX"), refusing(missing(proto.graph.node, imports(proto.opset_import))):
        whole = OnnxModel.of_file(proto, file, folder, shapes or {}, constants)
        whole.metadata = metadata(proto)
        types = read_types(proto.graph, whole.inputs)
        made = stepped.graph_of(whole, types, whole.leave_out if constants else None)
    if isinstance(made, Graph):
        compare_outputs(whole, made)
    return made


def compare_outputs(whole: OnnxModel, g: Graph) -> None:
    """Log a warning for each output that is not as the model declares it."""
    for name, v in g.outputs.items():
        said = whole.outputs.get(name)
        if said is None:
            continue
        pairs = zip(said.shape, v.type.shape, strict=False)
        differ = any(not is_open(d) and not is_open(e) and d != e for d, e in pairs)
        if said.dtype != v.type.dtype or said.rank != v.type.rank or differ:
            LOG.warning("%s: output '%s' is declared %s, and is %s", whole.file, name, said, v.type)


class OnnxModel(StagedModel):
    """A graph of ONNX with what belongs to it: a model, or the body of a loop."""

    def __init__(
        self, source: onnx.GraphProto, opsets: Mapping[str, int], folder: Path | None, file: str,
        inputs: Mapping[str, TensorType | None],
    ) -> None:  # fmt: skip
        self.name = identifier(source.name) or "main"
        self.file = file
        self.inputs = inputs
        self.kinds = {
            i.name: kind for i in source.input
            if inputs.get(i.name) is None and (kind := kind_of(i.type, i.name)) is not None
        }  # fmt: skip
        labels = labels_of(source)
        self.outputs = {o.name: declared(o, labels) for o in source.output}
        if len(self.outputs) < len(source.output):
            twice = [n for n, c in Counter(o.name for o in source.output).items() if c > 1]
            raise ModelError(f"output '{twice[0]}' is given twice, expected different names")
        self._infos = {i.name: i for i in (*source.value_info, *source.output)}
        values: dict[str, Any] = {}
        self._numbers: dict[str, Array] = {}
        self._bodies: dict[str, tuple[onnx.GraphProto, OnnxModel]] = {}
        self._opsets = opsets
        self._folder = folder
        if source.sparse_initializer:
            raise UnsupportedError("sparse initializers are not supported; supported: dense")
        for tensor in source.initializer:
            if tensor.name in values:
                raise ModelError(
                    f"two initializers are called '{tensor.name}', expected different names"
                )
            if tensor.data_type == onnx.TensorProto.STRING:
                values[tensor.name] = string_tensor(tensor)
            else:
                array = tensor_array(tensor, folder)
                values[tensor.name] = self._numbers[tensor.name] = array
        self.constants: dict[str, Any] = values
        nodes = [n for node in ordered(source, frozenset(inputs)) for n in settled(node)]
        self._steps = tuple(
            step_of(n) for node in nodes if not self._states(node) for n in numbered(node)
        )
        self._ranks: Ranks = {}
        self._encode()

    def _states(self, node: onnx.NodeProto) -> bool:
        """Take the constant of a node, if it states one, as an initializer.

        Bodies of loops that read it then have it as a constant, too.
        """
        array = stated_constant(node, self._folder)
        if array is not None:
            self.constants[node.output[0]] = self._numbers[node.output[0]] = array
        return array is not None

    def _encode(self) -> None:
        """Give ranks to constant strings that nodes move."""
        strings = {n: a for n, a in self.constants.items() if n not in self._numbers}
        nodes = [step.payload for step in self._steps]
        self._ranks, dictionary, ranks = encoded_constants(strings, nodes, self._opsets)
        self.constants = {**self.constants, **dictionary, **ranks}
        self._numbers |= ranks
        self._strings = frozenset(self.constants.keys() - self._numbers.keys())

    @staticmethod
    def of_file(
        proto: onnx.ModelProto, file: str, folder: Path | None,
        shapes: Mapping[str, Sequence[int]], constants: Mapping[str, Any],
    ) -> OnnxModel:  # fmt: skip
        """Return a model that was read from a file."""
        opsets = imports(proto.opset_import)
        inputs = typed_inputs(proto.graph, shapes)
        if not constants:
            return OnnxModel(proto.graph, opsets, folder, file, inputs)
        arrays = constant_inputs(proto.graph, inputs, constants)
        told = {n: a.shape for n, a in arrays.items() if inputs[n] is not None}
        inputs = typed_inputs(proto.graph, {**shapes, **told})
        model = OnnxModel(proto.graph, opsets, folder, file, inputs)
        model.adopt(arrays)
        return model

    def adopt(self, constants: Mapping[str, Array]) -> None:
        """Make constants of inputs that are constants wherever this body is used."""
        self._drop_inputs(constants)
        self.constants = {**self.constants, **constants}
        self._numbers |= {n: a for n, a in constants.items() if a.dtype != object}
        self._encode()

    def leave_out(self, g: Graph, types: Mapping[str, TensorType]) -> Collection[str]:
        """Return the names of inputs that only branches read which g does not take.

        They are inputs no more, unless the extents of the others do not follow without them.
        """
        read = {n for step in self._steps for n in step.reads}
        gone = [n for n in self.inputs if n in read and not g.has_input(n)]
        if untold({n: t.shape for n, t in types.items() if n not in gone}):
            return ()
        self._drop_inputs(gone)
        return gone

    def _drop_inputs(self, names: Collection[str]) -> None:
        self.inputs = {n: t for n, t in self.inputs.items() if n not in names}
        self.kinds = {n: kind for n, kind in self.kinds.items() if n not in names}

    def begin(self) -> Steps:
        return self._steps

    def part(self, rest: Steps, known: Known) -> Part:
        """Import as much of `rest` as what is known decides."""
        known = Known(known.types, known.others | self._strings, known.elements)
        ranked = Ranked(known.others, self._ranks)
        importer = Importer(
            self.name, self._opsets, self._folder, self._numbers, known, ranked,
            lambda name: static(self._infos.get(name)),
        )  # fmt: skip
        # Operands that are not there yet hold their nodes back.
        here = known.types.keys() | known.others | self.constants.keys()
        importer.hold_back(n for n in self.inputs if n not in here)
        importer.run(rest)
        importer.later = without_unread(importer.later, self.outputs)
        for name in {n for step in importer.later for n in step.reads} & importer.stated.keys():
            importer.find(name)
        pending = {o for step in importer.later for o in step.outputs if o}
        applied: set[str] = set()  # what actions make that come before
        encoding = ranked.encoding()
        actions: list[Action] = [] if encoding is None else [encoding]
        later: list[NodeStep] = []
        for step in importer.later:
            ready = all(
                n in applied or ((n in importer.values or n in here) and n not in pending)
                for n in step.reads
            )
            if ready and applied.intersection(step.reads):
                ready = step.kind not in LOOPS  # types of operands may yet unroll a loop
            if ready and step not in importer.cut and importer.by_host(step.payload):
                action = self._action(step.payload)
                actions.append(action)
                if isinstance(action, Apply):
                    applied.update(action.outputs)
            else:
                later.append(step)
        g = importer.g
        wanted = dict.fromkeys(n for step in importer.later for n in step.reads)
        wanted |= dict.fromkeys([*importer.needs, *importer.beside, *self.outputs])
        for name in wanted:
            if name in importer.values and not g.has_input(name) and name not in self.constants:
                g.output(name, importer.values[name])
            elif not importer.later and name in self.outputs and name not in g.outputs:
                if name not in importer.values and name not in here:
                    raise ModelError(f"graph output '{name}' is unknown, expected a node output")
                if name not in known.others:
                    g.output(name, importer.find(name))
        g.prune()
        return Part(g, tuple(actions), tuple(importer.needs), tuple(later) or None)

    def _action(self, node: onnx.NodeProto) -> Action:
        """Return the action of the runtime for a node that no graph can hold."""
        if (decoding := decoded(node)) is not None:
            return decoding
        domain, opset = domain_of(node), opset_of(node, self._opsets)
        assert opset is not None, "checked before"
        try:
            check_form(node, domain, opset)
            if not domain and node.op_type == "Loop":
                return self._loop(node)
            if not domain and node.op_type == "Scan":
                return self._scan(node, opset)
            form = find_hosted(domain, node.op_type, opset)
            assert form is not None, "it was found before"
            op: Host = form(host_site(node, opset, self._folder))
        except AlpenglowError as error:
            raise error.located(node=label(node)) from None
        return Apply(label(node), op, tuple(node.input), tuple(node.output))

    def _loop(self, node: onnx.NodeProto) -> Loop:
        body = graph_of(node, "body")
        trips, condition, *carried = [*node.input, "", ""][: max(len(node.input), 2)]
        if len(body.input) != len(carried) + 2 or len(body.output) != len(node.output) + 1:
            raise ModelError(
                f"Loop: the body has {len(body.input)} inputs and {len(body.output)} outputs, "
                f"expected {len(carried) + 2} and {len(node.output) + 1}"
            )
        lists = without_lists(body)
        outer = tuple(captured(lists.body))
        model = self._inner(node, lists.body, outer)
        numbers = [k for k, _ in lists.appended]
        others = [n for k, n in enumerate(node.output) if k not in numbers]
        return Loop(
            label=label(node),
            body=model,
            trips=trips,
            condition=condition,
            carried=tuple(n for k, n in enumerate(carried) if k not in numbers),
            captured=tuple(n for n in outer if n in model.inputs),
            outputs=(*others, *(node.output[k] for k in numbers)),
            appended=tuple((carried[k], said) for k, said in lists.appended),
            picked=tuple(lists.picked),
        )

    def _scan(self, node: onnx.NodeProto, opset: int) -> Scan:
        body = graph_of(node, "body")
        form = scanning(node, body, batched=opset < 9)
        outer = tuple(captured(body))
        model = self._inner(node, body, outer)
        read = tuple(n for n in outer if n in model.inputs)
        return Scan(
            label(node), model, form.inputs[: form.states], form.inputs[form.states :], read,
            tuple(node.output), tuple(a.axis for a in form.along),
            tuple(a.reverse for a in form.along), form.batched, form.lengths,
        )  # fmt: skip

    def _inner(
        self, node: onnx.NodeProto, body: onnx.GraphProto, outer: Sequence[str]
    ) -> OnnxModel:
        """Return the body of a loop as a model; what it captures are further inputs.

        However often the loop is imported, this is one model, so that it is compiled once.
        """
        name = next(filter(None, node.output), node.name)
        if name not in self._bodies or self._bodies[name][0] != body:
            labels = labels_of(body)
            inputs = {i.name: declared(i, labels) for i in body.input} | dict.fromkeys(outer)
            own = with_own_outputs(body)
            model = OnnxModel(own, self._opsets, self._folder, self.file, inputs)
            model.adopt({n: a for n, a in self.constants.items() if n in outer})
            self._bodies[name] = body, model
        return self._bodies[name][1]
