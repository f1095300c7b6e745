"""What MODEL can be: a model file, the text of a stage, or an archive; and compiling it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import ml_dtypes
import numpy as np

import alpenglow as ag
from alpenglow.base import knobs
from alpenglow.base.arrays import readable
from alpenglow.base.errors import (
    AlpenglowError,
    FeedError,
    ModelError,
    OptionError,
    ParseError,
    UnsupportedError,
)
from alpenglow.base.store import Store
from alpenglow.base.words import meant
from alpenglow.cli.files import weights_path
from alpenglow.cli.options import Request
from alpenglow.cli.progress import progress
from alpenglow.compiler import compile_graph, every_pass, properties_after
from alpenglow.ir import staged as in_parts
from alpenglow.ir import staged_text
from alpenglow.ir import text as graph_text
from alpenglow.ir.graph import Graph
from alpenglow.ir.solve import bind_shapes
from alpenglow.ir.staged import StagedModel
from alpenglow.ir.staged_text import Continuation
from alpenglow.ir.target import Target
from alpenglow.ir.types import Array, TensorType
from alpenglow.machines.api import Artifact
from alpenglow.passes.keep import check_kept
from alpenglow.passes.table import current_name
from alpenglow.program import Program
from alpenglow.program import text as program_text
from alpenglow.runtime.archive import archive
from alpenglow.runtime.executables.executor import Executable
from alpenglow.runtime.executables.installed import install
from alpenglow.runtime.executables.open_extents import OpenExecutable
from alpenglow.runtime.staged.staged import StagedExecutable

IMPORT = "import"
"""The name of the stage before all passes."""

MARK = "# after: "
"""How the text of a stage begins."""


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A graph or program, and the stage that made it."""

    ir: Graph | Program
    after: str
    model: StagedModel | None = None
    """The model, where its graph depends on its data; `ir` is the graph of its first part then."""
    then: Continuation | None = None
    """How it goes on behind that part; a text holds this, and no model."""
    target: Target | None = None
    """What code there is already is for, in an archive."""

    @property
    def resume(self) -> str:
        """The pass after which compilation goes on; "" for the beginning."""
        return "" if self.after == IMPORT else self.after

    @property
    def staged(self) -> bool:
        """True if this is only the first part: the rest of the model depends on its data."""
        return self.then is not None

    def target_of(self, request: Request) -> Target:
        """Return the target of the code that is there, or the one asked for."""
        return self.target or Target.parse(request.target)

    def types(self) -> dict[str, TensorType]:
        """Return the types of the inputs."""
        if isinstance(self.ir, Graph):
            return {n: v.type for n, v in self.ir.inputs.items() if n not in self.ir.initial}
        buffers = self.ir.buffers
        return {name: t for name in self.ir.inputs if (t := buffers[name].type) is not None}


Kind = Literal["model", "text", "archive"]

_KINDS: tuple[tuple[Kind, bytes, str, str], ...] = (
    ("archive", archive.MAGIC, ".ago", "machine code"),
    ("text", MARK.encode(), ".txt", "the text of a stage, not a model"),
)
"""What else than a model MODEL can be: how it begins, what its name ends in, and what it holds."""


def kind_of(request: Request) -> Kind:
    """Tell by its first bytes what MODEL is.

    Raises ModelError if it is more than data and its name does not say so: who was given a model
    does not expect code.
    """
    path = request.model
    kind: Kind = "model"
    for other, magic, suffix, content in _KINDS:
        if not _begins(path, magic):
            continue
        if path.suffix.lower() != suffix and not request.trust:
            raise ModelError(
                f"{path} holds {content}, expected a name that ends in {suffix}",
                hint=f"rename it {suffix}, or --trust to run it",
            )
        kind = other
    if request.key is not None and kind != "archive":
        raise OptionError(f"--key: {path} is a {kind}, expected a signed archive")
    return kind


