"""Operations of a program that have no converter."""

from __future__ import annotations

from alpenglow.base.errors import Refusal
from alpenglow.frontends.refusals import unknown
from alpenglow.frontends.stablehlo import converters
from alpenglow.frontends.stablehlo.control import CONTROL
from alpenglow.frontends.stablehlo.custom_calls import ACCEPTED
from alpenglow.frontends.stablehlo.module import CALLS, RETURNS, Function, Module, every
from alpenglow.frontends.stablehlo.steps import callee
from alpenglow.frontends.steps import reached


def missing(module: Module, main: Function) -> list[Refusal]:
    """Return the operations that have no converter, and calls of functions outside the program."""
    found = []
    for o in (o for f in functions(module, main) for o in every(f.body)):
        if o.name == "stablehlo.custom_call":
            target = str(o.attributes.get("call_target_name", ""))
            if target not in ACCEPTED:
                found.append(unknown(f"custom call '{target}'", o.place))
        elif o.name not in CONTROL | RETURNS and converters.find(o.name) is None:
            found.append(unknown(o.name, o.place))
    return found


def functions(module: Module, main: Function) -> list[Function]:
    """Return a function and those that it calls, each once, as `reached` does."""

    def function(name: str) -> Function:
        return main if name == main.name else module.function(name)

    def calls(name: str) -> list[str]:
        called = (o for o in every(function(name).body) if o.name in CALLS)
        return [module.function(callee(o), o.label).name for o in called]

    def length(name: str) -> int:
        return sum(1 for _ in every(function(name).body))

    return [function(n) for n in reached(main.name, calls, length, "function")]
