"""Models that are rows of steps, where each names its operands and results.

A step goes through its converter in turn; functions, branches and bodies stand where they are
called, as steps of their own.  A model whose graph depends on data is imported in parts
(`ir.staged`): a step that needs elements which are not known yet, or that no graph can hold, is
left for later with all that reads it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from alpenglow.base.errors import AlpenglowError, ModelError, Refusal, UnsupportedError
from alpenglow.frontends.choice import is_cheap
from alpenglow.frontends.control import (
    Branch,
    Call,
    Control,
    Repeat,
    Scan,
    Turn,
    While,
    all_branches,
    expand,
    scanned,
    turn_of,
    unrolled,
)
from alpenglow.frontends.counted import turns
from alpenglow.frontends.operands import Operands
from alpenglow.frontends.parts import PartImporter
from alpenglow.frontends.presume import Needed, Undecided, presume_extents, presuming
from alpenglow.frontends.refusals import refused
from alpenglow.frontends.regions import node_of
from alpenglow.frontends.steps import LOOP, SAME, Body, P, Step
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.staged import Action, Known, Loop, Part, StagedModel
from alpenglow.ir.types import Array, TensorType


class StepImporter(PartImporter, Generic[P]):
    """The state of the import of one part; `later` are the steps that are left for another.

    That of a body has an importer `around` it, which knows the names that are not its own.
    """

    around: StepImporter[P] | None = None

    def run(self, steps: Iterable[Step[P]]) -> None:
        """Import what can be imported of steps."""
        waiting = deque(steps)
        while waiting:
            waiting.extendleft(reversed(self._entered(waiting.popleft())))

    def _entered(self, step: Step[P]) -> Sequence[Step[P]]:
        """Import a step, or leave it for later; return the steps that replace it."""
        try:
            if instead := self._instead(step):
                return instead
            if not self._waits(step):
                return self._taken(step)
            self._postpone(step)
        except (Undecided, Needed) as error:
            self._cut(step, error)
        return ()

    def _cut(self, step: Step[P], error: Undecided | Needed) -> None:
        """Leave a step for later for which something is not known yet."""
        if isinstance(error, Needed):
            self._missed(error)
        self.cut.append(step)
        self._postpone(step)

    def find(self, name: str) -> Value:
        """Return a value by name: one that was made, an input, a constant or a variable."""
        if name in self.values:
            return self.values[name]
        self.values[name] = v = self._found(name)
        return v

    def one_element(self, name: str, dtypes: Collection[str]) -> int:
        """Return the element of a value that decides what is imported.

        Raises Needed if it is not known, ModelError if the value is not such a scalar.
        """
        v = self.find(name)
        if v.type.dtype not in dtypes:
            raise ModelError(f"condition '{name}' is {v.type}, expected {' or '.join(dtypes)}")
        elements = v.array
        if elements is None:
            elements = self.elements(name)
        if elements is None:
            elements = self.contents(v)
        if elements is None:
            raise Needed(name, v)
        if elements.size != 1:
            raise ModelError(f"condition '{name}' has {elements.size} elements, expected one")
        return int(elements.reshape(-1)[0])

    # ── what formats say ──

    @abstractmethod
    def apart(self, body: Body[P]) -> StepImporter[P]:
        """Return an importer of steps of a body into a graph of their own."""

    @abstractmethod
    def prefix(self, step: Step[P]) -> str:
        """Return the prefix of the names in the regions of a step."""

    def enter(self, body: Body[P]) -> None:
        """Record the declarations of the values in a body."""

    def lasts(self, name: str) -> bool:
        """Return True if each part of the model has a value of its own by this name."""
        return False

    def _instead(self, step: Step[P]) -> Sequence[Step[P]]:
        """Return the steps that replace one, even if it waits; none if the step stays."""
        return ()

    @abstractmethod
    def _control(self, step: Step[P]) -> Control[P] | None:
        """Return how a step runs its regions; None if it runs none, or its converter does."""

    @abstractmethod
    def _stated(self, name: str) -> Value:
        """Return a value other than a result or an input of a run; raise ModelError without one."""

    @abstractmethod
    def _step(self, step: Step[P]) -> None:
        """Import a step that runs no regions."""

    def _granted(self) -> object:
        """Return a record of all assumptions that the import has made so far, to be compared."""

    # ── steps ──

    def _waits(self, step: Step[P]) -> bool:
        """Return True if a step reads what is not there yet, or is a loop of the runtime's."""
        return step.kind == LOOP or any(name in self._missing for name in step.reads)

    def _taken(self, step: Step[P]) -> Sequence[Step[P]]:
        """Import a step; return the steps that replace it, if any."""
        if step.kind == SAME:
            self._rename(step)
            return ()
        try:
            control = None if step.make else self._control(step)
            if isinstance(control, While | Scan) and self._unrolled(step, control):
                return ()
            if isinstance(control, While | Scan | Repeat):
                behind = self._node(step, control)
                if behind is not None:
                    return behind
            if isinstance(control, Scan | Repeat):
                self._postpone(step)
            elif control is not None:
                return self._expanded(step, control)
        except AlpenglowError as error:
            raise error.located(node=step.label) from None
        if control is None:
            self._step(step)
        return ()

    def _expanded(
        self, step: Step[P], control: Call[P] | Branch[P] | While[P]
    ) -> Sequence[Step[P]]:
        try:
            return expand(control, step, self)
        except Needed:
            if isinstance(control, Branch) and (
                self._computes_all(step, control) or self._node(step, control) is not None
            ):
                return ()
            raise

    def _node(
        self, step: Step[P], control: Branch[P] | While[P] | Scan[P] | Repeat[P]
    ) -> Sequence[Step[P]] | None:
        """Import a loop or a branch as a node of the graph; None if a graph cannot hold it.

        Returned are the steps behind the node that make the rest of its results.
        """
        behind: list[Step[P]] = []
        imported = self.attempt(lambda: behind.extend(node_of(step, control, self)))
        return behind if imported else None

    def inside(self, bodies: Sequence[Body[P]]) -> StepImporter[P]:
        """Return an importer of bodies, which finds the names around them here."""
        inner = self.apart(bodies[0])
        for body in bodies:
            inner.enter(body)
        inner.around, inner.collects = self, False
        return inner

    def leave(self, inner: Any) -> None:
        """Take over what bodies that have been imported took for granted."""

    def _computes_all(self, step: Step[P], control: Branch[P]) -> bool:
        """Import all branches and the choice; False if they are not cheap."""
        steps = all_branches(step, control, self)
        if steps is None:
            return False
        before, granted = len(self.g.nodes), self._granted()

        def imported() -> None:
            self.run(steps)
            if self._granted() != granted or not is_cheap(self._since(before)):
                raise UnsupportedError("a branch is expensive or may raise, expected a cheap one")

        return self.attempt(imported)

    def _unrolled(self, step: Step[P], loop: While[P] | Scan[P]) -> bool:
        """Import a loop that turns a few times turn by turn; False if it is left as it is.

        A loop that would have to be cut in a turn is better left whole.
        """
        if isinstance(loop, Scan):
            return loop.short and self.attempt(lambda: self.run(scanned(step, loop, self)))
        count = turns(step, loop, self)
        return count is not None and self.attempt(
            lambda: self.run(unrolled(step, loop, count, self))
        )

    def _rename(self, step: Step[P]) -> None:
        """Let values go by other names."""
        for name, result in zip(step.inputs, step.outputs, strict=True):
            self.values[result] = self.find(name)

    def _found(self, name: str) -> Value:
        elements = self.given.elements.get(name)
        if name not in self.given.types:
            return self._stated(name) if self.around is None else self._captured(name)
        if elements is not None and elements.dtype != object:
            return self.g.constant(elements, name)
        v = self.g.input(name, self.given.types[name])
        if elements is not None:
            self.known[v] = elements
        return v

    def _captured(self, name: str) -> Value:
        """Return the value that a body states, or a constant or input for a value around it."""
        assert self.around is not None, "of bodies only"
        try:
            return self._stated(name)
        except ModelError:
            outer = self.around.find(name)
        if outer.array is not None:
            return outer.detached()
        v = self.g.input(name, outer.type)
        elements = self.around.contents(outer)
        if elements is not None:
            self.known[v] = elements
        return v

    def _operands(self, step: Step[P]) -> Operands:
        return Operands(self.g, step.kind, step.label, step.inputs, step.outputs, self)

    def _postpone(self, step: Step[P]) -> None:
        self.later.append(step)
        self._missing.update(filter(None, step.outputs))