def read(request: Request) -> ModelSource:
    """Return what MODEL holds, with extents bound as asked; an archive is its planned program.

    Extents that no option binds are taken from the arrays given for inputs.
    """
    path, kind = request.model, kind_of(request)
    if kind != "model":
        _refuse_import(request)
    if kind == "archive":
        exe = ag.open(path, key=request.key)
        if isinstance(exe, OpenExecutable):
            check_inputs(request.inputs, exe.inputs)
            shapes = {**shapes_given(request), **request.shapes}
            return ModelSource(_bound(bind_shapes(exe.graph, shapes), request), IMPORT)
        _refuse_extents(request)
        if isinstance(exe, StagedExecutable):
            raise UnsupportedError(
                "this archive holds parts of a model whose graph depends on its data: only running "
                "it is supported",
                file=str(path),
                hint="give the model itself",
            )
        return ModelSource(exe.artifact.program, every_pass()[-1].name, target=exe.target)
    if kind == "text":
        _refuse_extents(request)
        return read_text(path)
    array_shapes = shapes_given(request)
    shapes = {**array_shapes, **request.shapes}
    try:
        model = ag.load(str(path), shapes, constants=request.constants, rounding=request.rounding)
    except ModelError:
        if array_shapes:  # it may be that no input has the names that arrays are given for
            check_inputs(request.inputs, ag.load(str(path)).inputs)
        raise
    if isinstance(model, Graph):
        return ModelSource(_bound(model, request), IMPORT)
    closed = _bound(model.graph, request)
    if request.extents:
        # What is imported later has to know the extents, too.
        types = {name: v.type for name, v in closed.inputs.items() if v.type.static}
        shapes = {**{n: t.extents for n, t in types.items()}, **shapes}
        model = ag.load(str(path), shapes, constants=request.constants, rounding=request.rounding)
        if isinstance(model, Graph):
            return ModelSource(model, IMPORT)
    assert model.first is not None, "models that are loaded have a first part"
    return ModelSource(model.graph, IMPORT, model, Continuation.of(model.first))


def read_text(path: Path) -> ModelSource:
    """Read what `show -o` wrote: the text, and the constants beside it."""
    first, _, rest = path.read_text(encoding="utf-8").partition("\n")
    known = (IMPORT, *(p.name for p in every_pass()))
    after = current_name(first.removeprefix(MARK).strip(), known)
    if after not in known:
        raise ParseError(
            f"text after '{after}' cannot be read back",
            file=str(path),
            hint=f"write it after one of {', '.join(known)}",
        )
    weights = read_weights(path)
    properties = properties_after(after)
    # The empty line keeps line numbers those of the file.
    body, behind = staged_text.split("\n" + rest)
    try:
        then = staged_text.parse_continuation(behind) if behind else None
        if "program" in properties:
            program = program_text.parse_program(body, weights, properties)
            return ModelSource(program, after, then=then)
        return ModelSource(graph_text.parse_graph(body, weights, properties), after, then=then)
    except AlpenglowError as error:
        if not weights_path(path).exists() and " sha256:" in body:
            error.hint = error.hint or (
                f"bring {weights_path(path).name} beside it: the constants of a text are in the "
                "file of its name and .npz"
            )
        raise error.located(file=str(path)) from None


def check_inputs(named: Iterable[str], inputs: Iterable[str]) -> None:
    """Raise FeedError if arrays are given for what is no input."""
    known = list(inputs)
    if unknown := sorted(set(named) - set(known)):
        names, close = ", ".join(unknown), meant(unknown[0], known)
        raise FeedError(f"--input names {names}, expected inputs: {', '.join(known)}{close}")


def read_weights(path: Path) -> dict[str, Array]:
    """Return the constants beside a text, by SHA-256; none if there is no such file."""
    file = weights_path(path)
    if not file.exists():
        return {}
    try:
        with readable(), np.load(file) as arrays:
            weights = dict(arrays)
    except (ValueError, OSError) as error:
        raise ModelError(f"expected a .npz file of arrays: {error}", file=str(file)) from None
    return {k: plain(a) for k, a in weights.items()}


