"""Rewriting by rules: Python's `match` is the pattern language.

A rule is a function that looks at one node and returns what to use in place of its results, or
None to decline; its docstring is its law, ``lhs => rhs``.  Rules are indexed by the operator at
the root of their pattern, and a worklist brings back the users of whatever has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Op

Rewritten = Value | Sequence[Value] | None
Rule = Callable[[Graph, Node], Rewritten]


@dataclass(slots=True)
class Rules:
    """A set of rules, indexed by root operator (a class; its subclasses count)."""

    by_root: dict[type[Op], list[Rule]] = field(default_factory=dict)
    _cache: dict[type[Op], tuple[Rule, ...]] = field(default_factory=dict)

    def on(self, *roots: type[Op]) -> Callable[[Rule], Rule]:
        """Register the decorated function for nodes whose operator is one of `roots`."""

        def add(rule: Rule) -> Rule:
            assert rule.__doc__ and "=>" in rule.__doc__, f"{rule.__name__} states no law"
            for root in roots:
                self.by_root.setdefault(root, []).append(rule)
            self._cache.clear()
            return rule

        return add

    def rules(self) -> list[Rule]:
        """Return every rule once, in order of definition."""
        return list({rule: None for group in self.by_root.values() for rule in group})

    def of(self, op: type[Op]) -> tuple[Rule, ...]:
        """Return the rules for one operator class."""
        if op not in self._cache:
            rules = [r for base in op.__mro__ for r in self.by_root.get(base, ())]
            self._cache[op] = tuple(rules)
        return self._cache[op]

    def apply(self, g: Graph, roots: Callable[[Node], bool] = lambda node: True) -> int:
        """Rewrite `g` to a fixed point, prune it, and return how many rewrites that took.

        Only nodes that are among the `roots` are rewritten.
        """
        count = 0
        work = list(reversed(g.nodes))
        waiting = set(work)
        while work:
            node = work.pop()
            waiting.discard(node)
            if node not in g.nodes or not _alive(g, node) or not roots(node):
                continue
            before = len(g.nodes)
            for rule in self.of(type(node.op)):
                new = rule(g, node)
                if new is None:
                    continue
                values = [new] if isinstance(new, Value) else list(new)
                for user in [*_made_since(g, before), *node.users]:
                    if user not in waiting:
                        work.append(user)
                        waiting.add(user)
                for old, value in zip(node.results, values, strict=True):
                    g.replace(old, value)
                count += 1
                break
        if count:
            g.prune()
        return count

    def exhaust(self, g: Graph, roots: Callable[[Node], bool] = lambda node: True) -> Graph:
        """Apply the rules until none does anything more, and return `g`.

        Pruning may leave values with a single reader, which some rules ask for.
        """
        while self.apply(g, roots):
            pass
        return g


def _alive(g: Graph, node: Node) -> bool:
    if not node.op.pure or any(v.users for v in node.results):
        return True
    return any(v is r for v in g.outputs.values() for r in node.results)


def _made_since(g: Graph, before: int) -> list[Node]:
    """Return the nodes appended after the graph had `before` nodes, newest first."""
    nodes: list[Node] = []
    for node in reversed(g.nodes):
        if len(nodes) == len(g.nodes) - before:
            break
        nodes.append(node)
    return nodes
