"""A part of a traced graph as a function on tensors: compiled at the first call, without copies.

Tensors that PyTorch says are always the same (parameters, buffers) are constants of the code.  Each
call compares their identity, address and version with those that were compiled in, and compiles
again if one differs.  Writing through ``tensor.data`` or through an array that shares memory bumps
no version: such a write is not seen (nor is it by others that freeze).

What one compilation makes is one `Code`, published by one assignment when it is complete.  An error
or an interrupt while compiling leaves the code before, which the next call finds outdated again.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from alpenglow.base.locks import new_rlock
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
from alpenglow.ops.tensor.movement import Transpose
from alpenglow.program.instr import Program
from alpenglow.runtime.call import short
from alpenglow.runtime.executables.executor import Executable
from alpenglow.runtime.session.held import Held

LOG = logging.getLogger(__name__)

VERSION = operator.attrgetter("_version")
PLACE = torch.Tensor.data_ptr
"""What tells that a tensor was changed: these are asked of hundreds in each call."""

MOST_FREEZES = 3
"""After so many changes of what was frozen it is an input, like all else."""

_compiling = new_rlock()
"""Held while code is made, so that two threads that miss the same code do not both compile it."""


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


@dataclass(frozen=True, slots=True, eq=False)
class Code:
    """The executable of one compilation of a body, and the tensors that are its constants.

    `frozen` are the tensors at the places `fixed`, which had these `versions` and lay at these
    `addresses`; `changes` is how many compilations before were outdated by such a tensor.  `free`
    are the places of inputs that a call passes on.  `carried` are the extents and `scalars` the
    numbers that no input tells, which a call passes on behind these.
    """

    executable: Executable
    fixed: tuple[int, ...]
    frozen: tuple[Any, ...]
    versions: tuple[int, ...]
    addresses: tuple[int, ...]
    changes: int
    free: tuple[int, ...]
    carried: tuple[str, ...]
    scalars: tuple[str, ...]

    def is_current(self, arguments: Sequence[Any]) -> bool:
        """Return True if the frozen tensors are those of this call, as they were compiled in."""
        now = [arguments[i] for i in self.fixed]
        return (
            all(map(operator.is_, now, self.frozen))
            and tuple(map(VERSION, now)) == self.versions
            and tuple(map(PLACE, now)) == self.addresses
        )


class Compiled:
    """A body as a function of its inputs, in order, that returns its outputs.

    `fixed` are the places of inputs that are always the same tensor; `forms` says how tensors lie.
    `writes` are the places of outputs that are what an input holds afterwards, with those of the
    inputs: what can be is computed where the input lies, and None stands in its place then.
    """

    def __init__(
        self, body: Body, ranges: Ranges, forms: Mapping[str, Lying], fixed: frozenset[int],
        options: Options | None, writes: Mapping[int, int],
    ) -> None:  # fmt: skip
        self.body = body
        self._writes = {at: i for at, i in writes.items() if _stays(forms[body.inputs[i]])}
        self._ranges = ranges
        self._forms = forms
        self._options = options
        self._fixed = tuple(i for i in range(len(body.inputs)) if i in fixed)
        self._code: Code | None = None
        self._variables = [body.inputs[i] for i in self._writes.values()]
        names = [a.name for a in body.outputs if isinstance(a, Ref)]
        self._outputs = [None if at in self._writes else forms[n] for at, n in enumerate(names)]

    @property
    def executable(self) -> Executable | None:
        """What was compiled; None before the first call."""
        return None if self._code is None else self._code.executable

    def __call__(self, arguments: Sequence[Any], values: Mapping[str, int]) -> list[Any]:
        """Return the outputs; `values` are those of the symbols of extents."""
        code = self._code
        if code is None or not code.is_current(arguments):
            code = self._renewed(arguments)
        tensors = [self._dense(i, arguments[i]) for i in code.free]
        states = [self._dense(i, arguments[i]) for i in self._writes.values()]
        if code.carried or code.scalars:
            tensors += [torch.empty((values[s], 0), dtype=torch.uint8) for s in code.carried]
            tensors += [torch.tensor(values[s], dtype=torch.int64) for s in code.scalars]
        outputs = [_empty(form, values) for form in self._outputs if form is not None]
        self._run(code.executable, tensors, outputs, states)
        for state, i in zip(states, self._writes.values(), strict=True):
            lying = _in_order(arguments[i], self._forms[self.body.inputs[i]])
            if state.data_ptr() != lying.data_ptr():
                lying.detach().copy_(state)
        made = iter(outputs)
        return [None if f is None else _finished(next(made), f, values) for f in self._outputs]

    def _renewed(self, arguments: Sequence[Any]) -> Code:
        """Return code for these arguments: what another thread has just made, or new code."""
        with _compiling:
            code = self._code
            if code is None or not code.is_current(arguments):
                code = self._code = self._made(arguments, code)
        return code

    def _made(self, arguments: Sequence[Any], before: Code | None) -> Code:
        """Compile for the tensors in `arguments`; nothing of this object changes meanwhile."""
        changes = 0
        if before is not None:
            changes = before.changes + 1
            LOG.info("%s: a parameter or buffer was changed; compiled anew", self.body.inputs[:1])
        freezes = self._fixed if changes < MOST_FREEZES else ()
        # What was made in inference mode counts no versions: it could not be seen to change.
        fixed = tuple(i for i in freezes if not arguments[i].is_inference())
        frozen = tuple(arguments[i] for i in fixed)
        # Versions are read first: a change by another thread meanwhile is found at the next call.
        versions, addresses = tuple(map(VERSION, frozen)), tuple(map(PLACE, frozen))
        constants = dict(zip(fixed, frozen, strict=True))
        written = frozenset(self._writes.values())
        free = tuple(
            i for i, name in enumerate(self.body.inputs)
            if i not in constants and i not in written and name in self.body.types
        )  # fmt: skip
        graph, carried, scalars = self._graph(constants)
        executable = compile(graph, options=self._options)
        return Code(executable, fixed, frozen, versions, addresses, changes, free, carried, scalars)

    def _graph(
        self, constants: Mapping[int, Any]
    ) -> tuple[Graph, tuple[str, ...], tuple[str, ...]]:
        """Return the graph of the body, and the symbols that are inputs of it: see `_untold`.

        Inputs and outputs have their axes as they lie.
        """
        g = Graph("torch")
        named = fx.arrays({str(i): x for i, x in constants.items()})
        operands: list[Value | None] = []
        written = frozenset(self._writes.values())
        for i, name in enumerate(self.body.inputs):
            t = self.body.types.get(name)
            if i in constants:
                operands.append(g.constant(named[str(i)], name, copy=False))
            else:
                operands.append(None if t is None else self._input(g, name, t, i in written))
        importer = Importer(g, self._ranges, trusted=True)
        carried, scalars = _untold(self.body, {n: v.type.shape for n, v in g.inputs.items()})
        for s in carried:
            g.input(f"extent_{s}", TensorType("u8", (symbol(s), 0)))
        for s in scalars:
            importer.scalars[s] = g.input(f"number_{s}", TensorType("i64", ()))
        results = importer.body(self.body, operands)
        assert not importer.refusals, listed(importer.refusals)
        for i, (v, form) in enumerate(zip(results, self._outputs, strict=True)):
            if form is None:
                name = self.body.inputs[self._writes[i]]
                g.assign(name, _lain(g, v, self._forms[name]))
            else:
                g.output(f"output_{i}", _lain(g, v, form))
        symbols = {s for v in g.inputs.values() for s in v.type.symbols()}
        g.guards = (*guards(self._ranges, symbols), *importer.demands)
        g.prune()
        return g, carried, scalars

    def _input(self, g: Graph, name: str, t: TensorType, is_written: bool) -> Value:
        form = self._forms[name]
        if form.perm is not None:
            t = t.with_shape(t.shape[p] for p in form.perm)
        if is_written:  # what it begins with is in the caller's memory
            lying = g.variable(name, np.broadcast_to(np.zeros((), t.numpy), t.extents))
        else:
            lying = g.input(name, t)
        if form.perm is None or form.is_plain:
            return lying
        return g(Transpose(tuple(form.perm.index(i) for i in range(t.rank))), lying)

    def _dense(self, i: int, tensor: Any) -> Any:
        """Return an input as the graph takes it: with its axes as they lie, without gaps."""
        tensor = _in_order(tensor, self._forms[self.body.inputs[i]])
        if tensor.is_conj() or tensor.is_neg():
            tensor = tensor.resolve_conj().resolve_neg()
        return tensor if tensor.is_contiguous() else tensor.contiguous()

    def _run(
        self, exe: Executable, tensors: Sequence[Any], outputs: Sequence[Any],
        states: Sequence[Any],
    ) -> None:  # fmt: skip
        """Run on tensors that lie as inputs do, into memory for outputs, and change states."""
        place = exe.short_place(tensors, bool(states))
        if place is not None:
            threads = torch.get_num_threads()
            memory, elsewhere = self._memory(place[0].artifact.program, states)
            short.run_at(place, [x.data_ptr() for x in tensors], [x.data_ptr() for x in outputs],
                         threads, exe.running, memory)  # fmt: skip
            for state, new in elsewhere:
                state.detach().copy_(new)
            return
        arrays = dict(zip(exe.inputs, map(fx.array_of, tensors), strict=True))
        forms = [form for form in self._outputs if form is not None]
        lying = [_in_order(y, form) for y, form in zip(outputs, forms, strict=True)]
        results = dict(zip(exe.outputs, map(fx.array_of, lying), strict=True))
        exe.threads = torch.get_num_threads()  # another thread's count changes no result
        own = dict(zip(self._variables, map(fx.array_of, states), strict=True))
        held = Held.of(dict(own)) if own else None
        exe.run_some(arrays, results, None, None, held)
        for name, array in own.items():
            assert held is not None, "what is there is held"
            if held.arrays[name] is not array:
                array[...] = held.arrays[name]

    def _memory(
        self, program: Program, states: Sequence[Any]
    ) -> tuple[dict[str, int], list[tuple[Any, Any]]]:
        """Return where variables lie, and states with what is computed of them elsewhere."""
        memory: dict[str, int] = {}
        elsewhere = []
        for name, state in zip(self._variables, states, strict=True):
            memory[name] = state.data_ptr()
            cell = program.variables[name]
            if cell.exit not in ("", name):
                new = torch.empty_like(state)
                memory[cell.exit] = new.data_ptr()
                elsewhere.append((state, new))
        return memory, elsewhere


def _stays(form: Lying) -> bool:
    """Whether compiled code may write where a tensor lies: of known extents, without gaps."""
    open_ = any(is_open(d) for d in form.shape)
    return form.perm is not None and not open_ and not form.dtype.is_complex


def _lain(g: Graph, v: Value, form: Lying) -> Value:
    """Return a value with its axes as they lie."""
    return v if form.perm is None or form.is_plain else g(Transpose(form.perm), v)


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
