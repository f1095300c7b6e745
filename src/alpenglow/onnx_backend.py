"""Alpenglow as an ONNX backend: `prepare`, `run_model`, `run_node` and `supports_device`.

`onnx.backend.base` describes the interface; ONNX's own test suites and other tools drive any
backend through it.

    from alpenglow import onnx_backend
    outputs = onnx_backend.prepare(model).run([x])

The device is CPU, our target `cpu`, or INTERPRETER, NumPy instruction by instruction; the keyword
`target` names any other.  Models are compiled by `alpenglow.compile`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.backend.base import Backend, BackendRep

from alpenglow.base.errors import FeedError, ModelError, OptionError
from alpenglow.driver.compile import compile
from alpenglow.ir.target import Target
from alpenglow.runtime.executables.executor import Executable

TARGETS = {"CPU": "cpu", "INTERPRETER": "interpreter"}
"""The target of each device."""


class Prepared(BackendRep):
    """A model, compiled."""

    def __init__(self, model: onnx.ModelProto, target: str | Target) -> None:
        self.model = model
        initialized = {t.name for t in model.graph.initializer}
        initialized |= {t.values.name for t in model.graph.sparse_initializer}
        self.inputs = [i.name for i in model.graph.input if i.name not in initialized]
        self.executable: Executable = compile(model, target)

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """Return the outputs, in the order of the model's, for inputs in the order of its own.

        A tensor is an array (strings: one of objects), a sequence a list, an absent optional None.
        """
        values = inputs if isinstance(inputs, list | tuple) else [inputs]
        if len(values) != len(self.inputs):
            names = ", ".join(self.inputs) or "none"
            raise FeedError(f"{len(values)} inputs given, expected {len(self.inputs)}: {names}")
        feeds = dict(zip(self.inputs, values, strict=True))
        outputs = self.executable.run(feeds)
        return tuple(outputs[o.name] for o in self.model.graph.output)


class AlpenglowBackend(Backend):
    """The interface of `onnx.backend.base.Backend`."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
        """Return the compiled model; `target=` replaces the target of the device."""
        target = kwargs.get("target")
        return Prepared(model, target_of(device) if target is None else target)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Return the outputs of one node.  An input that it omits is None in `inputs` or left out.

        `opset_version` is the opset of the node's domain, by default the newest that onnx knows.
        """
        opset = kwargs.pop("opset_version", None)
        feeds = named(node, inputs if isinstance(inputs, list | tuple) else [inputs])
        model = model_of(node, feeds, outputs_info, opset)
        return cls.prepare(model, device, **kwargs).run(list(feeds.values()))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether `device` is one that models run on."""
        return device.partition(":")[0] in TARGETS


def target_of(device: str) -> str:
    """Return the name of a device's target; raise OptionError if there is no such device."""
    name = device.partition(":")[0]
    if name not in TARGETS:
        raise OptionError(f"device is '{device}', expected one of: {', '.join(TARGETS)}")
    return TARGETS[name]


def named(node: onnx.NodeProto, values: Sequence[Any]) -> dict[str, Any]:
    """Return the inputs of a node by name."""
    names = list(node.input)
    if len(values) != len(names):
        names = [name for name in names if name]
    if len(values) != len(names):
        given = f"{len(values)} inputs given"
        raise FeedError(f"{node.op_type}: {given}, expected {len(names)}: {', '.join(names)}")
    return {name: value for name, value in zip(names, values, strict=True) if name}


def model_of(
    node: onnx.NodeProto,
    feeds: Mapping[str, Any],
    outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None,
    opset: int | None,
) -> onnx.ModelProto:
    """Return a model of one node, whose inputs have the types of the values in `feeds`."""
    inputs = [helper.make_value_info(name, type_of(value)) for name, value in feeds.items()]
    names = [name for name in node.output if name]
    if outputs_info is None:
        outputs = [helper.make_empty_tensor_value_info(name) for name in names]
    else:
        outputs = [
            helper.make_tensor_value_info(name, element_type(np.dtype(dtype)), shape)
            for name, (dtype, shape) in zip(names, outputs_info, strict=True)
        ]
    graph = helper.make_graph([node], node.op_type or "node", inputs, outputs)
    version = opset if opset is not None else newest(node)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, version)])


def newest(node: onnx.NodeProto) -> int:
    """Return the newest opset of a node's domain that onnx knows; 1 if it does not know it."""
    if node.domain in ("", "ai.onnx"):
        return onnx.defs.onnx_opset_version()
    schemas = onnx.defs.get_all_schemas_with_history()
    return max((s.since_version for s in schemas if s.domain == node.domain), default=1)


def type_of(value: Any) -> onnx.TypeProto:
    """Return the ONNX type of an array, or of a list of values of one type."""
    if value is None:
        raise ModelError("a node's input is None, expected a value", hint="leave the input out")
    if isinstance(value, list | tuple):
        if not value:
            raise ModelError("a node's input is an empty sequence, expected at least one element")
        return helper.make_sequence_type_proto(type_of(value[0]))
    array = np.asarray(value)
    return helper.make_tensor_type_proto(element_type(array.dtype), array.shape)


def element_type(dtype: np.dtype[Any]) -> int:
    """Return ONNX's number of an element type; objects are strings."""
    if dtype.kind in "OUS":
        return onnx.TensorProto.STRING
    return int(helper.np_dtype_to_tensor_dtype(dtype))


is_compatible = AlpenglowBackend.is_compatible
prepare = AlpenglowBackend.prepare
run_model = AlpenglowBackend.run_model
run_node = AlpenglowBackend.run_node
supports_device = AlpenglowBackend.supports_device
