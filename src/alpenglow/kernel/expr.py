"""The kernel language: what one instruction means to a machine.

A kernel is loops, scalar and vector expressions, registers, and typed buffers in an address
space.  Every renderer (LLVM, OpenCL C) and the NumPy evaluator give it the same meaning:

- An expression has an element type and a number of lanes (1: a scalar).  Operands of `Binary`,
  `Compare`, `Select` and `Fma` agree in both; `Splat` widens explicitly.
- Loop indices and addresses are i64.  An address counts elements of its buffer.
- A `Load` at a scalar address reads `lanes` neighbours; at a vector address it gathers.  Lanes
  whose `mask` is false are not read and give 0.  A `Store` mirrors this.
- Integer arithmetic wraps.  `div` and `rem` truncate towards zero; for unsigned and `i64`
  indices alike.  Shifts by the width or more are the template's mistake.
- `min` and `max` propagate NaN.  `round` goes to even.
- Elements of a byte or less, and complex ones, are moved, selected, and their bits read or made
  (`Bitcast`), nothing else; `kernel.narrow` converts the former.
- A register is a mutable local variable.

What is done with expressions stands in `stmt`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from alpenglow.ir.dims import Dim, Sym
from alpenglow.ir.types import DTYPES, FLOATS, UNSIGNED

Space = Literal["global", "shared", "local"]
Shape = tuple[int, int]

BINARY = ("add", "sub", "mul", "div", "rem", "min", "max", "and", "or", "xor", "shl", "shr", "pow")
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
UNARY = (
    "neg", "abs", "not", "sqrt", "floor", "ceil", "round", "trunc",
    "exp", "log", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
)  # fmt: skip
"""The second line is transcendental: a renderer may call the platform's library for them.
Formulas in f32 reach the polynomials of `kernel.math` instead."""
REDUCE = ("add", "mul", "min", "max", "or")


@dataclass(frozen=True, slots=True)
class Buffer:
    """An operand or a local array.  `align` is in bytes (0: that of one element).

    `size` counts elements and is given for `shared` and `local` arrays only.  What is `volatile`
    may change while the kernel runs: each load reads it anew.
    """

    name: str
    dtype: str
    mutable: bool = False
    space: Space = "global"
    align: int = 0
    size: int = 0
    volatile: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Expr:
    """The root of expressions.  Python's + - * // % < and == build index arithmetic."""

    made_of: ClassVar[tuple[str, ...]] = ()
    """The fields that are expressions, or may be."""

    def __init_subclass__(cls) -> None:
        types = cls.__annotations__.items()
        cls.made_of = tuple(name for name, t in types if t in ("Expr", "Expr | None"))

    @property
    def dtype(self) -> str:
        raise AssertionError("an expression says its element type")

    @property
    def lanes(self) -> int:
        raise AssertionError("an expression says its lanes")

    @property
    def shape(self) -> Shape | None:
        """The rows and columns of a fragment, which are all its lanes; None of other values."""
        return None

    def __add__(self, other: Expr | Dim) -> Expr:
        return fold("add", self, lift(other))

    def __radd__(self, other: Dim) -> Expr:
        return fold("add", lift(other), self)

    def __sub__(self, other: Expr | Dim) -> Expr:
        return fold("sub", self, lift(other))

    def __rsub__(self, other: Dim) -> Expr:
        return fold("sub", lift(other), self)

    def __mul__(self, other: Expr | Dim) -> Expr:
        return fold("mul", self, lift(other))

    def __rmul__(self, other: int) -> Expr:
        return fold("mul", lift(other), self)

    def __floordiv__(self, other: Expr | Dim) -> Expr:
        return fold("div", self, lift(other))

    def __mod__(self, other: Expr | Dim) -> Expr:
        return fold("rem", self, lift(other))


@dataclass(frozen=True, slots=True, eq=False)
class Const(Expr):
    """A number in all lanes; an extent is the number that it stands for where this is built."""

    value: int | float | bool
    dtype: str = "i64"
    lanes: int = 1
    shape: Shape | None = None

    def __post_init__(self) -> None:
        value: object = self.value  # an extent that is open passes for a number
        if isinstance(value, Sym):
            object.__setattr__(self, "value", int(value))

    @property
    def bits(self) -> int:
        """The bits of the number as an unsigned one."""
        return int.from_bytes(np.asarray(self.value, DTYPES[self.dtype]).tobytes(), "little")


@dataclass(frozen=True, slots=True, eq=False)
class Index(Expr):
    """The variable of a loop, or a run-time extent of the kernel: then `dim` says which."""

    name: str
    dim: Sym | None = None

    @property
    def dtype(self) -> str:
        return "i64"

    @property
    def lanes(self) -> int:
        return 1


@dataclass(frozen=True, slots=True, eq=False)
class Register(Expr):
    """A mutable local variable."""

    name: str
    dtype: str
    lanes: int = 1
    shape: Shape | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Lanes(Expr):
    """The vector 0, 1, … lanes-1 of i64."""

    lanes: int

    @property
    def dtype(self) -> str:
        return "i64"


