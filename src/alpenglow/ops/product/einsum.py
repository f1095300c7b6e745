"""Einstein summation, as transposes, matrix products and sums."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

from alpenglow.base.errors import ModelError, TypeRuleError
from alpenglow.ir.dims import Dim, known, product
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Composite, Examples, check_dtype
from alpenglow.ir.types import NUMBERS, TensorType
from alpenglow.ops.elementwise.arithmetic import Mul
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.reduction import ReduceSum, as_type
from alpenglow.ops.tensor.movement import Broadcast, Reshape, Slice, Transpose


def explicit(equation: str, ranks: Sequence[int]) -> str:
    """Return an equation without ellipses and with its result, for operands of these ranks.

    Raises ModelError if it does not fit them.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ModelError(f"einsum: '{equation}' has {len(terms)} terms, expected {len(ranks)}")
    free = [c for c in string.ascii_letters if c not in equation]
    counts = [rank - len(t.replace("...", "")) for t, rank in zip(terms, ranks, strict=True)]
    most = max((n for t, n in zip(terms, counts, strict=True) if "..." in t), default=0)
    if most > len(free) or min(counts) < 0:
        raise ModelError(
            f"einsum: '{equation}' has operands of ranks {tuple(ranks)}, expected a letter for "
            f"each axis, at most {len(string.ascii_letters)} in all"
        )
    # Ellipses of fewer axes are the last ones, as in broadcasting.
    dots = "".join(free[:most])
    spelled = [t.replace("...", dots[most - n :]) for t, n in zip(terms, counts, strict=True)]
    if not arrow:
        letters = left.replace("...", "").replace(",", "")
        right = "..." + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    return f"{','.join(spelled)}->{right.replace('...', dots)}"


Labelled = tuple[Value, str]
"""A tensor and a letter for each of its axes."""


class Einsum(Composite):
    """The products of elements that agree in their labels, summed over labels not in the result.

    The equation names each axis of each operand by a letter, ``ab,bc->ac``; axes of one letter
    have one extent, or 1, which stretches.  Operands are contracted from left to right.  ONNX
    Einsum, with ellipses and the result spelled out.
    """

    equation: str

    def infer(self, *xs: TensorType) -> TensorType:
        if not re.fullmatch(r"[A-Za-z]*(,[A-Za-z]*)*->[A-Za-z]*", self.equation):
            raise TypeRuleError(
                f"einsum: equation is '{self.equation}', expected letters as in ab,bc->ac"
            )
        terms, result = self.terms()
        if len(terms) != len(xs):
            raise TypeRuleError(
                f"einsum: {len(xs)} operands for '{self.equation}', expected {len(terms)}"
            )
        for x, term in zip(xs, terms, strict=True):
            check_dtype(self, "operand", x, NUMBERS)
            if x.dtype != xs[0].dtype or x.rank != len(term):
                raise TypeRuleError(
                    f"einsum: operand '{term}' of '{self.equation}' is {x}, expected rank "
                    f"{len(term)} and {xs[0].dtype}"
                )
            for c, d in zip(term, x.shape, strict=True):
                if term.count(c) > 1 and (d != x.shape[term.index(c)] or not known(d)):
                    raise TypeRuleError(
                        f"einsum: operand '{term}' is {x}, expected axes '{c}' fixed and equal"
                    )
        extents = self._extents(xs)
        if len(set(result)) != len(result) or any(c not in extents for c in result):
            raise TypeRuleError(
                f"einsum: result is '{''.join(result)}' in '{self.equation}', expected each letter "
                "once and in an operand"
            )
        return xs[0].with_shape(extents[c] for c in result)

    def terms(self) -> tuple[list[str], str]:
        """Return the labels of the operands and of the result."""
        left, _, right = self.equation.partition("->")
        return left.split(","), right

    def _extents(self, xs: tuple[TensorType, ...]) -> dict[str, Dim]:
        extents: dict[str, Dim] = {}
        for x, term in zip(xs, self.terms()[0], strict=True):
            for c, d in zip(term, x.shape, strict=True):
                known = extents.setdefault(c, d)
                if known == 1:
                    extents[c] = d
                elif d not in (1, known):
                    raise TypeRuleError(
                        f"einsum: axes '{c}' of '{self.equation}' are {known} and {d}, expected "
                        "equal or 1"
                    )
        return extents

    def lower(self, b: Graph, *xs: Value) -> Value:
        terms, result = self.terms()
        extents = self._extents(tuple(x.type for x in xs))
        parts = [
            squeezed(b, diagonal(b, (x, term)), extents) for x, term in zip(xs, terms, strict=True)
        ]
        whole = parts[0]
        for i, part in enumerate(parts[1:], 2):
            whole = contracted(b, whole, part, set(result).union(*[p[1] for p in parts[i:]]))
        x, labels = summed(b, whole, set(result))
        return arranged(b, (x, labels), result)[0]

    @classmethod
    def examples(cls) -> Examples:
        yield cls("ab,bc->ac"), "f32[3,4]", "f32[4,5]"
        yield cls("bhqd,bhkd->bhqk"), "f32[2,3,5,4]", "f32[2,3,7,4]"
        yield cls("bqhd,bkhd->bhqk"), "f32[2,5,3,4]", "f32[2,7,3,4]"
        yield cls("abc->ca"), "f32[2,3,4]"
        yield cls("aa->a"), "f32[3,3]"
        yield cls("aba->b"), "f32[3,2,3]"
        yield cls("abab->ab"), "f32[3,2,3,2]"
        yield cls("aabb->ba"), "f32[3,3,2,2]"
        yield cls("a,b->ab"), "f32[3]", "f32[5]"
        yield cls("a,a->"), "f32[7]", "f32[7]"
        yield cls("ab,b->ab"), "f32[3,1]", "f32[5]"
        yield cls("ab,bc,cd->da"), "f32[2,3]", "f32[3,4]", "f32[4,5]"
        yield cls("ab,bc->ac"), "f32[3,0]", "f32[0,5]"
        for dtype in sorted(NUMBERS - {"f32"}):
            yield cls("ab,bc->ca"), f"{dtype}[3,4]", f"{dtype}[4,2]"


