"""Operators: what a node can do.

An operator is one frozen class.  Its fields are the attributes, its docstring is the manual, and
it derives from exactly one of the kinds below, which says how its meaning is given:

- `Elementwise`: `scalar`, one formula over the math vocabulary; NumPy and every machine use it.
- `Primitive`: `reference`, a NumPy function; machines implement it.
- `Composite`: `lower`, a graph of other operators.
- `Host`: `reference`, on values that no graph holds: sequences, optionals, strings.
- `Control`: `run`, which says when the regions of its node run, and on what.

An operator cannot be made with an attribute that is not what its field is declared to hold.
`infer` is the type rule, and its parameters are the operands: a default of None marks an optional
one, ``*xs`` a variadic tail.  `examples` yields applications that drive every property test; an
`Elementwise` needs its own only if attributes matter, or more values than its `edges`.

`gradient` says how an operator is differentiated: it takes the graph to build in, the gradient of
the result, and the operands, and returns the gradient of each operand, None where there is none.
Of several results it takes a tuple, with None for those that do not matter.  An UnsupportedError in
place of a gradient is raised if somebody wants that one.  Of a node with regions it is given these
by keyword, as `infer` is.  Elementwise operators are differentiated by their formula and composites
by what they are lowered to, so they need it only where another way is better.

What others look up about an operator it says itself: `work`, `sample_axes`, `rows_of`, `moves`,
`carried`, `walks`, `infinite`, `layouts`.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import FrozenInstanceError, dataclass, fields, replace
from typing import Any, ClassVar, Literal, TypeVar, dataclass_transform

import numpy as np

from alpenglow.base import extensions
from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.attribute import tests_of
from alpenglow.ir.dims import Dim, known
from alpenglow.ir.rows import Rows
from alpenglow.ir.types import ALL, FLOATS, Array, TensorType
from alpenglow.ir.types import NAMES as NAMES_OF
from alpenglow.ir.vocabulary import NUMPY

Examples = Iterator[tuple[Any, ...]]
"""An operator, then for each operand a type as text, a NumPy array (a given value), or None."""

SHAPES = ("", "1", "17", "0,3", "3,5", "2,1,3,1,2")
"""Shapes of examples: a scalar, one element, an odd length, nothing, two axes, five axes."""

Types = TensorType | tuple[TensorType, ...]


@dataclass_transform(frozen_default=True)
class Op:
    """The root of all operators.  Subclasses are frozen dataclasses, registered by name."""

    name: ClassVar[str]
    operands: ClassVar[tuple[str, ...]]
    optional: ClassVar[frozenset[str]]
    variadic: ClassVar[bool]
    pure: ClassVar[bool] = True
    registry: ClassVar[dict[str, type[Op]]] = {}
    infer: ClassVar[Callable[..., Types]]
    examples: ClassVar[Callable[[], Examples]]
    gradient: ClassVar[Callable[..., Any] | None] = None

    moves: ClassVar[bool] = False
    """Whether the result is elements of the operands in other places, which planning of memory
    makes addressing of."""

    sample_axes: ClassVar[tuple[int, int] | None] = None
    """An axis of the first operand and one of the result: elements of the result depend on those of
    the operand at the same place along these, and on all of the other operands."""

    by_rows: ClassVar[bool] = False
    """Whether a row of the result, along its last axis, is made of the row of the first operand at
    the same place, and of all of the other operands."""

    carried: ClassVar[Mapping[int, int]] = {}
    """Results that may lie where an operand does, by number, each with the operand: kernels read an
    element of that before they write the one at the same place, and none of it afterwards."""

    walks: ClassVar[Literal["", "rows", "planes"]] = ""
    """What a kernel reads at many places side by side: rows of its operands, or planes of operands
    and results along the first axis."""

    infinite: ClassVar[frozenset[int]] = frozenset()
    """Results, by number, in which an infinity is no sign that something went wrong."""

    layouts: ClassVar[Literal["", "first", "all"]] = ""
    """The operands that may be in a layout other than row-major: none, the first one, all.  The
    type rule then says in which, and in which the results are."""

    def work(self, ins: Sequence[TensorType | None], outs: Sequence[TensorType]) -> int:
        """Return how many multiply-adds along inner dimensions an application takes.

        Types have numbers for extents.  What is elementwise, moves or reduces takes none.
        """
        return 0

    def rows_of(self, ins: Sequence[TensorType | None]) -> Rows | None:
        """Return how rows of the result are made of those of the first operand, and of all of the
        others; None if they are not, or nobody has said so."""
        return None

    def with_edges(self, before: int, after: int) -> Op:
        """Return the operator with so much padding before and after the rows of the operand.

        Asked only of what pads by itself, for as much as it does, or less.
        """
        assert before == after == 0, f"{self.name} does not pad"
        return self

    def __init_subclass__(cls, kind: bool = False) -> None:
        # Methods that are generated are most of what importing hundreds of operators costs.
        if "__annotations__" in cls.__dict__ or not hasattr(cls, "__dataclass_fields__"):
            dataclass(frozen=True, repr=False, eq=False)(cls)
        if kind:
            return
        required = {n for base in cls.__bases__ for n in getattr(base, "__abstractmethods__", ())}
        lacking = sorted(n for n in required if hasattr(getattr(cls, n), "__isabstractmethod__"))
        assert not lacking, f"{cls.__name__} lacks {', '.join(lacking)}"
        cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
        signature = inspect.signature(meaning(cls))
        skip = 2 if issubclass(cls, Elementwise) else 1
        params = [p for p in list(signature.parameters.values())[skip:] if p.kind != p.KEYWORD_ONLY]
        cls.operands = tuple(p.name for p in params)
        cls.optional = frozenset(p.name for p in params if p.default is None)
        cls.variadic = any(p.kind == p.VAR_POSITIONAL for p in params)
        assert cls.name not in Op.registry or Op.registry[cls.name].__module__ == cls.__module__, (
            f"two operators are called {cls.name}"
        )
        Op.registry[cls.name] = cls

    def __post_init__(self) -> None:
        cls: type = type(self)
        for name, kind, fits in tests_of(cls):
            value = self.__dict__[name]
            if not fits(value):
                raise TypeRuleError(f"{self.name}: attribute {name} is {value!r}, expected {kind}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}, as expected of operators")

    def __eq__(self, other: object) -> bool:
        return (
            type(other) is type(self)
            and other.__dict__ == self.__dict__
            and all(map(_same_zero, self.__dict__.values(), other.__dict__.values()))
        )

    def __hash__(self) -> int:
        return hash((type(self), *self.__dict__.values()))

    def __repr__(self) -> str:
        attributes = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"{type(self).__qualname__}({attributes})"

    def attributes(self) -> Iterator[tuple[str, Any]]:
        """Yield the attributes that differ from their defaults, in order."""
        for f in fields(self):  # type: ignore[arg-type]  # subclasses are dataclasses
            value = getattr(self, f.name)
            if value != f.default or not _same_zero(value, f.default):
                yield f.name, value


def _same_zero(a: object, b: object) -> bool:
    """Whether two equal attributes are also the same zero; to Python 0.0 and -0.0 are equal."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return all(map(_same_zero, a, b))
    if not isinstance(a, float) or not isinstance(b, float) or a:
        return True
    return math.copysign(1, a) == math.copysign(1, b)


