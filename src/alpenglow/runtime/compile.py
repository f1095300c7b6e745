"""`compile`: from a model to an Executable in one call."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from alpenglow.backends.api import Artifact
from alpenglow.base import knobs
from alpenglow.base.errors import ModelError, OptionError
from alpenglow.base.memory import uncollected
from alpenglow.base.store import Store
from alpenglow.compiler import Options, compile_graph, compile_open
from alpenglow.compiler.options import Progress
from alpenglow.frontends import load
from alpenglow.ir.dims import Dim, Guards, holds
from alpenglow.ir.graph import HIDDEN, Graph, is_closed
from alpenglow.ir.solve import sources, values_of
from alpenglow.ir.target import Target
from alpenglow.passes.precision import check_kept
from alpenglow.runtime import archive, journal
from alpenglow.runtime.cpus import check_threads
from alpenglow.runtime.executor import Executable, Make
from alpenglow.runtime.extents import Reader
from alpenglow.runtime.kept import Shelf
from alpenglow.runtime.progress import reporter
from alpenglow.runtime.staged import StagedExecutable

if TYPE_CHECKING:  # for what is given as an object of onnx brought it along
    import onnx

Model: TypeAlias = "Graph | str | Path | bytes | onnx.ModelProto"

FAR = 1 << 24
"""What is not less is taken as it is: an index from data, perhaps, whose next prime takes long."""


@uncollected()
def compile(
    model: Model,
    target: str | Target = "cpu",
    threads: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    options: Options | None = None,
    precision: Literal["f32", "bf16", "f16"] | None = None,
    keep: Sequence[str] = (),
    progress: bool | Progress = False,
) -> Executable:
    """Compile a model for `target` and return an Executable.

    `model` is a Graph, or what `load` takes.  `shapes` binds the open extents of inputs, by input
    name; where some are left open, code is made when the Executable first meets a kind of extents,
    and serves all that behave alike.  `threads` is how many threads a call may use, 1 to 1024
    (None: the CPUs that this process has time of).  `precision` and `keep` are those of `Options`,
    for short.  `progress` shows on stderr how far it is, or is called with what is being done, how
    many parts of it are done, and how many there are.  The logger `alpenglow` tells what is
    compiled when, and why.
    """
    check_threads(threads)
    chosen = target if isinstance(target, Target) else Target.parse(target)
    if options is not None and not isinstance(options, Options):
        raise OptionError(f"options is {options!r}, expected Options(…)")
    if isinstance(keep, str):
        raise OptionError(f"keep is the string '{keep}', expected a list of names")
    chosen_options = options or Options()
    if precision is not None or keep:
        chosen_options = replace(
            chosen_options,
            precision=precision or chosen_options.precision,
            keep=(*chosen_options.keep, *keep),
        )
    if progress is not False:
        chosen_options = replace(chosen_options, progress=reporter(progress))
    store = Store(knobs.cache_folder())
    _refuse_archive(model)
    shelf = Shelf.of(model, shapes or {}, chosen, chosen_options, store)
    if shelf is not None and (artifact := shelf.artifact()) is not None:
        return Executable(artifact, threads)
    if isinstance(model, Graph):
        graph = bound(model, shapes or {}) if shapes else model
    else:
        graph = load(model, shapes)

    if graph.rest is None:
        check_kept(graph, chosen_options.keep)

    def compile_any(g: Graph, guards: Guards = ()) -> Executable:
        if _is_open(g):
            make = _maker(g, chosen, chosen_options, store, guards)
            return Executable(None, threads, graph=g, target=chosen, make=make)
        run = partial(compile_graph, g, chosen, chosen_options, store)
        return Executable(journal.compiled(g.name, "as data lead to it", store, run), threads)

    if graph.rest is not None:
        return StagedExecutable(graph.rest, compile_any, threads, chosen, graph.metadata)
    if _is_open(graph):
        make = _maker(graph, chosen, chosen_options, store, graph.guards)
        types = {n: v.type for n, v in graph.inputs.items() if not n.startswith(HIDDEN)}
        whole = None
        if graph.whole is not None:
            whole = StagedExecutable(graph.whole, compile_any, threads, chosen)
        return Executable(
            None, threads, graph=graph, target=chosen, make=make,
            reader=Reader(types), otherwise=whole,
        )  # fmt: skip
    if shelf is not None:
        return Executable(shelf.make(graph), threads)
    owned = not isinstance(model, Graph)
    run = partial(compile_graph, graph, chosen, chosen_options, store, owned=owned)
    return Executable(journal.compiled(graph.name, "compile", store, run), threads)


def _refuse_archive(model: Model) -> None:
    """Raise ModelError for what has been compiled already."""
    head = model[: len(archive.MAGIC)] if isinstance(model, bytes) else b""
    if isinstance(model, str | Path):
        with suppress(OSError, ValueError):
            if Path(model).is_file():  # a pipe is read once
                with Path(model).open("rb") as file:
                    head = file.read(len(archive.MAGIC))
    if head == archive.MAGIC:
        raise ModelError(
            "this is an archive of what has been compiled, no model",
            file=str(model) if isinstance(model, str | Path) else "",
            hint="open(…) makes it callable",
        )


def _is_open(g: Graph) -> bool:
    """Whether an input, a result or an operator of a graph has an open extent."""
    return any(v.type.symbols() for v in g.inputs.values()) or not all(map(is_closed, g.nodes))


def _maker(g: Graph, target: Target, options: Options, store: Store, guards: Guards) -> Make:
    """Return what compiles `g` for the extents that a call brings; for it `guards` hold."""

    def make(values: Mapping[str, int]) -> Artifact:
        return journal.compiled(
            g.name, journal.extents(values), store, partial(compile_for, values)
        )

    @uncollected()
    def compile_for(values: Mapping[str, int]) -> Artifact:
        for like in _likes(values, guards):
            made = compile_open(g, target, options, store, values, like)
            if made is not None:
                return made
        made = compile_open(g, target, options, store, values)
        assert made is not None, "code serves the extents that it was made for"
        return made

    return make


def _likes(values: Mapping[str, int], guards: Guards) -> list[dict[str, int]]:
    """Return extents to decide by in place of `values`, those that most code is right for first.

    An extent that happens to be another's, or a round number, should not count as such; but some
    must be the same, or what guards make of others.  Code for many may not serve few.
    """
    wholly = [_unlike(values), _unlike(values, alike=True), _unlike(values, last=1)]
    partly = dict(values)
    for name, value in wholly[0].items():
        if holds(guards, {**partly, name: value}):
            partly[name] = value
    likes = [x for x in (*wholly, partly) if x != values and holds(guards, x)]
    return [x for i, x in enumerate(likes) if x not in likes[:i]]


def _unlike(values: Mapping[str, int], alike: bool = False, last: int = 16) -> dict[str, int]:
    """Return extents of about the same size that have nothing to do with each other or others.

    They are more than `last`.  If `alike`, those that are equal stay so.
    """
    found = dict(values)
    before = 0
    # In order of size: what was longer stays longer.
    for name, value in sorted(values.items(), key=lambda item: item[1]):
        if alike and value == before and value > 1:
            found[name] = last
        elif 1 < value < FAR:
            before = value
            last = max(value, last) + 1
            while any(last % d == 0 for d in range(2, math.isqrt(last) + 1)):
                last += 1
            found[name] = last
    return found


def bound(g: Graph, shapes: Mapping[str, Sequence[int]]) -> Graph:
    """Return `g` with open extents taken from `shapes`; raise ModelError where they do not fit."""
    if not isinstance(shapes, Mapping):
        raise OptionError(
            f"shapes is {shapes!r}, expected a dict from names of inputs to shapes, as "
            f"{{'{next(iter(g.inputs), 'NAME')}': (…)}}"
        )
    types: dict[str, tuple[Dim, ...]] = {}
    for name, shape in shapes.items():
        if name not in g.inputs:
            raise ModelError(f"shapes names '{name}', but the inputs are {', '.join(g.inputs)}")
        t = g.inputs[name].type
        if not isinstance(shape, Sequence) or not all(isinstance(d, Integral) for d in shape):
            raise ModelError(f"input '{name}' is {t}; shape {shape!r} is no sequence of integers")
        if len(shape) != t.rank:
            raise ModelError(f"input '{name}' is {t}; shape {tuple(shape)} has another rank")
        types[name] = t.shape
    extents, _ = values_of(sources(types), shapes)
    new = g.bind(extents)
    for name, shape in shapes.items():
        if new.inputs[name].type.shape != tuple(shape):
            raise ModelError(
                f"input '{name}' is {g.inputs[name].type}; {tuple(shape)} does not fit"
            )
    return new
