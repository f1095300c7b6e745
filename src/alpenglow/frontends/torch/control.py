"""Calls of operators on functions: in their place stand the calls of a function's body.

Of two branches the one that is taken is imported, if it is known which.  Otherwise both are
computed and the results chosen, if that is cheap (`frontends.choice`).  A scan over as many slices
as are known, and few, is so many copies of its body; what goes on for as long as data say is a loop
of the runtime's (`loops`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.frontends.control import SHORT
from alpenglow.frontends.presume import Needed
from alpenglow.frontends.torch.program import Argument, Body, Call, Condition, Ref
from alpenglow.frontends.torch.symbols import is_untold, untold
from alpenglow.frontends.torch.table import Site
from alpenglow.ir.dims import Dim, Guards, Sym, bind
from alpenglow.ir.graph import Value
from alpenglow.ir.types import Array, TensorType

LONGEST = 1024
"""How many calls a scan may become."""

SAME = "alpenglow.same"
"""A call whose result is its argument."""

ITEM = "aten._local_scalar_dense.default"

LOOP, SCAN = "alpenglow.loop", "alpenglow.scan"
LOOPS = (LOOP, SCAN)
"""Calls that the runtime turns round."""


@dataclass(frozen=True, slots=True)
class Splice:
    """Calls that stand for one, the types of what they make, and constants that they read."""

    calls: Sequence[Call]
    types: Mapping[str, TensorType] = field(default_factory=dict)
    constants: Mapping[str, Array] = field(default_factory=dict)


Branch = tuple[Splice, tuple[Argument, ...]]
"""The calls of a branch, and its results."""


class Importing(Protocol):
    """What an expansion asks of the importer."""

    types: dict[str, TensorType]

    def site(self, call: Call) -> Site: ...

    def given(self, argument: Argument) -> Any: ...

    def learn(self, name: str, extent: Dim) -> None: ...

    def computes_all(self, call: Call, chooser: Value, branches: Sequence[Branch]) -> bool: ...


Expansion = Callable[[Importing, Call], Splice]
_EXPANSIONS: dict[str, Expansion] = {}


def expands(target: str) -> Callable[[Expansion], Expansion]:
    """Register what stands for calls of an operator."""

    def add(expansion: Expansion) -> Expansion:
        assert target not in _EXPANSIONS, f"two expansions of {target}"
        _EXPANSIONS[target] = expansion
        return expansion

    return add


def expanded(importer: Importing, call: Call) -> Splice | None:
    """Return what stands for a call; None if it stands for itself."""
    expansion = _EXPANSIONS.get(call.target)
    return None if expansion is None else expansion(importer, call)


def is_expanded(target: str) -> bool:
    """Whether something stands for calls of an operator."""
    return target in _EXPANSIONS


def inlined(
    body: Body, operands: Sequence[Argument], prefix: str, source: str = ""
) -> tuple[Splice, tuple[Argument, ...]]:  # fmt: skip
    """Return the calls of a body on operands, names behind a prefix, and what it returns."""
    if len(operands) != len(body.inputs):
        raise ModelError(f"a function has {len(body.inputs)} inputs for {len(operands)} operands")
    copy = _Copy(body, dict(zip(body.inputs, operands, strict=True)), prefix)
    told = []
    for name, operand in copy.given.items():
        number = body.symbols.get(name)
        if isinstance(number, Sym):
            target = ITEM if isinstance(operand, Ref) else SAME
            told.append(Call(f"{prefix}{name}", target, {"self": operand},
                             (str(bind(number, copy.symbols)),), source))  # fmt: skip
    calls = [
        Call(prefix + c.name, c.target, {k: copy.argument(a) for k, a in c.arguments.items()},
             tuple(map(copy.result, c.results)), c.source or source, c.module,
             tuple(None if t is None else t.bind(copy.symbols) for t in c.stated))
        for c in body.calls
    ]  # fmt: skip
    types = {prefix + n: t.bind(copy.symbols) for n, t in body.types.items()}
    constants = {prefix + n: a for n, a in body.constants.items()}
    return Splice([*told, *calls], types, constants), tuple(map(copy.argument, body.outputs))


class _Copy:
    """How names in a body change where it is inlined.

    Symbols that the body is given or makes are others in each copy; those that its operands are
    made of are everybody's.
    """

    def __init__(self, body: Body, given: Mapping[str, Argument], prefix: str) -> None:
        self.given = given
        self._body = body
        self._prefix = prefix
        outer = {n for i in body.inputs if i in body.types for n in body.types[i].symbols()}
        made = {n for t in body.types.values() for n in t.symbols()}
        made |= {r for c in body.calls for r in c.results if r and r not in body.types}
        own = {n for n in made - outer if is_untold(n)}
        own |= {str(d) for d in body.symbols.values() if isinstance(d, Sym)}
        self.symbols = {n: untold(n, prefix) for n in own if n.isidentifier()}

    def argument(self, a: Any) -> Any:
        match a:
            case Ref(name=name):
                return self.given[name] if name in self.given else Ref(self._prefix + name)
            case tuple():
                return tuple(map(self.argument, a))
            case Sym():
                return bind(a, self.symbols)
            case Condition(guards=guards):
                return self._condition(guards)
            case Body():
                return self._inner(a)
        return a

    def result(self, name: str) -> str:
        if name in self._body.types:
            return self._prefix + name
        return str(self.symbols.get(name, name))

    def _condition(self, guards: Guards) -> Condition:
        bound = [(bind(x, self.symbols), relation) for x, relation in guards]
        return Condition(tuple((x, r) for x, r in bound if isinstance(x, Sym)))

    def _inner(self, body: Body) -> Body:
        """Return a function that stands in the body, in which only symbols change."""
        inner = _Copy(body, {}, "")
        inner.symbols = self.symbols
        calls = [replace(c, arguments={k: inner.argument(a) for k, a in c.arguments.items()})
                 for c in body.calls]  # fmt: skip
        return replace(
            body,
            calls=tuple(calls),
            outputs=tuple(map(inner.argument, body.outputs)),
            types={n: t.bind(self.symbols) for n, t in body.types.items()},
        )


def returned(call: Call, outputs: Sequence[Argument]) -> list[Call]:
    """Return calls that give outputs the names of a call's results."""
    pairs = list(zip(call.results, outputs, strict=True))
    return [Call(f"{call.name}={i}", SAME, {"self": a}, (name,), call.source)
            for i, (name, a) in enumerate(pairs) if name]  # fmt: skip


