"""Heaps in the results of an operator: the way to order a line without room beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from alpenglow.backends.loops.form import Loops
from alpenglow.kernel.expr import Const, Expr, Register

Item = tuple[Expr, ...]
"""What is known of an element of a heap."""


@dataclass(frozen=True)
class Heap:
    """A line of items at places 0, 1, …; none comes `before` the one at half its place."""

    k: Loops
    load: Callable[[Expr], Item]
    store: Callable[[Expr, Item], None]
    before: Callable[[Item, Item], Expr]

    def build(self, size: Expr) -> None:
        """Order the first `size` items so that they are a heap."""
        k = self.k
        root = k.b.var(k.m.shift_right(size, 1))
        going = k.b.var(k.m.gt(root, 0))
        with k.b.repeat_while(going):
            k.b.set(root, k.m.sub(root, 1))
            self.sink(root, size)
            k.b.set(going, k.m.gt(root, 0))

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
        going = k.b.var(k.m.gt(left, 1))
        with k.b.repeat_while(going):
            first = self.pop(left)
            self.store(left, first)
            k.b.set(going, k.m.gt(left, 1))

    def sink(self, root: Expr, size: Expr) -> None:
        """Move an item down to where none below it comes before it."""
        k = self.k
        at, item = k.b.var(root), self.load(root)
        child = k.b.var(k.m.add(k.m.add(at, at), 1))
        going = k.b.var(k.m.lt(child, size))
        with k.b.repeat_while(going):
            below = tuple(k.b.var(x) for x in self.load(child))
            with k.b.when(k.m.lt(k.m.add(child, 1), size)):
                other = self.load(k.m.add(child, 1))
                with k.b.when(self.before(other, below)):
                    for register, x in zip(below, other, strict=True):
                        k.b.set(register, x)
                    k.b.set(child, k.m.add(child, 1))
            k.b.set(going, self.before(below, item))
            with k.b.when(going):
                self.store(at, below)
                k.b.set(at, child)
                k.b.set(child, k.m.add(k.m.add(at, at), 1))
                k.b.set(going, k.m.lt(child, size))
        self.store(at, item)
