"""Writing a quantized model as ONNX: QuantizeLinear and DequantizeLinear in the original model.

The nodes of the model stay as they are.  Tensors that a plan stores get a pair of the two where
they are made, and the operands that read them so read the result of the pair; weights become
initializers in few bits.  So ONNX Runtime and others find the arrangement that they know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.frontends.onnx.functions.subgraphs import reads
from alpenglow.frontends.onnx.reader import read
from alpenglow.ir.graph import Node, Value
from alpenglow.ir.types import DTYPES, Array
from alpenglow.quant.activations import Activation
from alpenglow.quant.constants import Stored
from alpenglow.quant.layers import Place
from alpenglow.quant.naming import names
from alpenglow.quant.plan import Plan

CODES = {
    "i8": TensorProto.INT8, "u8": TensorProto.UINT8, "i16": TensorProto.INT16,
    "u16": TensorProto.UINT16, "i32": TensorProto.INT32, "i4": TensorProto.INT4,
}  # fmt: skip

BYTES = frozenset({"i8", "u8", "i32"})
"""The types that opset 13 quantizes with scales by axis; all others came with opset 21."""


@dataclass(frozen=True, slots=True)
class Exported:
    """The model, how many tensors it stores in few bits, and what of the plan it lacks, and why."""

    model: onnx.ModelProto
    stored: int
    notes: tuple[str, ...]


def export(model: str | Path | bytes | onnx.ModelProto, plan: Plan) -> Exported:
    """Return `model` quantized as planned for the graph that was read from it.

    Raises ModelError if the plan is for another model, UnsupportedError if the model cannot be
    taken to an opset that has what is needed.
    """
    proto, file, folder = read(model)
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    if folder is not None:
        onnx.load_external_data_for_model(copy, str(folder))
    try:
        return _PairWriter(_modern(copy, plan), plan).exported()
    except (ModelError, UnsupportedError) as error:
        raise error.located(file=file) from None


def _modern(model: onnx.ModelProto, plan: Plan) -> onnx.ModelProto:
    """Return the model at an opset that has what the plan needs, initializers no inputs."""
    dtypes = {a.parameters.dtype for a in plan.activations} | {s.dtype for s in plan.constants}
    needed = 13 if dtypes <= BYTES and not any(s.block for s in plan.constants) else 21
    # Some exporters (skl2onnx) state the domain twice.
    opset = max(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    if opset < needed:
        try:
            model = onnx.version_converter.convert_version(model, needed)
        except (RuntimeError, ValueError) as error:
            reason = str(error).strip().splitlines()[0]
            raise UnsupportedError(
                f"the model has opset {opset}, expected {needed} or more for the scales, and the "
                f"version converter of ONNX failed: {reason}"
            ) from None
    model.ir_version = max(model.ir_version, 10 if needed == 21 else 8)
    initial = {t.name for t in model.graph.initializer}
    kept = [i for i in model.graph.input if i.name not in initial]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    return model


class _PairWriter:
    """The nodes of the model while pairs are put among them."""

    def __init__(self, model: onnx.ModelProto, plan: Plan) -> None:
        self.model, self.plan, self.graph = model, plan, model.graph
        self.called = names(plan.graph)
        self.makers = {o: n for n in self.graph.node for o in n.output if o}
        self.known = {*self.makers, *(i.name for i in self.graph.input),
                      *(t.name for t in self.graph.initializer)}  # fmt: skip
        self.before: list[onnx.NodeProto] = []
        self.behind: dict[str, list[onnx.NodeProto]] = {}
        self.notes: list[str] = []
        self.stored = 0
        chosen = [d for d in plan.decisions if not d.why]
        layers = [(d.name, d.node) for d in chosen if d.node in plan.graph.nodes]
        if len(layers) < len(chosen):
            inside = ", ".join(d.name for d in chosen if d.node not in plan.graph.nodes)
            self.notes.append(f"{inside}: inside of a loop or a branch, where no pairs are put")
        unknown = [n for n, node in layers if node.results[0].name and n not in self.makers]
        unknown += [n for n, node in layers if not self.origins(node)]
        if unknown:
            raise ModelError(
                f"the plan is for another model: this one has no tensor '{unknown[0]}'",
                hint="quantize the graph that load returns for this file",
            )

    def exported(self) -> Exported:
        placeholders = self.plan.options.convert_placeholders
        for a in self.plan.activations:
            # A value without a name is inside of a node, which reads the pair before it.
            if a.name in self.known:
                self.activation(a, placeholders and a.value.producer is None)
        for s in self.plan.constants:
            self.constant(s)
        if placeholders:
            self.outputs()
        self.write()
        if self.plan.options.compute != "f32":
            self.notes.append("products are in f32: ONNX has no form for bf16 that runtimes share")
        return Exported(self.model, self.stored, tuple(self.notes))

    def origins(self, node: Node) -> list[onnx.NodeProto]:
        """Return the nodes of the model that a node of the graph is, or is a part of."""
        nodes: dict[str, onnx.NodeProto] = {}
        waiting: list[Node] = [node]
        while waiting:
            for v in waiting.pop().results:
                name = self.called[v]
                if name in self.makers:
                    nodes[name] = self.makers[name]
                else:
                    waiting += v.users
        return list(nodes.values())

    def activation(self, a: Activation, quantized: bool) -> None:
        """Put a pair behind a tensor; one that is given quantized is only read back."""
        p, name = a.parameters, a.name
        scale = self.initial(f"{name}_scale", np.float32(p.scale))
        zero = self.initial(f"{name}_zero_point", np.asarray(p.zero_point, DTYPES[p.dtype]))
        place = self.behind.setdefault(name, []) if name in self.makers else self.before
        stored, back = (self.new(f"{name}_{what}") for what in ("quantized", "dequantized"))
        if quantized:
            (info,) = (i for i in self.graph.input if i.name == name)
            info.type.tensor_type.elem_type = CODES[p.dtype]
            stored = name
            self.replace_all(name, back)
        else:
            place.append(_node("QuantizeLinear", [name, scale, zero], stored))
            for reader in a.readers:
                self.redirect(reader, name, back)
        place.append(_node("DequantizeLinear", [stored, scale, zero], back))
        self.stored += 1

    def constant(self, s: Stored) -> None:
        """Add a low-bit weight next to the weight that it replaces."""
        original = s.name if s.name in self.known else self.like(s)
        if not original:
            self.notes.append(f"a constant of {self.label(s.source.place)} stays in f32: it is "
                              "no tensor of the model, but made in the import")  # fmt: skip
            return
        name = self.new(f"{original}_quantized")
        self.graph.initializer.append(_tensor(name, s.data, s.dtype))
        flat = s.scales if s.block else s.scales.reshape(-1)
        single = flat.size == 1 and not s.block
        scale = self.initial(f"{original}_scale", np.float32(flat.flat[0]) if single else flat)
        operands = [name, scale]
        if s.dtype != "i32":
            zero = self.new(f"{original}_zero_point")
            shape = () if single else flat.shape
            self.graph.initializer.append(_tensor(zero, np.zeros(shape, s.data.dtype), s.dtype))
            operands.append(zero)
        attributes: dict[str, Any] = {} if single else {"axis": s.source.channel}
        if s.block:
            attributes = {"axis": s.source.inner, "block_size": s.block}
        back = self.new(f"{original}_dequantized")
        self.before.append(_node("DequantizeLinear", operands, back, **attributes))
        self.redirect(s.source.place, original, back)
        self.stored += 1

    def like(self, s: Stored) -> str:
        """Return the constant among the operands of a layer that has the elements of `s`."""
        wanted = s.source.base.array
        for node in self.origins(s.source.place[0]):
            for name in node.input:
                maker = self.makers.get(name)
                if maker is None or maker.op_type != "Constant" or wanted is None:
                    continue
                for a in maker.attribute:
                    if a.name == "value" and np.array_equal(numpy_helper.to_array(a.t), wanted):
                        return str(name)
        return ""

    def redirect(self, place: Place, name: str, new: str) -> None:
        """Let the node of an operand read `new` where it reads `name`, or what reads it for it."""
        for node in self.origins(place[0]):
            readers = [node] if name in node.input else [
                maker for o in node.input if (maker := self.makers.get(o)) and name in maker.input
            ]  # fmt: skip
            for reader in readers:
                reader.input[:] = [new if o == name else o for o in reader.input]
            if not readers and new not in node.input:
                self.notes.append(f"{self.label(place)} reads '{name}' in f32: the model has "
                                  "operators between them that the graph has not")  # fmt: skip

    def replace_all(self, name: str, new: str) -> None:
        for node in self.graph.node:
            node.input[:] = [new if o == name else o for o in node.input]

    def outputs(self) -> None:
        """Return outputs as they are stored, under their names."""
        activations = {a.value: a for a in self.plan.activations}
        for info in self.graph.output:
            v = self.plan.graph.outputs.get(info.name)
            a = activations.get(v) if isinstance(v, Value) else None
            maker = self.makers.get(info.name)
            if a is None or maker is None or a.name != info.name:
                continue
            inner = self.new(f"{info.name}_float")
            maker.output[:] = [inner if o == info.name else o for o in maker.output]
            self.replace_all(info.name, inner)
            pair = self.behind[info.name]
            self.behind[inner] = [n for n in pair if n.op_type == "QuantizeLinear"]
            (node,) = self.behind[inner]
            self.replace_in(node, info.name, inner)
            node.output[0] = info.name
            if a.readers:
                back = next(n for n in pair if n.op_type == "DequantizeLinear")
                back.input[0] = info.name
                self.behind[inner].append(back)
            info.type.tensor_type.elem_type = CODES[a.parameters.dtype]

    def replace_in(self, node: onnx.NodeProto, name: str, new: str) -> None:
        node.input[:] = [new if o == name else o for o in node.input]

    def write(self) -> None:
        """Sort all nodes and leave out values that no node reads any more."""
        nodes = list(self.before)
        for node in self.graph.node:
            nodes.append(node)
            for o in node.output:
                nodes += self.behind.get(o, [])
        wanted = {o.name for o in self.graph.output}
        kept: list[onnx.NodeProto] = []
        for node in reversed(nodes):
            if wanted.intersection(node.output):
                wanted.update(reads(node))
                kept.append(node)
        final = [_copied(n) for n in reversed(kept)]
        del self.graph.node[:]
        self.graph.node.extend(final)
        initial = [t for t in self.graph.initializer if t.name in wanted]
        copies = [_copied(t) for t in initial]
        del self.graph.initializer[:]
        self.graph.initializer.extend(copies)

    def initial(self, name: str, array: Any) -> str:
        """Add an initializer and return its name."""
        chosen = self.new(name)
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(array), chosen))
        return chosen

    def new(self, name: str) -> str:
        """Return `name`, or a variant that no tensor has."""
        chosen, number = name, 1
        while chosen in self.known:
            number += 1
            chosen = f"{name}_{number}"
        self.known.add(chosen)
        return chosen

    def label(self, place: Place) -> str:
        return f"'{self.called[place[0].results[0]]}'"


def _node(op: str, inputs: Sequence[str], output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, [output], name=output, **attributes)


def _copied(message: Any) -> Any:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def _tensor(name: str, array: Array, dtype: str) -> onnx.TensorProto:
    """Return integers as a tensor; 4-bit integers are packed in pairs, the first one low."""
    if dtype != "i4":
        return numpy_helper.from_array(np.ascontiguousarray(array), name)
    low = array.reshape(-1).astype(np.int8).view(np.uint8) & 15
    low = np.append(low, np.zeros(len(low) % 2, np.uint8))
    packed = (low[::2] | (low[1::2] << 4)).astype(np.uint8)
    tensor = TensorProto(name=name, data_type=TensorProto.INT4, raw_data=packed.tobytes())
    tensor.dims.extend(array.shape)
    return tensor