class Lanewise(Expr):
    """What is done to each lane of x, or each element of a fragment, for itself."""

    __slots__ = ()
    x: Expr

    @property
    def dtype(self) -> str:
        return self.x.dtype

    @property
    def lanes(self) -> int:
        return self.x.lanes

    @property
    def shape(self) -> Shape | None:
        return self.x.shape


@dataclass(frozen=True, slots=True, eq=False)
class Unary(Lanewise):
    op: str
    x: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Binary(Lanewise):
    op: str
    x: Expr
    y: Expr

    def __post_init__(self) -> None:
        alike(self.op, self.x, self.y)


@dataclass(frozen=True, slots=True, eq=False)
class Compare(Lanewise):
    """A comparison; false for NaN, except `ne`."""

    op: str
    x: Expr
    y: Expr

    def __post_init__(self) -> None:
        alike(self.op, self.x, self.y)

    @property
    def dtype(self) -> str:
        return "bool"


@dataclass(frozen=True, slots=True, eq=False)
class Fma(Lanewise):
    """x * y + z, rounded once."""

    x: Expr
    y: Expr
    z: Expr

    def __post_init__(self) -> None:
        alike("fma", self.x, self.y)
        alike("fma", self.x, self.z)


@dataclass(frozen=True, slots=True, eq=False)
class Select(Lanewise):
    """x where the condition holds, else y; both are evaluated."""

    condition: Expr
    x: Expr
    y: Expr

    def __post_init__(self) -> None:
        alike("select", self.x, self.y)
        assert self.condition.dtype == "bool" and self.condition.lanes == self.x.lanes


@dataclass(frozen=True, slots=True, eq=False)
class Convert(Lanewise):
    """x as another element type; to bool asks for != 0.

    A float becomes an integer by truncation to i64 (if that, u32 or u64 is wanted) or else i32;
    what does not fit there, NaN too, gives the least integer.  A narrower integer then wraps.
    """

    x: Expr
    dtype: str


@dataclass(frozen=True, slots=True, eq=False)
class Bitcast(Expr):
    """The bits of x read as another element type.

    Of another width there are fewer or more lanes: i32 of a u8x4 is one number, lowest byte first.
    """

    x: Expr
    dtype: str

    def __post_init__(self) -> None:
        bits = DTYPES[self.x.dtype].itemsize * self.x.lanes
        assert bits % DTYPES[self.dtype].itemsize == 0, f"{self.x.dtype}x{self.x.lanes}"

    @property
    def lanes(self) -> int:
        return DTYPES[self.x.dtype].itemsize * self.x.lanes // DTYPES[self.dtype].itemsize


@dataclass(frozen=True, slots=True, eq=False)
class Splat(Expr):
    """A scalar in every lane."""

    x: Expr
    lanes: int

    @property
    def dtype(self) -> str:
        return self.x.dtype


@dataclass(frozen=True, slots=True, eq=False)
class Load(Expr):
    """`lanes` elements from `at` on (scalar address), or one an address (vector address).

    An `operand` is one element that is to stay in memory: what takes it reads it there.
    """

    buffer: Buffer
    at: Expr
    lanes: int = 1
    mask: Expr | None = None
    operand: bool = False

    def __post_init__(self) -> None:
        assert self.at.dtype == "i64" and self.at.lanes in (1, self.lanes)
        assert not self.operand or (self.lanes == 1 and self.mask is None), "an element"

    @property
    def dtype(self) -> str:
        return self.buffer.dtype


@dataclass(frozen=True, slots=True, eq=False)
class Reduce(Expr):
    """All lanes of x combined into a scalar, pairwise from the halves.

    Of bool there is ``or`` alone.
    """

    op: str
    x: Expr

    @property
    def dtype(self) -> str:
        return self.x.dtype

    @property
    def lanes(self) -> int:
        return 1


@dataclass(frozen=True, slots=True, eq=False)
class Shuffle(Expr):
    """Lane i of the result is lane order[i] of x."""

    x: Expr
    order: tuple[int, ...]

    @property
    def dtype(self) -> str:
        return self.x.dtype

    @property
    def lanes(self) -> int:
        return len(self.order)


@dataclass(frozen=True, slots=True, eq=False)
class Blend(Expr):
    """Lane i of the result is lane order[i] of x followed by y, which are alike."""

    x: Expr
    y: Expr
    order: tuple[int, ...]

    def __post_init__(self) -> None:
        alike("blend", self.x, self.y)
        assert self.x.lanes > 1 and all(0 <= i < 2 * self.x.lanes for i in self.order)

    @property
    def dtype(self) -> str:
        return self.x.dtype

    @property
    def lanes(self) -> int:
        return len(self.order)


