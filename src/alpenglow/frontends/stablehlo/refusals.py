"""What a program needs that is not there, told all at once before anything is imported."""

from __future__ import annotations

from collections import Counter

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.base.words import counted
from alpenglow.frontends.stablehlo import converters
from alpenglow.frontends.stablehlo.control import CONTROL
from alpenglow.frontends.stablehlo.custom_calls import ACCEPTED
from alpenglow.frontends.stablehlo.module import CALLS, RETURNS, Function, Module, Operation, every
from alpenglow.frontends.steps import reached


def check_supported(module: Module, main: Function) -> None:
    """Raise UnsupportedError that lists all operations and calls which there is nothing for."""
    missing: Counter[str] = Counter()
    for o in (o for f in functions(module, main) for o in every(f.body)):
        if o.name == "stablehlo.custom_call":
            target = str(o.attributes.get("call_target_name", ""))
            if target not in ACCEPTED:
                missing[f"custom call '{target}'"] += 1
        elif o.name not in CONTROL | RETURNS and converters.find(o.name) is None:
            missing[o.name] += 1
    if missing:
        listed = ", ".join(f"{name} ({counted(n, 'node')})" for name, n in sorted(missing.items()))
        raise UnsupportedError(f"these operations are not supported: {listed}")


def functions(module: Module, main: Function) -> list[Function]:
    """Return a function and those that it calls, each once, as `reached` does."""

    def function(name: str) -> Function:
        return main if name == main.name else module.function(name)

    def calls(name: str) -> list[str]:
        return [_callee(module, o) for o in every(function(name).body) if o.name in CALLS]

    def length(name: str) -> int:
        return sum(1 for _ in every(function(name).body))

    return [function(n) for n in reached(main.name, calls, length, "function")]


def _callee(module: Module, o: Operation) -> str:
    name = str(o.attributes.get(CALLS[o.name], ""))
    if name not in module.functions:
        raise ModelError(f"there is no function '{name}'", node=o.label)
    return name