class Primitive(Op, kind=True):
    """An operator that machines implement as it stands.

    `reference` takes one NumPy array an operand (None for one that is absent) and returns an
    array, or a tuple of arrays where the operator has several results.
    """

    reference: ClassVar[Callable[..., Any]]


class Composite(Op, kind=True):
    """An operator that is an abbreviation.

    `lower` takes the graph to build in and the operands, and returns the value (or tuple of
    values) that it stands for.
    """

    lower: ClassVar[Callable[..., Any]]


class Elementwise(Primitive, kind=True):
    """A primitive given by one formula over scalars.

    All operands have the same shape and layout and, unless `infer` is overridden, the same element
    type, one of `dtypes`.  The result has that shape and layout, and the element type `result` or,
    if that is empty, the operands'.
    """

    layouts = "all"
    dtypes: ClassVar[frozenset[str]] = ALL
    result: ClassVar[str] = ""
    edges: ClassVar[Array | None] = None
    """Values for one more example: limits of the formula's intervals, infinities, NaN."""

    scalar: ClassVar[Callable[..., Any]]

    def infer(self, *xs: TensorType) -> TensorType:
        check_arity(self, len(xs))
        check_dtype(self, "operand", xs[0], self.dtypes)
        for other in xs[1:]:
            if other != xs[0]:
                raise TypeRuleError(
                    f"{self.name}: operands are {xs[0]} and {other}, expected equal"
                )
        return xs[0].with_dtype(self.result or xs[0].dtype)

    def reference(self, *xs: Array) -> Array:
        """Evaluate the formula; half precision is computed in f32 and rounded once."""
        wide = [x.astype(np.float32) if is_half(x.dtype) else x for x in xs]
        out = self.infer(*[TensorType(NAMES_OF[x.dtype], x.shape) for x in xs])
        assert isinstance(out, TensorType), "an elementwise operator has one result"
        with np.errstate(all="ignore"):
            y = np.asarray(self.scalar(NUMPY, *wide)).astype(out.numpy, copy=False)
        return np.broadcast_to(y, xs[0].shape)

    @classmethod
    def examples(cls) -> Examples:
        """Apply the operator with its default attributes to each of `dtypes`, and to `edges`."""
        yield from of_one_type(cls(), cls.dtypes)
        if cls.edges is not None:
            yield cls(), *[cls.edges] * len(cls.operands)


