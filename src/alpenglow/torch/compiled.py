"""A part of a traced graph as a function on tensors: compiled at the first call, without copies.

Tensors that PyTorch says are always the same (parameters, buffers) are constants of the code.  Each
call compares their identity, place and version with what was compiled, so one that was changed is
compiled in anew.  Writing through ``tensor.data`` or an array that shares memory bumps no version:
that is not seen (nor is it by others that freeze).
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from alpenglow.compiler.options import Options
from alpenglow.driver.compile import compile
from alpenglow.frontends.torch import fx
from alpenglow.frontends.torch.importer import Importer
from alpenglow.frontends.torch.program import Argument, Body, Ref
from alpenglow.frontends.torch.refusals import listed
from alpenglow.frontends.torch.symbols import Ranges, guards
from alpenglow.ir.dims import Dim, Sym, bind, is_open, names, symbol
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.solve import sources
from alpenglow.ir.types import TensorType
from alpenglow.ops.movement import Transpose
from alpenglow.runtime import short
from alpenglow.runtime.executor import Executable

LOG = logging.getLogger(__name__)

VERSION = operator.attrgetter("_version")
PLACE = torch.Tensor.data_ptr
"""What tells that a tensor was changed: these are asked of hundreds in each call."""

MOST_FREEZES = 3
"""After so many changes of what was frozen it is an input, like all else."""


@dataclass(frozen=True, slots=True)
class Lying:
    """How a tensor lies in memory: dense with its axes in the order `perm`, outermost first.

    `shape` and `strides` are as PyTorch states them.  `perm` is None where the tensor is not dense.
    """

    dtype: Any
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    perm: tuple[int, ...] | None

    @property
    def is_plain(self) -> bool:
        """Whether axes lie in order."""
        return self.perm == tuple(range(len(self.shape)))


def lying(fake: Any) -> Lying:
    """Return how the tensor that a fake one stands for lies."""
    shape, strides = fx.dims_of(fake.shape), fx.dims_of(fake.stride())
    hints = [s if isinstance(s, int) else s.node.hint for s in fake.stride()]
    extents = [s if isinstance(s, int) else s.node.hint for s in fake.shape]
    if fake.is_contiguous():
        return Lying(fake.dtype, shape, strides, tuple(range(len(shape))))
    known = all(isinstance(x, int) for x in (*hints, *extents))
    order = sorted(range(len(shape)), key=lambda i: (-hints[i], i)) if known else []
    return Lying(
        fake.dtype, shape, strides, tuple(order) if _dense(shape, strides, order) else None
    )


def _dense(shape: Sequence[Dim], strides: Sequence[Dim], order: Sequence[int]) -> bool:
    """Whether axes in an order, outermost first, lie without gaps."""
    if len(order) != len(shape):
        return False
    step: Dim = 1
    for axis in reversed(order):
        if shape[axis] != 1 and strides[axis] != step:
            return False
        step = step * shape[axis]
    return True


class Compiled:
    """A body as a function of its inputs, in order, that returns its outputs.

    `fixed` are the places of inputs that are always the same tensor; `forms` says how tensors lie.
    """

    def __init__(
        self, body: Body, ranges: Ranges, forms: Mapping[str, Lying], fixed: frozenset[int],
        options: Options | None,
    ) -> None:  # fmt: skip
        self.body = body
        self._ranges = ranges
        self._forms = forms
        self._options = options
        self._fixed = tuple(i for i in range(len(body.inputs)) if i in fixed)
        self._frozen: list[Any] = []
        self._versions: list[int] = []
        self._places: list[int] = []
        self._freezes = 0
        self._executable: Executable | None = None
        self._free: tuple[int, ...] = ()
        # Symbols that follow from no input: extents, which an empty input tells, and numbers.
        self._carried: tuple[str, ...] = ()
        self._scalars: tuple[str, ...] = ()
        names = [a.name for a in body.outputs if isinstance(a, Ref)]
        self._outputs = [forms[name] for name in names]

    @property
    def executable(self) -> Executable | None:
        """What was compiled; None before the first call."""
        return self._executable

    def __call__(self, arguments: Sequence[Any], values: Mapping[str, int]) -> list[Any]:
        """Return the outputs; `values` are those of the symbols of extents."""
        if self._executable is None or not self._is_current(arguments):
            self._compile(arguments)
        tensors = [self._dense(i, arguments[i]) for i in self._free]
        if self._carried or self._scalars:
            tensors += [torch.empty((values[s], 0), dtype=torch.uint8) for s in self._carried]
            tensors += [torch.tensor(values[s], dtype=torch.int64) for s in self._scalars]
        outputs = [_empty(form, values) for form in self._outputs]
        self._run(tensors, outputs)
        return [_finished(y, form, values) for y, form in zip(outputs, self._outputs, strict=True)]

    def _is_current(self, arguments: Sequence[Any]) -> bool:
        """Whether what is always the same tensor still is what was compiled in."""
        now = [arguments[i] for i in self._fixed]
        return (
            all(map(operator.is_, now, self._frozen))
            and list(map(VERSION, now)) == self._versions
            and list(map(PLACE, now)) == self._places
        )

    def _compile(self, arguments: Sequence[Any]) -> None:
        if self._executable is not None:
            self._freezes += 1
            LOG.info("%s: a parameter or buffer was changed; compiled anew", self.body.inputs[:1])
        if self._freezes >= MOST_FREEZES:
            self._fixed = ()
        # What was made in inference mode counts no versions: it could not be seen to change.
        self._fixed = tuple(i for i in self._fixed if not arguments[i].is_inference())
        frozen = [arguments[i] for i in self._fixed]
        # Versions are read first: a change by another thread meanwhile is found at the next call.
        self._versions = list(map(VERSION, frozen))
        self._places = list(map(PLACE, frozen))
        self._frozen = frozen
        constants = dict(zip(self._fixed, frozen, strict=True))
        self._free = tuple(
            i for i, name in enumerate(self.body.inputs)
            if i not in constants and name in self.body.types
        )  # fmt: skip
        graph = self._graph(constants)
        self._executable = compile(graph, options=self._options)

    def _graph(self, constants: Mapping[int, Any]) -> Graph:
        """Return the graph of the body; inputs and outputs have their axes as they lie."""
        g = Graph("torch")
        named = fx.arrays({str(i): x for i, x in constants.items()})
        operands: list[Value | None] = []
        for i, name in enumerate(self.body.inputs):
            t = self.body.types.get(name)
            if i in constants:
                operands.append(g.constant(named[str(i)], name))
            else:
                operands.append(None if t is None else self._input(g, name, t))
        importer = Importer(g, self._ranges, trusted=True)
        self._carried, self._scalars = _untold(
            self.body, {n: v.type.shape for n, v in g.inputs.items()}
        )
        for s in self._carried:
            g.input(f"extent_{s}", TensorType("u8", (symbol(s), 0)))
        for s in self._scalars:
            importer.scalars[s] = g.input(f"number_{s}", TensorType("i64", ()))
        results = importer.run(self.body, operands)
        assert not importer.refusals, listed(importer.refusals)
        for i, (v, form) in enumerate(zip(results, self._outputs, strict=True)):
            perm = form.perm
            g.output(f"output_{i}", v if perm is None or form.is_plain else g(Transpose(perm), v))
        symbols = {s for v in g.inputs.values() for s in v.type.symbols()}
        g.guards = (*guards(self._ranges, symbols), *importer.demands)
        g.prune()
        return g

    def _input(self, g: Graph, name: str, t: TensorType) -> Value:
        form = self._forms[name]
        if form.perm is None or form.is_plain:
            return g.input(name, t)
        lying = g.input(name, t.with_shape(t.shape[p] for p in form.perm))
        return g(Transpose(tuple(form.perm.index(i) for i in range(t.rank))), lying)

    def _dense(self, i: int, tensor: Any) -> Any:
        """Return an input as the graph takes it: with its axes as they lie, without gaps."""
        tensor = _in_order(tensor, self._forms[self.body.inputs[i]])
        if tensor.is_conj() or tensor.is_neg():
            tensor = tensor.resolve_conj().resolve_neg()
        return tensor if tensor.is_contiguous() else tensor.contiguous()

    def _run(self, tensors: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Run on tensors that lie as inputs do, and into memory for outputs."""
        exe = self._executable
        assert exe is not None, "it is compiled before it runs"
        place = exe.short_place(tensors)
        if place is not None:
            threads = torch.get_num_threads()
            short.run_at(place, [x.data_ptr() for x in tensors], [x.data_ptr() for x in outputs],
                         threads, exe.running)  # fmt: skip
            return
        arrays = dict(zip(exe.inputs, map(fx.array_of, tensors), strict=True))
        lying = [_in_order(y, form) for y, form in zip(outputs, self._outputs, strict=True)]
        results = dict(zip(exe.outputs, map(fx.array_of, lying), strict=True))
        exe.threads = torch.get_num_threads()
        exe.run(arrays, out=results)


