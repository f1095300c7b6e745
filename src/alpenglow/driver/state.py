"""Caches as state: inputs that hold what an earlier call put out become variables.

A decoder that was exported to go token by token takes keys and values of all tokens before and
returns them with its own behind.  Their names pair them by convention:

    past_key_values.3.key  present.3.key              Hugging Face's optimum, ONNX Runtime GenAI
    past.3.value           present.3.value            earlier exporters
    past_key_values.3.decoder.key  present.3.decoder.key
    cache_keys_3           cache_keys_3               PyTorch, an object that is returned, too

Of a decoder behind an encoder, `past_key_values.3.encoder.key` stays the same: it is an input that
a session is given once.  An output that would hand it on, or that is of no elements in its stead,
says nothing, and is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from alpenglow.base.errors import OptionError, UnsupportedError
from alpenglow.base.words import shown
from alpenglow.ir.dims import Assumption, Sym, assuming, names
from alpenglow.ir.graph import Graph
from alpenglow.ir.staged import Known, StagedModel
from alpenglow.ir.structure import without
from alpenglow.ops.tensor.movement import Slice

BEFORE = re.compile(r"past(?:_key_values|_key|_value)?(.*)")
AFTER = re.compile(r"present(?:_key_values|_key|_value)?(.*)")


def with_state(
    graph: Graph | StagedModel, state: bool | Mapping[str, str], last: Sequence[str]
) -> Graph | StagedModel:
    """Return a graph as `compile` is asked for it: as it is, or one that remembers."""
    if state is not False:
        return remembering(graph, state, last)
    if last:
        raise OptionError(
            "last is about the rows of a call, which only state tells", hint="state=True",
            flags="--state",
        )  # fmt: skip
    return graph


def remembering(
    graph: Graph | StagedModel, state: bool | Mapping[str, str], last: Sequence[str] = ()
) -> Graph:
    """Return a copy of a graph in which caches are variables that grow.

    `state` pairs inputs with the outputs that they were, or is True for what names say.  Of the
    outputs in `last` only the last row of a call is left.  Raises OptionError where there is no
    such pair or output, UnsupportedError for what cannot be a variable.
    """
    if isinstance(graph, StagedModel):
        raise UnsupportedError(
            "this model is run in parts that depend on its data, and no session owns their state",
            hint="where an input decides, tell it: constants={'NAME': value}",
            flags="where an input decides, tell it: --constants NAME=VALUE",
        )
    if not isinstance(state, bool | Mapping):
        raise OptionError(f"state is {state!r}, expected True, or outputs by input")
    pairs = paired(graph) if isinstance(state, bool) else dict(state)
    if not pairs:
        raise OptionError(
            f"state: no input of {shown(graph.name)} has a name that pairs it with an output; "
            f"the inputs are {', '.join(graph.inputs)}, the outputs {', '.join(graph.outputs)}",
            hint="state={'INPUT': 'OUTPUT'}",
        )
    axes = {name: _axis(graph, name, output) for name, output in pairs.items()}
    if len(set(pairs.values())) < len(pairs):
        raise OptionError(f"state: inputs {', '.join(pairs)} share an output, expected one each")
    new = graph.copy()
    for name, output in pairs.items():
        after = new.outputs.pop(output)
        new.let_grow(name, axes[name])
        new.assign(name, after)
    dropped = _handed_on(new) if isinstance(state, bool) else []
    for output in dropped:
        del new.outputs[output]
    structure = new.metadata.structure
    if structure is not None:
        callers = without(structure, pairs.keys(), {*pairs.values(), *dropped})
        new.metadata = replace(new.metadata, structure=callers)
    _keep_last(new, last)
    return new


def _keep_last(graph: Graph, outputs: Sequence[str]) -> None:
    """Let outputs have the last row of a call alone, along the axis that variables grow along."""
    if isinstance(outputs, str):
        raise OptionError(f"last is the string '{outputs}', expected a list of outputs")
    rows = {
        after.type.shape[axis] - graph.inputs[name].type.shape[axis]
        for name, axis in graph.growing.items()
        if (after := graph.outputs.get(name)) is not None
    }
    known = [name for name in graph.outputs if name not in graph.initial]
    for name in outputs:
        if name not in known:
            raise OptionError(f"last: output is '{name}', expected one of {', '.join(known)}")
        y = graph.outputs[name]
        axes = [i for i, d in enumerate(y.type.shape) if d in rows]
        if len(axes) != 1:
            said = ", ".join(map(str, rows))
            raise OptionError(
                f"last: output '{name}' {y.type} has {len(axes)} axes of {said}, the rows of a "
                "call, expected one"
            )
        starts = [d - 1 if i in axes else 0 for i, d in enumerate(y.type.shape)]
        sizes = [1 if i in axes else d for i, d in enumerate(y.type.shape)]
        graph.outputs[name] = graph(Slice(tuple(starts), tuple(sizes), (1,) * y.type.rank), y)


def imported_anew(
    graph: Graph, state: bool | Mapping[str, str], last: Sequence[str]
) -> Callable[[Mapping[str, int]], Graph] | None:
    """Return a function that imports the model of `graph`, with its state, for other extents.

    The guards of that graph are what its import concluded from the extents.  None where the import
    of `graph` took nothing for granted.
    """
    whole = graph.otherwise
    types = {n: v.type for n, v in graph.inputs.items() if not v.hidden}
    if not isinstance(whole, StagedModel):
        return None

    def imported(values: Mapping[str, int]) -> Graph:
        assumption = Assumption(values)
        with assuming(assumption):
            part = whole.part(whole.begin(), Known(types))
        if part.rest is not None or part.actions:
            raise UnsupportedError(
                f"state is not supported for these dimensions: {shown(graph.name)} runs in parts "
                "that depend on its data"
            )
        new = part.graph
        inputs = {n: new.inputs[n] if new.has_input(n) else new.input(n, t)
                  for n, t in types.items()}  # fmt: skip
        new.inputs = {**inputs, **new.inputs}
        new.guards = tuple(assumption.guards)
        return remembering(new, state, last)

    return imported


def paired(graph: Graph) -> dict[str, str]:
    """Return the inputs whose names say that they hold what an output was, each with that."""
    return {n: o for n, o in _alike(graph).items() if _grows(graph, n, o) is not None}


def _alike(graph: Graph) -> dict[str, str]:
    """Return inputs with the outputs that have the same name, or one that convention pairs."""
    same = {name: name for name in graph.inputs if name in graph.outputs}
    outputs = {m[1]: name for name in graph.outputs if (m := AFTER.fullmatch(name))}
    matches = {name: BEFORE.fullmatch(name) for name in graph.inputs}
    named = {name: outputs[m[1]] for name, m in matches.items() if m and m[1] in outputs}
    return {**same, **named}


def _handed_on(graph: Graph) -> list[str]:
    """Return the outputs that are the inputs whose names they have, or constants of no elements."""
    return [
        output
        for name, output in _alike(graph).items()
        if (v := graph.outputs[output]) is graph.inputs[name]
        or (v.array is not None and not v.array.size)
    ]


def _axis(graph: Graph, name: str, output: str) -> int:
    """Return the axis along which an output is longer than the input that will hold it."""
    for kind, wanted, known in (("input", name, graph.inputs), ("output", output, graph.outputs)):
        if wanted not in known:
            raise OptionError(f"state: {kind} is '{wanted}', expected one of {', '.join(known)}")
    axis = _grows(graph, name, output)
    if axis is None:
        raise OptionError(
            f"state: output '{output}' is {graph.outputs[output].type}, expected input '{name}' "
            f"{graph.inputs[name].type} grown along one dynamic dimension"
        )
    return axis


def _grows(graph: Graph, name: str, output: str) -> int | None:
    """Return the only axis in which an input and an output differ, if its extent has a name."""
    before, after = graph.inputs[name].type, graph.outputs[output].type
    if before.rank != after.rank or before != after.with_shape(before.shape):
        return None
    differ = [i for i, (a, b) in enumerate(zip(before.shape, after.shape, strict=True)) if a != b]
    if len(differ) != 1:
        return None
    axis = differ[0]
    extent = before.shape[axis]
    # What it was is a part of what it is.
    return axis if isinstance(extent, Sym) and names(extent) <= names(after.shape[axis]) else None