class Host(Op, kind=True):
    """An operator on values that no graph holds; the runtime applies it between graphs.

    `reference` takes one value an operand and returns a value, or a tuple of values where the
    operator has several results.  A value is a NumPy array (of dtype object, holding str, where
    the elements are strings), a list (a sequence), a dict (a map), or None (an operand that is
    absent, or an empty optional; an optional that is not empty is its element).  `reference` must
    not change its operands, but may return them.  It raises FeedError for values that it does not
    allow.  `examples` give all values.
    """

    reference: ClassVar[Callable[..., Any]]
    forms_follow: ClassVar[bool] = False
    """True if element types and shapes of the operands decide those of the results."""

    def prepared(self) -> Callable[..., Any]:
        """Return `reference` for many calls: what the attributes alone decide is computed here."""
        return self.reference

    def infer(self, *xs: TensorType | None) -> Types:
        """Refuse to be in a graph: there is no type for what this works on."""
        raise TypeRuleError(f"{self.name} in a graph is not supported; supported: staged models")


class Control(Op, kind=True):
    """An operator that runs the regions of its node: a loop, a branch.

    `run` takes the regions, a function that runs one on arrays, and the operands as arrays; it
    returns the results.  One that stands for others has a `lower`, which takes the graph to build
    in, the operands, and the `regions` by keyword.
    """

    @property
    def captures_from(self) -> int:
        """The number of the first operand that regions capture: these are their last inputs."""
        raise AssertionError(f"{self.name} does not tell what its regions capture")

    layouts = "all"
    run: ClassVar[Callable[..., Sequence[Array]]]
    lower: ClassVar[Callable[..., Any] | None] = None


def is_composite(op: Op) -> bool:
    """Whether an operator stands for others."""
    return isinstance(op, Composite) or (isinstance(op, Control) and op.lower is not None)


R = TypeVar("R")

Run = Callable[[R, Sequence[Array]], Sequence[Array]]
"""A function that runs a region, a graph or a program, on an array for each of its inputs."""


def find_operator(name: str) -> type[Op] | None:
    """Return the operator of that name, which may be an extra's; None if there is none."""
    if name not in Op.registry:
        extensions.bring_operators()  # the caller need not have imported any
    return extensions.found_with_extras(
        "", lambda: Op.registry.get(name), lambda cls: cls.__module__
    )


def meaning(cls: type[Op]) -> Callable[..., Any]:
    """Return the function whose parameters name the operands of an operator."""
    if issubclass(cls, Host):
        return cls.reference
    return cls.scalar if issubclass(cls, Elementwise) else cls.infer


def of_one_type(op: Op, dtypes: Collection[str]) -> Examples:
    """Yield applications to equal types: all `SHAPES` of one element type, all `dtypes` once."""
    count = len(op.operands)
    main = next(d for d in ("f32", "c64", min(dtypes)) if d in dtypes)
    for shape in SHAPES:
        yield op, *[f"{main}[{shape}]"] * count
    for dtype in sorted(set(dtypes) - {main}):
        yield op, *[f"{dtype}[3,7]"] * count


