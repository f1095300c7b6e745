"""Exported programs from ``.pt2`` files (`torch.export.save`), read without PyTorch.

The program that is read is the one that `fx.exported` makes of the object that was saved, if
operators without a converter were decomposed before it was.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from alpenglow.base.errors import AlpenglowError, ModelError, UnsupportedError
from alpenglow.base.words import shown
from alpenglow.frontends.torch.apart import check_stored
from alpenglow.frontends.torch.demands import demands
from alpenglow.frontends.torch.fx import unique
from alpenglow.frontends.torch.program import (
    Argument,
    Body,
    Input,
    InputKind,
    Output,
    Program,
    Ref,
    refs,
)
from alpenglow.frontends.torch.pt2.archive import Archive, Layout, check_format, opened, tensors
from alpenglow.frontends.torch.pt2.graph import CPU, functional_of, named, traced_name
from alpenglow.frontends.torch.pt2.schema import (
    DTYPES,
    LAYOUTS,
    STRIDED,
    Record,
    check_versions,
    device,
    document,
    field,
    listed,
    number,
    of_kind,
    record,
    union,
    word,
)
from alpenglow.frontends.torch.structure import paths, structure
from alpenglow.frontends.torch.symbols import FLOAT, LEAST, Ranges
from alpenglow.frontends.torch.symbols import named as called
from alpenglow.ir.metadata import text
from alpenglow.ir.structure import Fixed, Leaf, Structure
from alpenglow.ir.types import Array

INPUT, OUTPUT = "an input of the signature", "an output of the signature"
CALLS = "the description of calls"
NO_PICKLE = "export plain tensors alone: pickles can run code, so none is loaded"

MODELS, JSON = "models/", ".json"

PAYLOADS = {
    "data/weights/": "_weights_config.json",
    "data/constants/": "_constants_config.json",
}
"""The folders of tensors, and the suffix of the file that lists the tensors of a model."""

STATE: Mapping[str, tuple[InputKind, str]] = {
    "parameter": ("parameter", "parameter_name"),
    "buffer": ("buffer", "buffer_name"),
    "tensor_constant": ("constant", "tensor_constant_name"),
}
"""Inputs that belong to the module: their kind, and the field with their name in the module."""


def program_of(model: str | Path | bytes) -> Program:
    """Return the program in a file, or in the bytes of one.

    Raises ModelError if it is damaged, IncompatibleError if it is of another version,
    UnsupportedError if it holds what is not read, as what is pickled.
    """
    file = "" if isinstance(model, bytes) else str(model)
    try:
        archive = opened(model)
        check_format(archive)
        name = _name(archive)
        whole = document(archive.text(f"{MODELS}{name}{JSON}"), name)
        return _program(archive, name, whole, file)
    except AlpenglowError as error:
        raise error.located(file=file) from None


def _name(archive: Archive) -> str:
    """Return the name of the one model of an archive."""
    names = [n.removeprefix(MODELS).removesuffix(JSON) for n in archive.entries
             if n.startswith(MODELS) and n.endswith(JSON)]  # fmt: skip
    if len(names) == 1:
        return names[0]
    if not names and any(n.startswith("data/aotinductor/") for n in archive.entries):
        raise UnsupportedError("the file has AOTInductor code, expected an exported program",
                               hint="torch.export.save(exported_program, …)")  # fmt: skip
    said = ", ".join(f"'{shown(n)}'" for n in names) or "none"
    raise UnsupportedError(f"the file holds {len(names)} models ({said}), expected one")


def _program(archive: Archive, name: str, whole: Record, file: str) -> Program:
    record(whole, "the program", "program")
    check_versions(whole)
    module = record(whole.get("graph_module"), "the program's module", "module")
    graph = field(module, "graph", dict, "the program's module")
    made = functional_of(graph)
    body = made.body
    signature = record(module.get("signature"), "the signature", "signature")
    inputs, values = _inputs(field(signature, "input_specs", list, "the signature"), body)
    fixed = {n: v for n, v in values.items() if isinstance(v, bool | int | float)}
    body = replace(body, inputs=tuple(i.name for i in inputs), symbols={**body.symbols, **fixed})
    described = _described(module)
    specs = field(signature, "output_specs", list, "the signature")
    outputs = _outputs(specs, made.returned, described[1] if described else "")
    structure = _structure(described, inputs, values, outputs, specs)
    outputs += tuple(_written(i, outputs) for i in inputs if i.name in made.written)
    stored = _stored(archive, name)
    if (samples := f"data/sample_inputs/{name}.pt") in archive.entries:
        read = {*refs(body.outputs), *(r for c in body.calls for r in refs(c.arguments))}
        unread = stored.keys() - {i.target for i in inputs if i.name in read}
        pickled = opened(bytes(archive.read(samples))).read("data.pkl")
        check_stored(bytes(pickled), sum(i.kind == "user" for i in inputs), unread)
    code = [
        of_kind(c, str, "a guard") for c in of_kind(whole.get("guards_code", []), list, "guards")
    ]
    return Program(
        traced_name(graph), body, inputs, outputs, _state(archive, stored, inputs, body),
        _ranges(record(whole.get("range_constraints"), "the ranges of extents")), file,
        structure, text(of_kind(whole.get("torch_version", ""), str, "the version of torch")),
        trusted=False, demands=demands(code, structure, inputs, body),
    )  # fmt: skip


# ── inputs and outputs ──


def _inputs(specs: list[Any], body: Body) -> tuple[tuple[Input, ...], dict[str, Any]]:
    """Return the inputs of a body, and the values of its fixed inputs."""
    if len(specs) != len(body.inputs):
        raise ModelError(f"the signature has {len(specs)} inputs, expected {len(body.inputs)}")
    inputs: list[Input] = []
    fixed: dict[str, Any] = {}
    for place, spec in zip(body.inputs, specs, strict=True):
        kind, content = union(spec, INPUT)
        r = record(content, INPUT)
        if kind == "constant_input":
            inputs.append(Input(field(r, "name", str, INPUT), "fixed"))
            fixed[inputs[-1].name] = _value(r.get("value"))
            continue  # it has no name in the graph, where its value stands
        inputs.append(_input(kind, r))
        if inputs[-1].name != place:
            raise ModelError(f"the signature has input '{shown(inputs[-1].name)}', expected "
                             f"'{shown(place)}'")  # fmt: skip
    return tuple(inputs), fixed


def _input(kind: str, spec: Record) -> Input:
    if kind in STATE:
        of, key = STATE[kind]
        return Input(named(spec.get("arg"), INPUT), of, field(spec, key, str, INPUT))
    if kind != "user_input":
        raise UnsupportedError(f"an input is a {shown(kind)}, which is pickled", hint=NO_PICKLE)
    of_user, content = union(spec.get("arg"), INPUT)
    if of_user == "as_sym_int":
        return Input(field(record(content, INPUT), "as_name", str, INPUT), "symbol")
    if of_user != "as_tensor":
        raise UnsupportedError(f"an input is {shown(of_user)}, expected as_tensor or as_sym_int")
    return Input(named(content, INPUT), "user")


def _outputs(
    specs: list[Any], returned: tuple[Argument, ...], described: str
) -> tuple[Output, ...]:
    """Return the outputs of a body."""
    if len(specs) != len(returned):
        raise ModelError(f"the signature has {len(specs)} outputs, expected {len(returned)}")
    names: set[str] = set()
    user: Iterator[str] = iter(paths(described)) if described else itertools.repeat("output")
    outputs = []
    for argument, spec in zip(returned, specs, strict=True):
        kind, content = union(spec, OUTPUT)
        r = record(content, OUTPUT)
        match kind:
            case "user_output":
                of, value = union(r.get("arg"), OUTPUT)
                r = {"arg": value} if of == "as_tensor" else {}
                if of == "as_sym_float" and isinstance(argument, Ref):  # calls compute it
                    r = {"arg": {"name": record(value, OUTPUT).get("as_name")}}
                name = next(user, "output")
                tensor = of == "as_tensor" or of.startswith("as_sym")
                outputs.append(Output("user", name=unique(name, names)) if tensor
                               else Output("fixed"))  # fmt: skip
            case "buffer_mutation":
                outputs.append(Output("buffer", field(r, "buffer_name", str, OUTPUT)))
            case "user_input_mutation":
                target = field(r, "user_input_name", str, OUTPUT)
                outputs.append(Output("input", target, unique(f"{target}_after", names)))
            case other:
                raise UnsupportedError(f"output kind {shown(other)} is not supported; supported: "
                                       "user_output, buffer_mutation and user_input_mutation")
        if isinstance(argument, Ref) and (
            "arg" not in r or named(r["arg"], OUTPUT) != argument.name
        ):
            raise ModelError(f"the signature has another output, expected '{shown(argument.name)}'")
    return tuple(outputs)


def _written(written: Input, outputs: Sequence[Output]) -> Output:
    """Return the output that holds what a call of the program left in an input."""
    if written.kind == "user":
        taken = {o.name for o in outputs}
        return Output("input", written.name, unique(f"{written.name}_after", taken))
    return Output("buffer", written.target)


def _value(value: Any) -> Any:
    """Return the value of an input or output that is a number, a text or None."""
    kind, content = union(value, "a value")
    match kind:
        case "as_none":
            return None
        case "as_int":
            return of_kind(content, int, "a value")
        case "as_float":
            return number(content, "a value")
        case "as_bool":
            return of_kind(content, bool, "a value")
        case "as_string":
            return of_kind(content, str, "a value")
    raise UnsupportedError(f"a fixed input or output is {shown(kind)}, expected a number, "
                           "a text or None")  # fmt: skip


# ── how it is called ──


def _described(module: Record) -> tuple[str, str, list[str]] | None:
    """Return PyTorch's texts on what a program is called with and returns; None without them."""
    entries = of_kind(module.get("module_call_graph", []), list, CALLS)
    for entry in entries:
        r = record(entry, CALLS)
        if r.get("fqn") == "" and r.get("signature") is not None:
            signature = record(r["signature"], CALLS)
            names = listed(signature.get("forward_arg_names") or [], str, CALLS)
            texts = (field(signature, key, str, CALLS) for key in ("in_spec", "out_spec"))
            return next(texts), next(texts), list(names)
    return None


