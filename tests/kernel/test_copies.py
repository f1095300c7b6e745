"""Copies that go on while threads do something else: they arrive at their wait, and no sooner."""

from __future__ import annotations

import numpy as np
import pytest

from alpenglow.base.errors import KernelError, ParseError
from alpenglow.kernel.build import Builder
from alpenglow.kernel.evaluate import evaluate
from alpenglow.kernel.expr import Load
from alpenglow.kernel.legalise import Lacks, legalise
from alpenglow.kernel.races import RaceError
from alpenglow.kernel.text import parse_kernel, print_kernel
from group_kernels import PIPELINE, pipeline


def run(*changes: tuple[str, str]) -> list[int]:
    text = PIPELINE
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    kernel, operands, extents = pipeline(text)
    evaluate(kernel, operands, extents)
    return [int(v) for v in operands["y"]]


def test_what_was_waited_for_is_there() -> None:
    x = np.arange(40) % 37 * (np.arange(40) < 37)
    expected = [sum(int(x[s * 8 + (t + 1) % 8]) for s in range(5)) for t in range(8)]

    assert run() == expected
    assert print_kernel(parse_kernel(PIPELINE)) == PIPELINE


def test_plain_loads_and_stores_do_the_same() -> None:
    plain = legalise(parse_kernel(PIPELINE), Lacks(copies=True))
    _, operands, extents = pipeline(PIPELINE)
    evaluate(plain, operands, extents)

    assert operands["y"].tolist() == run()
    assert not any(word in print_kernel(plain) for word in ("copy", "commit", "wait"))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "      wait 1\n",
            "",
            r"reads a0\[\d+\], to which a copy of thread \d is under way: it has not been wai",
        ),
        ("wait 1", "wait 2", "under way: it has not been waited for"),
        ("    commit\n    for", "    for", "under way: it has not been waited for"),
        ("      commit\n      wait 1", "      wait 0", "it has not been committed"),
        ("wait 1\n      barrier\n", "wait 1\n", r"reads a0\[1\], which thread 1 wrote"),
        ("      barrier\n    }", "    }", r"thread 0 writes a0\[0\], which thread 7 read"),
        ("wait 1\n", "wait 1\n      a0[(i1 + 1)%2*8 + i0] = 0\n", "writes a0"),
    ],
)
def test_mistakes_are_told(old: str, new: str, says: str) -> None:
    with pytest.raises(RaceError, match=says):
        run((old, new))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("copy x[0] = y[0]", "copies go to shared arrays"),
        ("copy a[0] = x[0]", "a copy has no threads around it"),
        ("wait 0", "a wait has no threads around it"),
        ("copy a[0] = 3", "expected an element of a buffer to copy"),
    ],
)
def test_what_is_no_copy_is_refused(text: str, says: str) -> None:
    with pytest.raises((KernelError, ParseError), match=says):
        parse_kernel(f"kernel @k(x: i64, y: mut i64) {{\n array a: i64[8] shared\n {text}\n}}")


def test_a_copy_is_built() -> None:
    b = Builder("k")
    x, y, a = b.buffer("x", "f32"), b.buffer("y", "f32", True), b.array("f32", 4, "shared")
    with b.loop(4, "thread") as t:
        b.copy(a, t, x, t)
        b.commit()
        b.wait()
        b.store(y, t, Load(a, t))
    numbers, result = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    evaluate(b.done(), {"x": numbers, "y": result})

    assert (result == numbers).all()


def test_words_of_copies_are_names_all_the_same() -> None:
    text = """kernel @copy(across: f32, wait: mut f32) {
  commit: f32x4 = across.4[0]
  commit = commit + across.4[4]
  wait[0] = commit
}
"""

    assert print_kernel(parse_kernel(text)) == text
