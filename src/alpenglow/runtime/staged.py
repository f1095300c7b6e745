"""Running models that are imported in parts (see `frontends.staged`).

A run goes through *stages*: a part of the model, compiled, and the actions that follow it.  Which
stage comes next depends on what came out; each is kept with the conditions under which it is right,
so that a second run with data that behave alike imports and compiles nothing.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np

from alpenglow.backends.api import Artifact
from alpenglow.base.errors import (
    AlpenglowError,
    FeedError,
    ModelError,
    TypeRuleError,
    UnsupportedError,
)
from alpenglow.frontends.staged import Given, Loop, Scan, StagedModel
from alpenglow.ir.dims import Assumption, Guards, assuming
from alpenglow.ir.graph import Graph
from alpenglow.ir.metadata import NONE, Metadata
from alpenglow.ir.target import Target
from alpenglow.ir.types import Array, TensorType
from alpenglow.runtime import calls, describe, feeds, loops, short
from alpenglow.runtime.calls import Call
from alpenglow.runtime.cpus import default_threads
from alpenglow.runtime.describe import Description
from alpenglow.runtime.executor import Executable
from alpenglow.runtime.feeds import Places
from alpenglow.runtime.layout import Layout
from alpenglow.runtime.row import Ran
from alpenglow.runtime.stages import Applied, Env, Matcher, Record, Stage, State, named
from alpenglow.runtime.steps import MOST_STEPS, Key, Step, signature
from alpenglow.runtime.timing import Timings
from alpenglow.runtime.turns import Roles
from alpenglow.runtime.values import value_of

Compile = Callable[[Graph, Guards], Executable]

MOST_STAGES = 16
"""How many ways to go on are kept at each place."""


class Runner:
    """Runs one staged model: the whole, or the body of a loop, which then has `roles`."""

    def __init__(self, model: StagedModel, compile_: Compile, roles: Roles | None = None) -> None:
        self.model = model
        self.roles = roles
        self._compile = compile_
        self._first: list[Stage] = []
        self._bodies: dict[int, Runner] = {}
        self._lock = threading.RLock()
        types = {n: t for n, t in model.inputs.items() if t is not None}
        self._declared = types, Matcher(types)
        self._starts: dict[Key, Step] = {}
        self._steps = 0
        self.last: list[Record | Layout] = []

    def run(self, inputs: Mapping[str, Any]) -> Env:
        """Return the outputs by name for values of the inputs by name."""
        env = {**self.model.constants, **inputs}
        step = self._start(inputs, env, imports=True)
        assert step is not None, "a stage was imported where there was none"
        records: list[Record | Layout] = []
        self._enter(step, env, records)
        while step.stage.part.rest is not None:
            step = self._next(step, env)
            self._enter(step, env, records)
        self.last = records
        return {name: self._output(env, name) for name in self.model.outputs}

    def run_row(
        self, inputs: Mapping[str, Any], sliced: Callable[[], list[Array]], first: int, most: int,
        chunk: int,
    ) -> Ran | None:  # fmt: skip
        """Run turns of a loop in a row (see `runtime.turns`); None where they cannot be."""
        env = {**self.model.constants, **inputs}
        start = self._start(inputs, env, imports=False)
        if start is None or start.stage.run is None or self.roles is None:
            return None
        turns = start.stage.turns(start.values, start.declared, self.roles)
        if turns is None:
            return None
        threads = start.stage.run.threads or default_threads()
        slices = sliced()
        limit = min([chunk if turns.may_stop else most, *map(len, slices)])
        if limit < 2:
            return None
        ran = turns.run(env, start.values, slices, first, limit, threads)
        if ran is not None:
            self.last = [turns.layout]
        return ran

    def types(self, outputs: Sequence[str], inputs: Mapping[str, Any]) -> list[TensorType | None]:
        """Return the types that some outputs would have, as far as can be told without a run."""
        declared = [self.model.outputs[n] for n in outputs]
        if not outputs:
            return declared
        state = State({**self.model.constants, **inputs})
        try:
            self._begin(state)
            made = self._stage(self._first, self.model.begin(), state).made
        except AlpenglowError:  # it could not run, but nobody asks it to
            return declared
        return [
            made[n].bind(state.values) if n in made else t
            for n, t in zip(outputs, declared, strict=True)
        ]

    def _start(self, inputs: Mapping[str, Any], env: Env, imports: bool) -> Step | None:
        """Return how a run begins; all symbols are known then.

        Where no stage goes on from such inputs, one is imported, or None is returned.
        """
        key = signature(inputs)
        step = self._starts.get(key)
        if step is not None:
            return step
        state = State(env)
        declared = self._begin(state)
        stage = self._accepting(list(self._first), state)
        if stage is None and not imports:
            return None
        stage = stage or self._stage(self._first, self.model.begin(), state)
        return self._remember(self._starts, key, Step.into(stage, state, declared))

    def _next(self, step: Step, env: Env) -> Step:
        """Return how a run goes on behind a step that is not its last."""
        key = step.key(env)
        following = None if key is None else step.following.get(key)
        if following is not None:
            return following
        stage, state = step.stage, step.state(env)
        for name in stage.part.needs:
            state.measure(name)
        following = Step.into(self._stage(stage.next, stage.part.rest, state), state)
        return following if key is None else self._remember(step.following, key, following)

    def _remember(self, steps: dict[Key, Step], key: Key, step: Step) -> Step:
        if self._steps >= MOST_STEPS:
            self._forget()
        self._steps += 1
        steps[key] = step
        return step

    def _forget(self) -> None:
        self._starts.clear()
        self._steps = 0

    def _begin(self, state: State) -> dict[str, TensorType]:
        """Match inputs with their declared types; return those that hold."""
        types, declared = self._declared
        while (unfit := declared.match(state.env, state.values)) is not None:
            found, t = state.env[unfit], types[unfit]
            if self.roles is None or not isinstance(found, np.ndarray) or found.dtype != t.numpy:
                found = np.asarray(found)
                raise FeedError(
                    f"input '{unfit}' is {found.dtype}{list(found.shape)}, expected {t}"
                )
            # What a body declares holds in its first turn at most: carried values may grow.
            types = {n: t for n, t in types.items() if n != unfit}
            declared = Matcher(types)
            self._declared = types, declared
            state.values = {}
        state.types |= types
        return types

    def _output(self, env: Env, name: str) -> Any:
        if name not in env:
            raise UnsupportedError(f"output '{name}' was not made", file=self.model.file)
        return env[name]

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
                if len(stages) > MOST_STAGES:
                    del stages[MOST_STAGES:]
                    self._forget()  # steps would keep what was compiled for them
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
            message = _with_values(error.message, state.values)
            if _is_of_data(error, message):
                found = feeds.Unfit(message, node=error.node, hint=error.hint)
                raise found.located(file=self.model.file) from error.__cause__ or error
            error.message = message
            raise error.located(file=self.model.file) from None
        idle = not part.actions and part.rest is not None and not part.graph.nodes
        if idle and all(n in state.elements for n in part.needs):
            raise UnsupportedError(
                f"{len(part.rest)} nodes wait for each other's data", file=self.model.file
            )
        guards = tuple(assumption.guards)
        handed_on = self._handed_on(part.graph)
        computes = bool(part.graph.outputs) and not handed_on
        run = self._compile(part.graph, guards) if computes else None
        return Stage(part, run, state, guards, handed_on)

    def _handed_on(self, graph: Graph) -> dict[str, str]:
        """Return of which values the outputs are other names, where that is all that a part does.

        A caller's arrays are not handed on, nor is one array returned to him under two names.
        """
        names = {id(v): n for n, v in graph.inputs.items()}
        found = {out: names.get(id(v), "") for out, v in graph.outputs.items()}
        sources = set(found.values())
        others = {"", *self.model.inputs, *self.model.outputs, *self.model.constants}
        if graph.nodes or self.roles is not None or sources & others or len(sources) < len(found):
            return {}
        return found

    def _enter(self, step: Step, env: Env, records: list[Record | Layout]) -> None:
        """Run the part and the actions of a stage."""
        if (call := calls.current()) is not None:
            call.check()
        stage = step.stage
        if stage.run is not None:
            step.place = step.place or stage.run.place(step.values)
            records.append(stage.run.execute(env, step.place))
        for name, source in stage.handed_on:
            env[name] = env[source]
        for action in stage.actions:
            try:
                if isinstance(action, Applied):
                    records += action.act(env)
                else:
                    records += self._loop(action, env)
            except AlpenglowError as error:
                raise error.located(node=action.label, file=self.model.file) from None

    def _loop(self, action: Loop | Scan, env: Env) -> Sequence[Record | Layout]:
        match action:
            case Loop():
                results = loops.loop(action, self._body(action), env)
            case Scan():
                results = loops.scan(action, self._body(action), env)
        env.update({n: r for n, r in zip(action.outputs, results, strict=True) if n})
        return self._body(action).last

    def _body(self, action: Loop | Scan) -> Runner:
        # A Runner keeps its model, so no other model can have that id.
        found = self._bodies.get(id(action.body))
        if found is not None:
            return found
        with self._lock:
            if id(action.body) not in self._bodies:
                roles = loops.roles_of(action)
                self._bodies[id(action.body)] = Runner(action.body, self._compile, roles)
            return self._bodies[id(action.body)]

    def artifacts(self) -> Iterator[Artifact]:
        """Yield what has been compiled so far, bodies of loops included."""
        for stage in _all(self._first):
            if stage.run is not None:
                yield from stage.run.artifacts
        for body in list(self._bodies.values()):
            yield from body.artifacts()


def _record(layout: Layout) -> Record:
    """Return what a layout ran."""
    artifact = layout.artifact
    pairs = list(zip(artifact.table, artifact.program.instrs(), strict=True))
    interpreted = tuple(i.op.name for e, i in pairs if not e.kernel)
    return Record(artifact.program.name, len(pairs) - len(interpreted), interpreted)


def _is_of_data(error: AlpenglowError, message: str) -> bool:
    """Whether a part cannot be imported because of what was fed, not of how the model is made.

    The front end says so where the operator that it stops at reads data; else it has to do with
    them if the types do not fit, or if what was measured stands in the message.
    """
    if isinstance(error, FeedError | TypeRuleError):
        return True
    return isinstance(error, ModelError) and message != error.message


def _with_values(text: str, values: Mapping[str, int]) -> str:
    """Return a message in which symbols that no model has named are told, with their values.

    Such a symbol is an element of a value, ``k[0]=7``, or an extent, ``x.shape[1]=7``.
    """

    def told(symbol: re.Match[str]) -> str:
        if symbol[0] not in values:
            return symbol[0]
        return f"{named(symbol[0])}={values[symbol[0]]}"

    return re.sub(r"\b\w+__\w+\b", told, text)


class StagedExecutable(Executable):
    """A model whose graph depends on its data: it is compiled in parts, as these are met.

    `inputs` and `outputs` hold None where the model leaves a type open or it is no tensor's.
    """

    def __init__(
        self,
        model: StagedModel,
        compile_: Compile,
        threads: int | None,
        target: Target,
        metadata: Metadata = NONE,
    ) -> None:
        self.name, self.metadata, self.target = model.name, metadata, target
        self._runs_here = target.is_host_compatible()
        self.threads = threads
        self.inputs = cast("dict[str, TensorType]", dict(model.inputs))
        self.outputs = cast("dict[str, TensorType]", dict(model.outputs))
        self._kinds = model.kinds
        self._runner = Runner(model, compile_)
        self._running = set()
        self._known = short.Known()
        self._otherwise = None

    def run(
        self,
        feeds: Mapping[str, Any],
        out: Places | None = None,
        timeout: float | None = None,
        outputs: Sequence[str] | None = None,
    ) -> dict[str, Any]:
        """Return the outputs by name: arrays, lists (sequences), None (an empty optional).

        All is as for any Executable, but results are copied to `out`: their shapes are not known
        before.  Raises UnsupportedError where what the data lead to is not supported.
        """
        self._check_host()
        call = Call(calls.deadline_of(timeout))
        if out is None and outputs is None:
            return self._run(feeds, {}, call)
        return self._run_some(feeds, out, outputs, call)

    def _run(
        self, arrays: Mapping[str, Any], out: Mapping[str, Any], call: Call | None
    ) -> dict[str, Any]:
        call = call or Call(None)
        named = feeds.named(arrays, self.inputs)
        given = {
            n: value_of(n, named[n], self._kinds.get(n))
            if t is None
            else feeds.fitting(n, named[n], t, t.numpy, None)
            for n, t in self.inputs.items()
        }
        self._running.add(call)
        try:
            with calls.calling(call):
                made = self._runner.run(given)
        except (TypeRuleError, feeds.Unfit) as error:
            raise feeds.unfit(error, given) from error.__cause__ or error
        finally:
            self._running.discard(call)
        return feeds.written(made, out) if out else made

    def _description(self) -> Description:
        inputs = {n: self._kinds.get(n) if t is None else t for n, t in self.inputs.items()}
        head = describe.head(self.name, self.target, self.threads or default_threads())
        code = describe.code(self.artifacts, is_open=True)
        return Description("StagedExecutable", head, inputs, self.outputs, code)

    def _whole(self, treated: str) -> Artifact:
        raise UnsupportedError(
            f"a model whose graph depends on its data cannot be {treated} compiled",
            hint="" if treated == "saved" else "compile the model where it is to run",
        )

    def warm(self, shapes: Any) -> None:
        raise UnsupportedError(
            "what is compiled of a model whose graph depends on its data is known when it is run",
            hint="call it once with arrays like those to come",
        )

    def timings(self, feeds: Mapping[str, Any], rounds: int = 20) -> Timings:
        raise UnsupportedError(
            "a model whose graph depends on its data runs in parts, which are not timed",
            hint="report() tells what the last run ran",
        )

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