def is_half(dtype: np.dtype[Any]) -> bool:
    """Whether `dtype` is a 16-bit floating-point type."""
    return dtype.itemsize == 2 and NAMES_OF[dtype] in FLOATS


def check_arity(op: Op, count: int) -> None:
    """Raise TypeRuleError unless `op` can take this number of operands."""
    most = len(op.operands)
    least = most - len(op.optional) - op.variadic
    if count < least or (count > most and not op.variadic):
        wanted = f"{least} or more" if op.variadic else str(most) if least == most else (
            f"{least} to {most}")  # fmt: skip
        raise TypeRuleError(
            f"{op.name}: got {count} operands, expected {wanted} ({', '.join(op.operands)})"
        )


def check_layouts(op: Op, types: Sequence[TensorType | None]) -> None:
    """Raise TypeRuleError unless operands that `op` takes in row-major order are."""
    if op.layouts == "all":
        return
    for t in types[op.layouts == "first" :]:
        if t is not None and not t.is_plain:
            raise TypeRuleError(f"{op.name}: an operand is {t}, expected row-major order")


def changed_along(
    op: Op, x: TensorType, axes: Iterable[int], shape: Iterable[Dim]
) -> TensorType:
    """Return the type of x with another shape, in its layout.

    Raises TypeRuleError if the layout holds one of `axes`, along which `op` moves elements.
    """
    if x.is_plain:
        return x.with_shape(shape)
    if held := sorted(set(axes).intersection(x.layout.held(x.rank))):
        raise TypeRuleError(f"{op.name}: {x} has axes {held} in its layout, expected none of them")
    return replace(x, shape=tuple(shape))


def check_dtype(op: Op, what: str, x: TensorType, allowed: frozenset[str] | set[str]) -> None:
    """Raise TypeRuleError unless the element type of `x` is among `allowed`."""
    if x.dtype not in allowed:
        raise TypeRuleError(
            f"{op.name}: {what} is {x}, expected an element type among {' '.join(sorted(allowed))}"
        )


def check_rank(op: Op, what: str, x: TensorType, least: int, most: int | None = None) -> None:
    """Raise TypeRuleError unless `x` has a rank from `least` to `most` (None: no bound above)."""
    if x.rank < least or (most is not None and x.rank > most):
        wanted = str(least) if most == least else f"at least {least}" if most is None else (
            f"{least} to {most}")  # fmt: skip
        raise TypeRuleError(f"{op.name}: {what} is {x}, expected rank {wanted}")


def check_choice(op: Op, choices: Iterable[str], **attributes: str) -> None:
    """Raise TypeRuleError unless attributes are among `choices`."""
    for name, choice in attributes.items():
        if choice not in choices:
            known = ", ".join(sorted(choices))
            raise TypeRuleError(f"{op.name}: {name} is '{choice}', expected one of: {known}")


def check_natural(op: Op, **sizes: Dim) -> None:
    """Raise TypeRuleError if an attribute that is a size is known and negative."""
    for name, size in sizes.items():
        if known(size) and size < 0:
            raise TypeRuleError(f"{op.name}: {name} is {size}, expected 0 or more")


def check_positive(op: Op, **sizes: int) -> None:
    """Raise TypeRuleError unless attributes that are sizes are at least 1."""
    for name, size in sizes.items():
        if size < 1:
            raise TypeRuleError(f"{op.name}: {name} is {size}, expected 1 or more")


def check_each(op: Op, count: int, **values: tuple[int, ...]) -> None:
    """Raise TypeRuleError unless attributes have so many elements."""
    for name, value in values.items():
        if len(value) != count:
            raise TypeRuleError(f"{op.name}: {name} is {value}, expected {count} numbers")


def normal_axis(op: Op, axis: int, rank: int) -> int:
    """Return `axis` counted from the front; raise TypeRuleError if it is out of range."""
    if not -rank <= axis < rank:
        expected = f"{-rank} to {rank - 1}" if rank else "none for rank 0"
        raise TypeRuleError(f"{op.name}: axis is {axis}, expected {expected}")
    return axis % rank


def misfit(op: Op, error: Exception) -> str:
    """Return the message for attributes and operands that made a type rule raise `error`."""
    why = f"{type(error).__name__}: {error}"
    return f"{op.name}: {why}, expected attributes that fit the operands"
