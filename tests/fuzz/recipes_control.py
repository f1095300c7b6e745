"""Recipes for control flow, sequences and optionals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper

from alpenglow.frontends.onnx.cut import reads

from .draft import Draft, Var
from .elements import DTYPES, ORDINARY, Array, code
from .inference import Declined
from .recipe import STAGED, grow, recipe

FLEXIBLE = ("float", "float", "double", "int64", "int32")


def inner(d: Draft) -> Draft:
    if len(d.prefix) > 8:
        raise Declined
    return d.inner(f"{d.prefix}b{len(d.nodes)}{len(d.vars)}_")


def graph(b: Draft, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[str | Var],
          told: bool = True) -> onnx.GraphProto:  # fmt: skip
    """Return the nodes of a draft as a graph; shapes of results are told, or not."""
    told = told and not b.is_open
    infos = [
        onnx.ValueInfoProto(name=o) if isinstance(o, str)
        else helper.make_tensor_value_info(o.name, code(o.dtype), o.shape if told else None)
        for o in outputs
    ]  # fmt: skip
    nodes = needed(b.nodes, {o.name for o in infos}) if b.is_open else b.nodes
    return helper.make_graph(nodes, f"{b.prefix}graph", inputs, infos)


def needed(nodes: Sequence[onnx.NodeProto], names: set[str]) -> list[onnx.NodeProto]:
    """Return the nodes that make some values: others may or may not mind another extent."""
    kept: list[onnx.NodeProto] = []
    for n in reversed(nodes):
        if names & set(n.output):
            names |= set(reads(n))
            kept.insert(0, n)
    return kept


def info(v: Var, told: bool = True) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(v.name, code(v.dtype), v.shape if told else None)


def local(b: Draft, name: str, dtype: str, shape: tuple[int, ...]) -> Var:
    """Return an input of a body, which what follows will like to read."""
    v = Var(f"{b.prefix}{name}", dtype, shape)
    return b.add(v, made=True)


def own(b: Draft) -> list[Var]:
    """Return what nodes of a body have made."""
    made = {o for n in b.nodes for o in n.output}
    return [v for v in b.vars if v.name in made]


def result(b: Draft, like: Var | None = None, seen: bool = True) -> Var:
    """Return a value that the body made: of the type of `like`, if that is given.

    Whether the body can read `like` itself is `seen`.
    """
    made = own(b)
    if like is None:
        return made[-1] if made else b.node("Identity", [b.pick(FLEXIBLE)])[0]
    fitting = [v for v in made if (v.dtype, v.shape) == (like.dtype, like.shape)]
    if fitting:
        return fitting[-1]
    like = like if seen else b.fresh(like.dtype, like.shape)
    if like.dtype in FLEXIBLE and b.opset >= 7 and b.chance(0.7):
        kept = Var(like.name, like.dtype, like.shape)
        return b.node("Mul", [kept, b.given(np.array(0.5 if "i" not in like.dtype else 1,
                                                     DTYPES[like.dtype]), True)])[0]  # fmt: skip
    return b.node("Identity", [like])[0]


def stable(d: Draft, loose: str, dtype: str, shape: tuple[int, ...]) -> None:
    """Go on with the sum of what has no fixed shape, or leave it as a result."""
    if d.prefix or d.chance(0.4):
        v = Var(loose, dtype, shape)
        if d.opset >= 13:
            d.node("ReduceSum", [v], types=[(dtype, ())], keepdims=0)
        else:
            d.node("Size", [v], types=[("int64", ())])
    else:
        d.results.append(loose)


# ── If ──


@recipe("If", table=STAGED)
def branch(d: Draft, op: str) -> None:
    how = d.one_of(("constant", "control", "computed"))
    yes = bool(d.chance(0.5))
    if how == "constant":
        c = d.given(np.array(yes), True)
    elif how == "control":
        c = d.control(np.array(yes), np.array(not yes))
    else:
        x = d.pick(["float", "int64", "int32"], empty=False)
        keep = d.one_of((0, 1)) if x.rank == 0 else 0
        most = d.node("ReduceMax", [x], types=[(x.dtype, ())], keepdims=keep)[0]
        c = d.node("Greater", [most, d.given(np.array(1, DTYPES[x.dtype]), True)])[0]
    here, there = inner(d), inner(d)
    there.prefix = f"{there.prefix[:-1]}e_"
    for b in (here, there):
        grow(b, d.number(1, 3))
    first = result(here)
    same = how != "constant" and not (d.prefix or d.chance(0.3))
    second = result(there, first if same or d.prefix else None, seen=False)
    told = same and d.chance(0.5)
    if first.dtype != second.dtype:
        raise Declined
    taken = first if yes else second
    graphs = {"then_branch": graph(here, [], [first], told),
              "else_branch": graph(there, [], [second], told)}  # fmt: skip
    (v,) = d.node(op, [c], types=[(taken.dtype, taken.shape)], **graphs)
    if first.shape != second.shape and how != "constant":
        loosen(d, v)


def loosen(d: Draft, v: Var) -> None:
    """Let nobody count on the shape of a value that was just made."""
    d.vars.remove(v)
    d.made.discard(v.name)
    if v.dtype in FLEXIBLE:
        stable(d, v.name, v.dtype, v.shape)
    elif not d.prefix:
        d.results.append(v.name)
    else:
        d.node("Size", [v], types=[("int64", ())])


# ── Loop and Scan ──


@recipe("Loop", table=STAGED)
def loop(d: Draft, op: str) -> None:
    turns = d.number(0 if d.chance(0.2) else 1, 5)
    fixed = d.chance(0.4)
    trips = (
        d.given(np.array(turns), True) if fixed
        else d.control(np.array(turns), *(np.array(n) for n in (0, 1, 7)))
    )  # fmt: skip
    goes_on = d.chance(0.6)
    going = None if d.chance(0.5) else d.given(np.array(True), True)
    starts = [d.pick(FLEXIBLE, 0, 3) for _ in range(d.number(1, 2))]
    grown = d.pick(FLEXIBLE, 1, 3, empty=False) if d.chance(0.4) else None
    b = inner(d)
    i, go = local(b, "i", "int64", ()), local(b, "go", "bool", ())
    carried = [local(b, f"h{k}", v.dtype, v.shape) for k, v in enumerate(starts)]
    grow(b, d.number(1, 4))
    ends = [result(b, v) for v in carried]
    ends = [v if v not in ends[:k] else b.node("Identity", [v])[0] for k, v in enumerate(ends)]
    if goes_on:
        again = b.node("Identity", [go])[0]
    else:
        again = b.node("Less", [i, b.given(np.array(d.number(0, 4)), True)])[0]
    rows = [v for v in own(b)[-6:] if v.name not in {e.name for e in [*ends, again]}]
    rows = rows[-1:] if d.chance(0.7) else []
    told = d.chance(0.6)
    inputs = [info(v, not v.rank or (told and not d.is_open)) for v in (i, go, *carried)]
    given, results = [trips, going, *starts], [again, *ends]
    if grown is not None:
        more = f"{b.prefix}more"
        b.nodes.append(helper.make_node("Concat", [f"{b.prefix}grown", grown.name], [more], axis=0))
        inputs.append(helper.make_tensor_value_info(f"{b.prefix}grown", code(grown.dtype), None))
        given.append(grown)
    whole = [*results, *([f"{b.prefix}more"] if grown is not None else []), *rows]
    body = graph(b, inputs, whole, told)
    types = [(v.dtype, v.shape) for v in starts]
    types += [(grown.dtype, grown.shape)] if grown is not None else []
    types += [(v.dtype, (turns, *v.shape)) for v in rows]
    made = d.node(op, given, outputs=len(types), types=types, body=body)
    if grown is not None:
        loosen(d, made[len(starts)])
    if rows and not (fixed and goes_on):
        loosen(d, made[-1])


@recipe("Scan", table=STAGED)
def scan(d: Draft, op: str) -> None:
    length = d.number(1, 5)
    starts = [d.pick(FLEXIBLE, 0, 3) for _ in range(d.number(0, 2))]
    axes, back, scanned = [], [], []
    for _ in range(d.number(1, 2)):
        shape = list(d.shape(0, 2))
        axes.append(d.number(0, len(shape)))
        back.append(d.number(0, 1))
        shape.insert(axes[-1], length)
        scanned.append(d.fresh(d.one_of(FLEXIBLE), tuple(shape)))
    b = inner(d)
    states = [local(b, f"s{k}", v.dtype, v.shape) for k, v in enumerate(starts)]
    slices = [
        local(b, f"e{k}", v.dtype, v.shape[:a] + v.shape[a + 1 :])
        for k, (v, a) in enumerate(zip(scanned, axes, strict=True))
    ]
    grow(b, d.number(1, 4))
    ends = [result(b, v) for v in states]
    ends = [v if v not in ends[:k] else b.node("Identity", [v])[0] for k, v in enumerate(ends)]
    row = result(b)
    if row in ends:
        row = b.node("Identity", [row])[0]
    told = d.chance(0.6)
    shown = told and not d.is_open
    body = graph(b, [info(v, shown) for v in (*states, *slices)], [*ends, row], told)
    out = d.number(0, row.rank)
    more = {"scan_input_axes": axes, "scan_input_directions": back,
            "scan_output_axes": [out], "scan_output_directions": [d.number(0, 1)]}  # fmt: skip
    types = [(v.dtype, v.shape) for v in starts]
    types.append((row.dtype, (*row.shape[:out], length, *row.shape[out:])))
    d.node(op, [*starts, *scanned], outputs=len(types), types=types, body=body,
           num_scan_inputs=len(scanned), **more)  # fmt: skip


# ── sequences and optionals ──


def host(d: Draft, op: str, given: Sequence[str | Var | None], **attributes: object) -> str:
    """Add a node whose result is a sequence or an optional; return its name."""
    name = f"{d.prefix}q{len(d.nodes)}"
    names = ["" if v is None else v if isinstance(v, str) else v.name for v in given]
    node = helper.make_node(op, names, [name], **attributes)
    d._check(node)
    d.nodes.append(node)
    return name


def read(d: Draft, op: str, given: Sequence[str | Var], dtype: str, shape: tuple[int, ...],
         **attributes: object) -> Var:  # fmt: skip
    """Add a node that makes a tensor of a sequence or an optional."""
    names = [Var(v, "", ()) if isinstance(v, str) else v for v in given]
    return d.node(op, names, types=[(dtype, shape)], **attributes)[0]


@recipe("SequenceConstruct", table=STAGED)
def sequence(d: Draft, op: str) -> None:
    x = d.pick(ORDINARY)
    parts = [x, *(d.fresh(x.dtype, d.shape(0, 3)) for _ in range(d.number(0, 2)))]
    if d.chance(0.3):
        found = host(d, "SequenceEmpty", [], dtype=code(x.dtype))
        for v in parts:
            found = host(d, "SequenceInsert", [found, v])
    else:
        found = host(d, op, parts)
    if d.chance(0.5):
        at = d.number(-len(parts), len(parts))
        v = d.fresh(x.dtype, d.shape(0, 3))
        found = host(d, "SequenceInsert", [found, v, position(d, at)])
        parts.insert(at, v)
    if len(parts) > 1 and d.chance(0.4):
        at = d.number(-len(parts), len(parts) - 1)
        if d.chance(0.3):  # the last one
            at = -1
            found = host(d, "SequenceErase", [found])
        else:
            found = host(d, "SequenceErase", [found, position(d, at)])
        del parts[at]
    if d.chance(0.3):
        read(d, "SequenceLength", [found], "int64", ())
    if not d.prefix and d.chance(0.3):
        d.results.append(found)
    at = d.number(-len(parts), len(parts) - 1)
    read(d, "SequenceAt", [found, position(d, at)], x.dtype, parts[at].shape)


def position(d: Draft, at: int) -> Var:
    kind: Array = np.array(at, d.one_of((np.int32, np.int64)))
    return d.given(kind, True) if d.chance(0.7) else d.control(kind)


@recipe("SplitToSequence", table=STAGED)
def split(d: Draft, op: str) -> None:
    x = d.pick(FLEXIBLE, 1, 4, empty=False)
    axis = d.number(-x.rank, x.rank - 1)
    extent = x.shape[axis]
    how = d.one_of(("ones", "size", "sizes"))
    keep = d.number(0, 1)
    if how == "ones":
        found = host(d, op, [x], axis=axis, keepdims=keep)
    elif how == "size":
        found = host(d, op, [x, position(d, d.number(1, extent))], axis=axis)
    else:
        cut = d.number(0, extent)
        found = host(d, op, [x, d.given(np.array([cut, extent - cut]), True)], axis=axis)
    if how == "ones" and not keep:
        read(d, "ConcatFromSequence", [found], x.dtype, x.shape, axis=axis, new_axis=1)
    else:
        read(d, "ConcatFromSequence", [found], x.dtype, x.shape, axis=axis)


@recipe("SequenceMap", table=STAGED)
def mapped(d: Draft, op: str) -> None:
    if d.opset < 17:
        raise Declined
    x = d.pick(FLEXIBLE, 1, 3, empty=False)
    found = host(d, "SequenceConstruct", [x, d.fresh(x.dtype, x.shape)])
    b = inner(d)
    element = local(b, "e", x.dtype, x.shape)
    grow(b, 2)
    y = result(b, element)
    made = host(d, op, [found], body=graph(b, [info(element, False)], [y], False))
    read(d, "SequenceAt", [made, position(d, d.number(0, 1))], x.dtype, x.shape)


@recipe("Optional", table=STAGED)
def optional(d: Draft, op: str) -> None:
    if d.opset < 15:
        raise Declined
    x = d.pick(FLEXIBLE)
    if d.opset >= 18 and d.chance(0.15):
        d.node("OptionalHasElement", [], types=[("bool", ())])
        return
    if d.chance(0.3):
        kind = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
        found = host(d, op, [], type=kind)
    else:
        found = host(d, op, [x])
        read(d, "OptionalGetElement", [found], x.dtype, x.shape)
    read(d, "OptionalHasElement", [found], "bool", ())
