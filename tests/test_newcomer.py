"""What people get wrong first, and what they are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import AlpenglowError, FeedError, ModelError, OptionError
from open_cases import helper, model, weights

X = np.zeros((2, 8), np.float32)


def perceptron() -> Any:
    return model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": ("N", 8)},
                 {"w": weights(8, 4)})  # fmt: skip


@pytest.mark.parametrize(
    ("what", "says"),
    [
        (None, "of type NoneType, expected a path"),
        ([1, 2], "of type list, expected a path"),
        (b"", "is of no known format"),
        ("no/such.onnx", "No such file"),
    ],
)
def test_what_is_no_model_is_told_apart(what: Any, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        ag.compile(what)


def test_folders_and_empty_files_are_called_so(tmp_path: Path) -> None:
    (tmp_path / "empty.onnx").touch()
    with pytest.raises(ModelError, match="this is a folder"):
        ag.compile(tmp_path)
    with pytest.raises(ModelError, match="the file is empty, expected"):
        ag.compile(tmp_path / "empty.onnx")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"shapes": [1, 8]}, "expected a dict from names of inputs to shapes, as {'x'"),
        ({"shapes": {"X": (1, 8)}}, "shapes names 'X', expected inputs: x"),
        ({"shapes": {"x": (1, 9)}}, "shape of input 'x' is (1, 9), expected"),
        ({"threads": "4"}, "threads is '4', expected a number"),
        ({"options": {"numerics": "fast"}}, "expected Options(…)"),
        ({"target": "gpu"}, "try: 'opencl:0', or 'opencl:NAME', for a GPU that"),
        ({"target": "cuda:0"}, "CUDA, ROCm, Metal and Vulkan are not supported"),
        ({"target": "cpuu"}, "try: 'cpu'"),
    ],
)
def test_options_of_the_wrong_kind_are_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(AlpenglowError) as caught:
        ag.compile(perceptron(), **given)

    assert says in str(caught.value)


def test_numerics_are_one_of_two() -> None:
    with pytest.raises(OptionError, match="expected 'fast' or 'strict'"):
        ag.Options(numerics="quick")  # type: ignore[arg-type]


@pytest.mark.parametrize("shapes", [None, {"x": (2, 8)}], ids=["open", "closed"])
@pytest.mark.parametrize(
    ("feeds", "says"),
    [
        ({"input": X}, "feeds lack x and hold input that is no input; the inputs are x : f32["),
        (X, "feeds are a ndarray, expected a dict from the names of inputs to arrays: x"),
        (None, "feeds are a NoneType"),
        ([X], "call the Executable itself"),
        ({"x": None}, "input 'x' is None, expected an array"),
        ({"x": {"x": X}}, "arrays by name go to run"),
        ({"x": X.astype(np.float64)}, "input 'x' is float64, expected float32"),
        ({"x": X[:, :7]}, "input 'x' has shape (2, 7), expected"),
    ],
)
def test_feeds_of_the_wrong_kind_are_refused(feeds: Any, says: str, shapes: Any) -> None:
    exe = ag.compile(perceptron(), shapes=shapes)
    with pytest.raises(FeedError) as caught:
        exe.run(feeds)

    assert says in str(caught.value)
    assert "other inputs" not in str(caught.value)


def test_an_archive_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "model.ago"
    ag.compile(perceptron(), shapes={"x": (2, 8)}).save(path)
    for read in (ag.compile, ag.load):
        with pytest.raises(ModelError, match=r"open\(…\)"):
            read(path)


def test_a_model_is_no_archive(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(perceptron().SerializeToString())
    with pytest.raises(ModelError, match=r"takes what Executable\.save wrote"):
        ag.open(path)
