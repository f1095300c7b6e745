"""Probes as files of TFLite, written without LiteRT, and the graphs that are made of them.

A golden names a probe by its family and number, the rounding, and the shapes of its results:

    terms 12 xnnpack ADD fused_activation_function=1 -> i8[2,3]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from tests.frontends.tflite.flat import CODES, NUMBERS, file_of
from tests.frontends.tflite.litert import (
    probes,
    quantised_probes,
    quantised_probes_elementwise,
    quantised_probes_structure,
)
from tests.frontends.tflite.litert.probe import Probe, content_of

from alpenglow.frontends.tflite.converters import find
from alpenglow.frontends.tflite.file.model import Grid
from alpenglow.frontends.tflite.file.schema import OPTION_2_NUMBERS, OPTION_NUMBERS
from alpenglow.frontends.tflite.loading import load
from alpenglow.ir.graph import Graph
from alpenglow.ir.types import NAMES

Family = Callable[[], Iterator[Probe]]

MODULES = {"": probes, "quantised_": quantised_probes, "elementwise_": quantised_probes_elementwise,
           "structure_": quantised_probes_structure}  # fmt: skip
FAMILIES: Mapping[str, Family] = {
    f"{before}{family.__name__}": family
    for before, module in MODULES.items()
    for family in (*module.FAMILIES, *getattr(module, "STATEFUL", ()))
}
VERSIONS = {"BROADCAST_TO": 2}
"""Versions of operators, where LiteRT has no first one."""


@cache
def probes_of(family: str) -> list[Probe]:
    """Return the probes of a family, the same whatever was drawn before."""
    for module in MODULES.values():
        numbers = getattr(module, "RANDOM", None)
        if numbers is not None:
            numbers.bit_generator.state = np.random.default_rng(7).bit_generator.state
    return list(FAMILIES[family]())


# ── the line of a golden ──


def line_of(family: str, number: int, rounding: str, shapes: Sequence[Sequence[int]]) -> str:
    """Return the line that names a probe, whose results have these shapes."""
    probe = probes_of(family)[number]
    options = " ".join(f"{k}={str(v).replace(' ', '')}" for k, v in probe.options.items())
    made = " ".join(f"[{','.join(map(str, shape))}]" for shape in shapes)
    return f"{family} {number} {rounding} {' '.join([probe.kind, options]).strip()} -> {made}"


def graph_of_line(line: str) -> Graph:
    """Return the graph of the probe that a line names."""
    named, _, made = line.partition(" -> ")
    family, number, rounding, *_ = named.split()
    shapes = [tuple(int(d) for d in shape.strip("[]").split(",") if d) for shape in made.split()]
    found = line_of(family, int(number), rounding, shapes)
    assert line == found, f"the probe is {found}, expected {line}"
    return graph_of_probe(probes_of(family)[int(number)], rounding, shapes)


# ── models ──


def graph_of_probe(probe: Probe, rounding: str, shapes: Sequence[Sequence[int]]) -> Graph:
    """Return the graph of a probe, whose results have these shapes."""
    graph = load(file_of(model_of(probe, shapes)), rounding=rounding)
    assert isinstance(graph, Graph), f"{probe}: it depends on data"
    return graph


def model_of(probe: Probe, shapes: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Return a probe as `flat` writes it."""
    tensors: list[dict[str, Any]] = []
    buffers: list[dict[str, Any]] = [{}]
    numbers, inputs = [], []
    for i, v in enumerate(probe.operands):
        numbers.append(-1 if v is None else len(tensors))
        if v is None:
            continue
        t = _tensor(f"x{i}", NAMES[v.dtype], v.shape, probe.grid(i))
        if i in probe.fixed:
            t["buffer"] = len(buffers)
            buffers.append({"data": np.frombuffer(content_of(v), np.uint8)})
        elif i in probe.kept:
            t["is_variable"] = True
        else:
            inputs.append(len(tensors))
        tensors.append(t)
    first = next(v for v in probe.operands if v is not None)
    outputs = list(range(len(tensors), len(tensors) + len(probe.results)))
    for k, (dtype, shape) in enumerate(zip(probe.results, shapes, strict=True)):
        grid = probe.grid(len(probe.operands) + k)
        tensors.append(_tensor(f"y{k}", dtype or NAMES[first.dtype], shape, grid))
    operator = {"inputs": numbers, "outputs": outputs, **_options(probe)}
    if probe.between:
        operator["intermediates"] = [len(tensors) + k for k in range(len(probe.between))]
        tensors += [_tensor(f"z{k}", dtype, (), g) for k, (dtype, g) in enumerate(probe.between)]
    code = CODES[probe.kind]
    return {
        "version": 3,
        "operator_codes": [{"deprecated_builtin_code": min(code, 127), "builtin_code": code,
                            "version": VERSIONS.get(probe.kind, 1)}],
        "subgraphs": [{"tensors": tensors, "inputs": inputs, "outputs": outputs,
                       "operators": [operator], "name": "main"}],
        "buffers": buffers,
    }  # fmt: skip


def _tensor(name: str, dtype: str, shape: Sequence[int], grid: Grid | None) -> dict[str, Any]:
    t = {"name": name, "type": NUMBERS[dtype], "shape": list(shape), "has_rank": True}
    if grid is None:
        return t
    return {**t, "quantization": {
        "scale": list(grid.scales), "zero_point": list(grid.zeros),
        "quantized_dimension": grid.axis,
    }}  # fmt: skip


def _options(probe: Probe) -> dict[str, Any]:
    """Return the fields of an operator that hold its options."""
    entry = find(probe.kind, False)
    layout = probe.layout or (entry.options if entry is not None else "")
    if layout not in OPTION_NUMBERS and layout not in OPTION_2_NUMBERS:
        return {}  # which the front end does not read
    second = layout in OPTION_2_NUMBERS
    field = "builtin_options_2" if second else "builtin_options"
    number = OPTION_2_NUMBERS[layout] if second else OPTION_NUMBERS[layout]
    return {f"{field}_type": number, field: (layout, dict(probe.options))}
