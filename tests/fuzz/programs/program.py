"""A random program under construction: lines of some format's language, made step by step.

A *recipe* (`steps_*.py`) draws operands and attributes of a neutral operation.  The *writer* of a
format spells it, and runs or types the line at once, so that its results are known; what it does
not have, or does not take, it declines.  So a program is right by construction.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import ml_dtypes
import numpy as np

from ..dice import LARGEST, SYMBOLS, Dice
from ..elements import STYLES, Array, Shape, elements, is_whole, limits
from ..inference import Declined

NAME = re.compile(r"\b[vwx]\d+\b")


@dataclass(frozen=True, slots=True)
class Value:
    """A value: its name, the name of its element type, and its shape."""

    name: str
    dtype: str
    shape: Shape

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a program, and the names that it defines and reads."""

    text: str
    results: tuple[str, ...]

    @property
    def names(self) -> set[str]:
        return set(NAME.findall(self.text))


class Writer(Protocol):
    """How a format says operations.  A spelling is a format string of operands and attributes.

    With `{y}` a spelling is whole statements that define that name; it is an expression otherwise.
    """

    dtypes: Sequence[str]
    spellings: Mapping[str, Sequence[str]]

    def feed(self, name: str, array: Array) -> None:
        """Define an input or weight."""

    def run(self, text: str, results: Sequence[str]) -> list[tuple[str, Shape]] | None:
        """Define results by a line; return their types, None if it is no tensor.  May raise."""


@dataclass
class Draw(Dice):
    """Values and lines so far."""

    writer: Writer = field(kw_only=True)
    values: list[Value] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    inputs: dict[str, Array] = field(default_factory=dict)
    weights: dict[str, Array] = field(default_factory=dict)
    plain: set[str] = field(default_factory=set)
    """Inputs that hold indices or counts: their elements must be what they are."""

    @property
    def made(self) -> list[Value]:
        return [v for v in self.values if v.name[0] == "v"]

    # ── values ──

    def fresh(self, dtype: str, shape: Shape) -> Value:
        """Return a new input or, one time in five, a new weight."""
        return self.given(elements(self.rng, dtype, shape, self.one_of(STYLES)))

    def given(self, array: Array, stored: bool | None = None, plain: bool = False) -> Value:
        """Return an input or weight that holds `array`; its elements stay if they are `plain`."""
        array = np.asarray(array)
        stored = self.chance(0.2) if stored is None else stored
        if self.is_open and set(array.shape) & set(SYMBOLS.values()):
            stored = False
        v = Value(f"{'w' if stored else 'x'}{len(self.values)}", name_of(array), array.shape)
        (self.weights if stored else self.inputs)[v.name] = array
        self.plain |= {v.name} if plain else set()
        self.writer.feed(v.name, array)
        self.values.append(v)
        return v

    def pick(
        self, dtypes: Iterable[str] = (), least: int = 0, most: int = 6, *, empty: bool = True,
        where: Callable[[Value], bool] = lambda v: True,
    ) -> Value:  # fmt: skip
        """Return a value that was made before or a new one, of a rank in between."""
        wanted = [t for t in dtypes or self.writer.dtypes if t in self.writer.dtypes]
        fitting = [v for v in self.values if v.dtype in wanted and least <= v.rank <= most
                   and (empty or 0 not in v.shape) and where(v)
                   and v.name not in self.plain]  # fmt: skip
        computed = [v for v in fitting if v.name[0] == "v"]
        if computed and self.chance(0.8):
            return computed[-1] if self.chance(0.5) else self.one_of(computed)
        if fitting and self.chance(0.3):
            return self.one_of(fitting)
        for _ in range(8):
            v = Value("", self.dtype(wanted), self.shape(least, most, empty))
            if where(v) and (empty or 0 not in v.shape):
                return self.fresh(v.dtype, v.shape)
        raise Declined

    def beside(self, v: Value, dtype: str = "") -> Value:
        """Return a value that broadcasts with v: with some extents 1, or some axes missing."""
        if not dtype and self.chance(0.08):
            return v
        shape = tuple(1 if self.chance(0.2) else d for d in v.shape)
        shape = shape[self.number(0, len(shape)) :] if self.chance(0.3) else shape
        same = [u for u in self.made if u.dtype == (dtype or v.dtype) and u.shape == v.shape]
        if same and self.chance(0.4):
            return self.one_of(same)
        return self.fresh(dtype or v.dtype, shape)

    def like(self, v: Value, shape: Sequence[int], dtype: str = "") -> Value:
        """Return a value of a shape, of the type of v by custom."""
        wanted = dtype or v.dtype
        same = [u for u in self.made if u.dtype == wanted and u.shape == tuple(shape)]
        return self.one_of(same) if same and self.chance(0.6) else self.fresh(wanted, tuple(shape))

    def indices(self, shape: Shape, size: int, least: int = 0) -> Value:
        """Return integers from `least` to less than `size`."""
        if size <= least:
            if 0 not in shape:
                raise Declined
            size = least + 1
        kind = self.one_of([t for t in ("int64", "int64", "int32") if t in self.writer.dtypes])
        array = self.rng.integers(least, size, shape).astype(kind)
        return self.given(np.sort(array, -1) if array.ndim and self.chance(0.2) else array,
                          plain=True)  # fmt: skip

    def axis(self, v: Value) -> int:
        """Return an axis, counted from either end."""
        return self.number(-v.rank, v.rank - 1) if v.rank else self.one_of([0, -1])

    def axes(self, v: Value, least: int = 0) -> tuple[int, ...]:
        """Return some axes, each counted from either end, in any order."""
        count = self.number(min(least, v.rank), v.rank)
        chosen = self.rng.permutation(v.rank)[:count]
        return tuple(int(a) - v.rank * int(self.chance(0.3)) for a in chosen)

    # ── steps ──

    def step(self, op: str, *operands: Value, results: int = 1, **attributes: Any) -> list[Value]:
        """Add a step of an operation in one of the spellings that the format has for it."""
        spellings = self.writer.spellings.get(op)
        if not spellings:
            raise Declined
        return self.say(self.one_of(list(spellings)), operands, results, attributes)

    def say(
        self, spelling: str, operands: Sequence[Value], count: int, attributes: Mapping[str, Any]
    ) -> list[Value]:
        """Add a step in a spelling; decline if the format does not take it."""
        names = tuple(f"v{len(self.values) + i}" for i in range(count))
        if "{act}" in spelling:
            attributes = {"act": self.one_of([0, 0, 1, 2, 3]), **attributes}
        if "{times}" in spelling:
            attributes = {"times": self.one_of([1.0, 1.0, 0.5, 2.0, 3.7]), **attributes}
        told = {k: v if k.startswith("raw") else repr(v) for k, v in attributes.items()}
        told["results"] = str(count)
        text = spelling.format(*(v.name for v in operands), y=names[0], **told)
        if "{y}" not in spelling:
            text = f"{', '.join(names)} = {text}"
        types = self.writer.run(text, names)
        if types is None or any(np.prod(s, dtype=float) > 4 * LARGEST for _, s in types):
            raise Declined
        self.lines.append(Line(text, names))
        made = [Value(n, t, s) for n, (t, s) in zip(names, types, strict=True)]
        self.values += made
        return made

    # ── the program ──

    def outputs(self) -> list[str]:
        """Return the names of results: what no line reads, and some of what lines read."""
        read = {n for line in self.lines for n in line.names - set(line.results)}
        rng = np.random.default_rng(len(self.values))
        return [v.name for v in self.made if v.name not in read or rng.random() < 0.25]

    def program(self) -> Program:
        """Return the program."""
        return Program(tuple(self.lines), tuple(self.outputs()), dict(self.inputs),
                       dict(self.weights), frozenset(self.plain),
                       self.is_open).trimmed()  # fmt: skip


