"""Programs of PyTorch as the importer reads them, from objects and from files.

A program is calls of ATen operators on values by name.  Arguments have the names of the
operator's schema, extents are `Dim`s already, and each tensor has the type that PyTorch states; the
import checks its results against these types.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from alpenglow.ir.dims import Dim, Guards, Sym, names
from alpenglow.ir.structure import Structure
from alpenglow.ir.types import Array, TensorType

DENSE = "expected a dense tensor of a supported dtype on the CPU"
"""The end of messages about other tensors."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor by name."""

    name: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """An argument that is not known ahead, or of a kind that no converter takes."""

    what: str


@dataclass(frozen=True, slots=True)
class Condition:
    """A truth about extents: all the guards hold."""

    guards: Guards


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One application of an operator.

    `target` is its name without "torch.ops", as ``aten.add.Tensor``; `results` are the names of its
    results, "" for one without a reader; `source` is where in the user's code it stands, `module`
    the path of the innermost module that it is a part of, as ``layers.0.conv``.
    `stated` are the types of its results, where PyTorch states them, also of those not read.
    """

    name: str
    target: str
    arguments: Mapping[str, Argument]
    results: tuple[str, ...]
    source: str = ""
    module: str = ""
    stated: tuple[TensorType | None, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """Calls in order, between inputs and outputs; `types` has the type of each tensor by name.

    `constants` are arrays of the body itself, `symbols` the inputs that are extents.
    """

    inputs: tuple[str, ...]
    calls: tuple[Call, ...]
    outputs: tuple[Argument, ...]
    types: Mapping[str, TensorType]
    constants: Mapping[str, Array] = field(default_factory=dict)
    symbols: Mapping[str, Argument] = field(default_factory=dict)


Argument: TypeAlias = (
    "bool | Dim | float | complex | str | Ref | Body | Condition | Unknown | "
    "tuple[Argument, ...] | None"
)
"""An element type is a str: its name in `ir.types`."""


def refs(argument: Argument | Mapping[str, Argument]) -> Iterator[str]:
    """Yield the names of the tensors in an argument, or in several."""
    match argument:
        case Ref(name=name):
            yield name
        case tuple():
            for a in argument:
                yield from refs(a)
        case Mapping():
            for a in argument.values():
                yield from refs(a)


def symbols_in(argument: Argument | Mapping[str, Argument]) -> set[str]:
    """Return the symbols in an argument, or in several."""
    match argument:
        case Sym():
            return names(argument)
        case Condition(guards=guards):
            return {n for x, _ in guards for n in names(x)}
        case tuple():
            return {n for a in argument for n in symbols_in(a)}
        case Mapping():
            return {n for a in argument.values() for n in symbols_in(a)}
    return set()


InputKind = Literal["user", "parameter", "buffer", "constant", "symbol", "fixed"]
OutputKind = Literal["user", "buffer", "input", "fixed"]


@dataclass(frozen=True, slots=True)
class Input:
    """An input: the caller's, or what `target` names in the state.

    "symbol" is an extent, "fixed" a number, a text or None.
    """

    name: str
    kind: InputKind
    target: str = ""


@dataclass(frozen=True, slots=True)
class Output:
    """An output: the caller's, or the new value of the buffer or input that `target` names.

    `name` is the name in the graph; "fixed" is a number, a text or None, and not in the graph.
    """

    kind: OutputKind
    target: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A program: its calls, what its inputs and outputs are, and the arrays of its state.

    `state` has parameters, buffers and constants by the name in the module; two that are tied are
    one array.  `ranges` bounds the symbols of extents, None where nothing does; `demands` is what
    else must be true of them.  `version` is that of the torch that made it.  One that is not
    `trusted` comes from a file: what breaks the rules of PyTorch in it is the file's mistake, not
    ours.  `generator` is the state from which random numbers are drawn, as those of
    `ops.random.mersenne` take it.
    """

    name: str
    body: Body
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    state: Mapping[str, Array]
    ranges: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    file: str = ""
    structure: Structure | None = None
    version: str = ""
    trusted: bool = True
    demands: Guards = ()
    generator: Array | None = None


def module_path(path: object) -> str:
    """Return the path of a module as its parameters have it; Dynamo begins it with a local."""
    plain = re.sub(r"^L\['[^']*'\]", "", str(path))
    return re.sub(r"[^\w.]+", "_", plain).strip("._")


def program_name(kind: object) -> str:
    """Return the name of a program: the class of the module that was traced."""
    name = str(getattr(kind, "__name__", kind)).rpartition(".")[2]
    return name if name.isidentifier() else "main"
