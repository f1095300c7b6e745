"""Finding the front end for a model.  Ours and third parties' come through the same door: the entry
point group ``alpenglow.frontends``, each entry a class without arguments or an object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from alpenglow.base.errors import ModelError, OptionError, UnsupportedError
from alpenglow.base.extensions import brought
from alpenglow.base.memory import uncollected
from alpenglow.frontends.files import unreadable
from alpenglow.ir.constant_inputs import check_mapping, fix
from alpenglow.ir.graph import Graph
from alpenglow.ir.staged import StagedModel


class FrontEnd(Protocol):
    """A reader of models of one format."""

    @property
    def name(self) -> str:
        """The name of the format, as messages give it."""
        ...

    @property
    def version(self) -> str:
        """The version of what reads the format: what it made of a file before may differ."""
        ...

    def may_read_more(self, content: bytes) -> bool:
        """Return True unless the bytes of a file are all that it reads for that model.

        Asked of files of any format, quickly: a True too much costs time alone.
        """
        ...

    def accepts(self, model: object) -> bool:
        """Whether `model` (a path, bytes or an object) is of this format, by a first look."""
        ...

    def load(
        self, model: Any, shapes: Mapping[str, Sequence[int]] | None = None
    ) -> Graph | StagedModel:
        """Return the graph of a model, or the model where that depends on its data.

        `shapes` fixes dynamic dimensions by input name."""
        ...


@runtime_checkable
class Deciding(Protocol):
    """A front end to which it matters that some inputs are constants, as where they choose a
    branch; with others these are put into the graph afterwards."""

    def load_with(
        self,
        model: Any,
        constants: Mapping[str, Any],
        shapes: Mapping[str, Sequence[int]] | None = None,
    ) -> Graph | StagedModel:
        """Return the result of `load` for a model some inputs of which have these values."""
        ...


@runtime_checkable
class Tracing(Protocol):
    """A front end whose models may be code, which is run on examples to see what it computes."""

    def capture(
        self, model: Any, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any
    ) -> Any:
        """Return the traced model for `load`, called with these arguments.

        `dynamic_shapes` says which extents of them may be others, in the words of the format."""
        ...


@runtime_checkable
class Rounding(Protocol):
    """A front end whose format does not define how quantized values are rounded."""

    @property
    def roundings(self) -> tuple[str, ...]:
        """The names of the ways; the first one is what is done if none is asked for."""
        ...

    def rounding_as(self, rounding: str) -> FrontEnd:
        """Return the front end that rounds in one of these ways."""
        ...


def frontends() -> tuple[FrontEnd, ...]:
    """Return all front ends that are installed, in order of their entry points' names."""
    return tuple(brought("alpenglow.frontends").values())


@uncollected()
def load(
    model: Any,
    shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    constants: Mapping[str, Any] | None = None,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    rounding: str | None = None,
) -> Graph | StagedModel:
    """Read a model of any known format and return its graph.

    Args:
        model: a path, the bytes of a file, or an object that a front end reads, such as an
            `onnx.ModelProto`, a PyTorch module or a `jax.export.Exported`.
        shapes: the shapes of inputs with dynamic dimensions, by input name.
        constants: values of inputs, by name: an array, or one number for all elements.  These
            inputs are removed, and so are inputs that only untaken branches read.
        args: the arguments with which a PyTorch module is traced.
        kwargs: the keyword arguments with which a PyTorch module is traced.
        dynamic_shapes: the dynamic dimensions of `args` and `kwargs`, as `torch.export.export`
            takes them.
        rounding: how a quantized TFLite model rounds integers: "xnnpack" (also None), as LiteRT
            does by default, or "reference", as its reference kernels and firmware do.

    Returns:
        The graph; a StagedModel, which `compile` takes too, if the graph depends on data that are
        known at run time only.  Its `graph` is the part before these data.

    Raises:
        ModelError: if the model is damaged, cannot be traced, or has no known format.
        UnsupportedError: if the model uses an operator or a feature that is not supported.
        OptionError: if a constant or `rounding` does not fit.

    Example:
        >>> ag.load("model.onnx")
        Graph(tiny; x f32[batch,8] -> y f32[batch,4]; 3 nodes, 2 constants of 768 B)
    """
    if constants is not None:
        check_mapping(constants)
    for frontend in frontends():
        if frontend.accepts(model):
            if rounding is not None:
                frontend = _rounding(frontend, rounding)
            if args is not None or kwargs is not None or dynamic_shapes is not None:
                model = _captured(frontend, model, args, kwargs, dynamic_shapes)
            if not constants:
                return frontend.load(model, shapes)
            return _decided(frontend, model, constants, shapes)
    known = ", ".join(f.name for f in frontends()) or "none"
    if not isinstance(model, str | Path):
        if isinstance(model, bytes):
            raise ModelError(
                f"the model, {len(model)} bytes, is of no known format; supported: {known}"
            )
        raise ModelError(
            f"the model is of type {type(model).__name__}, expected a path, the bytes of a file, "
            f"or an object that a front end reads; supported: {known}"
        )
    if Path(model).is_dir():
        raise unreadable("this is a folder", Path(model))
    if not Path(model).is_file():
        raise unreadable("there is no such file", Path(model))
    raise ModelError(
        f"the model is of no known format; supported: {known}",
        file=str(model),
        hint="open(…) takes an archive" if Path(model).suffix == ".ago" else "",
        flags="the archive is damaged: compile it again" if Path(model).suffix == ".ago" else "",
    )


def _rounding(frontend: FrontEnd, rounding: str) -> FrontEnd:
    """Return the front end that rounds as asked; raise OptionError if there is none."""
    known = frontend.roundings if isinstance(frontend, Rounding) else ()
    if rounding not in known or not isinstance(frontend, Rounding):
        wanted = f"one of {', '.join(known)}" if known else (
            f"None, as {frontend.name} models define how values are rounded"
        )  # fmt: skip
        raise OptionError(f"rounding is {rounding!r}, expected {wanted}")
    return frontend.rounding_as(rounding)


def _decided(
    frontend: FrontEnd, model: Any, constants: Mapping[str, Any],
    shapes: Mapping[str, Sequence[int]] | None,
) -> Graph | StagedModel:  # fmt: skip
    """Return a model some inputs of which are constants."""
    if isinstance(frontend, Deciding):
        return frontend.load_with(model, constants, shapes)
    loaded = frontend.load(model, shapes)
    if isinstance(loaded, StagedModel):
        raise UnsupportedError(
            f"constants are not supported for {frontend.name} models whose graph depends on data",
            hint="make the input a constant in the model file",
        )
    return fix(loaded, constants)


def _captured(
    frontend: FrontEnd, model: Any, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
) -> Any:  # fmt: skip
    """Return a model traced; raise OptionError where there is nothing to trace."""
    if not isinstance(frontend, Tracing):
        raise OptionError(
            f"args, kwargs and dynamic_shapes are not supported for {frontend.name} models; "
            "supported: PyTorch modules and other models that are traced"
        )
    if args is not None and not isinstance(args, tuple | list):
        raise OptionError(
            f"args is a {type(args).__name__}, expected a tuple of arguments", hint="args=(x,)"
        )
    return frontend.capture(model, args or (), kwargs or {}, dynamic_shapes)
