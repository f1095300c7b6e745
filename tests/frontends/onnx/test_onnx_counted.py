"""ONNX operators whose result shapes depend on data, against ONNX Runtime.

Nothing is known of the operands when a model is read: it is imported in parts, as it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest

import alpenglow as ag
from alpenglow.base.errors import AlpenglowError
from alpenglow.frontends.onnx import load
from node_cases import models
from onnx_node import Array, Feeds, assert_close, references, runtimes, single

FAMILY = {"NonZero", "NonMaxSuppression", "Unique", "Compress", "TfIdfVectorizer", "Range"}
NODE_TESTS = {
    case.name: case
    for case in models()
    if case.model is not None and {node.op_type for node in case.model.graph.node} <= FAMILY
}


def made(model: onnx.ModelProto, feeds: Feeds) -> list[Array]:
    """Return what compiled code makes of a model, which is what the interpreter makes."""
    names = [i.name for i in model.graph.input]
    arrays = dict(feeds) if isinstance(feeds, Mapping) else dict(zip(names, feeds, strict=True))
    exe = ag.compile(model)
    compiled = list(exe.run(arrays).values())
    interpreted = list(ag.compile(model, target="interpreter").run(arrays).values())

    assert all(entry.kernel for artifact in exe.artifacts for entry in artifact.table)
    assert_close(interpreted, compiled, 1e-6)
    return compiled


def check(
    op_type: str, *inputs: Array | None, opset: int = 13, outputs: int = 1, **attributes: Any
) -> list[Array]:
    """Assert that we agree with ONNX Runtime on one node; return the results."""
    model = single(op_type, inputs, opset, outputs, **attributes)
    feeds = {f"x{i}": x for i, x in enumerate(inputs) if x is not None}
    actual = made(model, feeds)

    assert_close(runtimes(model, inputs), actual, 1e-6)
    return actual


def drawn(*shape: int, below: int = 3, dtype: str = "float32") -> Array:
    return np.random.default_rng(0).integers(0, below, shape).astype(dtype)


@pytest.mark.parametrize("name", NODE_TESTS)
@pytest.mark.sampled(8)
def test_the_node_tests_of_onnx_pass(name: str) -> None:
    case = NODE_TESTS[name]
    assert case.model is not None
    for inputs, outputs in case.data_sets or ():
        actual = made(case.model, [np.asarray(x) for x in inputs])

        assert_close([np.asarray(y) for y in outputs], actual, case.rtol)


@pytest.mark.parametrize("shape", [(), (7,), (3, 4), (2, 0), (2, 3, 4)])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
@pytest.mark.sampled(8)
def test_non_zero_agrees(shape: tuple[int, ...], dtype: str) -> None:
    check("NonZero", drawn(*shape, dtype=dtype))


def test_nothing_is_found_among_zeros() -> None:
    (y,) = check("NonZero", np.zeros((3, 2), np.float32))

    assert y.shape == (2, 0)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("length", [1, 3, 9])
def test_compress_agrees(axis: int | None, length: int) -> None:
    condition = np.resize([False, True, True], length)
    attributes = {} if axis is None else {"axis": axis}

    check("Compress", drawn(3, 5), condition, **attributes)


@pytest.mark.parametrize("ordered", [0, 1])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.sampled(4)
def test_unique_agrees(axis: int | None, ordered: int, dtype: str) -> None:
    attributes = {} if axis is None else {"axis": axis}
    x = drawn(5, 6, 2, below=2, dtype=dtype)

    check("Unique", x, outputs=4, sorted=ordered, **attributes)


@pytest.mark.parametrize("shape", [(), (1,), (0,)])
def test_unique_of_almost_nothing_agrees(shape: tuple[int, ...]) -> None:
    check("Unique", drawn(*shape), outputs=4)


@pytest.mark.parametrize("center", [0, 1])
@pytest.mark.parametrize("threshold", [None, 0.4])
@pytest.mark.parametrize("limit", [None, 0, 3, 100])
@pytest.mark.sampled(4)
def test_non_max_suppression_agrees(
    limit: int | None, threshold: float | None, center: int
) -> None:
    random = np.random.default_rng(0)
    boxes = random.uniform(0, 9, (2, 40, 4)).astype(np.float32)
    scores = random.random((2, 3, 40)).astype(np.float32)
    operands = [None if limit is None else np.array([limit]), np.array([0.3], np.float32),
                None if threshold is None else np.array([threshold], np.float32)]  # fmt: skip
    while operands and operands[-1] is None:
        operands.pop()

    check("NonMaxSuppression", boxes, scores, *operands, center_point_box=center)


@pytest.mark.parametrize("operands", [1, 2, 3])
def test_equal_scores_keep_the_lower_box_first(operands: int) -> None:
    boxes = np.random.default_rng(0).uniform(0, 9, (1, 30, 4)).astype(np.float32)
    scores = drawn(1, 2, 30)
    rest = [np.array(9), np.array([0.5], np.float32), np.zeros(1, np.float32)][:operands]

    check("NonMaxSuppression", boxes, scores, *rest)


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("shape", "lengths"),
    [((3, 20), (1, 1, 0)), ((20,), (1, 2, 3)), ((3, 20), (2, 3, 2)), ((20,), (3, 3, 0))],
)
@pytest.mark.sampled(12)
def test_tf_idf_agrees(
    shape: tuple[int, ...], lengths: tuple[int, int, int], weighted: bool, mode: str
) -> None:
    least, most, skips = lengths
    attributes: dict[str, Any] = {
        "mode": mode, "min_gram_length": least, "max_gram_length": most, "max_skip_count": skips,
        "ngram_counts": [0, 3, 9], "ngram_indexes": [6, 5, 4, 3, 2, 1, 0],
        "pool_int64s": [2, 0, 1, 0, 1, 1, 1, 2, 0, 0, 1, 2],
    }  # fmt: skip
    if weighted:
        attributes["weights"] = [1.5, 2, 3, 4, 5, 6, 7]

    check("TfIdfVectorizer", drawn(*shape, dtype="int64"), opset=9, **attributes)


@pytest.mark.parametrize(("first", "last", "step"), [(1, 5, 1.5), (0, -2, -0.25), (3, 1, 1)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "int16"])
def test_range_agrees(first: float, last: float, step: float, dtype: str) -> None:
    operands = [np.array(v).astype(dtype) for v in (first, last, step)]
    operands[2] = operands[2] or np.array(-1, dtype)

    check("Range", *operands, opset=11)


@pytest.mark.parametrize("op_type", ["NonZero", "Unique"])
def test_a_second_run_may_find_more_or_less(op_type: str) -> None:
    model = single(op_type, [drawn(4, 6)], 13)
    exe = ag.compile(model)
    for seed in range(5):
        x = np.random.default_rng(seed).integers(0, 3 - seed % 3, (4, 6)).astype(np.float32)

        assert_close(runtimes(model, [x]), [exe(x)], 0)


def test_a_second_range_may_be_of_another_length() -> None:
    given = [np.array(v, np.int32) for v in (0, 5, 1)]
    model = single("Range", given, 13)
    exe = ag.compile(model)
    for first, last, step in [(0, 5, 1), (-3, 5, 2), (4, -9, -3), (2, 2, 1), (7, 3, 1), (3, 1, -1)]:
        operands = [np.array(v, np.int32) for v in (first, last, step)]

        assert_close(runtimes(model, operands), [exe(*operands)], 0)


@pytest.mark.parametrize(
    ("op", "operands", "attributes", "message"),
    [
        ("Compress", [drawn(2, 3), drawn(2, 2, dtype="bool")], {}, "one axis"),
        ("Compress", [drawn(2, 3), drawn(2, dtype="bool")], {"axis": 2}, "axis"),
        ("Unique", [drawn(2, 3)], {"axis": -3}, "axis"),
        ("NonMaxSuppression", [drawn(1, 5, 3), drawn(1, 1, 5)], {}, "boxes"),
        ("NonMaxSuppression", [drawn(1, 5, 4), drawn(1, 1, 4)], {}, "boxes"),
    ],
)
def test_operands_that_do_not_fit_are_reported(
    op: str, operands: list[Array], attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(AlpenglowError, match=message):
        load(single(op, operands, 13, **attributes))


def test_the_reference_evaluator_agrees_on_the_four_results_of_unique() -> None:
    x = np.array([[3, 1], [1, 1], [3, 1], [0, 9]], np.float32)
    model = single("Unique", [x], 11, 4, axis=0)

    assert_close(references(model, {"x0": x}), made(model, [x]), 0)
