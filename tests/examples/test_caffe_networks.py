"""Whole networks of Caffe: what they compute, what is refused, and files that are damaged."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import AlpenglowError, ModelError, UnsupportedError
from alpenglow.frontends.registry import FrontEnd
from alpenglow.ir.types import Array
from alpenglow_caffe.front_end import CaffeFrontEnd
from alpenglow_caffe.layers import TABLE
from caffe_files import caffemodel, field, input_of, layer, load, old_blob, run

ROOT = Path(__file__).resolve().parents[2]
CAFFE = ROOT / "examples" / "caffe"
RNG = np.random.default_rng(1)
IMAGES = RNG.standard_normal((2, 1, 13, 12)).astype(np.float32)

LENET = """
name: "LeNet"  # as it is deployed
input: "data" input_shape { dim: 2 dim: 1 dim: 13 dim: 12 }
layer { name: "label" type: "Data" top: "data" top: "label" include { phase: TRAIN }
        data_param { source: "train" backend: LMDB } transform_param { scale: 0.00390625 } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1" param { lr_mult: 1 }
        convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1"
        pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "ip1" type: "InnerProduct" bottom: "pool1" top: "ip1"
        inner_product_param { num_output: 5 } }
layer { name: "drop1" type: "Dropout" bottom: "ip1" top: "ip1" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip1" bottom: "label"
        exclude { phase: TEST } }