class ConvertingImporter(StepImporter[P]):
    """The state of the import of one part of a model in which each result is a tensor.

    A step that is refused does not end the import: in the place of its results stand values of the
    types that the model declares, so that the steps that read them are looked at, too.  The graph
    is not the model's then: `run` raises UnsupportedError.
    """

    def __init__(self, g: Graph, given: Known) -> None:
        super().__init__(g, given)
        self.refusals: list[Refusal] = []
        self._assumed: set[str] = set()  # results of refused steps, and what follows from them
        self._unseen: set[str] = set()  # those that have no value: what reads them is left out

    def run(self, steps: Iterable[Step[P]]) -> None:
        """Import what can be imported of steps; raise UnsupportedError if any is refused."""
        super().run(steps)
        if self.refusals and self.collects:
            raise refused(self.refusals)

    def _entered(self, step: Step[P]) -> Sequence[Step[P]]:
        if not self._unseen.isdisjoint(step.reads):
            self._unseen.update(step.outputs)
            return ()
        follows = self._follows(step)
        if follows:
            self._assumed.update(step.outputs)
        try:
            return super()._entered(step)
        except UnsupportedError as error:
            if not self.collects:
                raise
            self._refuse(step, error)
        except AlpenglowError:
            if not follows:
                raise
            self._unseen.update(step.outputs)  # a type that the model declares may be wrong
        return ()

    def _follows(self, step: Step[P]) -> bool:
        """Return True if a step reads a result of a refused one, or what follows from it."""
        return not self._assumed.isdisjoint(step.reads)

    def _cut(self, step: Step[P], error: Undecided | Needed) -> None:
        if self._follows(step):
            self._unseen.update(step.outputs)
        else:
            super()._cut(step, error)

    def _refuse(self, step: Step[P], error: UnsupportedError) -> None:
        """Record that a step cannot be imported; let values of declared types be its results."""
        error.located(node=step.label)
        self.refusals.append(Refusal(step.kind, self._place(step), error))
        for i, name in enumerate(step.outputs):
            t = self._declared(step, i) if name else None
            if t is None:
                self._unseen.add(name)
            else:
                self.values[name] = Value(t, name)
        self._assumed.update(step.outputs)

    @abstractmethod
    def _declared(self, step: Step[P], i: int) -> TensorType | None:
        """Return the type that the model declares for a result, if all of it is known."""

    def _place(self, step: Step[P]) -> str:
        """Return the place of a step in the file."""
        return step.label.removeprefix(f"{step.kind} ")

    @abstractmethod
    def _convert(self, step: Step[P]) -> Value | Sequence[Value]:
        """Convert a step and return its results, at least as many as it names."""

    @abstractmethod
    def _check(self, step: Step[P], i: int, v: Value) -> Value:
        """Return a result as it is declared; raise ModelError if it is of another type."""

    def _step(self, step: Step[P]) -> None:
        results, fresh = self._tried(lambda: self._imported(step))
        for name, v in zip(step.outputs, results, strict=False):
            presume_extents(v.type.shape)
            if not name:
                continue
            if v.producer in fresh and not v.name:
                v.name = name
            self.values[name] = v

    def _imported(self, step: Step[P]) -> tuple[Sequence[Value], set[Node]]:
        """Convert a step and return its results and the nodes that were added to the graph."""

        def convert() -> tuple[Sequence[Value], set[Node]]:
            before = len(self.g.nodes)
            made = self._convert(step) if step.make is None else step.make(self._operands(step))
            results = [made] if isinstance(made, Value) else list(made)[: len(step.outputs)]
            results = [self._check(step, i, v) for i, v in enumerate(results)]
            fresh = self._since(before)
            folded = self._settle(fresh)
            return [folded.get(v, v) for v in results], set(fresh)

        return self._converted(convert, step.kind, step.label, step.reads)