@dataclass(frozen=True)
class Program:
    """Lines from inputs and weights to outputs."""

    lines: tuple[Line, ...]
    outputs: tuple[str, ...]
    inputs: Mapping[str, Array]
    weights: Mapping[str, Array]
    plain: frozenset[str] = frozenset()
    is_open: bool = False

    def without(self, number: int) -> Program:
        """Return the program without one line and without all that depends on it."""
        gone = set(self.lines[number].results)
        kept = list(self.lines[:number])
        for line in self.lines[number + 1 :]:
            if gone & line.names:
                gone |= set(line.results)
            else:
                kept.append(line)
        outputs = tuple(n for n in self.outputs if n not in gone)
        return Program(tuple(kept), outputs, self.inputs, self.weights, self.plain,
                       self.is_open).trimmed()  # fmt: skip

    def showing(self, outputs: Sequence[str]) -> Program:
        """Return the program with other outputs."""
        return Program(self.lines, tuple(outputs), self.inputs, self.weights, self.plain,
                       self.is_open).trimmed()  # fmt: skip

    def trimmed(self) -> Program:
        """Return the program without inputs and weights that nobody reads."""
        read = {n for line in self.lines for n in line.names} | set(self.outputs)
        return Program(self.lines, self.outputs,
                       {k: a for k, a in self.inputs.items() if k in read},
                       {k: a for k, a in self.weights.items() if k in read},
                       self.plain, self.is_open)  # fmt: skip

    def source(self, name: str = "f", first: str = "", weight: str = "{}") -> str:
        """Return the program as a function of its inputs; `weight` is how weights are read."""
        body = [NAME.sub(lambda m: weight.format(m[0]) if m[0][0] == "w" else m[0], x.text)
                for x in self.lines]  # fmt: skip
        shown = [weight.format(n) if n[0] == "w" else n for n in self.outputs]
        body.append(f"return ({''.join(f'{n}, ' for n in shown)})")
        given = ", ".join([*([first] if first else []), *self.inputs])
        return f"def {name}({given}):\n" + "".join(f"    {b}\n" for b in body)

    def __str__(self) -> str:
        fed = {**self.inputs, **self.weights}
        types = ", ".join(f"{k} {a.dtype}{list(a.shape)}" for k, a in fed.items())
        return f"{types}\n{self.source()}"


