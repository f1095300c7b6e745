"""`compile`: from a model to an Executable in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from alpenglow.base import knobs
from alpenglow.base.errors import ModelError, OptionError
from alpenglow.base.store import Store
from alpenglow.compiler import Options, compile_graph
from alpenglow.frontends import load
from alpenglow.ir.dims import Dim, Sym, bind
from alpenglow.ir.graph import Graph
from alpenglow.ir.target import Target
from alpenglow.runtime.executor import Executable

Model = Graph | str | Path | bytes | onnx.ModelProto


def compile(
    model: Model,
    target: str | Target = "cpu",
    threads: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    options: Options | None = None,
) -> Executable:
    """Compile a model for `target` and return an Executable.

    `model` is a Graph, or what `load` takes.  `shapes` binds the open extents of inputs, by input
    name.  `threads` is how many threads a call may use (None: the CPUs this process may run on).
    """
    if threads is not None and threads < 1:
        raise OptionError(f"threads is {threads}, expected at least 1")
    if isinstance(model, Graph):
        graph = bound(model, shapes or {}) if shapes else model
    else:
        graph = load(model, shapes)
    chosen = target if isinstance(target, Target) else Target.parse(target)
    store = Store(knobs.cache_folder())
    return Executable(compile_graph(graph, chosen, options or Options(), store), threads)


def bound(g: Graph, shapes: Mapping[str, Sequence[int]]) -> Graph:
    """Return `g` with open extents taken from `shapes`; raise ModelError where they do not fit."""
    extents: dict[str, int] = {}
    for name, shape in shapes.items():
        if name not in g.inputs:
            raise ModelError(f"shapes names '{name}', but the inputs are {', '.join(g.inputs)}")
        t = g.inputs[name].type
        if len(shape) != t.rank:
            raise ModelError(f"input '{name}' is {t}; shape {tuple(shape)} has another rank")
        for want, got in zip(t.shape, shape, strict=True):
            extents |= _named(want, got)
    new = g.bind(extents)
    for name, shape in shapes.items():
        if new.inputs[name].type.shape != tuple(shape):
            raise ModelError(
                f"input '{name}' is {g.inputs[name].type}; {tuple(shape)} does not fit"
            )
    return new


def _named(want: Dim, got: int) -> dict[str, int]:
    """Return what an extent that is a plain name must be."""
    if isinstance(want, Sym) and len(want.terms) == 1:
        name = str(want)
        if name.isidentifier() and bind(want, {name: got}) == got:
            return {name: int(got)}
    return {}
