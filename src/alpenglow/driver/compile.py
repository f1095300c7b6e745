"""`compile`: from a model to an Executable in one call."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

from alpenglow.base import deadline, knobs
from alpenglow.base.cpus import check_threads
from alpenglow.base.errors import ModelError, OptionError, ParseError, UnsupportedError
from alpenglow.base.memory import uncollected
from alpenglow.base.progress import Progress
from alpenglow.base.store import Store
from alpenglow.compiler import Options, compile_graph, compile_open, run_ahead
from alpenglow.compiler.memory import refuse_limit, refuse_open
from alpenglow.driver import journal
from alpenglow.driver.artifact_cache import ArtifactCache
from alpenglow.driver.progress import reporter
from alpenglow.driver.state import imported_anew, with_state
from alpenglow.frontends import load
from alpenglow.ir.constant_inputs import fix
from alpenglow.ir.dims import Guards, bind, holds
from alpenglow.ir.graph import Graph, is_closed
from alpenglow.ir.solve import bind_shapes
from alpenglow.ir.staged import WHOLE, WHOLE_FLAGS, StagedModel
from alpenglow.ir.target import Target
from alpenglow.machines.api import Artifact
from alpenglow.passes.choices import Record
from alpenglow.passes.keep import check_kept
from alpenglow.program.instr import CAPACITY
from alpenglow.runtime.archive import archive
from alpenglow.runtime.archive.archive import OpenGraph
from alpenglow.runtime.archive.artifact import damaged
from alpenglow.runtime.call.extents import Reader
from alpenglow.runtime.executables.executor import Executable
from alpenglow.runtime.executables.in_process import InProcess
from alpenglow.runtime.executables.installed import Installed, install
from alpenglow.runtime.executables.open_extents import Make, OpenExecutable
from alpenglow.runtime.staged.kept import StagedArchive
from alpenglow.runtime.staged.staged import StagedExecutable

Model: TypeAlias = "Graph | StagedModel | str | Path | bytes | Any"
"""A graph, a model in parts, or what a front end takes: a path, the bytes of a file, an object such
as an `onnx.ModelProto`, of which nothing is known here."""

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
    *,
    memory: int | str | None = None,
    constants: Mapping[str, Any] | None = None,
    state: bool | Mapping[str, str] = False,
    last: Sequence[str] = (),
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    rounding: str | None = None,
) -> Executable:
    """Compile a model for a target and return an Executable.

    The first call compiles further code for dynamic dimensions that `shapes` leaves open, and
    reuses it for other sizes.  The logger `alpenglow` reports what is compiled, when and why.

    Args:
        model: a Graph, or a model that `load` takes: a path, the bytes of a file, an
            `onnx.ModelProto`, a PyTorch module.
        target: the backend and processor, as `Target.parse` reads them; "cpu" is this processor.
        threads: the number of threads of a call, 1 to 1024; None: one for each CPU that this
            process may use.
        shapes: the shapes of inputs with dynamic dimensions, by input name.
        options: all other options of the compiler; None: `Options()`.
        precision: the `precision` of `Options`; None: the one in `options`.
        keep: values and operators that stay in f32; added to the `keep` of `options`.
        progress: True prints progress to stderr; a function is called with the name of the current
            task, the number of finished steps and the number of all steps.
        memory: the limit of the memory for intermediate results: bytes, or a text like "200KB".
        constants: values of inputs that are the same in all calls, by input name; see `load`.
        state: True makes variables of all inputs whose names mark them as caches of keys and
            values; a mapping names the output that each such input repeats, as
            ``{"past.0.key": "present.0.key"}``.  A `session(length=…)` keeps variables in place.
        last: outputs of which only the last row (token) is computed and returned.
        args: the arguments with which a PyTorch module is traced; see `load`.
        kwargs: the keyword arguments with which a PyTorch module is traced; see `load`.
        dynamic_shapes: the dynamic dimensions of `args` and `kwargs`; see `load`.
        rounding: how a quantized TFLite model rounds integers; see `load`.

    Returns:
        The compiled model.

    Raises:
        ModelError: if the model is damaged or has no known format.
        UnsupportedError: if the model uses an operator or a feature that is not supported.
        MemoryLimitError: if the compiler cannot keep to `memory`; it states the smallest limit.
        CompileTimeoutError: if compilation takes longer than the `timeout` of `options`.
        OptionError: if an argument has a wrong value.

    Example:
        >>> exe = ag.compile("model.onnx", shapes={"x": (2, 8)})
        >>> exe(np.ones((2, 8), np.float32)).shape
        (2, 4)
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
    if memory is not None:
        chosen_options = replace(chosen_options, memory=memory)
    if progress is not False:
        chosen_options = replace(chosen_options, progress=reporter(progress))
    _refuse_archive(model)
    tracing = {"args": args, "kwargs": kwargs, "dynamic_shapes": dynamic_shapes}
    with deadline.limited(chosen_options.timeout):
        return _compiled(
            model, chosen, threads, shapes, chosen_options, constants, state, last, tracing,
            rounding,
        )  # fmt: skip


