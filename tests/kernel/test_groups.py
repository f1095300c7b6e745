"""Groups and subgroups of threads: what a kernel says of them, and what a host starts."""

from __future__ import annotations

import numpy as np
import pytest

from alpenglow.base.errors import KernelError
from alpenglow.kernel.build import Builder
from alpenglow.kernel.evaluate import evaluate
from alpenglow.kernel.expr import Const
from alpenglow.kernel.text import parse_kernel, print_kernel

NUMBERED = """kernel @numbered(y: mut i64) extents(n) subgroup 8 {
  group g in n {
    thread w in 2 {
      thread t in 8 {
        y[(g*2 + w)*8 + t] = w*8 + t
      }
    }
  }
}
"""


def test_the_subgroup_is_part_of_the_text() -> None:
    kernel = parse_kernel(NUMBERED)

    assert kernel.subgroup == 8
    assert print_kernel(kernel) == NUMBERED


def test_a_builder_says_how_many_threads_are_a_subgroup() -> None:
    b = Builder("k", subgroup=4)
    y = b.buffer("y", "i64", mutable=True)
    with b.loop(8, "thread") as t:
        b.store(y, t, t)

    assert "subgroup 4 {" in print_kernel(b.done())


def test_the_launch_is_that_of_the_loops_innermost_first() -> None:
    launch = parse_kernel(NUMBERED).launch

    assert [loop.index.name for loop in launch.groups] == ["g"]
    assert [loop.index.name for loop in launch.threads] == ["t", "w"]
    assert [e.value for e in launch.sizes[1] if isinstance(e, Const)] == [8, 2]
    assert launch.count == 16


def test_threads_are_numbered_the_innermost_loop_fastest() -> None:
    y = np.zeros(48, np.int64)
    evaluate(parse_kernel(NUMBERED), {"y": y}, {"n": 3}, launch=((3,), (8, 2)))

    assert y.tolist() == list(range(16)) * 3


@pytest.mark.parametrize(
    ("launch", "says"),
    [
        (((3,), (16,)), r"threads are launched as \(16,\), expected \(8, 2\)"),
        (((4,), (8, 2)), r"groups are launched as \(4,\), expected \(3,\)"),
    ],
)
def test_a_launch_that_is_not_that_of_the_loops_is_told(
    launch: tuple[tuple[int, ...], tuple[int, ...]], says: str
) -> None:
    with pytest.raises(KernelError, match=says):
        evaluate(parse_kernel(NUMBERED), {"y": np.zeros(48, np.int64)}, {"n": 3}, launch=launch)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("subgroup 8", "subgroup 6", "a subgroup of 6 threads; expected a power of two"),
        ("subgroup 8", "subgroup 32", "a group of 16 threads has no whole subgroups of 32"),
        ("t in 8", "t in n", "a number of threads that is not known has no whole subgroups"),
    ],
)
def test_groups_are_made_of_whole_subgroups(old: str, new: str, says: str) -> None:
    with pytest.raises(KernelError, match=says):
        parse_kernel(NUMBERED.replace(old, new))
