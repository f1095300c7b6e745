"""Calls of operators on functions as steps: which functions they run, and where a function stands.

A function is a region (`frontends.steps`).  Numbers have no names in a program; a number that
is an operand or a result of a function gets a name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.frontends.control import Along, Branch, Control, Scan, While
from alpenglow.frontends.control import Call as Once
from alpenglow.frontends.presume import Needed
from alpenglow.frontends.steps import LONGEST, Step
from alpenglow.frontends.steps import Body as Placing
from alpenglow.frontends.torch.program import Argument, Body, Call, Condition, Ref, refs
from alpenglow.frontends.torch.refusals import label
from alpenglow.frontends.torch.symbols import is_untold, untold
from alpenglow.frontends.torch.table import Site
from alpenglow.ir.dims import Guards, Sym, bind
from alpenglow.ir.graph import Value
from alpenglow.ir.types import Array, TensorType

NUMBER = "alpenglow.number"
"""A call whose result is its argument."""

ITEM = "aten._local_scalar_dense.default"

OPERANDS: Mapping[str, tuple[str, ...]] = {
    "while_loop": ("carried_inputs", "additional_inputs"),
    "scan": ("init", "xs", "additional_inputs"),
    "map_impl": ("xs", "pos_args"),
}
"""Loops, and the names of their operands: lists of tensors and numbers."""

SCANS = ("scan", "map_impl")
"""Loops along the first axis of tensors."""

EXPANDED = ("cond", *OPERANDS)
"""Calls that are expanded to their functions."""

SCALAR = TensorType("i64", ())


@dataclass(frozen=True, slots=True, eq=False)
class Applied:
    """A call, and the call of the program that it was expanded from."""

    call: Call
    origin: Call


CallStep = Step[Applied]


@dataclass(frozen=True, slots=True)
class Placed(Placing[Applied]):
    """A function where it stands: also the types of its tensors by name, and its constants.

    `inputs` are the types of its parameters by the names of the operands.
    """

    types: Mapping[str, TensorType]
    constants: Mapping[str, Array]
    inputs: Mapping[str, TensorType]


@dataclass(frozen=True, slots=True)
class Function:
    """A function that a call runs on operands, and behind these on `others`.

    `numbers` are the operands that are numbers, by their names.
    """

    body: Body
    origin: Call
    others: tuple[Argument, ...] = ()
    numbers: Mapping[str, Argument] | None = None

    @property
    def length(self) -> int | None:
        """The number of calls; None above LONGEST."""
        count, waiting = 0, [self.body]
        while waiting and count <= LONGEST:
            body = waiting.pop()
            count += len(body.calls)
            waiting += inner(body)
        return count if count <= LONGEST else None

    def place(self, prefix: str, operands: Sequence[str]) -> Placed:
        numbers = self.numbers or {}
        given = (*(numbers.get(n, Ref(n)) for n in operands), *self.others)
        return placed(self.body, given, prefix, self.origin)


class Importing(Protocol):
    """The questions about arguments that control flow has for the importer."""

    values: dict[str, Value]
    undecided: set[str]

    def argument(self, argument: Argument) -> Any: ...

    def site(self, call: Call) -> Site: ...


def inner(body: Body) -> Iterator[Body]:
    """Yield the functions that the calls of a body are called with."""
    for call in body.calls:
        for argument in call.arguments.values():
            if isinstance(argument, Body):
                yield argument


def step_of(call: Call, origin: Call | None = None) -> CallStep:
    """Return a call as a step; the operands of a loop are what it carries."""
    read = tuple(dict.fromkeys(refs(call.arguments)))
    captured: tuple[str, ...] = ()
    if call.target == "while_loop":
        read, captured = (tuple(refs(_several(call, n))) for n in OPERANDS[call.target])
    applied = Applied(call, origin or call)
    return Step(call.target, label(call), read, call.results, applied, captured)


def control(step: CallStep, importer: Importing) -> Control[Applied] | None:
    """Return the control flow that a call is; None if it runs no function, or is a loop that is not
    known to turn a few times.

    Raises Needed if a condition on extents decides which are not known.
    """
    call, origin = step.payload.call, step.payload.origin
    if step.kind == "cond":
        return _branch(call, origin, importer)
    if step.kind == "while_loop":
        others = _several(call, "additional_inputs")
        condition, body = (Function(function(call, n), origin, others)
                           for n in ("cond_fn", "body_fn"))  # fmt: skip
        return While(condition, body)
    if step.kind not in SCANS:
        return None
    initial, scanned, others, region = scanning(call, origin)
    count = importer.argument(scanned[0]).type.shape[0]
    turns = LONGEST // max(len(region.body.calls), 1)
    along = tuple((name, Along(0)) for name in names_of(scanned))
    stacked = (Along(0),) * (len(call.results) - len(initial))
    short = isinstance(count, int) and 0 < count <= turns
    return Scan(region, count, names_of(initial), along, stacked, short=short)


def _branch(call: Call, origin: Call, importer: Importing) -> Control[Applied]:
    pred = call.arguments["pred"]
    condition = importer.argument(pred)
    names, numbers = named(call, "operands")
    regions = tuple(Function(function(call, n), origin, (), numbers)
                    for n in ("true_fn", "false_fn"))  # fmt: skip
    if isinstance(pred, Ref) and isinstance(condition, Value):
        return Branch(pred.name, regions, names)
    if not isinstance(condition, Condition | bool | int):
        raise UnsupportedError(f"cond: pred is {condition!r}, expected a tensor or bool")
    site = importer.site(call)
    try:
        return Once(regions[0 if site.truth(condition) else 1], names)
    except Needed:
        chooser = f"{call.name}:pred"
        importer.undecided.add(chooser)
        importer.values[chooser] = site.constant(condition, "bool")
        return Branch(chooser, regions, names)


def scanning(
    call: Call, origin: Call
) -> tuple[tuple[Argument, ...], tuple[Argument, ...], tuple[Argument, ...], Function]:
    """Return the carried operands of a scan, the scanned ones, the others, and its function.

    The function maps (carried …, slice …, others …) to (carried …, slice …).
    """
    if call.target == "scan":
        initial, scanned, others = (_several(call, n) for n in OPERANDS["scan"])
        return initial, scanned, others, Function(function(call, "combine_fn"), origin, others)
    scanned, others = (_several(call, n) for n in OPERANDS["map_impl"])
    return (), scanned, others, Function(function(call, "f"), origin, others)


def of_tensors(step: CallStep) -> tuple[list[CallStep], dict[str, TensorType]]:
    """Return the steps that replace a loop if it carries numbers, and the types of their results.

    The loop carries each number as a tensor.  A step behind it reads the final number out of it.
    """
    call, origin = step.payload.call, step.payload.origin
    before: list[Call] = []
    types: dict[str, TensorType] = {}
    lists: dict[str, Argument] = {}
    for which in OPERANDS.get(step.kind, ()):
        names, numbers = named(call, which)
        lists[which] = tuple(map(Ref, names))
        for name, argument in numbers.items():
            before.append(Call(name, NUMBER, {"self": argument}, (name,), call.source))
            types[name] = scalar_type(argument)
    inside = {r: f"{call.name}:n{i}" for i, r in enumerate(call.results) if is_untold(r)}
    if not lists or not (before or inside):
        return [], {}
    types |= dict.fromkeys(inside.values(), SCALAR)
    behind = [Call(n, ITEM, {"self": Ref(n)}, (r,), call.source) for r, n in inside.items()]
    results = tuple(inside.get(r, r) for r in call.results)
    loop = replace(call, arguments={**call.arguments, **lists}, results=results)
    return [step_of(c, origin) for c in (*before, loop, *behind)], types


def names_of(operands: Sequence[Argument]) -> tuple[str, ...]:
    """Return the names of operands that are tensors."""
    return tuple(a.name for a in operands if isinstance(a, Ref))


def named(call: Call, which: str) -> tuple[tuple[str, ...], dict[str, Argument]]:
    """Return the names of a list of operands, and those that are no tensors by the names they get.
    """
    names: list[str] = []
    numbers: dict[str, Argument] = {}
    for k, a in enumerate(_several(call, which)):
        if isinstance(a, Ref):
            names.append(a.name)
            continue
        names.append(f"{call.name}:{which[0]}{k}")
        numbers[names[-1]] = a
    return tuple(names), numbers


def scalar_type(argument: object) -> TensorType:
    """Return the type of a number as a tensor; raise UnsupportedError if it is none."""
    if isinstance(argument, bool | Condition):
        return TensorType("bool", ())
    if isinstance(argument, int | Sym):
        return SCALAR
    if isinstance(argument, float):
        return TensorType("f32", ())
    raise UnsupportedError(f"an operand is {argument!r}, expected a tensor or a number")


def placed(body: Body, operands: Sequence[Argument], prefix: str, origin: Call) -> Placed:
    """Return a function on operands, with names behind a prefix."""
    if len(operands) != len(body.inputs):
        raise ModelError(f"a function has {len(body.inputs)} inputs, expected {len(operands)}")
    copy = _Copy(body, dict(zip(body.inputs, operands, strict=True)), prefix)
    calls = []
    for name, operand in copy.given.items():
        number = body.symbols.get(name)
        if isinstance(number, Sym):
            target = ITEM if isinstance(operand, Ref) else NUMBER
            calls.append(Call(f"{prefix}{name}", target, {"self": operand},
                              (str(bind(number, copy.symbols)),), origin.source))  # fmt: skip
    calls += [
        Call(prefix + c.name, c.target, {k: copy.argument(a) for k, a in c.arguments.items()},
             tuple(map(copy.result, c.results)), c.source or origin.source, c.module,
             tuple(None if t is None else t.bind(copy.symbols) for t in c.stated))
        for c in body.calls
    ]  # fmt: skip
    outputs = []
    for i, a in enumerate(map(copy.argument, body.outputs)):
        if isinstance(a, Ref):
            outputs.append(a.name)
            continue
        outputs.append(f"{prefix}={i}")
        calls.append(Call(outputs[-1], NUMBER, {"self": a}, (outputs[-1],), origin.source))
    types = {prefix + n: t.bind(copy.symbols) for n, t in body.types.items()}
    constants = {prefix + n: a for n, a in body.constants.items()}
    begins = {a.name: body.types[n] for n, a in copy.given.items()
              if isinstance(a, Ref) and n in body.types}  # fmt: skip
    steps = tuple(step_of(c, origin) for c in calls)
    return Placed(steps, tuple(outputs), types, constants, begins)


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


def function(call: Call, name: str) -> Body:
    """Return the function that is an argument of a call."""
    body = call.arguments[name]
    assert isinstance(body, Body), f"{call.target} is called with a function as {name}"
    return body


def _several(call: Call, name: str) -> tuple[Argument, ...]:
    several = call.arguments[name]
    assert isinstance(several, tuple), f"{call.target} is called with a tuple as {name}"
    return several