def _compiled(
    model: Model, chosen: Target, threads: int | None, shapes: Mapping[str, Sequence[int]] | None,
    chosen_options: Options, constants: Mapping[str, Any] | None, state: bool | Mapping[str, str],
    last: Sequence[str], tracing: Mapping[str, Any], rounding: str | None,
) -> Executable:  # fmt: skip
    """Return the Executable of a model: what `compile` does once its arguments are checked."""
    store = Store(knobs.cache_folder())
    cache = None if state or last else ArtifactCache.of(
        model, shapes or {}, constants or {}, rounding, chosen, chosen_options, store
    )  # fmt: skip
    if cache is not None and (artifact := cache.artifact()) is not None:
        return install(artifact, threads)
    traced = any(given is not None for given in tracing.values())
    graph = (
        load(model, shapes, constants=constants, rounding=rounding, **tracing)
        if traced else loaded(model, shapes, constants, rounding)
    )  # fmt: skip
    anew = None
    if state is not False and isinstance(graph, Graph):
        anew = imported_anew(graph, state, last)
    graph = with_state(graph, state, last)
    if isinstance(graph, Graph):
        check_kept(graph, chosen_options.keep)
    if isinstance(graph, StagedModel):
        return _staged(graph, chosen, chosen_options, store, threads)
    if _is_open(graph):
        otherwise = None
        # What imports the model anew knows nothing of variables that were added since.
        if isinstance(graph.otherwise, StagedModel) and not graph.initial:
            otherwise = _staged(graph.otherwise, chosen, chosen_options, store, threads)
        graph = _ahead(graph, chosen, chosen_options)
        return _opened(graph, chosen, chosen_options, store, threads, (), otherwise, anew)
    if cache is not None:
        return install(cache.make(graph), threads)
    owned = not isinstance(model, Graph)
    run = partial(compile_graph, graph, chosen, chosen_options, store, owned=owned)
    return install(journal.compiled(graph.name, "compile", store, run), threads)


def reopened(archived: OpenGraph | StagedArchive, threads: int | None) -> Executable:
    """Return the Executable of an archive that goes on compiling, as the settings there say.

    Raises ModelError if these are no settings.
    """
    try:
        words = dict(archived.settings)
        tuning = Record.parse(words.pop("tuning"))
        options = Options(**{**words, "keep": tuple(words["keep"])}, tuning=tuning)
    except (KeyError, TypeError, AttributeError, OptionError, ParseError) as error:
        raise damaged(f"its settings are none: {error}") from None
    store = Store(knobs.cache_folder())
    if isinstance(archived, StagedArchive):
        return _staged(archived.model, archived.target, options, store, threads)
    return _opened(archived.graph, archived.target, options, store, threads, archived.artifacts)


def _staged(
    model: StagedModel, target: Target, options: Options, store: Store, threads: int | None
) -> StagedExecutable:
    """Return the Executable of a model that is compiled in parts."""
    refuse_limit(options, "what this model computes depends on its data", WHOLE, WHOLE_FLAGS)

    def compile_part(g: Graph, guards: Guards, artifacts: Sequence[Artifact]) -> InProcess:
        if g.initial:
            raise UnsupportedError(
                f"graph {g.name} has variables ({', '.join(g.initial)}), which are not supported "
                "in a model that is split at data-dependent points"
            )
        if _is_open(g):
            make = _maker(g, target, options, store, guards)
            return OpenExecutable(g, target, make, threads, artifacts=artifacts)
        run = partial(compile_graph, g, target, options, store)
        why = "next part of a model split at its data"
        return Installed(journal.compiled(g.name, why, store, run), threads)

    executable = StagedExecutable(model, compile_part, threads, target, _settings(options))
    executable.restore = reopened
    return executable


