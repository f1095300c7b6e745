"""From a program of PyTorch to a graph: calls in order, each through its entry in the table.

The results of converters must have the types that PyTorch states for them.  Calls that cannot be
converted are reported all at once: inputs of the stated types replace their results meanwhile.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from alpenglow.base.errors import (
    NONSENSE,
    AlpenglowError,
    FeedError,
    ModelError,
    TypeRuleError,
    UnsupportedError,
)
from alpenglow.frontends import contents
from alpenglow.frontends.control import Control
from alpenglow.frontends.presume import Needed
from alpenglow.frontends.refusals import NO_CONVERTER
from alpenglow.frontends.stepped import StepImporter
from alpenglow.frontends.steps import LOOP, SAME
from alpenglow.frontends.steps import Body as Placing
from alpenglow.frontends.torch import converters
from alpenglow.frontends.torch.checks import checked, checked_by, without_places
from alpenglow.frontends.torch.control import (
    NUMBER,
    SCANS,
    Applied,
    CallStep,
    Placed,
    control,
    of_tensors,
    scalar_type,
    step_of,
)
from alpenglow.frontends.torch.fx import unique
from alpenglow.frontends.torch.program import (
    DENSE,
    Argument,
    Body,
    Call,
    Condition,
    Ref,
    Unknown,
    symbols_in,
)
from alpenglow.frontends.torch.refusals import AGAIN, Refusal, undefined
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
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Op
from alpenglow.ir.staged import Known
from alpenglow.ir.types import Array, TensorType
from alpenglow.ops.tensor.generate import Range, Size
from alpenglow.ops.tensor.movement import Reshape

OUTPUT = Call("output", "output", {}, ())

TRIALS = 8
"""With how many values of their symbols two extents are compared that are not the same text."""


class Importer(StepImporter[Applied]):
    """The state of the import of one body, or of a part of it.

    Without `known`, what is known where a part begins, nothing may be left for later.
    `symbols` are PyTorch's that are other extents here, `demands` what was taken for granted.
    """

    format = "PyTorch"

    def __init__(
        self, g: Graph, ranges: Ranges, trusted: bool, known: Known | None = None,
        demands: Guards = (),
    ) -> None:  # fmt: skip
        super().__init__(g, known or Known({}))
        self.ranges = dict(ranges)
        self.trusted = trusted
        self.scalars: dict[str, Value] = {}  # symbols whose values are computed
        self.numbers: dict[str, Argument] = {}  # results that are numbers
        self.foreign: set[str] = set()  # names of unsupported tensors
        self.checked: frozenset[str] = frozenset()  # what calls have to check
        self.held: set[str] = set()  # and what does so
        self.types: dict[str, TensorType] = {}
        self.constants: dict[str, Array] = {}
        self.symbols: dict[str, Dim] = {}
        self.demands: dict[tuple[Sym, str], None] = {}
        self.refusals: list[Refusal] = []
        self.undecided: set[str] = set()  # conditions on extents that are not known
        self.generator: Value | None = None  # the state that it has come to
        self.awaited: Guards = ()  # what is to be taken for granted once symbols are known
        self._is_whole = known is None
        self._tidy = Tidy(ranges, demands)
        self._tied: dict[int, Value] = {}
        self._modules: Counter[str] = Counter()  # how many calls each makes by itself
        self._names = {*g.inputs}

    def body(self, body: Body, operands: Sequence[Value | None]) -> list[Value]:
        """Import a body on operands, one for each input, and return the values of its outputs."""
        self.types |= body.types
        self.constants |= body.constants
        for name, v in zip(body.inputs, operands, strict=True):
            if v is None:
                self.foreign.add(name)
            else:
                self.values[name] = v
        for v in self.g.inputs.values():
            self._take_as_told(v.type)
        self.run(map(step_of, body.calls))
        return [] if self.refusals else [self.output(argument) for argument in body.outputs]

    def run(self, steps: Iterable[CallStep]) -> None:
        """Import what can be imported of calls, in order."""
        kept = without_places(steps, self.types, self.symbols)
        self.checked |= checked(kept)
        own = (step.payload.call for step in kept if step.payload.call is step.payload.origin)
        self._modules.update(call.module for call in own)
        super().run(kept)

    def contents(self, v: Value) -> Array | None:
        """Return the elements of v if it is a small integer tensor whose elements are known.

        Nothing is known of nodes until it is asked for.  Then all that decide v are looked at in
        order: a chain of them may be as long as the model, and recursion would end at a limit.
        """
        if v.producer is not None and v not in self.known:
            for node in self._behind(v.producer):
                if contents.may_be_shape(node):
                    self._settle([node])
                else:
                    self.known |= dict.fromkeys(node.results)
        return super().contents(v)

    def _behind(self, last: Node) -> list[Node]:
        """Return the nodes, in order, that may decide the contents of one and are not known."""
        found, waiting = {last}, [last]
        while waiting:
            node = waiting.pop()
            if not contents.may_be_shape(node):
                continue
            for v in node.inputs:
                if v is None or v.producer is None or v in self.known or v.producer in found:
                    continue
                found.add(v.producer)
                waiting.append(v.producer)
        return [n for n in self.g.nodes if n in found]

    def results(self, names: Mapping[str, str]) -> dict[str, Array]:
        return {}

    def lasts(self, name: str) -> bool:
        return name in self.constants

    # ── control flow ──

    def attempt(self, imported: Callable[[], None]) -> bool:
        drawn, before = self.generator, len(self.refusals)

        def complete() -> None:
            imported()
            if any(r.waits for r in self.refusals[before:]):
                raise UnsupportedError("a call reads data, expected values known on import")

        if super().attempt(complete):
            return True
        self.generator = drawn
        return False

    def apart(self, body: Placing[Applied]) -> Importer:
        inner = Apart(Graph("apart"), self.ranges, self.trusted, Known({}))
        inner.enter(body)
        return inner

    def inside(self, bodies: Sequence[Placing[Applied]]) -> Importer:
        inner = super().inside(bodies)
        assert isinstance(inner, Apart), "bodies are imported by themselves"
        inner.symbols, inner.scalars = dict(self.symbols), {}
        inner.numbers, inner.undecided = dict(self.numbers), set(self.undecided)
        inner.ranges = dict(self.ranges)
        return inner

    def leave(self, inner: Importer) -> None:
        self.demands |= inner.demands

    def prefix(self, step: CallStep) -> str:
        return f"{step.payload.call.name}."

    def enter(self, body: Placing[Applied]) -> None:
        assert isinstance(body, Placed), "a function was placed"
        self.types |= body.types
        self.constants |= body.constants

    def one_element(self, name: str, dtypes: Collection[str]) -> int:
        if name in self.undecided:
            raise Needed("")
        return super().one_element(name, dtypes)

    def _granted(self) -> object:
        return len(self.refusals), dict(self.demands), dict(self.symbols), self.generator

    def _control(self, step: CallStep) -> Control[Applied] | None:
        return control(step, self)

    def _instead(self, step: CallStep) -> Sequence[CallStep]:
        if step.make is not None:
            return ()
        steps, types = of_tensors(step)
        self.types |= types
        return steps

    def _taken(self, step: CallStep) -> Sequence[CallStep]:
        if step.make is None and checked_by(step.payload.call) in self.held:
            return ()  # its maker checks it
        try:
            return super()._taken(step)
        except UnsupportedError as error:
            self._refuse(step, error.message)
            self._stand_in(step)
        return ()

    def _rename(self, step: CallStep) -> None:
        for name, result in zip(step.inputs, step.outputs, strict=True):
            if result:
                made = self.numbers[name] if name in self.numbers else self.find(name)
                self._keep(step, result, made)

    def output(self, argument: Argument, dtype: str = "") -> Value:
        """Return an output of a body as a tensor; `dtype` is the element type of a number."""
        argument = self.argument(argument)
        if isinstance(argument, Value):
            return argument
        if not isinstance(argument, int | float | Sym | Condition):
            raise UnsupportedError(f"an output is {argument!r}, expected a tensor or a number")
        return self.site(OUTPUT).constant(argument, dtype or scalar_type(argument).dtype)

    # ── what a converter may ask ──

    def _stated(self, name: str) -> Value:
        if name in self.foreign:
            raise UnsupportedError(f"'{name}' is not supported, {DENSE}")
        if name in self.numbers:
            return self.output(self.numbers[name])
        if name not in self.constants:
            raise undefined(name)
        array = self.constants[name]  # one that is tied is one constant
        if id(array) not in self._tied:
            self._tied[id(array)] = self.g.constant(array, name, copy=False)
        return self._tied[id(array)]

    def element(self, symbol: str) -> Value | None:
        """Return the tensor without axes whose element a symbol is."""
        if symbol in self.scalars:
            return self.scalars[symbol]
        if is_untold(symbol) and symbol in self.symbols:  # a shape tells it
            extent = self.symbols[symbol]
            return self.g(Reshape(()), self.g(Size(), self.g(Range(extent))))
        for name, array in self.given.elements.items():
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
        """Return the numbers that an operator draws, and advance the generator."""
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
        told = self.told()
        for name, t in self.given.types.items():
            stated = self.types.get(name)
            if stated is None or stated.rank != t.rank:
                continue
            for made, said in zip(t.shape, stated.shape, strict=True):
                word = str(said)
                if isinstance(said, Sym) and word.isidentifier() and word not in told:
                    self.symbols.setdefault(word, made)

    def told(self) -> set[str]:
        """Return the symbols that shapes of what is there tell."""
        return {s for t in self.given.types.values() for s in t.symbols()}

    def _equate(self, a: Dim, b: Dim) -> None:
        if isinstance(difference := a - b, Sym):
            self.demand(((difference, "=="),), f"dimensions are {a} and {b}, expected equal ones")
        elif difference:
            raise FeedError(f"dimensions are {a} and {b}, expected equal ones")

    # ── what is left for later ──

    def _waits(self, step: CallStep) -> bool:
        if self._is_whole or super()._waits(step):
            return step.kind == LOOP or not self._is_whole
        arguments = {} if step.kind == SAME or step.make else step.payload.call.arguments
        untold = {n for n in symbols_in(arguments) if is_untold(n) or n in self._missing}
        return not untold <= self.symbols.keys()

    def _postpone(self, step: CallStep) -> None:
        if self._is_whole:
            self._refuse(step, "what it makes depends on data", waits=True)
            self._stand_in(step)
        else:
            super()._postpone(step)

    def _refuse(self, step: CallStep, reason: str, waits: bool = False) -> None:
        """Record the refusal of a call, or of the call that it was expanded from."""
        call, origin = step.payload.call, step.payload.origin
        refusal = Refusal(origin, reason if call is origin else f"{call.target}: {reason}", waits)
        if refusal not in self.refusals:  # a loop has it in each turn
            self.refusals.append(refusal)

    # ── calls ──

    def _step(self, step: CallStep) -> None:
        if step.kind in SCANS and step.make is None:
            self._postpone(step)
            return
        before, drawn = len(self.g.nodes), self.generator
        call = step.payload.call
        try:
            for name, r in zip(step.outputs, self._results(step), strict=True):
                if name:
                    self._keep(step, name, r)
        except (UnsupportedError, TypeRuleError) as error:  # torch checked the program itself
            for node in reversed(self._since(before)):
                self.g.remove(node)
            self.generator = drawn
            self._refuse(step, error.message)
            self._stand_in(step)
        except AlpenglowError as error:
            raise error.located(node=step.label) from None
        except NONSENSE as error:
            raise ModelError(
                f"{call.target} breaks the rules of PyTorch: {type(error).__name__}: {error}",
                node=step.label, hint=AGAIN,
            ) from error
        except AssertionError as error:
            if self.trusted:
                raise
            raise ModelError(f"{call.target}: {error}", node=step.label, hint=AGAIN) from error

    def _keep(self, step: CallStep, name: str, r: Value | Argument) -> None:
        """Record a result by its name: a tensor, an extent, or another number."""
        is_ours = step.make is not None or step.kind in (SAME, NUMBER)
        assert is_ours or r is not None, "a result that is read is not made"
        if isinstance(r, Value) or name in self.types:
            v = r if isinstance(r, Value) else self.output(r, self.types[name].dtype)
            self.values[name] = v = self._checked(name, v, is_ours)
            self._call_it(v, step.payload.origin)
        elif isinstance(r, int | Sym) and (is_untold(name) or not is_ours):
            self.learn(name, r)
        else:
            self.numbers[name] = r

    def _call_it(self, v: Value, call: Call) -> None:
        """Name a result after the module that makes it, and after the call if it makes several."""
        if v.producer is None or v.name:
            return
        path, several = call.module, self._modules[call.module] != 1
        parts = [path] * bool(path) + [call.name] * (several or not path)
        v.name = unique(".".join(parts), self._names)

    def _results(self, step: CallStep) -> list[Value | Argument]:
        if step.make is None and step.kind == NUMBER:
            return [self.argument(step.payload.call.arguments["self"])]
        if step.make is None:
            return self._made(step.payload.call)
        made = step.make(self._operands(step))
        return [made] if isinstance(made, Value) else list(made)

    def _made(self, call: Call) -> list[Value | Argument]:
        entry = converters.find(call.target)
        if entry is None:
            raise UnsupportedError(NO_CONVERTER)
        arguments = bound(entry, {k: self.argument(a) for k, a in call.arguments.items()})
        checks = self.checked & set(call.results) if "check_errors" in entry.parameters else set()
        if checks:
            arguments["check_errors"] = True
        outcome = entry.convert(self.site(call), **arguments)
        self.held |= checks
        results: list[Value | Argument] = (
            [outcome] if isinstance(outcome, Value) else list(outcome)
        )
        if len(results) < len(call.results):
            raise AssertionError(f"{call.target}: {len(results)} results of {len(call.results)}")
        return results[: len(call.results)]

    def site(self, call: Call) -> Site:
        """Return the site of a call, which its converter takes."""
        results = itertools.zip_longest(call.results, call.stated[: len(call.results)])
        return Site(self.g, call, [self._type(n, t) for n, t in results], self)

    def _type(self, name: str, unread: TensorType | None = None) -> TensorType | None:
        """Return the type that PyTorch states of a result by name, or of one that is not read."""
        t = self.types.get(name) if name else unread
        if t is None or not t.symbols():
            return t
        t = t.with_shape(map(self._tidy, t.shape))
        return t.bind(self.symbols) if self.symbols else t

    def argument(self, argument: Argument) -> Any:
        """Return an argument as converters take it: tensors are values."""
        match argument:
            case Ref(name=name):
                return self.find(name)
            case tuple():
                unknown = [a for a in argument if isinstance(a, Unknown)]
                return unknown[0] if unknown else tuple(map(self.argument, argument))
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

    def _checked(self, name: str, v: Value, is_ours: bool) -> Value:
        """Return v; assert that it has the type that PyTorch states, of what is not ours alone."""
        stated = self._type(name)
        if stated is None:
            if is_ours:
                return v
            raise UnsupportedError(f"a result is not supported, {DENSE}")
        if v.type.rank == stated.rank:
            for made, said in zip(v.type.shape, stated.shape, strict=True):
                if is_untold(str(said)) and str(said) not in self.symbols:
                    self.learn(str(said), made)
            stated = stated.bind(self.symbols) if self.symbols else stated
        same = v.type.dtype == stated.dtype and self._agree(v.type.shape, stated.shape)
        if not same and v.type.rank == stated.rank:
            # Dynamic dimensions may add up to a number that other operands ask for.
            pairs = zip(v.type.shape, stated.shape, strict=True)
            if any(is_open(made) and not is_open(said) for made, said in pairs):
                raise UnsupportedError(
                    f"a result is {v.type}, and the program fixes it as {stated}",
                    hint="fix its dynamic dimensions by shapes=",
                )
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

    def _stand_in(self, step: CallStep) -> None:
        """Let others be looked at that read results which are not made."""
        for name in step.outputs:
            if (t := self._type(name)) is not None:
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


class Apart(Importer):
    """An importer of steps that are evaluated during the import; a refusal is raised at once."""

    def _refuse(self, step: CallStep, reason: str, waits: bool = False) -> None:
        raise UnsupportedError(reason)
