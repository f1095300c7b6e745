"""Verification: a kernel that passes means one thing, to the evaluator and to every renderer.

Texts of kernels are not believed, and what templates, loop forms and passes build is looked at
under validation.  After `verify_kernel`

- operands and arrays have names of their own; arrays are mutable and have a size, operands none;
- a buffer that is read or written is one of these, and one that is written is mutable;
- extents, indices in scope and registers have different names, and none is changed but registers;
- an index is read inside of its loop, an extent everywhere, a register after its first assignment
  in the text, always with the same type;
- the threads of a group make whole subgroups, of a power of two;
- operations are those of the language, and their operands agree in element type and lanes;
- addresses and extents of loops are i64, masks and conditions bool, a mask as wide as its access;
- a number as an address of an array lies within it, with all the lanes that it takes there;
- lanes that are shuffled or blended are lanes that there are;
- fragments have all their rows and columns, and as many elements for each thread of a subgroup;
- a parallel loop stands outermost and last; loops of groups stand outside of all others, and those
  of threads outside of all but groups;
- a barrier is met by all threads of a group, and what goes across the threads of a subgroup by all
  of these: no branch or loop around asks of data or of threads that go apart (`kernel.uniform`).

That addresses which are computed stay within operands is proved elsewhere (`kernel.bounds`); on
which element types an operation is defined is for renderers to say.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import get_args

from alpenglow.base.errors import KernelError
from alpenglow.base.memory import MOST_NBYTES
from alpenglow.base.words import shown
from alpenglow.ir.types import DTYPES
from alpenglow.kernel.across import Across
from alpenglow.kernel.expr import (
    BINARY,
    COMPARE,
    REDUCE,
    UNARY,
    Binary,
    Bitcast,
    Blend,
    Buffer,
    Compare,
    Const,
    Convert,
    Expr,
    Fma,
    Index,
    Intrinsic,
    Lanes,
    Lanewise,
    Load,
    Lookup,
    Reduce,
    Register,
    Select,
    Shape,
    Shuffle,
    Splat,
    Unary,
    children,
    type_text,
)
from alpenglow.kernel.fragments import PRODUCTS, Mma, Tile
from alpenglow.kernel.intrinsics import INTRINSICS
from alpenglow.kernel.stmt import (
    Atomic,
    Barrier,
    Commit,
    Copy,
    For,
    If,
    Kernel,
    Kind,
    Prefetch,
    Set,
    Stmt,
    Store,
    StoreTile,
    Wait,
    While,
)
from alpenglow.kernel.uniform import partings

Type = tuple[str, int]
"""An element type and how many lanes."""


def verify_kernel(kernel: Kernel) -> None:
    """Raise KernelError if `kernel` breaks a rule of kernels."""
    _Verifier(kernel).run()


def verify_subgroup(kernel: Kernel) -> None:
    """Raise KernelError if the threads of a group do not make whole subgroups."""
    size, count = kernel.subgroup, kernel.launch.count
    if size < 1 or size.bit_count() > 1:
        raise KernelError(f"subgroup is {size} threads, expected a power of two")
    if size > 1 and (count is None or count % size):
        threads = "an unknown number of" if count is None else count
        raise KernelError(
            f"a group has {threads} threads, expected a multiple of the subgroup of {size} "
            f"(kernel {shown(kernel.name)})"
        )


class _Verifier:
    """What may be read at a statement of a kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.buffers: dict[str, Buffer] = {}
        self.indices = {e.name for e in kernel.extents}
        """Extents, and the indices of the loops around."""
        self.registers: dict[str, Type] = {}
        self.around: list[str] = []
        """The kinds of the statements around: those of loops, "if", "while"."""
        threads = bool(kernel.launch.threads)
        self.apart = partings(kernel) if threads else {}
        """The branches and loops that keep threads of a group from a statement, by its id."""
        self.split = partings(kernel, kernel.subgroup) if kernel.subgroup > 1 else {}
        """Those that keep threads of a subgroup from it."""
        self.here = 0
        """The id of the statement that is looked at."""

    def run(self) -> None:
        k = self.kernel
        if len(self.indices) < len(k.extents):
            raise KernelError(f"extents of kernel {shown(k.name)} repeat, expected unique names")
        for b in k.buffers:
            self._declare(b, b.space == "global" and not b.size, "a global operand without a size")
        for b in k.arrays:
            fits = b.space != "global" and b.mutable and b.size > 0
            self._declare(b, fits, "a mutable array, shared or local, with a size")
        verify_subgroup(k)
        if k.parallel is not None:
            self._block(k.body[:-1])
            self._at(k.body[-1], last=True)
        else:
            self._block(k.body)

    def _declare(self, b: Buffer, fits: bool, expected: str) -> None:
        what = f"buffer {shown(b.name)}"
        if b.name in self.buffers:
            raise KernelError(f"{what} is already declared")
        if b.dtype not in DTYPES or not fits:
            raise KernelError(f"{what} is {b.space} {b.dtype}, size {b.size}; expected {expected}")
        if b.size * DTYPES[b.dtype].itemsize > MOST_NBYTES:
            raise KernelError(f"{what} has size {b.size}, expected at most {MOST_NBYTES} bytes")
        if b.align < 0 or b.align & (b.align - 1):
            raise KernelError(f"{what} is aligned to {b.align}, expected 0 or a power of two")
        self.buffers[b.name] = b

    # ── statements ──

    def _block(self, body: tuple[Stmt, ...]) -> None:
        for s in body:
            self._at(s)

    def _at(self, s: Stmt, last: bool = False) -> None:
        """Check a statement; say which it is where it breaks a rule."""
        self.here = id(s)
        try:
            self._statement(s, last)
        except KernelError as error:
            raise KernelError(error.message, node=error.node or _shown(s)) from None

    def _statement(self, s: Stmt, last: bool) -> None:
        match s:
            case Set(register, value):
                self._set(register, self._expr(value))
                _check(
                    register.shape == value.shape, f"{type_text(value)} is no {type_text(register)}"
                )
            case Store(buffer, at, value, mask):
                _check(value.shape is None, "a fragment is stored with a stride")
                dtype, lanes = self._expr(value)
                self._written(buffer, dtype)
                self._access(buffer, at, lanes, mask)
            case StoreTile(buffer, at, stride, value):
                self._written(buffer, self._expr(value)[0])
                self._tile(buffer, at, stride, value.shape)
            case Atomic(op, buffer, at, value):
                dtype, lanes = self._expr(value)
                self._written(buffer, dtype)
                self._access(buffer, at, lanes, None)
                _check(op in ("add", "min", "max"), f"no atomic operation is called {shown(op)}")
            case Copy(to, at, source, source_at, lanes, mask):
                self._written(to, source.dtype)
                self._access(to, at, lanes, None)
                self._access(source, source_at, lanes, mask)
                _check("thread" in self.around, "a copy has no threads around it")
            case Commit() | Wait():
                _check("thread" in self.around, f"a {_shown(s)} has no threads around it")
            case Prefetch(buffer, at):
                self._known(buffer)
                self._is(self._expr(at), "i64", 1, "an address to prefetch")
            case Barrier(scope):
                _check("thread" in self.around, "a barrier has no threads around it")
                apart = (self.apart if scope == "group" else self.split).get(id(s))
                _check(apart is None, f"not all threads of a {scope} need meet in {apart}")
            case For():
                self._for(s, last)
            case If(condition, then, orelse):
                self._is(self._expr(condition), "bool", 1, "a condition")
                with self._inside("if"):
                    self._block(then)
                    self._block(orelse)
            case While(condition, body):
                self._is(self._expr(condition), "bool", 1, "a condition")
                with self._inside("while"):
                    self._block(body)

    def _set(self, register: Register, t: Type) -> None:
        name = register.name
        _check(name not in self.indices, f"register {shown(name)} is an index or extent, too")
        wanted = self.registers.setdefault(name, (register.dtype, register.lanes))
        _check(
            (register.dtype, register.lanes) == wanted, f"{_type(wanted)} is set as another type"
        )
        _check(t == wanted, f"{_type(t)} is assigned to a register of {_type(wanted)}")

    def _for(self, s: For, last: bool) -> None:
        name = s.index.name
        self._is(self._expr(s.extent), "i64", 1, "the extent of a loop")
        free = name not in self.indices and name not in self.registers
        _check(free, f"index {shown(name)} is a register, extent or other index, too")
        _check(s.kind in get_args(Kind), f"no loop is {s.kind}")
        _check(s.strips >= 1, f"a loop in {s.strips} strips")
        _check(s.kind != "parallel" or last, "a parallel loop is not outermost and last")
        outside = {"group": {"group"}, "thread": {"group", "thread"}}.get(s.kind)
        _check(outside is None or outside >= set(self.around), f"a {s.kind} loop inside of others")
        self.indices.add(name)
        with self._inside(s.kind):
            self._block(s.body)
        self.indices.discard(name)

    @contextmanager
    def _inside(self, kind: str) -> Iterator[None]:
        self.around.append(kind)
        yield
        self.around.pop()

    # ── memory ──

    def _known(self, b: Buffer) -> None:
        _check(self.buffers.get(b.name) == b, f"{shown(b.name)} is no buffer of the kernel")

    def _written(self, b: Buffer, dtype: str) -> None:
        _check(b.mutable, f"{shown(b.name)} is written, but it is not mutable")
        _check(b.dtype == dtype, f"{dtype} is written to {shown(b.name)} of {b.dtype}")

    def _tile(self, b: Buffer, at: Expr, stride: Expr, shape: Shape | None) -> None:
        self._known(b)
        self._is(self._expr(at), "i64", 1, "where a tile is")
        self._is(self._expr(stride), "i64", 1, "a stride")
        _check(shape is not None, "a store with a stride: expected a fragment")
        apart = self.split.get(self.here)
        _check(apart is None, f"not all threads of a subgroup need come to a tile in {apart}")
        if b.size and shape and isinstance(at, Const) and isinstance(stride, Const):
            last = int(at.value) + (shape[0] - 1) * int(stride.value) + shape[1] - 1
            inside = at.value >= 0 and stride.value >= 0 and last < b.size
            _check(inside, f"a tile of {shown(b.name)}[{at.value}] to {last} of {b.size} elements")

    def _fragment(self, e: Expr) -> None:
        shape, threads = e.shape, self.kernel.subgroup
        assert shape is not None, "a fragment"
        whole = shape[0] * shape[1] == e.lanes > 0
        _check(whole, f"a fragment of {shape} with {e.lanes} elements")
        _check(e.lanes % threads == 0, f"{type_text(e)} of a subgroup of {threads} threads")
        if isinstance(e, Lanewise):
            alike = all(x.shape == shape for x in children(e))
            _check(alike, f"{type(e).__name__.lower()} of fragments that are not alike")

    def _access(self, b: Buffer, at: Expr, lanes: int, mask: Expr | None) -> None:
        self._known(b)
        dtype, width = self._expr(at)
        whole = dtype == "i64" and width in (1, lanes)
        _check(whole, f"an address of {_type((dtype, width))} for {lanes} lanes")
        if mask is not None:
            self._is(self._expr(mask), "bool", lanes, "a mask")
        elif isinstance(at, Const) and b.size:
            last = int(at.value) + (lanes if width == 1 else 1) - 1
            inside = at.value >= 0 and last < b.size
            _check(inside, f"{shown(b.name)}[{at.value}] to {last} of {b.size} elements")

    # ── expressions ──

    def _expr(self, e: Expr) -> Type:
        """Return the type of an expression, from those of its parts."""
        if e.shape is not None:
            self._fragment(e)
        elif any(x.shape is not None for x in children(e)):
            raise KernelError(
                f"{type(e).__name__.lower()} of a fragment, expected a scalar or vector"
            )
        match e:
            case Const(_, dtype, lanes):
                _check(dtype in DTYPES and lanes > 0, f"a constant of {_type((dtype, lanes))}")
                return dtype, lanes
            case Index(name):
                _check(name in self.indices, f"index {shown(name)} is read outside of its loop")
                return "i64", 1
            case Register(name, dtype, lanes):
                return self._register(name, (dtype, lanes))
            case Lanes(lanes):
                _check(lanes > 0, f"{lanes} lanes")
                return "i64", lanes
            case Load(buffer, at, lanes, mask):
                _check(lanes > 0, f"{lanes} lanes")
                self._access(buffer, at, lanes, mask)
                return buffer.dtype, lanes
            case Splat(x, lanes):
                dtype, width = self._expr(x)
                _check(width == 1 and lanes > 0, f"{width} lanes are splat to {lanes}")
                return dtype, lanes
            case Shuffle(x, order):
                dtype, width = self._expr(x)
                return dtype, self._lanes(order, width)
            case Blend(x, y, order):
                dtype, width = self._alike("blend", x, y)
                return dtype, self._lanes(order, 2 * width)
            case Bitcast(x, dtype):
                return self._bits(self._expr(x), dtype)
            case Lookup(_, at):
                t = self._expr(at)
                _check(t[0] == "i32", f"a table is looked up by {_type(t)}")
                return "f32", t[1]
        return self._computed(e)

    def _computed(self, e: Expr) -> Type:
        match e:
            case Unary(op, x):
                _check(op in UNARY, f"no operation is called {shown(op)}")
                return self._expr(x)
            case Binary(op, x, y):
                _check(op in BINARY, f"no operation is called {shown(op)}")
                return self._alike(op, x, y)
            case Compare(op, x, y):
                _check(op in COMPARE, f"no comparison is called {shown(op)}")
                return "bool", self._alike(op, x, y)[1]
            case Fma(x, y, z):
                return self._alike("fma", x, y, z)
            case Select(condition, x, y):
                t = self._alike("select", x, y)
                self._is(self._expr(condition), "bool", t[1], "a condition of select")
                return t
            case Convert(x, dtype):
                t = self._expr(x)
                _check(dtype in DTYPES, f"no element type is called {shown(dtype)}")
                return dtype, t[1]
            case Reduce(op, x):
                _check(op in REDUCE, f"no lanes are combined by {shown(op)}")
                return self._expr(x)[0], 1
            case Across(op, x, at):
                return self._across(op, self._expr(x), at)
            case Tile(buffer, at, stride, shape):
                self._tile(buffer, at, stride, shape)
                return buffer.dtype, e.lanes
            case Mma(acc, x, y):
                types = self._expr(x)[0], self._expr(y)[0]
                self._is(self._expr(acc), PRODUCTS.get(types, ""), e.lanes, "a sum of products")
                return e.dtype, e.lanes
            case Intrinsic(name, args):
                return self._intrinsic(name, [self._expr(a) for a in args])
        raise KernelError(f"{type(e).__name__} is not supported as an expression")

    def _register(self, name: str, t: Type) -> Type:
        _check(name in self.registers, f"register {shown(name)} is read before it is set")
        wanted = self.registers[name]
        _check(t == wanted, f"register {shown(name)} of {_type(wanted)} is read as {_type(t)}")
        return t

    def _across(self, op: str, t: Type, at: Expr | None) -> Type:
        if at is not None:
            self._is(self._expr(at), "i64", 1, f"what across.{op} takes from")
        size, apart = self.kernel.subgroup, self.split.get(self.here)
        if size == 1:
            return t
        _check(apart is None, f"not all threads of a subgroup need come to across.{op} in {apart}")
        if isinstance(at, Const):
            _check(0 <= at.value < size, f"across.{op} by {at.value} in a subgroup of {size}")
        else:
            _check(op not in ("xor", "down", "up"), f"across.{op} by another operand than a number")
        return t

    def _intrinsic(self, name: str, types: list[Type]) -> Type:
        _check(name in INTRINSICS, f"no intrinsic is called {shown(name)}")
        count, lanes = _operands(name), {t[1] for t in types}
        _check(len(types) == count, f"@{name} takes {count} operands, found {len(types)}")
        _check(len(lanes) == 1, f"@{name} of {', '.join(map(_type, types))}")
        return types[0]

    def _alike(self, what: str, *operands: Expr) -> Type:
        """Return the type that operands have, all of them."""
        types = [self._expr(x) for x in operands]
        _check(len(set(types)) == 1, f"{what} of {' and '.join(map(_type, types))}")
        return types[0]

    def _lanes(self, order: tuple[int, ...], count: int) -> int:
        inside = order and all(0 <= i < count for i in order)
        _check(bool(inside), f"lanes {list(order)} of {count}")
        return len(order)

    def _bits(self, t: Type, dtype: str) -> Type:
        bits = DTYPES[t[0]].itemsize * t[1]
        fits = dtype in DTYPES and bits % DTYPES[dtype].itemsize == 0
        _check(fits, f"the bits of {_type(t)} are no {dtype}")
        return dtype, bits // DTYPES[dtype].itemsize

    def _is(self, t: Type, dtype: str, lanes: int, what: str) -> None:
        _check(t == (dtype, lanes), f"{what} is {_type(t)}, expected {_type((dtype, lanes))}")


@cache
def _operands(intrinsic: str) -> int:
    return len(inspect.signature(INTRINSICS[intrinsic].meaning).parameters)


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise KernelError(message)


def _shown(s: Stmt) -> str:
    """Return how a statement begins."""
    match s:
        case Set(register):
            return f"{shown(register.name)} = …"
        case Store(buffer) | Atomic(_, buffer) | Prefetch(buffer):
            return f"{type(s).__name__.lower()} {shown(buffer.name)}[…]"
        case Copy(to):
            return f"copy {shown(to.name)}[…]"
        case For(index, _, _, kind):
            return f"{kind} {shown(index.name)} in …"
    return f"{type(s).__name__.lower()}"


def _type(t: Type) -> str:
    return t[0] if t[1] == 1 else f"{t[0]}x{t[1]}"