Imports = TypeVar("Imports", bound=StepImporter[Any])


class SteppedModel(StagedModel, Generic[Imports]):
    """A row of steps, or a turn of a loop; `results` has the names of its outputs' values."""

    def __init__(
        self, name: str, file: str, inputs: Mapping[str, TensorType | None],
        results: Mapping[str, str], outputs: Mapping[str, TensorType | None], rest: Any,
    ) -> None:  # fmt: skip
        self.name, self.file = name, file
        self.inputs, self.kinds, self.constants = inputs, {}, {}
        self.results, self.outputs = results, outputs
        self._rest = rest
        self._bodies: dict[tuple[str, ...], SteppedModel[Imports]] = {}

    def begin(self) -> Any:
        return self._rest

    def part(self, rest: Any, known: Known) -> Part:
        """Import as much of the rest as what is known decides."""
        g = Graph(self.name)
        importer = self._importer(g, rest, known)
        importer.hold_back(n for n in self.inputs if n not in known.types)
        importer.run(rest.steps)
        actions, later = self._actions(importer)
        if not later and not actions:
            for name, value in self.results.items():
                g.output(name, importer.find(value))
            self._finish(importer)
            g.prune()
            return Part(g, (), (), None)
        wanted = dict.fromkeys(n for step in importer.later for n in step.reads)
        left = self._left(importer, rest, later)
        wanted |= dict.fromkeys([*importer.needs, *importer.beside, *self._kept(importer)])
        for name in wanted:
            if name in importer.values and not g.has_input(name) and not importer.lasts(name):
                g.output(name, importer.values[name])
        g.prune()
        return Part(g, tuple(actions), tuple(importer.needs), left)

    @abstractmethod
    def _importer(self, g: Graph, rest: Any, known: Known) -> Imports:
        """Return the importer of a part."""

    @abstractmethod
    def _left(self, importer: Imports, rest: Any, later: Sequence[Any]) -> Any:
        """Return a rest that keeps only these steps."""

    @abstractmethod
    def _turning(
        self, turn: Turn[Any], fixed: Mapping[str, Array],
        inputs: Mapping[str, TensorType | None], results: Mapping[str, str],
    ) -> SteppedModel[Imports]:  # fmt: skip
        """Return the model of a turn of a loop; `fixed` are constants that it reads."""

    def _kept(self, importer: Imports) -> Iterable[str]:
        """Return the names of what is to be there after all parts."""
        return self.results.values()

    def _finish(self, importer: Imports) -> None:
        """Do what remains to be done where one part is the whole."""

    def _actions(self, importer: Imports) -> tuple[list[Action], list[Any]]:
        """Return the loops whose operands are there, and the steps that are left."""
        pending = {n for step in importer.later for n in step.outputs}
        actions: list[Action] = []
        later: list[Any] = []
        for step in importer.later:
            ready = pending.isdisjoint(step.reads)
            action = self._action(importer, step) if ready else None
            if action is None:
                later.append(step)
            else:
                actions.append(action)
        return actions, later

    def _action(self, importer: Imports, step: Step[Any]) -> Action | None:
        """Return the loop that a step is; None if it is none."""
        return self._loop(importer, step) if step.kind == LOOP else None

    def _loop(self, importer: Imports, step: Step[Any]) -> Loop:
        """Return the loop that a step is."""
        *carried, going = step.inputs
        values = {name: importer.find(name) for name in step.reads}
        fixed = {n: a for n in step.captured if (a := values[n].array) is not None}
        captured = tuple(n for n in dict.fromkeys(step.captured) if n not in fixed)
        body = self._body(step, captured, fixed)
        return Loop(step.label, body, "", going, tuple(carried), captured, step.outputs)

    def _body(
        self, step: Step[Any], captured: Sequence[str], fixed: Mapping[str, Array]
    ) -> SteppedModel[Imports]:
        """Return the turn of a loop as a model, one however often the loop is imported."""
        key = step.outputs
        if key not in self._bodies:
            names = [f"i{k}" for k in range(len(step.inputs) - 1)]
            turn = turn_of(step, names)
            inputs: dict[str, TensorType | None] = {
                "turn": TensorType("i64", ()), "going": TensorType("bool", ()),
            }  # fmt: skip
            inputs |= dict.fromkeys([*names, *captured])
            results = {"goes_on": turn.going, **{f"r{o}": o for o in turn.outputs}}
            self._bodies[key] = self._turning(turn, fixed, inputs, results)
        return self._bodies[key]


