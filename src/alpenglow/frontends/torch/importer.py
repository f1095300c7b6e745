"""From a program of PyTorch to a graph: calls in order, each through its entry in the table.

What a converter makes is held to the type that PyTorch states for it.  What cannot be converted is
reported all at once: an input of the stated type takes its place while the rest is looked at.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any

from alpenglow.base.errors import (
    NONSENSE,
    AlpenglowError,
    FeedError,
    ModelError,
    TypeRuleError,
    UnsupportedError,
)
from alpenglow.frontends.choice import is_cheap
from alpenglow.frontends.presume import Needed
from alpenglow.frontends.torch import converters
from alpenglow.frontends.torch.checks import checked, checked_by, without_places
from alpenglow.frontends.torch.control import LOOPS, Branch, Splice, expanded
from alpenglow.frontends.torch.fx import unique
from alpenglow.frontends.torch.program import (
    Argument,
    Body,
    Call,
    Condition,
    Ref,
    Unknown,
    refs,
    symbols_in,
)
from alpenglow.frontends.torch.refusals import Refusal, label
from alpenglow.frontends.torch.symbols import LEAST, Ranges, Tidy, bounds, is_untold
from alpenglow.frontends.torch.table import NO_GENERATOR, Site, bound
from alpenglow.ir.dims import (
    RELATIONS,
    Dim,
    Guards,
    Sym,
    bind,
    decided,
    estimate,
    is_open,
    known,
    names,
    symbol,
)
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Op
from alpenglow.ir.staged import Known
from alpenglow.ir.types import Array, TensorType
from alpenglow.ops.generate import Range, Size
from alpenglow.ops.movement import Reshape, stretch
from alpenglow.ops.select import Where

TAKEN = ("refusals", "later", "needs", "demands", "symbols")
"""State that an import leaves as it was if it takes nothing for granted and leaves nothing out."""

TRIALS = 8
"""With how many values of their symbols two extents are compared that are not the same text."""


class Importer:
    """The state of the import of one body, or of a part of it.

    `known` is what is known where a part begins; without it nothing may be left for later.
    `symbols` are PyTorch's that are other extents here, `demands` what was taken for granted.
    """

    def __init__(
        self, g: Graph, ranges: Ranges, trusted: bool, known: Known | None = None,
        demands: Guards = (),
    ) -> None:  # fmt: skip
        self.g = g
        self.ranges = dict(ranges)
        self.trusted = trusted
        self.known = known
        self.values: dict[str, Value] = {}
        self.scalars: dict[str, Value] = {}  # symbols that are no extents of inputs
        self.foreign: set[str] = set()  # names of what is no tensor of ours
        self.checked: frozenset[str] = frozenset()  # what calls have to check
        self.held: set[str] = set()  # and what does so
        self.types: dict[str, TensorType] = {}
        self.constants: dict[str, Array] = {}
        self.symbols: dict[str, Dim] = {}
        self.demands: dict[tuple[Sym, str], None] = {}
        self.refusals: list[Refusal] = []
        self.later: list[Call] = []
        self.needs: dict[str, Value] = {}
        self.kept: dict[str, Value] = {}
        self.generator: Value | None = None  # the state that it has come to
        self._tidy = Tidy(ranges, demands)
        self._missing: set[str] = set()
        self._tied: dict[int, Value] = {}
        self._origins: dict[int, Call] = {}
        self._spliced: list[Splice] = []
        self._modules: Counter[str] = Counter()  # how many calls each makes by itself
        self._names = {*g.inputs}

    def run(self, body: Body, operands: Sequence[Value | None]) -> list[Value]:
        """Import a body, whose inputs are these operands, and return the values of its outputs."""
        self.types |= body.types
        self.constants |= body.constants
        for name, v in zip(body.inputs, operands, strict=True):
            if v is None:
                self.foreign.add(name)
            else:
                self.values[name] = v
        for v in self.g.inputs.values():
            self._take_as_told(v.type)
        self.calls(body.calls)
        return [] if self.refusals else [self.output(argument) for argument in body.outputs]

    def calls(self, calls: Iterable[Call]) -> None:
        """Import calls in order; those of functions stand in for the calls of these."""
        waiting = deque(without_places(calls, self.types, self.symbols))
        self.checked |= checked(waiting)
        self._modules.update(call.module for call in waiting)
        self._run(waiting)

    def _run(self, waiting: deque[Call]) -> None:
        while waiting:
            call = waiting.popleft()
            if checked_by(call) in self.held:  # its maker checks it
                continue
            if self._waits(call):
                self._postpone(call, "it reads what depends on data")
                continue
            try:
                splice = expanded(self, call)
            except Needed as needed:
                self._need(call, needed)
                continue
            except UnsupportedError as error:
                self._refuse(call, error.message)
                self._stand_in(call)
                continue
            if splice is None:
                self._call(call)
            else:
                self._enter(call, splice)
                waiting.extendleft(reversed(splice.calls))

    def _enter(self, call: Call, splice: Splice) -> None:
        """Take what calls that stand for one are called, read and make."""
        self.types |= splice.types
        self.constants |= splice.constants
        origin = self._origins.get(id(call), call)
        self._origins |= dict.fromkeys(map(id, splice.calls), origin)
        self._spliced.append(splice)  # an id is its call's as long as that lives

    def computes_all(self, call: Call, chooser: Value, branches: Sequence[Branch]) -> bool:
        """Import all branches of a call, and the choice of its results by a truth value.

        Takes them back and returns False if they are not cheap, or if one is refused, waits for
        data, draws random numbers, or takes anything for granted: a branch that is not taken must
        not end the call.
        """
        state = {n: copy(x) for n, x in vars(self).items() if isinstance(x, dict | list | set)}
        before, drawn = len(self.g.nodes), self.generator
        try:
            for splice, _ in branches:
                self._enter(call, splice)
                self._run(deque(splice.calls))
            nodes = list(itertools.islice(reversed(self.g.nodes), len(self.g.nodes) - before))
            taken = any(getattr(self, n) != state[n] for n in TAKEN) or self.generator is not drawn
            if not taken and is_cheap(nodes):
                self._choose(call, chooser, [outputs for _, outputs in branches])
                return True
        except AlpenglowError:
            pass  # the branch that is taken reports it
        vars(self).update(state)
        self.generator = drawn
        told = {} if self.known is None else self.known.types
        self.values |= {n: v for n, v in self.g.inputs.items() if n in told}
        return False

    def _choose(
        self, call: Call, chooser: Value, branches: Sequence[Sequence[Argument]]
    ) -> None:
        for name, column in zip(call.results, zip(*branches, strict=True), strict=True):
            if not name:
                continue
            values = [self.output(a) for a in column]
            if len({v.type for v in values}) > 1:
                raise UnsupportedError("branches make values of different types")
            v = self.g(Where(), stretch(self.g, chooser, values[0].type.shape), *values)
            self.values[name] = self._checked(name, v)
            self._call_it(v, call)

    def output(self, argument: Argument) -> Value:
        """Return an output of a body: a tensor, or a number as one."""
        argument = self.given(argument)
        if isinstance(argument, Value):
            return argument
        if isinstance(argument, int | float | Condition) or is_open(argument):
            dtype = "bool" if isinstance(argument, bool | Condition) else (
                "f32" if isinstance(argument, float) else "i64")  # fmt: skip
            site = Site(self.g, Call("output", "output", {}, ()), [], self)
            return site.constant(argument, dtype)  # type: ignore[arg-type]  # a number or an extent
        raise UnsupportedError(f"an output is {argument!r}, no tensor")

    # ── what a converter may ask ──

    def find(self, name: str) -> Value:
        """Return a value by name; raise ModelError if there is none."""
        if name in self.values:
            return self.values[name]
        if name in self.foreign:
            raise UnsupportedError(f"'{name}' is no dense tensor on the CPU, of a type of ours")
        if name in self.constants:
            array = self.constants[name]  # one that is tied is one constant
            v = self._tied.get(id(array)) or self.g.constant(array, name, copy=False)
            self.values[name] = self._tied[id(array)] = v
        elif self.known is not None and name in self.known.types:
            self.values[name] = self.g.input(name, self.known.types[name])
        else:
            raise ModelError(f"'{name}' is read before anything makes it")
        return self.values[name]

    def elements(self, name: str) -> Array | None:
        """Return the elements that were asked for by a name, if they are known."""
        return None if self.known is None else self.known.elements.get(name)

    def element(self, symbol: str) -> Value | None:
        """Return the tensor without axes whose element a symbol is."""
        if symbol in self.scalars:
            return self.scalars[symbol]
        if is_untold(symbol) and symbol in self.symbols:  # a shape tells it
            extent = self.symbols[symbol]
            return self.g(Reshape(()), self.g(Size(), self.g(Range(extent))))
        for name, array in {} if self.known is None else self.known.elements.items():
            if array.size == 1 and str(array.reshape(-1)[0]) == symbol:
                v = self.find(name)
                return v if not v.type.rank else self.g(Reshape(()), v)
        return None

    def demand(self, guards: Guards, message: str) -> None:
        """Take for granted what must hold of extents, and write it down."""
        for unbound, relation in guards:
            x = bind(unbound, self.symbols)
            if known(x):
                if not decided(x, relation):
                    raise FeedError(message or f"the program holds for {unbound} {relation} 0")
            else:
                assert isinstance(x, Sym), f"{x} is neither known nor open"
                self.demands[x, relation] = None

    def widen(self, extent: Dim, most: Dim) -> None:
        """Let an extent of data be as much as `most`, whatever PyTorch states."""
        name = str(extent)
        low, high = self.ranges.get(name, (LEAST, None))
        if high is not None:
            self.ranges[name] = low, max(high, most) if isinstance(most, int) else None

    def draw(self, op: Op, *xs: Value) -> Value:
        """Return what an operator draws from the generator, which goes on from there."""
        if self.generator is None:
            raise UnsupportedError(NO_GENERATOR)
        numbers, self.generator = self.g.add(op, [self.generator, *xs]).results
        return numbers

    def learn(self, name: str, extent: Dim) -> None:
        """Take a symbol for an extent; what is known of the one must be true of the other."""
        if name in self.symbols:
            self._equate(self.symbols[name], extent)
            return
        if name in self.told():
            self._equate(symbol(name), extent)
        self.symbols[name] = extent
        low, high = self.ranges.get(name, (LEAST, None))
        low = low if is_untold(name) else max(low, 0)
        within = [(x, r) for x, r in bounds(symbol(name), low, high) if isinstance(x, Sym)]
        said = f"{extent} must be at least {low}" + (f" and at most {high}" if high else "")
        self.demand(tuple(within), said)

    def match(self) -> None:
        """Learn what PyTorch's symbols are where a part begins, from the types of what is there."""
        assert self.known is not None, "a part begins with what is known"
        told = self.told()
        for name, t in self.known.types.items():
            stated = self.types.get(name)
            if stated is None or stated.rank != t.rank:
                continue
            for made, said in zip(t.shape, stated.shape, strict=True):
                word = str(said)
                if isinstance(said, Sym) and word.isidentifier() and word not in told:
                    self.symbols.setdefault(word, made)

    def told(self) -> set[str]:
        """Return the symbols that shapes of what is there tell."""
        types = () if self.known is None else self.known.types.values()
        return {s for t in types for s in t.symbols()}

    def _equate(self, a: Dim, b: Dim) -> None:
        if isinstance(difference := a - b, Sym):
            self.demand(((difference, "=="),), f"{a} and {b} must be the same")
        elif difference:
            raise FeedError(f"{a} and {b} must be the same")

    # ── what is left for later ──

    def _waits(self, call: Call) -> bool:
        """Whether a call reads what is not there yet, or is a loop of the runtime's."""
        if self.known is None:
            return call.target in LOOPS
        if call.target in LOOPS or any(name in self._missing for name in refs(call.arguments)):
            return True
        untold = {n for n in symbols_in(call.arguments) if is_untold(n) or n in self._missing}
        return not untold <= self.symbols.keys()

    def _need(self, call: Call, needed: Needed) -> None:
        if needed.name:
            assert needed.value is not None, "what is named is a value"
            self.needs[needed.name] = needed.value
            self.kept |= needed.beside
        self._postpone(call, "what it makes depends on data")

    def _postpone(self, call: Call, reason: str) -> None:
        if self.known is None:
            self._refuse(call, reason, waits=True)
            self._stand_in(call)
            return
        self.later.append(call)
        self._missing.update(filter(None, call.results))

    def _refuse(self, call: Call, reason: str, waits: bool = False) -> None:
        """Write down that a call cannot be converted, or the one that it stands for."""
        self.refusals.append(Refusal(self._origins.get(id(call), call), reason, waits))

    # ── calls ──

    def _call(self, call: Call) -> None:
        before, drawn = len(self.g.nodes), self.generator
        try:
            results = self._converted(call)
            for name, r in zip(call.results, results, strict=True):
                if name and isinstance(r, int | Sym) and name not in self.types:
                    self.learn(name, r)
                elif name:
                    self.values[name] = v = self._checked(name, r)
                    self._call_it(v, call)
        except Needed as needed:
            self._need(call, needed)
        except (UnsupportedError, TypeRuleError) as error:  # torch checked the program itself
            for node in list(itertools.islice(reversed(self.g.nodes), len(self.g.nodes) - before)):
                self.g.remove(node)
            self.generator = drawn
            self._refuse(call, error.message)
            self._stand_in(call)
        except AlpenglowError as error:
            raise error.located(node=label(call)) from None
        except NONSENSE as error:
            raise ModelError(
                f"{call.target} breaks the rules of PyTorch: {type(error).__name__}: {error}",
                node=label(call),
            ) from error
        except AssertionError as error:
            if self.trusted:
                raise
            raise ModelError(f"{call.target}: {error}", node=label(call)) from error

    def _call_it(self, v: Value, call: Call) -> None:
        """Name a result after the module that makes it, and after the call if it makes several."""
        if v.producer is None or v.name:
            return
        call = self._origins.get(id(call), call)
        path, several = call.module, self._modules[call.module] != 1
        parts = [path] * bool(path) + [call.name] * (several or not path)
        v.name = unique(".".join(parts), self._names)

    def _converted(self, call: Call) -> list[Value | Dim | None]:
        entry = converters.find(call.target)
        if entry is None:
            raise UnsupportedError("there is no converter")
        arguments = bound(entry, {k: self.given(a) for k, a in call.arguments.items()})
        checks = self.checked & set(call.results) if "check_errors" in entry.parameters else set()
        if checks:
            arguments["check_errors"] = True
        outcome = entry.convert(self.site(call), **arguments)
        self.held |= checks
        results: list[Value | Dim | None] = (
            [outcome] if isinstance(outcome, Value) else list(outcome)
        )
        if len(results) < len(call.results):
            raise AssertionError(f"{call.target}: {len(results)} results of {len(call.results)}")
        return results[: len(call.results)]

    def site(self, call: Call) -> Site:
        """Return what a converter sees of a call."""
        results = itertools.zip_longest(call.results, call.stated[: len(call.results)])
        return Site(self.g, call, [self._stated(n, t) for n, t in results], self)

    def _stated(self, name: str, unread: TensorType | None = None) -> TensorType | None:
        """Return the type that PyTorch states of a result by name, or of one that is not read."""
        t = self.types.get(name) if name else unread
        if t is None or not t.symbols():
            return t
        t = t.with_shape(map(self._tidy, t.shape))
        return t.bind(self.symbols) if self.symbols else t

    def given(self, argument: Argument) -> Any:
        """Return an argument as converters take it: tensors are values."""
        match argument:
            case Ref(name=name):
                return self.find(name)
            case tuple():
                unknown = [a for a in argument if isinstance(a, Unknown)]
                return unknown[0] if unknown else tuple(map(self.given, argument))
            case Sym():
                return bind(self._tidy(argument), self.symbols)
            case Condition(guards=guards):
                return self._condition(guards)
        return argument

    def _condition(self, guards: Guards) -> Condition | bool:
        here = [(bind(x, self.symbols), relation) for x, relation in guards]
        if any(isinstance(x, int) and not RELATIONS[relation](x) for x, relation in here):
            return False
        kept = tuple((x, relation) for x, relation in here if isinstance(x, Sym))
        return Condition(kept) if kept else True

    def _checked(self, name: str, v: Value | Dim | None) -> Value:
        """Return v; assert that it has the type that PyTorch states."""
        stated = self._stated(name)
        if stated is None:
            raise UnsupportedError("a result is no tensor")
        assert isinstance(v, Value), "a result that is read is not made"
        if v.type.rank == stated.rank:
            for made, said in zip(v.type.shape, stated.shape, strict=True):
                if is_untold(str(said)) and str(said) not in self.symbols:
                    self.learn(str(said), made)
            stated = stated.bind(self.symbols) if self.symbols else stated
        same = v.type.dtype == stated.dtype and self._agree(v.type.shape, stated.shape)
        assert same, f"made {v.type}, PyTorch states {stated}"
        return v

    def _agree(self, a: Sequence[Dim], b: Sequence[Dim]) -> bool:
        """Whether two shapes are the same; open extents of different texts are tried."""
        if len(a) != len(b):
            return False
        return all(x == y if not is_open(x) and not is_open(y) else self._equal(x, y)
                   for x, y in zip(a, b, strict=True))  # fmt: skip

    def _equal(self, x: Dim, y: Dim) -> bool:
        if not isinstance(difference := x - y, Sym):
            return difference == 0
        if known(difference):
            return estimate(difference) == 0
        symbols = sorted(names(difference))
        draw = random.Random(0)
        for _ in range(TRIALS):
            values = {}
            for s in symbols:
                low, high = self.ranges.get(s, (2, None))
                low = max(low, 0)
                most = low + 1000 if high is None else high
                values[s] = draw.randint(low, max(low, min(most, low + 1000)))
            if bind(difference, values) != 0:
                return False
        return True

    def _stand_in(self, call: Call) -> None:
        """Let others be looked at that read results which are not made."""
        for name in call.results:
            if (t := self._stated(name)) is not None:
                self.values[name] = Value(t, name)
                self._take_as_told(t)
            elif is_untold(name):
                self.symbols.setdefault(name, symbol(name))
            elif name:
                self.foreign.add(name)

    def _take_as_told(self, t: TensorType) -> None:
        """Take the symbols of a type for known that are data: whoever made the tensor knows."""
        for name in filter(is_untold, t.symbols()):
            self.symbols.setdefault(name, symbol(name))