def header(name: str, file: str) -> tuple[int, ...]:
    """Return the shape of the array for input `name` in a file."""
    return tuple(array_in(name, file).shape)


def array_in(name: str, file: str) -> Array:
    """Return the array in a .npy file, mapped, or the one called `name` in a .npz file.

    Raises ModelError if there is none.
    """
    try:
        with readable():
            content = np.load(file, mmap_mode="r")
            if isinstance(content, np.ndarray):
                return plain(content)
            if name not in content.files:
                raise ModelError(
                    f"this is a .npz file without an array '{name}', expected one, or a .npy file",
                    file=file,
                )
            array = content[name]
    except ValueError as error:
        raise ModelError(f"expected a .npy file: {error}", file=file) from None
    return plain(array)


def plain(array: Array) -> Array:
    """Return an array that was read; NumPy's formats do not know bfloat16 and keep bytes only."""
    return array.view(ml_dtypes.bfloat16) if array.dtype == np.dtype("V2") else array


def compiled(request: Request, source: ModelSource) -> Artifact:
    """Compile what was read, for the target asked for."""
    refuse_staged(request, source, "compiled ahead")
    if isinstance(source.ir, Graph) and source.after == IMPORT:
        check_kept(source.ir, request.keep)
    store = Store(knobs.cache_folder())
    with progress() as report:
        options = request.options(report)
        target = Target.parse(request.target)
        return compile_graph(source.ir, target, options, store, source.resume)


def executable(request: Request, source: ModelSource | None = None) -> Executable:
    """Return the Executable of MODEL: opened if it is an archive, compiled otherwise."""
    if kind_of(request) == "archive":
        _refuse_extents(request)
        _refuse_import(request)
        return ag.open(request.model, request.threads, weights=request.weights, key=request.key)
    source = source or read(request)
    if source.staged and source.model is None:
        raise UnsupportedError(
            "this is the text of the first part of a model; nothing goes on from it",
            file=str(request.model),
            hint="run the model itself",
        )
    if source.model is not None:
        options = request.options()
        return ag.compile(source.model, request.target, request.threads, options=options)
    return install(compiled(request, source), request.threads)


def refuse_staged(request: Request, source: ModelSource, what: str) -> None:
    """Raise UnsupportedError if the graph of the model depends on its data."""
    if source.staged:
        in_parts.refuse_staged(what, str(request.model))


def _bound(g: Graph, request: Request) -> Graph:
    """Return `g` with extents bound by their own names."""
    known = {s for v in g.inputs.values() for s in v.type.symbols()}
    if unknown := request.extents.keys() - known:
        inputs = ", ".join(f"{k} {v.type}" for k, v in g.inputs.items())
        raise OptionError(
            f"--dim names {', '.join(sorted(unknown))}, which is open in no input: {inputs}",
            hint=f"--dim {min(known)}=1" if known else "leave out --dim",
        )
    return g.bind(request.extents) if request.extents else g


def refuse_constants(request: Request, why: str) -> None:
    """Raise OptionError if inputs are to be constants, which they cannot be."""
    if request.constants:
        raise OptionError(f"--constants is not supported here: {why}", file=str(request.model))


def _refuse_import(request: Request) -> None:
    """Raise OptionError if something is asked for that is done when a model is imported."""
    why = "MODEL has been imported already"
    refuse_constants(request, why)
    if request.rounding is not None:
        raise OptionError(f"--rounding is not supported here: {why}", file=str(request.model))


def _refuse_extents(request: Request) -> None:
    if request.shapes or request.extents:
        raise OptionError(
            f"--shapes and --dim fix dimensions of a model file; dimensions of {request.model} are "
            "already fixed, or follow from the arrays of a call",
            hint="--input NAME=FILE.npy",
        )


def shapes_given(request: Request) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the arrays that are given for inputs."""
    files = request.inputs.items()
    return {name: header(name, file) for name, file in files if file != "random"}


def _begins(path: Path, magic: bytes) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(magic)) == magic
