"""What holds where this package is installed; run by tests/frontends/shared/test_extensions.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from alpenglow_example.rotate import Rotate
from onnx import TensorProto, helper

import alpenglow as ag
from alpenglow.ir.op import Op
from alpenglow.loops import has_form


def rotating_model() -> bytes:
    """Return an ONNX model: y = Rotate(x) by 2, then Relu."""
    nodes = [
        helper.make_node("Rotate", ["x"], ["t"], domain="example", steps=2),
        helper.make_node("Relu", ["t"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 21])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 21])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("example", 1)]
    graph = helper.make_graph([nodes[0], nodes[1]], "rotating", [x], [y])
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def test_importing_alpenglow_registers_the_operator() -> None:
    assert Op.registry["rotate"] is Rotate
    assert has_form(Rotate())


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
def test_a_model_with_the_operator_compiles(target: str) -> None:
    exe = ag.compile(rotating_model(), target=target, threads=1)
    x = np.random.default_rng(0).standard_normal((3, 21), np.float32)
    expected = np.maximum(np.roll(x, -2, axis=-1), 0)
    actual = exe(x)

    assert (expected == actual).all()
    assert [bool(e.kernel) for e in exe.artifact.table] == [target == "cpu"] * len(
        exe.artifact.table
    )


def test_a_model_format_is_read(tmp_path: Path) -> None:
    path = tmp_path / "model.chain"
    path.write_text("chain f32[2,3]\nrelu\nneg\n")
    x = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)
    actual = ag.compile(path)(x)

    assert (actual == -np.maximum(x, 0)).all()


def test_an_unknown_format_lists_ours_and_theirs(tmp_path: Path) -> None:
    path = tmp_path / "model.pickle"
    path.write_text("neither")

    with pytest.raises(ag.errors.ModelError, match="supported: chain, onnx"):
        ag.load(path)


def test_a_target_and_its_backend_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    exe = ag.compile(rotating_model(), target="echo+loud")

    assert str(exe.artifact.target) == "echo+loud"
    assert ag.Target.parse("echo+loud") == exe.artifact.target
    assert "ROTATE" in capsys.readouterr().out


def test_an_unknown_target_lists_ours_and_theirs() -> None:
    with pytest.raises(ag.errors.OptionError, match=r"known are: cpu, .*, echo, interpreter") as e:
        ag.Target.parse("ecco")

    assert "try: 'echo'" in str(e.value)


def test_a_target_judges_its_features() -> None:
    with pytest.raises(ag.errors.OptionError, match="'loud', not soft"):
        ag.Target.parse("echo+soft")
