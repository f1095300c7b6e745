"""Whatever is wrong with a model or a feed is reported as an error of ours that says where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import alpenglow as ag
from alpenglow.base.errors import (
    AlpenglowError,
    FeedError,
    ModelError,
    TypeRuleError,
    UnsupportedError,
)
from alpenglow.frontends.onnx import load

F32, I64 = TensorProto.FLOAT, TensorProto.INT64
HUGE = 10**15
ABSENT = onnx.ValueInfoProto()
"""An optional operand that is not given."""


def info(name: str, shape: Sequence[int | str] = (2, 3), code: int = F32) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, code, shape)


def made(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    constants: Sequence[onnx.TensorProto] = (),
    outputs: Sequence[str] = ("y",),
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    results = [helper.make_empty_tensor_value_info(o) for o in outputs]
    graph = helper.make_graph(nodes, "bad", inputs, results, constants)
    imports = [helper.make_opsetid("", 17), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def one(
    op: str,
    *inputs: onnx.ValueInfoProto | onnx.TensorProto,
    outputs: Sequence[str] = ("y",),
    **attributes: Any,
) -> onnx.ModelProto:
    """Return a model of one node called 'it'."""
    node = helper.make_node(op, [i.name for i in inputs], outputs, name="it", **attributes)
    infos = [i for i in inputs if isinstance(i, onnx.ValueInfoProto) and i.name]
    return made([node], infos, [i for i in inputs if isinstance(i, onnx.TensorProto)])


def ints(name: str, *values: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def floats(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.ones(shape, np.float32), name)


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Any:
    return helper.make_node(op, inputs, outputs, name="it", **attributes)


def small() -> onnx.ModelProto:
    return one("Relu", info("x"))


# ── files ──


NO_MODELS = {
    "empty": b"",
    "random": np.random.default_rng(0).bytes(1000),
    "text": b"hello, world\n",
    "a number": b"\x08\x0a",
    "truncated": small().SerializeToString()[:-9],
}


@pytest.mark.parametrize("data", NO_MODELS.values(), ids=NO_MODELS.keys())
def test_a_file_that_is_no_model_is_named(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(data)

    with pytest.raises(ModelError, match=r"m\.onnx"):
        ag.load(path)
    with pytest.raises(ModelError):
        ag.load(data)


def test_a_path_without_a_readable_file_is_named(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.onnx", tmp_path / "absent"):
        with pytest.raises(ModelError, match=path.name):
            ag.load(path)
    for strange in ("a\0b.onnx", "a" * 5000 + ".onnx", ""):
        with pytest.raises(ModelError):
            ag.load(strange)


@pytest.mark.parametrize("thing", [None, 3, [], {}, np.ones(3)])
def test_an_object_of_no_known_format_is_refused(thing: Any) -> None:
    with pytest.raises(ModelError, match="no known format"):
        ag.load(thing)


# ── graphs ──


def test_a_cycle_is_refused() -> None:
    nodes = [node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"])]

    with pytest.raises(ModelError, match="cycle"):
        load(made(nodes, [info("x")], outputs=["b"]))


def test_an_operand_from_nowhere_is_named() -> None:
    with pytest.raises(ModelError, match=r"'w' is no graph input.*'it'"):
        load(made([node("Add", ["x", "w"], ["y"])], [info("x")]))


def test_names_are_given_once() -> None:
    twice = [node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["y"])]
    with pytest.raises(ModelError, match="'y' is made twice"):
        load(made(twice, [info("x")]))
    with pytest.raises(ModelError, match="2 inputs are called 'x'"):
        load(made([node("Relu", ["x"], ["y"])], [info("x"), info("x")]))
    with pytest.raises(ModelError, match="two initializers are called 'w'"):
        load(made([node("Relu", ["w"], ["y"])], [], [floats("w", 2), floats("w", 3)]))
    with pytest.raises(AlpenglowError, match="two outputs called 'y'"):
        load(made([node("Relu", ["x"], ["y"])], [info("x")], outputs=["y", "y"]))


def test_an_output_that_nothing_makes_is_named() -> None:
    with pytest.raises(ModelError, match="graph output 'z'"):
        load(made([node("Relu", ["x"], ["y"])], [info("x")], outputs=["z"]))
    with pytest.raises(ModelError, match="'more' is an output that its operator does not have"):
        load(made([node("Relu", ["x"], ["a", "more"]), node("Neg", ["more"], ["y"])], [info("x")]))


def test_all_unknown_operators_are_listed_at_once() -> None:
    nodes = [node("Frobnicate", ["x"], ["a"]), node("Frobnicate", ["a"], ["b"]),
             node("Jabber", ["b"], ["y"], domain="wock")]  # fmt: skip

    with pytest.raises(UnsupportedError, match=r"Frobnicate \(2 nodes\), wock:Jabber \(1 nodes\)"):
        load(made(nodes, [info("x")], domains=["wock"]))


def test_a_domain_without_opset_is_named() -> None:
    with pytest.raises(ModelError, match=r"domain 'wock'.*'it'"):
        load(made([node("Jabber", ["x"], ["y"], domain="wock")], [info("x")]))


@pytest.mark.parametrize("op", ["If", "Loop", "Scan"])
def test_control_flow_is_named_as_unsupported(op: str) -> None:
    body = small().graph
    given = {"If": {"then_branch": body, "else_branch": body}, "Loop": {"body": body},
             "Scan": {"body": body, "num_scan_inputs": 1}}[op]  # fmt: skip

    with pytest.raises(UnsupportedError, match=rf"{op} \(1 nodes\)"):
        load(made([node(op, ["x"], ["y"], **given)], [info("x")]))


def test_inputs_must_be_tensors_of_a_known_type() -> None:
    relu = [node("Relu", ["x"], ["y"])]
    with pytest.raises(UnsupportedError, match="input 'x' is a sequence_type"):
        load(made(relu, [helper.make_tensor_sequence_value_info("x", F32, [2])]))
    with pytest.raises(ModelError, match="input 'x' has no type"):
        load(made(relu, [onnx.ValueInfoProto(name="x")]))
    with pytest.raises(UnsupportedError, match="no rank"):
        load(made(relu, [helper.make_tensor_value_info("x", F32, None)]))
    with pytest.raises(UnsupportedError, match="STRING"):
        load(made(relu, [info("x", code=TensorProto.STRING)]))
    with pytest.raises(ModelError, match="element type 99"):
        load(made(relu, [info("x", code=99)]))


# ── sizes ──


@pytest.mark.parametrize("shape", [(2**62,), (-1, 3), (2**40, 2**40), (2**62, 0)])
def test_an_absurd_input_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match="input 'x'"):
        load(one("Relu", info("x", shape)))


HUGE_RESULTS = {
    "ConstantOfShape": lambda: one("ConstantOfShape", ints("s", HUGE)),
    "ConstantOfShape that wraps": lambda: one("ConstantOfShape", ints("s", 2**32, 2**32)),
    "ConstantOfShape of negative extent": lambda: one("ConstantOfShape", ints("s", -5)),
    "Expand": lambda: one("Expand", info("x", (1,)), ints("s", HUGE)),
    "Expand of a constant": lambda: one("Expand", floats("x", 1), ints("s", HUGE)),
    "Tile": lambda: one("Tile", info("x", (1,)), ints("s", HUGE)),
    "Pad": lambda: one("Pad", info("x", (1,)), ints("s", 0, HUGE)),
    "Range": lambda: one("Range", ints("a", 0), ints("b", HUGE), ints("c", 1)),
    "OneHot": lambda: one("OneHot", info("x", (3,), I64), ints("d", HUGE), ints("v", 0, 1)),
    "MatMul": lambda: one("MatMul", info("x", (2**30, 1)), info("w", (1, 2**30))),
    "Resize": lambda: one("Resize", info("x", (1, 1, 1, 1)), ABSENT, ABSENT,
                          ints("s", 1, 1, 2**30, 2**30)),
}  # fmt: skip


@pytest.mark.parametrize("build", HUGE_RESULTS.values(), ids=HUGE_RESULTS.keys())
def test_an_absurd_result_is_refused_before_it_is_made(
    build: Callable[[], onnx.ModelProto],
) -> None:
    with pytest.raises(ModelError, match="'it'"):
        load(build())


# ── tensors ──


def test_a_tensor_must_fill_its_shape() -> None:
    short, long, negative = (floats("w", 2, 3) for _ in range(3))
    short.raw_data = short.raw_data[:-1]
    long.raw_data += b"1234"
    negative.dims[0] = -2
    for tensor in (short, long, negative):
        with pytest.raises(ModelError, match="'w'"):
            load(one("Relu", tensor))


def external(tensor: onnx.TensorProto, **given: object) -> onnx.TensorProto:
    del tensor.external_data[:]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in given.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"location": "../x"}, "outside"),
        ({"location": "/etc/hostname"}, "outside"),
        ({"location": ""}, "outside"),
        ({}, "outside"),
        ({"location": "a\0b"}, "no path"),
        ({"location": "w" * 5000}, "w"),
        ({"location": "absent"}, "missing"),
        ({"location": "."}, "missing"),
        ({"location": "short"}, "needs 24 bytes"),
        ({"location": "short", "offset": -4}, "needs 24 bytes"),
        ({"location": "short", "length": 10}, "needs 24 bytes"),
        ({"location": "short", "offset": "many"}, "offset"),
    ],
)
def test_external_data_stays_in_the_folder_and_is_all_there(
    given: dict[str, object], expected: str, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "x").write_bytes(bytes(24))
    (folder / "short").write_bytes(bytes(23))
    model = one("Relu", external(floats("w", 2, 3), **given))
    (folder / "m.onnx").write_bytes(model.SerializeToString())

    with pytest.raises(ModelError, match=expected) as caught:
        load(folder / "m.onnx")

    assert caught.value.file.endswith("m.onnx")


# ── nodes ──


X4 = info("x", (1, 3, 8, 8))
W4 = floats("w", 4, 3, 3, 3)
WRONG_NODES: dict[str, Callable[[], onnx.ModelProto]] = {
    "Conv of rank 2": lambda: one("Conv", info("x"), info("w")),
    "Conv of rank 0": lambda: one("Conv", info("x", ()), info("w", ())),
    "Conv of wrong channels": lambda: one("Conv", X4, floats("w", 4, 5, 3, 3)),
    "Conv of too large a kernel": lambda: one("Conv", X4, floats("w", 4, 3, 9, 9)),
    "Conv of 5 inputs": lambda: one("Conv", X4, W4, floats("a"), floats("b"), floats("c")),
    "Conv of no group": lambda: one("Conv", X4, W4, group=0),
    "Conv of a minus group": lambda: one("Conv", X4, W4, group=-1),
    "Conv of stride 0": lambda: one("Conv", X4, W4, strides=[0, 1]),
    "Conv of stride -1": lambda: one("Conv", X4, W4, strides=[-1, 1]),
    "Conv of dilation 0": lambda: one("Conv", X4, W4, dilations=[0, 1]),
    "Conv of one pad": lambda: one("Conv", X4, W4, pads=[1]),
    "Conv of int strides": lambda: one("Conv", X4, W4, strides=1),
    "Conv of text strides": lambda: one("Conv", X4, W4, strides="1"),
    "Conv of ints group": lambda: one("Conv", X4, W4, group=[1, 1]),
    "Conv of unknown auto_pad": lambda: one("Conv", X4, W4, auto_pad="SOME"),
    "Conv of SAME with too few strides": lambda: one(
        "Conv", X4, W4, auto_pad="SAME_UPPER", strides=[1]
    ),
    "MaxPool without kernel": lambda: one("MaxPool", X4),
    "MaxPool of kernel -1": lambda: one("MaxPool", X4, kernel_shape=[-1, 2]),
    "MaxPool of kernel 0": lambda: one("MaxPool", X4, kernel_shape=[0, 0]),
    "AveragePool of stride 0": lambda: one(
        "AveragePool", X4, kernel_shape=[2, 2], strides=[0, 0]
    ),
    "Add of two types": lambda: one("Add", info("x"), info("w", code=I64)),
    "Add of two shapes": lambda: one("Add", info("x", (2, 3)), info("w", (4, 3))),
    "Add of one": lambda: one("Add", info("x")),
    "Add of three": lambda: one("Add", info("x"), info("w"), info("v")),
    "MatMul of wrong shapes": lambda: one("MatMul", info("x"), info("w")),
    "MatMul of scalars": lambda: one("MatMul", info("x", ()), info("w", ())),
    "Gemm of rank 3": lambda: one("Gemm", info("x", (1, 2, 3)), info("w", (3, 2))),
    "Relu of nothing": lambda: one("Relu"),
    "Relu of bool": lambda: one("Relu", info("x", code=TensorProto.BOOL)),
    "Softmax of axis 7": lambda: one("Softmax", info("x"), axis=7),
    "Softmax of a text axis": lambda: one("Softmax", info("x"), axis="last"),
    "Softmax of a float axis": lambda: one("Softmax", info("x"), axis=1.5),
    "Concat without axis": lambda: one("Concat", info("x"), info("w")),
    "Concat of nothing": lambda: one("Concat", axis=0),
    "Transpose of no permutation": lambda: one("Transpose", info("x"), perm=[0, 0]),
    "Transpose of text": lambda: one("Transpose", info("x"), perm=["a", "b"]),
    "Cast without type": lambda: one("Cast", info("x")),
    "Cast to nowhere": lambda: one("Cast", info("x"), to=77),
    "Cast to text": lambda: one("Cast", info("x"), to="FLOAT"),
    "Reshape of wrong size": lambda: one("Reshape", info("x"), ints("s", 4)),
    "Reshape of two unknowns": lambda: one("Reshape", info("x"), ints("s", -1, -1)),
    "Reshape of a negative extent": lambda: one("Reshape", info("x"), ints("s", -2, -3)),
    "Reshape to floats": lambda: one("Reshape", info("x"), floats("s", 2)),
    "Reshape of an unknown beside nothing": lambda: one(
        "Reshape", info("x", (0, 3)), ints("s", 0, -1)
    ),
    "Gather of floats": lambda: one("Gather", info("x"), info("i")),
    "Gather of axis 5": lambda: one("Gather", info("x"), info("i", (1,), I64), axis=5),
    "Split of wrong sizes": lambda: one("Split", info("x"), ints("s", 1, 7), outputs=["y", "z"]),
    "Slice of step 0": lambda: one(
        "Slice", info("x"), ints("s", 0), ints("e", 1), ints("a", 0), ints("t", 0)
    ),
    "Slice of axis 9": lambda: one("Slice", info("x"), ints("s", 0), ints("e", 1), ints("a", 9)),
    "Slice of too few ends": lambda: one("Slice", info("x"), ints("s", 0, 0), ints("e", 1)),
    "Pad of one number": lambda: one("Pad", info("x"), ints("p", 1)),
    "Tile of one number": lambda: one("Tile", info("x"), ints("p", 1)),
    "Tile of a negative number": lambda: one("Tile", info("x"), ints("p", -1, 1)),
    "Expand of wrong shape": lambda: one("Expand", info("x"), ints("p", 5, 5)),
    "Squeeze of 3": lambda: one("Squeeze", info("x"), ints("p", 1)),
    "Unsqueeze of axis 9": lambda: one("Unsqueeze", info("x"), ints("p", 9)),
    "DepthToSpace of block 0": lambda: one("DepthToSpace", X4, blocksize=0),
    "Einsum of nonsense": lambda: one("Einsum", info("x"), equation="i€->->"),
    "Einsum without equation": lambda: one("Einsum", info("x")),
    "Constant without value": lambda: one("Constant"),
    "Constant of text": lambda: one("Constant", value_string="a"),
    "Range of step 0": lambda: one("Range", ints("a", 0), ints("b", 3), ints("c", 0)),
    "Range of vectors": lambda: one("Range", ints("a", 0, 1), ints("b", 3), ints("c", 1)),
    "LSTM of wrong shapes": lambda: one("LSTM", info("x"), info("w"), info("r"), hidden_size=3),
    "GRU without weights": lambda: one("GRU", info("x", (1, 2, 3)), hidden_size=3),
    "Resize without sizes": lambda: one("Resize", X4),
    "BatchNormalization of one": lambda: one("BatchNormalization", X4),
    "LayerNormalization of axis 9": lambda: one(
        "LayerNormalization", info("x"), info("w", (3,)), axis=9
    ),
    "TopK of too many": lambda: one("TopK", info("x"), ints("k", 9), outputs=["y", "z"]),
    "ReduceSum of axis 9": lambda: one("ReduceSum", info("x"), ints("a", 9)),
    "QuantizeLinear of zero point f32": lambda: one(
        "QuantizeLinear", info("x"), floats("s"), floats("z")
    ),
}  # fmt: skip


@pytest.mark.parametrize("build", WRONG_NODES.values(), ids=WRONG_NODES.keys())
def test_a_wrong_node_is_named(build: Callable[[], onnx.ModelProto], tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(build().SerializeToString())

    with pytest.raises((ModelError, TypeRuleError, UnsupportedError), match="'it'") as caught:
        load(path)

    assert caught.value.file == str(path)
    assert len(caught.value.message) < 600


def test_an_attribute_given_twice_is_refused() -> None:
    model = one("Softmax", info("x"), axis=0)
    model.graph.node[0].attribute.append(helper.make_attribute("axis", 1))

    with pytest.raises(ModelError, match="'axis' is given 2 times"):
        load(model)


def test_a_shape_computed_from_nan_is_refused() -> None:
    nodes = [
        helper.make_node("Cast", ["nan"], ["s"], name="cast", to=I64),
        node("Reshape", ["x", "s"], ["y"]),
    ]
    nan = numpy_helper.from_array(np.array([np.nan, 3], np.float32), "nan")

    with pytest.raises(AlpenglowError, match="'it'"):
        load(made(nodes, [info("x")], [nan]))


# ── shapes and feeds ──


@pytest.mark.parametrize(
    "shapes",
    [{"w": (1,)}, {"x": (1, 2)}, {"x": (5,)}, {"x": (-1, 3)}, {"x": ("a", 3)}, {"x": 3},
     {"x": None}, {"x": (2.5, 3)}, {"x": "23"}, {"x": (2**62, 3)}],
)  # fmt: skip
def test_shapes_that_do_not_fit_are_refused(shapes: Any) -> None:
    with pytest.raises(AlpenglowError, match=r"'[xw]'"):
        load(one("Relu", info("x", ("N", 3))), shapes)


@pytest.mark.parametrize(
    "feeds",
    [{}, {"w": np.ones((2, 3), np.float32)}, {"x": np.ones((3, 2), np.float32)},
     {"x": np.ones((2, 3))}, {"x": np.ones((2, 3), np.int32)}, {"x": "text"}, {"x": None},
     {"x": [[1, 2], [3]]}, {"x": np.ones((2, 3), object)}],
)  # fmt: skip
def test_feeds_that_do_not_fit_are_refused(feeds: Any) -> None:
    exe = ag.compile(small(), target="interpreter")

    with pytest.raises(FeedError, match="x"):
        exe.run(feeds)


# ── chance ──


def network() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"], axis=1),
        helper.make_node("Gemm", ["f", "v"], ["g"], transB=1, alpha=0.5),
        helper.make_node("Softmax", ["g"], ["y"], axis=-1),
    ]
    weights = [W4, floats("b", 4), floats("v", 5, 16)]
    return made(nodes, [X4], weights)


def attention() -> onnx.ModelProto:
    nodes = [
        helper.make_node("LayerNormalization", ["x", "s"], ["n"], axis=-1),
        helper.make_node("MatMul", ["n", "w"], ["q"]),
        helper.make_node("Transpose", ["q"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "t"], ["a"]),
        helper.make_node("Softmax", ["a"], ["p"], axis=2),
        helper.make_node("Einsum", ["p", "n"], ["e"], equation="bij,bjk->bik"),
        helper.make_node("Add", ["e", "x"], ["y"]),
    ]
    return made(nodes, [info("x", (1, 4, 8))], [floats("s", 8), floats("w", 8, 8)])


def shapes() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"], axis=0),
        helper.make_node("Concat", ["n", "rest"], ["to"], axis=0),
        helper.make_node("Reshape", ["x", "to"], ["r"]),
        helper.make_node("Slice", ["r", "from", "until", "axes"], ["c"]),
        helper.make_node("Split", ["c"], ["left", "right"], axis=1),
        helper.make_node("Pad", ["left", "pads"], ["l"], mode="constant"),
        helper.make_node("Tile", ["right", "reps"], ["y"]),
    ]
    constants = [ints("zero", 0), ints("rest", -1), ints("from", 1), ints("until", 9),
                 ints("axes", 1), ints("pads", 0, 1, 0, 2), ints("reps", 2, 1)]  # fmt: skip
    return made(nodes, [info("x", (2, 3, 4))], constants, ["l", "y"])


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """Return the bytes with a few of them changed or, one time in five, cut off."""
    if rng.random() < 0.2:
        return data[: rng.integers(len(data))]
    changed = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        changed[rng.integers(len(changed))] = rng.integers(256)
    return bytes(changed)


def try_all(data: bytes) -> None:
    """Load and, if it is small, compile a model; errors of ours are as good as success."""
    try:
        g = load(data)
        types = [v.type for n in g.nodes for v in n.results] + [v.type for v in g.inputs.values()]
        if all(t.static for t in types) and sum(t.nbytes for t in types) < 1 << 20:
            ag.compile(g, target="interpreter")
    except AlpenglowError as error:
        assert str(error)


SHARES = [0, 35, 70, 105, 140]


@pytest.mark.parametrize(("begin", "end"), list(pairwise(SHARES)))
@pytest.mark.parametrize("build", [network, attention, shapes])
def test_damaged_models_load_or_raise_an_error_of_ours(
    build: Callable[[], onnx.ModelProto], begin: int, end: int
) -> None:
    model = build()
    data = model.SerializeToString()
    for seed in range(begin, end):
        try_all(damaged(data, np.random.default_rng(seed)))
