"""Heaps in the results of an operator: the way to order a line without room beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from alpenglow.ir.dims import Dim
from alpenglow.kernel.expr import Binary, Compare, Const, Convert, Expr, Register
from alpenglow.loops.form import Loops

Item = tuple[Expr, ...]
"""What is known of an element of a heap."""


@dataclass(frozen=True)
class Heap:
    """Items at places 0, 1, … of a line of an extent; none comes `before` the one above it.

    Above the items at 2 * i + 1 and 2 * i + 2 is that at i.
    """

    k: Loops
    extent: Dim
    load: Callable[[Expr], Item]
    store: Callable[[Expr, Item], None]
    before: Callable[[Item, Item], Expr]

    def build(self, size: Expr) -> None:
        """Order the first `size` items so that they are a heap."""
        k = self.k
        root = k.b.var(k.m.shift_right(size, 1))
        with k.b.repeat_while(Compare("gt", root, Const(0))):
            k.b.set(root, k.m.sub(root, 1))
            self.sink(root, size)

    def pop(self, size: Register) -> Item:
        """Take out the first item of a heap of `size`, which shrinks; its last place is free."""
        k = self.k
        first = self.load(Const(0))
        k.b.set(size, k.m.sub(size, 1))
        self.store(Const(0), self.load(size))
        self.sink(Const(0), size)
        return first

    def sort(self, size: Expr) -> None:
        """Order a heap so that no item comes before one behind it."""
        k = self.k
        left = k.b.var(size)
        with k.b.repeat_while(Compare("gt", left, Const(1))):
            first = self.pop(left)
            self.store(left, first)

    def sink(self, root: Expr, size: Expr) -> None:
        """Move an item down to where none below it comes before it."""
        k = self.k
        item = self.load(root)
        # The place before that of a child; half of it is the place above both children.
        before = k.b.var(k.m.add(root, root))
        last = k.b.let(Convert(k.m.maximum(k.m.sub(size, 1), 0), "u64"))
        going = k.b.var(Const(True, "bool"))
        with k.b.repeat_while(Binary("and", going, Compare("lt", Convert(before, "u64"), last))):
            at, child = k.m.shift_right(before, 1), k.m.add(before, 1)
            below = tuple(k.b.var(x) for x in self.load(child))
            with k.b.when(k.m.lt(k.m.add(child, 1), size)):
                other = self.load(k.m.add(child, 1))
                with k.b.when(self.before(other, below)):
                    for register, x in zip(below, other, strict=True):
                        k.b.set(register, x)
                    k.b.set(before, child)
            k.b.set(going, self.before(below, item))
            with k.b.when(going):
                self.store(at, below)
                k.b.set(before, k.m.add(k.m.add(before, before), 2))
        self.store(k.inside(k.m.shift_right(before, 1), self.extent), item)
