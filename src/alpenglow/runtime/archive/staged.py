"""The text of a staged model in an archive: JSON that reads back.

It lists models: the whole, then the bodies of loops, each behind the model whose loop it is.  A
model lists its stages, each behind the one that it follows.  Graphs, types, actions and arrays
stand there as `ir.text` and `ir.staged_text` print them; large arrays by hash, as in programs.
Artifacts are in other sections, in the order of the stages.  Nothing that is read is executed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import islice
from typing import Any

import numpy as np

from alpenglow.base.errors import AlpenglowError, UnsupportedError
from alpenglow.ir import dims
from alpenglow.ir import text as graph_text
from alpenglow.ir.dims import Guards, Sym, Told, assuming
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.metadata import Metadata
from alpenglow.ir.staged import Action, Apply, Kind, Loop, Scan
from alpenglow.ir.staged_text import Continuation, parse_continuation
from alpenglow.ir.types import DTYPES, NAMES, Array, TensorType, type_of
from alpenglow.machines.api import Artifact
from alpenglow.runtime.archive.artifact import parsed, printed
from alpenglow.runtime.staged.kept import KeptModel, KeptStage, Outline, bodies, operands, touched

Weights = Mapping[str, Array]


def artifacts(model: KeptModel) -> tuple[Artifact, ...]:
    """Return what was compiled, in the order of the text."""
    return tuple(a for m in model.every_model() for s, _ in m.every_stage() for a in s.artifacts)


def weights(model: KeptModel) -> dict[str, Array]:
    """Return the arrays that the text refers to by hash."""
    stored: dict[str, Array] = {}
    for m in model.every_model():
        arrays = [*m.constants.values()]
        for stage, _ in m.every_stage():
            arrays += stage.outline.elements.values()
            stored |= {} if stage.graph is None else graph_text.side_weights(stage.graph)
        for array in arrays:
            if isinstance(array, np.ndarray) and array.dtype in NAMES:
                v = Value(type_of(array), array=array)
                stored |= {} if graph_text.inline(v.type) else {v.digest: array}
    return stored


# ── printing ──


def print_staged(model: KeptModel) -> str:
    """Return the text of a model; raise UnsupportedError if something in it has none."""
    models = model.every_model()
    return json.dumps([_model(m, {b: i for i, b in enumerate(models)}) for m in models])


def _model(m: KeptModel, numbers: Mapping[Any, int]) -> dict[str, Any]:
    return {
        "name": m.name,
        "file": m.file,
        "inputs": _types(m.inputs),
        "kinds": {n: asdict(kind) for n, kind in m.kinds.items()},
        "outputs": _types(m.outputs),
        "untold": sorted(map(_forms, m.untold), key=str),
        "constants": {n: _contents(n, c) for n, c in m.constants.items()},
        "stages": [_stage(s, before, numbers) for s, before in m.every_stage()],
    }


def _stage(stage: KeptStage, before: int, numbers: Mapping[Any, int]) -> dict[str, Any]:
    o = stage.outline
    for action in o.then.actions:
        _check_readable(action)
    return {
        "after": before,
        "inputs": _types(o.inputs),
        "outputs": _types(o.outputs),
        "handed_on": dict(o.handed_on),
        "then": str(o.then),
        "bodies": [numbers[b] for b in bodies(o.then.actions)],
        "guards": printed(o.guards),
        "others": dict(o.others),
        "elements": {n: _contents(n, a) for n, a in o.elements.items()},
        "graph": None if stage.graph is None else graph_text.print_graph(stage.graph),
        "values": {} if stage.graph is None else dict(o.values),
        "artifacts": len(stage.artifacts),
    }


def _types(types: Mapping[str, TensorType | None]) -> dict[str, str | None]:
    return {n: None if t is None else str(t) for n, t in types.items()}


def _forms(key: Iterable[Any]) -> list[Any]:
    """Return element types and shapes, None for what is no array."""
    return [None if form is None else [NAMES.get(form[0], "object"), *form[1]] for form in key]


def _contents(name: str, value: Any) -> Any:
    """Return an array of numbers as text, one of strings or extents and a list of str as lists."""
    if isinstance(value, np.ndarray) and value.dtype in NAMES:
        return graph_text.constant_text(Value(type_of(value), array=value))
    if isinstance(value, np.ndarray) and value.dtype == object:
        elements = value.reshape(-1).tolist()
        if all(type(e) is str for e in elements):
            return {"shape": value.shape, "strings": elements}
        if all(type(e) is int or isinstance(e, Sym) for e in elements):
            return {"shape": value.shape, "extents": list(map(str, elements))}
    if isinstance(value, list) and all(type(e) is str for e in value):
        return value
    kind = type(value).__name__
    raise UnsupportedError(f"value '{name}': saving a {kind} in an archive is not supported")


def _check_readable(action: Action) -> None:
    """Raise UnsupportedError if the text of an action does not read back."""
    one = str(Continuation((action,), (), 0))
    try:
        again = str(parse_continuation(one))
    except AlpenglowError:
        again = ""
    if again != one:
        what = action.op.name if isinstance(action, Apply) else "a loop"
        raise UnsupportedError(
            f"{what}: saving its attributes in an archive is not supported", node=action.label
        )


# ── reading ──


def parse_staged(
    text: str, stored: Weights, compiled: Sequence[Artifact], metadata: Metadata
) -> KeptModel:
    """Read what `print_staged` wrote.

    Raises what Python raises where it is not made so (`base.errors.NONSENSE`), and an
    AlpenglowError where a text in it does not read.
    """
    rows = _listed(json.loads(text), dict)
    models = [_read_model(row, stored, metadata) for row in rows]
    left = iter(compiled)
    for number, (model, row) in enumerate(zip(models, rows, strict=True)):
        stages: list[KeptStage] = []
        for fields in _listed(row["stages"], dict):
            inner = [models[_number(b, number + 1, len(models))] for b in fields["bodies"]]
            before = _number(fields["after"], -1, len(stages))
            stages.append(_read_stage(fields, inner, stored, left))
            (model.stages if before < 0 else stages[before].next).append(stages[-1])
    if not models or list(left):
        raise ValueError(f"{len(models)} models, expected 1 or more, with a part for each program")
    for model in models:
        _check_flow(model)
    return models[0]


def _read_model(row: Mapping[str, Any], stored: Weights, metadata: Metadata) -> KeptModel:
    kinds = {n: _read_kind(k) for n, k in _pairs(row["kinds"], dict)}
    constants = {n: _read_contents(c, stored) for n, c in _pairs(row["constants"], object)}
    inputs, outputs = (_read_types(row[key]) for key in ("inputs", "outputs"))
    name, file = _listed([row["name"], row["file"]], str)
    model = KeptModel(name, file, inputs, kinds, outputs, constants, metadata)
    for forms in _listed(row["untold"], list):
        model.untold.add(tuple(None if f is None else _read_form(*f) for f in forms))
    return model


def _read_form(dtype: str, *shape: int) -> tuple[np.dtype[Any], tuple[int, ...]]:
    return np.dtype(object) if dtype == "object" else DTYPES[dtype], shape


def _read_kind(fields: Any) -> Kind:
    kind = Kind(**fields)
    if kind.what not in ("tensor", "sequence", "optional", "map"):
        raise ValueError(f"kind is {kind.what}, expected tensor, sequence, optional or map")
    if kind.what == "tensor" and kind.dtype not in (*DTYPES, "string"):
        raise ValueError(f"dtype is {kind.dtype}, expected string or one of {' '.join(DTYPES)}")
    shape = None if kind.shape is None else tuple(_listed(kind.shape, int | None))
    return replace(kind, shape=shape, of=None if kind.of is None else _read_kind(kind.of))


def _read_stage(
    fields: Mapping[str, Any], inner: Sequence[KeptModel], stored: Weights, left: Iterator[Artifact]
) -> KeptStage:
    inputs, outputs = ({n: TensorType.parse(t) for n, t in _pairs(fields[key], str)}
                       for key in ("inputs", "outputs"))  # fmt: skip
    guards = parsed(fields["guards"])
    then = parse_continuation(fields["then"])
    body = iter(inner)
    actions = tuple(a if isinstance(a, Apply) else replace(a, body=next(body))
                    for a in then.actions)  # fmt: skip
    values = dict(_pairs(fields["values"], int))
    graph = None
    if fields["graph"] is not None:
        graph, asked = _read_graph(fields["graph"], values, stored)
        # Where its types were inferred by more than is written down, that has to hold as well.
        guards = tuple(dict.fromkeys((*guards, *asked)))
    outline = Outline(
        inputs, outputs, dict(_pairs(fields["handed_on"], str)),
        replace(then, actions=actions), guards, values, dict(_pairs(fields["others"], bool)),
        {n: _read_elements(c, stored) for n, c in _pairs(fields["elements"], object)},
    )  # fmt: skip
    count = _number(fields["artifacts"], 0, 1 << 31)
    stage = KeptStage(outline, graph, tuple(islice(left, count)))
    if next(body, None) is not None or len(stage.artifacts) < count:
        raise ValueError("a stage has other bodies or programs than expected")
    _check_code(stage)
    return stage


def _read_graph(text: str, values: Mapping[str, int], stored: Weights) -> tuple[Graph, Guards]:
    """Return the graph of a part, and what its types take for granted.

    It was imported with these values for symbols, so its types are inferred with them.
    """
    assumption = Told(values)
    with assuming(assumption):
        g = graph_text.parse_graph(text, stored, around=values.keys())
    return g, tuple(assumption.guards)


def _read_types(fields: Any) -> dict[str, TensorType | None]:
    return {n: None if t is None else TensorType.parse(t) for n, t in _pairs(fields, str | None)}


def _read_contents(said: Any, stored: Weights) -> Any:
    match said:
        case str():
            source = graph_text.Lines("")
            return graph_text.parse_constant(Graph(), "", said, stored, source).array
        case {"shape": shape, "strings": listed}:
            return _objects(_listed(listed, str), shape)
        case {"shape": shape, "extents": listed}:
            return _objects(list(map(dims.parse, _listed(listed, str))), shape)
        case list():
            return _listed(said, str)
    raise TypeError(f"the contents of a value are a {type(said).__name__}, expected a dict or list")


def _read_elements(said: Any, stored: Weights) -> Array:
    elements = _read_contents(said, stored)
    if not isinstance(elements, np.ndarray):
        found = type(elements).__name__
        raise TypeError(f"the elements of a value are a {found}, expected an array")
    return elements


def _objects(elements: Sequence[Any], shape: Sequence[int]) -> Array:
    array = np.empty(len(elements), object)
    array[:] = elements
    return array.reshape(tuple(_listed(shape, int)))


def _listed(values: Any, kind: Any) -> list[Any]:
    """Return a list if it is one, of such elements; True is no number."""
    if not isinstance(values, list) or not all(_is(v, kind) for v in values):
        raise TypeError(f"expected a list of {kind}")
    return values


def _pairs(fields: Any, kind: Any) -> Iterable[tuple[str, Any]]:
    """Return the items of an object whose values are such."""
    if not isinstance(fields, dict) or not all(_is(v, kind) for v in fields.values()):
        raise TypeError(f"expected an object with {kind}")
    return fields.items()


def _is(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and (kind is bool or kind is object or type(value) is not bool)


def _number(value: Any, least: int, end: int) -> int:
    if type(value) is not int or not least <= value < end:
        raise ValueError(f"the number is {value!r}, expected an integer from {least} to {end - 1}")
    return value


# ── what a run takes for granted ──


def _check_code(stage: KeptStage) -> None:
    """Raise ValueError if the code of a part does not go with its outline."""
    o, g = stage.outline, stage.graph
    count = len(stage.artifacts)
    if g is None and count != bool(o.outputs and not o.handed_on):
        wanted = int(bool(o.outputs and not o.handed_on))
        raise ValueError(f"a part has {count} programs, expected {wanted}")
    if g is None and any(a.values for a in stage.artifacts):
        raise ValueError("a part without a graph is dynamic, expected fixed dimensions")
    held = [] if g is None else [({n for n in g.inputs if g.has_input(n)}, set(g.outputs))]
    for p in (a.program for a in stage.artifacts):
        held.append(({*p.inputs} - {*p.hidden}, {p.names.get(n, n) for n in p.outputs}))
    for inputs, outputs in held:
        if inputs != o.inputs.keys() or outputs != o.outputs.keys():
            raise ValueError("the code of a part has other inputs or outputs than expected")


def _check_flow(model: KeptModel) -> None:
    """Raise ValueError if a stage reads what is not there, or loops do not fit their bodies."""
    here: list[tuple[set[str], set[str]]] = []
    for stage, before in model.every_stage():
        o = stage.outline
        names, measured = here[before] if before >= 0 else (
            {*model.inputs, *model.constants}, set[str]())  # fmt: skip
        read = {*o.inputs, *o.handed_on.values()}
        behind = names | o.outputs.keys()
        for action in o.then.actions:
            read |= set(operands(action)) - behind - {""}
            behind |= set(action.outputs)
            if not isinstance(action, Apply):
                _check_loop(action)
        asked = set(o.then.needs)
        if read - names or asked - behind or o.elements.keys() != measured:
            raise ValueError("a stage reads other values than expected")
        if list(o.others) != touched(o.then.actions, o.outputs):
            raise ValueError("the kinds of operands of a stage are other than expected")
        here.append((behind, measured | asked))


def _check_loop(action: Loop | Scan) -> None:
    inputs, results, outputs = list(action.body.inputs), action.body.outputs, action.outputs
    if isinstance(action, Loop):
        own = 2 + len(action.carried) + len(action.picked)
        fits = len(results) == len(outputs) + 1
        fits &= len(action.carried) + len(action.appended) <= len(outputs)
    else:
        own = len(action.states) + len(action.scanned)
        axes = len(action.scanned) + len(outputs) - len(action.states)
        fits = len(results) == len(outputs) >= len(action.states)
        fits &= len(action.axes) == len(action.reverse) == axes
    if not fits or set(inputs[own:]) != set(action.captured) or own > len(inputs):
        raise ValueError(
            f"the body of loop '{action.label}' has other inputs or results than expected"
        )
