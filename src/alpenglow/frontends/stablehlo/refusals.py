"""What a program needs that is not there, told all at once before anything is imported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.base.words import counted
from alpenglow.frontends.stablehlo import converters
from alpenglow.frontends.stablehlo.control import CONTROL
from alpenglow.frontends.stablehlo.custom_calls import ACCEPTED
from alpenglow.frontends.stablehlo.module import CALLS, RETURNS, Function, Module, Operation, every

MOST_STEPS = 1 << 20
"""So many operations may stand in a program once functions stand where they are called."""


def check_supported(module: Module, main: Function) -> None:
    """Raise UnsupportedError that lists all operations and calls which there is nothing for."""
    missing: Counter[str] = Counter()
    for o in (o for f in reached(module, main) for o in every(f.body)):
        if o.name == "stablehlo.custom_call":
            target = str(o.attributes.get("call_target_name", ""))
            if target not in ACCEPTED:
                missing[f"custom call '{target}'"] += 1
        elif o.name not in CONTROL | RETURNS and converters.find(o.name) is None:
            missing[o.name] += 1
    if missing:
        listed = ", ".join(f"{name} ({counted(n, 'node')})" for name, n in sorted(missing.items()))
        raise UnsupportedError(f"these operations are not supported: {listed}")


def reached(module: Module, main: Function) -> Iterator[Function]:
    """Yield a function and those that it calls, each once.

    Raises ModelError if one calls itself, UnsupportedError if there are too many operations once
    functions stand where they are called.
    """
    sizes: dict[str, int] = {}
    waiting = [(main, called(module, main))]
    open_ = {main.name}
    while waiting:
        function, inner = waiting[-1]
        if inner:
            name = inner.pop()
            if name in open_:
                raise ModelError(f"function '{name}' calls itself")
            if name not in sizes:
                open_.add(name)
                waiting.append((module.function(name), called(module, module.function(name))))
            continue
        waiting.pop()
        open_.discard(function.name)
        inside = sum(sizes[name] for name in called(module, function))
        sizes[function.name] = sum(1 for _ in every(function.body)) + inside
        if sizes[function.name] > MOST_STEPS:
            raise UnsupportedError(f"the program runs {sizes[function.name]} operations and more")
        yield function


def called(module: Module, function: Function) -> list[str]:
    """Return the names of the functions that one calls."""
    return [_callee(module, o) for o in every(function.body) if o.name in CALLS]


def _callee(module: Module, o: Operation) -> str:
    name = str(o.attributes.get(CALLS[o.name], ""))
    if name not in module.functions:
        raise ModelError(f"there is no function '{name}'", node=o.label)
    return name