def graph_of(
    whole: StagedModel,
    types: Mapping[str, TensorType] | None = None,
    leave_out: Callable[[Graph, Mapping[str, TensorType]], Collection[str]] | None = None,
) -> Graph | StagedModel:
    """Return the graph of a model, or the model itself where its graph depends on data.

    `types` has the types of the inputs, by default as the model declares them.  `leave_out` returns
    the names of inputs that a graph of the whole model does not need.
    """
    if types is None:
        types = {n: t for n, t in whole.inputs.items() if t is not None}
    symbols = dict.fromkeys(s for t in types.values() for s in sorted(t.symbols()))
    with presuming(symbols) as presumed:
        part = whole.part(whole.begin(), Known(types))
    g = part.graph
    in_parts = part.rest is not None or bool(part.actions)
    if leave_out is not None and not in_parts:
        gone = leave_out(g, types)
        types = {n: t for n, t in types.items() if n not in gone}
    for name, t in types.items():
        if not g.has_input(name):
            g.input(name, t)
    others = [n for n, v in g.inputs.items() if n in g.initial or v.hidden]
    g.inputs = {n: g.inputs[n] for n in (*types, *others)}
    g.metadata = whole.metadata
    if in_parts or len(types) < len(whole.inputs):
        whole.first = part
        return whole
    if presumed.guards or any(t != whole.inputs[n] for n, t in types.items()):
        g.guards, g.otherwise = tuple(presumed.guards), whole
    return g