@expands("cond")
def cond(importer: Importing, call: Call) -> Splice:
    """The branch that is taken, or nothing if both are computed already."""
    condition, operands = importer.given(call.arguments["pred"]), call.arguments["operands"]
    if not isinstance(condition, Value | Condition | bool | int):
        raise UnsupportedError(f"cond: the condition is {condition!r}")
    assert isinstance(operands, tuple), "what cond is called with"

    def branch(taken: bool) -> Branch:
        body = call.arguments["true_fn" if taken else "false_fn"]
        assert isinstance(body, Body), "what cond is called with"
        return inlined(body, operands, f"{call.name}.{int(taken)}.", call.source)

    site = importer.site(call)
    try:
        splice, outputs = branch(site.truth(condition))
    except Needed:
        branches = branch(True), branch(False)
        short = sum(len(splice.calls) for splice, _ in branches) <= SHORT
        if short and importer.computes_all(call, site.constant(condition, "bool"), branches):
            return Splice(())
        raise
    return Splice([*splice.calls, *returned(call, outputs)], splice.types, splice.constants)


@expands("while_loop")
def while_loop(importer: Importing, call: Call) -> Splice:
    """Whether there is a first turn, and a loop of the runtime's."""
    condition = call.arguments["cond_fn"]
    carried, others = call.arguments["carried_inputs"], call.arguments["additional_inputs"]
    assert isinstance(condition, Body), "what while_loop is called with"
    assert isinstance(carried, tuple) and isinstance(others, tuple), (
        "what while_loop is called with"
    )
    splice, outputs = inlined(condition, (*carried, *others), f"{call.name}.c.", call.source)
    going = f"{call.name}.going"
    start = Call(going, SAME, {"self": outputs[0]}, (going,), call.source)
    # A number that is carried is a tensor to the loop, and read out of it behind.
    numbers = {r: f"{call.name}.n{i}" for i, r in enumerate(call.results) if is_untold(r)}
    results = tuple(numbers.get(r, r) for r in call.results)
    loop = Call(call.name, LOOP, {**call.arguments, "going": Ref(going)}, results, call.source)
    items = [Call(n, ITEM, {"self": Ref(n)}, (r,), call.source) for r, n in numbers.items()]
    types = {**splice.types, going: TensorType("bool", ())}
    types |= dict.fromkeys(numbers.values(), TensorType("i64", ()))
    return Splice([*splice.calls, start, loop, *items], types, splice.constants)


