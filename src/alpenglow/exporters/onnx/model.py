"""`export_onnx`: a graph as a model of ONNX.

Each operator is written by its entry of the table (`table.py`, filled by the ``write_*`` modules),
or by its formula, or as the operators that it expands to.  One error lists all failures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import onnx
from onnx import helper

from alpenglow.base.errors import OptionError, UnsupportedError
from alpenglow.base.words import shown
from alpenglow.exporters.onnx import families
from alpenglow.exporters.onnx.elements import allowed
from alpenglow.exporters.onnx.extents import read_symbols
from alpenglow.exporters.onnx.files import Constants, put_in, save
from alpenglow.exporters.onnx.guards import check_of, checked
from alpenglow.exporters.onnx.nodes import failure, write_nodes
from alpenglow.exporters.onnx.prepare import prepared
from alpenglow.exporters.onnx.proto import info_of, node_of, read_lines
from alpenglow.exporters.onnx.writer import Failure, Refused, Tensor, Writer
from alpenglow.ir.graph import Graph
from alpenglow.ir.staged import StagedModel, refuse_staged

OLDEST, USUAL = 18, 21
"""The first opset that models can be written in, and the one that they are in if it has all."""

assert families, "the modules that fill the table are imported"


def export_onnx(
    graph: Graph, path: str | Path | None = None, *, opset: int | None = None
) -> onnx.ModelProto:
    """Export a graph as an ONNX model of standard operators.

    Inputs and outputs keep the names and types of the graph, and dynamic dimensions their names.  A
    variable becomes an input with its initial value as the default, and an output `NAME_next` with
    its new value, which the caller passes to the next call.  Hidden random inputs become random
    operators.

    Args:
        graph: the graph.
        path: the file to write; None: write none.  Constants above 2 GiB are written to a second
            file, `PATH.data`.
        opset: the version of the operators; None: the first version from 21 on that has all
            operators and element types of the graph.

    Returns:
        The model; with constants above 2 GiB it refers to the second file.

    Raises:
        UnsupportedError: if the graph depends on data or has operators that ONNX lacks; it lists
            these operators.

    Example:
        >>> model = ag.export_onnx(ag.load("model.onnx"), "copy.onnx")
        >>> [node.op_type for node in model.graph.node]
        ['MatMul', 'Relu', 'MatMul']
    """
    check_graph(graph)
    w, g = _written(graph, opset)
    model, constants = _model(w, g)
    if path is None:
        put_in(model, constants)
    else:
        save(model, constants, Path(path))
    return model


def check_graph(graph: object) -> None:
    """Raise an error unless `graph` is one that can be exported."""
    if isinstance(graph, StagedModel):
        refuse_staged("exported")
    if not isinstance(graph, Graph):
        raise OptionError(f"graph is a {type(graph).__name__}, expected a Graph")


def _written(graph: Graph, opset: int | None) -> tuple[Writer, Graph]:
    """Return the writer of a graph, and the prepared graph that it wrote."""
    newest = onnx.defs.onnx_opset_version()
    if opset is not None and not (isinstance(opset, int) and OLDEST <= opset <= newest):
        raise OptionError(f"opset is {opset!r}, expected a number from {OLDEST} to {newest}")
    failures: list[Failure] = []
    for version_ in range(USUAL, newest + 1) if opset is None else (opset,):
        w = Writer(version_)
        g, unpaired = prepared(graph, version_)
        failures = [failure(n, COMPLEX_RULE) for n in unpaired] or failures_of(w, g)
        if not failures:
            return w, g
        if not all(f.newer for f in failures):
            break
    raise UnsupportedError(told(failures), hint=_hint(failures, opset, newest))


def _hint(failures: Sequence[Failure], opset: int | None, newest: int) -> str:
    if opset is not None and opset < newest and all(f.newer for f in failures):
        return "a newer opset, or none: the first that has all is taken then"
    return ""


MOST_NAMES = 8
"""How many nodes of an operator are named."""


def told(failures: Sequence[Failure]) -> str:
    """Return the message: operators, why they cannot be written, and their nodes."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for f in failures:
        reasons.setdefault((f.operator, f.why), []).append(f.name)
    parts = []
    for (operator, why), names in reasons.items():
        quoted = [n for n in names if n]
        more = f" and {len(quoted) - MOST_NAMES} more" if len(quoted) > MOST_NAMES else ""
        named = ", ".join(quoted[:MOST_NAMES]) + more
        times = f", {len(names)} times" if len(names) > 1 else ""
        parts.append(f"{operator}{times}{f' ({named})' if named else ''}: {why}")
    return "cannot be written as ONNX: " + "; ".join(parts)