def _opened(
    graph: Graph, target: Target, options: Options, store: Store, threads: int | None,
    artifacts: Sequence[Artifact], otherwise: Executable | None = None,
    anew: Callable[[Mapping[str, int]], Graph] | None = None,
) -> OpenExecutable:  # fmt: skip
    """Return the Executable of a graph with open extents.

    `anew` imports another one for extents that break its guards.
    """
    refuse_open(options)
    types = {n: v.type for n, v in graph.callers_inputs().items()}
    rows = {n: graph.inputs[n].type.shape[axis] for n, axis in graph.growing.items()}
    make = _maker(graph, target, options, store, graph.guards)

    def make_any(values: Mapping[str, int]) -> Artifact:
        if anew is None or holds(graph.guards, values):
            return make(values)
        other = anew(values)
        guards = other.guards
        return _maker(_ahead(other, target, options), target, options, store, guards)(values)

    executable = OpenExecutable(
        graph, target, make_any, threads, reader=Reader(types, rows), otherwise=otherwise,
        artifacts=artifacts, settings=_settings(options), makes_all=anew is not None,
    )  # fmt: skip
    executable.restore = reopened
    return executable


def _ahead(g: Graph, target: Target, options: Options) -> Graph:
    """Return a graph after what all kinds of its extents share; a caller's passes come first."""
    return g if options.passes or options.after else run_ahead(g, target, options)


def _settings(options: Options) -> dict[str, Any] | None:
    """Return what an archive says of how to compile; None where it cannot be told."""
    if options.passes or options.after is not None:
        return None
    o = options
    return {"numerics": o.numerics, "precision": o.precision, "keep": list(o.keep),
            "indices": o.indices, "activations": o.activations,
            "tuning": str(o.record)}  # fmt: skip


def loaded(
    model: Model,
    shapes: Mapping[str, Sequence[int]] | None,
    constants: Mapping[str, Any] | None = None,
    rounding: str | None = None,
) -> Graph | StagedModel:
    """Return a model read, with extents of its inputs bound and some inputs constants."""
    if rounding is not None and isinstance(model, Graph | StagedModel):
        raise OptionError(
            "this model is imported already, and its integers are rounded as it says",
            hint="give them to load: load(…, rounding='reference')",
        )
    if isinstance(model, Graph):
        bound = bind_shapes(model, shapes) if shapes else model
        return bound if constants is None else fix(bound, constants)
    if isinstance(model, StagedModel):
        if shapes:
            raise OptionError(
                "this model is imported in parts, which have to know its shapes",
                hint="bind them as it is loaded: load(…, shapes={'NAME': (…)})",
            )
        if constants:
            raise OptionError(
                "this model is imported in parts, which have to know what is constant",
                hint="tell it as it is loaded: load(…, constants={'NAME': …})",
            )
        return model
    return load(model, shapes, constants=constants, rounding=rounding)


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
            artifact = compile_open(g, target, options, store, values, _with_room(g, like))
            if artifact is not None:
                return artifact
        artifact = compile_open(g, target, options, store, values)
        assert artifact is not None, "code serves the extents that it was made for"
        return artifact

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


def _with_room(g: Graph, values: dict[str, int]) -> dict[str, int]:
    """Return extents with room for what variables that grow hold at exit."""
    if not g.growing:
        return values
    after = [bind(g.outputs.get(n, v).type.shape[g.growing[n]], values)
             for n, v in g.initial.items() if n in g.growing]  # fmt: skip
    most = max(d for d in after if isinstance(d, int))
    return {**values, CAPACITY: max(values[CAPACITY], most + 1)}


def _unlike(values: Mapping[str, int], alike: bool = False, last: int = 16) -> dict[str, int]:
    """Return extents of about the same size that have nothing to do with each other or others.

    They are more than `last`.  If `alike`, those that are equal stay so.
    """
    extents = dict(values)
    before = 0
    # In order of size: what was longer stays longer.
    for name, value in sorted(values.items(), key=lambda item: item[1]):
        if alike and value == before and value > 1:
            extents[name] = last
        elif 1 < value < FAR:
            before = value
            last = max(value, last) + 1
            while any(last % d == 0 for d in range(2, math.isqrt(last) + 1)):
                last += 1
            extents[name] = last
    return extents
