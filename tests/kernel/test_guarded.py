"""Guarded runs find what kernels touch that is not theirs: kernels written by hand to do so, and
mistakes that there were.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.ir.types import TensorType
from alpenglow.kernel import expr
from alpenglow.kernel.build import Builder
from alpenglow.kernel.expr import Buffer, Const, Load, Reduce
from alpenglow.loops.coord import Coord, is_number
from alpenglow.machines.api import Artifact, Entry
from alpenglow.machines.cpu import emit
from alpenglow.machines.cpu.assemble import assemble
from alpenglow.machines.vector.templates import conv, matmul
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.tensor.copy import Copy
from alpenglow.ops.tensor.movement import Broadcast, Concat, Slice, Transpose
from alpenglow.program import Buffer as Memory
from alpenglow.program import Instr, Program, Region
from alpenglow.program.instr import whole
from alpenglow.render.llvm.render import render
from alpenglow.runtime.executables.installed import install
from fuzz import fences, guarded, places
from onnx_node import single

Array = NDArray[Any]
Body = Callable[[Builder, Buffer, Buffer], None]

pytestmark = pytest.mark.skipif(not fences.SUPPORTED, reason="faults are caught on 64-bit Linux")

HOST = ag.Target.parse("cpu")


def by_hand(
    body: Body, x: str = "f32[5]", y: str = "f32[5]", *, extent: int = 1,
    x_region: Region | None = None, y_region: Region | None = None, align: int = 0,
) -> Artifact:  # fmt: skip
    """Return an artifact of one instruction, whose kernel `body` builds on buffers x and y."""
    types = {"x": TensorType.parse(x), "y": TensorType.parse(y)}
    read, written = x_region or whole("x", types["x"]), y_region or whole("y", types["y"])
    b = Builder("by_hand")
    result = b.buffer("y0", written.type.dtype, True)
    body(b, b.buffer("x0", read.type.dtype, True, align), result)
    kernel = b.done()
    # The compiler declares results first, and may not be told that a kernel writes its operand.
    kernel = replace(kernel, buffers=tuple(sorted(kernel.buffers, key=lambda k: k.name[0] == "x")))
    buffers = {
        "x": Memory("x", types["x"].nbytes, "input", types["x"]),
        "y": Memory("y", types["y"].nbytes, "output", types["y"]),
    }
    program = Program("hand", buffers, ("x",), ("y",), (Instr(Copy(), (written,), (read,)),))
    image = assemble(render(kernel, fast=False), HOST)
    return Artifact(HOST, program, {kernel.name: image}, (Entry(kernel.name, extent),))


def found(artifact: Artifact) -> str:
    """Return what a guarded run of an artifact finds first, "" if nothing."""
    (t,) = install(artifact).inputs.values()
    x = (np.arange(t.size) + 1).reshape(t.extents).astype(t.numpy)
    try:
        guarded.run(artifact, {"x": x})
    except guarded.Trespass as error:
        return f"{error.findings[0].side}: {error.findings[0].what}"
    return ""


def copies(b: Builder, x: Buffer, y: Buffer) -> None:
    with b.loop(5) as i:
        b.store(y, i, Load(x, i))


def test_a_kernel_that_keeps_to_its_operands_gives_what_it_always_gives() -> None:
    artifact = by_hand(copies)
    x = np.arange(5, dtype=np.float32)

    np.testing.assert_array_equal(guarded.run(artifact, {"x": x})["y"], x)


# ── what may not be touched ──


def reads(at: int, lanes: int = 1) -> Body:
    """Return what copies, and adds nothing that it read elsewhere; the compiler cannot see that."""

    def body(b: Builder, x: Buffer, y: Buffer) -> None:
        copies(b, x, y)
        value = Load(x, Const(at), lanes)
        b.store(y, 0, value if lanes == 1 else Reduce("add", value))

    return body


def writes(at: int, operand: bool = False) -> Body:
    def body(b: Builder, x: Buffer, y: Buffer) -> None:
        copies(b, x, y)
        b.store(x if operand else y, at, Const(1.0, "f32"))

    return body


TRESPASSES: dict[str, tuple[Body, str]] = {
    "one element too many": (reads(5), r"end: reads 0 bytes behind the last of x0 f32\[5\]"),
    "a row too many": (reads(1005), r"end: reads 4000 bytes behind the last of x0 f32\[5\]"),
    "one element before": (reads(-1), r"beginning: reads 4 bytes before x0 f32\[5\]"),
    "a vector that is too wide": (reads(0, 8), r"end: reads 0 bytes behind the last of x0"),
    "a vector that begins before": (reads(-3, 8), r"beginning: reads 12 bytes before x0"),
    "a result one element too long": (writes(5), r"end: writes 0 bytes behind the last of y0"),
    "a result that begins too early": (writes(-1), r"end: writes beside y0"),
    "an operand": (writes(2, operand=True), r"end: writes x0 f32\[5\], which is not a result"),
}


@pytest.mark.parametrize("case", TRESPASSES)
def test_what_is_touched_outside_of_operands_is_found(case: str) -> None:
    body, expected = TRESPASSES[case]

    assert re.match(expected, found(by_hand(body)))


def test_a_message_names_the_kernel_and_shows_the_instruction() -> None:
    with pytest.raises(guarded.Trespass, match=r"(?s)by_hand.*%y f32\[5\] = copy\(%x f32\[5\]\)"):
        guarded.run(by_hand(reads(5)), {"x": np.ones(5, np.float32)})


def test_a_fault_far_from_all_operands_is_found() -> None:
    assert "reads 0x" in found(by_hand(reads(-1 << 34)))


def test_more_alignment_than_that_of_an_element_is_found() -> None:
    def body(b: Builder, x: Buffer, y: Buffer) -> None:
        with b.loop(17) as i:
            b.store(y, i, Load(x, i))
        b.store(y, 0, Load(x, Const(0), 4))

    aligned = by_hand(body, "f32[17]", "f32[17]", align=16)

    assert found(by_hand(body, "f32[17]", "f32[17]")) == ""
    assert "misaligned" in found(aligned)


EVERY_SECOND = Region("y", TensorType.parse("f32[3]"), 0, (2,))


def test_a_gap_that_is_written_is_found() -> None:
    def body(b: Builder, x: Buffer, y: Buffer) -> None:
        for i in range(3):
            b.store(y, 2 * i, Load(x, Const(i)))
        b.store(y, 1, Load(x, Const(0)))

    trespasser = by_hand(body, "f32[3]", y_region=EVERY_SECOND)

    assert found(trespasser) == "end: writes into the gaps of y0 f32[3]"


def test_a_gap_that_is_read_is_found() -> None:
    region = replace(EVERY_SECOND, buffer="x")

    def body(b: Builder, x: Buffer, y: Buffer) -> None:
        for i in range(3):
            b.store(y, i, Load(x, Const(2 * i if i else 1)))

    assert "y0 f32[3] depends on gaps" in found(by_hand(body, y="f32[3]", x_region=region))


@pytest.mark.parametrize("dtype", ["f32", "i64", "bool", "f16"])
def test_a_lane_that_is_no_channel_is_found(dtype: str) -> None:
    """20 channels in two blocks of 16: lane 4 of the second block is unspecified."""

    def body(b: Builder, x: Buffer, y: Buffer) -> None:
        with b.loop(32) as i:
            b.store(y, i, Load(x, i))

    blocked, plain = f"{dtype}[1,20/16,1,16]", f"{dtype}[1,2,1,16]"

    assert found(by_hand(body, blocked, blocked)) == ""
    assert "depends on gaps" in found(by_hand(body, blocked, plain))


def test_an_element_that_is_not_written_is_found() -> None:
    def body(b: Builder, x: Buffer, y: Buffer) -> None:
        for i in (0, 1, 2, 4):
            b.store(y, i, Load(x, Const(i)))

    assert "is not written" in found(by_hand(body))


def test_a_part_of_a_loop_that_writes_into_the_next_part_is_found() -> None:
    def body(b: Builder, x: Buffer, y: Buffer) -> None:
        with b.loop(5, "parallel") as i:
            b.store(y, i, Load(x, i))
            b.store(y, i + 1, Const(0.0, "f32"), expr.Compare("lt", i, Const(4)))

    assert "how the loop is cut" in found(by_hand(body, extent=5))


def test_an_arena_that_is_read_before_it_is_written_is_found() -> None:
    hand = by_hand(copies)
    t = TensorType.parse("f32[5]")
    buffers = {**hand.program.buffers, "a": Memory("a", 20, "arena", offset=0)}
    instr = Instr(Copy(), (whole("y", t),), (whole("a", t),))
    program = replace(hand.program, buffers=buffers, body=(instr,), arena=64)

    assert "output 'y' has other bits than in fences" in found(replace(hand, program=program))


def test_a_result_that_takes_over_an_operand_lies_with_it() -> None:
    g = ag.Graph("inplace")
    x = g.input("x", "f32[4,5]")
    g.output("y", g(Transpose((1, 0)), g(Relu(), g(Add(), x, x))))
    program = ag.compile(g, options=ag.Options(numerics="strict")).artifact.program
    t = TensorType.parse("f32[8]")
    shared = Instr(Add(), (whole("a", t),), (whole("a", t), whole("b", t)))
    memory = {n: Memory(n, 32, "arena") for n in "ab"}
    joined = places.places(shared, replace(program, buffers=memory))

    assert [[o.name for o in place.operands] for place in joined] == [["y0", "x0"], ["x1"]]


def test_operands_inside_a_result_that_they_do_not_meet_lie_alone() -> None:
    t = TensorType.parse("f32[4,2]")
    left, right = Region("a", t, 0, (4, 1)), Region("a", t, 2, (4, 1))
    program = Program("p", {"a": Memory("a", 64, "arena")}, (), (), ())
    apart = places.places(Instr(Relu(), (right,), (left,)), program)

    assert [[o.name for o in place.operands] for place in apart] == [["y0"], ["x0"]]


# ── what runs guarded ──


def test_results_in_place_and_inside_each_other_are_what_they_are() -> None:
    g = ag.Graph("f")
    x = g.input("x", "f32[3,7]")
    a = g(Relu(), g(Add(), x, x))
    g.output("y", g(Concat(1), g(Add(), a, x), a, x))
    exe = ag.compile(g, threads=1)
    feeds = {"x": np.random.default_rng(0).standard_normal((3, 7)).astype(np.float32)}

    np.testing.assert_array_equal(guarded.run(exe, feeds)["y"], exe.run(feeds)["y"])


def test_open_extents_run_guarded() -> None:
    g = ag.Graph("f")
    x = g.input("x", "f32[n,m]")
    g.output("y", g(MatMul(), x, g(Transpose((1, 0)), g(Relu(), x))))
    exe = ag.compile(g, threads=1)
    for shape in ((3, 5), (1, 17), (33, 2)):
        x_array = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        with guarded.watching() as tally:
            y = exe.run({"x": x_array})["y"]

        assert tally.kernels and tally.calls >= 2 * tally.instructions
        np.testing.assert_allclose(y, x_array @ np.maximum(x_array, 0).T, 1e-5, 1e-5)


# ── mistakes that there were: proofs say them at once, and guards if nothing is proved ──


def believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let kernels be compiled without a proof."""
    monkeypatch.setattr(emit, "admitted", lambda *_: True)


