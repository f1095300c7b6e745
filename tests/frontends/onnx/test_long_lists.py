"""Long lists of a model file are read without protocol buffers, and are the same lists."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from onnx import helper

import alpenglow as ag
from alpenglow.base.errors import ModelError
from alpenglow.frontends.onnx.file import long_lists
from alpenglow.frontends.onnx.file.attributes import attribute_value
from alpenglow.frontends.onnx.file.long_lists import put_back, taken_out
from alpenglow.frontends.onnx.reader import read

COUNT = 400


@pytest.fixture(autouse=True)
def all_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_lists, "LONG_NBYTES", 1)
    monkeypatch.setenv("ALPENGLOW_CACHE", "off")


def forest(domain: str = "ai.onnx.ml") -> onnx.ModelProto:
    """Return a model of stumps, a tree each, and a node with lists of all kinds."""
    trees = range(COUNT)
    stump = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1,
        nodes_treeids=[t for t in trees for _ in range(3)],
        nodes_nodeids=[0, 1, 2] * COUNT,
        nodes_featureids=[t % 3 for t in trees for _ in range(3)],
        nodes_values=[t / 100 for t in trees for _ in range(3)],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"] * COUNT,
        nodes_truenodeids=[1, 0, 0] * COUNT, nodes_falsenodeids=[2, 0, 0] * COUNT,
        target_treeids=[t for t in trees for _ in range(2)], target_nodeids=[1, 2] * COUNT,
        target_ids=[0, 0] * COUNT, target_weights=[1.0, -2.5] * COUNT,
    )  # fmt: skip
    lists = helper.make_node(
        "Any", ["x"], ["z"], domain=domain,
        large=[0, -1, 1 << 62, -(1 << 63), 127, 128, 1 << 31] * 9, none=3,
        floats=[0.0, float("nan"), float("-inf"), 1e-45] * 9,
        words=["", "one", "two"] * 9, many=[f"word {i}" for i in range(20)],
        wide=["long " * 40] * 3, tensor=onnx.numpy_helper.from_array(np.ones(3)),
    )  # fmt: skip
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 3])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", 1])
    graph = helper.make_graph([stump, lists], "forest", [x], [y])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets)


def values(proto: onnx.ModelProto) -> list[tuple[str, str]]:
    return [
        (a.name, str(v if isinstance(v := attribute_value(a, None), np.ndarray | int) else list(v)))
        for node in proto.graph.node
        for a in node.attribute
        if a.type
    ]


def parsed(content: bytes) -> onnx.ModelProto:
    """Return what is parsed of a file, its lists taken out and put back."""
    rest, lists = taken_out(content)
    proto = onnx.ModelProto.FromString(rest)
    put_back(proto.graph, lists)
    return proto


@pytest.mark.parametrize("chunk", [20, 64, 1 << 20])
def test_lists_that_are_taken_out_are_those_of_the_file(
    monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(long_lists, "CHUNK", chunk)
    model = forest()

    made = parsed(model.SerializeToString())

    assert values(made) == values(model)
    left = {a.name for n in made.graph.node for a in n.attribute if a.strings or a.ints or a.floats}
    assert left == {"many", "wide"}


def test_lists_of_other_domains_stay() -> None:
    rest, lists = taken_out(forest(domain="com.example").SerializeToString())

    assert {one.node for one in lists} == {0}
    assert onnx.ModelProto.FromString(rest).graph.node[1].attribute[0].floats


def test_damaged_files_are_read_as_protocol_buffers_read_them() -> None:
    whole = forest().SerializeToString()
    rng = random.Random(0)
    agreed = 0
    for _ in range(600):
        content = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            content[rng.randrange(len(content))] = rng.choice((0, 8, 0x3D, 0x40, 0x4A, 0xFF, 10))
        if rng.random() < 0.3:
            del content[rng.randrange(len(content)) :]
        try:
            wanted = values(onnx.ModelProto.FromString(bytes(content)))
        except DecodeError:
            with pytest.raises(DecodeError):
                parsed(bytes(content))
            continue
        except Exception:  # an attribute of a kind that nothing reads
            continue
        assert values(parsed(bytes(content))) == wanted
        agreed += 1
    assert agreed > 100


def test_a_forest_whose_lists_were_taken_out_says_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = forest()
    del model.graph.node[1]
    onnx.save(model, tmp_path / "forest.onnx")
    x = np.random.default_rng(0).uniform(0, 4, (7, 3)).astype(np.float32)
    got = ag.compile(tmp_path / "forest.onnx", shapes={"x": x.shape})(x)
    monkeypatch.setattr(long_lists, "LONG_NBYTES", 1 << 30)

    np.testing.assert_array_equal(got, ag.compile(model, shapes={"x": x.shape})(x))


def test_who_writes_a_model_again_reads_its_lists_as_they_are() -> None:
    model = forest()
    del model.graph.node[1]

    proto, _, _ = read(model.SerializeToString())

    assert proto == model


def test_a_list_beside_a_tensor_is_an_error() -> None:
    model = forest()
    model.graph.node[0].attribute[1].t.CopyFrom(onnx.numpy_helper.from_array(np.ones(3)))

    for given in (model, model.SerializeToString()):
        with pytest.raises(ModelError, match="holds a list and a tensor"):
            read(given, aside=True)