@expands("scan")
def scan(importer: Importing, call: Call) -> Splice:
    """A body that maps (carried …, slice …, others …) to (carried …, slice …)."""
    body, initial = call.arguments["combine_fn"], call.arguments["init"]
    scanned, others = call.arguments["xs"], call.arguments["additional_inputs"]
    return _turns(importer, call, body, initial, scanned, others)


@expands("map_impl")
def mapped(importer: Importing, call: Call) -> Splice:
    """A body that maps (slice …, others …) to (slice …)."""
    body, scanned = call.arguments["f"], call.arguments["xs"]
    return _turns(importer, call, body, (), scanned, call.arguments["pos_args"])


def _turns(
    importer: Importing, call: Call, body: Argument, initial: Argument, scanned: Argument,
    others: Argument,
) -> Splice:  # fmt: skip
    """Return a body's calls for each slice, or one call where there are many or it is not known."""
    assert isinstance(body, Body) and isinstance(initial, tuple), f"{call.target} of {body}"
    assert isinstance(scanned, tuple) and isinstance(others, tuple), f"{call.target} of {body}"
    first = importer.given(scanned[0])
    count = first.type.shape[0]
    if not isinstance(count, int) or not 0 < count * max(len(body.calls), 1) <= LONGEST:
        arguments: dict[str, Argument] = {
            "body": body,
            "init": initial,
            "xs": scanned,
            "others": others,
        }
        return Splice([Call(call.name, SCAN, arguments, call.results, call.source)])
    calls: list[Call] = []
    types: dict[str, TensorType] = {}
    constants: dict[str, Array] = {}
    carried: tuple[Argument, ...] = initial
    collected: list[tuple[Argument, ...]] = []
    for turn in range(count):
        prefix = f"{call.name}.{turn}."
        slices = []
        for k, x in enumerate(scanned):
            name = f"{prefix}x{k}"
            v = importer.given(x)
            types[name] = v.type.with_shape(v.type.shape[1:])
            cut: dict[str, Argument] = {"self": x, "dim": 0, "index": turn}
            calls.append(Call(name, "aten.select.int", cut, (name,), call.source))
            slices.append(Ref(name))
        splice, outputs = inlined(body, (*carried, *slices, *others), prefix, call.source)
        calls += splice.calls
        types |= splice.types
        constants |= splice.constants
        carried = outputs[: len(initial)]
        collected.append(outputs[len(initial) :])
    stacks = [_stacked(call, len(initial) + k, parts)
              for k, parts in enumerate(zip(*collected, strict=True))]  # fmt: skip
    finals = [s for s in stacks if s is not None]
    return Splice([*calls, *returned_first(call, carried), *finals], types, constants)


def returned_first(call: Call, carried: Sequence[Argument]) -> list[Call]:
    """Return calls that give what is carried the names of a call's first results."""
    head = Call(call.name, call.target, {}, call.results[: len(carried)], call.source)
    return returned(head, carried)


def _stacked(call: Call, i: int, parts: Sequence[Argument]) -> Call | None:
    """Return the call that stacks what the turns made for result i; None if nobody reads that."""
    name = call.results[i]
    if not name:
        return None
    arguments: dict[str, Argument] = {"tensors": tuple(parts), "dim": 0}
    return Call(f"{call.name}={i}", "aten.stack.default", arguments, (name,), call.source)