def test_rows_merged_where_a_convolution_pads_them_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def pointwise(op: Any, w: tuple[int, ...]) -> bool:
        taps = w[2 : 2 + len(op.strides)]
        return {*taps, *op.strides} == {1} and len(op.strides) > 1

    monkeypatch.setattr(conv, "_pointwise", pointwise)
    random = np.random.default_rng(0)
    x = random.standard_normal((1, 32, 7, 11, 5)).astype(np.float32)
    w = random.standard_normal((32, 1, 3, 3, 3)).astype(np.float32)
    model = single("ConvTranspose", [x, w], 17, constants=[1], strides=[3, 3, 3], pads=[1] * 6,
                   output_padding=[2, 2, 2])  # fmt: skip

    monkeypatch.setenv("ALPENGLOW_CHECK", "1")
    with pytest.raises(AssertionError, match=r"conv_blocked_\w+ of .* may leave its operands"):
        ag.compile(model, threads=1)
    believed(monkeypatch)
    with pytest.raises(guarded.Trespass, match=r"conv_blocked_\w+, flush with .*: reads .* of x0"):
        guarded.run(ag.compile(model, threads=1), {"x0": x})


def test_a_vector_of_neighbours_where_all_lanes_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_lanes(buffer: Buffer, at: Coord, lanes: int, mask: Any = None) -> Any:
        address = at.base if is_number(at.step, 1) else at.expr()
        return Load(buffer, address, lanes, mask)

    monkeypatch.setattr(matmul, "in_lanes", in_lanes)
    g = ag.Graph("f")
    x, w = g.input("x", "f32[3,8,4]"), g.input("w", "f32[3,4,2]")
    column = g(Slice((0, 0, 1), (3, 4, 1), (1, 1, 1)), w)
    g.output("y", g(MatMul(), x, g(Broadcast((3, 4, 16)), column)))

    monkeypatch.setenv("ALPENGLOW_CHECK", "1")
    with pytest.raises(AssertionError, match=r"mat_mul_\w+ of .* may leave its operands"):
        ag.compile(g, threads=1)
    believed(monkeypatch)
    with pytest.raises(guarded.Trespass, match=r"mat_mul_\w+, flush with the end: reads 0 bytes"):
        guarded.run(ag.compile(g, threads=1), {"x": np.ones((3, 8, 4), np.float32),
                                                "w": np.ones((3, 4, 2), np.float32)})  # fmt: skip
