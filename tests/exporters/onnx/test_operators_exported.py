"""Every operator as ONNX: its examples, exported, checked, and run in ONNX Runtime.

What ONNX Runtime has no kernel or no element type for is imported again and interpreted.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import UnsupportedError
from alpenglow.evaluate import evaluate
from alpenglow.ir.op import Op
from alpenglow.ir.types import COMPLEX, INTS, NARROW, NARROW_FLOATS
from alpenglow.ops.select import Cast
from onnx_runs import Array, imported, in_runtime
from operator_cases import (
    OPERATORS,
    Application,
    applications,
    assert_agree,
    feeds,
    forest,
)

WITHOUT = """
    bit_cast frames stft view_as_real view_as_complex complex_add complex_sub complex_neg conjugate
    complex_mul complex_div complex_abs angle complex_exp complex_log complex_pow complex_mat_mul
    complex_fft non_zero unique count_grams inverse eliminate det linear_attention find lookup top_k
    reverse_sequence pack_conv pack_matrix couple random_uniform random_normal choose lstm gru rnn
    lstm_integer roi_align max_roi_pool interpolate resize sample grid_sample deform_conv suppress
    tree_ensemble ungroup conv_blocked conv_planar depthwise_blocked depthwise_planar mat_mul_packed
    pack_nibbles mat_mul_few_bits winograd_filter winograd_input winograd_product winograd_output
"""
"""Operators that have no writer, and stand for some that have none."""

REFUSED = frozenset(WITHOUT.split())


def kinds(cases: list[Application]) -> Iterator[list[Application]]:
    """Yield cases that are written together: what ONNX Runtime has for one, it has for most."""
    every = [(a, {t.dtype for t in a.types if t is not None}) for a in cases]
    rare = NARROW | COMPLEX
    yield [a for a, dtypes in every if dtypes & rare]
    yield [a for a, dtypes in every if not dtypes & rare and dtypes <= {"f32", "i64", "i32"}]
    yield [a for a, dtypes in every if not dtypes & rare and not dtypes <= {"f32", "i64", "i32"}]


@pytest.mark.parametrize("cls", OPERATORS, ids=lambda cls: cls.name)
def test_an_operator_is_exported(cls: type[Op]) -> None:
    if cls.name in REFUSED:
        refused(cls)
        return
    for cases in kinds(list(applications(cls))):
        if cases:
            check(cases)


def refused(cls: type[Op]) -> None:
    """Assert that an operator is refused by name, or what it stands for is, in some example."""
    messages = []
    for a in applications(cls):
        try:
            ag.export_onnx(forest([a]))
        except UnsupportedError as error:
            messages.append(str(error))

    assert messages
    assert all("cannot be written as ONNX" in m for m in messages)


def check(cases: list[Application]) -> None:
    """Export applications as one graph, or where ONNX Runtime lacks one of them, one by one."""
    random = np.random.default_rng(len(cases))
    contents = [a.draw(random) for a in cases]
    if not agree(cases, contents) and len(cases) > 1:
        for a, arrays in zip(cases, contents, strict=True):
            agree([a], [arrays])


def agree(cases: list[Application], contents: list[list[Array | None]]) -> bool:
    """Compare what the model says; return False if many are to be run one by one instead."""
    g = forest(cases)
    arrays = feeds(cases, contents)
    model = ag.export_onnx(g)
    types = {name: v.type for name, v in g.outputs.items()}
    results = None if any(peer_differs(a) for a in cases) else in_runtime(model, arrays, types)
    if results is None and len(cases) > 1:
        return False
    actual = imported(model, arrays) if results is None else results
    expected = evaluate(g, arrays)
    for name, t in types.items():
        op = cases[int(name[1:].partition("_")[0])].op
        assert_agree(f"{op} {name}", expected[name], actual[name], t)
    return True


def peer_differs(a: Application) -> bool:
    """Return True where ONNX Runtime rounds to few bits otherwise than ONNX says.

    To it negative numbers are the least power of two, what is not limited may be NaN, and NaN as
    an integer is any number.
    """
    if not isinstance(a.op, Cast):
        return False
    (source,) = a.types
    assert source is not None, "a cast has an operand"
    narrow = source.dtype in NARROW_FLOATS and a.op.dtype in INTS
    return narrow or a.op.dtype == "f8e8m0" or not a.op.saturate