def diagonal(b: Graph, part: Labelled) -> Labelled:
    """Return `part` with axes of the same label made one: their diagonal."""
    x, labels = part
    for c in sorted(set(labels)):
        while labels.count(c) > 1:
            first = labels.index(c)
            second = labels.index(c, first + 1)
            rest = [i for i in range(len(labels)) if i not in (first, second)]
            x = b(Transpose((*rest, first, second)), x)
            labels = "".join(labels[i] for i in rest)
            *kept, n, _ = x.type.extents
            flat = b(Reshape((*kept, n * n)), x)
            steps = (*[1] * len(kept), n + 1)
            x = b(Slice((0,) * len(steps), (*kept, n), steps), flat)
            labels += c
    return x, labels


def squeezed(b: Graph, part: Labelled, extents: dict[str, Dim]) -> Labelled:
    """Return `part` without the axes of extent 1 that stretch to another operand's."""
    x, labels = part
    kept = [i for i, c in enumerate(labels) if x.type.shape[i] == extents[c]]
    if len(kept) == len(labels):
        return part
    shape = tuple(x.type.shape[i] for i in kept)
    return b(Reshape(shape), x), "".join(labels[i] for i in kept)


def contracted(b: Graph, first: Labelled, second: Labelled, keep: set[str]) -> Labelled:
    """Return the product of two tensors, summed over the labels not in `keep`."""
    x, xl = summed(b, first, keep | set(second[1]))
    y, yl = summed(b, second, keep | set(first[1]))
    both = [c for c in xl if c in yl]
    batch = "".join(c for c in both if c in keep)
    inner = "".join(c for c in both if c not in keep)
    left = "".join(c for c in xl if c not in yl)
    right = "".join(c for c in yl if c not in xl)
    x, _ = arranged(b, (x, xl), batch + left + inner)
    y, _ = arranged(b, (y, yl), batch + inner + right)
    n, m = len(batch), len(batch + left)
    outer = x.type.shape[:n]
    rows, columns = x.type.shape[n:m], y.type.shape[n + len(inner) :]
    shape = (*outer, *rows, *columns)
    if not inner:
        aligned = b(Reshape((*outer, *rows, *[1] * len(columns))), x)
        opposite = b(Reshape((*outer, *[1] * len(rows), *columns)), y)
        z = b(Mul(), b(Broadcast(shape), aligned), b(Broadcast(shape), opposite))
        return z, batch + left + right
    depth = product(x.type.shape[m:])
    z = b(
        MatMul(),
        b(Reshape((*outer, product(rows), depth)), x),
        b(Reshape((*outer, depth, product(columns))), y),
    )
    # Bytes are summed in i32, of which only the last bits count here.
    return b(Reshape(shape), as_type(b, z, x.type.dtype)), batch + left + right


def summed(b: Graph, part: Labelled, keep: set[str]) -> Labelled:
    """Return `part` summed over the labels not in `keep`."""
    x, labels = part
    axes = tuple(i for i, c in enumerate(labels) if c not in keep)
    if not axes:
        return part
    return b(ReduceSum(axes, False), x), "".join(c for c in labels if c in keep)


def arranged(b: Graph, part: Labelled, order: str) -> Labelled:
    """Return `part` with its axes in the order of the labels `order`."""
    x, labels = part
    perm = tuple(labels.index(c) for c in order)
    return (x, order) if labels == order else (b(Transpose(perm), x), order)
