"""Runs of staged models: from stage to stage, as data lead, importing what is met first.

Which stage comes next depends on what came out; each is kept with the conditions under which it is
right, so that a second run with data that behave alike imports and compiles nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from alpenglow.base.errors import (
    AlpenglowError,
    FeedError,
    ModelError,
    TypeRuleError,
    UnsupportedError,
)
from alpenglow.base.locks import new_rlock
from alpenglow.ir.dims import Assumption, Guards, assuming
from alpenglow.ir.graph import Graph
from alpenglow.ir.staged import Action, Apply, Known, Loop, Part, Scan, StagedModel
from alpenglow.ir.staged_text import Continuation
from alpenglow.ir.types import TensorType
from alpenglow.machines.api import Artifact
from alpenglow.runtime.call import feeds
from alpenglow.runtime.call.calls import Call
from alpenglow.runtime.executables.in_process import InProcess
from alpenglow.runtime.executables.installed import Installed
from alpenglow.runtime.executables.open_extents import OpenExecutable
from alpenglow.runtime.memory.layout import Layout
from alpenglow.runtime.staged import loops
from alpenglow.runtime.staged.kept import KeptModel, KeptStage, Outline, Unmet, touched
from alpenglow.runtime.staged.stages import Applied, Env, Matcher, Record, Stage, State, named
from alpenglow.runtime.staged.steps import MOST_STEPS, Key, Step, signature

Compile = Callable[[Graph, Guards, Sequence[Artifact]], InProcess]
"""Makes what runs a part for which guards hold, of what was compiled of it before."""

MOST_STAGES = 16
"""How many ways to go on are kept at each place."""


class Runner:
    """Runs one staged model: the whole, or the body of a loop."""

    def __init__(
        self,
        model: StagedModel,
        compile_: Compile,
        threads: int | None,
        is_body: bool = False,
    ) -> None:
        self.model = model
        self._is_body = is_body
        self._compile = compile_
        self._threads = threads
        self._first: list[Stage] = []
        self._bodies: dict[int, Runner] = {}
        self._lock = new_rlock()
        types = {n: t for n, t in model.inputs.items() if t is not None}
        self._declared = types, Matcher(types)
        self._starts: dict[Key, Step] = {}
        self._steps = 0
        self._untold: set[Key] = set()
        self.last: list[Record | Layout] = []
        if isinstance(model, KeptModel):
            self._revive(model)

    def run(self, inputs: Mapping[str, Any], call: Call) -> Env:
        """Return the outputs by name for values of the inputs by name."""
        env = {**self.model.constants, **inputs}
        step = self._start(inputs, env)
        records: list[Record | Layout] = []
        self._enter(step, env, records, call)
        while step.stage.rest is not None:
            step = self._next(step, env)
            self._enter(step, env, records, call)
        self.last = records
        try:
            return {name: env[name] for name in self.model.outputs}
        except KeyError as error:
            raise UnsupportedError(
                f"output '{error.args[0]}' is missing after the run", file=self.model.file
            ) from None

    def types(self, outputs: Sequence[str], inputs: Mapping[str, Any]) -> list[TensorType | None]:
        """Return the types that some outputs would have, as far as can be told without a run."""
        declared = [self.model.outputs[n] for n in outputs]
        if not outputs:
            return declared
        state = State({**self.model.constants, **inputs})
        try:
            self._begin(state)
            types = self._stage(self._first, self.model.begin(), state).outline.outputs
        except AlpenglowError as error:  # it could not run, but nobody asks it to
            if isinstance(error, Unmet) and signature(inputs) not in self._untold:
                raise  # where the archive was written, its types would be told
            if len(self._untold) >= MOST_STEPS:
                self._untold.clear()
            self._untold.add(signature(inputs))
            return declared
        return [
            types[n].bind(state.values) if n in types else t
            for n, t in zip(outputs, declared, strict=True)
        ]

    def _start(self, inputs: Mapping[str, Any], env: Env) -> Step:
        """Return how a run begins; all symbols are known then."""
        key = signature(inputs)
        step = self._starts.get(key)
        if step is not None:
            return step
        state = State(env)
        declared = self._begin(state)
        stage = self._stage(self._first, self.model.begin(), state)
        return self._remember(self._starts, key, Step.into(stage, state, declared))

    def _next(self, step: Step, env: Env) -> Step:
        """Return how a run goes on behind a step that is not its last."""
        key = step.key(env)
        following = None if key is None else step.following.get(key)
        if following is not None:
            return following
        stage, state = step.stage, step.state(env)
        for name in stage.needs:
            state.measure(name)
        following = Step.into(self._stage(stage.next, stage.rest, state), state)
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
            value, t = state.env[unfit], types[unfit]
            if not self._is_body or not isinstance(value, np.ndarray) or value.dtype != t.numpy:
                value = np.asarray(value)
                raise FeedError(
                    f"input '{unfit}' is {value.dtype}{list(value.shape)}, expected {t}"
                )
            # What a body declares holds in its first turn at most: carried values may grow.
            types = {n: t for n, t in types.items() if n != unfit}
            declared = Matcher(types)
            self._declared = types, declared
            state.values = {}
        state.types |= types
        return types

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
        part, assumption = self._part(rest, state)
        idle = not part.actions and part.rest is not None and not part.graph.nodes
        if idle and all(n in state.elements for n in part.needs):
            raise UnsupportedError(
                f"{len(part.rest)} nodes depend on each other, expected no cycle",
                file=self.model.file,
            )
        guards = tuple(assumption.guards)
        handed_on = self._handed_on(part.graph)
        computes = bool(part.graph.outputs) and not handed_on
        run = self._compile(part.graph, guards, ()) if computes else None
        outputs = {n: v.type for n, v in part.graph.outputs.items()}
        outline = Outline(
            inputs={n: v.type for n, v in part.graph.callers_inputs().items()},
            outputs=outputs,
            handed_on=handed_on,
            then=Continuation.of(part),
            guards=guards,
            values=assumption.values,
            others={n: state.type_of(n) is None for n in touched(part.actions, outputs)},
            elements=dict(state.elements),
        )
        return Stage(outline, run, part.rest)

    def _part(self, rest: Any, state: State) -> tuple[Part, Assumption]:
        """Import a part; return it with what it takes for granted."""
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
                known = Known(types, frozenset(others), state.elements)
                part = self.model.part(rest, known)
        except AlpenglowError as error:
            message = _with_values(error.message, state.values)
            if _is_of_data(error, message):
                refusal = feeds.Unfit(message, node=error.node, hint=error.hint)
                raise refusal.located(file=self.model.file) from error.__cause__ or error
            error.message = message
            raise error.located(file=self.model.file) from None
        return part, assumption

    def _handed_on(self, graph: Graph) -> dict[str, str]:
        """Return of which values the outputs are other names, where that is all that a part does.

        A caller's arrays are not handed on, nor is one array returned to him under two names.
        """
        names = {id(v): n for n, v in graph.callers_inputs().items()}
        aliases = {out: names.get(id(v), "") for out, v in graph.outputs.items()}
        sources = set(aliases.values())
        others = {"", *self.model.inputs, *self.model.outputs, *self.model.constants}
        if graph.nodes or self._is_body or sources & others or len(sources) < len(aliases):
            return {}
        return aliases

    def _enter(
        self, step: Step, env: Env, records: list[Record | Layout], call: Call
    ) -> None:
        """Run the part and the actions of a stage."""
        stage = step.stage
        if stage.run is None:
            call.check()
        else:
            if step.code is None:
                step.code = stage.run.prepared(step.values)
            records.append(step.code.layout)
            if not step.code.run(env, call):
                stage.run.execute(env, step.code.place, call)
        for name, source in stage.handed_on:
            env[name] = env[source]
        for action in stage.actions:
            try:
                if isinstance(action, Applied):
                    records += action.act(env)
                else:
                    records += self._loop(action, env, call)
            except AlpenglowError as error:
                raise error.located(node=action.label, file=self.model.file) from None

    def _loop(
        self, action: Loop | Scan, env: Env, call: Call
    ) -> Sequence[Record | Layout]:
        match action:
            case Loop():
                results = loops.loop(action, self._body(action), env, call)
            case Scan():
                results = loops.scan(action, self._body(action), env, call)
        env.update({n: r for n, r in zip(action.outputs, results, strict=True) if n})
        return self._body(action).last

    def _body(self, action: Loop | Scan) -> Runner:
        # A Runner keeps its model, so no other model can have that id.
        runner = self._bodies.get(id(action.body))
        if runner is not None:
            return runner
        with self._lock:
            if id(action.body) not in self._bodies:
                self._bodies[id(action.body)] = Runner(
                    action.body, self._compile, self._threads, is_body=True
                )
            return self._bodies[id(action.body)]

    def kept(self) -> KeptModel:
        """Return the model as an archive keeps it: with the stages met so far."""
        m = self.model
        bodies: dict[int, KeptModel] = {}

        def with_kept_body(action: Action) -> Action:
            if isinstance(action, Apply):
                return action
            runner = self._body(action)
            if id(runner) not in bodies:
                bodies[id(runner)] = runner.kept()
            return replace(action, body=bodies[id(runner)])

        read: dict[str, None] = dict.fromkeys(m.outputs)
        model = KeptModel(m.name, m.file, m.inputs, m.kinds, m.outputs, {}, m.metadata)
        waiting = [(self._first, model.stages)]
        while waiting:
            stages, kept = waiting.pop()
            for stage in list(stages):
                then = stage.outline.then
                read |= dict.fromkeys([*touched(then.actions, {}), *then.needs])
                actions = tuple(map(with_kept_body, then.actions))
                outline = replace(stage.outline, then=replace(then, actions=actions))
                graph = stage.run.graph if isinstance(stage.run, OpenExecutable) else None
                compiled = () if stage.run is None else tuple(stage.run.artifacts)
                kept.append(KeptStage(outline, graph, compiled))
                waiting.append((stage.next, kept[-1].next))
        model.untold = set(self._untold)
        model.constants = {n: m.constants[n] for n in read if n in m.constants}
        return model

    def _revive(self, model: KeptModel) -> None:
        """Make stages of those that an archive held."""
        self._untold |= model.untold
        waiting = [(model.stages, self._first)]
        while waiting:
            kept, stages = waiting.pop()
            for one in kept:
                run: InProcess | None = None
                if one.graph is not None:
                    run = self._compile(one.graph, one.outline.guards, one.artifacts)
                elif one.artifacts:
                    run = Installed(one.artifacts[0], self._threads)
                stages.append(Stage(one.outline, run, one.outline.then.rest or None))
                waiting.append((one.next, stages[-1].next))
                for action in one.outline.then.actions:
                    if not isinstance(action, Apply):
                        self._body(action)

    def artifacts(self) -> Iterator[Artifact]:
        """Yield what has been compiled so far, bodies of loops included."""
        waiting = list(self._first)
        while waiting:
            stage = waiting.pop(0)
            if stage.run is not None:
                yield from stage.run.artifacts
            waiting[:0] = stage.next
        for body in list(self._bodies.values()):
            yield from body.artifacts()


def recorded(layout: Layout) -> Record:
    """Return what a layout ran."""
    artifact = layout.artifact
    interpreted = tuple(i.op.name for i in artifact.interpreted())
    compiled = len(artifact.table) - len(interpreted)
    return Record(artifact.program.name, compiled, interpreted)


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
