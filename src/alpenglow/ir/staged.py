"""Models that are imported in parts, because what comes later depends on what was computed before.

Where a model needs the elements of a tensor to say what its graph is (the axes of a reduction, how
many boxes are left), the import is cut: the part before is compiled and run, and the import goes on
with the elements known.  An operation that no graph can hold (on sequences or strings, a loop whose
types change) stands between the parts as an *action*.  `runtime.staged.staged` runs such models;
front ends give them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from alpenglow.base.errors import UnsupportedError
from alpenglow.base.words import shown
from alpenglow.ir.graph import Alternative, Graph
from alpenglow.ir.metadata import NONE, Metadata
from alpenglow.ir.op import Host
from alpenglow.ir.types import Array, TensorType

RANKS = "#ranks"
"""Stands behind the name of strings in that of their ranks; messages leave off what begins so."""


WHOLE = "load(…, constants={'NAME': value}, shapes={'NAME': (…)}) where an input or extent decides"
WHOLE_FLAGS = "--constants NAME=VALUE or --shapes NAME=… where an input or an extent decides"
"""How a model whose graph depends on its data may become one graph."""


def refuse_staged(done: str, file: str = "") -> NoReturn:
    """Raise UnsupportedError: a model in parts cannot be what only a whole graph can (`done`)."""
    raise UnsupportedError(
        f"the graph of this model depends on its data, so it cannot be {done}",
        file=file,
        hint=f"{WHOLE}; compile runs the model in parts",
        flags=f"{WHOLE_FLAGS}; run, verify and bench compile the model in parts",
    )


@dataclass(frozen=True, slots=True)
class Kind:
    """What an input is whose type is no `TensorType`: of no known rank, of strings, no tensor.

    `what` is tensor, sequence, optional or map; `dtype` may be ``string``, and an extent that is
    open is None.  Of maps the keys and values are not said.
    """

    what: str
    dtype: str = ""
    shape: tuple[int | None, ...] | None = None
    of: Kind | None = None

    def __str__(self) -> str:
        if self.what != "tensor":
            return self.what if self.of is None else f"{self.what} of {self.of}"
        if self.shape is None:
            return f"{self.dtype}[…]"
        return f"{self.dtype}[{','.join('?' if d is None else str(d) for d in self.shape)}]"


@dataclass(frozen=True, slots=True)
class Known:
    """What is known where the import of a part begins.

    `types` has the arrays that are there, `others` the values that are no tensors of numbers;
    `elements` those elements that have been asked for: extents (numbers or symbols) of integer
    tensors, and of others the numbers themselves.
    """

    types: Mapping[str, TensorType]
    others: frozenset[str] = frozenset()
    elements: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Apply:
    """A host operator on values by name; "" is an absent operand or an unwanted result."""

    label: str
    op: Host
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """ONNX's Loop: `body` maps (number, condition, carried …, captured …) to (condition,
    carried …, scanned …).  `trips` and `condition` are "" where they are absent.

    The last of what is scanned is not stacked, but appended to the sequences `appended`, as many.
    Before what is captured the body is given the element of each of the sequences `picked` that has
    the number of the turn.  With both stands what to call it in messages.
    """

    label: str
    body: StagedModel
    trips: str
    condition: str
    carried: tuple[str, ...]
    captured: tuple[str, ...]
    outputs: tuple[str, ...]
    appended: tuple[tuple[str, str], ...] = ()
    picked: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """ONNX's Scan: `body` maps (state …, slice …, captured …) to (state …, slice …).

    `axes` and `reverse` are those of the scanned operands, then of the scanned results.  With
    `batched` (before opset 9) axis 0 of everything counts sequences, `lengths` long.
    """

    label: str
    body: StagedModel
    states: tuple[str, ...]
    scanned: tuple[str, ...]
    captured: tuple[str, ...]
    outputs: tuple[str, ...]
    axes: tuple[int, ...]
    reverse: tuple[bool, ...]
    batched: bool = False
    lengths: str = ""


Action = Apply | Loop | Scan


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A part of a model: a graph from values to values by name, and what is done after it.

    `needs` names the values whose elements the import of the `rest` asks for; the rest is None at
    the end of the model.
    """

    graph: Graph
    actions: tuple[Action, ...]
    needs: tuple[str, ...]
    rest: Any


class StagedModel(Alternative, ABC):
    """A model that is imported in parts.

    `file` is what messages call it.  `inputs` holds the types of the inputs, None where a type is
    not known or no tensor's; `kinds` what is known of those; `outputs` the types of the outputs as
    far as the model declares them; `constants` the values that are there from the start, besides
    the inputs.  `first` is the part that the inputs' types alone decide; the body of a loop, whose
    types are known when it runs, has none.
    """

    name: str
    file: str
    inputs: Mapping[str, TensorType | None]
    kinds: Mapping[str, Kind]
    outputs: Mapping[str, TensorType | None]
    constants: Mapping[str, Any]
    metadata: Metadata = NONE
    first: Part | None = None

    @property
    def graph(self) -> Graph:
        """The graph of the first part."""
        assert self.first is not None, "what the body of a loop begins with is known when it runs"
        return self.first.graph

    @abstractmethod
    def begin(self) -> Any:
        """Return the rest that is the whole model."""

    @abstractmethod
    def part(self, rest: Any, known: Known) -> Part:
        """Import as much of the rest as what is known decides."""

    def __repr__(self) -> str:
        def of(types: Mapping[str, TensorType | None]) -> str:
            return ", ".join(f"{n} {self.kinds.get(n, '?') if t is None else t}"
                             for n, t in types.items())  # fmt: skip

        signature = f"{of(self.inputs)} -> {of(self.outputs)}"
        return f"StagedModel({shown(self.name)}; {signature}; what follows depends on data)"