def _structure(
    described: tuple[str, str, list[str]] | None, inputs: tuple[Input, ...],
    fixed: Mapping[str, Any], outputs: tuple[Output, ...], specs: list[Any],
) -> Structure | None:  # fmt: skip
    """Return how a program is called."""
    if described is None:
        return None
    arguments = [Fixed(fixed[i.name]) if i.kind == "fixed" else Leaf(i.name)
                 for i in inputs if i.kind in ("user", "symbol", "fixed")]  # fmt: skip
    results: list[Leaf | Fixed] = []
    for o, spec in zip(outputs, specs, strict=True):
        if o.kind == "user":
            results.append(Leaf(o.name))
        elif o.kind == "fixed":
            results.append(Fixed(_value(spec["user_output"]["arg"])))
    return structure(*described, arguments, results)


# ── state ──


def _stored(archive: Archive, name: str) -> dict[str, tuple[str, Any]]:
    """Return the folder in which each tensor of the module lies, and what is said of it."""
    said: dict[str, tuple[str, Any]] = {}
    for folder, ending in PAYLOADS.items():
        config = f"{folder}{name}{ending}"
        if f"{folder}{name}.pt" in archive.entries:  # as PyTorch before 2.9 wrote them
            raise UnsupportedError(f"{folder}{name}.pt is pickled", hint=NO_PICKLE)
        if config not in archive.entries:
            continue
        whole = document(archive.text(config), config)
        for tensor, payload in record(whole.get("config"), config).items():
            if tensor in said:
                raise ModelError(f"'{shown(tensor)}' is stored twice, expected once")
            said[tensor] = folder, payload
    return said