def _untold(
    body: Body, shapes: Mapping[str, Sequence[Dim]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the symbols of a body that shapes do not tell: extents, and those that are numbers."""
    told = {s.symbol for s in sources(shapes)}
    made = [body.types[n] for c in body.calls for n in c.results if n in body.types]
    extents = {s for t in made for s in t.symbols()} - told
    numbers = {s for c in body.calls for a in c.arguments.values() for s in _symbols(a)}
    return tuple(sorted(extents)), tuple(sorted(numbers - told - extents))


def _symbols(argument: Argument) -> set[str]:
    if isinstance(argument, tuple):
        return {s for a in argument for s in _symbols(a)}
    return names(argument) if isinstance(argument, Sym) else set()


def _empty(form: Lying, values: Mapping[str, int]) -> Any:
    """Return memory for a result, with the strides that PyTorch states if these leave no gaps."""
    shape = [bind(d, values) if is_open(d) else d for d in form.shape]
    if form.perm is None:
        return torch.empty(shape, dtype=form.dtype)
    return torch.empty_strided(shape, _strides(form, values), dtype=form.dtype)


def _strides(form: Lying, values: Mapping[str, int]) -> list[Any]:
    return [bind(d, values) if is_open(d) else d for d in form.strides]


def _finished(memory: Any, form: Lying, values: Mapping[str, int]) -> Any:
    """Return a result of its memory, which is that itself unless its strides leave gaps.

    Strides may also be 0, where elements are the same.
    """
    if form.perm is not None:
        return memory
    strides = _strides(form, values)
    once = [1 if step == 0 else extent for extent, step in zip(memory.shape, strides, strict=True)]
    copy = torch.empty_strided(once, strides, dtype=form.dtype)
    copy.copy_(memory[tuple(slice(0, n) for n in once)])
    return copy.expand(memory.shape)


def _in_order(tensor: Any, form: Lying) -> Any:
    """Return a tensor with its axes as they lie."""
    return tensor if form.perm is None or form.is_plain else tensor.permute(form.perm)
