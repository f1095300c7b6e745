"""StableHLO's own test programs: what they check, run here, and the rules by which it is close.

A program calls `inputs`, `expected` and a check, or holds checks of what it computes.  Here checks
become outputs of the program, two for each, and inputs those of the program if it is compiled.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import alpenglow as ag
from alpenglow.evaluate import evaluate
from alpenglow.frontends.stablehlo.loading import loaded
from alpenglow.frontends.stablehlo.module import (
    RETURNS,
    Block,
    Function,
    Module,
    Operation,
    Signature,
    every,
)
from alpenglow.frontends.stablehlo.reading import Source
from alpenglow.frontends.stablehlo.text.text import read_text
from alpenglow.ir.graph import Graph
from alpenglow.ir.types import Array

ROOT = Path(__file__).parents[3]
FOLDER = Path(os.environ.get("ALPENGLOW_SUITES", ROOT / ".models" / "suites")) / "stablehlo"

ULPS = 3
"""By so many steps in the last place what is close may differ, if the check does not say."""

ALMOST = 0.001
"""By so much what is almost equal may differ, if the check does not say."""

ROUNDING = 16
"""By so many steps of the largest element sums may differ that are taken in another order."""


@dataclass(frozen=True)
class Check:
    """What two values must be to each other; `wanted` is a constant, or None for an output."""

    kind: str
    wanted: Array | None
    attributes: dict[str, Any]


def texts(path: Path) -> list[str]:
    """Return the programs of a file that check something: texts between lines of five dashes."""
    parts = re.split(r"^// -----.*$", path.read_text(), flags=re.MULTILINE)
    return [text for text in parts if re.search(r"^ .*\bcheck\.", text, re.MULTILINE)]


def functions(text: str) -> Iterator[tuple[Module, Function]]:
    """Yield the functions of a text that no other calls, each a program."""
    module = read_text(text)
    called = {
        str(o.attributes.get(key, ""))
        for f in module.functions.values()
        for o in every(f.body)
        for key in ("callee", "decomposition")
    }
    yield from ((module, f) for name, f in module.functions.items() if name not in called)


def checked(function: Function) -> tuple[Function, list[Check]]:
    """Return a function whose outputs are what it checked, and these checks."""
    operations: list[Operation] = []
    outputs: list[str] = []
    types: list[Any] = []
    checks: list[Check] = []
    for o in function.body.operations:
        target = str(o.attributes.get("call_target_name", ""))
        kind = target if target.startswith("check.") else o.name
        if kind.startswith("check."):
            wanted = o.attributes.get("value") if kind.endswith("_const") else None
            count = 1 if wanted is not None else 2
            checks.append(Check(kind.removesuffix("_const"), wanted, dict(o.attributes)))
            outputs += o.operands[:count]
            types += o.operand_types[:count]
            if o.results:  # the check returns whether it holds
                true = {"value": np.array(True)}
                operations.append(
                    Operation("stablehlo.constant", (), o.results, o.types, true, (), o.place)
                )
            continue
        if o.name in RETURNS:
            o = Operation(o.name, tuple(outputs), (), (), {}, (), o.place, tuple(types))
        operations.append(o)
    body = Block(function.body.arguments, tuple(operations))
    return Function("main", Signature(function.signature.inputs, tuple(types)), body), checks


def hoisted(module: Module, main: Function) -> tuple[Function, dict[str, Array]]:
    """Return a function whose inputs are what it called `inputs` for, and these."""
    feeds: dict[str, Array] = {}
    arguments: list[tuple[str, Any]] = []
    operations: list[Operation] = []
    for o in main.body.operations:
        if o.attributes.get("callee") != "inputs" or o.operands:
            operations.append(o)
            continue
        values = evaluated(with_main(module, module.functions["inputs"]))
        feeds |= dict(zip(o.results, values, strict=True))
        arguments += zip(o.results, o.types, strict=True)
    types = tuple(t for _, t in arguments)
    body = Block(tuple(arguments), tuple(operations))
    return Function("main", Signature(types, main.signature.results), body), feeds


def with_main(module: Module, main: Function) -> Module:
    """Return a module of which a function is the program."""
    renamed = Function("main", main.signature, main.body)
    return Module({**module.functions, "main": renamed})


def evaluated(module: Module) -> list[Array]:
    """Return what a program without inputs makes, in the interpreter."""
    graph = loaded(module, Source(b"", "program"))
    if isinstance(graph, Graph):
        return list(evaluate(graph, {}).values())
    return list(ag.compile(graph, target="interpreter").run({}).values())


def compiled(module: Module, main: Function) -> list[Array]:
    """Return what compiled code makes of the inputs of a program."""
    function, feeds = hoisted(module, main)
    graph = loaded(with_main(module, function), Source(b"", "program"))
    return list(ag.compile(graph).run(feeds).values())


def failures(module: Module, function: Function, compile: bool = False) -> list[str]:
    """Run a program, and return what of its checks does not hold."""
    return [
        f"{check.kind}: {made.reshape(-1)[:4]} and {wanted.reshape(-1)[:4]}"
        for check, made, wanted in compared(module, function, compile)
        if verdict(check, made, wanted) == WRONG
    ]


def compared(
    module: Module, function: Function, compile: bool = False
) -> Iterator[tuple[Check, Array, Array]]:
    """Run a program, and yield its checks, each with both values."""
    main, checks = checked(function)
    assert checks, f"{function.name} checks nothing"
    values = iter(compiled(module, main) if compile else evaluated(with_main(module, main)))
    for check in checks:
        made = np.asarray(next(values))
        yield check, made, check.wanted if check.wanted is not None else np.asarray(next(values))


RIGHT, NEAR, WRONG = "right", "near", "wrong"


def verdict(check: Check, made: Array, wanted: Array) -> str:
    """Return whether two arrays are to each other as a check says, or as sums in another order."""
    if made.shape != wanted.shape or made.dtype != wanted.dtype:
        return WRONG
    if made.dtype.kind in "biu" or "int" in made.dtype.name:
        return RIGHT if (made == wanted).all() else WRONG
    if made.dtype.kind == "c":
        parts = [(made.real, wanted.real), (made.imag, wanted.imag)]
        size = _largest(np.abs(wanted))
    else:
        parts, size = [(made, wanted)], _largest(np.abs(wanted.astype(np.float64)))
    if all(_close(check, a, b) for a, b in parts):
        return RIGHT
    return NEAR if all(_close(check, a, b) or _near(a, b, size) for a, b in parts) else WRONG


def _close(check: Check, a: Array, b: Array) -> bool:
    x, y = a.astype(np.float64), b.astype(np.float64)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    if check.kind in ("check.expect_eq", "check.eq"):
        return bool(same.all())
    if check.kind == "check.expect_almost_eq":
        with np.errstate(invalid="ignore"):
            return bool((same | (np.abs(x - y) <= check.attributes.get("tolerance", ALMOST))).all())
    assert check.kind == "check.expect_close", check.kind
    finite = np.isfinite(x) & np.isfinite(y)
    if (~same & ~finite).any():
        return False
    most = check.attributes.get("max_ulp_difference", ULPS)
    return bool((same | (_steps(a, b) <= most)).all())


def _steps(a: Array, b: Array) -> Array:
    """Return how many numbers there are from each element to the other."""
    bits = np.dtype(f"i{a.dtype.itemsize}")
    least = int(np.iinfo(bits).min)
    x, y = (np.ascontiguousarray(v).view(bits).astype(object) for v in (a, b))
    x, y = (np.where(v < 0, least - v, v) for v in (x, y))
    return np.abs(x - y)


def _near(a: Array, b: Array, size: float) -> bool:
    """Whether floats differ by no more than rounding does that depends on an order."""
    eps = float(np.ldexp(1.0, {2: -8 if a.dtype.name == "bfloat16" else -11, 4: -23, 8: -52}[
        a.dtype.itemsize]))  # fmt: skip
    x, y = a.astype(np.float64), b.astype(np.float64)
    return bool(np.isclose(x, y, ROUNDING * eps, ROUNDING * eps * size, equal_nan=True).all())


def _largest(size: Array) -> float:
    finite = size[np.isfinite(size)]
    return float(finite.max()) if finite.size else 0.0