COMPLEX_RULE = "ONNX computes with no complex numbers, and of pairs of reals this cannot be said"


def failures_of(w: Writer, g: Graph) -> list[Failure]:
    """Write all nodes of a graph, and return the failures."""
    _declare(w, g)
    write_nodes(w, g)
    return w.failures or list(_finish(w, g))


def _finish(w: Writer, g: Graph) -> Iterator[Failure]:
    """Give outputs their names; yield those, and inputs, whose types the opset does not have."""
    legal = allowed(w.schema("Cast"), "T1")
    for name, v in {**g.inputs, **g.outputs}.items():
        if v.type.dtype not in legal:
            why = f"there is no {v.type.dtype} in opset {w.opset}"
            yield Failure(f"'{shown(name)}'", "input or output", why, True)
            return
    try:
        check = check_of(w, g.guards)
    except Refused as error:
        yield Failure("", "guards", str(error), error.newer)
        return
    for name, v in g.outputs.items():
        try:
            t = w.tensor(v)
            if check is not None and t.name != w.outputs[name]:
                t = checked(w, t, check)
            if t.name != w.outputs[name]:
                w.alias(t, w.outputs[name])
        except Refused as error:
            yield Failure(f"'{shown(name)}'", "output", str(error), error.newer)


def _declare(w: Writer, g: Graph) -> None:
    """Reserve the names of inputs and outputs, and say what reads the symbols."""
    inputs = {n: v for n, v in g.inputs.items() if not v.hidden}
    for name, v in inputs.items():
        w.values[v] = Tensor(w.name(name), v.type.dtype)
    for name in g.callers_outputs():
        if name in inputs and g.outputs[name] is not inputs[name]:
            raise UnsupportedError(
                f"an input and another output are called '{name}', expected different names"
            )
        w.taken.add(name)
    for name, v in g.outputs.items():
        w.outputs[name] = w.name(f"{name}_next") if name in g.initial else name
        if not g.guards and v not in inputs.values():  # else what is checked has the name
            w.wanted.setdefault(v, w.outputs[name])
    read_symbols(w, inputs)


def _model(w: Writer, g: Graph) -> tuple[onnx.ModelProto, Constants]:
    """Return the model of what was written, and the constants that it lacks."""
    lines = read_lines(w.lines, w.outputs.values())
    model = onnx.ModelProto(opset_import=[helper.make_opsetid("", w.opset)])
    model.ir_version = helper.find_min_ir_version_for(model.opset_import)
    model.graph.name = g.name
    model.graph.node.extend(node_of(w, x) for x in lines)
    inputs = {n: v for n, v in g.inputs.items() if not v.hidden}
    model.graph.input.extend(info_of(w.values[v].name, v.type) for v in inputs.values())
    model.graph.output.extend(info_of(w.outputs[n], v.type) for n, v in g.outputs.items())
    _describe(model, g)
    read = {name for x in lines for name in (*x.inputs, *x.captured)}
    constants = {c.name: c.array for c in w.constants.values() if c.name in read}
    for name, v in g.initial.items():
        assert v.array is not None, "the initial value of a variable is a constant"
        constants[w.values[g.inputs[name]].name] = v.array
    return model, constants


def _describe(model: onnx.ModelProto, g: Graph) -> None:
    """Say who wrote the model, and what it was said to be."""
    model.producer_name, model.producer_version = "alpenglow", version("alpenglow")
    m = g.metadata
    model.domain, model.model_version, model.doc_string = m.domain, m.version, m.description
    helper.set_model_props(model, dict(m.properties))
