"""The base of importers of models in parts (`ir.staged`).

A node that needs elements which are not known yet is left for later, with all that reads it.
Elements of small integer tensors are tracked (`contents`), for models compute shapes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from alpenglow.base.errors import NONSENSE, AlpenglowError, FeedError, ModelError, TypeRuleError
from alpenglow.evaluate import apply
from alpenglow.frontends import contents
from alpenglow.frontends.files import nonsense
from alpenglow.frontends.presume import Needed, Undecided
from alpenglow.frontends.reconcile import reconciled
from alpenglow.frontends.shapes import check_size
from alpenglow.ir.graph import Graph, Node, Value, is_closed
from alpenglow.ir.staged import Known
from alpenglow.ir.types import FLOATS, Array
from alpenglow.ops.tensor.in_range import InRange

Made = TypeVar("Made")

LARGEST_OPERAND = 4096
"""No node is folded that has an operand of more elements."""


class PartImporter(ABC):
    """The state of the import of one part.

    Afterwards `values` has what nodes made by name, `later` what is left for another part, `cut`
    the steps of it for which something was not known, `needs` the names of values whose elements
    were missed, and `beside` those that are kept with them.
    """

    format = ""
    """The name of the format, as messages give it."""

    folds = False
    """Whether what follows from constants becomes a constant, where it is small."""

    def __init__(self, g: Graph, given: Known) -> None:
        self.g = g
        self.given = given
        self.values: dict[str, Value] = {}
        self.later: list[Any] = []
        self.cut: list[Any] = []
        self.needs: dict[str, None] = {}
        self.beside: dict[str, None] = {}
        # Known elements of values; None: the value was looked at, and its elements are data.
        self.known: dict[Value, Array | None] = {}
        self.collects = True  # whether a refusal waits until the others are known
        self._missing: set[str] = set()  # what nodes for later will make
        self._deferred: set[Value] = set()  # decisions by elements, which nothing has asked for

    def attempt(self, imported: Callable[[], None]) -> bool:
        """Import something as a whole; take it back and return False if a part of it waits or is
        refused."""
        # Known elements of a value stay true.
        state = {n: copy(x) for n, x in vars(self).items()
                 if isinstance(x, dict | list | set) and n != "known"}  # fmt: skip
        before, collects = len(self.later), self.collects
        self.collects = False
        try:
            imported()
            if len(self.later) == before:
                return True
        except AlpenglowError:
            pass  # the other way to import it reports it
        finally:
            self.collects = collects
        vars(self).update(state)
        # Inputs that were read for the first time are in the graph.
        self.values |= {n: self.g.inputs[n] for n in self.given.types if self.g.has_input(n)}
        return False

    def constant(self, name: str) -> Array | None:
        """Return the elements of a value, if they are known numbers."""
        v = self.find(name)
        elements = self.contents(v) if v.array is None else v.array
        if elements is None or elements.dtype != object:
            return elements
        if not contents.numbers(elements):
            return None
        return np.array(elements.reshape(-1).tolist(), v.type.numpy).reshape(elements.shape)

    def hold_back(self, names: Iterable[str]) -> None:
        """Leave for later what reads these names."""
        self._missing.update(names)

    def elements(self, name: str) -> Array | None:
        """Return the elements that were asked for by a name, if they are known."""
        return self.given.elements.get(name)

    def contents(self, v: Value) -> Array | None:
        """Return the elements of v if it is a small integer tensor whose elements are known."""
        return None if v.type.dtype in FLOATS else self._integers(v)

    def _integers(self, v: Value) -> Array | None:
        """Return the elements of a small tensor if they are known and integers."""
        if v.producer is None:
            return self.known[v] if v in self.known else contents.of_constant(v)
        if v in self._deferred:
            self._deferred.discard(v)
            self.known[v] = self._propagated(v.producer)
        if v not in self.known:
            self._settle([v.producer])
        return self.known[v]

    def _propagated(self, node: Node) -> Array | None:
        known = [None if v is None else self._integers(v) for v in node.inputs]
        return contents.propagate(node, known)

    def _defers(self, node: Node) -> bool:
        """Return True if a result is decided by elements: that is a guard, so it waits to be asked.

        A loop that compares its counter with its end would be one thing in each turn but the last.
        """
        operands = [v for v in node.inputs if v is not None]
        decides = node.results[0].type.dtype == "bool"
        waits = any(v in self._deferred for v in operands) or (
            decides and any(contents.moves(self.known.get(v)) for v in operands)
        )
        return waits and contents.may_be_shape(node)

    @abstractmethod
    def find(self, name: str) -> Value:
        """Return a value by name."""

    def _settle(self, fresh: Sequence[Node]) -> dict[Value, Value]:
        """Find the contents of what nodes made; return the constants that some of it has become."""
        folded: dict[Value, Value] = {}
        for node in fresh:
            for v in node.results:
                check_size(f"the result of {node.op.name}", v.type)
            if self.folds and (arrays := _folding(node, folded)) is not None:
                results = apply(node.op, arrays, node.regions)
                for v, array in zip(node.results, results, strict=True):
                    exact = np.ascontiguousarray(array).reshape(array.shape)
                    folded[v] = self.g.constant(exact, copy=False)
                    self.known[v] = contents.of_constant(folded[v])
                continue
            elements = self._shape_contents(node)
            self.known |= dict.fromkeys(node.results, elements)
            if self.folds and elements is not None and contents.numbers(elements):
                exact = np.array(elements.ravel().tolist(), node.output.type.numpy)
                folded[node.output] = self.g.constant(exact.reshape(elements.shape))
        return folded

    def _shape_contents(self, node: Node) -> Array | None:
        if hasattr(node.op, "extents_of"):  # Shape and Size know their result from the type
            v = node.inputs[0]
            assert v is not None, "what has extents is there"
            extents = np.empty(node.output.type.extents, object)
            extents[...] = node.op.extents_of(v.type)
            return extents
        if self._defers(node):
            self._deferred.add(node.output)
            return None
        return self._propagated(node)

    def _missed(self, needed: Needed) -> None:
        """Take down whose elements were missed, and what computes them."""
        if needed.value is not None:
            self.values[needed.name] = needed.value
        self.values |= needed.beside
        self.beside |= dict.fromkeys(needed.beside)
        if needed.name:
            self.needs[needed.name] = None

    def _since(self, before: int) -> Sequence[Node]:
        """Return the nodes of the graph without the first `before`."""
        return list(islice(reversed(self.g.nodes), max(0, len(self.g.nodes) - before)))[::-1]

    def _tried(self, imported: Callable[[], Made]) -> Made:
        """Return the results of importing a node, if need be under extents that fit."""
        try:
            return imported()
        except (AlpenglowError, Undecided, Needed) as error:
            if isinstance(error, Needed) and error.name:
                raise
            retry = reconciled(imported)
            if retry is None:
                raise
            return retry

    def _converted(
        self, convert: Callable[[], Made], kind: str, label: str, operands: Iterable[str]
    ) -> Made:  # fmt: skip
        """Return the results of converting a node; remove the nodes that it appended if it fails.

        `kind` is the operator, and `label` what messages call the node.  If the elements of an
        operand come from a run, they may be at fault.
        """
        before = len(self.g.nodes)
        try:
            return convert()
        except (AlpenglowError, Undecided, Needed, *NONSENSE) as error:
            if isinstance(error, Needed) and error.value is not None:
                raise  # the graph computes it first
            for node in reversed(self._since(before)):
                self.g.remove(node)
            if isinstance(error, Undecided | Needed):
                raise
            if isinstance(error, ModelError | TypeRuleError) and any(
                name in self.given.elements for name in operands
            ):
                raise FeedError(error.message, node=label, hint=error.hint) from error
            if isinstance(error, AlpenglowError):
                raise error.located(node=label) from None
            raise nonsense(kind, self.format, error, node=label) from error


def _folding(node: Node, folded: Mapping[Value, Value]) -> list[Array | None] | None:
    """Return the operands of a node if they are small constants and its results are small."""
    inputs = [folded.get(v, v) if v is not None else None for v in node.inputs]
    if any(v is not None and (v.array is None or v.type.size > LARGEST_OPERAND) for v in inputs):
        return None
    if not node.op.pure or isinstance(node.op, InRange):
        return None
    if any(v.type.symbols() or v.type.size > contents.LIMIT for v in node.results):
        return None
    return [None if v is None else v.array for v in inputs] if is_closed(node) else None
