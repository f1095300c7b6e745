"""Whatever is wrong with a model or a feed is reported as an error of ours that says where."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import alpenglow as ag
from alpenglow.base.errors import AlpenglowError, FeedError, ModelError, UnsupportedError
from alpenglow.frontends.onnx import load
from tiny_models import ABSENT, F32, I64, floats, info, ints, made, node, one, small

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
    for strange in ("a\0b.onnx", "a" * 5000 + ".onnx", "a" * 5000, ""):
        with pytest.raises(ModelError):
            ag.load(strange)


def test_a_file_that_must_not_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    path = tmp_path / "locked"
    path.write_bytes(small().SerializeToString())
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ModelError, match="cannot read the model: Permission denied") as caught:
        ag.load(path)

    assert caught.value.file == str(path)


@pytest.mark.parametrize("thing", [None, 3, [], {}, np.ones(3)])
def test_an_object_of_no_known_format_is_refused(thing: Any) -> None:
    with pytest.raises(ModelError, match=r"the model is of type .*, expected a path"):
        ag.load(thing)


# ── graphs ──


def test_a_cycle_is_refused() -> None:
    nodes = [node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"])]

    with pytest.raises(ModelError, match="cycle"):
        load(made(nodes, [info("x")], outputs=["b"]))


def test_an_operand_from_nowhere_is_named() -> None:
    with pytest.raises(ModelError, match=r"'w' is unknown, expected a graph input.*'it'"):
        load(made([node("Add", ["x", "w"], ["y"])], [info("x")]))


def test_names_are_given_once() -> None:
    twice = [node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["y"])]
    with pytest.raises(ModelError, match="'y' is computed twice"):
        load(made(twice, [info("x")]))
    with pytest.raises(ModelError, match="2 inputs are called 'x'"):
        load(made([node("Relu", ["x"], ["y"])], [info("x"), info("x")]))
    with pytest.raises(AlpenglowError, match="input is '', expected a name"):
        load(made([node("Relu", ["x"], ["y"])], [info("x"), info("")]))
    with pytest.raises(ModelError, match="two initializers are called 'w'"):
        load(made([node("Relu", ["w"], ["y"])], [], [floats("w", 2), floats("w", 3)]))
    with pytest.raises(AlpenglowError, match="'y' is given twice"):
        load(made([node("Relu", ["x"], ["y"])], [info("x")], outputs=["y", "y"]))


def test_an_output_that_nothing_makes_is_named() -> None:
    with pytest.raises(ModelError, match="graph output 'z'"):
        load(made([node("Relu", ["x"], ["y"])], [info("x")], outputs=["z"]))
    with pytest.raises(ModelError, match="'more' is an output past those expected"):
        load(made([node("Relu", ["x"], ["a", "more"]), node("Neg", ["more"], ["y"])], [info("x")]))


def test_all_unknown_operators_are_listed_at_once() -> None:
    nodes = [node("Frobnicate", ["x"], ["a"]), node("Frobnicate", ["a"], ["b"]),
             node("Jabber", ["b"], ["y"], domain="wock")]  # fmt: skip

    wanted = r"Frobnicate \(2 nodes at 'it'\): there is no converter; wock:Jabber \(1 node"
    with pytest.raises(UnsupportedError, match=wanted):
        load(made(nodes, [info("x")], domains=["wock"]))


def test_an_absurd_opset_is_refused() -> None:
    model = small()
    model.opset_import[0].version = 2**40

    with pytest.raises(ModelError, match=f"is {2**40}, expected 0 to"):
        load(model)


def test_padding_beyond_all_measure_is_refused() -> None:
    pads = [2**62, 0, 0, 0]

    with pytest.raises(AlpenglowError, match="expected at most"):
        load(one("MaxPool", info("x", (1, 1, 4, 4)), kernel_shape=[2, 2], pads=pads))


def test_a_domain_without_opset_is_named() -> None:
    with pytest.raises(ModelError, match=r"domain 'wock'.*'it'"):
        load(made([node("Jabber", ["x"], ["y"], domain="wock")], [info("x")]))


@pytest.mark.parametrize(
    ("op", "says"),
    [
        ("If", r"condition 'x' is f32\[2,3\], expected bool"),
        ("Loop", "Loop: input 1 is missing"),
        ("Scan", "Scan: 2 operands and num_scan_inputs 1, expected 1 operands"),
    ],
)
def test_control_flow_that_does_not_fit_is_named(op: str, says: str) -> None:
    body = small().graph
    given = {"If": {"then_branch": body, "else_branch": body}, "Loop": {"body": body},
             "Scan": {"body": body, "num_scan_inputs": 1}}[op]  # fmt: skip
    operands = ["x", "x"] if op == "Scan" else ["x"]

    with pytest.raises(ModelError, match=rf"{says}.*node {op} 'it'"):
        load(made([node(op, operands, ["y"], **given)], [info("x")]))


def test_a_branch_takes_no_inputs() -> None:
    branch = small().graph
    choose = node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    always = onnx.numpy_helper.from_array(np.array(True), "c")

    with pytest.raises(ModelError, match="If: then_branch has 1 inputs"):
        load(made([choose], [info("x")], [always]))


def test_inputs_have_a_known_type() -> None:
    relu = [node("Relu", ["x"], ["y"])]
    with pytest.raises(ModelError, match="input 'x': type is missing"):
        load(made(relu, [onnx.ValueInfoProto(name="x")]))
    with pytest.raises(ModelError, match="element type 99"):
        load(made(relu, [info("x", code=99)]))


def test_an_input_without_rank_is_known_when_the_model_runs() -> None:
    model = made([node("Relu", ["x"], ["y"])], [helper.make_tensor_value_info("x", F32, None)])
    exe = ag.compile(model)
    for shape in ((), (3,), (2, 1, 4)):
        x = np.full(shape, -1, np.float32)

        np.testing.assert_array_equal(exe(x), np.zeros(shape))


def test_what_is_no_tensor_of_numbers_is_refused_by_operators_on_numbers() -> None:
    relu = [node("Relu", ["x"], ["y"])]
    several = made(relu, [helper.make_tensor_sequence_value_info("x", F32, [2])])
    with pytest.raises(ModelError, match=r"'x' holds no numbers, expected.*node Relu 'it'"):
        ag.compile(several)([np.zeros(2, np.float32)])
    with pytest.raises(ModelError, match=r"'x' holds no numbers, expected.*node Relu 'it'"):
        ag.compile(made(relu, [info("x", code=TensorProto.STRING)]))(np.full((2, 3), "a"))
    with pytest.raises(FeedError, match="expected a sequence"):
        ag.compile(made([node("SequenceLength", ["x"], ["y"])], several.graph.input))(
            np.zeros(2, np.float32)
        )


# ── sizes ──


HUGE = 10**15


@pytest.mark.parametrize("shape", [(2**62,), (-2, 3), (2**40, 2**40), (2**62, 0)])
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
        ({"location": "../x"}, "expected a path in the model's folder"),
        ({"location": "/etc/hostname"}, "expected a path in the model's folder"),
        ({"location": ""}, "expected a path in the model's folder"),
        ({}, "expected a path in the model's folder"),
        ({"location": "a\0b"}, "expected a path"),
        ({"location": "w" * 5000}, "w"),
        ({"location": "absent"}, "missing"),
        ({"location": "."}, "missing"),
        ({"location": "short"}, "expected 24 within"),
        ({"location": "short", "offset": -4}, "expected 24 within"),
        ({"location": "short", "length": 10}, "expected 24 within"),
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
