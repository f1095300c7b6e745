"""Models of one operator for `tools/cliffs.py`: what a case is, and how extents are drawn.

A *family* is a function that draws a case of an operator; `cliff_cases.py` and `cliff_windows.py`
register theirs with `family`.  All numbers come from one `random.Random`, so that an operator, a
number, a seed and a scale are always the same case.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

Array = NDArray[Any]
Peer = Callable[..., Any]

F32, F64, F16 = np.dtype("f4"), np.dtype("f8"), np.dtype("f2")
BF16 = np.dtype(ml_dtypes.bfloat16)
I8, U8, I32, I64 = np.dtype("i1"), np.dtype("u1"), np.dtype("i4"), np.dtype("i8")
BOOL = np.dtype(bool)

Type = np.dtype[Any]

SMALL = 64
"""Above this, i8 weights times u8 saturate in ONNX Runtime on CPUs without VNNI."""

MOST_BYTES = 1 << 26
"""How many bytes the operands of a case may have together."""


@dataclass(frozen=True)
class Case:
    """A node with its operands (None: not given) and the same function elsewhere.

    `constants` are the positions of operands that are initializers.  `numpy` is called with the
    operands that are given, `torch` with the module and these as tensors.  `ties` says that results
    are rounded to integers, where a tie may fall either way, `alike` that `torch` returns the same
    numbers.
    """

    op: str
    operands: tuple[Array | None, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    constants: frozenset[int] = frozenset()
    numpy: Peer | None = None
    torch: Peer | None = None
    results: int = 1
    domain: str = ""
    opset: int = 21
    ties: bool = False
    alike: bool = True

    @property
    def feeds(self) -> dict[str, Array]:
        """The operands that are inputs of the model, by name."""
        return {
            f"x{i}": x
            for i, x in enumerate(self.operands)
            if x is not None and i not in self.constants
        }

    def model(self) -> onnx.ModelProto:
        """Return the model: the node, its inputs with fixed extents, its constants."""
        names = ["" if x is None else f"x{i}" for i, x in enumerate(self.operands)]
        outputs = [f"y{i}" for i in range(self.results)]
        node = helper.make_node(
            self.op, names, outputs, name="it", domain=self.domain, **self.attributes
        )
        inputs = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for n, x in self.feeds.items()
        ]
        constants = [
            numpy_helper.from_array(x, f"x{i}")
            for i, x in enumerate(self.operands)
            if x is not None and i in self.constants
        ]
        results = [helper.make_empty_tensor_value_info(o) for o in outputs]
        graph = helper.make_graph([node], "case", inputs, results, constants)
        imports = [helper.make_opsetid("", self.opset)]
        if self.domain:
            imports.append(helper.make_opsetid(self.domain, 1))
        return helper.make_model(graph, opset_imports=imports, ir_version=10)

    def __str__(self) -> str:
        operands = [
            "–" if x is None else _operand(x, i in self.constants)
            for i, x in enumerate(self.operands)
        ]
        attributes = [f"{k}={v}" for k, v in self.attributes.items()]
        return f"{self.op}({', '.join([*operands, *attributes])})".replace("|", "\\|")


def _operand(x: Array, constant: bool) -> str:
    """Return the type of an operand, or its elements if it has few integers."""
    if x.dtype == I64 and x.size <= 8 and constant:
        return str(x.tolist()).replace(" ", "")
    shape = ",".join(map(str, x.shape))
    return f"{'const ' if constant else ''}{x.dtype.name}[{shape}]"


class Draw:
    """The choices of one case; `scale` multiplies its number of elements or of multiply-adds."""

    def __init__(self, op: str, number: int, seed: int, scale: int = 1) -> None:
        self.random = random.Random(f"{op} {number} {seed}")
        self.numbers = np.random.default_rng(self.random.getrandbits(32))
        self.scale = scale
        self.chance = self.random.random
        self.choice = self.random.choice
        self.between = self.random.randint

    def count(self, low: float = 12, high: float = 19, most: int = 1 << 22) -> int:
        """Return a number of elements, from 2**low to 2**high, scaled."""
        return min(most, int(2 ** self.random.uniform(low, high)) * self.scale)

    def work(self, low: float = 20, high: float = 26) -> int:
        """Return a number of multiply-adds."""
        return self.count(low, high, 1 << 29)

    def split(self, count: int, parts: int) -> list[int]:
        """Return extents whose product is about `count`: even ones, odd ones, and ones."""
        weights = [self.random.choice((0.05, 1, 1, 1, 2)) * self.chance() for _ in range(parts)]
        total = sum(weights) or 1.0
        return [self.near(2 ** (math.log2(max(count, 1)) * w / total)) for w in weights]

    def near(self, extent: float) -> int:
        """Return an extent near a number: itself, a multiple of 8 or a power of 2, or one off."""
        extent = max(1, round(extent))
        fate = self.chance()
        if fate < 0.3 and extent > 8:
            return round(extent / 8) * 8
        if fate < 0.5:
            return 1 << max(0, round(math.log2(extent)))
        return extent + 1 if fate > 0.9 else extent

    def shape(self, ranks: Sequence[int] = (1, 2, 3, 4), count: int | None = None) -> list[int]:
        return self.split(count or self.count(), self.choice(ranks))

    def log(self, low: int, high: int) -> int:
        """Return an integer of a range, small ones as often as large ones."""
        return round(math.exp(self.random.uniform(math.log(low), math.log(high))))

    def float_type(self) -> np.dtype[Any]:
        return self.random.choices((F32, F16, F64, BF16), (75, 11, 7, 7))[0]

    def any_type(self) -> np.dtype[Any]:
        types = (F32, F16, F64, BF16, I8, U8, I32, I64, BOOL)
        return self.random.choices(types, (50, 8, 5, 5, 6, 8, 6, 8, 4))[0]

    def array(self, shape: Sequence[int], dtype: np.dtype[Any] = F32, bound: int = 100) -> Array:
        """Return normal numbers, or integers below a bound."""
        if dtype == BOOL:
            return self.numbers.integers(0, 2, shape).astype(bool)
        if dtype.kind in "iu":
            low = 0 if dtype.kind == "u" else -bound
            return self.numbers.integers(low, bound, shape).astype(dtype)
        return self.numbers.standard_normal(shape, dtype=np.float32).astype(dtype)

    def positive(self, shape: Sequence[int], dtype: np.dtype[Any] = F32) -> Array:
        """Return numbers between 0.1 and 1.1, or positive integers."""
        if dtype.kind in "iu":
            return self.numbers.integers(1, 7, shape).astype(dtype)
        return (self.numbers.random(shape, dtype=np.float32) + 0.1).astype(dtype)

    def indices(self, shape: Sequence[int], extent: int, dtype: np.dtype[Any] = I64) -> Array:
        return self.numbers.integers(0, extent, shape).astype(dtype)

    def axis(self, rank: int) -> int:
        return self.between(0, rank - 1)

    def some(self, *choices: int) -> frozenset[int]:
        """Return these positions or none: operands that are constants half of the time."""
        return frozenset(choices) if self.chance() < 0.5 else frozenset()


Family = Callable[[Draw, str], Case]
FAMILIES: dict[str, Family] = {}
WEIGHTS: dict[str, float] = {}


def family(weight: float, *ops: str) -> Callable[[Family], Family]:
    """Register a function for operators; `weight` is how often it is drawn, for all together."""

    def add(function: Family) -> Family:
        for op in ops:
            FAMILIES[op] = function
            WEIGHTS[op] = weight / len(ops)
        return function

    return add


def draw(op: str, number: int, seed: int, scale: int = 1) -> Case:
    """Return a case; draw anew where the operands would be too large."""
    d = Draw(op, number, seed, scale)
    while True:
        case = FAMILIES[op](d, op)
        if sum(x.nbytes for x in case.operands if x is not None) <= MOST_BYTES:
            return case
        d.scale = max(1, d.scale // 4)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)
