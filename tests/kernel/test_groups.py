"""Groups and subgroups of threads: what a kernel says of them, and what a host starts."""

from __future__ import annotations

import numpy as np
import pytest

from alpenglow.base.errors import KernelError
from alpenglow.kernel.build import Builder
from alpenglow.kernel.evaluate import evaluate
from alpenglow.kernel.expr import Const
from alpenglow.kernel.legalise import Lacks, legalise
from alpenglow.kernel.races import RaceError
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
        ("subgroup 8", "subgroup 6", "subgroup is 6 threads, expected a power of two"),
        (
            "subgroup 8",
            "subgroup 32",
            "a group has 16 threads, expected a multiple of the subgroup of 32",
        ),
        (
            "t in 8",
            "t in n",
            "a group has an unknown number of threads, expected a multiple of the subgroup",
        ),
    ],
)
def test_groups_are_made_of_whole_subgroups(old: str, new: str, says: str) -> None:
    with pytest.raises(KernelError, match=says):
        parse_kernel(NUMBERED.replace(old, new))


TURN = """kernel @turn(x: i64, y: mut i64) subgroup 8 {
  array a: i64[16] shared
  group g in 2 {
    thread w in 2 {
      thread t in 8 {
        a[w*8 + t] = x[(g*2 + w)*8 + t]
        barrier subgroup
        y[(g*2 + w)*8 + t] = a[w*8 + (t + 1)%8]
      }
    }
  }
}
"""


def turn(*changes: tuple[str, str]) -> list[int]:
    text = TURN
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    y = np.zeros(32, np.int64)
    evaluate(parse_kernel(text), {"x": np.arange(32), "y": y})
    return [int(v) for v in y]


def test_a_barrier_of_subgroups_parts_their_threads() -> None:
    assert turn()[:9] == [1, 2, 3, 4, 5, 6, 7, 0, 9]
    assert print_kernel(parse_kernel(TURN)).count("barrier subgroup") == 1


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            [("barrier subgroup", "")],
            r"thread 0 reads a\[1\], which thread 1 wrote, and no barrier",
        ),
        (
            [("a[w*8 + (t + 1)%8]", "a[(w*8 + t + 8)%16]")],
            r"subgroup 0 reads a\[8\], which subgroup 1 wrote, and no barrier of the group",
        ),
        (
            [("barrier subgroup", "barrier\nr: i64 = a[t]\nbarrier subgroup\na[w*8 + t] = r")],
            r"thread 0 writes a\[0\], which others read",
        ),
        ([("y[(g*2 + w)*8 + t]", "y[w*8 + t]")], r"group 1 writes y\[0\], which group 0 wrote"),
        (
            [("barrier subgroup", "barrier\ny[g*16] = y[16 - g*16]")],
            r"thread 0 writes y\[0\], which thread 15 writes",
        ),
        (
            [("y[(g*2 + w)*8 + t] =", "atomic.add y[t] = y[t] +")],
            r"thread 0 changes y\[0\], which others read",
        ),
    ],
)
def test_races_are_told(changes: list[tuple[str, str]], says: str) -> None:
    with pytest.raises(RaceError, match=says):
        turn(*changes)


def test_a_barrier_of_the_group_parts_what_threads_do_to_operands() -> None:
    own = "y[(g*2 + w)*8 + t] = t\nbarrier\nr: i64 = y[g*16 + (w*8 + t + 9)%16]\nbarrier"

    assert turn(("barrier subgroup", own), ("a[w*8 + (t + 1)%8]", "r"))[:3] == [1, 2, 3]
    with pytest.raises(RaceError, match=r"thread 0 reads y\[9\], which thread 9 wrote"):
        turn(("barrier subgroup", own.replace("barrier", "", 1)))


def test_groups_may_change_one_place_atomically() -> None:
    assert turn(("y[(g*2 + w)*8 + t] =", "atomic.add y[0] ="))[0] == sum(range(32))


@pytest.mark.parametrize("lacks", [Lacks(), Lacks(subgroups=True)])
def test_barriers_of_subgroups_become_barriers_of_groups(lacks: Lacks) -> None:
    plain = legalise(parse_kernel(TURN), lacks)
    y = np.zeros(32, np.int64)
    evaluate(plain, {"x": np.arange(32), "y": y})

    assert y.tolist() == turn()
    assert ("subgroup" in print_kernel(plain)) == (not lacks.subgroups)


def test_a_subgroup_of_one_thread_waits_for_nobody() -> None:
    text = TURN.replace("subgroup 8", "").replace("(t + 1)%8", "t")

    assert "barrier" not in print_kernel(legalise(parse_kernel(text), Lacks()))