layer { name: "prob" type: "Softmax" bottom: "ip1" top: "prob" }
"""


def lenet_weights() -> dict[str, list[Array]]:
    """Return random weights of the network."""
    shapes = {"conv1": [(4, 1, 3, 3), (4,)], "ip1": [(5, 120), (5,)], "unused": [(3,)]}
    return {
        name: [RNG.standard_normal(shape).astype(np.float32) for shape in each]
        for name, each in shapes.items()
    }


def lenet(x: Array, weights: dict[str, list[Array]]) -> Array:
    """Return what the network computes."""
    (w, b), (m, c) = weights["conv1"], weights["ip1"]
    windows = np.lib.stride_tricks.sliding_window_view(x[:, 0], (3, 3), (1, 2))
    y = np.einsum("nhwij,oij->nohw", windows, w[:, 0]) + b[:, None, None]
    y = np.pad(np.maximum(y, 0), [(0, 0), (0, 0), (0, 1), (0, 0)])
    y = y.reshape(2, 4, 6, 2, 5, 2).max((3, 5)).reshape(2, -1) @ m.T + c
    e = np.exp(y - y.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def test_a_network_is_what_a_package_reads(tmp_path: Path) -> None:
    """An installer would write the entry point; ag.load and ag.compile find it there."""
    weights = lenet_weights()
    (tmp_path / "net.prototxt").write_text(LENET)
    (tmp_path / "net.caffemodel").write_bytes(caffemodel(weights))
    np.save(tmp_path / "x.npy", IMAGES)
    project = tomllib.loads((CAFFE / "pyproject.toml").read_text())["project"]
    folder = tmp_path / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    folder.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (folder / "METADATA").write_text(metadata)
    ((group, entries),) = project["entry-points"].items()
    lines = [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (folder / "entry_points.txt").write_text("\n".join(lines))
    code = (
        "import alpenglow as ag, numpy as np\n"
        "x = np.load('x.npy')\n"
        "print(ag.load('net.prototxt').name)\n"
        "np.save('y.npy', [ag.compile('net.prototxt')(x),"
        " ag.compile('net.caffemodel', target='interpreter')(x)])\n"
    )
    paths = os.pathsep.join(map(str, [tmp_path, CAFFE, ROOT / "src"]))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stdout) == (0, "LeNet\n"), done.stderr
    for actual in np.load(tmp_path / "y.npy"):
        np.testing.assert_allclose(actual, lenet(IMAGES, weights), rtol=1e-4, atol=1e-6)


def test_a_front_end_says_what_it_reads() -> None:
    front_end: FrontEnd = CaffeFrontEnd()

    assert front_end.accepts("a.prototxt") and front_end.accepts(Path("a.caffemodel"))
    assert not any(map(front_end.accepts, [b"layer", 3, "a.onnx"]))
    assert front_end.may_read_more(LENET.encode())


def test_weights_of_before_2014_have_four_axes(tmp_path: Path) -> None:
    weights = lenet_weights()
    layers = [
        field(2, b"".join([field(4, name.encode()), *(field(6, old_blob(a)) for a in arrays)]))
        for name, arrays in weights.items()
    ]
    (tmp_path / "net.prototxt").write_text(LENET)
    (tmp_path / "net.caffemodel").write_bytes(b"".join(layers))
    g = CaffeFrontEnd().load(str(tmp_path / "net.caffemodel"))
    (actual,) = ag.compile(g, target="interpreter").run({"data": IMAGES}).values()

    np.testing.assert_allclose(actual, lenet(IMAGES, weights), rtol=1e-4, atol=1e-6)


def test_a_caller_gives_the_shapes_of_inputs(tmp_path: Path) -> None:
    text = 'input: "a" input_dim: 1 input_dim: 2 input_dim: 3 input_dim: 4 '
    text += layer("b", "Input", "") + layer("y", "Concat", "a b")
    (tmp_path / "net.prototxt").write_text(text)
    g = CaffeFrontEnd().load(tmp_path / "net.prototxt", {"a": (5, 1, 3, 4), "b": (5, 2, 3, 4)})

    assert str(g.outputs["y"].type) == "f32[5,3,3,4]"
    with pytest.raises(ModelError, match=r"line 1, layer 'b' \(Input\): input 'b' has shape \(\)"):
        CaffeFrontEnd().load(tmp_path / "net.prototxt")
    with pytest.raises(ModelError, match="shapes names 'c', expected inputs: a, b"):
        CaffeFrontEnd().load(tmp_path / "net.prototxt", {"b": (1, 2, 3, 4), "c": (1,)})


def test_layers_in_place_are_read_by_the_layers_behind_them(tmp_path: Path) -> None:
    text = input_of(1, 3) + layer("double", "Power", "data", "power_param { scale: 2 }", "data")
    text += layer("copy", "Power", "data")
    text += layer("negative", "Power", "data", "power_param { scale: -1 }", "data")
    x = np.array([[1, -2, 3]], np.float32)
    actual = run(tmp_path, text, data=x)

    assert {name: y.tolist() for name, y in actual.items()} == {
        "copy": (2 * x).tolist(), "data": (-2 * x).tolist()
    }  # fmt: skip


def test_all_that_is_refused_is_told_at_once(tmp_path: Path) -> None:
    text = input_of(1, 3, 4, 4)
    text += layer("mask", "Pooling", "data", "pooling_param { kernel_size: 2 }", "p mask")
    text += layer("random", "Pooling", "p", "pooling_param { pool: STOCHASTIC }")
    text += layer("vector", "MVN", "data", "mvn_param { eps: 1 }")
    text += layer("stats", "BatchNorm", "vector", "batch_norm_param { use_global_stats: false }")
    text += layer("staged", "ReLU", "vector", 'include { stage: "deploy" }')
    text += layer("label", "Data", "", "data_param { batch_size: 2 } include { phase: TEST }")
    text += layer("shared", "PReLU", "data", 'param { name: "slope" }')
    text += layer("lonely", "ReLU", "nothing") + layer("lonely", "ReLU", "data")
    text += layer("late", "Bias", "data")
    with pytest.raises(UnsupportedError) as caught:
        load(tmp_path, text)

    expected = [
        "line 2, layer 'mask' (Pooling): 2 tops or 0 weights are too many",
        "line 3, layer 'random' (Pooling): pool is STOCHASTIC, supported: ('MAX', 'AVE')",
        "line 4, layer 'vector' (MVN): the type is not supported",
        "line 5, layer 'stats' (BatchNorm): use_global_stats is False, supported: (True,)",
        "line 6, layer 'staged' (ReLU): the rules [('include', {'stage': ['deploy']})] are not "
        "supported, expected a phase in each",
        "line 7, layer 'label' (Data): the type is not supported",
        "line 8, layer 'shared' (PReLU): weights to be shared are not supported: [['slope']]",
        "line 9, layer 'lonely' (ReLU): no layer before has the top 'nothing'",
        "line 10, layer 'lonely' (ReLU): a layer before has the top 'lonely', too",
        "line 11, layer 'late' (Bias): the .caffemodel has the weights [], expected [(3,)]",
    ]
    assert caught.value.message.split("; ") == expected
    assert caught.value.hint == "load the deployed network"
    assert caught.value.file == str(tmp_path / "net.prototxt")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("layer {\n name: 'a'", "line 2: found the end of the file, expected the name of a field"),
        ("layer {\n name 'a' }", "line 2: found 'a', expected a value of name"),
        ("name: 'n\n'", 'line 1: "\'" is not expected here'),
        ("layer { } \n}", "line 2: found }, expected the name of a field"),
        ("layer: 3", "3], expected Message"),
        ("layer {" * 60, "expected the name of a field"),
        ("state { level: 1 }", "field state is not supported"),
        ("layers { type: RELU }", "field layers is not supported"),
        (layer("y", "ReLU", "data", "relu_param { negative_slope: x }"), "negative_slope is ['x']"),
        (layer("y", "ELU", "data", "elu_param { alpha: 1 alpha: 2 }"), "alpha is [1, 2], expected"),
        (layer("y", "ELU", "data", "elu_param { beta: 1 }"), "field beta is not supported"),
        (layer("y", "LRN", "data", "lrn_param { local_size: 4 }"), "local_size is 4"),
        (layer("y", "Flatten", "data", "flatten_param { axis: 4 }"), "axis is 4, but the bottom"),
        (layer("y", "InnerProduct"), "missing 1 required keyword-only argument: 'num_output'"),
        (layer("y", "Eltwise", "data"), "SUM of ['f32[1,2,3,4]'], coefficients: ()"),
        (layer("y", "Slice", "data", tops="a b c"), "an axis of 2 is cut at () into 3 tops"),
        (layer("y", "Split", "data", tops="a a"), "2 tops or 0 weights are too many"),
        (layer("y", "Exp", "data", "exp_param { base: -2 }"), "math domain error"),
        (layer("y", "Pooling", "data", "pooling_param { kernel_size: 2 pad: 2 }"), "padded by"),
        (layer("y", "Input", "", "input_param { shape { dim: 1 } shape { dim: 2 } }", "a b c"),
         "input 'a' has shape (1,)"),
        (layer("y", "Scale", "data data", "scale_param { axis: 1 }"), "does not fit to f32"),
        (layer("y", "Convolution", "data", "convolution_param { num_output: 2 kernel_size: 1 "
               "kernel_h: 1 }"), "kernel is (1,), by height and width (1, 0), of 2 axes"),
        (layer("y", "Convolution", "data", "convolution_param { num_output: 2 kernel_size: 1 "
               "axis: 2 }"), "axis is 2, supported: (1,)"),
        (layer("y", "Reshape", "data", "reshape_param { shape { dim: -1 dim: -1 } }"), "replaced"),
        (input_of(1, 0, name="z"), "input 'z' has shape"),
        (input_of(10**9, 10**9, name="z"), "expected at most"),
    ],
)  # fmt: skip
def test_what_breaks_the_rules_is_told(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(AlpenglowError) as caught:
        load(tmp_path, input_of(1, 2, 3, 4).rstrip() + text)

    assert says in caught.value.message


def test_files_that_are_damaged_raise_model_errors(tmp_path: Path) -> None:
    parameters = "convolution_param { num_output: 1 kernel_size: 1 }"
    text = input_of(1, 1, 4, 4) + layer("y", "Convolution", "data", parameters)
    ones = np.ones((1, 1, 1, 1), np.float32)
    stored = caffemodel({"y": [ones, ones[0, 0, 0]]})
    load(tmp_path, text, {"y": [ones, ones[0, 0, 0]]})
    for end in range(len(stored)):
        (tmp_path / "net.caffemodel").write_bytes(stored[:end])
        with pytest.raises(ModelError):
            CaffeFrontEnd().load(tmp_path / "net.prototxt")
    for at in range(len(stored)):
        for bit in range(at % 2, 8, 2):
            byte = bytes([stored[at] ^ 1 << bit])
            (tmp_path / "net.caffemodel").write_bytes(stored[:at] + byte + stored[at + 1 :])
            with contextlib.suppress(ModelError):
                CaffeFrontEnd().load(tmp_path / "net.prototxt")
    (tmp_path / "net.caffemodel").write_bytes(stored + field(99, b"not read")[:-1])
    with pytest.raises(ModelError, match="a field has 7 of 8 bytes"):
        CaffeFrontEnd().load(tmp_path / "net.prototxt")
    for end in range(len(text)):
        with contextlib.suppress(ModelError, UnsupportedError):
            load(tmp_path, text[:end])
    with pytest.raises(ModelError, match="FileNotFoundError"):
        CaffeFrontEnd().load(tmp_path / "other.prototxt")


def test_the_example_has_at_most_600_lines_for_29_types_of_layers() -> None:
    lines = sum(len(file.read_text().splitlines()) for file in CAFFE.rglob("*.py"))

    assert lines <= 600
    assert len(TABLE) == 29
