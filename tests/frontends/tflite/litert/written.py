"""Models of one operator, written with LiteRT's schema, and what LiteRT makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ai_edge_litert.schema_py_generated as schema
import flatbuffers
import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from tests.frontends.tflite.litert.probe import Probe, content_of

from alpenglow.frontends.tflite.converters import find
from alpenglow.frontends.tflite.file.model import Grid
from alpenglow.frontends.tflite.file.schema import OPTION_2_NUMBERS, TYPES
from alpenglow.ir.types import NAMES, Array

NUMBERS = {name: number for number, name in TYPES.items()}

VERSIONS = {"BROADCAST_TO": 2}
"""Versions of operators, where LiteRT has no first one."""


def tensor(
    name: str, dtype: str, shape: Sequence[int], buffer: int = 0, grid: Grid | None = None
) -> Any:
    """Return a tensor as the schema has it."""
    t = schema.TensorT()
    if grid is not None:
        t.quantization = q = schema.QuantizationParametersT()
        q.scale, q.zeroPoint = list(map(float, grid.scales)), list(grid.zeros)
        q.quantizedDimension = grid.axis
    t.name, t.type, t.buffer = name, NUMBERS[dtype], buffer
    t.shape, t.hasRank = list(shape), True
    return t


def buffer(content: bytes = b"") -> Any:
    """Return a buffer as the schema has it."""
    b = schema.BufferT()
    b.data = np.frombuffer(content, np.uint8) if content else None
    return b


def options_of(layout: str, values: Mapping[str, Any]) -> Any:
    """Return options as the schema has them, their names in snake case."""
    options = getattr(schema, f"{layout}T")()
    for name, value in values.items():
        first, *others = name.split("_")
        camel = first + "".join(w.capitalize() for w in others)
        assert hasattr(options, camel), f"{layout} has no {camel}"
        setattr(options, camel, list(value) if isinstance(value, tuple) else value)
    return options


def operator(code: int, kind: str, inputs: Sequence[int], outputs: Sequence[int],
             options: Mapping[str, Any], layout: str = "") -> Any:  # fmt: skip
    """Return an operator as the schema has it."""
    o = schema.OperatorT()
    o.opcodeIndex, o.inputs, o.outputs = code, list(inputs), list(outputs)
    entry = find(kind, False)
    layout = layout or (entry.options if entry is not None else "")
    if layout in OPTION_2_NUMBERS:
        o.builtinOptions2Type = getattr(schema.BuiltinOptions2, layout)
        o.builtinOptions2 = options_of(layout, options)
    elif layout:
        o.builtinOptionsType = getattr(schema.BuiltinOptions, layout)
        o.builtinOptions = options_of(layout, options)
    return o


def code(kind: str) -> Any:
    """Return the code of a builtin operator."""
    c = schema.OperatorCodeT()
    c.builtinCode = getattr(schema.BuiltinOperator, kind)
    c.deprecatedBuiltinCode, c.version = min(c.builtinCode, 127), VERSIONS.get(kind, 1)
    return c


def packed(model: Any) -> bytes:
    """Return a model as a file has it."""
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def model_of(subgraphs: Sequence[Any], codes: Sequence[Any], buffers: Sequence[Any]) -> Any:
    """Return a model as the schema has it."""
    m = schema.ModelT()
    m.version, m.subgraphs, m.operatorCodes, m.buffers = 3, list(subgraphs), list(codes), buffers
    return m


def subgraph(tensors: Sequence[Any], inputs: Sequence[int], outputs: Sequence[int],
             operators: Sequence[Any]) -> Any:  # fmt: skip
    """Return a subgraph as the schema has it."""
    g = schema.SubGraphT()
    g.tensors, g.inputs, g.outputs = list(tensors), list(inputs), list(outputs)
    g.operators, g.name = list(operators), "main"
    return g


def written(probe: Probe, shapes: Sequence[Sequence[int]] = (), open_: bool = False) -> bytes:
    """Return the model of a probe; the shapes of results, if known, and open extents, if wanted."""
    tensors, buffers, numbers, inputs = [], [buffer()], [], []
    for i, v in enumerate(probe.operands):
        numbers.append(-1 if v is None else len(tensors))
        if v is None:
            continue
        t = tensor(f"x{i}", NAMES[v.dtype], v.shape, grid=probe.grid(i))
        if i in probe.fixed:
            t.buffer = len(buffers)
            buffers.append(buffer(content_of(v)))
        elif i in probe.kept:
            t.isVariable = True
        else:
            inputs.append(len(tensors))
            if open_ and v.ndim:
                t.shapeSignature = [-1] * v.ndim
        tensors.append(t)
    outputs = list(range(len(tensors), len(tensors) + len(probe.results)))
    for k, dtype in enumerate(probe.results):
        first = next(v for v in probe.operands if v is not None)
        grid = probe.grid(len(probe.operands) + k)
        t = tensor(f"y{k}", dtype or NAMES[first.dtype], shapes[k] if shapes else (), grid=grid)
        t.hasRank = bool(shapes)
        if open_ and shapes and len(shapes[k]):
            t.shapeSignature = [-1] * len(shapes[k])
        tensors.append(t)
    o = operator(0, probe.kind, numbers, outputs, probe.options, probe.layout)
    if probe.between:
        o.intermediates = [len(tensors) + k for k in range(len(probe.between))]
        tensors += [
            tensor(f"z{k}", dtype, (), grid=g) for k, (dtype, g) in enumerate(probe.between)
        ]
    return packed(model_of([subgraph(tensors, inputs, outputs, [o])], [code(probe.kind)], buffers))


def run(model: bytes, inputs: Sequence[Array], reference: bool = True) -> list[Array]:
    """Return what LiteRT makes of inputs, by its reference kernels or as users run it."""
    return run_steps(model, [inputs], reference)[0]


def run_steps(
    model: bytes, steps: Sequence[Sequence[Array]], reference: bool = True
) -> list[list[Array]]:
    """Return what LiteRT makes of the inputs of each step, keeping its state."""
    kind = OpResolverType.BUILTIN_REF if reference else OpResolverType.AUTO
    it = Interpreter(model_content=model, num_threads=1, experimental_op_resolver_type=kind)
    details = it.get_input_details()
    for d, x in zip(details, steps[0], strict=True):
        if list(d["shape"]) != list(x.shape):
            it.resize_tensor_input(d["index"], x.shape)
    it.allocate_tensors()
    results = []
    for inputs in steps:
        for d, x in zip(details, inputs, strict=True):
            it.set_tensor(d["index"], x)
        it.invoke()
        results.append([it.get_tensor(d["index"]) for d in it.get_output_details()])
    return results