def name_of(array: Array) -> str:
    """Return the name of an element type."""
    return {"float32": "float", "float64": "double"}.get(str(array.dtype), str(array.dtype))


Recipe = Callable[[Draw, str], None]
RECIPES: dict[str, Recipe] = {}


def recipe(*ops: str) -> Callable[[Recipe], Recipe]:
    """Register the decorated function as the way to draw steps of these operations."""

    def add(made: Recipe) -> Recipe:
        assert not RECIPES.keys() & set(ops), ops
        RECIPES.update(dict.fromkeys(ops, made))
        return made

    return add


def drawn(seed: int, writer: Writer, opens: bool = True) -> Program:
    """Return the random program of a seed: some operation of the round, and what follows.

    One in five has open extents, if the format `opens` them.
    """
    rng = np.random.default_rng(seed)
    d = Draw(rng, 0, writer=writer, is_open=bool(rng.random() < 0.2) and opens)
    known = sorted(RECIPES.keys() & writer.spellings.keys())
    order = np.random.default_rng(0).permutation(len(known))
    wanted = int(rng.choice([1, 1, 2, 3, 4, 6, 9]))
    attempt(d, known[order[seed % len(known)]])
    for _ in range(4 * wanted):
        if len(d.lines) >= wanted:
            break
        attempt(d, known[int(rng.integers(len(known)))])
    return d.program()


def attempt(d: Draw, op: str) -> bool:
    """Follow a recipe; return whether it came to its end."""
    with contextlib.suppress(Declined):
        RECIPES[op](d, op)
        return True
    return False


ADDS_ZEROS = re.compile(r"gcd|lcm|conv|attention|matmul|@|einsum|linear|bmm|addmm|mv|dot|outer|"
                        "inner|kron|prod|pool|resize|interpolate|cumsum|trace|CONV|MAT|FULLY|POOL|RESIZE|"
                        "window|var|_norm|FAKE_QUANT|mode")  # fmt: skip
"""Steps that may add products by 0: if those of infinities count is left open."""

SUMS = re.compile(r"norm|var|std|sum|mean|prod|dist|softmax|mse|huber|loss|MEAN|SUM|diff|similar")
"""Steps in which the largest numbers overflow, sooner or later, by the order of additions."""


def strange(
    program: Program, rng: np.random.Generator, tiny: bool = True, nan: bool = True
) -> dict[str, Array]:
    """Return the inputs with some elements that are no ordinary numbers: limits, infinities, NaN.

    There are denormal numbers if `tiny`, infinities and NaN if `nan`, none of these where zeros
    may be added, and not the largest ones where sums may overflow.
    """
    text = "".join(line.text for line in program.lines)
    strength = 0 if not nan or ADDS_ZEROS.search(text) else 1 if SUMS.search(text) else 2
    return {k: a if k in program.plain else _odd(a, rng, strength, tiny)
            for k, a in program.inputs.items()}  # fmt: skip


ODD = (0.0, -0.0, 1e4, -1e4, 0.5, 1.5, 2.5, -0.5, 88.8, -88.8, 104.0, 1e-3)


def _odd(a: Array, rng: np.random.Generator, strength: int, tiny: bool) -> Array:
    """Return an array, two of five elements of which are odd."""
    name = name_of(a)
    if name == "bool" or not a.size:
        return a
    if is_whole(name):
        ends = limits(a.dtype)
        odd = np.array([int(ends.min), int(ends.max), int(ends.min) + 1, 0, 1], a.dtype)
        odd = odd[3:] if not strength else odd
    else:
        kind = ml_dtypes.finfo(a.real.dtype)
        large = (np.inf, -np.inf, np.nan, float(kind.max), -float(kind.max))[
            : (0, 3, 5 if tiny else 3)[strength]]
        least = (float(kind.smallest_subnormal),)
        odd = np.array(ODD + large + (least if tiny else ())).astype(a.dtype)
    return np.where(rng.random(a.shape) < 0.4, rng.choice(odd, a.shape), a)