@dataclass(frozen=True, slots=True, eq=False)
class Lookup(Expr):
    """The f32 of a table whose number the lowest bits of each lane of `at` say.

    A table has a power of two of numbers; vectors as long as it look it up in one instruction.
    """

    table: tuple[float, ...]
    at: Expr

    def __post_init__(self) -> None:
        assert len(self.table).bit_count() == 1, f"a table of {len(self.table)}"
        assert self.at.dtype == "i32", f"looked up by {self.at.dtype}"

    @property
    def dtype(self) -> str:
        return "f32"

    @property
    def lanes(self) -> int:
        return self.at.lanes


@dataclass(frozen=True, slots=True, eq=False)
class Intrinsic(Expr):
    """A machine operation with a scalar definition; `kernel.intrinsics` lists them."""

    name: str
    args: tuple[Expr, ...]

    @property
    def dtype(self) -> str:
        return self.args[0].dtype

    @property
    def lanes(self) -> int:
        return self.args[0].lanes


def children(e: Expr) -> tuple[Expr, ...]:
    """Return the expressions that an expression is made of: its fields that are expressions."""
    if isinstance(e, Intrinsic):
        return e.args
    values = (getattr(e, name) for name in e.made_of)
    return tuple(x for x in values if x is not None)


def parts(e: Expr) -> Iterator[Expr]:
    """Yield an expression and all that it is made of."""
    yield e
    for x in children(e):
        yield from parts(x)


def rebuilt(e: Expr, new: tuple[Expr, ...]) -> Expr:
    """Return an expression of other parts, in the order of `children`; itself if they are its."""
    if all(x is y for x, y in zip(children(e), new, strict=True)):
        return e
    if isinstance(e, Intrinsic):
        return Intrinsic(e.name, new)
    names = [name for name in e.made_of if getattr(e, name) is not None]
    return replace(e, **dict(zip(names, new, strict=True)))


def alike(what: str, x: Expr, y: Expr) -> None:
    """Assert that two operands agree in element type, lanes, and rows if they are fragments."""
    assert (x.dtype, x.lanes, x.shape) == (y.dtype, y.lanes, y.shape), (
        f"{what}: {type_text(x)} with {type_text(y)}"
    )


def type_text(e: Expr) -> str:
    """Return the type of an expression, as texts of kernels have it."""
    if e.shape is not None:
        return f"{e.dtype}[{e.shape[0]}x{e.shape[1]}]"
    return e.dtype if e.lanes == 1 else f"{e.dtype}x{e.lanes}"


_open: ContextVar[dict[Sym, Index] | None] = ContextVar("open extents", default=None)


@contextmanager
def open_extents() -> Iterator[dict[Sym, Index]]:
    """Let `lift` make run-time extents of symbols; yields those of the kernel built inside."""
    token = _open.set({})
    try:
        extents = _open.get()
        assert extents is not None
        yield extents
    finally:
        _open.reset(token)


def lift(x: Expr | Dim) -> Expr:
    """Return an int as an i64 constant, and a symbol as a run-time extent of the kernel."""
    if isinstance(x, Sym):
        extents = _open.get()
        assert extents is not None, f"{x} outside of a kernel with run-time extents"
        return extents.setdefault(x, Index(f"n{len(extents)}", x))
    return x if isinstance(x, Expr) else Const(int(x))


def fold(op: str, x: Expr, y: Expr) -> Expr:
    """Build `x op y`, folding constants and neutral elements of integer arithmetic."""
    if y.lanes != x.lanes:
        x, y = (Splat(x, y.lanes), y) if x.lanes == 1 else (x, Splat(y, x.lanes))
    if x.dtype in FLOATS:
        return Binary(op, x, y)
    match op, x, y:
        case "add" | "sub", _, Const(value=0):
            return x
        case "add", Const(value=0), _:
            return y
        case "mul" | "div", _, Const(value=1):
            return x
        case "mul", Const(value=1), _:
            return y
        case "mul", _, Const(value=0):
            return y
        case (("mul" | "div" | "rem"), Const(value=0), _):
            return x
        case "rem", _, Const(value=1):
            return Const(0, x.dtype, x.lanes)
        case _, Const(value=int(a)), Const(value=int(b)) if op in _INTEGER and (
            b or op not in ("div", "rem")
        ):
            return Const(wrapped(_INTEGER[op](a, b), x.dtype), x.dtype, x.lanes)
        case "add", Binary("add", inner, Const(value=int(a))), Const(value=int(b)):
            return inner + Const(wrapped(a + b, x.dtype), x.dtype, x.lanes)
    return Binary(op, x, y)


def signed(dtype: str) -> bool:
    """Whether integer operations on `dtype` are the signed ones."""
    return dtype not in UNSIGNED and dtype != "bool"


def wrapped(value: int, dtype: str) -> int:
    """Return an integer as one of `dtype`, modulo its width."""
    width = 8 * DTYPES[dtype].itemsize
    low = value & ((1 << width) - 1)
    return low - (1 << width) if signed(dtype) and low >> (width - 1) else low


def _quotient(a: int, b: int) -> int:
    """Return a / b, truncated towards zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_INTEGER: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": _quotient,
    "rem": lambda a, b: a - b * _quotient(a, b),
    "min": min,
    "max": max,
}
