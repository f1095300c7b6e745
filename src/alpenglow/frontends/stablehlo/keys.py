"""Comparators that are orders of keys, each made of one element.

Keys are compared in turn.  A comparator of x and y is ``key(x) < key(y)``, or
``k(x) < k(y) or (k(x) == k(y) and …)`` with the next key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from alpenglow.frontends.stablehlo.module import Block, Operation

MOST_SHAPE = 1 << 12
"""So many operations of keys are looked at."""


@dataclass(frozen=True, slots=True)
class Key:
    """Operations that compute a key, whether larger keys come first, and if by total order."""

    body: tuple[Operation, ...]
    returns: Operation
    falls: bool
    total: bool


def keys_of(block: Block, count: int) -> list[Key] | None:
    """Return the keys that a comparator of `count` pairs orders by, None if it is another."""
    names = [name for name, _ in block.arguments]
    if len(names) != 2 * count or len(block.results) != 1:
        return None
    made = {o.results[0]: o for o in block.body if len(o.results) == 1}
    if len(made) != len(block.body):
        return None
    sides = {name: i % 2 for i, name in enumerate(names)}
    twin = {name: names[i ^ 1] for i, name in enumerate(names)}
    keys: list[Key] = []
    waiting = block.results[0]
    while True:
        o = made.get(waiting)
        if o is None:
            return None
        rest = ""
        if o.name in ("stablehlo.or", "stablehlo.select"):
            found = _first(o, made, twin)
            if found is None:
                return None
            o, rest = found
        key = _key(o, made, block, sides, twin)
        if key is None:
            return None
        keys.append(key)
        if not rest:
            return keys
        waiting = rest


def _first(
    o: Operation, made: Mapping[str, Operation], twin: Mapping[str, str]
) -> tuple[Operation, str] | None:
    """Return the first comparison of ``less or (equal and rest)``, and the name of the rest."""
    if o.name == "stablehlo.select":  # select(equal, rest, less)
        equal, rest, less = o.operands
        return _paired(made.get(less), made.get(equal), rest, made)
    for less, both in (o.operands, tuple(reversed(o.operands))):
        inner = made.get(both)
        if inner is None or inner.name != "stablehlo.and":
            continue
        for equal, rest in (inner.operands, tuple(reversed(inner.operands))):
            found = _paired(made.get(less), made.get(equal), rest, made)
            if found is not None:
                return found
    return None


def _paired(
    less: Operation | None, equal: Operation | None, rest: str, made: Mapping[str, Operation]
) -> tuple[Operation, str] | None:
    """Return a comparison if another asks whether the same things are equal."""
    if less is None or equal is None:
        return None
    if less.name != "stablehlo.compare" or equal.name != "stablehlo.compare":
        return None
    if equal.attributes.get("comparison_direction") != "EQ":
        return None
    if less.attributes.get("compare_type") != equal.attributes.get("compare_type"):
        return None
    same = all(_alike(a, b, made, {}) for a, b in zip(less.operands, equal.operands, strict=True))
    return (less, rest) if same else None


def _key(
    o: Operation, made: Mapping[str, Operation], block: Block, sides: Mapping[str, int],
    twin: Mapping[str, str],
) -> Key | None:  # fmt: skip
    """Return the key that a comparison orders by: the same function of each side."""
    direction = o.attributes.get("comparison_direction")
    if o.name != "stablehlo.compare" or direction not in ("LT", "GT"):
        return None
    x, y = o.operands
    read = _read(x, made), _read(y, made)
    if {sides.get(n) for n in read[0]} != {0} or {sides.get(n) for n in read[1]} != {1}:
        if {sides.get(n) for n in read[0]} != {1} or {sides.get(n) for n in read[1]} != {0}:
            return None
        direction = "GT" if direction == "LT" else "LT"
        x, y = y, x
    if not _alike(x, y, made, dict(twin)):
        return None
    needed = _needed(x, made)
    body = tuple(b for b in block.body if b.results[0] in needed)
    returns = Operation("stablehlo.return", (x,), (), (), {}, (), o.place)
    return Key(body, returns, direction == "GT", o.attributes.get("compare_type") == "TOTALORDER")


def _read(name: str, made: Mapping[str, Operation]) -> set[str]:
    """Return the arguments, and what else from outside, that a value is made of."""
    return {n for n in _needed(name, made) if n not in made}


def _needed(name: str, made: Mapping[str, Operation]) -> set[str]:
    """Return all names that a value is made of, its own among them."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        n = waiting.pop()
        if n not in seen:
            seen.add(n)
            waiting.extend(made[n].operands if n in made else ())
    return seen


def _alike(a: str, b: str, made: Mapping[str, Operation], twin: Mapping[str, str]) -> bool:
    """Whether two values are made alike, arguments of one from their twins."""
    waiting, steps = [(a, b)], 0
    while waiting:
        a, b = waiting.pop()
        steps += 1
        if steps > MOST_SHAPE:
            return False
        if a == b and (a in made or not twin):
            continue
        p, q = made.get(a), made.get(b)
        if p is None or q is None:
            if twin.get(a) != b:
                return False
            continue
        if p.name != q.name or p.types != q.types or p.regions or q.regions:
            return False
        if not _same_attributes(p, q) or len(p.operands) != len(q.operands):
            return False
        waiting.extend(zip(p.operands, q.operands, strict=True))
    return True


def _same_attributes(p: Operation, q: Operation) -> bool:
    if p.attributes.keys() != q.attributes.keys():
        return False
    for name, value in p.attributes.items():
        other = q.attributes[name]
        if hasattr(value, "tobytes") and hasattr(other, "tobytes"):
            if value.dtype != other.dtype or value.tobytes() != other.tobytes():
                return False
        elif type(value) is not type(other) or value != other:
            return False
    return True
