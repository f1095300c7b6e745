"""Running models that are imported in parts (see `frontends.staged`).

A run goes through *stages*: a part of the model, compiled, and the actions that follow it.  Which
stage comes next depends on what came out; each is kept with the conditions under which it is right,
so that a second run with data that behave alike imports and compiles nothing.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from alpenglow.backends.api import Artifact
from alpenglow.base.errors import AlpenglowError, FeedError, UnsupportedError
from alpenglow.frontends.staged import Action, Apply, Given, Loop, Scan, StagedModel
from alpenglow.ir.dims import Assumption, Guards, assuming
from alpenglow.ir.graph import Graph
from alpenglow.ir.types import Array, TensorType
from alpenglow.runtime.executor import Executable, fitting
from alpenglow.runtime.layout import Layout
from alpenglow.runtime.stages import Env, Matcher, Stage, State

Compile = Callable[[Graph, Guards], Executable]

MOST_STAGES = 16
"""How many ways to go on are kept at each place."""


@dataclass(frozen=True, slots=True)
class Record:
    """What ran: a part with so many compiled and interpreted instructions, or an action."""

    what: str
    compiled: int = 0
    interpreted: tuple[str, ...] = ()
    host: str = ""


def _declared(types: dict[str, TensorType]) -> tuple[dict[str, TensorType], Matcher]:
    return types, Matcher(types)


class Runner:
    """Runs one staged model: the whole, or the body of a loop."""

    def __init__(self, model: StagedModel, compile_: Compile, is_body: bool = False) -> None:
        self.model = model
        self._compile = compile_
        self._first: list[Stage] = []
        self._bodies: dict[int, Runner] = {}
        self._lock = threading.RLock()
        self._declared = _declared({n: t for n, t in model.inputs.items() if t is not None})
        self._is_body = is_body
        self.last: list[Record | Layout] = []

    def run(self, inputs: Mapping[str, Any]) -> Env:
        """Return the outputs by name for values of the inputs by name."""
        state = self._begun(inputs)
        records: list[Record | Layout] = []
        stages, rest = self._first, self.model.begin()
        while True:
            stage = self._stage(stages, rest, state)
            self._enter(stage, state, records)
            if stage.part.rest is None:
                break
            for name in stage.part.needs:
                state.measure(name)
            stages, rest = stage.next, stage.part.rest
        self.last = records
        return {name: self._output(state, name) for name in self.model.outputs}

    def types(self, outputs: Sequence[str], inputs: Mapping[str, Any]) -> list[TensorType | None]:
        """Return the types that some outputs would have, as far as can be told without a run."""
        declared = [self.model.outputs[n] for n in outputs]
        if not outputs:
            return declared
        try:
            state = self._begun(inputs)
            made = self._stage(self._first, self.model.begin(), state).made
        except AlpenglowError:  # it could not run, but nobody asks it to
            return declared
        return [
            made[n].bind(state.values) if n in made else t
            for n, t in zip(outputs, declared, strict=True)
        ]

    def _begun(self, inputs: Mapping[str, Any]) -> State:
        """Return the state in which a run begins."""
        state = State({**self.model.constants, **inputs})
        types, declared = self._declared
        while (unfit := declared.match(state.env, state.values)) is not None:
            found, t = state.env[unfit], types[unfit]
            if not self._is_body or not isinstance(found, np.ndarray) or found.dtype != t.numpy:
                found = np.asarray(found)
                raise FeedError(
                    f"input '{unfit}' is {found.dtype}{list(found.shape)}, expected {t}"
                )
            # What a body declares holds in its first turn at most: carried values may grow.
            types, declared = _declared({n: t for n, t in types.items() if n != unfit})
            self._declared = types, declared
            state.values = {}
        state.types |= types
        return state

    def _output(self, state: State, name: str) -> Any:
        if name not in state.env:
            raise UnsupportedError(f"output '{name}' was not made", file=self.model.file)
        return state.env[name]

    def _stage(self, stages: list[Stage], rest: Any, state: State) -> Stage:
        """Return the stage that goes on from here; import and compile one if there is none."""
        stage = self._accepting(list(stages), state)
        if stage is not None:
            return stage
        with self._lock:
            # Another thread may have made it meanwhile.
            stage = self._accepting(stages, state)
            if stage is None:
                stage = self._imported(rest, state)
                stages.insert(0, stage)
                del stages[MOST_STAGES:]
        return stage

    def _accepting(self, stages: list[Stage], state: State) -> Stage | None:
        values = dict(state.values)
        for stage in stages:
            if stage.accepts(state):
                return stage
            state.values = dict(values)
        return None

    def _imported(self, rest: Any, state: State) -> Stage:
        types: dict[str, TensorType] = {}
        others: set[str] = set()
        for name in state.env:
            t = None if name in self.model.constants else state.type_of(name)
            if t is not None:
                types[name] = t
            elif name not in self.model.constants:
                others.add(name)
        unfit = Matcher(types).match(state.env, state.values)
        assert unfit is None, f"{unfit} is no {types.get(unfit)}"
        assumption = Assumption(state.values)
        try:
            with assuming(assumption):
                given = Given(types, frozenset(others), state.elements)
                part = self.model.part(rest, given)
        except AlpenglowError as error:
            error.message = _with_values(error.message, state.values)
            raise error.located(file=self.model.file) from None
        idle = not part.actions and part.rest is not None and not part.graph.nodes
        if idle and all(n in state.elements for n in part.needs):
            raise UnsupportedError(
                f"{len(part.rest)} nodes wait for each other's data", file=self.model.file
            )
        guards = tuple(assumption.guards)
        run = self._compile(part.graph, guards) if part.graph.outputs else None
        return Stage(part, run, state, guards)

    def _enter(self, stage: Stage, state: State, records: list[Record | Layout]) -> None:
        """Run the part and the actions of a stage."""
        if stage.run is not None:
            feeds = {n: state.env[n] for n in stage.inputs}
            made, layout = stage.run.execute(feeds, state.values)
            state.env |= made
            state.types |= stage.made
            records.append(layout)
        for action in stage.part.actions:
            records += self._act(action, state)

    def _act(self, action: Action, state: State) -> list[Record | Layout]:
        env = state.env
        try:
            match action:
                case Apply():
                    values = [env[n] if n else None for n in action.inputs]
                    made = action.op.reference(*values)
                    results = made if isinstance(made, tuple) else (made,)
                    env.update({n: r for n, r in zip(action.outputs, results, strict=False) if n})
                    return [Record(action.label, host=action.op.name)]
                case Loop():
                    results = self._loop(action, env)
                case Scan():
                    results = self._scan(action, env)
        except AlpenglowError as error:
            raise error.located(node=action.label, file=self.model.file) from None
        env.update({n: r for n, r in zip(action.outputs, results, strict=True) if n})
        return self._body(action).last

    def _body(self, action: Loop | Scan) -> Runner:
        with self._lock:
            # A Runner keeps its model, so no other model can have that id.
            if id(action.body) not in self._bodies:
                self._bodies[id(action.body)] = Runner(action.body, self._compile, True)
            return self._bodies[id(action.body)]

    def artifacts(self) -> Iterator[Artifact]:
        """Yield what has been compiled so far, bodies of loops included."""
        for stage in _all(self._first):
            if stage.run is not None:
                yield from stage.run.artifacts
        for body in list(self._bodies.values()):
            yield from body.artifacts()

    # ── loops ──

    def _loop(self, action: Loop, env: Env) -> tuple[Any, ...]:
        body = self._body(action)
        names = list(action.body.inputs)
        captured = {n: env[n] for n in action.captured}
        most = int(_single(env[action.trips], "how often")) if action.trips else None
        going = bool(_single(env[action.condition], "whether")) if action.condition else True
        carried = [env[n] if n else None for n in action.carried]
        count, turn = list(action.body.inputs.values())[:2]
        kept = list(action.body.outputs)[1 + len(carried) :]
        stacks: list[list[Any]] = [[] for _ in kept]
        i = 0
        while going and (most is None or i < most):
            given = [_like(count, np.int64(i)), _like(turn, np.bool_(True)), *carried]
            made = list(body.run({**dict(zip(names, given, strict=False)), **captured}).values())
            going = bool(_single(made[0], "whether"))
            carried = made[1 : 1 + len(carried)]
            for stack, value in zip(stacks, made[1 + len(carried) :], strict=True):
                stack.append(value)
            i += 1
        if not i:
            body.last = []
            given = [_like(count, np.int64(0)), _like(turn, np.bool_(True)), *carried]
            types = body.types(kept, {**dict(zip(names, given, strict=False)), **captured})
            return (*carried, *(_none_of(t, 0) for t in types))
        return (*carried, *map(_stacked, stacks))

    def _scan(self, action: Scan, env: Env) -> tuple[Any, ...]:
        states = [env[n] for n in action.states]
        scanned = [np.asarray(env[n]) for n in action.scanned]
        if not action.batched:
            return self._scanned(action, env, states, scanned)
        # Before opset 9 there are several sequences, some shorter than others.
        count = scanned[0].shape[0]
        longest = scanned[0].shape[1]
        lengths = env[action.lengths].tolist() if action.lengths else [longest] * count
        rows = []
        for b in range(count):
            cut = [x[b, : lengths[b]] for x in scanned]
            rows.append(self._scanned(action, env, [s[b] for s in states], cut))
        results = []
        for k, parts in enumerate(zip(*rows, strict=True)):
            if k >= len(states):
                parts = tuple(_padded(p, longest) for p in parts)
            results.append(_stacked(parts))
        return tuple(results)

    def _scanned(
        self, action: Scan, env: Env, states: list[Any], scanned: list[Array]
    ) -> tuple[Any, ...]:
        body = self._body(action)
        names = list(action.body.inputs)
        captured = {n: env[n] for n in action.captured}
        axes, reverse = action.axes[: len(scanned)], action.reverse[: len(scanned)]
        lengths = {x.shape[a] for x, a in zip(scanned, axes, strict=True)}
        if len(lengths) != 1:
            raise FeedError(f"the scanned operands have {sorted(lengths)} slices, expected as many")
        (length,) = lengths
        moved = [np.moveaxis(x, a, 0)[:: -1 if r else 1]
                 for x, a, r in zip(scanned, axes, reverse, strict=True)]  # fmt: skip
        kept = list(action.body.outputs)[len(states) :]
        stacks: list[list[Any]] = [[] for _ in kept]
        for i in range(length):
            given = [*states, *(np.array(x[i]) for x in moved)]
            made = list(body.run({**dict(zip(names, given, strict=False)), **captured}).values())
            states = made[: len(states)]
            for stack, value in zip(stacks, made[len(states) :], strict=True):
                stack.append(value)
        axes, reverse = action.axes[len(scanned) :], action.reverse[len(scanned) :]
        if not length:
            body.last = []
            given = [*states, *(np.zeros(x.shape[1:], x.dtype) for x in moved)]
            types = body.types(kept, {**dict(zip(names, given, strict=False)), **captured})
            return (*states, *(_none_of(t, a) for t, a in zip(types, axes, strict=True)))
        ordered = [s[::-1] if r else s for s, r in zip(stacks, reverse, strict=True)]
        return (*states, *(_stacked(s, a) for s, a in zip(ordered, axes, strict=True)))


def _record(layout: Layout) -> Record:
    """Return what a layout ran."""
    artifact = layout.artifact
    pairs = list(zip(artifact.table, artifact.program.instrs(), strict=True))
    interpreted = tuple(i.op.name for e, i in pairs if not e.kernel)
    return Record(artifact.program.name, len(pairs) - len(interpreted), interpreted)


def _single(value: Any, what: str) -> Any:
    """Return the element of what tells a loop when to end."""
    if not isinstance(value, np.ndarray) or value.size != 1:
        shown = value.shape if isinstance(value, np.ndarray) else type(value).__name__
        raise FeedError(f"what tells {what} to go on is {shown}, expected one element")
    return value.reshape(-1)[0]


def _like(t: TensorType | None, value: np.generic) -> Array:
    """Return a number as a body declares it: a scalar, or a vector of one."""
    return np.full((1,) if t is not None and t.rank == 1 else (), value)


def _none_of(t: TensorType | None, axis: int) -> Array:
    """Return what a loop that ran no time collected of such tensors."""
    if t is None:
        raise UnsupportedError("a loop that ran no time collects tensors of unknown rank")
    shape = [d if isinstance(d, int) else 0 for d in t.shape]
    shape.insert(axis % (len(shape) + 1), 0)
    return np.empty(shape, t.numpy)


def _stacked(values: Sequence[Any], axis: int = 0) -> Array:
    """Return what a loop collected as one array; raise FeedError where the shapes differ."""
    shapes = {np.shape(v) for v in values}
    if len(shapes) > 1:
        raise FeedError(f"a loop collects tensors of the shapes {sorted(shapes)}, expected one")
    return np.stack(list(values), axis)


def _padded(array: Array, length: int) -> Array:
    missing = np.zeros((length - array.shape[0], *array.shape[1:]), array.dtype)
    return np.concatenate([array, missing])


def _with_values(text: str, values: Mapping[str, int]) -> str:
    """Return a message in which symbols that no model has named are followed by their values."""
    return re.sub(
        r"\b\w+__\w+\b",
        lambda m: f"{m[0]}={values[m[0]]}" if m[0] in values else m[0],
        text,
    )


class StagedExecutable(Executable):
    """A model whose graph depends on its data: it is compiled in parts, as these are met.

    `inputs` and `outputs` hold None where the model leaves a type open or it is no tensor's.
    """

    def __init__(self, model: StagedModel, compile_: Compile, threads: int | None) -> None:
        self.threads = threads
        self.inputs = cast("dict[str, TensorType]", dict(model.inputs))
        self.outputs = cast("dict[str, TensorType]", dict(model.outputs))
        self._runner = Runner(model, compile_)

    def run(
        self, feeds: Mapping[str, Any], out: Mapping[str, Array] | None = None
    ) -> dict[str, Any]:
        """Return the outputs by name: arrays, lists (sequences), None (an empty optional).

        Raises FeedError where feeds do not fit, and UnsupportedError where what the data lead to
        is not supported.
        """
        if out:
            raise UnsupportedError("out= needs outputs of known shape; this model has none")
        given = self._named(feeds)
        arrays = {
            n: fitting(n, given[n], t, t.numpy, None) if t is not None else _as_value(given[n])
            for n, t in self.inputs.items()
        }
        return self._runner.run(arrays)

    def save(self, path: Any) -> None:
        raise UnsupportedError("a model whose graph depends on its data cannot be saved compiled")

    def report(self) -> list[Record]:
        """Return what the last run ran, in order."""
        return [_record(r) if isinstance(r, Layout) else r for r in self._runner.last]

    @property
    def artifacts(self) -> list[Artifact]:
        """What has been compiled so far."""
        return list(self._runner.artifacts())


def _all(stages: list[Stage]) -> Iterator[Stage]:
    for stage in stages:
        yield stage
        yield from _all(stage.next)


def _as_value(value: Any) -> Any:
    """Return what a caller gives for an input without a type: an array, a list, None."""
    if value is None or isinstance(value, dict):
        return value
    if isinstance(value, list | tuple):
        return [_as_value(v) for v in value]
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind in "US" else array
