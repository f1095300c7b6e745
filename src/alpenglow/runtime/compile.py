"""`compile`: from a model to an Executable in one call.

What was made of a model file is kept, whole, in the store of compiled kernels, under the text of
the model's graph and everything else that the result depends on.  A second process that compiles
the same model maps the weights of the first and skips every pass.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import onnx

from alpenglow.backends.api import Artifact
from alpenglow.base import extensions, knobs
from alpenglow.base.errors import ModelError
from alpenglow.base.store import Store
from alpenglow.compiler import Options, compile_graph, compile_open
from alpenglow.frontends import load
from alpenglow.ir.dims import Dim, Guards, Sym, bind, holds
from alpenglow.ir.graph import Graph, is_closed
from alpenglow.ir.target import Target
from alpenglow.ir.text import print_graph
from alpenglow.runtime import archive
from alpenglow.runtime.executor import Executable, Make, check_threads
from alpenglow.runtime.staged import StagedExecutable

Model = Graph | str | Path | bytes | onnx.ModelProto

KEPT_NBYTES = 256 << 20
"""Larger artifacts are not kept: they would push everything else out of the store."""


def compile(
    model: Model,
    target: str | Target = "cpu",
    threads: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    options: Options | None = None,
) -> Executable:
    """Compile a model for `target` and return an Executable.

    `model` is a Graph, or what `load` takes.  `shapes` binds the open extents of inputs, by input
    name; where some are left open, code is made when the Executable first meets a kind of extents,
    and serves all that behave alike.  `threads` is how many threads a call may use (None: the CPUs
    this process may run on).
    """
    check_threads(threads)
    if isinstance(model, Graph):
        graph = bound(model, shapes or {}) if shapes else model
    else:
        graph = load(model, shapes)
    chosen = target if isinstance(target, Target) else Target.parse(target)
    chosen_options = options or Options()
    store = Store(knobs.cache_folder())

    def compile_any(g: Graph, guards: Guards = ()) -> Executable:
        if _is_open(g):
            make = _maker(g, chosen, chosen_options, store, guards)
            return Executable(None, threads, graph=g, target=chosen, make=make)
        return Executable(compile_graph(g, chosen, chosen_options, store), threads)

    if graph.rest is not None:
        return StagedExecutable(graph.rest, compile_any, threads)
    if _is_open(graph):
        return compile_any(graph)
    if isinstance(model, str | Path) and store.folder is not None and _is_plain(chosen_options):
        return Executable(_kept(graph, chosen, chosen_options, store), threads)
    owned = not isinstance(model, Graph)
    return Executable(compile_graph(graph, chosen, chosen_options, store, owned=owned), threads)


def _is_open(g: Graph) -> bool:
    """Whether an input, a result or an operator of a graph has an open extent."""
    return any(v.type.symbols() for v in g.inputs.values()) or not all(map(is_closed, g.nodes))


def _maker(g: Graph, target: Target, options: Options, store: Store, guards: Guards) -> Make:
    """Return what compiles `g` for the extents that a call brings; for it `guards` hold."""
    generic = True

    def make(values: Mapping[str, int]) -> Artifact:
        nonlocal generic
        # An extent that happens to be another's, or a round number, should not count as such; but
        # some must be the same.
        likes = [x for x in (_unlike(values), _unlike(values, True)) if holds(guards, x)]
        if generic and likes:
            made = compile_open(g, target, options, store, values, likes[0])
            if made is not None:
                return made
            generic = False
        made = compile_open(g, target, options, store, values)
        assert made is not None, "code serves the extents that it was made for"
        return made

    return make


def _unlike(values: Mapping[str, int], alike: bool = False) -> dict[str, int]:
    """Return extents of about the same size that have nothing to do with each other or others.

    If `alike`, those that are equal stay so.
    """
    found = dict(values)
    last = 16
    before = 0
    # In order of size: what was longer stays longer.
    for name, value in sorted(values.items(), key=lambda item: item[1]):
        if alike and value == before and value > 1:
            found[name] = last
        elif value > 1:
            before = value
            last = max(value, last) + 1
            while any(last % d == 0 for d in range(2, math.isqrt(last) + 1)):
                last += 1
            found[name] = last
    return found


def _is_plain(options: Options) -> bool:
    """Whether what is compiled depends on this package's sources and the model alone."""
    check = knobs.check() if options.check is None else options.check
    if check or options.passes or options.after is not None:
        return False
    groups = ("extensions", "frontends", "targets", "backends")
    brought = [e for g in groups for e in extensions.entries(f"alpenglow.{g}").values()]
    return all(e.value.startswith("alpenglow.") for e in brought)


def _kept(g: Graph, target: Target, options: Options, store: Store) -> Artifact:
    """Return what the store has of this compilation; else compile `g`, using it up, and keep it."""
    key = _key(g, target, options)
    found = store.open_map(key)
    if found is not None:
        return archive.unpack(found, to_run=False)
    artifact = compile_graph(g, target, options, store, owned=True)
    if archive.nbytes(artifact) <= KEPT_NBYTES:
        store.put(key, list(archive.parts(artifact)))
    return artifact


def _key(g: Graph, target: Target, options: Options) -> str:
    text = hashlib.sha256(print_graph(g).encode()).hexdigest()
    versions = f"llvm{llvm.llvm_version_info} numpy{np.__version__}"
    return f"artifact {text} {target!r} {options.numerics} {versions} {_sources()}"


@functools.cache
def _sources() -> str:
    """Return a hash of all sources of this package."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


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
