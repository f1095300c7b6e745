"""What goes across the threads of a subgroup: what NumPy says, with subgroups and without."""

from __future__ import annotations

import numpy as np
import pytest

from alpenglow.base.errors import KernelError, UnsupportedError
from alpenglow.kernel.evaluate import evaluate
from alpenglow.kernel.legalise import Lacks, legalise
from alpenglow.kernel.text import parse_kernel, print_kernel
from group_kernels import exchange
from loop_kernels import same_bits

SIZE = 8
OPS = {
    "across.xor(x, 5)": lambda x: x[:, np.arange(SIZE) ^ 5],
    "across.down(x, 3)": lambda x: x[:, [3, 4, 5, 6, 7, 5, 6, 7]],
    "across.up(x, 3)": lambda x: x[:, [0, 1, 2, 0, 1, 2, 3, 4]],
    "across.from(x, (t*3 + 1)%8)": lambda x: x[:, [1, 4, 7, 2, 5, 0, 3, 6]],
    "across.add(x)": lambda x: np.repeat(x.sum(1, x.dtype, keepdims=True), SIZE, 1),
    "across.mul(x)": lambda x: np.repeat(x.prod(1, x.dtype, keepdims=True), SIZE, 1),
    "across.min(x)": lambda x: np.repeat(x.min(1, keepdims=True), SIZE, 1),
    "across.max(x)": lambda x: np.repeat(x.max(1, keepdims=True), SIZE, 1),
}


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("text", OPS)
def test_threads_exchange_what_numpy_says(text: str, lanes: int) -> None:
    case = exchange(text, "i32", lanes)
    evaluate(*case)
    x = case.operands["x"].reshape(-1, SIZE, lanes)

    assert (case.operands["y"].reshape(x.shape) == OPS[text](x)).all()


@pytest.mark.parametrize("dtype", ["f32", "f64", "u8", "i16", "i64", "bool", "f16"])
@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("lacks", [Lacks(subgroups=True), Lacks(combined=True)])
@pytest.mark.sampled(14)
def test_laws_keep_every_bit(dtype: str, lanes: int, lacks: Lacks) -> None:
    texts = [*OPS, "across.any(x)", "across.all(x)"]
    for text in (t for t in texts if ("any" in t or "all" in t) == (dtype == "bool") or "," in t):
        kernel, operands, extents = exchange(text, dtype, lanes)
        expected, actual = ({n: a.copy() for n, a in operands.items()} for _ in range(2))
        evaluate(kernel, expected, extents)
        plain = legalise(kernel, lacks)
        evaluate(plain, actual, extents)

        assert same_bits(expected["y"], actual["y"]), print_kernel(plain)
        assert legalise(plain, lacks) is plain
        assert "across" not in print_kernel(plain).replace("across0", "") or lacks.combined
        assert parse_kernel(print_kernel(plain)).subgroup == (1 if lacks.subgroups else SIZE)


def test_floats_are_summed_by_halves() -> None:
    kernel, operands, extents = exchange("across.add(x)", "f32", 1)
    evaluate(kernel, operands, extents)
    x = operands["x"].reshape(-1, SIZE)
    while x.shape[1] > 1:
        x = x[:, : x.shape[1] // 2] + x[:, x.shape[1] // 2 :]

    assert same_bits(operands["y"].reshape(-1, SIZE), np.repeat(x, SIZE, 1))


def test_in_a_subgroup_of_one_thread_a_value_is_its_own() -> None:
    kernel, operands, extents = exchange("across.add(x)", "f32", 1)
    text = print_kernel(kernel).replace(" subgroup 8", "")
    evaluate(parse_kernel(text), operands, extents)

    assert same_bits(operands["x"], operands["y"])
    assert "across" not in print_kernel(legalise(parse_kernel(text), Lacks(subgroups=True)))


WAYS = """kernel @ways(x: i64, y: mut i64) subgroup 8 {{
  thread w in 2 {{
    thread t in 8 {{
      r: i64 = x[w*8 + t]
      n: i64 = 0
      {}
        r = across.xor(r, 1)
        n = n + 1
      }}
      y[w*8 + t] = r
    }}
  }}
}}
"""


@pytest.mark.parametrize(
    "around",
    [
        "if w == 0 {",
        "for i in w + 1 {",
        "while n < 3 {",
        "while across.any(r > n) {",
        "if t/8 == 0 {",
    ],
)
def test_all_threads_of_a_subgroup_go_one_way(around: str) -> None:
    y = np.zeros(16, np.int64)
    evaluate(parse_kernel(WAYS.format(around)), {"x": np.arange(16), "y": y})


@pytest.mark.parametrize(
    ("around", "says"),
    [
        ("if t == 0 {", "not all threads of a subgroup need come to across.xor in the 'if'"),
        ("if t/4 == 0 {", "across.xor in the 'if'"),
        ("for i in t {", "across.xor in a serial loop"),
        ("while r > 3 {", "across.xor in the 'while'"),
        ("while across.xor(r, 1) > 3 {", "across.xor in the 'while'"),
        ("if x[0] > 0 {", "across.xor in the 'if'"),
    ],
)
def test_ways_that_part_are_told(around: str, says: str) -> None:
    with pytest.raises(KernelError, match=says):
        parse_kernel(WAYS.format(around))


def test_without_subgroups_all_threads_of_the_group_must_come() -> None:
    kernel = parse_kernel(WAYS.format("if w == 0 {"))

    said = r"across.xor in the 'if' is not supported.* \(kernel ways\)"
    with pytest.raises(UnsupportedError, match=said):
        legalise(kernel, Lacks(subgroups=True))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("across.xor(x, 8)", "across.xor by 8 in a subgroup of 8"),
        ("across.down(x, t)", "across.down by another operand than a number"),
        ("across.from(x, 1.0:f32)", "what across.from takes from is f32, expected i64"),
    ],
)
def test_what_is_no_exchange_is_refused(text: str, says: str) -> None:
    with pytest.raises(KernelError, match=says):
        exchange(text, "i32", 1)


def test_a_thread_that_is_not_there_is_told() -> None:
    kernel, operands, extents = exchange("across.from(x, t + 1)", "i32", 1)
    with pytest.raises(IndexError, match=r"across.from reads thread 8, expected 0 to 7"):
        evaluate(kernel, operands, extents)
