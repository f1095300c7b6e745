"""Models that are imported in parts, because what comes later depends on what was computed before.

Where a model needs the elements of a tensor to say what its graph is (the axes of a reduction, the
branch of an If, how many boxes are left), the import is cut: the part before is compiled and run,
and the import goes on with the elements known.  What no graph can hold (loops, sequences, strings)
stands between the parts as an *action*.  `runtime.staged` runs such models; front ends give them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from alpenglow.ir.graph import Graph
from alpenglow.ir.op import Host
from alpenglow.ir.types import Array, TensorType


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
class Given:
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


class StagedModel(Protocol):
    """A model that is imported in parts."""

    @property
    def name(self) -> str:
        """What to call the model."""
        ...

    @property
    def file(self) -> str:
        """What to call it in messages."""
        ...

    @property
    def inputs(self) -> Mapping[str, TensorType | None]:
        """The types of the inputs, None where a type is not known or no tensor's."""
        ...

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """What is known of the inputs whose types are None."""
        ...

    @property
    def outputs(self) -> Mapping[str, TensorType | None]:
        """The outputs by name, with their types as far as the model declares them."""
        ...

    @property
    def constants(self) -> Mapping[str, Any]:
        """The values that are there from the start, besides the inputs."""
        ...

    def begin(self) -> Any:
        """Return the rest that is the whole model."""
        ...

    def part(self, rest: Any, given: Given) -> Part:
        """Import as much of the rest as what is given decides."""
        ...