def _state(
    archive: Archive, said: Mapping[str, tuple[str, Any]], inputs: tuple[Input, ...], body: Body
) -> dict[str, Array]:  # fmt: skip
    """Return the tensors that inputs are, by their names in the module."""
    read = {i.target: i.name for i in inputs if i.kind in ("parameter", "buffer", "constant")}
    missing = sorted(read.keys() - said.keys())
    if missing:
        raise ModelError(f"tensor '{shown(missing[0])}' is missing in the archive")
    arrays = tensors(archive, {target: _place(*said[target], target) for target in read})
    for target, input_name in read.items():
        t, array = body.types.get(input_name), arrays[target]
        if t is None or t.shape != array.shape or t.numpy != array.dtype:
            stored = f"{array.dtype}{list(array.shape)}"
            raise ModelError(f"'{shown(target)}' is stored as {stored}, expected {t} as declared")
    return arrays


def _place(folder: str, payload: Any, name: str) -> tuple[str, Layout]:
    """Return the entry in which a tensor lies, and how."""
    what = f"tensor '{shown(name)}'"
    r = record(payload, what, "payload")
    if field(r, "use_pickle", bool, what):
        raise UnsupportedError(f"{what} is pickled", hint=NO_PICKLE)
    meta = record(r.get("tensor_meta"), what, "tensor")
    place = device(meta.get("device"), what)
    if field(meta, "layout", int, what) != STRIDED or place != CPU:
        lies = word(LAYOUTS, meta["layout"], f"the layout of {what}")
        raise UnsupportedError(
            f"{what} is of layout {lies} on the device {shown(place)}",
            hint="module.cpu() before it is exported",
        )
    sizes, strides = (
        tuple(_fixed(s, what) for s in field(meta, key, list, what)) for key in ("sizes", "strides")
    )
    dtype = word(DTYPES, meta.get("dtype"), f"the element type of {what}")
    layout = Layout(dtype, sizes, strides, _fixed(meta.get("storage_offset"), what))
    return folder + field(r, "path_name", str, what), layout


def _fixed(value: Any, what: str) -> int:
    kind, content = union(value, what)
    if kind != "as_int":
        raise ModelError(f"{what} has a size, stride or offset {shown(kind)}, expected as_int")
    return of_kind(content, int, what)


def _ranges(constraints: Record) -> Ranges:
    """Return the least and the largest value of symbols that are whole numbers."""
    ranges: dict[str, tuple[int, int | None]] = {}
    for name, constraint in constraints.items():
        if not name.isidentifier() or FLOAT.fullmatch(name):
            continue
        what = f"the range of '{shown(name)}'"
        r = record(constraint, what, "range")
        low, high = r.get("min_val"), r.get("max_val")
        ranges[str(called(name))] = (
            LEAST if low is None else of_kind(low, int, what),
            None if high is None else of_kind(high, int, what),
        )
    return ranges
